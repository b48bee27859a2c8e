"""Settings of the Evaluator: metrics, slices and the thresholds that bless."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from serving.settings import Settings

Metric = Literal[
    "auc",
    "auc_precision_recall",
    "binary_accuracy",
    "precision",
    "recall",
    "binary_crossentropy",
    "calibration",
    "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy",
    "mean_absolute_error",
    "mean_squared_error",
    "root_mean_squared_error",
]
METRICS_FOR: Mapping[str, tuple[Metric, ...]] = {
    "binary": (
        "auc",
        "auc_precision_recall",
        "binary_accuracy",
        "precision",
        "recall",
        "binary_crossentropy",
        "calibration",
    ),
    "multiclass": ("sparse_categorical_accuracy", "sparse_categorical_crossentropy"),
    "regression": (
        "mean_absolute_error",
        "mean_squared_error",
        "root_mean_squared_error",
    ),
}
"""Metrics that fit a label, by its kind."""


class Threshold(Settings):
    """What one metric must reach for the model to be blessed."""

    min: float | None = None
    """Lowest allowed value."""
    max: float | None = None
    """Highest allowed value."""
    max_drop: Annotated[float, Field(ge=0)] | None = None
    """How much lower than the blessed baseline the value may be (absolute)."""
    max_rise: Annotated[float, Field(ge=0)] | None = None
    """How much higher than the blessed baseline the value may be (absolute)."""
    every_slice: bool = False
    """Hold each slice to it, not only the whole split."""

    @model_validator(mode="after")
    def _says_something(self) -> "Threshold":
        bounds = (self.min, self.max, self.max_drop, self.max_rise)
        if all(bound is None for bound in bounds):
            raise ValueError("set at least one of min, max, max_drop, max_rise")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is above max {self.max}")
        if self.max_drop is not None and self.max_rise is not None:
            raise ValueError("give max_drop or max_rise, not both")
        return self


class EvaluatorSettings(Settings):
    """How a candidate model is judged."""

    metrics: tuple[Metric, ...] = ()
    """Metrics besides those with a threshold; chosen by the label when empty."""
    slices: tuple[str | tuple[str, ...], ...] = ()
    """Columns to slice by: `origin`, or `[origin, carrier]` for combinations."""
    thresholds: dict[Metric, Threshold] = {}
    """What must hold for the model to be blessed, by metric."""
    min_slice_examples: Annotated[int, Field(ge=1)] = 100
    """Slices with fewer examples are left out: their metrics are mostly noise."""
    batch_size: Annotated[int, Field(ge=1)] = 2048
    """Examples for each call of the model."""
