"""A step of a parameter_server run: what a worker computes, and what it answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.errors import ModelError
from components.trainer.session import Session
from components.trainer.state import Group, TrainState, Values
from components.trainer.step import Part

NUM_HEAD = 4
"""Waited, loss, gradient norm, bad: before the metrics in a step's answer."""
BATCH_DTYPES = {
    "float32": "float32",
    "int64": "int64",
    "mask": "float32",
    "row": "int64",
}


def this_worker() -> Any:
    """Return the number of the worker that computes, [] int64."""
    return tf.distribute.coordinator.experimental_get_current_worker_index()


class ServedState:
    """Variables on parameter servers: a model's and its optimizer's."""

    def __init__(self, model: keras.Model, optimizer: keras.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer
        self.variables: dict[Group, list[keras.Variable]] = {
            "trainable": list(model.trainable_variables),
            "non_trainable": list(model.non_trainable_variables),
            "optimizer": list(optimizer.variables),
        }

    def check(self, state: TrainState) -> None:
        """Refuse variables that are not those of the chief's model.

        Raises:
            ModelError: Some differ.
        """
        for group, variables in self.variables.items():
            others = state.variables[group]
            if [(v.shape, v.dtype) for v in variables] != [
                (v.shape, v.dtype) for v in others
            ]:
                raise ModelError(
                    "trainer.model: the function builds another model each time it is "
                    "called, allowed: one that depends on its argument alone"
                )

    def push(self, state: TrainState) -> None:
        """Set them from the chief's."""
        given = state.read(0)
        for group, variables in self.variables.items():
            for variable, value in zip(variables, given[group], strict=True):
                variable.value.assign(value)

    def values(self) -> Values:
        """Return what they are."""
        return {
            group: [tf.convert_to_tensor(variable.value) for variable in variables]
            for group, variables in self.variables.items()
        }


@dataclass(frozen=True)
class Outcomes:
    """What came of some steps, each [steps]."""

    waited_s: np.ndarray
    """For data."""
    loss: np.ndarray
    gradient_norm: np.ndarray
    bad: np.ndarray
    counted: list[np.ndarray]
    """By metrics, of all of them together."""
    batches: dict[int, dict[str, np.ndarray]]
    """Those of bad steps, by place."""


class ServedStep:
    """One change of the weights, computed by whoever is free."""

    def __init__(self, session: Session, state: ServedState, strategy: Any) -> None:
        arithmetic = session.step.arithmetic
        problem = replace(arithmetic.problem, model=state.model)
        self._arithmetic = replace(
            arithmetic,
            problem=problem,
            non_trainable=state.variables["non_trainable"],
            unconnected=set(),
        )
        self._accumulate = tf.function(
            self._arithmetic.accumulate,
            jit_compile=session.xla == "whole" or None,
            autograph=False,
        )
        self._clip_norm = arithmetic.options.clip_norm
        self._session = session
        self._state = state
        self._strategy = strategy

    def run(self, iterator: Any) -> tuple[Any, Any]:
        """Compute a step on a worker, inside the function that is scheduled.

        Returns:
            Numbers, [n] float64: waiting time, loss, gradient norm, bad, and what
            metrics count; and the batch as [4] serialized tensors, empty ones if the
            step was good.
        """
        begun = tf.timestamp()
        with tf.control_dependencies([begun]):
            chunk = next(iterator)
        with tf.control_dependencies(list(chunk.values())):
            waited = tf.timestamp() - begun
        numbers, batch = self._strategy.run(
            self._on_replica, args=(chunk, this_worker())
        )
        return tf.concat([[waited], numbers], 0), batch

    def _on_replica(self, chunk: Mapping[str, Any], worker: Any) -> tuple[Any, Any]:
        batch = {name: value[0] for name, value in chunk.items()}
        computed = {name: value for name, value in batch.items() if name != "row"}
        values = self._state.values()
        # Read by the arithmetic, which scales nothing here.
        values["loss_scale"] = [tf.constant(1.0), tf.constant(0, tf.int64)]
        part, prediction = self._accumulate(values, computed, worker)
        gradients, loss, norm, finite = settle(part, self._clip_norm)
        for index in self._arithmetic.unconnected:
            gradients[index] = None  # Keras leaves such variables as they are
        self._state.optimizer.apply(gradients, self._state.variables["trainable"])
        for variable, before, after in zip(
            self._state.variables["non_trainable"],
            values["non_trainable"],
            part.non_trainable,
            strict=True,
        ):
            variable.value.assign(tf.where(finite, after, before))
        counted = [
            tf.where(finite, value, tf.zeros_like(value))
            for value in self._count(computed, prediction, loss)
        ]
        head = [tf.cast(value, tf.float64) for value in (loss, norm, ~finite)]
        flat = [tf.reshape(tf.cast(value, tf.float64), [-1]) for value in counted]
        return tf.concat([tf.stack(head), *flat], 0), serialized(batch, finite)

    def _count(self, batch: Mapping[str, Any], prediction: Any, loss: Any) -> Any:
        flat = {
            name: tf.reshape(value, [-1, *value.shape[2:]])
            for name, value in batch.items()
        }
        examples = self._session.reader.read(flat)
        size = tf.reduce_sum(examples.mask)
        return self._session.train_metrics.contribution(
            examples, prediction, (loss * size, size)
        )

    def read(self, answers: Sequence[tuple[np.ndarray, np.ndarray]]) -> Outcomes:
        """Read what `run` returned, of several steps."""
        numbers = np.stack([numbers for numbers, _ in answers])
        waited, loss, norm, bad = numbers[:, :NUM_HEAD].T
        shapes = self._session.train_metrics.shapes()
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        totals = np.split(numbers[:, NUM_HEAD:].sum(0), ends[:-1])
        return Outcomes(
            waited,
            loss,
            norm,
            bad > 0,
            [t.reshape(shape) for t, shape in zip(totals, shapes, strict=True)],
            {
                place: deserialized(batch)
                for place, (_, batch) in enumerate(answers)
                if bad[place]
            },
        )


def settle(part: Part, clip_norm: float | None) -> tuple[list[Any], Any, Any, Any]:
    """Return mean gradients, clipped, and all 0 if some are not finite.

    Keras' optimizers may not be called under a condition here (merge_call).

    Returns:
        The gradients; loss, their norm before clipping, and whether all were finite,
        each [].
    """
    gradients = [tf.math.divide_no_nan(g, part.denominator) for g in part.gradients]
    loss = tf.math.divide_no_nan(part.numerator, part.denominator)
    norm = tf.linalg.global_norm(gradients)
    finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
    if clip_norm is not None:
        scale = clip_norm / tf.maximum(norm, clip_norm)
        gradients = [gradient * scale for gradient in gradients]
    gradients = [tf.where(finite, g, tf.zeros_like(g)) for g in gradients]
    return gradients, loss, norm, finite


def serialized(batch: Mapping[str, Any], finite: Any) -> Any:
    """Return a batch as [4] string tensors, without any rows if it is of no interest."""
    kept = tf.where(finite, 0, batch["mask"].shape[1])
    return tf.stack(
        [
            tf.io.serialize_tensor(
                batch[name][:, :kept] if name in batch else tf.zeros([], dtype)
            )
            for name, dtype in BATCH_DTYPES.items()
        ]
    )


def deserialized(texts: np.ndarray) -> dict[str, np.ndarray]:
    """Return the batch that `serialized` made [4] string tensors of."""
    found = {
        name: tf.io.parse_tensor(text, dtype).numpy()
        for text, (name, dtype) in zip(texts, BATCH_DTYPES.items(), strict=True)
    }
    return {name: value for name, value in found.items() if value.ndim}
