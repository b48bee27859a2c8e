"""What ExampleGen counted, and what in those counts makes the data unusable."""

from collections import Counter
from collections.abc import Iterable
from typing import Self

from components.errors import DataError
from components.features import Label
from serving.settings import Settings

MAX_LABEL_VALUES = 1000


class Counts(Settings):
    """Rows by what became of them; adds up over files."""

    num_rows: int = 0
    """Rows read."""
    num_without_label: int = 0
    """Rows left out because their label is missing."""
    num_held_out: int = 0
    """Rows that belong to no split."""
    splits: dict[str, int] = {}
    """Examples written, by split."""
    label_values: dict[str, dict[str, int]] = {}
    """How often each label value occurs, by split; the first 1,000 values."""

    @classmethod
    def total(cls, parts: Iterable[Self]) -> "Counts":
        """Add up the counts of several files."""
        rows = without_label = held_out = 0
        splits: Counter[str] = Counter()
        labels: dict[str, Counter[str]] = {}
        for part in parts:
            rows += part.num_rows
            without_label += part.num_without_label
            held_out += part.num_held_out
            splits.update(part.splits)
            for split, values in part.label_values.items():
                labels.setdefault(split, Counter()).update(values)
        return cls(
            num_rows=rows,
            num_without_label=without_label,
            num_held_out=held_out,
            splits=dict(splits),
            label_values={
                split: dict(values.most_common(MAX_LABEL_VALUES))
                for split, values in labels.items()
            },
        )


def check_counts(counts: Counts, label: Label, splits: Iterable[str]) -> None:
    """Refuse data that nothing can be learnt from or judged on.

    Raises:
        DataError: No rows, missing labels, an empty split, or a label that is
            constant or does not fit its kind.
    """
    if counts.num_rows == 0:
        raise DataError("the data has a header but no rows")
    if counts.num_without_label and label.missing == "error":
        raise DataError(
            f"label {label.column!r} is missing in {counts.num_without_label:,} of "
            f"{counts.num_rows:,} rows; fill them, or set label.missing: drop"
        )
    for split in splits:
        if not counts.splits.get(split):
            raise DataError(
                f"split {split!r} is empty: of {counts.num_rows:,} rows, "
                f"{_spread(counts)}; see data.split"
            )
    if label.kind != "regression":
        _check_classes(counts, label)
    elif len(counts.label_values.get("train", {})) == 1:
        raise DataError(_constant(counts, label))


def _spread(counts: Counts) -> str:
    parts = [f"{split} {num:,}" for split, num in sorted(counts.splits.items()) if num]
    parts.append(f"held out {counts.num_held_out:,}")
    if counts.num_without_label:
        parts.append(f"without label {counts.num_without_label:,}")
    return ", ".join(parts)


def _constant(counts: Counts, label: Label) -> str:
    (value, num), *_ = counts.label_values["train"].items()
    return (
        f"label {label.column!r} is constant: {value!r} in all {num:,} rows of the "
        "train split; there is nothing to learn"
    )


def _check_classes(counts: Counts, label: Label) -> None:
    train = counts.label_values.get("train", {})
    if len(train) == 1:
        raise DataError(_constant(counts, label))
    if label.kind == "binary":
        _check_binary(counts, label)
        return
    unseen = [v for v in counts.label_values.get("eval", {}) if v not in train]
    if unseen:
        raise DataError(
            f"label {label.column!r}: {', '.join(map(repr, unseen[:10]))} in the eval "
            "split, but never in the train split; a model cannot learn such a class"
        )


def _check_binary(counts: Counts, label: Label) -> None:
    values = sorted({v for by_value in counts.label_values.values() for v in by_value})
    shown = ", ".join(map(repr, values[:10])) + (", …" if len(values) > 10 else "")
    if len(values) > 2:
        raise DataError(
            f"label {label.column!r} is declared binary, but has {len(values)} "
            f"values: {shown}"
        )
    positive = "1" if label.positive is None else str(label.positive)
    if positive not in values:
        raise DataError(
            f"label {label.column!r}: no row has the positive value {positive!r}; "
            f"values: {shown}; set label.positive to one of them"
        )
