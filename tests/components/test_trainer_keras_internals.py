"""What we take of Keras' insides does what Keras does in public."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import optimizers

from components.trainer.keras_internals import (
    PureOptimizer,
    can_join,
    compiled_loss,
    compiled_metrics,
    inner_optimizer,
    overrides_training,
)

SHAPES = ((3, 4), (4,), (4, 2), (2,), ())
STEPS = 6
SCHEDULE = optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)
BY_ELEMENT: dict[str, Callable[[], Any]] = {
    "Adadelta": lambda: optimizers.Adadelta(0.1),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "Adam": lambda: optimizers.Adam(0.05),
    "Adam with amsgrad": lambda: optimizers.Adam(0.05, amsgrad=True),
    "Adam with a schedule": lambda: optimizers.Adam(SCHEDULE),
    "Adamax": lambda: optimizers.Adamax(0.05),
    "AdamW": lambda: optimizers.AdamW(0.05, weight_decay=0.1),
    "Ftrl": lambda: optimizers.Ftrl(0.05),
    "Lion": lambda: optimizers.Lion(0.05),
    "Nadam": lambda: optimizers.Nadam(0.05),
    "RMSprop": lambda: optimizers.RMSprop(0.05, centered=True, momentum=0.9),
    "SGD": lambda: optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "global_clipnorm": lambda: optimizers.Adam(0.05, global_clipnorm=0.5),
    "clipvalue": lambda: optimizers.SGD(0.05, clipvalue=0.1),
}
BY_VARIABLE: dict[str, Callable[[], Any]] = {
    "Adafactor": lambda: optimizers.Adafactor(0.05),
    "Lamb": lambda: optimizers.Lamb(0.05),
    "Muon": lambda: optimizers.Muon(0.05),
    "clipnorm": lambda: optimizers.Adam(0.05, clipnorm=0.5),
    "use_ema": lambda: optimizers.Adam(0.05, use_ema=True, ema_momentum=0.5),
}


def variables() -> list[keras.Variable]:
    random = np.random.default_rng(1)
    return [
        keras.Variable(random.normal(size=shape).astype("float32"), name=f"v{number}")
        for number, shape in enumerate(SHAPES)
    ]


def gradients() -> list[list[Any]]:
    random = np.random.default_rng(2)
    return [
        [tf.constant(random.normal(size=shape), tf.float32) for shape in SHAPES]
        for _ in range(STEPS)
    ]


def as_keras_does(optimizer: Any) -> tuple[list[np.ndarray], Any]:
    trained = variables()
    optimizer.build(trained)
    for step in gradients():
        optimizer.apply(step, trained)
    return [variable.numpy() for variable in trained], optimizer


def purely(
    optimizer: Any, *, may_join: bool
) -> tuple[list[np.ndarray], PureOptimizer, list[Any]]:
    trained = variables()
    pure = PureOptimizer(optimizer, trained, may_join=may_join)
    values = [tf.convert_to_tensor(v.value) for v in trained]
    own = [tf.convert_to_tensor(v.value) for v in pure.variables]
    apply = tf.function(pure.apply, autograph=False)
    for step in gradients():
        values, own = apply(own, step, values)
    return [value.numpy() for value in values], pure, own


@pytest.mark.parametrize("may_join", [False, True], ids=["apart", "joined"])
@pytest.mark.parametrize("name", [*BY_ELEMENT, *BY_VARIABLE])
def test_a_pure_optimizer_goes_where_keras_goes(name: str, may_join: bool) -> None:
    make = {**BY_ELEMENT, **BY_VARIABLE}[name]
    expected, _ = as_keras_does(make())
    found, pure, _ = purely(make(), may_join=may_join)
    assert pure.is_joined == (may_join and name in BY_ELEMENT)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_variables_that_are_excluded_from_weight_decay_stay_excluded() -> None:
    def make(trained: list[keras.Variable]) -> Any:
        optimizer = optimizers.AdamW(0.0, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_list=trained[:1])
        return optimizer

    trained = variables()
    pure = PureOptimizer(make(trained), trained)
    assert not pure.is_joined
    values = [tf.convert_to_tensor(v.value) for v in trained]
    own = [tf.convert_to_tensor(v.value) for v in pure.variables]
    pure._optimizer.learning_rate = 0.1
    own[1] = tf.constant(0.1)
    zeros = [tf.zeros_like(value) for value in values]
    after, _ = pure.apply(own, zeros, values)
    np.testing.assert_array_equal(after[0], values[0])
    assert not np.array_equal(after[1], values[1])


def test_the_averages_of_use_ema_are_there_to_be_exported() -> None:
    _, keras_own = as_keras_does(BY_VARIABLE["use_ema"]())
    _, pure, own = purely(BY_VARIABLE["use_ema"](), may_join=True)
    found = {v.path: value for v, value in zip(pure.variables, own, strict=True)}
    assert len(pure.averages) == len(SHAPES)
    for mine, theirs in zip(
        pure.averages, keras_own._model_variables_moving_average, strict=True
    ):
        np.testing.assert_allclose(found[mine.path], theirs.numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda: [keras.Variable(np.zeros(3, "float16"), dtype="float16")] * 2,
        lambda: [keras.Variable(np.zeros(3, "float32"))],
        lambda: [keras.Variable(np.zeros((1 << 11, 1 << 11), "float32"))] * 2,
    ],
    ids=["float16", "only one", "too large"],
)
def test_some_variables_are_not_joined(change: Callable[[], list[Any]]) -> None:
    assert not can_join(optimizers.Adam(), change())


def test_a_subclass_of_a_known_optimizer_is_not_joined() -> None:
    class Mine(optimizers.Adam):
        pass

    assert not can_join(Mine(), variables())


def small_model(**compiled: Any) -> keras.Model:
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(**compiled)
    return model


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        keras.losses.mean_squared_error,
        keras.losses.MeanSquaredError(),
        ["mse"],
        lambda y, p: keras.ops.mean(keras.ops.square(y - p), -1),
    ],
    ids=["name", "function", "object", "list", "own"],
)
def test_a_compiled_loss_is_an_object_whatever_it_was_given_as(loss: Any) -> None:
    spec = keras.KerasTensor((4, 1))
    found = compiled_loss(small_model(loss=loss), spec, spec)
    label, prediction = np.ones((4, 1), "float32"), np.zeros((4, 1), "float32")
    np.testing.assert_allclose(found.call(label, prediction), np.ones(4))


def test_keras_own_loss_scaling_is_taken_off() -> None:
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(0.1))
    assert isinstance(inner_optimizer(small_model(optimizer=optimizer)), optimizers.SGD)


def test_a_model_class_that_trains_in_its_own_way_is_found() -> None:
    class Mine(keras.Model):
        def train_step(self, data: Any) -> Any:
            return {}

    assert overrides_training(Mine()) == "train_step"
    assert overrides_training(small_model()) is None


def test_a_model_may_be_compiled_without_metrics() -> None:
    spec = keras.KerasTensor((4, 1))
    for plain in compiled_metrics(small_model(loss="mse"), spec, spec):
        assert plain.variables == []


def test_a_sequential_model_has_metrics_too() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=["mae"])
    spec = keras.KerasTensor((4, 1))
    plain, weighted = compiled_metrics(model, spec, spec)
    assert plain.variables
    assert not weighted.variables


def test_metric_objects_are_not_shared_between_two_counts() -> None:
    model = small_model(loss="mse", metrics=[keras.metrics.AUC(num_thresholds=7)])
    spec = keras.KerasTensor((4, 1))
    first, _ = compiled_metrics(model, spec, spec)
    second, _ = compiled_metrics(model, spec, spec)
    own = {id(variable) for variable in first.variables}
    assert own.isdisjoint(id(variable) for variable in second.variables)
    assert first.variables[0].shape == (7,)


def test_a_loss_scale_of_the_optimizer_does_not_shrink_gradients() -> None:
    plain, _, _ = purely(optimizers.SGD(0.1), may_join=True)
    scaled, _, _ = purely(optimizers.SGD(0.1, loss_scale_factor=128.0), may_join=True)
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_array_equal(a, b)
