"""TensorFlow Serving's JSON: requests to arrays, arrays to answers, no transport.

The rules are those of its api_rest.md and json_tensor.cc.
"""

import base64
import binascii
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from google.protobuf import json_format

from serving.errors import RequestError, invalid_argument
from serving.tensors import DT_STRING, Array, dtype_name, numpy_dtype

INDENT = 4
BYTES_SUFFIX = "_bytes"
DEFAULT_SIGNATURE = "serving_default"
_TOKENS = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
# numpy's own limit; stacked rows have one dimension more.
MAX_NUM_DIMS = 64


@dataclass(frozen=True)
class PredictJson:
    """A parsed body of `:predict`."""

    signature_name: str
    is_row_format: bool
    value: Any
    """What stood under `instances` or `inputs`."""
    has_bool: bool = True
    """Whether a true or false may stand in it."""


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object; NaN and Infinity are numbers.

    Raises:
        RequestError: It is not; the message says where.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = _parse_slowly(body)
    if not isinstance(document, dict):
        raise invalid_argument("Request body must be a JSON object")
    return document


def _parse_slowly(body: bytes) -> Any:
    """Parse what orjson refuses: NaN, Infinity, half surrogates, or a real mistake."""
    try:
        return json.loads(body.decode())
    except UnicodeDecodeError as error:
        raise invalid_argument(f"JSON Parse error: not UTF-8 text: {error}") from error
    except json.JSONDecodeError as error:
        raise invalid_argument(
            f"JSON Parse error: {error.msg} at offset: {error.pos} "
            f"(line {error.lineno}, column {error.colno})"
        ) from error
    except RecursionError as error:
        raise invalid_argument("JSON Parse error: nested too deeply") from error
    except ValueError as error:  # Python parses no integer of so many digits
        raise invalid_argument(f"JSON Parse error: {error}") from error


def signature_name(document: Mapping[str, Any]) -> str:
    """Return the signature that a body names.

    Raises:
        RequestError: The name is no text.
    """
    name = document.get("signature_name", DEFAULT_SIGNATURE)
    if not isinstance(name, str):
        raise invalid_argument("'signature_name' key must be a string value")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise invalid_argument(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    return name


def parse_body(body: bytes) -> PredictJson:
    """Parse a predict request.

    Raises:
        RequestError: It is not JSON (the message says where), or has not exactly one
            of `instances` and `inputs`.
    """
    document = parse_object(body)
    name = signature_name(document)
    kinds = [key for key in ("instances", "inputs") if key in document]
    if not kinds:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    if len(kinds) == 2:
        raise invalid_argument("Not allowed to specify both 'inputs' and 'instances'")
    # Where no true or false stands, numpy cannot take one for a number.
    has_bool = b"true" in body or b"false" in body
    return PredictJson(name, kinds[0] == "instances", document[kinds[0]], has_bool)


def to_inputs(request: PredictJson, signature: Any) -> dict[str, Array]:
    """Return an array for each input of the signature.

    Raises:
        RequestError: The values do not fit; the message names the input and index.
    """
    inputs = signature.inputs
    fast = None if request.has_bool else _only_tensor(request, inputs)
    if fast is not None:
        return fast
    if request.is_row_format:
        return dict(_rows_to_inputs(request.value, inputs))
    if isinstance(request.value, dict) and not is_base64(request.value):
        missing = [name for name in inputs if name not in request.value]
        if missing:
            raise invalid_argument(
                f"Missing named inputs: {', '.join(sorted(missing))}"
            )
        return {
            name: _tensor(request.value[name], info.dtype, name)
            for name, info in inputs.items()
        }
    name = _only_input(inputs)
    return {name: _tensor(request.value, inputs[name].dtype, name)}


def _only_tensor(
    request: PredictJson, inputs: Mapping[str, Any]
) -> dict[str, Array] | None:
    """Return the tensor of a request of plain numbers; None: look closer."""
    value = request.value
    if len(inputs) != 1 or not isinstance(value, list) or not value:
        return None
    if isinstance(value[0], dict):
        return None
    [(name, info)] = inputs.items()
    array = _numbers(value, info.dtype)
    return None if array is None else {name: array}


def _numbers(value: list[Any], enum: int) -> Array | None:
    """Return numbers that numpy reads as they are meant; None: look closer."""
    dtype = numpy_dtype(enum)
    try:
        array = np.array(value)
    except ValueError:  # lists of unequal length, or nested too deeply
        return None
    if array.ndim >= MAX_NUM_DIMS:
        return None
    if dtype.kind == "f" and array.dtype.kind in "fiu":
        with np.errstate(over="ignore"):  # 1e39 is Infinity as a float32
            return array.astype(dtype)
    if dtype.kind in "iu" and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if array.min() >= limits.min and array.max() <= limits.max:
            return array.astype(dtype)
    return None


def _rows_to_inputs(
    instances: Any, inputs: Mapping[str, Any]
) -> Iterator[tuple[str, Array]]:
    if not isinstance(instances, list) or not instances:
        raise invalid_argument("Expecting 'instances' value to be a non-empty list")
    named = isinstance(instances[0], dict) and not is_base64(instances[0])
    if not named:
        name = _only_input(inputs)
        yield name, _stack(instances, inputs[name].dtype, name)
        return
    for index, instance in enumerate(instances):
        _check_keys(index, instance, inputs)
    for name, info in inputs.items():
        yield name, _stack([row[name] for row in instances], info.dtype, name)


def _check_keys(index: int, instance: Any, inputs: Mapping[str, Any]) -> None:
    if not isinstance(instance, dict) or is_base64(instance):
        raise invalid_argument(
            f"instances[{index}]: expected an object with a key for each input, "
            "as in instances[0]"
        )
    if set(instance) != set(inputs):
        raise invalid_argument(
            f"Failed to process element: {index} of 'instances' list. JSON object: "
            f"keys are {{{', '.join(sorted(instance))}}}, expected "
            f"{{{', '.join(sorted(inputs))}}}"
        )


def _only_input(inputs: Mapping[str, Any]) -> str:
    if len(inputs) != 1:
        raise invalid_argument(
            "inputs is a plain value/list, but expecting an object/map of: "
            f"{', '.join(sorted(inputs))}"
        )
    return next(iter(inputs))


def _stack(rows: list[Any], dtype: int, name: str) -> Array:
    arrays = [_tensor(row, dtype, f"{name}[{i}]") for i, row in enumerate(rows)]
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise invalid_argument(
                f"input {name}: instances[{index}] has shape {list(array.shape)}, but "
                f"instances[0] has {list(arrays[0].shape)}; all must be the same"
            )
    return np.stack(arrays)


def _tensor(value: Any, dtype: int, name: str) -> Array:
    flat: list[Any] = []
    try:
        shape = _shape(value, name)
        _flatten(value, flat, _converter(dtype, name))
    except RecursionError as error:
        raise invalid_argument(f"input {name}: nested too deeply") from error
    if len(shape) >= MAX_NUM_DIMS:
        raise invalid_argument(f"input {name}: nested too deeply")
    try:
        array = np.empty(len(flat), numpy_dtype(dtype))
        with np.errstate(over="ignore"):  # 1e39 is Infinity as a float32
            array[:] = flat
    except OverflowError as error:
        raise invalid_argument(
            f"input {name}: a number is out of range for {dtype_name(dtype)}"
        ) from error
    if array.size != math.prod(shape):
        raise invalid_argument(
            f"input {name}: lists of unequal length; expected shape {list(shape)}"
        )
    return array.reshape(shape)


def _shape(value: Any, name: str) -> tuple[int, ...]:
    """Return the shape that the first elements have, and hold the others to it."""
    if not isinstance(value, list):
        return ()
    shapes = [_shape(item, name) for item in value]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise invalid_argument(
                f"input {name}: element {index} has shape {list(shape)}, but element 0 "
                f"has {list(shapes[0])}; all must be the same"
            )
    return (len(value), *(shapes[0] if shapes else ()))


def _flatten(value: Any, into: list[Any], convert: Callable[[Any], Any]) -> None:
    if isinstance(value, list):
        for item in value:
            _flatten(item, into, convert)
    else:
        into.append(convert(value))


def _converter(dtype: int, name: str) -> Callable[[Any], Any]:
    kind = numpy_dtype(dtype).kind

    def refuse(value: Any) -> RequestError:
        return invalid_argument(
            f"JSON Value: {json.dumps(value)[:100]} is not of expected type: "
            f"{dtype_name(dtype)} (input {name})"
        )

    def convert(value: Any) -> Any:
        if dtype == DT_STRING:
            return _string(value, refuse)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        right = {
            "b": isinstance(value, bool),
            "i": is_number and isinstance(value, int),
            "u": is_number and isinstance(value, int),
            "f": is_number,
        }.get(kind, False)
        if not right:
            raise refuse(value)
        return value

    return convert


def _string(value: Any, refuse: Callable[[Any], RequestError]) -> bytes:
    if not (isinstance(value, str) or is_base64(value)):
        raise refuse(value)
    try:
        return to_bytes(value)
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise refuse(value) from error


def to_bytes(value: Any) -> bytes:
    """Return the bytes of a text or of `{"b64": text}`.

    Raises:
        RequestError: It is no base64.
        UnicodeEncodeError: The text has no UTF-8.
    """
    if isinstance(value, str):
        return value.encode()
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_argument(
            f"Unable to base64 decode {value['b64'][:100]!r}: {error}; the alphabet is "
            "A-Z a-z 0-9 + / with = padding, not the one with - and _"
        ) from error


def is_base64(value: Any) -> bool:
    """Tell whether a value is `{"b64": text}`."""
    return (
        isinstance(value, dict)
        and set(value) == {"b64"}
        and isinstance(value["b64"], str)
    )


def predictions(outputs: Mapping[str, Array]) -> str:
    """Write outputs in the row format.

    Raises:
        RequestError: Outputs differ in their first dimension, or have none.
    """
    for name, array in outputs.items():
        if array.ndim == 0:
            raise invalid_argument(
                f"Tensor name: {name} has no shape information; use 'inputs' instead "
                "of 'instances'"
            )
    sizes = {name: array.shape[0] for name, array in outputs.items()}
    if len(set(sizes.values())) > 1:
        raise invalid_argument(
            f"outputs have inconsistent batch sizes: {sizes}; use 'inputs' instead of "
            "'instances'"
        )
    columns = {
        name: _rows(_texts(name, array), array.shape, 1)
        for name, array in outputs.items()
    }
    if len(columns) == 1:
        rows = next(iter(columns.values()))
    else:
        rows = [
            _object(dict(zip(columns, values, strict=True)), 2)
            for values in zip(*columns.values(), strict=True)
        ]
    return wrap("predictions", _list(rows, 1))


def outputs_json(outputs: Mapping[str, Array]) -> str:
    """Write outputs in the column format."""
    depth = 1 if len(outputs) == 1 else 2
    written = {
        name: _value(_texts(name, array), array.shape, depth)
        for name, array in outputs.items()
    }
    if len(written) == 1:
        return wrap("outputs", next(iter(written.values())))
    return wrap("outputs", _object(written, 1))


def _texts(name: str, array: Array) -> list[str]:
    """Write every element of an array, in C order."""
    flat = array.ravel()
    match array.dtype.kind:
        case "O":
            write = _base64_text if name.endswith(BYTES_SUFFIX) else _string_text
            return [write(value) for value in flat.tolist()]
        case "f":
            return float_texts(flat)
        case "b":
            return ["true" if value else "false" for value in flat.tolist()]
        case "i" | "u":
            return [str(value) for value in flat.tolist()]
    raise invalid_argument(f"output {name}: JSON cannot hold {array.dtype}")


def _string_text(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return json.dumps(raw.decode(errors="replace"), ensure_ascii=False)


def _base64_text(value: Any) -> str:
    return f'{{ "b64": "{base64.b64encode(value).decode()}" }}'


def float_texts(array: Array) -> list[str]:
    """Write floats, [n], each with the digits that give it back.

    `%g`, else `%.9g` for a float32 and `%.17g` for a float64.
    """
    values = array.tolist()
    texts = [f"{value:g}" for value in values]
    read = np.array(list(map(float, texts)), array.dtype).tolist()
    if read != values:  # NaN is never equal, and no longer for it
        num_digits = 17 if array.dtype == np.float64 else 9
        texts = [
            text if again == value else f"{value:.{num_digits}g}"
            for text, again, value in zip(texts, read, values, strict=True)
        ]
    return [
        text if "." in text or "e" in text else _TOKENS.get(text) or f"{text}.0"
        for text in texts
    ]


def float_text(value: Any) -> str:
    """Write a float32 as `float_texts` does."""
    return float_texts(np.array([value], np.float32))[0]


def double_text(value: Any) -> str:
    """Write a float64 as `float_texts` does."""
    return float_texts(np.array([value], np.float64))[0]


def _value(texts: list[str], shape: tuple[int, ...], depth: int) -> str:
    """Write an array whose elements are written."""
    if not shape:
        return texts[0]
    return _list(_rows(texts, shape, depth), depth)


def _rows(texts: list[str], shape: tuple[int, ...], depth: int) -> list[str]:
    """Write what an array's first dimension holds."""
    if len(shape) == 1:
        return texts
    size = math.prod(shape[1:])
    return [
        _value(texts[index * size : (index + 1) * size], shape[1:], depth + 1)
        for index in range(shape[0])
    ]


def _list(items: list[str], depth: int) -> str:
    """Write short values on one line and long ones each on its own."""
    if not any(item.startswith(("{", "[")) for item in items):
        return f"[{', '.join(items)}]"
    inner = ",\n".join(f"{' ' * INDENT * (depth + 1)}{item}" for item in items)
    return f"[\n{inner}\n{' ' * INDENT * depth}]"


def _object(items: Mapping[str, str], depth: int) -> str:
    inner = ",\n".join(
        f"{' ' * INDENT * (depth + 1)}{json.dumps(k)}: {v}" for k, v in items.items()
    )
    return f"{{\n{inner}\n{' ' * INDENT * depth}}}"


def wrap(key: str, value: str) -> str:
    """Write an object of one key."""
    return f'{{\n{" " * INDENT}"{key}": {value}\n}}'


def error_json(message: str) -> str:
    """Write an error."""
    text = json.dumps(message, ensure_ascii=False)
    # Half a surrogate pair, quoted from a request, has no UTF-8: escape it.
    return wrap("error", text.encode(errors="backslashreplace").decode())


def message_json(message: Any) -> str:
    """Write a message by protobuf's JSON mapping, with the fields' own names."""
    return json_format.MessageToJson(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        indent=1,
    )
