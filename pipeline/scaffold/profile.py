"""What is seen in each column of a CSV file, in one pass with bounded memory."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from pipeline.errors import ScaffoldError
from pipeline.scaffold.dialect import BLOCK_BYTES, Dialect

Type = Literal["int", "float", "time", "string", "empty"]

MAX_DISTINCT = 10_000
"""Values counted one by one; a column with more is known to have many."""
NULL_TOKENS = (
    "",
    "NA",
    "N/A",
    "n/a",
    "NaN",
    "nan",
    "NULL",
    "null",
    "#N/A",
    "<NA>",
    "\\N",
)
"""Cells that mean "missing" wherever they stand."""
NULL_TOKENS_OF_NUMBERS = ("?", "-", "--", ".", "None", "none", "missing")
"""Cells that mean "missing" where everything else in the column is a number."""

# What Arrow's reader, and so ExampleGen, takes for a number of each type.
_INT = re.compile(r"[ \t]*-?[0-9]{1,18}[ \t]*")
_FLOAT = re.compile(r"[ \t]*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*")
_CODE = re.compile(r"[ \t]*0[0-9]+[ \t]*")
_TIME = re.compile(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?")


@dataclass
class Column:
    """One column; counts leave out cells that are missing."""

    name: str
    num_rows: int = 0
    values: Counter[str] = field(default_factory=Counter)
    """How often each value occurs; the first MAX_DISTINCT of them."""
    num_present: int = 0
    overflowed_at: int | None = None
    """Present cells seen when values became too many to count."""
    types: set[Type] = field(default_factory=set)
    has_codes: bool = False
    """Some whole numbers have leading zeros, like postal codes."""
    odd: Counter[str] = field(default_factory=Counter)
    """Cells that are no numbers but may stand for a missing one."""
    nulls: Counter[str] = field(default_factory=Counter)
    """Cells that mean missing."""
    min: float = float("inf")
    max: float = float("-inf")
    total: float = 0.0
    total_squares: float = 0.0
    max_length: int = 0
    total_length: int = 0

    def add(self, cells: pa.Array) -> None:
        """Count the cells of one batch, `[num_rows] string`."""
        self.num_rows += len(cells)
        for entry in pc.value_counts(cells):
            value, times = entry["values"].as_py(), entry["counts"].as_py()
            bare = value.strip()
            if bare in NULL_TOKENS:
                self.nulls[value] += times
            elif bare in NULL_TOKENS_OF_NUMBERS:
                self.odd[value] += times
            else:
                self._add_value(value, times)

    def finish(self) -> None:
        """Decide what cells that may mean missing do mean."""
        if self.types <= {"int", "float"} and self.types:
            self.nulls.update(self.odd)
        else:
            for value, times in self.odd.items():
                self._add_value(value, times)
        self.odd = Counter()

    def _add_value(self, value: str, times: int) -> None:
        self.num_present += times
        if value in self.values or len(self.values) < MAX_DISTINCT:
            self.values[value] += times
        elif self.overflowed_at is None:
            self.overflowed_at = self.num_present
        self.max_length = max(self.max_length, len(value))
        self.total_length += len(value) * times
        kind = _type_of(value)
        self.types.add(kind)
        self.has_codes |= kind == "int" and _CODE.fullmatch(value) is not None
        if kind in {"int", "float"}:
            number = float(value)
            self.min, self.max = min(self.min, number), max(self.max, number)
            self.total += number * times
            self.total_squares += number * number * times

    @property
    def type(self) -> Type:
        """The one type that fits all values."""
        if not self.types:
            return "empty"
        if self.types == {"int"}:
            return "string" if self.has_codes else "int"
        if self.types <= {"int", "float"}:
            return "float"
        return "time" if self.types == {"time"} else "string"

    @property
    def num_distinct(self) -> int:
        """How many values there are; MAX_DISTINCT when there are more."""
        return len(self.values)

    @property
    def has_many(self) -> bool:
        """There are more values than were counted."""
        return self.overflowed_at is not None

    @property
    def missing_share(self) -> float:
        """Share of cells that are missing, in [0, 1]."""
        return 1 - self.num_present / self.num_rows if self.num_rows else 0.0

    @property
    def distinct_share(self) -> float:
        """Distinct values for each present cell, in [0, 1]; 1 when none repeats."""
        seen = self.overflowed_at or self.num_present
        return self.num_distinct / seen if seen else 0.0

    @property
    def mean(self) -> float:
        """Mean of a column of numbers."""
        return self.total / self.num_present if self.num_present else 0.0

    @property
    def standard_deviation(self) -> float:
        """Of a column of numbers: the error of always predicting the mean."""
        if not self.num_present:
            return 0.0
        variance = self.total_squares / self.num_present - self.mean**2
        return float(max(variance, 0.0) ** 0.5)

    @property
    def mean_length(self) -> float:
        """Characters of a cell that is there, on average."""
        return self.total_length / self.num_present if self.num_present else 0.0


@dataclass(frozen=True)
class Table:
    """All columns of one file."""

    file: Path
    dialect: Dialect
    num_rows: int
    columns: Mapping[str, Column]

    @property
    def null_values(self) -> tuple[str, ...]:
        """Cells that mean missing, the empty one first."""
        seen = {token for column in self.columns.values() for token in column.nulls}
        return ("", *sorted(seen - {""}))


def profile(file: Path, dialect: Dialect) -> Table:
    """Read the whole file and describe its columns; those without a name are left out.

    Raises:
        ScaffoldError: A row has too many or too few cells, or there are no rows.
    """
    columns = {name: Column(name) for name in dialect.columns if name}
    num_rows = 0
    for batch in batches(file, dialect):
        num_rows += batch.num_rows
        for index, name in enumerate(dialect.columns):
            if name:
                columns[name].add(batch.column(index))
    if not num_rows:
        raise ScaffoldError(
            f"{file}: has a header but no rows; there is nothing to see"
        )
    for column in columns.values():
        column.finish()
    return Table(file, dialect, num_rows, columns)


def batches(file: Path, dialect: Dialect) -> Iterator[pa.RecordBatch]:
    """Yield the file's rows with every cell as text.

    Raises:
        ScaffoldError: The file is not well formed.
    """
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            yield from _reader(stream, dialect)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise ScaffoldError(f"{file}: cannot be read as CSV: {reason}") from error


def _reader(stream: pa.NativeFile, dialect: Dialect) -> csv.CSVStreamingReader:
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(block_size=BLOCK_BYTES, encoding=dialect.encoding),
        parse_options=csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            column_types=dict.fromkeys(dialect.columns, pa.string()),
            strings_can_be_null=False,
        ),
    )


def _type_of(value: str) -> Type:
    if _INT.fullmatch(value):
        return "int"
    if _FLOAT.fullmatch(value):
        return "float"
    return "time" if _TIME.fullmatch(value) else "string"
