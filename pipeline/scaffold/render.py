"""A guess as the text of a settings file, with what was seen beside each choice."""

import re
from collections.abc import Iterator

from components.features import ColumnFeature
from components.trainer.config import TrainerSettings
from pipeline.scaffold.guess import Guess
from pipeline.scaffold.guess_label import LabelGuess
from pipeline.scaffold.profile import Column, Table

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./\-]*( [A-Za-z0-9_./\-]+)*")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
NUM_STEPS = 1000
"""Gradient steps to aim at: enough to learn something, seconds to take."""


def render(guess: Guess, project: str, files: str) -> str:
    """Return the settings file.

    Args:
        guess: What was decided.
        project: Name of the project.
        files: Pattern of the data file.
    """
    sections = (
        _head(guess.table, project),
        _data(guess, files),
        _label(guess.label, guess.table),
        _features(guess),
        _drop(guess),
        _schema(),
        _trainer(guess.table.num_rows),
        _evaluator(guess),
    )
    return "\n".join("\n".join(lines) + "\n" for lines in map(list, sections) if lines)


def quoted(text: str) -> str:
    """Write text as a YAML scalar, with quotes only where it needs them."""
    if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT:
        return text
    return in_quotes(text)


def in_quotes(text: str) -> str:
    """Write text between double quotes, on one line."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES or char.isprintable():
        return _ESCAPES.get(char, char)
    code = ord(char)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _head(table: Table, project: str) -> Iterator[str]:
    name = in_quotes(table.file.name)[1:-1]
    yield f"# Made by `taxiway init` from the {table.num_rows:,} rows of {name}: a guess."
    yield "# Ask of each feature: is it known when a prediction is wanted? A column that is"
    yield "# filled in later, or that follows from the label, makes a model that fails in use."
    yield ""
    yield f"project: {quoted(project)}"


def _data(guess: Guess, files: str) -> Iterator[str]:
    table = guess.table
    yield "data:"
    yield f"  files: {quoted(files)}"
    if table.dialect.delimiter != ",":
        yield f"  delimiter: {in_quotes(table.dialect.delimiter)}"
    if table.dialect.encoding != "utf-8":
        yield f"  encoding: {table.dialect.encoding} # it is not UTF-8"
    if len(table.null_values) > 1:
        yield f"  null_values: [{', '.join(map(in_quotes, table.null_values))}]"
    yield "  split:"
    yield "    by: hash # at random, but always the same rows"
    yield "    eval_percent: 20"
    for column in table.columns.values():
        if column.type == "time":
            yield "    # Or train on the past, evaluate on what came after it: by: time,"
            yield f"    # column: {quoted(column.name)}, train: {{end: …}}, eval: {{start: …}}"
            return


def _label(guess: LabelGuess, table: Table) -> Iterator[str]:
    label = guess.label
    column = table.columns[label.column]
    yield "label:"
    yield f"  column: {quoted(label.column)} # {guess.why}; {_seen(column)}"
    yield f"  kind: {label.kind}"
    if label.positive is not None:
        yield f"  dtype: {label.dtype}"
        share = column.values[str(label.positive)] / column.num_present
        yield f"  positive: {in_quotes(str(label.positive))} # {_percent(share)} of rows"
    if label.missing == "drop":
        yield "  missing: drop # rows without a label are left out"
    for note in guess.notes:
        yield f"  # {note}"


def _features(guess: Guess) -> Iterator[str]:
    yield "features:"
    for name, feature in guess.features.items():
        column = guess.table.columns[feature.column or name]
        yield f"  {quoted(name)}: {_inline(feature)} # {_seen(column)}"


def _inline(feature: ColumnFeature) -> str:
    content = feature.model_dump(exclude_defaults=True)
    content = {"kind": feature.kind, **content}
    return (
        f"{{{', '.join(f'{key}: {_scalar(value)}' for key, value in content.items())}}}"
    )


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else f"{value:g}"


def _drop(guess: Guess) -> Iterator[str]:
    if not guess.dropped:
        return
    yield "drop:"
    for column, why in guess.dropped:
        yield f"  - {quoted(column)} # {why}; {_seen(guess.table.columns[column])}"


def _schema() -> Iterator[str]:
    yield "# The schema is what the train split looks like. These two happen by chance:"
    yield "schema:"
    yield "  anomalies:"
    yield "    ENUM_TYPE_UNEXPECTED_STRING_VALUES: warn # a value not seen in training"
    yield "    FEATURE_TYPE_LOW_FRACTION_PRESENT: warn # a value missing for the first time"


def _trainer(num_rows: int) -> Iterator[str]:
    batch_size, epochs = schedule(num_rows)
    yield "trainer:"
    yield f"  batch_size: {batch_size}"
    yield f"  epochs: {epochs}"
    yield "  early_stopping_patience: 3"


def schedule(num_rows: int) -> tuple[int, int]:
    """Return `(batch size, epochs)`: about NUM_STEPS steps, 2 to 50 epochs."""
    for rows, size in ((2_000, 32), (20_000, 128), (200_000, 512)):
        if num_rows <= rows:
            batch_size = size
            break
    else:
        batch_size = 1024
    epochs = round(NUM_STEPS * batch_size / max(num_rows, 1))
    return batch_size, min(max(epochs, TrainerSettings().epochs), 50)


def _evaluator(guess: Guess) -> Iterator[str]:
    yield "evaluator:"
    sliced = [
        feature.column or name
        for name, feature in guess.features.items()
        if feature.kind == "categorical"
        and 2 <= guess.table.columns[feature.column or name].num_distinct <= 20
    ]
    if sliced:
        yield f"  # slices: [{quoted(sliced[0])}] would judge each of its values, too"
    yield "  # max_drop and max_rise: how much worse than the last model that was blessed"
    yield "  thresholds:"
    yield f"    {_threshold(guess)}"


def _threshold(guess: Guess) -> str:
    column = guess.table.columns[guess.label.label.column]
    match guess.label.label.kind:
        case "binary":
            return "auc: {min: 0.5, max_drop: 0.05} # a coin reaches 0.5; raise it to what you need"
        case "multiclass":
            [(value, times)] = column.values.most_common(1)
            share = int(100 * times / column.num_present) / 100
            return (
                f"sparse_categorical_accuracy: {{min: {share:g}, max_drop: 0.05}} "
                f"# what always saying {in_quotes(value)} reaches"
            )
        case "regression":
            error = f"{column.standard_deviation:.3g}"
            rise = f"{column.standard_deviation / 20:.3g}"
            return (
                f"root_mean_squared_error: {{max: {error}, max_rise: {rise}}} "
                f"# what always saying the mean, {column.mean:.3g}, reaches"
            )


def _seen(column: Column) -> str:
    parts = []
    if column.missing_share > 0:
        parts.append(f"{_percent(column.missing_share)} missing")
    more = "more than " if column.has_many else ""
    parts.append(f"{more}{column.num_distinct:,} distinct")
    if column.values:
        [(example, _)] = column.values.most_common(1)
        shown = example if len(example) <= 30 else f"{example[:29]}…"
        parts.append(f"e.g. {in_quotes(shown)}")
    return ", ".join(parts)


def _percent(share: float) -> str:
    if 0 < share < 0.01:
        return "under 1 %"
    return f"{round(100 * share)} %" if share <= 0.99 else f"{int(100 * share)} %"
