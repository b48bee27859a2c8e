"""The Trainer's entry point for TFX: builds, fits and exports a model."""

import importlib
import json
import logging
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow_transform as tft
from tfx.components.trainer.fn_args_utils import FnArgs

from components.errors import ModelError
from components.features import TABLE_KEY, FeatureTable
from components.trainer import wide_and_deep
from components.trainer.config import TrainerSettings
from components.trainer.export import export
from components.trainer.input_pipeline import dataset
from components.trainer.inputs import ModelInputs, describe_inputs

log = logging.getLogger(__name__)
SETTINGS_KEY = "trainer"
HISTORY_FILE = "history.json"
# No gradients are kept: larger batches fit.
EVAL_BATCH_FACTOR = 8

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


def run_fn(fn_args: FnArgs) -> None:
    """Train on the transformed examples and export to `serving_model_dir`.

    Raises:
        ModelError: The user's model function is not there or returns no model.
    """
    table = FeatureTable.model_validate_json(fn_args.custom_config[TABLE_KEY])
    settings = TrainerSettings.model_validate_json(fn_args.custom_config[SETTINGS_KEY])
    transform = tft.TFTransformOutput(fn_args.transform_output)
    keras.utils.set_random_seed(settings.seed)
    model = build(describe_inputs(table, transform, settings))
    read = partial(dataset, table=table, transform=transform, names=input_names(model))
    batch_size = settings.batch_size
    history = fit(
        model,
        read(fn_args.train_files, batch_size=batch_size, shuffle_seed=settings.seed),
        read(fn_args.eval_files, batch_size=EVAL_BATCH_FACTOR * batch_size),
        settings,
    )
    export(model, transform, table, fn_args.serving_model_dir)
    path = Path(fn_args.model_run_dir) / HISTORY_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(history))


def build(inputs: ModelInputs) -> keras.Model:
    """Build the settings' model and compile it, if the function has not.

    Raises:
        ModelError: The function is not there or returns something else.
    """
    dotted = inputs.settings.model
    function = wide_and_deep.build_model if dotted is None else model_function(dotted)
    model = function(inputs)
    if not isinstance(model, keras.Model):
        raise ModelError(
            f"trainer.model: {dotted} returned {type(model).__name__}, "
            "not a keras.Model (Keras 3: `import keras`)"
        )
    check_model(model, inputs, dotted or wide_and_deep.__name__)
    if not model.compiled:
        model.compile(
            optimizer=keras.optimizers.Adam(inputs.settings.learning_rate),
            loss=LOSSES[inputs.label_kind],
            weighted_metrics=list(METRICS[inputs.label_kind]),
        )
    return model


def check_model(model: keras.Model, inputs: ModelInputs, name: str) -> None:
    """Refuse a model that cannot be fed or judged.

    Raises:
        ModelError: Its inputs are not what Transform makes, or its output is not
            `[batch, num_outputs]`.
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


def fit(
    model: keras.Model, train: Any, evaluation: Any, settings: TrainerSettings
) -> dict[str, list[float]]:
    """Fit with the settings and return loss and metrics by epoch."""
    callbacks: list[keras.callbacks.Callback] = [keras.callbacks.TerminateOnNaN()]
    if settings.early_stopping_patience:
        callbacks.append(
            keras.callbacks.EarlyStopping(
                patience=settings.early_stopping_patience, restore_best_weights=True
            )
        )
    history = model.fit(
        train,
        validation_data=evaluation,
        epochs=settings.epochs,
        callbacks=callbacks,
        verbose=2,
    )
    values = {key: list(map(float, column)) for key, column in history.history.items()}
    log.info("history: %s", values)
    if any(map(math.isnan, values["loss"])):
        raise ModelError(
            "the loss became NaN; look for extreme values in the data, or lower "
            "trainer.learning_rate"
        )
    return values
