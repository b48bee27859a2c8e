"""Which column is the label, of which kind, and what a model must at least reach."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from components.features import Label
from pipeline.errors import ScaffoldError
from pipeline.scaffold.names import words
from pipeline.scaffold.profile import Column, Table
from pipeline.settings_errors import suggestion

MAX_CLASSES = 20
MAX_TEXT_CLASSES = 100
NAMES = ("label", "target", "y", "class", "outcome", "response", "survived", "churn")
POSITIVE = ("1", "yes", "true", "y", "t", "positive", "pos", "success", "churned")
NOT_A_LABEL = frozenset({"id", "uuid", "latitude", "longitude", "lat", "lon", "lng"})


@dataclass(frozen=True)
class LabelGuess:
    """A label and why it was chosen."""

    label: Label
    why: str
    """`the last column`, `named with --label`."""
    notes: tuple[str, ...] = ()
    """What its user should know."""


def guess_label(table: Table, wanted: str | None) -> LabelGuess:
    """Take the wanted column, or the one whose name or place says that it is the label.

    Raises:
        ScaffoldError: The wanted column is not there or cannot be a label, or nothing
            speaks for any column.
    """
    names = ", ".join(table.columns)
    if wanted is not None and wanted not in table.columns:
        hint = suggestion(wanted, table.columns)
        raise ScaffoldError(f"--label {wanted}: no such column{hint}; columns: {names}")
    if wanted is not None:
        return _as_label(table.columns[wanted], "named with --label")
    for column, why in _candidates(table):
        if _kind(column) is not None:
            return _as_label(column, why)
    raise ScaffoldError(
        f"{table.file}: cannot tell which column is to be predicted; "
        f"name it with --label COLUMN; columns: {names}"
    )


def _candidates(table: Table) -> Iterator[tuple[Column, str]]:
    columns = [
        c for c in table.columns.values() if not set(words(c.name)) & NOT_A_LABEL
    ]
    for name in NAMES:
        for column in columns:
            if column.name.lower() == name:
                yield column, "by its name"
    if not columns:
        return
    first, last = columns[0], columns[-1]
    if last.num_distinct == 2:
        yield last, "the last column, with two values"
    if first.num_distinct == 2:
        yield first, "the first column, with two values"
    two = [column for column in columns if column.num_distinct == 2]
    if len(two) == 1:
        yield two[0], "the only column with two values"
    if last is list(table.columns.values())[-1]:
        yield last, "the last column"


def _kind(column: Column) -> Literal["binary", "multiclass", "regression"] | None:
    if column.num_distinct < 2:
        return None
    if column.num_distinct == 2:
        return "binary"
    if column.type == "float":
        return "regression"
    if column.type == "int":
        return "multiclass" if column.num_distinct <= MAX_CLASSES else "regression"
    if column.type == "string" and column.num_distinct <= MAX_TEXT_CLASSES:
        repeats = column.distinct_share <= 0.5
        return "multiclass" if repeats else None
    return None


def _as_label(column: Column, why: str) -> LabelGuess:
    kind = _kind(column)
    if kind is None:
        raise ScaffoldError(
            f"label {column.name!r} {_why_not(column)}; try another --label"
        )
    values: dict[str, object] = {"column": column.name, "kind": kind}
    notes = []
    if kind == "binary":
        positive, is_sure = _positive(column)
        values |= positive
        if not is_sure:
            notes.append("which value is the positive one is a guess: the rarer one")
    if column.missing_share:
        values["missing"] = "drop"
        num_missing = column.num_rows - column.num_present
        notes.append(f"{num_missing:,} rows have no label and are left out")
    if kind != "regression":
        rare = [v for v, times in column.values.items() if times < 10]
        if rare:
            notes.append(
                f"few rows are {', '.join(map(repr, rare[:5]))}: "
                "a split may have none of them"
            )
    return LabelGuess(Label.model_validate(values), why, tuple(notes))


def _why_not(column: Column) -> str:
    if column.num_distinct == 0:
        return "is empty in all rows; there is nothing to learn"
    if column.num_distinct == 1:
        [value] = column.values
        return f"is constant: {value!r} in all rows; there is nothing to learn"
    if column.type == "time":
        return "is a time; a class or a number can be predicted"
    return f"has too many values of text to be classes: {column.num_distinct:,}"


def _positive(column: Column) -> tuple[dict[str, object], bool]:
    """Return the label's settings of the positive value, and whether that is sure."""
    values = column.values
    if set(values) == {"0", "1"}:
        return {}, True
    known = [value for value in values if _is_positive(value)]
    is_number = column.type in {"int", "float"}
    if len(known) == 1:
        chosen = known[0]
    elif is_number:
        chosen = max(values, key=float)
    else:
        chosen = min(values, key=lambda value: values[value])
    # As text even where it is a number: it is compared as it is written.
    return {"positive": chosen, "dtype": "string"}, is_number or len(known) == 1


def _is_positive(value: str) -> bool:
    return value.strip().lower() in POSITIVE
