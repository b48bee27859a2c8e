"""Settings of the data: which files, how to read them, how to split them."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from serving.settings import Settings

Value = str | int


class HashSplit(Settings):
    """Split at random but reproducibly, by a hash of a key."""

    by: Literal["hash"]
    key: tuple[str, ...] = ()
    """Columns whose values decide the split together; all used columns when empty."""
    eval_percent: Annotated[float, Field(gt=0, lt=100)] = 20.0
    """Share of rows in the eval split, in percent."""


class TimeRange(Settings):
    """A half-open range of times: `start <= t < end`."""

    start: str | None = None
    """First time inside, ISO 8601 (`2013-01-01` or `2013-01-01T06:00:00`)."""
    end: str | None = None
    """First time outside, ISO 8601."""

    @field_validator("start", "end")
    @classmethod
    def _is_iso_time(cls, text: str | None) -> str | None:
        if text is not None and not _is_time(text):
            raise ValueError(f'got "{text}", allowed: ISO 8601, for example 2013-01-31')
        return text


class TimeSplit(Settings):
    """Split by a column of ISO 8601 times."""

    by: Literal["time"]
    column: str
    """Column with the times, as ISO 8601 text."""
    train: TimeRange
    """Rows to train on."""
    eval: TimeRange
    """Rows to evaluate on."""


def _is_time(text: str) -> bool:
    try:
        # A month alone, `2013-01`, is ISO 8601, too.
        datetime.fromisoformat(f"{text}-01" if len(text) == len("2013-01") else text)
    except ValueError:
        return False
    return True


class ColumnSplit(Settings):
    """Split by the values of a column; rows with other values are held out."""

    by: Literal["column"]
    column: str
    """Column that decides."""
    train: Annotated[tuple[Value, ...], Field(min_length=1)]
    """Values of the rows to train on."""
    eval: Annotated[tuple[Value, ...], Field(min_length=1)]
    """Values of the rows to evaluate on."""

    @model_validator(mode="after")
    def _disjoint(self) -> "ColumnSplit":
        both = set(map(str, self.train)) & set(map(str, self.eval))
        if both:
            raise ValueError(f"in train and in eval: {', '.join(sorted(both))}")
        return self


class FilesSplit(Settings):
    """Split already done: one pattern of files for each split."""

    by: Literal["files"]
    train: str
    """Pattern of the files to train on."""
    eval: str
    """Pattern of the files to evaluate on."""


Split = Annotated[
    HashSplit | TimeSplit | ColumnSplit | FilesSplit, Field(discriminator="by")
]


def split_columns(split: Split) -> tuple[str, ...]:
    """Return the columns that must be read to decide the split."""
    match split:
        case HashSplit():
            return split.key
        case TimeSplit() | ColumnSplit():
            return (split.column,)
        case FilesSplit():
            return ()


class DataSettings(Settings):
    """Where the rows come from."""

    files: str | tuple[str, ...] | None = None
    """File, pattern or list of them, relative to the settings file."""
    format: Literal["csv"] = "csv"
    """Format of the files; a name that ends in `.gz` is decompressed."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Character between cells."""
    encoding: str = "utf-8"
    """Encoding of the text."""
    null_values: tuple[str, ...] = ("",)
    """Cells that mean "missing", compared exactly."""
    split: Split = HashSplit(by="hash")
    """How rows are divided into train and eval."""

    @model_validator(mode="after")
    def _files_given_once(self) -> "DataSettings":
        by_files = isinstance(self.split, FilesSplit)
        if by_files == (self.files is not None):
            raise ValueError(
                "files: name the files here, or in split with `by: files`, "
                f"{'not in both' if by_files else 'one of the two'}"
            )
        return self
