"""Rows of a file as the columns that a signature wants, missing cells included."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from serving.client.protocol import Array, InputSpec
from serving.errors import ServingError
from serving.tensors import DT_STRING, DTYPE_ENUMS, numpy_dtype

MISSING_INT = np.iinfo(np.int64).min
Row = Mapping[str, Any]


class RowsError(ServingError):
    """Rows that cannot be read or do not fit the signature."""


def parse_rows(text: str, name: str, delimiter: str = ",") -> list[Row]:
    """Parse CSV with a header, a JSON list of objects, or one object a line.

    Raises:
        RowsError: It is none of these, or has no rows.
    """
    text = text.removeprefix("\ufeff")
    start = text.lstrip()[:1]
    if start in {"[", "{"}:
        rows = _parse_json(text, name)
    else:
        rows = _parse_csv(text, name, delimiter)
    if not rows:
        raise RowsError(f"{name}: no rows")
    return rows


def _parse_csv(text: str, name: str, delimiter: str) -> list[Row]:
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter)
    rows: list[Row] = []
    try:
        _check_header(reader.fieldnames or (), name)
        for row in reader:
            if None in row or None in row.values():
                raise RowsError(
                    f"{name}:{reader.line_num}: expected "
                    f"{len(reader.fieldnames or ())} cells as in the header"
                )
            rows.append(row)
    except csv.Error as error:
        raise RowsError(f"{name}:{reader.line_num}: {error}") from error
    return rows


def _check_header(header: Sequence[str], name: str) -> None:
    for index, column in enumerate(header):
        first = header.index(column)
        if first != index:
            raise RowsError(
                f"{name}:1: columns {first + 1} and {index + 1} are both called "
                f"{column!r}"
            )


def _parse_json(text: str, name: str) -> list[Row]:
    try:
        document = json.loads(text)
    except json.JSONDecodeError as whole:
        document = _parse_lines(text, name, whole)
    except (RecursionError, ValueError) as error:  # too deep, or too many digits
        raise RowsError(f"{name}: not JSON: {error}") from error
    rows = document if isinstance(document, list) else [document]
    for index, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RowsError(f"{name}: row {index + 1} is not an object")
    return rows


def _parse_lines(text: str, name: str, whole: json.JSONDecodeError) -> list[Any]:
    # Not splitlines: JSON's text may hold U+2028 and other ends of lines as they are.
    lines = [line for line in enumerate(text.split("\n"), 1) if line[1].strip()]
    rows = []
    for number, line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            where = (
                f"{number}:{error.colno}" if rows else f"{whole.lineno}:{whole.colno}"
            )
            raise RowsError(f"{name}:{where}: not JSON: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            raise RowsError(f"{name}:{number}: not JSON: {error}") from error
    return rows


def to_columns(
    rows: Sequence[Row],
    specs: Iterable[InputSpec],
    null_values: Iterable[str] = ("",),
) -> dict[str, Array]:
    """Return a `[len(rows), 1]` column for each input of a `serving_columns` signature.

    A missing cell becomes NaN, the lowest int64, or '': what the signature takes for
    missing.

    Raises:
        RowsError: A column is not there, or a cell is not of its input's type.
    """
    nulls = frozenset(null_values) | {""}
    return {spec.name: _column(rows, spec, nulls) for spec in specs}


def _column(rows: Sequence[Row], spec: InputSpec, nulls: frozenset[str]) -> Array:
    dtype = numpy_dtype(DTYPE_ENUMS[spec.dtype])
    values = np.empty((len(rows), 1), dtype)
    for index, row in enumerate(rows):
        if spec.name not in row:
            raise RowsError(
                f"row {index + 1} has no column {spec.name!r}; it has: {', '.join(row)}"
            )
        cell = row[spec.name]
        try:
            with np.errstate(over="ignore"):  # 1e39 is Infinity as a float32
                values[index, 0] = _cell(cell, spec, nulls)
        except (TypeError, ValueError, OverflowError) as error:
            raise RowsError(
                f"row {index + 1}, column {spec.name!r}: got {cell!r}, "
                f"allowed: {_allowed(spec)}"
            ) from error
    return values


def _cell(value: Any, spec: InputSpec, nulls: frozenset[str]) -> Any:
    is_missing = value is None or (isinstance(value, str) and value in nulls)
    if DTYPE_ENUMS[spec.dtype] == DT_STRING:
        return b"" if is_missing else str(value).encode()
    is_float = numpy_dtype(DTYPE_ENUMS[spec.dtype]).kind == "f"
    if is_missing:
        return np.nan if is_float else MISSING_INT
    if is_float:
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(value)  # int() would cut the fraction off
    return int(value)


def _allowed(spec: InputSpec) -> str:
    if DTYPE_ENUMS[spec.dtype] == DT_STRING:
        return "text that UTF-8 can hold"
    if numpy_dtype(DTYPE_ENUMS[spec.dtype]).kind == "f":
        return "a number"
    return f"a whole number that fits {spec.dtype}"
