"""How a CSV file is written: its encoding, its delimiter, the names of its columns."""

import codecs
import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from pipeline.errors import ScaffoldError

DELIMITERS = ",;\t|"
SAMPLE_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
FALLBACK = "latin-1"
"""Every byte is a character in it: it always reads, rightly or not."""


@dataclass(frozen=True)
class Dialect:
    """What must be known to read the file."""

    encoding: str
    delimiter: str
    columns: tuple[str, ...]
    """Names in the first row, as written there; `""` for a column without one."""


def sniff(file: Path) -> Dialect:
    """Look into a file, compressed or not.

    Raises:
        ScaffoldError: The file cannot be read, is not CSV, or has no usable header.
    """
    try:
        encoding = _encoding(file)
        sample = _sample(file, encoding)
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ScaffoldError(f"{file}: cannot be read: {reason}") from error
    if not sample.strip():
        raise ScaffoldError(f"{file}: is empty; a CSV file with a header is needed")
    delimiter = _delimiter(sample)
    rows = _rows(sample, delimiter)
    columns = tuple(rows[0]) if rows else ()
    _check_header(file, columns)
    return Dialect(encoding, delimiter, columns)


def _blocks(file: Path) -> Iterator[bytes]:
    with pa.input_stream(str(file), compression="detect") as stream:
        while block := stream.read(BLOCK_BYTES):
            yield block


def _encoding(file: Path) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")()
    encoding = "utf-8"
    for number, block in enumerate(_blocks(file)):
        if number == 0 and block[:2] in BYTE_ORDER_MARKS:
            return BYTE_ORDER_MARKS[block[:2]]
        if b"\0" in block:
            raise ScaffoldError(f"{file}: is not a CSV file: it holds binary data")
        if encoding == "utf-8":
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                encoding = FALLBACK
    return encoding


def _sample(file: Path, encoding: str) -> str:
    block = next(_blocks(file), b"")[:SAMPLE_BYTES]
    text = block.decode(encoding, errors="ignore").removeprefix("\ufeff")
    whole = len(block) < SAMPLE_BYTES
    return text if whole else text[: text.rfind("\n") + 1] or text


def _delimiter(sample: str) -> str:
    """Return the character that cuts most rows into the same number of cells."""

    def score(delimiter: str) -> tuple[float, int]:
        widths = Counter(len(row) for row in _rows(sample, delimiter))
        width, rows = widths.most_common(1)[0] if widths else (1, 0)
        return (rows / widths.total() if width > 1 else 0.0, width)

    return max(DELIMITERS, key=score)


def _rows(sample: str, delimiter: str) -> list[list[str]]:
    lines = sample.splitlines(keepends=True)
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []


def _check_header(file: Path, columns: tuple[str, ...]) -> None:
    if len(columns) < 2:
        raise ScaffoldError(
            f"{file}: has one column only; a label and something to predict it from "
            "are needed (cells between , ; | or tabs)"
        )
    named = [name for name in columns if name]
    twice = [name for name, times in Counter(named).items() if times > 1]
    if twice:
        raise ScaffoldError(
            f"{file}: the header names {', '.join(map(repr, twice))} more than once; "
            "give each column a name of its own"
        )
    numbers = [name for name in columns if _is_number(name)]
    if len(numbers) * 2 > len(columns):
        raise ScaffoldError(
            f"{file}: the first row looks like data, not like names: "
            f"{', '.join(columns[:5])}, …; put a header above it"
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
