"""numpy arrays to TensorProto and back, with every way that the values can be held."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.unknown_fields import UnknownFieldSet

from serving import apis
from serving.apis.descriptors import BUFFER_FIELDS, message_class
from serving.errors import invalid_argument

Array = npt.NDArray[Any]
DT_STRING = 7
# What a message can hold; a few bytes must not ask for more by repeating a value.
MAX_TENSOR_BYTES = 1 << 31
_DTYPES: Mapping[int, str] = {
    1: "float32",
    2: "float64",
    3: "int32",
    4: "uint8",
    5: "int16",
    6: "int8",
    7: "object",
    8: "complex64",
    9: "int64",
    10: "bool",
    17: "uint16",
    18: "complex128",
    19: "float16",
    22: "uint32",
    23: "uint64",
}
_ENUMS = {np.dtype(name): enum for enum, name in _DTYPES.items()}
_NAMES = {
    1: "DT_FLOAT",
    2: "DT_DOUBLE",
    3: "DT_INT32",
    4: "DT_UINT8",
    5: "DT_INT16",
    6: "DT_INT8",
    7: "DT_STRING",
    8: "DT_COMPLEX64",
    9: "DT_INT64",
    10: "DT_BOOL",
    17: "DT_UINT16",
    18: "DT_COMPLEX128",
    19: "DT_HALF",
    22: "DT_UINT32",
    23: "DT_UINT64",
}
DTYPE_ENUMS = {name: enum for enum, name in _NAMES.items()}
# tensor.proto: small integers travel in int_val, half floats as bits in half_val.
_VALUE_FIELDS = {
    1: "float_val",
    2: "double_val",
    3: "int_val",
    4: "int_val",
    5: "int_val",
    6: "int_val",
    7: "string_val",
    8: "scomplex_val",
    9: "int64_val",
    10: "bool_val",
    17: "int_val",
    18: "dcomplex_val",
    19: "half_val",
    22: "uint32_val",
    23: "uint64_val",
}
_COMPLEX = {8, 18}
_FIXED_WIDTH = {enum for enum, f in _VALUE_FIELDS.items() if f in BUFFER_FIELDS}
_HALF = 19


def dtype_name(enum: int) -> str:
    """Return `DT_FLOAT` for 1, and so on."""
    return _NAMES.get(enum, f"DataType {enum}")


def numpy_dtype(enum: int) -> np.dtype[Any]:
    """Return the numpy type of a DataType; object for strings, which are bytes.

    Raises:
        RequestError: The type has none.
    """
    if enum not in _DTYPES:
        raise invalid_argument(f"Unsupported tensor type: {dtype_name(enum)}")
    return np.dtype(_DTYPES[enum])


def to_array(tensor: Any) -> Array:
    """Return a TensorProto's values.

    As TensorFlow's tensor.cc: raw `tensor_content`, or a list of values of which the
    last is repeated to fill the shape, or zeros; what is too much is left out.

    Raises:
        RequestError: The values do not fit the shape.
    """
    shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
    if any(size < 0 for size in shape) or tensor.tensor_shape.unknown_rank:
        raise invalid_argument(f"Tensor shape is not fully defined: {list(shape)}")
    try:
        return _to_array(tensor, shape)
    except (ValueError, OverflowError) as error:
        # More dimensions than numpy has, half a complex number, 300 as a uint8.
        raise invalid_argument(
            f"{dtype_name(tensor.dtype)} tensor of shape {list(shape)} "
            f"cannot be read: {error}"
        ) from error


def _to_array(tensor: Any, shape: tuple[int, ...]) -> Array:
    size = math.prod(shape)
    dtype = numpy_dtype(tensor.dtype)
    if tensor.tensor_content:
        return _from_content(tensor, dtype, shape)
    values = _values(tensor, dtype)
    if size * dtype.itemsize > MAX_TENSOR_BYTES:
        raise invalid_argument(
            f"Tensor of shape {list(shape)} needs {size * dtype.itemsize} bytes, "
            f"allowed: {MAX_TENSOR_BYTES}"
        )
    if len(values) < size:
        last = values[-1:] if len(values) else _nothing(dtype)
        values = np.concatenate([values, np.repeat(last, size - len(values))])
    return values[:size].reshape(shape)


def _nothing(dtype: np.dtype[Any]) -> Array:
    """Return what a tensor without values is full of."""
    if dtype.hasobject:
        empty = np.empty(1, object)
        empty[0] = b""
        return empty
    return np.zeros(1, dtype)


def _from_content(tensor: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    content: bytes = tensor.tensor_content
    needed = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        return _strings_from_content(content, shape)
    if len(content) != needed:
        raise invalid_argument(
            f"tensor_content of a {dtype_name(tensor.dtype)} tensor of shape "
            f"{list(shape)} holds {len(content)} bytes, needs {needed}"
        )
    return np.frombuffer(content, dtype).reshape(shape)


def _strings_from_content(content: bytes, shape: tuple[int, ...]) -> Array:
    """Read all sizes, as varints, and then the texts, one after the other."""
    sizes, place = [], 0
    for _ in range(math.prod(shape)):
        size, place = _varint(content, place)
        sizes.append(size)
    if place + sum(sizes) != len(content):
        raise invalid_argument(
            f"tensor_content of a DT_STRING tensor of shape {list(shape)} holds "
            f"{len(content)} bytes, needs {place + sum(sizes)}"
        )
    strings = np.empty(len(sizes), object)
    for index, size in enumerate(sizes):
        strings[index] = content[place : place + size]
        place += size
    return strings.reshape(shape)


def _varint(content: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it."""
    value = 0
    for shift in range(0, 64, 7):
        if place >= len(content):
            break
        byte = content[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise invalid_argument("tensor_content of a DT_STRING tensor ends in a size")


def _values(tensor: Any, dtype: np.dtype[Any]) -> Array:
    values = getattr(tensor, _VALUE_FIELDS[tensor.dtype])
    if tensor.dtype == DT_STRING:
        strings = np.empty(len(values), object)
        strings[:] = list(values)
        return strings
    if values and isinstance(values[0], bytes):
        return np.frombuffer(b"".join(values), dtype)
    if tensor.dtype == _HALF:
        return np.asarray(values, np.uint16).view(np.float16)
    if tensor.dtype in _COMPLEX:
        parts = np.asarray(values, np.float32 if tensor.dtype == 8 else np.float64)
        return parts.view(dtype)
    return np.asarray(values, dtype)


def enum_of(array: Array) -> int:
    """Return the DataType of an array.

    Raises:
        RequestError: It has none.
    """
    enum = _ENUMS.get(array.dtype)
    if enum is None:
        raise invalid_argument(f"Unsupported array type: {array.dtype}")
    return enum


def to_proto(array: Array, *, raw: bool = False) -> Any:
    """Return a TensorProto.

    Args:
        array: The values; text and bytes in an object array.
        raw: Hold the values as bytes (smaller, for requests) rather than in the
            typed lists that TensorFlow Serving answers with.

    Raises:
        RequestError: Tensors have no such type.
    """
    tensor = apis.TensorProto()
    fill(tensor, array, raw=raw)
    return tensor


def fill(tensor: Any, array: Array, *, raw: bool = False) -> None:
    """Write an array into an empty TensorProto, or one of the class with buffers.

    Raises:
        RequestError: Tensors have no such type.
    """
    if array.dtype.kind in "SU":
        array = array.astype(object)
    enum = tensor.dtype = enum_of(array)
    dims = tensor.tensor_shape.dim
    for size in array.shape:
        dims.add(size=size)
    tensor.tensor_shape.SetInParent()  # a scalar has a shape, too
    if enum == DT_STRING:
        tensor.string_val.extend(map(_as_bytes, array.ravel()))
    elif raw:
        tensor.tensor_content = np.ascontiguousarray(array).tobytes()
    elif not array.size:
        pass
    elif enum in _FIXED_WIDTH and type(tensor) is buffers("TensorProto"):
        getattr(tensor, _VALUE_FIELDS[enum]).append(array.tobytes())
    else:
        getattr(tensor, _VALUE_FIELDS[enum]).extend(_flat(array, enum))


def is_all_buffers(tensor: Any) -> bool:
    """Tell whether a TensorProto of the class with buffers holds all that was sent.

    Numbers that came one by one, not packed, are no buffer.
    """
    return not len(UnknownFieldSet(tensor))


def buffers(name: str) -> Any:
    """Return TensorFlow Serving's or TensorFlow's message in the pool with buffers."""
    package = "tensorflow" if name == "TensorProto" else "tensorflow.serving"
    return message_class(f"{package}.{name}", buffers=True)


def _flat(array: Array, enum: int) -> Any:
    flat = np.ascontiguousarray(array).ravel()
    if enum == _HALF:
        return flat.view(np.uint16).tolist()
    if enum in _COMPLEX:
        return flat.view(np.float32 if enum == 8 else np.float64).tolist()
    return flat.tolist()


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
