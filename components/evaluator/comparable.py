"""Whether a baseline can be judged on the candidate's examples at all."""

from pathlib import Path

from pydantic import ValidationError

from components.features import FeatureTable, Label
from components.trainer.config import TABLE_FILE


def why_not_comparable(table: FeatureTable, baseline: Path) -> str | None:
    """Return why a model cannot be compared with; None when it can.

    Args:
        table: What the candidate, and the examples, were made from.
        baseline: The baseline's SavedModel, with its own table inside.
    """
    try:
        theirs = FeatureTable.model_validate_json((baseline / TABLE_FILE).read_text())
    except OSError:
        return f"it is not there any more, or says nothing of its data ({baseline})"
    except ValidationError:
        return "its feature table is of another release"
    return _difference(table, theirs)


def _difference(ours: FeatureTable, theirs: FeatureTable) -> str | None:
    if _target(theirs.label) != _target(ours.label):
        return f"it predicts another label ({theirs.label.kind} {theirs.label.column})"
    if theirs.weight != ours.weight:
        return f"its examples are weighted otherwise (by {theirs.weight or 'nothing'})"
    dtypes = ours.column_dtypes()
    for column, dtype in theirs.column_dtypes().items():
        if column not in dtypes:
            return f"it reads column {column!r}, which the examples lack"
        if dtypes[column] != dtype:
            return f"it reads column {column!r} as {dtype}, now {dtypes[column]}"
    return None


def _target(label: Label) -> tuple[object, ...]:
    """What is predicted; how rows without a label are treated is no part of it."""
    return label.column, label.kind, label.data_dtype, label.positive
