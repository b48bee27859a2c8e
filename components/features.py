"""The feature table: what each column means, from the file to the model.

One table drives ExampleGen's types, the Transform graph, the built-in model and
the serving signatures. This module only says what the table is; reading it needs
neither TensorFlow nor TFX.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from serving.client.names import tensor_name
from serving.settings import Settings

TABLE_KEY = "feature_table"
"""Name under which the table travels to Transform, Trainer and Evaluator."""

Dtype = Literal["float", "int", "string"]
NumericDtype = Literal["float", "int"]


class NumericFeature(Settings):
    """A number, scaled; one float32 `[batch, 1]` input of the model."""

    kind: Literal["numeric"]
    column: str | None = None
    """Column in the data; the feature's own name when left out."""
    dtype: NumericDtype = "float"
    """Type in the data: `float` is float32, `int` is int64."""
    scale: Literal["z_score", "min_max", "log", "none"] = "z_score"
    """How values are scaled: `log` is sign(x)·ln(1+|x|), then z-score."""
    missing: Literal["mean", "min", "max"] | float = "mean"
    """What a missing value becomes: a statistic of the train split, or a number."""
    missing_indicator: bool = False
    """Add a 0/1 input `<name>_missing` that says where the value was missing."""


class BucketizedFeature(Settings):
    """A number cut into ranges; one integer id. Missing is a bucket of its own."""

    kind: Literal["bucketized"]
    column: str | None = None
    """Column in the data; the feature's own name when left out."""
    dtype: NumericDtype = "float"
    """Type in the data: `float` is float32, `int` is int64."""
    num_buckets: Annotated[int, Field(ge=2)] | None = None
    """Number of buckets, cut at quantiles of the train split (10 by default)."""
    boundaries: tuple[float, ...] | None = None
    """Ascending cut points, instead of `num_buckets`."""

    @model_validator(mode="after")
    def _one_way_to_cut(self) -> "BucketizedFeature":
        if self.num_buckets is not None and self.boundaries is not None:
            raise ValueError("give num_buckets or boundaries, not both")
        if self.boundaries is not None and (
            not self.boundaries or list(self.boundaries) != sorted(set(self.boundaries))
        ):
            raise ValueError("boundaries must be ascending, at least one")
        return self


class CategoricalFeature(Settings):
    """One of many values; one integer id by vocabulary or by hash."""

    kind: Literal["categorical"]
    column: str | None = None
    """Column in the data; the feature's own name when left out."""
    dtype: Literal["string", "int"] = "string"
    """Type in the data: `string` is bytes, `int` is int64."""
    top_k: Annotated[int, Field(ge=1)] | None = None
    """Keep this many most frequent values of the train split (1,000 by default)."""
    hash_buckets: Annotated[int, Field(ge=2)] | None = None
    """Hash into this many buckets instead of keeping a vocabulary."""
    missing: str | None = None
    """The value that a missing cell stands for; a value of its own by default."""

    @model_validator(mode="after")
    def _one_way_to_encode(self) -> "CategoricalFeature":
        if self.top_k is not None and self.hash_buckets is not None:
            raise ValueError("give top_k (vocabulary) or hash_buckets, not both")
        return self


class CrossedFeature(Settings):
    """The combination of categorical or bucketized features, hashed to one id."""

    kind: Literal["crossed"]
    of: Annotated[tuple[str, ...], Field(min_length=2)]
    """Names of the categorical or bucketized features to combine."""
    hash_buckets: Annotated[int, Field(ge=2)] = 1000
    """Number of ids that the combinations are hashed into."""


class CyclicFeature(Settings):
    """A number that comes round again (hour, weekday); sine and cosine inputs."""

    kind: Literal["cyclic"]
    column: str | None = None
    """Column in the data; the feature's own name when left out."""
    dtype: NumericDtype = "float"
    """Type in the data: `float` is float32, `int` is int64."""
    period: Annotated[float, Field(gt=0)]
    """After how much the value means the same again: 24 for hours of a day."""


class TextFeature(Settings):
    """Free text: its length in characters as an input, or nothing at all."""

    kind: Literal["text"]
    column: str | None = None
    """Column in the data; the feature's own name when left out."""
    encode: Literal["length", "none"] = "length"
    """`none` carries the text through the data steps but not into the model."""


ColumnFeature = (
    NumericFeature
    | BucketizedFeature
    | CategoricalFeature
    | CyclicFeature
    | TextFeature
)
Feature = Annotated[ColumnFeature | CrossedFeature, Field(discriminator="kind")]


class Label(Settings):
    """What the model learns to predict."""

    column: str
    """Column in the data."""
    kind: Literal["binary", "multiclass", "regression"]
    """What is predicted: one of two classes, one of many, or a number."""
    dtype: Dtype | None = None
    """Type in the data; `int` for binary, `string` for multiclass, else `float`."""
    positive: str | int | None = None
    """Binary only: the value that counts as 1 (by default the number 1)."""
    missing: Literal["error", "drop"] = "error"
    """What to do with rows whose label is empty: stop, or leave them out."""

    @model_validator(mode="after")
    def _positive_fits(self) -> "Label":
        if self.positive is not None and self.kind != "binary":
            raise ValueError("positive is for a binary label only")
        return self

    @property
    def data_dtype(self) -> Dtype:
        """The type of the label's column in the data."""
        if self.dtype is not None:
            return self.dtype
        if self.kind == "binary":
            return "string" if isinstance(self.positive, str) else "int"
        return "string" if self.kind == "multiclass" else "float"


class FeatureTable(Settings):
    """Features, label and weight together, checked against each other."""

    features: dict[str, Feature]
    label: Label
    weight: str | None = None
    """Column with a non-negative weight for each row."""

    @model_validator(mode="after")
    def _consistent(self) -> "FeatureTable":
        _check_names(self)
        _check_columns(self)
        _check_crosses(self.features)
        _check_model_inputs(self)
        return self

    def own_keys(self) -> set[str]:
        """Return the names of label and weight among Transform's outputs."""
        return {self.label_key} | ({self.weight_key} if self.weight_key else set())

    @property
    def label_key(self) -> str:
        """Name of the label among Transform's outputs."""
        return f"{self.label.column}__label"

    @property
    def weight_key(self) -> str | None:
        """Name of the weight among Transform's outputs."""
        return None if self.weight is None else f"{self.weight}__weight"

    def by_column(self) -> Iterator[tuple[str, str, ColumnFeature]]:
        """Yield `(feature name, column, feature)` for features read from data."""
        for name, feature in self.features.items():
            if not isinstance(feature, CrossedFeature):
                yield name, feature.column or name, feature

    def crosses(self) -> Iterator[tuple[str, CrossedFeature]]:
        """Yield `(feature name, feature)` for features made from others."""
        for name, feature in self.features.items():
            if isinstance(feature, CrossedFeature):
                yield name, feature

    def column_dtypes(self) -> dict[str, Dtype]:
        """Map each column that the model needs, label and weight too, to its type."""
        dtypes: dict[str, Dtype] = {
            column: feature_dtype(feature) for _, column, feature in self.by_column()
        }
        dtypes[self.label.column] = self.label.data_dtype
        if self.weight is not None:
            dtypes[self.weight] = "float"
        return dtypes

    def input_columns(self) -> dict[str, Dtype]:
        """Map each column that a served request carries to its type."""
        dtypes = self.column_dtypes()
        for column in (self.label.column, self.weight):
            if column is not None:
                dtypes.pop(column, None)
        return dtypes


def feature_dtype(feature: ColumnFeature) -> Dtype:
    """Return the type that the feature's column has in the data."""
    return "string" if isinstance(feature, TextFeature) else feature.dtype


def _check_names(table: FeatureTable) -> None:
    for name in table.features:
        if tensor_name(name) != name:
            raise ValueError(
                f"{name}: a feature's name is a letter and then letters, digits or "
                f"underscores; call it {tensor_name(name)} and set column: {name}"
            )
    seen: dict[str, str] = {}
    for name, column, _ in table.by_column():
        other = seen.setdefault(tensor_name(column), column)
        if other != column:
            raise ValueError(
                f"{name}: columns {other!r} and {column!r} would both be called "
                f"{tensor_name(column)!r} when served; rename one in the data"
            )


def _check_columns(table: FeatureTable) -> None:
    seen: dict[str, tuple[str, Dtype]] = {}
    for name, column, feature in table.by_column():
        dtype = feature_dtype(feature)
        if column == table.label.column:
            raise ValueError(
                f"{name}: column {column!r} is the label, it cannot be a feature"
            )
        if column == table.weight:
            raise ValueError(
                f"{name}: column {column!r} is the weight, it cannot be a feature"
            )
        other, other_dtype = seen.setdefault(column, (name, dtype))
        if other_dtype != dtype:
            raise ValueError(
                f"{name}: reads column {column!r} as {dtype}, but {other} reads it as "
                f"{other_dtype}; one column has one dtype"
            )
    if not seen:
        raise ValueError("no feature reads a column")


def _check_crosses(features: Mapping[str, ColumnFeature | CrossedFeature]) -> None:
    for name, feature in features.items():
        if not isinstance(feature, CrossedFeature):
            continue
        for part in feature.of:
            if part not in features:
                raise ValueError(
                    f"{name}: crosses {part!r}, which is not a feature; "
                    f"features: {', '.join(features)}"
                )
            if not isinstance(features[part], CategoricalFeature | BucketizedFeature):
                raise ValueError(
                    f"{name}: crosses {part!r}, which is {features[part].kind}; "
                    "only categorical and bucketized features can be crossed"
                )


def _check_model_inputs(table: FeatureTable) -> None:
    owners = {table.label_key: "the label"}
    if table.weight_key is not None:
        owners[table.weight_key] = "the weight"
    for name, feature in table.features.items():
        for key in transformed_names(name, feature):
            if key in owners:
                raise ValueError(
                    f"{name}: its model input {key!r} is also that of {owners[key]}"
                )
            owners[key] = name


def transformed_names(
    name: str, feature: ColumnFeature | CrossedFeature
) -> tuple[str, ...]:
    """Return the names under which Transform hands the feature to the model."""
    match feature:
        case NumericFeature(missing_indicator=True):
            return (name, f"{name}_missing")
        case CyclicFeature():
            return (f"{name}_sin", f"{name}_cos")
        case TextFeature(encode="none"):
            return ()
        case _:
            return (name,)
