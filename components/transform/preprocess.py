"""The Transform graph that the feature table describes, as a `preprocessing_fn`."""

from collections.abc import Mapping
from functools import cached_property, singledispatch
from math import pi
from typing import TypeAlias

import tensorflow as tf
import tensorflow_transform as tft

from components.features import (
    TABLE_KEY,
    BucketizedFeature,
    CategoricalFeature,
    CrossedFeature,
    CyclicFeature,
    FeatureTable,
    Label,
    NumericFeature,
    TextFeature,
)

Column: TypeAlias = "tf.Tensor | tf.SparseTensor"
Outputs = dict[str, tf.Tensor]

DEFAULT_TOP_K = 1000
DEFAULT_NUM_BUCKETS = 10
# A value that text in a file will hardly hold: missing is a category of its own.
MISSING_TOKEN = "\x00missing"  # noqa: S105
LABEL_VOCABULARY = "label_classes"


def preprocessing_fn(
    inputs: Mapping[str, Column], custom_config: Mapping[str, str]
) -> Outputs:
    """Turn raw columns into model inputs, `[batch, 1]` float32 or int64 each.

    Args:
        inputs: Raw columns; sparse with at most one value a row where missing
            values can occur.
        custom_config: The `FeatureTable` as JSON under `feature_table`.
    """
    table = FeatureTable.model_validate_json(custom_config[TABLE_KEY])
    outputs: Outputs = {}
    for name, column, feature in table.by_column():
        outputs |= encode(feature, name, inputs[column])
    for name, cross in table.crosses():
        outputs[name] = _cross(cross, table, inputs, outputs)
    outputs[table.label_key] = _label(table.label, inputs[table.label.column])
    if table.weight is not None and table.weight_key is not None:
        outputs[table.weight_key] = _filled(inputs[table.weight], 1.0)
    return outputs


@singledispatch
def encode(feature: object, name: str, column: Column) -> Outputs:
    """Return the model inputs of one feature, by name."""
    raise TypeError(f"no encoding for {type(feature).__name__}")


@encode.register
def _numeric(feature: NumericFeature, name: str, column: Column) -> Outputs:
    present = _present(column)
    # NaN and inf would turn every statistic below into NaN: they count as missing.
    values = tf.where(present, _filled(column, 0.0), tf.zeros_like(present, tf.float32))
    scaled = _scale(feature, values, present)
    outputs = {name: scaled}
    if feature.missing_indicator:
        outputs[f"{name}_missing"] = tf.cast(~present, tf.float32)
    return outputs


def _scale(feature: NumericFeature, values: tf.Tensor, present: tf.Tensor) -> tf.Tensor:
    if feature.scale == "log":
        values = tf.sign(values) * tf.math.log1p(tf.abs(values))
    stats = _Statistics(values, present)
    filled = tf.where(present, values, tf.fill(tf.shape(values), stats.fill(feature)))
    match feature.scale:
        case "none":
            return filled
        case "min_max":
            return tf.math.divide_no_nan(filled - stats.min, stats.max - stats.min)
        case _:
            return tf.math.divide_no_nan(filled - stats.mean, tf.sqrt(stats.variance))


class _Statistics:
    """Statistics of one column's present values over the train split.

    Each analyzer costs a second of fixed work: only those asked for are made.
    """

    def __init__(self, values: tf.Tensor, present: tf.Tensor) -> None:
        self._values = values
        self._present = present

    @cached_property
    def _moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        # One analyzer for count, sum and sum of squares, in float64: the variance is
        # a small difference of large numbers.
        known = tf.where(self._present, self._values, tf.zeros_like(self._values))
        known = tf.cast(known, tf.float64)
        number = tf.cast(self._present, tf.float64)
        columns = tf.concat([number, known, tf.square(known)], axis=1)
        count, total, squares = tf.unstack(
            tft.sum(columns, reduce_instance_dims=False), num=3
        )
        mean = tf.math.divide_no_nan(total, count)
        variance = tf.math.divide_no_nan(squares, count) - tf.square(mean)
        return mean, tf.maximum(variance, tf.zeros_like(variance))

    @property
    def mean(self) -> tf.Tensor:
        """Scalar float32."""
        return tf.cast(self._moments[0], tf.float32)

    @property
    def variance(self) -> tf.Tensor:
        """Scalar float32, not negative."""
        return tf.cast(self._moments[1], tf.float32)

    @cached_property
    def min(self) -> tf.Tensor:
        """Scalar float32."""
        return tft.min(tf.where(self._present, self._values, self._values.dtype.max))

    @cached_property
    def max(self) -> tf.Tensor:
        """Scalar float32."""
        return tft.max(tf.where(self._present, self._values, self._values.dtype.min))

    def fill(self, feature: NumericFeature) -> tf.Tensor:
        """Return the scalar that stands for a missing value."""
        match feature.missing:
            case "mean":
                return self.mean
            case "min":
                return self.min
            case "max":
                return self.max
            case float(number):
                fill = tf.constant(number, tf.float32)
                if feature.scale == "log":
                    fill = tf.sign(fill) * tf.math.log1p(tf.abs(fill))
                return fill
            case other:
                raise TypeError(f"no fill for {other!r}")


@encode.register
def _bucketized(feature: BucketizedFeature, name: str, column: Column) -> Outputs:
    present = _present(column)
    values = tf.where(present, _filled(column, 0.0), tf.zeros_like(present, tf.float32))
    if feature.boundaries is not None:
        boundaries = tf.constant([feature.boundaries], tf.float32)
    else:
        boundaries = tft.quantiles(
            tf.boolean_mask(values, present),
            num_buckets=feature.num_buckets or DEFAULT_NUM_BUCKETS,
            epsilon=0.01,
        )
    buckets = tft.apply_buckets(values, boundaries)
    missing = tf.cast(tf.shape(boundaries)[-1] + 1, tf.int64)
    return {name: tf.where(present, buckets, tf.fill(tf.shape(buckets), missing))}


@encode.register
def _categorical(feature: CategoricalFeature, name: str, column: Column) -> Outputs:
    tokens = _tokens(feature, column)
    if feature.hash_buckets is not None:
        return {name: tft.hash_strings(tokens, feature.hash_buckets)}
    return {
        name: tft.compute_and_apply_vocabulary(
            tokens,
            top_k=feature.top_k or DEFAULT_TOP_K,
            num_oov_buckets=1,
            vocab_filename=vocabulary_name(name),
        )
    }


@encode.register
def _cyclic(feature: CyclicFeature, name: str, column: Column) -> Outputs:
    present = _present(column)
    angle = _filled(column, 0.0) * (2 * pi / feature.period)
    zero = tf.zeros_like(angle)
    return {
        f"{name}_sin": tf.where(present, tf.sin(angle), zero),
        f"{name}_cos": tf.where(present, tf.cos(angle), zero),
    }


@encode.register
def _text(feature: TextFeature, name: str, column: Column) -> Outputs:
    if feature.encode == "none":
        return {}
    length = tf.strings.length(_filled(column, ""), unit="UTF8_CHAR")
    return {name: tft.scale_to_z_score(tf.math.log1p(tf.cast(length, tf.float32)))}


def vocabulary_name(feature: str) -> str:
    """Return the name under which the feature's vocabulary is kept."""
    return f"vocabulary_{feature}"


def _cross(
    cross: CrossedFeature,
    table: FeatureTable,
    inputs: Mapping[str, Column],
    outputs: Outputs,
) -> tf.Tensor:
    parts = []
    for name in cross.of:
        feature = table.features[name]
        match feature:
            case CategoricalFeature():
                parts.append(_tokens(feature, inputs[feature.column or name]))
            case BucketizedFeature():
                parts.append(tf.strings.as_string(outputs[name]))
            case _:
                raise TypeError(f"{name}: a {feature.kind} feature cannot be crossed")
    joined = tf.strings.join(parts, separator="\x1f")
    return tft.hash_strings(joined, cross.hash_buckets)


def _label(label: Label, column: Column) -> tf.Tensor:
    if label.kind == "regression":
        return _filled(column, 0.0)
    if label.kind == "multiclass":
        return tft.compute_and_apply_vocabulary(
            _as_strings(column), vocab_filename=LABEL_VOCABULARY, num_oov_buckets=0
        )
    positive = "1" if label.positive is None else str(label.positive)
    return tf.cast(tf.equal(_as_strings(column), positive), tf.int64)


def _tokens(feature: CategoricalFeature, column: Column) -> tf.Tensor:
    tokens = _as_strings(column)
    stand_in = MISSING_TOKEN if feature.missing is None else feature.missing
    return tf.where(tf.equal(tokens, ""), stand_in, tokens)


def _as_strings(column: Column) -> tf.Tensor:
    """Return `[batch, 1] string`, `''` where missing."""
    if isinstance(column, tf.SparseTensor) and column.dtype != tf.string:
        column = tf.SparseTensor(
            column.indices, _float_text(column.values), column.dense_shape
        )
    elif column.dtype != tf.string:
        column = _float_text(column)
    return _filled(column, "")


def _float_text(values: tf.Tensor) -> tf.Tensor:
    if values.dtype.is_floating:
        return tf.strings.as_string(values, shortest=True)
    return tf.strings.as_string(values)


def _filled(column: Column, default: str | float) -> tf.Tensor:
    """Return `[batch, 1]`, text or float32, `default` where missing."""
    if isinstance(column, tf.SparseTensor):
        if column.dtype != tf.string:
            column = tf.cast(column, tf.float32)
        column = tf.sparse.to_dense(
            tf.SparseTensor(column.indices, column.values, [column.dense_shape[0], 1]),
            default_value=default,
        )
    elif column.dtype != tf.string:
        column = tf.cast(column, tf.float32)
    return tf.reshape(column, [-1, 1])


def _present(column: Column) -> tf.Tensor:
    """Return `[batch, 1] bool`: there, and a finite number."""
    return tf.math.is_finite(_filled(column, float("nan")))
