"""Rows of a file as the columns of a signature."""

import math
from typing import Any

import pytest

from serving.client import InputSpec
from serving.rows import MISSING_INT, RowsError, parse_rows, to_columns, unused_columns

SPECS = (
    InputSpec("age", "DT_FLOAT", (-1, 1)),
    InputSpec("city", "DT_STRING", (-1, 1)),
    InputSpec("id", "DT_INT64", (-1, 1)),
)


def test_csv_json_and_json_lines_say_the_same() -> None:
    csv = "a,b\n1,x\n2,\n"
    assert parse_rows(csv, "f") == [{"a": "1", "b": "x"}, {"a": "2", "b": ""}]
    objects = [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    assert parse_rows('[{"a":1,"b":"x"},{"a":2,"b":null}]', "f") == objects
    assert parse_rows('{"a":1,"b":"x"}\n\n{"a":2,"b":null}\n', "f") == objects
    assert parse_rows('{"a": 1}', "f") == [{"a": 1}]


def test_byte_order_mark_is_no_part_of_a_name() -> None:
    assert parse_rows("\ufeffa\n1\n", "f") == [{"a": "1"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: no rows"),
        ("a,b\n", "f: no rows"),
        ("[]", "f: no rows"),
        ("a,b\n1\n", "f:2: expected 2 cells"),
        ("a,b\n1,2\n1,2,3\n", "f:3: expected 2 cells"),
        ('{"a": 1}\n{"a": }\n', "f:2:7: not JSON"),
        ('[{"a": 1}, 5]', "f: row 2 is not an object"),
    ],
)
def test_text_that_is_not_rows_is_refused_with_its_place(
    text: str, message: str
) -> None:
    with pytest.raises(RowsError, match=message):
        parse_rows(text, "f")


def test_cells_become_columns_of_the_inputs_types() -> None:
    row = {"age": "30.5", "city": "Köln", "id": str(2**53 + 1)}
    columns = to_columns([row, row], SPECS)
    assert {name: array.shape for name, array in columns.items()} == {
        "age": (2, 1),
        "city": (2, 1),
        "id": (2, 1),
    }
    assert columns["age"][0, 0] == 30.5
    assert columns["city"][0, 0] == "Köln".encode()
    assert columns["id"][0, 0] == 2**53 + 1


@pytest.mark.parametrize("missing", ["", "NA", None])
def test_missing_cells_become_what_the_signature_takes_for_missing(
    missing: Any,
) -> None:
    row = dict.fromkeys(("age", "city", "id"), missing)
    columns = to_columns([row], SPECS, ["NA"])
    assert math.isnan(columns["age"][0, 0])
    assert columns["city"][0, 0] == b""
    assert columns["id"][0, 0] == MISSING_INT


def test_missing_column_is_named_beside_those_that_are_there() -> None:
    with pytest.raises(RowsError, match="row 1 has no column 'city'; it has: age, id"):
        to_columns([{"age": 1, "id": 1}], SPECS)


@pytest.mark.parametrize(
    ("column", "cell", "allowed"),
    [("age", "old", "a number"), ("id", "1.5", "a whole number"), ("age", [1], "a")],
)
def test_cell_of_another_type_is_named(column: str, cell: Any, allowed: str) -> None:
    row = {"age": 1, "city": "x", "id": 1, column: cell}
    with pytest.raises(RowsError, match=f"row 1, column '{column}': .*{allowed}"):
        to_columns([row], SPECS)


def test_columns_that_no_input_takes_are_listed() -> None:
    assert unused_columns([{"age": 1, "z": 1}, {"y": 2}], SPECS) == ["y", "z"]
