"""TensorFlow Serving's protos as a descriptor set: collected once, loaded anywhere.

`import tensorflow_serving.apis` brings all of TensorFlow with it: 5 seconds and half
a gigabyte for a client. The descriptor set loads in 0.2 s into a pool of its own.
"""

import importlib
import threading
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from serving.apis import missing

FILE = Path(__file__).with_name("tensorflow_serving.binpb")
RENEW = ".venv/bin/python scripts/renew-apis"
# Not the two *_service_pb2: their generated code does not load under protobuf 6.
MODULES = (
    "tensorflow_serving.apis.get_model_metadata_pb2",
    "tensorflow_serving.apis.get_model_status_pb2",
    "tensorflow_serving.apis.model_management_pb2",
    "tensorflow_serving.apis.prediction_log_pb2",
    "tensorflow.core.protobuf.config_pb2",
    "tensorflow.core.protobuf.saved_model_pb2",
)
# Fixed-width lists of a TensorProto: packed, they are an array's bytes as they lie.
BUFFER_FIELDS = ("float_val", "double_val", "scomplex_val", "dcomplex_val")


def collect() -> descriptor_pb2.FileDescriptorSet:
    """Collect the protos of the installed package, each after those it imports."""
    files: dict[str, descriptor_pb2.FileDescriptorProto] = {}

    def add(file: Any) -> None:
        if file.name in files:
            return
        for imported in file.dependencies:
            add(imported)
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        files[file.name] = proto

    for name in MODULES:
        add(importlib.import_module(name).DESCRIPTOR)
    return descriptor_pb2.FileDescriptorSet(file=files.values())


def load() -> descriptor_pb2.FileDescriptorSet:
    """Read the checked-in descriptor set."""
    return descriptor_pb2.FileDescriptorSet.FromString(FILE.read_bytes())


_making = threading.RLock()


def pool(*, buffers: bool = False) -> descriptor_pool.DescriptorPool:
    """Return the pool of all messages and services.

    Args:
        buffers: Declare a TensorProto's fixed-width lists as `repeated bytes`, which
            are the same on the wire when the list is packed: to read or write one is
            then a copy of memory, not a loop over numbers.
    """
    with _making:  # two pools, or two classes of one message, do not fit together
        return _pool(buffers)


@cache
def _pool(buffers: bool) -> descriptor_pool.DescriptorPool:
    made = descriptor_pool.DescriptorPool()
    known = load()
    for file in (*known.file, *missing.files(known)):
        if buffers:
            _as_buffers(file)
        made.Add(file)
    return made


def _as_buffers(file: descriptor_pb2.FileDescriptorProto) -> None:
    for message in file.message_type:
        if message.name != "TensorProto":
            continue
        for field in message.field:
            if field.name in BUFFER_FIELDS:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
                field.ClearField("options")  # [packed = true]


@cache
def message_class(full_name: str, *, buffers: bool = False) -> Any:
    """Return the class of a message, for example `tensorflow.TensorProto`.

    Raises:
        KeyError: There is none.
    """
    with _making:
        return _message_class(full_name, buffers)


@cache
def _message_class(full_name: str, buffers: bool) -> Any:
    descriptor = pool(buffers=buffers).FindMessageTypeByName(full_name)
    return message_factory.GetMessageClass(descriptor)
