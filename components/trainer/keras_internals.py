"""What the training step needs of Keras and Keras does not publish, in one place.

Keras is pinned; a test holds each of these to what Keras does in public.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import CompileMetrics, get_loss

Tensors = list[Any]

# Methods that Keras' TensorFlow backend replaces by ones that need tf.Variables and
# tf.distribute's merge_call. The originals work on values.
_REPLACED = (
    "_apply_weight_decay",
    "_backend_increment_gradient_accumulators",
    "_backend_update_step",
    "_overwrite_model_variables_with_average_value",
    "_var_key",
    "assign",
    "assign_add",
    "assign_sub",
)


class PureOptimizer:
    """A Keras optimizer as a function of values: no variable is read or written.

    That is what XLA can compile and what every replica can compute by itself.
    """

    def __init__(
        self, optimizer: keras.Optimizer, variables: Sequence[keras.Variable]
    ) -> None:
        """Build the optimizer for these trainable variables."""
        kind = type(optimizer)
        originals = {name: getattr(BaseOptimizer, name) for name in _REPLACED}
        optimizer.__class__ = type(kind.__name__, (kind,), originals)
        optimizer.build(list(variables))
        self._optimizer = optimizer
        self.variables: list[keras.Variable] = optimizer.variables

    def apply(
        self, optimizer_values: Tensors, gradients: Tensors, values: Tensors
    ) -> tuple[Tensors, Tensors]:
        """Return the trainable values and the optimizer's own after a step."""
        after: tuple[Tensors, Tensors] = BaseOptimizer.stateless_apply(
            self._optimizer, optimizer_values, gradients, values
        )
        return after


def count_atomically(optimizer: keras.Optimizer) -> None:
    """Let several workers count an optimizer's steps without losing any.

    Keras' own `assign_add` reads, adds and writes. Needs a built optimizer.
    """
    counter = optimizer._iterations  # noqa: SLF001
    counter.assign_add = counter.value.assign_add


def inner_optimizer(model: keras.Model) -> keras.Optimizer:
    """Return the optimizer that a model was compiled with, without loss scaling.

    Keras wraps it when the policy is mixed_float16; the training step scales itself.
    """
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer.inner_optimizer
    return optimizer


def compiled_loss(model: keras.Model, label: Any, prediction: Any) -> keras.Loss:
    """Return the loss that a model was compiled with, as an object."""
    loss = model.loss
    if isinstance(loss, dict):
        [loss] = loss.values()
    if isinstance(loss, list | tuple):
        [loss] = loss
    return get_loss(loss, label, prediction)


def compiled_metrics(
    model: keras.Model, label: Any, prediction: Any
) -> tuple[CompileMetrics, CompileMetrics]:
    """Return the metrics of a compiled model: without and with sample weights.

    Both take weights when updated, so that filled-up rows can be given weight 0.
    """
    given = model._compile_metrics  # noqa: SLF001
    made = []
    for metrics in (given._user_metrics, given._user_weighted_metrics):  # noqa: SLF001
        metric = CompileMetrics(None, metrics, output_names=model.output_names)
        metric.build(label, prediction)
        made.append(metric)
    return made[0], made[1]


def overrides_training(model: keras.Model) -> str | None:
    """Return the method of `fit` that a model's class replaces; None if none."""
    for name in ("train_step", "compute_loss", "compute_metrics"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            return name
    return None
