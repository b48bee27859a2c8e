"""Builds the model of a project, and refuses what could not be trained or served."""

import importlib
from collections.abc import Callable
from typing import Any

import keras

from components.errors import ModelError
from components.trainer import precision, wide_and_deep
from components.trainer.inputs import ModelInputs
from components.trainer.keras_internals import (
    assigned_weights,
    inner_optimizer,
    metric_names,
    overrides_training,
)

LOSSES = {
    "binary": "binary_crossentropy",
    "multiclass": "sparse_categorical_crossentropy",
    "regression": "mean_squared_error",
}
METRICS: dict[str, tuple[str, ...]] = {
    "binary": ("auc",),
    "multiclass": ("sparse_categorical_accuracy",),
    "regression": ("mean_absolute_error",),
}


def build(inputs: ModelInputs) -> keras.Model:
    """Build the settings' model and compile it, if the function has not.

    Raises:
        ModelError: The function is not there or returns something else.
    """
    dotted = inputs.settings.model
    function = wide_and_deep.build_model if dotted is None else model_function(dotted)
    model = function(inputs)
    name = dotted or wide_and_deep.__name__
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"trainer.model: {name} returned {type(model).__name__}, "
            "not a keras.Model (Keras 3: `import keras`)"
        )
    check_model(model, inputs, name)
    if not model.compiled:
        model.compile(
            optimizer=keras.optimizers.Adam(inputs.settings.learning_rate),
            loss=LOSSES[inputs.label_kind],
            weighted_metrics=list(METRICS[inputs.label_kind]),
        )
    check_training(model, name)
    return model


def check_model(model: keras.Model, inputs: ModelInputs, name: str) -> None:
    """Refuse a model that cannot be fed or judged.

    Raises:
        ModelError: Its inputs are not what Transform makes, or its output is not
            `[batch, num_outputs] float32`.
    """
    wanted = {spec.name for spec in inputs.inputs}
    names = input_names(model)
    unknown = [name for name in names if name not in wanted]
    if unknown or not names:
        what = f"has inputs {', '.join(unknown)}" if unknown else "has no named inputs"
        raise ModelError(
            f"trainer.model: {name} {what}; it needs a `keras.Input(…, name=…)` for "
            f"some of: {', '.join(sorted(wanted))}"
        )
    shapes = [tuple(output.shape) for output in model.outputs]
    if shapes != [(None, inputs.num_outputs)]:
        raise ModelError(
            f"trainer.model: {name} has outputs of shape {shapes}, allowed: one of "
            f"shape (None, {inputs.num_outputs}) for a {inputs.label_kind} label"
        )
    _check_structure(model, name)
    precision.check_outputs(model, name)


def _check_structure(model: keras.Model, name: str) -> None:
    """Refuse dicts that the training step would not take apart as the user means."""
    outputs = getattr(model, "output", None)
    if isinstance(outputs, dict | list | tuple):
        raise ModelError(
            f"trainer.model: {name} returns its output inside a "
            f"{type(outputs).__name__}, allowed: the tensor itself, "
            "`keras.Model(inputs, output)`"
        )
    inputs = getattr(model, "input", None)
    if isinstance(inputs, dict):
        for key, tensor in inputs.items():
            if key != tensor.name:
                raise ModelError(
                    f"trainer.model: {name} has the input {tensor.name!r} under the "
                    f"key {key!r}, allowed: the key that is the keras.Input's name"
                )


def check_training(model: keras.Model, name: str) -> None:
    """Refuse what the training step would do in another way than `fit`.

    Raises:
        ModelError: The message says what, and what to do instead.
    """
    method = overrides_training(model)
    if method is not None:
        raise ModelError(
            f"trainer.model: {name} returned a {type(model).__name__} with a "
            f"{method} of its own, which the Trainer's training step would not call; "
            "put it into a layer, a loss or a metric"
        )
    optimizer = inner_optimizer(model)
    if optimizer.gradient_accumulation_steps:
        raise ModelError(
            f"trainer.model: {name} compiled with an optimizer that has "
            f"gradient_accumulation_steps={optimizer.gradient_accumulation_steps}; "
            "set trainer.accumulation_steps instead"
        )
    if not model.trainable_variables:
        raise ModelError(f"trainer.model: {name} returned a model without weights")
    for taken in {"loss", "val_loss"} & set(metric_names(model)):
        raise ModelError(
            f"trainer.model: {name} compiled with a metric called {taken!r}, which is "
            "the name of the loss itself; give the metric another"
        )
    assigned = assigned_weights(model)
    if assigned:
        raise ModelError(
            f"trainer.model: {name} has a layer that assigns its trainable weight "
            f"{assigned[0]} when it is called, as keras.layers.SpectralNormalization "
            "does; the Trainer's training step would lose what was assigned"
        )


def input_names(model: keras.Model) -> list[str]:
    """Return the names of a functional model's inputs; none for other models."""
    return [tensor.name for tensor in getattr(model, "inputs", None) or ()]


def model_function(dotted: str) -> Callable[[ModelInputs], Any]:
    """Import the user's model function.

    Raises:
        ModelError: It cannot be imported.
    """
    module, _, name = dotted.rpartition(".")
    try:
        function: Callable[[ModelInputs], Any] = getattr(
            importlib.import_module(module), name
        )
    except (ImportError, AttributeError) as error:
        raise ModelError(f"trainer.model: cannot import {dotted}: {error}") from error
    return function
