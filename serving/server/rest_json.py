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
from google.protobuf import json_format

from serving.errors import RequestError, invalid_argument
from serving.tensors import DT_STRING, Array, dtype_name, numpy_dtype

INDENT = 4
BYTES_SUFFIX = "_bytes"
# numpy's own limit; stacked rows have one dimension more.
MAX_NUM_DIMS = 64


@dataclass(frozen=True)
class PredictJson:
    """A parsed body of `:predict`."""

    signature_name: str
    is_row_format: bool
    value: Any
    """What stood under `instances` or `inputs`."""


def parse_body(body: bytes) -> PredictJson:
    """Parse a predict request.

    Raises:
        RequestError: It is not JSON (the message says where), or has not exactly one
            of `instances` and `inputs`.
    """
    try:
        document = json.loads(body.decode())
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
    if not isinstance(document, dict):
        raise invalid_argument("Request body must be a JSON object")
    name = document.get("signature_name", "serving_default")
    if not isinstance(name, str):
        raise invalid_argument("'signature_name' key must be a string value")
    kinds = [key for key in ("instances", "inputs") if key in document]
    if not kinds:
        raise invalid_argument("Missing 'inputs' or 'instances' key")
    if len(kinds) == 2:
        raise invalid_argument("Not allowed to specify both 'inputs' and 'instances'")
    return PredictJson(name, kinds[0] == "instances", document[kinds[0]])


def to_inputs(request: PredictJson, signature: Any) -> dict[str, Array]:
    """Return an array for each input of the signature.

    Raises:
        RequestError: The values do not fit; the message names the input and index.
    """
    inputs = signature.inputs
    if request.is_row_format:
        return dict(_rows_to_inputs(request.value, inputs))
    if isinstance(request.value, dict) and not _is_base64(request.value):
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


def _rows_to_inputs(
    instances: Any, inputs: Mapping[str, Any]
) -> Iterator[tuple[str, Array]]:
    if not isinstance(instances, list) or not instances:
        raise invalid_argument("Expecting 'instances' value to be a non-empty list")
    named = isinstance(instances[0], dict) and not _is_base64(instances[0])
    if not named:
        name = _only_input(inputs)
        yield name, _stack(instances, inputs[name].dtype, name)
        return
    for index, instance in enumerate(instances):
        _check_keys(index, instance, inputs)
    for name, info in inputs.items():
        yield name, _stack([row[name] for row in instances], info.dtype, name)


def _check_keys(index: int, instance: Any, inputs: Mapping[str, Any]) -> None:
    if not isinstance(instance, dict) or _is_base64(instance):
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
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:  # half of a surrogate pair
            raise refuse(value) from error
    if not _is_base64(value):
        raise refuse(value)
    try:
        return base64.b64decode(value["b64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_argument(
            f"Unable to base64 decode {value['b64'][:100]!r}: {error}; the alphabet is "
            "A-Z a-z 0-9 + / with = padding, not the one with - and _"
        ) from error


def _is_base64(value: Any) -> bool:
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
    columns = {name: _items(name, array) for name, array in outputs.items()}
    if len(columns) == 1:
        rows = next(iter(columns.values()))
    else:
        rows = [
            _object(dict(zip(columns, values, strict=True)), 2)
            for values in zip(*columns.values(), strict=True)
        ]
    return _wrap("predictions", _list(rows, 1))


def outputs_json(outputs: Mapping[str, Array]) -> str:
    """Write outputs in the column format."""
    depth = 1 if len(outputs) == 1 else 2
    written = {
        name: _value(array, depth, _text(name, array))
        for name, array in outputs.items()
    }
    if len(written) == 1:
        return _wrap("outputs", next(iter(written.values())))
    return _wrap("outputs", _object(written, 1))


def _items(name: str, array: Array) -> list[str]:
    text = _text(name, array)
    return [_value(item, 2, text) for item in array]


def _text(name: str, array: Array) -> Callable[[Any], str]:
    if array.dtype == object:
        return _base64_text if name.endswith(BYTES_SUFFIX) else _string_text
    if array.dtype.kind == "f":
        return double_text if array.dtype == np.float64 else float_text
    return lambda value: json.dumps(value.item())


def _string_text(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return json.dumps(raw.decode(errors="replace"), ensure_ascii=False)


def _base64_text(value: Any) -> str:
    return f'{{ "b64": "{base64.b64encode(value).decode()}" }}'


def float_text(value: Any) -> str:
    """Write a float32 with the digits that give it back: `%g`, else `%.9g`."""
    return _decimal(float(value), lambda text: np.float32(text) == value, "%.9g")


def double_text(value: Any) -> str:
    """Write a float64 with the digits that give it back: `%g`, else `%.17g`."""
    return _decimal(float(value), lambda text: float(text) == value, "%.17g")


def _decimal(value: float, is_exact: Callable[[str], Any], longer: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = f"{value:g}"
    if not is_exact(text):
        text = longer % value
    return text if set(text) & set(".e") else f"{text}.0"


def _value(value: Any, depth: int, text: Callable[[Any], str]) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        return _list([_value(item, depth + 1, text) for item in value], depth)
    return text(value[()] if isinstance(value, np.ndarray) else value)


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


def _wrap(key: str, value: str) -> str:
    return f'{{\n{" " * INDENT}"{key}": {value}\n}}'


def error_json(message: str) -> str:
    """Write an error."""
    text = json.dumps(message, ensure_ascii=False)
    # Half a surrogate pair, quoted from a request, has no UTF-8: escape it.
    return _wrap("error", text.encode(errors="backslashreplace").decode())


def message_json(message: Any) -> str:
    """Write a message by protobuf's JSON mapping, with the fields' own names."""
    return json_format.MessageToJson(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
        indent=1,
    )
