"""Rows of a file as the columns of a signature."""

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import InputSpec
from serving.rows import MISSING_INT, RowsError, parse_rows, to_columns

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
    assert parse_rows('\ufeff[{"a": 1}]', "f") == [{"a": 1}]
    assert parse_rows('\ufeff{"a": 1}\n{"a": 2}', "f") == [{"a": 1}, {"a": 2}]


def test_quoted_cells_hold_commas_and_ends_of_lines() -> None:
    assert parse_rows('a,b\r\n"1,2","x\ny"\r\n', "f") == [{"a": "1,2", "b": "x\ny"}]


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\u2029"])
def test_only_newlines_part_json_lines(end: str) -> None:
    """JSON's text may hold the other ends of lines as they are."""
    text = f'{{"a": "x{end}y"}}\r\n{{"a": "z"}}'
    assert parse_rows(text, "f") == [{"a": f"x{end}y"}, {"a": "z"}]


@given(st.text())
def test_any_text_is_rows_or_refused(text: str) -> None:
    with contextlib.suppress(RowsError):
        assert parse_rows(text, "f")


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
        ("a,b,a\n1,2,3\n", "f:1: columns 1 and 3 are both called 'a'"),
        ("\n\n", "f: no rows"),
        ('{"a": 1', "f:1:8: not JSON"),
        ("[" * 100_000, "f: not JSON"),
        ('[{"a": ' + "1" * 5000 + "}]", "f: not JSON: .*digits"),
        ('{"a": 1}\n{"a": ' + "1" * 5000 + "}", "f:2: not JSON: .*digits"),
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
    [
        ("age", "old", "a number"),
        ("age", [1], "a number"),
        pytest.param("age", 10**400, "a number", id="integer that no float holds"),
        ("id", "1.5", "a whole number"),
        ("id", 1.5, "a whole number"),
        ("id", math.inf, "a whole number"),
        ("id", math.nan, "a whole number"),
        ("id", 2**63, "a whole number that fits DT_INT64"),
        ("id", str(2**63), "a whole number that fits DT_INT64"),
        ("id", {}, "a whole number"),
        ("city", "\ud800", "text that UTF-8 can hold"),
    ],
)
def test_cell_of_another_type_is_named(column: str, cell: Any, allowed: str) -> None:
    row = {"age": 1, "city": "x", "id": 1, column: cell}
    with pytest.raises(RowsError, match=f"row 1, column '{column}': .*{allowed}"):
        to_columns([row], SPECS)


def test_whole_float_is_a_whole_number() -> None:
    row = {"age": 1, "city": 5, "id": 2.0}
    columns = to_columns([row], SPECS)
    assert columns["id"].tolist() == [[2]]
    assert columns["city"].tolist() == [[b"5"]]


def test_number_over_the_largest_float32_is_infinity() -> None:
    columns = to_columns([{"age": 1e39, "city": "", "id": 1}], SPECS)
    assert columns["age"].item() == math.inf


CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@given(st.fixed_dictionaries(dict.fromkeys(("age", "city", "id"), CELLS)))
def test_any_row_becomes_columns_or_is_refused(row: dict[str, Any]) -> None:
    with contextlib.suppress(RowsError):
        columns = to_columns([row], SPECS)
        assert {array.shape for array in columns.values()} == {(1, 1)}
