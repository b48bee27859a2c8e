"""CSV files as Arrow record batches whose types are the settings', never guessed."""

from collections.abc import Iterator, Mapping
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
    try:
        with pa.input_stream(str(file), compression="detect") as stream:
            yield from _open(stream, data, dtypes)
    except KeyError as error:
        raise DataError(f"{file}: {_missing_column(file, data, dtypes)}") from error
    except (pa.ArrowInvalid, UnicodeDecodeError, OSError, LookupError) as error:
        raise DataError(f"{file}: {explain(error, data, dtypes)}") from error


def header(file: Path, data: DataSettings) -> list[str]:
    """Return the column names of a file."""
    with pa.input_stream(str(file), compression="detect") as stream:
        reader = csv.open_csv(
            stream,
            read_options=csv.ReadOptions(encoding=data.encoding),
            parse_options=csv.ParseOptions(delimiter=data.delimiter),
        )
        return list(reader.schema.names)


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


def _missing_column(file: Path, data: DataSettings, dtypes: Mapping[str, Dtype]) -> str:
    names = header(file, data)
    absent = [name for name in dtypes if name not in names]
    what = "column" if len(absent) == 1 else "columns"
    return f"no {what} {', '.join(map(repr, absent))}; the file has: {', '.join(names)}"


def explain(error: Exception, data: DataSettings, dtypes: Mapping[str, Dtype]) -> str:
    """Say what was wrong with the file and which setting would help."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    if "Empty CSV file" in text:
        return "is empty, not even a header"
    if isinstance(error, LookupError):
        return f"unknown encoding {data.encoding!r} (data.encoding)"
    if isinstance(error, UnicodeDecodeError) or "UTF8" in text or "UTF-8" in text:
        return f"is not {data.encoding} text: {text}; set data.encoding"
    if "conversion error" in text:
        return f"{text}; set the feature's dtype, or add the cell to data.null_values"
    return text
