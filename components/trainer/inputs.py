"""What the model function is handed: the inputs that Transform makes, described."""

from dataclasses import dataclass, replace
from typing import Literal

import tensorflow_transform as tft

from components.errors import ModelError
from components.features import (
    BucketizedFeature,
    CategoricalFeature,
    ColumnFeature,
    CrossedFeature,
    FeatureTable,
    transformed_names,
)
from components.trainer.config import TrainerSettings
from components.trainer.split import Split
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
    label_mean: float = 0.0
    """Mean of the label in the train split; for a regression's output layer."""
    label_std: float = 1.0
    """Standard deviation of the label there; 1 where all are equal."""


def describe_inputs(
    table: FeatureTable,
    transform: tft.TFTransformOutput,
    settings: TrainerSettings,
    train: Split | None = None,
) -> ModelInputs:
    """Describe what Transform's output holds for each feature of the table.

    Args:
        table: The feature table.
        transform: What Transform wrote.
        settings: The `trainer` section of the settings.
        train: The train split, for how a regression's label is spread.

    Raises:
        ModelError: The user's preprocessing_fn leaves the label or the weight out.
    """
    spec = transform.transformed_feature_spec()
    absent = table.own_keys() - spec.keys()
    if absent:
        raise ModelError(
            "transform.preprocessing_fn does not return "
            f"{', '.join(sorted(absent))}, which training needs; "
            f"components.transform.preprocess.preprocessing_fn shows how"
        )
    made_from = {
        key: (name, feature)
        for name, feature in table.features.items()
        for key in transformed_names(name, feature)
        if key in spec
    }
    # The table's own first, in its order; then what the user's function adds.
    others = sorted(spec.keys() - made_from.keys() - table.own_keys())
    inputs = [
        _describe(key, spec[key].dtype.is_floating, made_from.get(key), transform)
        for key in (*made_from, *others)
    ]
    classes = 1
    if table.label.kind == "multiclass":
        classes = transform.vocabulary_size_by_name(LABEL_VOCABULARY)
    described = ModelInputs(tuple(inputs), table.label.kind, classes, settings)
    if train is None or table.label.kind != "regression":
        return described
    return replace(
        described, label_mean=train.label_mean, label_std=train.label_std or 1.0
    )


def _describe(
    key: str,
    is_float: bool,
    made_from: tuple[str, ColumnFeature | CrossedFeature] | None,
    transform: tft.TFTransformOutput,
) -> Input:
    if is_float:
        return Input(key, "float32")
    cardinality = None if made_from is None else _cardinality(*made_from, transform)
    return Input(key, "int64", cardinality)


def _cardinality(
    name: str, feature: object, transform: tft.TFTransformOutput
) -> int | None:
    match feature:
        case CategoricalFeature(hash_buckets=int(buckets)):
            return buckets
        case CategoricalFeature():
            if transform.vocabulary_file_by_name(vocabulary_name(name)) is None:
                return None  # ids that the user's function makes in its own way
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
