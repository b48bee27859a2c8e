"""TensorFlow's C API by ctypes: sessions from SavedModels, without `import tensorflow`.

The shared libraries lie in TensorFlow's wheel. Without its Python layer a server starts
in a second, and loading a model releases the GIL, so that requests go on meanwhile.
See tensorflow/c/c_api.h, tf_tensor.h and tf_tstring.h in the wheel.
"""

import ctypes
import importlib.util
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import Code, RequestError, ServerError
from serving.tensors import DT_STRING, Array, enum_of, numpy_dtype

FRAMEWORK = "libtensorflow_framework.so.2"
LIBRARY = "libtensorflow_cc.so.2"
# tf_tstring.h: a string of up to 22 bytes lies in its 24 bytes, first `size << 2`;
# a longer one is `size << 2 | kind`, capacity, pointer.
SMALL_STRING = 22
STRING_STRUCT = np.dtype({"names": ["size", "text"], "formats": ["u1", "S23"]})
STRING_BYTES = 24


class _Output(ctypes.Structure):
    _fields_ = (("operation", c_void_p), ("index", c_int))


class _Buffer(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("length", c_size_t), ("deallocator", c_void_p))


_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "TF_Version": (c_char_p, []),
    "TF_NewStatus": (c_void_p, []),
    "TF_SetStatus": (None, [c_void_p, c_int, c_char_p]),
    "TF_GetCode": (c_int, [c_void_p]),
    "TF_Message": (c_char_p, [c_void_p]),
    "TF_NewBuffer": (POINTER(_Buffer), []),
    "TF_NewBufferFromString": (POINTER(_Buffer), [c_char_p, c_size_t]),
    "TF_DeleteBuffer": (None, [POINTER(_Buffer)]),
    "TF_NewGraph": (c_void_p, []),
    "TF_DeleteGraph": (None, [c_void_p]),
    "TF_GraphOperationByName": (c_void_p, [c_void_p, c_char_p]),
    "TF_OperationNumOutputs": (c_int, [c_void_p]),
    "TF_NewSessionOptions": (c_void_p, []),
    "TF_SetConfig": (None, [c_void_p, c_char_p, c_size_t, c_void_p]),
    "TF_DeleteSessionOptions": (None, [c_void_p]),
    "TF_LoadSessionFromSavedModel": (
        c_void_p,
        [
            c_void_p,
            POINTER(_Buffer),
            c_char_p,
            POINTER(c_char_p),
            c_int,
            c_void_p,
            POINTER(_Buffer),
            c_void_p,
        ],
    ),
    "TF_CloseSession": (None, [c_void_p, c_void_p]),
    "TF_DeleteSession": (None, [c_void_p, c_void_p]),
    "TF_SessionRun": (
        None,
        [
            c_void_p,
            POINTER(_Buffer),
            POINTER(_Output),
            POINTER(c_void_p),
            c_int,
            POINTER(_Output),
            POINTER(c_void_p),
            c_int,
            c_void_p,
            c_int,
            c_void_p,
            c_void_p,
        ],
    ),
    "TF_AllocateTensor": (c_void_p, [c_int, POINTER(c_int64), c_int, c_size_t]),
    "TF_DeleteTensor": (None, [c_void_p]),
    "TF_TensorType": (c_int, [c_void_p]),
    "TF_NumDims": (c_int, [c_void_p]),
    "TF_Dim": (c_int64, [c_void_p, c_int]),
    "TF_TensorByteSize": (c_size_t, [c_void_p]),
    "TF_TensorData": (c_void_p, [c_void_p]),
    "TF_StringInit": (None, [c_void_p]),
    "TF_StringCopy": (None, [c_void_p, c_char_p, c_size_t]),
    "TF_StringDealloc": (None, [c_void_p]),
    "TF_StringGetDataPointer": (c_void_p, [c_void_p]),
    "TF_StringGetSize": (c_size_t, [c_void_p]),
}


@cache
def library() -> Any:
    """Load TensorFlow's library, once.

    Raises:
        ServerError: TensorFlow is not installed.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or spec.origin is None:
        raise ServerError("TensorFlow is not installed: pip install 'taxiway[serving]'")
    folder = Path(spec.origin).parent
    try:
        # Not RTLD_GLOBAL: it holds a cryptography library of its own, whose names
        # Python's modules ssl and hashlib would then find instead of OpenSSL's.
        ctypes.CDLL(str(folder / FRAMEWORK), ctypes.RTLD_LOCAL)
        loaded = ctypes.CDLL(str(folder / LIBRARY), ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ServerError(f"TensorFlow's library cannot be loaded: {error}") from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def _check(status: Any) -> None:
    """Raise what a status says, if it says something, and make it say nothing."""
    tf = library()
    code = tf.TF_GetCode(status)
    if code:
        message = tf.TF_Message(status).decode(errors="replace")
        tf.TF_SetStatus(status, 0, b"")  # a call that succeeds would leave it as it is
        raise RequestError(Code(code), message)


class _ThreadStatus(threading.local):
    """A TF_Status for each thread: to make one anew costs two calls."""

    pointer: Any = None


_statuses = _ThreadStatus()


def _thread_status() -> Any:
    if _statuses.pointer is None:
        _statuses.pointer = library().TF_NewStatus()
    return _statuses.pointer


class Session:
    """A SavedModel's graph in memory."""

    def __init__(self, path: Path, tags: Sequence[str], config: bytes) -> None:
        """Load it.

        Args:
            path: The SavedModel's folder.
            tags: Of the meta graph.
            config: A serialized ConfigProto.

        Raises:
            RequestError: TensorFlow cannot load it.
        """
        tf = library()
        self._graph = tf.TF_NewGraph()
        self._session: Any = None
        options, meta = tf.TF_NewSessionOptions(), tf.TF_NewBuffer()
        names = (c_char_p * len(tags))(*(tag.encode() for tag in tags))
        status = _thread_status()
        try:
            tf.TF_SetConfig(options, config, len(config), status)
            _check(status)
            self._session = tf.TF_LoadSessionFromSavedModel(
                options,
                None,
                str(path).encode(),
                names,
                len(tags),
                self._graph,
                meta,
                status,
            )
            _check(status)
            self.meta_graph = ctypes.string_at(meta[0].data, meta[0].length)
        except BaseException:
            self.close()
            raise
        finally:
            tf.TF_DeleteBuffer(meta)
            tf.TF_DeleteSessionOptions(options)

    def callable(
        self, feeds: Sequence[str], fetches: Sequence[str], run_options: bytes
    ) -> Callable[[Sequence[Array]], list[Array]]:
        """Return a function from arrays for `feeds` to arrays of `fetches`.

        Args:
            feeds: Names of tensors, `x:0`.
            fetches: Names of tensors.
            run_options: A serialized RunOptions.

        Raises:
            RequestError: The graph has no such tensor.
        """
        return _Callable(
            self._session,
            self._outputs(feeds),
            self._outputs(fetches),
            run_options,
        )

    def _outputs(self, names: Sequence[str]) -> Any:
        outputs = (_Output * len(names))()
        for output, name in zip(outputs, names, strict=True):
            operation, _, index = name.partition(":")
            number = int(index) if index.isdigit() else 0
            found = library().TF_GraphOperationByName(self._graph, operation.encode())
            if not found or number >= library().TF_OperationNumOutputs(found):
                raise RequestError(
                    Code.INVALID_ARGUMENT, f"the graph has no tensor {name!r}"
                )
            output.operation, output.index = found, number
        return outputs

    def close(self) -> None:
        """Give the memory back; nothing must be running."""
        tf, status = library(), _thread_status()
        if self._session:
            session, self._session = self._session, None
            tf.TF_CloseSession(session, status)
            tf.TF_DeleteSession(session, status)
        if self._graph:
            graph, self._graph = self._graph, None
            tf.TF_DeleteGraph(graph)


class _Callable:
    """Runs a part of a graph; many threads may call it at once."""

    def __init__(
        self, session: Any, feeds: Any, fetches: Any, run_options: bytes
    ) -> None:
        self._session, self._feeds, self._fetches = session, feeds, fetches
        self._options = library().TF_NewBufferFromString(run_options, len(run_options))
        self._run = library().TF_SessionRun

    def __del__(self) -> None:
        library().TF_DeleteBuffer(self._options)

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run it.

        Raises:
            RequestError: A kernel failed.
        """
        feeds, fetches = self._feeds, self._fetches
        values = (c_void_p * len(feeds))()
        results = (c_void_p * len(fetches))()
        status = _thread_status()
        try:
            for index, array in enumerate(arrays):
                values[index] = _to_tensor(array)
            self._run(
                self._session,
                self._options,
                feeds,
                values,
                len(feeds),
                fetches,
                results,
                len(fetches),
                None,
                0,
                None,
                status,
            )
            _check(status)
            return [_to_array(tensor) for tensor in results]
        finally:
            delete = library().TF_DeleteTensor
            # The results first: one may share the strings of a value.
            for tensor in results:
                if tensor:
                    delete(tensor)
            for array, tensor in zip(arrays, values, strict=True):
                if tensor:
                    _free_strings(tensor, array)
                    delete(tensor)


def _to_tensor(array: Array) -> Any:
    tf = library()
    shape, enum = array.shape, enum_of(array)
    num_bytes = array.size * STRING_BYTES if enum == DT_STRING else array.nbytes
    dims = (c_int64 * len(shape))(*shape)
    tensor = tf.TF_AllocateTensor(enum, dims, len(shape), num_bytes)
    if not num_bytes:
        return tensor
    data = tf.TF_TensorData(tensor)
    if enum == DT_STRING:
        _write_strings(data, array)
    else:
        contiguous = np.ascontiguousarray(array)
        ctypes.memmove(data, contiguous.ctypes.data, num_bytes)
    return tensor


def _write_strings(data: int, array: Array) -> None:
    """Write short strings at once, long ones each into memory of its own."""
    texts = array.ravel().tolist()
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    structs = np.zeros(len(texts), STRING_STRUCT)
    longer = np.flatnonzero(sizes > SMALL_STRING)
    short = [
        b"" if size > SMALL_STRING else t for t, size in zip(texts, sizes, strict=True)
    ]
    structs["size"] = np.where(sizes > SMALL_STRING, 0, sizes) << 2
    structs["text"] = short
    ctypes.memmove(data, structs.ctypes.data, structs.nbytes)
    for index in longer.tolist():
        library().TF_StringCopy(
            data + index * STRING_BYTES, texts[index], len(texts[index])
        )


def _free_strings(tensor: Any, array: Array) -> None:
    if array.dtype != object or not array.size:
        return
    tf = library()
    data = tf.TF_TensorData(tensor)
    for index, text in enumerate(array.ravel().tolist()):
        if len(text) > SMALL_STRING:
            tf.TF_StringDealloc(data + index * STRING_BYTES)


def _to_array(tensor: Any) -> Array:
    tf = library()
    enum = tf.TF_TensorType(tensor)
    shape = [tf.TF_Dim(tensor, axis) for axis in range(tf.TF_NumDims(tensor))]
    dtype = numpy_dtype(enum)
    num_bytes = tf.TF_TensorByteSize(tensor)
    data = tf.TF_TensorData(tensor)
    if enum == DT_STRING:
        strings = np.empty(num_bytes // STRING_BYTES, object)
        for index in range(len(strings)):
            strings[index] = _read_string(data + index * STRING_BYTES)
        return strings.reshape(shape)
    array = np.empty(shape, dtype)
    if num_bytes:
        ctypes.memmove(array.ctypes.data, data, num_bytes)
    return array


def _read_string(address: int) -> bytes:
    tf = library()
    return ctypes.string_at(
        tf.TF_StringGetDataPointer(address), tf.TF_StringGetSize(address)
    )
