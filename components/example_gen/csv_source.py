"""CSV files as Arrow record batches whose types are the settings', never guessed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from components.errors import DataError
from components.example_gen.config import DataSettings
from components.features import Dtype

ARROW_TYPES: Mapping[Dtype, pa.DataType] = {
    "float": pa.float32(),
    "int": pa.int64(),
    "string": pa.string(),
}
BLOCK_BYTES = 8 << 20
HEAD_BYTES = 1 << 16
ERRORS = (pa.ArrowInvalid, UnicodeError, OSError, LookupError)
_COLUMN = re.compile(r"CSV column #(\d+)")
_PLAIN = re.compile(r"\w+")


def read_csv(
    file: Path, data: DataSettings, dtypes: Mapping[str, Dtype]
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted columns of one file, missing cells as nulls.

    Args:
        file: A CSV file with a header; `.gz` and other endings that Arrow knows
            are decompressed.
        data: Dialect of the file.
        dtypes: Type of each wanted column.

    Raises:
        DataError: The file cannot be read, a column is not there, or a cell is not
            of its column's type.
    """
    names = check_header(file, data, dtypes)
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            yield from _open(stream, data, dtypes)
    except ERRORS as error:
        raise DataError(f"{file}: {explain(error, data, names)}") from error


def check_header(
    file: Path, data: DataSettings, wanted: Iterable[str]
) -> Sequence[str]:
    """Return the file's column names, all wanted ones among them.

    Raises:
        DataError: The file cannot be read, or a column is not there or there twice.
    """
    names = header(file, data)
    absent = [name for name in wanted if name not in names]
    if absent:
        what = "column" if len(absent) == 1 else "columns"
        raise DataError(
            f"{file}: no {what} {', '.join(map(repr, absent))}; "
            f"the file has: {', '.join(map(_quoted, names))}"
        )
    for name in wanted:
        if names.count(name) > 1:
            first, second = [i + 1 for i, other in enumerate(names) if other == name][
                :2
            ]
            raise DataError(f"{file}: columns {first} and {second} are both {name!r}")
    return names


def header(file: Path, data: DataSettings) -> list[str]:
    """Return the column names of a file.

    Raises:
        DataError: It cannot be read.
    """
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            if b"\0" in stream.read(HEAD_BYTES) and "16" not in data.encoding:
                raise DataError(f"{file}: holds binary data, it is not a CSV file")
        with pa.input_stream(str(file), compression="detect") as stream:
            reader = csv.open_csv(
                stream,
                read_options=csv.ReadOptions(use_threads=False, encoding=data.encoding),
                parse_options=csv.ParseOptions(
                    delimiter=data.delimiter,
                    newlines_in_values=True,
                ),
            )
            return list(reader.schema.names)
    except ERRORS as error:
        raise DataError(f"{file}: {explain(error, data, ())}") from error


def _open(
    stream: pa.NativeFile, data: DataSettings, dtypes: Mapping[str, Dtype]
) -> csv.CSVStreamingReader:
    return csv.open_csv(
        stream,
        read_options=csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES, encoding=data.encoding
        ),
        parse_options=csv.ParseOptions(
            delimiter=data.delimiter, newlines_in_values=True
        ),
        convert_options=csv.ConvertOptions(
            column_types={name: ARROW_TYPES[dtype] for name, dtype in dtypes.items()},
            include_columns=list(dtypes),
            null_values=list(data.null_values),
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )


def explain(error: Exception, data: DataSettings, names: Sequence[str]) -> str:
    """Say what was wrong with the file and which setting would help."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    text = _printable(str(error).partition("\n")[0])
    if "Empty CSV file" in text:
        return "is empty, not even a header"
    if isinstance(error, UnicodeError) or "UTF8" in text or "UTF-8" in text:
        return f"is not {data.encoding} text: {text}; set data.encoding"
    if isinstance(error, LookupError):
        return f"unknown encoding {data.encoding!r} (data.encoding)"
    if "conversion error" in text:
        text = _COLUMN.sub(
            lambda match: f"column {_column(int(match[1]), names)}", text
        )
        return f"{text}; set the feature's dtype, or add the cell to data.null_values"
    return text


def _column(index: int, names: Sequence[str]) -> str:
    return repr(names[index]) if index < len(names) else f"number {index + 1}"


def _printable(text: str) -> str:
    """Escape what would garble a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)[:300]


def _quoted(name: str) -> str:
    """Quote a name that would run into its neighbours."""
    return name if _PLAIN.fullmatch(name) else repr(name)
