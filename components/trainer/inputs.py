"""What the model function is handed: the inputs that Transform makes, described."""

from dataclasses import dataclass
from typing import Literal

import tensorflow_transform as tft

from components.errors import ModelError
from components.features import (
    BucketizedFeature,
    CategoricalFeature,
    CrossedFeature,
    FeatureTable,
    transformed_names,
)
from components.trainer.config import TrainerSettings
from components.transform.preprocess import (
    DEFAULT_NUM_BUCKETS,
    LABEL_VOCABULARY,
    vocabulary_name,
)


@dataclass(frozen=True)
class Input:
    """One model input, `[batch, 1]`."""

    name: str
    dtype: Literal["float32", "int64"]
    cardinality: int | None = None
    """For int64 ids: they lie in `[0, cardinality)`."""


@dataclass(frozen=True)
class ModelInputs:
    """The argument of every `build_model` function."""

    inputs: tuple[Input, ...]
    """Inputs in the order of the feature table."""
    label_kind: Literal["binary", "multiclass", "regression"]
    """What the model predicts."""
    num_outputs: int
    """Width of the model's output: the number of classes, else 1."""
    settings: TrainerSettings
    """The `trainer` section of the settings."""


def describe_inputs(
    table: FeatureTable, transform: tft.TFTransformOutput, settings: TrainerSettings
) -> ModelInputs:
    """Describe what Transform's output holds for each feature of the table.

    Raises:
        ModelError: The user's preprocessing_fn leaves the label or the weight out.
    """
    absent = table.own_keys() - set(transform.transformed_feature_spec())
    if absent:
        raise ModelError(
            "transform.preprocessing_fn does not return "
            f"{', '.join(sorted(absent))}, which training needs; "
            f"components.transform.preprocess.preprocessing_fn shows how"
        )
    inputs: list[Input] = []
    if is_own_transform(table, transform):
        inputs = _from_spec(table, transform)
    else:
        for name, feature in table.features.items():
            cardinality = _cardinality(name, feature, transform)
            dtype: Literal["float32", "int64"] = "int64" if cardinality else "float32"
            inputs += [
                Input(key, dtype, cardinality)
                for key in transformed_names(name, feature)
            ]
    classes = 1
    if table.label.kind == "multiclass":
        classes = transform.vocabulary_size_by_name(LABEL_VOCABULARY)
    return ModelInputs(tuple(inputs), table.label.kind, classes, settings)


def is_own_transform(table: FeatureTable, transform: tft.TFTransformOutput) -> bool:
    """Tell whether the graph's outputs are other than the table's own."""
    expected = {
        key
        for name, feature in table.features.items()
        for key in transformed_names(name, feature)
    }
    return set(transform.transformed_feature_spec()) != expected | table.own_keys()


def _from_spec(table: FeatureTable, transform: tft.TFTransformOutput) -> list[Input]:
    return [
        Input(name, "float32" if spec.dtype.is_floating else "int64")
        for name, spec in sorted(transform.transformed_feature_spec().items())
        if name not in table.own_keys()
    ]


def _cardinality(
    name: str, feature: object, transform: tft.TFTransformOutput
) -> int | None:
    match feature:
        case CategoricalFeature(hash_buckets=int(buckets)):
            return buckets
        case CategoricalFeature():
            known: int = transform.vocabulary_size_by_name(vocabulary_name(name))
            unknown = 1
            return known + unknown
        case CrossedFeature():
            return feature.hash_buckets
        case BucketizedFeature():
            if feature.boundaries is not None:
                buckets = len(feature.boundaries) + 1
            else:
                buckets = feature.num_buckets or DEFAULT_NUM_BUCKETS
            missing = 1
            return buckets + missing
        case _:
            return None
