"""Which split each row of a record batch belongs to: pure, on Arrow columns."""

from collections.abc import Mapping
from functools import singledispatch

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from components.errors import DataError
from components.example_gen.config import (
    ColumnSplit,
    HashSplit,
    Split,
    TimeRange,
    TimeSplit,
    split_columns,
)
from components.features import Dtype

SPLITS = ("train", "eval")
TRAIN, EVAL, HELD_OUT = 0, 1, 2
Assignment = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


def columns_to_read(split: Split, dtypes: Mapping[str, Dtype]) -> dict[str, Dtype]:
    """Add the columns that only the split needs, as text."""
    return {**dict.fromkeys(split_columns(split), "string"), **dtypes}


@singledispatch
def assign(split: Split, batch: pa.RecordBatch) -> Assignment:
    """Return `[num_rows] int8`: TRAIN, EVAL or HELD_OUT for each row.

    Raises:
        DataError: A value that decides the split cannot be understood.
    """
    raise TypeError(f"no rule for {type(split).__name__}")


@assign.register
def _by_hash(split: HashSplit, batch: pa.RecordBatch) -> Assignment:
    names = split.key or batch.schema.names
    frame = batch.select(list(names)).to_pandas()
    # pandas' row hash is SipHash with a fixed key: the same in every process.
    hashes = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    is_eval = (hashes % np.uint64(10_000)) < round(split.eval_percent * 100)
    return np.where(is_eval, EVAL, TRAIN).astype(np.int8)


@assign.register
def _by_time(split: TimeSplit, batch: pa.RecordBatch) -> Assignment:
    times = _times(batch.column(split.column), split.column)
    parts = [(_inside(times, split.train), TRAIN), (_inside(times, split.eval), EVAL)]
    if (parts[0][0] & parts[1][0]).any():
        raise DataError("data.split: the train and eval time ranges overlap")
    return _choose(parts, len(times))


@assign.register
def _by_column(split: ColumnSplit, batch: pa.RecordBatch) -> Assignment:
    column = pc.cast(batch.column(split.column), pa.string())
    parts = [
        (_is_in(column, values), code)
        for values, code in ((split.train, TRAIN), (split.eval, EVAL))
    ]
    return _choose(parts, batch.num_rows)


def _is_in(column: pa.Array, values: tuple[str | int, ...]) -> Mask:
    wanted = pa.array([str(value) for value in values], pa.string())
    mask: Mask = pc.is_in(column, value_set=wanted).to_numpy(zero_copy_only=False)
    return mask


def _choose(parts: list[tuple[Mask, int]], num_rows: int) -> Assignment:
    codes = np.full(num_rows, HELD_OUT, np.int8)
    for mask, code in parts:
        codes[mask] = code
    return codes


def _times(column: pa.Array, name: str) -> "pd.Series[pd.Timestamp]":
    try:
        return pd.to_datetime(pd.Series(column.to_pandas()), format="ISO8601", utc=True)
    except ValueError as error:
        raise DataError(
            f"data.split.column: {name} is not ISO 8601 time: {error}"
        ) from error


def _inside(times: "pd.Series[pd.Timestamp]", span: TimeRange) -> Mask:
    inside: Mask = times.notna().to_numpy()
    if span.start is not None:
        inside &= (times >= _bound(span.start)).to_numpy()
    if span.end is not None:
        inside &= (times < _bound(span.end)).to_numpy()
    return inside


def _bound(text: str) -> pd.Timestamp:
    try:
        return pd.to_datetime(text, format="ISO8601", utc=True)
    except ValueError as error:
        raise DataError(f"data.split: {text!r} is not an ISO 8601 time") from error
