"""Runs the steps of a chunk on all replicas in one call, and evaluates a chunk."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from components.trainer.examples import ExampleReader
from components.trainer.metrics import Metrics
from components.trainer.objective import Problem
from components.trainer.state import TrainState
from components.trainer.step import TrainingStep, local_replica

NUM_WISHES = 3


class Executed(NamedTuple):
    """What happened in the steps of one call, each [steps]."""

    loss: np.ndarray
    gradient_norm: np.ndarray
    bad: np.ndarray
    loss_scale: np.ndarray
    wishes: np.ndarray
    """[3] float32, summed over all replicas of all workers in the last step."""


class Execution:
    """Training steps as a compiled loop around `strategy.run`."""

    def __init__(
        self,
        strategy: Any,
        step: TrainingStep,
        reader: ExampleReader,
        metrics: Metrics,
        chunk_steps: int,
        *,
        stops_when_bad: bool,
    ) -> None:
        self._strategy = strategy
        self._step = step
        self._reader = reader
        self._metrics = metrics
        self._chunk_steps = chunk_steps
        self._stops_when_bad = stops_when_bad
        self._loop = tf.function(self._run, autograph=False)

    def run(
        self, chunk: Any, first: int, last: int, wishes: Sequence[float]
    ) -> Executed:
        """Run steps `first` to `last`, the end left out, of a chunk.

        A bad step ends the loop where it should stop; later entries are then 0.

        Args:
            chunk: Per-replica elements of the input pipeline.
            first: First step in the chunk.
            last: End of the steps.
            wishes: [3] numbers, added up over all workers.
        """
        *series, summed = self._loop(
            chunk,
            tf.constant(first),
            tf.constant(last),
            tf.constant(wishes, tf.float32),
        )
        loss, norm, bad, scale = (value.numpy()[first:last] for value in series)
        return Executed(loss, norm, bad > 0, scale, summed.numpy())

    def _run(self, chunk: Any, first: Any, last: Any, wishes: Any) -> tuple[Any, ...]:
        empty = tf.zeros([self._chunk_steps])

        def go_on(number: Any, stopped: Any, *_: Any) -> Any:
            return (number < last) & ~stopped

        def one(number: Any, stopped: Any, series: Any, _: Any) -> tuple[Any, ...]:
            report, summed = self._strategy.run(
                self._on_replica, args=(chunk, number, wishes)
            )
            values = [self._local(value) for value in report]
            bad = values[2]
            series = tuple(
                tf.tensor_scatter_nd_update(
                    so_far, [[number]], [tf.cast(value, tf.float32)]
                )
                for so_far, value in zip(series, values, strict=True)
            )
            stopped = bad if self._stops_when_bad else stopped
            return number + 1, stopped, series, self._local(summed)

        start = (first, tf.constant(False), (empty,) * 4, tf.zeros([NUM_WISHES]))
        *_, series, summed = tf.while_loop(go_on, one, start)
        return (*series, summed)

    def _on_replica(self, chunk: Mapping[str, Any], number: Any, wishes: Any) -> Any:
        batch = {name: value[number] for name, value in chunk.items() if name != "row"}
        report, prediction, wishes = self._step.run(batch, wishes)
        flat = {
            name: tf.reshape(value, [-1, *value.shape[2:]])
            for name, value in batch.items()
        }
        examples = self._reader.read(flat)
        # As Keras' loss tracker: the batch's loss, as often as it has examples.
        size = tf.reduce_sum(examples.mask)
        self._metrics.update(
            self._step.local_replica(),
            examples,
            prediction,
            (report.loss * size, size),
            counts=~report.bad,
        )
        return report, wishes

    def _local(self, value: Any) -> Any:
        return self._strategy.experimental_local_results(value)[0]


class Evaluation:
    """Forward passes over a split, counted by metrics."""

    def __init__(
        self,
        strategy: Any,
        problem: Problem,
        state: TrainState,
        metrics: Metrics,
        first_replica: int,
        *,
        compiled: bool,
    ) -> None:
        self._strategy = strategy
        self._problem = problem
        self._state = state
        self._metrics = metrics
        self._first_replica = first_replica
        self._forward = tf.function(
            self._predict, jit_compile=compiled or None, autograph=False
        )
        self._loop = tf.function(self._run, autograph=False)

    def run(self, chunks: Any, steps_of_chunks: Sequence[int]) -> dict[str, float]:
        """Evaluate chunks and return `{loss, metric…: value}`.

        Args:
            chunks: Iterator of per-replica elements.
            steps_of_chunks: How many steps each chunk holds.
        """
        self._metrics.reset()
        for steps in steps_of_chunks:
            self._loop(next(chunks), tf.constant(steps))
        return self._metrics.result()

    def _run(self, chunk: Any, steps: Any) -> None:
        def one(number: Any) -> tuple[Any]:
            self._strategy.run(self._on_replica, args=(chunk, number))
            return (number + 1,)

        tf.while_loop(lambda number: number < steps, one, (tf.constant(0),))

    def _on_replica(self, chunk: Mapping[str, Any], number: Any) -> None:
        local = local_replica(self._first_replica)
        values = self._state.read(local)
        batch = {name: v[number, 0] for name, v in chunk.items() if name != "row"}
        examples = self._problem.reader.read(batch)
        prediction, penalties = self._forward(
            values["ema"] or values["trainable"],
            values["non_trainable"],
            examples.inputs,
        )
        numerator, denominator = self._problem.objective.part(
            examples.label, prediction, examples.weight, examples.mask
        )
        for penalty in penalties:
            numerator += tf.cast(penalty, tf.float32) * denominator
        self._metrics.update(local, examples, prediction, (numerator, denominator))

    def _predict(
        self, weights: list[Any], others: list[Any], inputs: Mapping[str, Any]
    ) -> tuple[Any, list[Any]]:
        prediction, _, penalties = self._problem.model.stateless_call(
            weights, others, inputs, training=False, return_losses=True
        )
        return prediction, list(penalties)
