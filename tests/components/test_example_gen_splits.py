"""Which split a row belongs to."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import DataError
from components.example_gen.config import ColumnSplit, HashSplit, TimeRange, TimeSplit
from components.example_gen.splits import EVAL, HELD_OUT, TRAIN, assign


def batch(**columns: list[object]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_a_column_split_holds_other_values_out() -> None:
    split = ColumnSplit(by="column", column="month", train=(1, 2), eval=(9,))
    rows = batch(month=[1, 2, 9, 10, None])
    assert assign(split, rows).tolist() == [TRAIN, TRAIN, EVAL, HELD_OUT, HELD_OUT]


def test_a_time_split_is_half_open_and_knows_time_zones() -> None:
    split = TimeSplit(
        by="time",
        column="t",
        train=TimeRange(end="2013-09-01"),
        eval=TimeRange(start="2013-09-01", end="2013-10-01T00:00:00Z"),
    )
    rows = batch(
        t=[
            "2013-08-31T23:59:59Z",
            "2013-09-01",
            "2013-09-01T00:30:00+01:00",
            "2013-10-01T00:00:00Z",
            None,
        ]
    )
    assert assign(split, rows).tolist() == [TRAIN, EVAL, TRAIN, HELD_OUT, HELD_OUT]


def test_overlapping_time_ranges_are_refused() -> None:
    split = TimeSplit(
        by="time", column="t", train=TimeRange(), eval=TimeRange(start="2013-01-01")
    )
    with pytest.raises(DataError, match="overlap"):
        assign(split, batch(t=["2013-02-01"]))


def test_text_that_is_not_a_time_is_quoted() -> None:
    split = TimeSplit(by="time", column="t", train=TimeRange(), eval=TimeRange())
    with pytest.raises(DataError, match="t is not ISO 8601 time.*yesterday"):
        assign(split, batch(t=["yesterday"]))


def test_a_hash_split_puts_equal_keys_together() -> None:
    split = HashSplit(by="hash", key=("user",), eval_percent=50)
    rows = batch(user=["a", "b", "a", "b"], x=[1.0, 2.0, 3.0, 4.0])
    codes = assign(split, rows).tolist()
    assert codes[:2] == codes[2:]


def test_a_hash_split_is_the_same_in_every_process_and_release() -> None:
    split = HashSplit(by="hash", key=("user",), eval_percent=50)
    rows = batch(user=["ada", "bob", "cid", "dan", "eve", "fay", "gus", "hal"])
    assert assign(split, rows).tolist() == [1, 0, 0, 1, 1, 0, 1, 0]


@given(st.integers(1, 99))
def test_the_eval_share_is_about_what_was_asked(percent: int) -> None:
    split = HashSplit(by="hash", key=("id",), eval_percent=percent)
    codes = assign(split, batch(id=list(map(str, range(5000)))))
    assert abs(np.mean(codes == EVAL) - percent / 100) < 0.04


@given(st.lists(st.text(), min_size=1), st.lists(st.text()))
def test_a_row_keeps_its_split_when_rows_are_added(
    names: list[str], more: list[str]
) -> None:
    split = HashSplit(by="hash", key=("name",))
    before = assign(split, batch(name=names)).tolist()
    assert assign(split, batch(name=names + more)).tolist()[: len(names)] == before
