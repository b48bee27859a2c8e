"""Parts of a loss add up to what Keras itself says of the whole batch."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from components.errors import ModelError
from components.trainer.objective import REDUCTIONS, Objective

BATCH, REAL = 12, 10
"""Examples of a batch, and how many of them do not only fill up."""
MASK = (np.arange(BATCH) < REAL).astype(np.float32)


class EachOutput(keras.losses.Loss):
    """Gives a value for each output of each example, as a user's own may."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.square(keras.ops.cast(y_true, "float32") - y_pred)


class Total(keras.losses.Loss):
    """Gives one value for all examples, as a user's own should not."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.sum(y_pred)


LOSSES: dict[str, tuple[Callable[..., keras.Loss], int, int]] = {
    "binary": (
        lambda **r: keras.losses.BinaryCrossentropy(from_logits=True, **r),
        1,
        1,
    ),
    "classes": (
        lambda **r: keras.losses.SparseCategoricalCrossentropy(from_logits=True, **r),
        1,
        3,
    ),
    "squares": (keras.losses.MeanSquaredError, 1, 1),
    "squares of several": (keras.losses.MeanSquaredError, 4, 4),
    "each output": (EachOutput, 4, 4),
}


def batch(labels: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    label = random.integers(0, 2, (BATCH, labels)).astype(np.int64)
    return label, random.normal(size=(BATCH, outputs)).astype(np.float32)


def weights(kind: str) -> np.ndarray:
    given = np.random.default_rng(6).uniform(0.0, 3.0, BATCH).astype(np.float32)
    given[1] = 0.0
    return MASK * (given if kind == "weighted" else np.float32(1.0))


def added_up(
    loss: keras.Loss,
    parts: int,
    label: np.ndarray,
    prediction: np.ndarray,
    weight: np.ndarray,
) -> float:
    size = BATCH // parts
    objective = Objective(loss, size, parts)
    numerator = denominator = 0.0
    for begin in range(0, BATCH, size):
        part = objective.part(
            *(
                tf.constant(values[begin : begin + size])
                for values in (label, prediction, weight, MASK)
            )
        )
        assert [value.shape.rank for value in part] == [0, 0]
        assert [value.dtype for value in part] == [tf.float32, tf.float32]
        numerator += float(part[0])
        denominator += float(part[1])
    return numerator / denominator


@pytest.mark.parametrize("parts", [1, 3, 12])
@pytest.mark.parametrize("weighing", ["plain", "weighted"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_parts_add_up_to_keras_own_loss_of_the_real_examples(
    name: str, reduction: str, weighing: str, parts: int
) -> None:
    make, labels, outputs = LOSSES[name]
    loss = make(reduction=reduction)
    label, prediction = batch(labels, outputs)
    weight = weights(weighing)
    weigh = weight[:REAL]
    if name == "each output":  # Keras wants a weight for each value that it reduces
        weigh = np.repeat(weigh[:, None], outputs, axis=1)
    expected = loss(label[:REAL], prediction[:REAL], sample_weight=weigh)
    assert added_up(loss, parts, label, prediction, weight) == pytest.approx(
        float(expected), rel=1e-5
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_only_fill_up_may_hold_anything(value: float) -> None:
    label, prediction = batch(1, 1)
    loss = keras.losses.MeanSquaredError()
    clean = added_up(loss, 3, label, prediction, weights("weighted"))
    prediction[REAL:] = value
    assert added_up(loss, 3, label, prediction, weights("weighted")) == clean


def test_a_real_row_that_is_not_finite_makes_the_loss_so() -> None:
    label, prediction = batch(1, 1)
    prediction[0] = np.nan
    loss = keras.losses.MeanSquaredError()
    assert np.isnan(added_up(loss, 3, label, prediction, weights("plain")))


def test_a_part_that_is_all_filled_up_adds_nothing() -> None:
    label, prediction = batch(1, 1)
    objective = Objective(keras.losses.MeanSquaredError(), BATCH, 1)
    zeros = tf.zeros([BATCH])
    part = objective.part(tf.constant(label), tf.constant(prediction), zeros, zeros)
    assert [float(value) for value in part] == [0.0, 0.0]


@pytest.mark.parametrize("reduction", ["none", None])
def test_a_loss_that_is_not_reduced_is_refused(reduction: str | None) -> None:
    with pytest.raises(ModelError) as error:
        Objective(keras.losses.MeanSquaredError(reduction=reduction), 4, 1)
    assert str(error.value) == (
        f"trainer.model: loss mean_squared_error has reduction {reduction!r}, allowed: "
        "mean, mean_with_sample_weight, sum, sum_over_batch_size"
    )


def test_a_loss_of_all_examples_at_once_is_refused() -> None:
    label, prediction = batch(1, 1)
    with pytest.raises(ModelError) as error:
        added_up(Total(name="total"), 3, label, prediction, weights("plain"))
    assert str(error.value) == (
        "trainer.model: loss total returns shape (), allowed: one value for each of "
        "the 4 examples"
    )
