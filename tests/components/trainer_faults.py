"""Models that go wrong at a step that is chosen, once; for the tests of the Trainer.

The fault lies in a file `fault.json` beside the project's model and is removed before
it strikes, so that the next attempt goes through:

```
{"kind": "signal", "signal": 9, "at": 37}    kills its own process at the 37th batch
{"kind": "hang", "tell": 1234, "at": 37}     sends SIGTERM there and never comes back
{"kind": "gone", "folder": "…", "at": 37}    puts a file into the place of a folder
{"kind": "export"}                           kills its process when built to be exported
{"kind": "memory", "over": 16, "from": 3}    refuses more examples from a batch on
{"kind": "limit", "bytes": 200000000}        address space that is left in a layer
```
"""

import contextlib
import itertools
import json
import os
import resource
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.trainer import wide_and_deep

WIDE = 8_192
"""Numbers for each example in the layer that takes memory: 32 KiB."""

BUILDS = itertools.count(1)
"""Of this process: the first is trained, the second exported."""


def write_project(folder: Path, fault: dict[str, Any] | None) -> str:
    """Make a project whose model has this fault; return the model's dotted path."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"faulty_{abs(hash(str(folder)))}"
    (folder / f"{name}.py").write_text(
        "from pathlib import Path\n"
        "import trainer_faults\n"
        "def build_model(inputs):\n"
        "    return trainer_faults.build(inputs, Path(__file__).parent)\n"
    )
    if fault is not None:
        (folder / "fault.json").write_text(json.dumps(fault))
    return f"{name}.build_model"


def build(inputs: Any, folder: Path) -> keras.Model:
    """Build wide-and-deep with a layer in front of its output that may strike."""
    inner = wide_and_deep.build_model(inputs)
    path = folder / "fault.json"
    fault = json.loads(path.read_text()) if path.exists() else {"kind": "none"}
    output = inner.output
    if fault["kind"] == "export" and next(BUILDS) == 2:
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if fault["kind"] == "limit":
        output = Wide(fault["bytes"], name="wide", dtype="float32")(output)
    return keras.Model(inner.inputs, Fault(path, fault, name="fault")(output))


class Wide(keras.layers.Layer):
    """The identity, by way of many numbers for each example, under a limit.

    The limit of the address space holds while they are computed: a thread that is
    started under it may fail instead, since each reserves some, too.
    """

    def __init__(self, limit_bytes: int, **options: Any) -> None:
        super().__init__(**options)
        self._limit_bytes = limit_bytes

    def call(self, values: Any, training: bool = False) -> Any:
        if not training:
            return values
        values += tf.ensure_shape(tf.numpy_function(self._limit, [], np.float32), [])
        many = tf.sin(tf.tile(values, [1, WIDE])) + 2.0
        one = tf.reduce_mean(many / tf.abs(many), axis=1, keepdims=True)
        lifted = tf.numpy_function(self._lift, [one], np.float32)
        return values * one + tf.ensure_shape(lifted, [])

    def _limit(self) -> Any:
        used = int(Path("/proc/self/statm").read_text().split()[0])
        limit = used * resource.getpagesize() + self._limit_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        return np.float32(0)

    def _lift(self, _: Any) -> Any:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
        return np.float32(0)


class Fault(keras.layers.Layer):
    """The identity, until it strikes."""

    def __init__(self, path: Path, fault: dict[str, Any], **options: Any) -> None:
        super().__init__(dtype="float32", **options)
        self._file = path  # Keras has a _path of its own
        self._fault = fault
        self._batches = 0

    def call(self, values: Any, training: bool = False) -> Any:
        if not training or self._fault["kind"] == "limit":
            return values  # the others are always asked: the graph must not differ
        checked = tf.numpy_function(self._strike, [tf.shape(values)[0]], np.float32)
        return values + tf.ensure_shape(checked, [])

    def _strike(self, size: Any) -> Any:
        self._batches += 1
        fault = self._fault
        if fault["kind"] == "memory" and self._batches >= fault.get("from", 0):
            self._refuse(size)
        if self._batches == fault.get("at"):
            with contextlib.suppress(FileNotFoundError):  # another worker was first
                self._file.unlink()
                _STRIKES[fault["kind"]](fault)
        return np.float32(0)

    def _refuse(self, size: Any) -> None:
        if size > self._fault["over"]:
            raise MemoryError(f"injected: {size} examples")


def _hang(fault: dict[str, Any]) -> None:
    os.kill(fault["tell"], signal.SIGTERM)
    threading.Event().wait()


def _put_a_file(fault: dict[str, Any]) -> None:
    shutil.rmtree(fault["folder"])
    Path(fault["folder"]).touch()


_STRIKES = {
    "signal": lambda fault: os.kill(os.getpid(), fault["signal"]),
    "hang": _hang,
    "gone": _put_a_file,
}
