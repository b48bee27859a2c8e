"""From what was seen in a column to its feature: one small rule after another."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from components.features import (
    BucketizedFeature,
    CategoricalFeature,
    ColumnFeature,
    CyclicFeature,
    NumericFeature,
    TextFeature,
    transformed_names,
)
from pipeline.scaffold.guess_label import LabelGuess
from pipeline.scaffold.names import safe_name, words
from pipeline.scaffold.profile import Column, Table
from serving.client.names import tensor_name

FEW = 20
"""Whole numbers with at most so many values are taken for categories."""
VOCABULARY = 1000
"""Values of text up to which a vocabulary is kept; above, they are hashed."""
UNIQUE_SHARE = 0.9
ALMOST_EMPTY_SHARE = 0.99
INDICATOR_SHARE = 0.05
LONG_TEXT = 30
PERIODS: Mapping[str, int] = {
    "hour": 24,
    "hourofday": 24,
    "minute": 60,
    "second": 60,
    "weekday": 7,
    "dow": 7,
    "dayofweek": 7,
    "month": 12,
    "week": 53,
    "weekofyear": 53,
    "dayofyear": 366,
    "dayofmonth": 31,
}
"""How a name ends that speaks of a time that comes round again."""
ID_WORDS = frozenset({"id", "ids", "uuid", "guid", "key", "index", "rownum", "nr"})
CODE_WORDS = {
    (w,) for w in ("id", "code", "zip", "zipcode", "postcode", "tract", "zone")
}
LATITUDE_WORDS = frozenset({"lat", "latitude"})
LONGITUDE_WORDS = frozenset({"lon", "lng", "long", "longitude"})


class Dropped(NamedTuple):
    """A column that is not used, and why."""

    column: str
    why: str


@dataclass(frozen=True)
class Guess:
    """What the settings will say."""

    table: Table
    label: LabelGuess
    features: Mapping[str, ColumnFeature]
    """By feature name; `column` is set where the name differs."""
    dropped: tuple[Dropped, ...]


def guess(table: Table, label: LabelGuess, leaks: frozenset[str]) -> Guess:
    """Decide about every column.

    Args:
        table: What was seen.
        label: What is predicted.
        leaks: Columns that say the same as the label.
    """
    features: dict[str, ColumnFeature] = {}
    dropped: list[Dropped] = []
    taken = {f"{label.label.column}__label"}
    served: dict[str, str] = {}
    for column in table.columns.values():
        if column.name == label.label.column:
            continue
        made = _made_of(column, leaks, served)
        if isinstance(made, Dropped):
            dropped.append(made)
            continue
        name = _free_name(column.name, made, taken)
        taken.update({name, *transformed_names(name, made)})
        renamed = {"column": column.name} if name != column.name else {}
        features[name] = made.model_copy(update=renamed)
    return Guess(table, label, features, tuple(dropped))


def _made_of(
    column: Column, leaks: frozenset[str], served: dict[str, str]
) -> ColumnFeature | Dropped:
    if column.name in leaks:
        return Dropped(column.name, "says the same as the label")
    made = guess_column(column)
    if isinstance(made, Dropped):
        return made
    other = served.setdefault(tensor_name(column.name), column.name)
    if other != column.name:
        why = f"served under the same name as {other!r}: rename one in the data"
        return Dropped(column.name, why)
    return made


def _free_name(column: str, feature: ColumnFeature, taken: set[str]) -> str:
    tried: set[str] = set()
    while True:
        name = safe_name(column, taken | tried)
        if taken.isdisjoint(transformed_names(name, feature)):
            return name
        tried.add(name)


def guess_column(column: Column) -> ColumnFeature | Dropped:
    """Return the column's feature, or why it is not used."""
    for rule in _RULES:
        made = rule(column)
        if isinstance(made, str):
            return Dropped(column.name, made)
        if made is not None:
            return made
    return NumericFeature(kind="numeric")


Decision = ColumnFeature | str | None
"""A feature, why the column is dropped, or None: another rule decides."""


def _empty(column: Column) -> Decision:
    if column.num_distinct == 0:
        return "empty in all rows"
    if column.missing_share >= ALMOST_EMPTY_SHARE:
        return "missing in almost all rows"
    return None


def _constant(column: Column) -> Decision:
    return "the same in all rows" if column.num_distinct == 1 else None


def _time(column: Column) -> Decision:
    if column.type == "time":
        return "a time: of use to split by, not to learn from"
    # Seconds since 1970, between 1980 and 2100; milliseconds likewise.
    is_recent = 3e8 < column.min <= column.max < 4.2e9 or 3e11 < column.min < 4.2e12
    spoken = {"timestamp", "time", "date", "epoch", "ts"} & set(words(column.name))
    if column.type == "int" and is_recent and spoken:
        return "a timestamp: later rows have values that training has not seen"
    return None


def _identifier(column: Column) -> Decision:
    if column.type not in {"int", "string"} or column.distinct_share < UNIQUE_SHARE:
        return None
    if column.num_present < 2 * FEW and column.type == "string":
        return None  # so few rows differ anyway
    if column.type == "int":
        is_counter = column.max - column.min + 1 == column.num_present
        if is_counter or ID_WORDS & set(words(column.name)):
            return "different in every row: an identifier"
        return None
    if column.mean_length >= LONG_TEXT:
        return TextFeature(kind="text")
    return "different in almost every row: an identifier or a name"


def _text(column: Column) -> Decision:
    if column.type != "string":
        return None
    if column.num_distinct > VOCABULARY or column.has_many:
        if column.mean_length >= LONG_TEXT:
            return TextFeature(kind="text")
        return CategoricalFeature(kind="categorical", hash_buckets=_buckets(column))
    if column.mean_length >= 2 * LONG_TEXT and column.distinct_share > 0.5:
        return TextFeature(kind="text")
    return CategoricalFeature(kind="categorical")


def _buckets(column: Column) -> int:
    """Return a power of two near half the number of values: rare ones may collide."""
    return 8192 if column.has_many else 1 << (column.num_distinct // 2).bit_length()


def _cyclic(column: Column) -> Decision:
    if column.type != "int" or column.min < 0 or column.num_distinct <= 2:
        return None
    said = words(column.name)
    endings = {"".join(said[index:]) for index in range(len(said))}
    periods = {**PERIODS, "day": 7 if column.max <= 7 else 31}
    for word, period in periods.items():
        if word in endings and column.max <= period:
            return CyclicFeature(kind="cyclic", dtype="int", period=period)
    return None


def _code(column: Column) -> Decision:
    if column.type != "int":
        return None
    is_code = words(column.name)[-1:] in CODE_WORDS
    if column.num_distinct <= FEW or (is_code and column.num_distinct <= VOCABULARY):
        return CategoricalFeature(kind="categorical", dtype="int")
    if is_code:
        return CategoricalFeature(
            kind="categorical", dtype="int", hash_buckets=_buckets(column)
        )
    return None


def _place(column: Column) -> Decision:
    said = set(words(column.name))
    is_latitude = said & LATITUDE_WORDS and -90 <= column.min <= column.max <= 90
    is_longitude = said & LONGITUDE_WORDS and -180 <= column.min <= column.max <= 180
    if column.type == "float" and (is_latitude or is_longitude):
        return BucketizedFeature(kind="bucketized", num_buckets=10)
    return None


def _number(column: Column) -> Decision:
    # A tail of large values: most others would end up in one spot.
    has_tail = column.min >= 0 and column.max > 20 * column.mean
    return NumericFeature(
        kind="numeric",
        dtype="int" if column.type == "int" else "float",
        scale="log" if has_tail else "z_score",
        missing_indicator=column.missing_share >= INDICATOR_SHARE,
    )


_RULES: tuple[Callable[[Column], Decision], ...] = (
    _empty,
    _constant,
    _time,
    _identifier,
    _text,
    _cyclic,
    _code,
    _place,
    _number,
)
