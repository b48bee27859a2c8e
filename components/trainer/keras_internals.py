"""What the training step needs of Keras and Keras does not publish, in one place.

Keras is pinned; a test holds each of these to what Keras does in public.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow.optimizer import TFOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.trainers.compile_utils import CompileMetrics, get_loss

from components.errors import ModelError

Tensors = list[Any]


class _OnValues(TFOptimizer):
    """The methods that Keras' TensorFlow backend replaces, as they are without it.

    The backend's need tf.Variables and tf.distribute's merge_call; these work on
    values.
    """

    _apply_weight_decay = BaseOptimizer._apply_weight_decay  # noqa: SLF001
    _backend_increment_gradient_accumulators = (
        BaseOptimizer._backend_increment_gradient_accumulators  # noqa: SLF001
    )
    _backend_update_step = BaseOptimizer._backend_update_step  # noqa: SLF001
    _overwrite_model_variables_with_average_value = (
        BaseOptimizer._overwrite_model_variables_with_average_value  # noqa: SLF001
    )
    assign = BaseOptimizer.assign
    assign_add = BaseOptimizer.assign_add
    assign_sub = BaseOptimizer.assign_sub

    def _var_key(self, variable: keras.Variable) -> Any:
        """Return the key that the backend gives a variable, without reading it."""
        return variable._value._unique_id  # noqa: SLF001


_BY_ELEMENT = (
    keras.optimizers.Adadelta,
    keras.optimizers.Adagrad,
    keras.optimizers.Adam,
    keras.optimizers.Adamax,
    keras.optimizers.AdamW,
    keras.optimizers.Ftrl,
    keras.optimizers.Lion,
    keras.optimizers.Nadam,
    keras.optimizers.RMSprop,
    keras.optimizers.SGD,
)
"""Optimizers that compute each number of a variable from that number's gradient."""
MAX_JOINED = 1 << 22
"""Above so many numbers, copying them together costs more than many operations."""


class PureOptimizer:
    """A Keras optimizer as a function of values: no variable is read or written.

    That is what XLA can compile and what every replica can compute by itself. Where
    the optimizer computes by element, many small variables are joined into one: a
    step then is a dozen operations instead of a dozen for each variable.
    """

    def __init__(
        self,
        optimizer: keras.Optimizer,
        variables: Sequence[keras.Variable],
        *,
        may_join: bool = True,
    ) -> None:
        """Build the optimizer for these trainable variables, in their scope."""
        self._optimizer = optimizer
        optimizer.loss_scale_factor = None  # the training step scales by itself
        self._shapes = [tuple(variable.shape) for variable in variables]
        self._sizes = [math.prod(shape) for shape in self._shapes]
        self.is_joined = may_join and can_join(optimizer, variables)
        # Behind the optimizer's own methods, before those of the backend.
        kind = type(optimizer)
        optimizer.__class__ = type(kind.__name__, (kind, _OnValues), {})
        trained = list(variables)
        if self.is_joined:
            joined = np.zeros(sum(self._sizes), np.float32)
            trained = [keras.Variable(joined, name="joined")]
        optimizer.build(trained)
        self._trained = trained
        known = {id(variable) for variable in (*optimizer.variables, *trained)}
        self.variables: list[keras.Variable] = [
            *optimizer.variables,
            # Nadam keeps one that it does not tell of.
            *(
                value
                for value in vars(optimizer).values()
                if isinstance(value, keras.Variable) and id(value) not in known
            ),
        ]

    @property
    def averages(self) -> list[keras.Variable]:
        """The moving averages of the weights that `use_ema` keeps; else none."""
        if not self._optimizer.use_ema:
            return []
        return list(self._optimizer._model_variables_moving_average)  # noqa: SLF001

    def apply(
        self, optimizer_values: Tensors, gradients: Tensors, values: Tensors
    ) -> tuple[Tensors, Tensors]:
        """Return the trainable values and the optimizer's own after a step."""
        if self.is_joined:
            gradients, values = [_join(gradients)], [_join(values)]
        variables = [*self._trained, *self.variables]
        given = [*values, *optimizer_values]
        with keras.StatelessScope(
            state_mapping=list(zip(variables, given, strict=True))
        ) as scope:
            self._optimizer.apply(gradients, self._trained)
        after = [scope.get_current_value(variable) for variable in variables]
        trained, own = after[: len(values)], after[len(values) :]
        return (self._apart(trained[0]) if self.is_joined else trained), own

    def _apart(self, joined: Any) -> Tensors:
        parts = zip(tf.split(joined, self._sizes), self._shapes, strict=True)
        return [tf.reshape(part, shape) for part, shape in parts]


def can_join(optimizer: keras.Optimizer, variables: Sequence[keras.Variable]) -> bool:
    """Tell whether joining the variables changes nothing but the speed."""
    by_variable = (
        optimizer.clipnorm is not None
        or optimizer.use_ema
        or hasattr(optimizer, "_exclude_from_weight_decay")
    )
    return (
        type(optimizer) in _BY_ELEMENT
        and not by_variable
        and len(variables) > 1
        and sum(math.prod(v.shape) for v in variables) <= MAX_JOINED
        and all(v.dtype == "float32" and v.constraint is None for v in variables)
    )


def _join(values: Tensors) -> Any:
    return tf.concat([tf.reshape(value, [-1]) for value in values], 0)


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


def compiled_loss_weight(model: keras.Model) -> float:
    """Return what the loss is multiplied by; a model has one loss."""
    given = model._compile_loss  # noqa: SLF001  None where compile has no loss
    weights = getattr(given, "_user_loss_weights", None)
    if weights is None:
        return 1.0
    [weight] = keras.tree.flatten(weights)
    return float(weight)


def compiled_metrics(
    model: keras.Model, label: Any, prediction: Any
) -> tuple[CompileMetrics, CompileMetrics]:
    """Return the metrics of a compiled model: without and with sample weights.

    Both take weights when updated, so that filled-up rows can be given weight 0. They
    count for themselves: objects that the user made are copied.
    """
    given = model._compile_metrics  # noqa: SLF001  None where it has none
    names = getattr(model, "output_names", None)  # a Sequential model has none
    made = []
    for kind in ("_user_metrics", "_user_weighted_metrics"):
        metrics = keras.tree.map_structure(_own_copy, getattr(given, kind, None))
        metric = CompileMetrics(None, metrics, output_names=names)
        metric.build(label, prediction)
        _build_late(metric.metrics, label, prediction)
        made.append(metric)
    return made[0], made[1]


def _build_late(metrics: Sequence[keras.Metric], label: Any, prediction: Any) -> None:
    """Let metrics make the variables now that they would make when first updated.

    Raises:
        ModelError: One has none, and no way to make them that is known.
    """
    for metric in metrics:
        if getattr(metric, "_built", True) is False:
            is_auc = isinstance(metric, keras.metrics.AUC)
            shapes = (prediction.shape,) if is_auc else (label.shape, prediction.shape)
            metric._build(*shapes)  # noqa: SLF001
            metric._built = True  # noqa: SLF001
        if not metric.variables:
            raise ModelError(
                f"trainer.model: the metric {metric.name} has no variables before it is "
                "first updated; make them in its __init__ with add_variable or "
                "add_weight"
            )


def metric_names(model: keras.Model) -> list[str]:
    """Return the names of the metrics that a model was compiled with, where known."""
    given = model._compile_metrics  # noqa: SLF001  None where it has none
    kinds = ("_user_metrics", "_user_weighted_metrics")
    metrics = keras.tree.flatten([getattr(given, kind, None) for kind in kinds])
    names = [
        getattr(metric, "name", getattr(metric, "__name__", metric))
        for metric in metrics
    ]
    return [name for name in names if isinstance(name, str)]


def assigned_weights(model: keras.Model) -> list[str]:
    """Return the trainable weights that a model assigns to when it is called."""
    zeros = {
        tensor.name: np.zeros(
            (2, *(size or 1 for size in tensor.shape[1:])), tensor.dtype
        )
        for tensor in model.inputs
    }
    given = zeros if len(zeros) > 1 else next(iter(zeros.values()))
    with keras.StatelessScope() as scope:
        model(given, training=True)
    return [
        variable.path
        for variable in model.trainable_variables
        if scope.get_current_value(variable) is not None
    ]


def _own_copy(metric: Any) -> Any:
    if isinstance(metric, keras.Metric):
        return type(metric).from_config(metric.get_config())
    return metric


def overrides_training(model: keras.Model) -> str | None:
    """Return the method of `fit` that a model's class replaces; None if none."""
    for name in ("train_step", "compute_loss", "compute_metrics"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            return name
    return None
