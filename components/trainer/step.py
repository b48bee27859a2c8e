"""The training step: micro-batches, one all-reduce, one update, on every replica.

```
on each replica       for each micro-batch: forward, backward; gradients add up
one all-reduce        gradients, loss, statistics of the batch
on each replica       unscale ─► finite? ─► clip ─► optimizer ─► moving average
```

Both parts are functions of values, traced once with fixed shapes, so that XLA can
compile them inside `strategy.run`; only what lies between reads and writes variables.
Keras' `fit` cannot do this: its optimizers want tf.distribute's merge_call, which
neither a loop over micro-batches nor XLA allows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from components.errors import ModelError
from components.trainer.keras_internals import PureOptimizer
from components.trainer.objective import Problem
from components.trainer.precision import MIN_SCALE, next_scale
from components.trainer.state import (
    SEED_STRIDE,
    TrainState,
    Values,
    averaged,
    per_replica_seeds,
)

Batch = Mapping[str, Any]
"""What one replica computes in a step: [micro-batches, examples, …] each."""


class Part(NamedTuple):
    """What one replica adds to an effective batch."""

    gradients: list[Any]
    """Of the numerator, times the loss scale."""
    numerator: Any
    denominator: Any
    non_trainable: list[Any]


class Report(NamedTuple):
    """What a step says of itself."""

    loss: Any
    """[] float32, over the effective batch."""
    gradient_norm: Any
    """[] float32, global norm before clipping; not finite after an overflow."""
    bad: Any
    """[] bool: loss or gradients are not finite, and a loss scale is not why."""
    loss_scale: Any
    """[] float32, after the step."""


@dataclass(frozen=True)
class StepOptions:
    """What a step does beside descending."""

    accumulation: int
    num_replicas: int
    clip_norm: float | None = None
    ema_momentum: float | None = None
    scales_loss: bool = False


@dataclass(frozen=True)
class Arithmetic:
    """The two parts of a step as functions of values; no variable is touched."""

    problem: Problem
    non_trainable: list[keras.Variable]
    """For their names: seed generators differ from replica to replica."""
    optimizer: PureOptimizer
    options: StepOptions
    unconnected: set[int] = field(default_factory=set)
    """Trainable variables that the loss does not depend on; known once it is traced."""

    def accumulate(
        self, values: Values, batch: Batch, replica: Any
    ) -> tuple[Part, Any]:
        """Go through the micro-batches of one replica.

        Args:
            values: The state on this replica.
            batch: [micro-batches, examples, …] each.
            replica: [] int64, its number among all.

        Returns:
            The part, and predictions [micro-batches · examples, outputs] float32.
        """
        offset = replica * SEED_STRIDE
        names = self.non_trainable
        others = per_replica_seeds(names, values["non_trainable"], offset)
        first, prediction = self._micro_batch(values, others, _cut(batch, 0))
        if self.options.accumulation > 1:
            first, prediction = self._rest(values, batch, first, prediction)
        after = per_replica_seeds(names, first.non_trainable, -offset)
        return first._replace(non_trainable=after), prediction

    def _rest(
        self, values: Values, batch: Batch, first: Part, prediction: Any
    ) -> tuple[Part, Any]:
        count = self.options.accumulation
        shape = prediction.shape
        predictions = tf.tensor_scatter_nd_update(
            tf.zeros([count, *shape], prediction.dtype), [[0]], prediction[None]
        )

        def one_more(number: Any, so_far: Part, predictions: Any) -> tuple[Any, ...]:
            cut = _cut(batch, number)
            part, prediction = self._micro_batch(values, so_far.non_trainable, cut)
            gradients = [
                a + b for a, b in zip(so_far.gradients, part.gradients, strict=True)
            ]
            total = Part(
                gradients,
                so_far.numerator + part.numerator,
                so_far.denominator + part.denominator,
                part.non_trainable,
            )
            predictions = tf.tensor_scatter_nd_update(
                predictions, [[number]], prediction[None]
            )
            return number + 1, total, predictions

        _, total, predictions = tf.while_loop(
            lambda number, *_: number < count,
            one_more,
            (1, first, predictions),
            maximum_iterations=count - 1,
        )
        return total, tf.reshape(predictions, [-1, *shape[1:]])

    def _micro_batch(
        self, values: Values, others: list[Any], batch: Batch
    ) -> tuple[Part, Any]:
        examples = self.problem.reader.read(batch)
        trainable = values["trainable"]
        scale = values["loss_scale"][0]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(trainable)
            prediction, after, penalties = self.problem.model.stateless_call(
                trainable, others, examples.inputs, training=True, return_losses=True
            )
            numerator, denominator = self.problem.objective.part(
                examples.label, prediction, examples.weight, examples.mask
            )
            for penalty in penalties:
                numerator += tf.cast(penalty, tf.float32) * denominator
            scaled = numerator * scale if self.options.scales_loss else numerator
        gradients = tape.gradient(scaled, trainable)
        self.unconnected.update(i for i, g in enumerate(gradients) if g is None)
        if len(self.unconnected) == len(gradients):
            raise ModelError(
                "trainer.model: the loss depends on none of the model's weights, so "
                "that there is nothing to train"
            )
        dense = [
            tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, value in zip(gradients, trainable, strict=True)
        ]
        return Part(dense, numerator, denominator, list(after)), prediction

    def update(self, values: Values, part: Part) -> tuple[Values, Report]:
        """Change the weights once, by what all replicas added up."""
        scale, good_steps = values["loss_scale"]
        divisor = part.denominator * (scale if self.options.scales_loss else 1.0)
        gradients = [tf.math.divide_no_nan(g, divisor) for g in part.gradients]
        loss = tf.math.divide_no_nan(part.numerator, part.denominator)
        norm = tf.linalg.global_norm(gradients)
        finite = tf.math.is_finite(norm) & tf.math.is_finite(loss)
        bad = ~finite
        if self.options.scales_loss:
            bad = ~tf.math.is_finite(loss) | (bad & (scale <= MIN_SCALE))
        if self.options.clip_norm is not None:
            limit = self.options.clip_norm
            gradients = [g * (limit / tf.maximum(norm, limit)) for g in gradients]
        trainable, optimizer = self.optimizer.apply(
            values["optimizer"], gradients, values["trainable"]
        )
        # As in Keras: what has no gradient does not move, by weight decay neither.
        trainable = [
            values["trainable"][index] if index in self.unconnected else value
            for index, value in enumerate(trainable)
        ]
        after: Values = {
            "trainable": trainable,
            "optimizer": optimizer,
            "non_trainable": part.non_trainable,
            "ema": self._average(values, trainable),
        }
        # A bad step leaves everything as it was: what follows can still be looked at.
        after = _select(finite, after, values)
        if self.options.scales_loss:
            scale, good_steps = next_scale(scale, good_steps, finite)
        after["loss_scale"] = [scale, good_steps]
        return after, Report(loss, norm, bad, scale)

    def _average(self, values: Values, trainable: list[Any]) -> list[Any]:
        """Move the averages; less inert in the beginning, so that they forget it.

        The momentum of step t is `min(momentum, (1 + t) / (10 + t))`, as in
        tf.train.ExponentialMovingAverage with num_updates.
        """
        if self.options.ema_momentum is None:
            return []
        step = tf.cast(values["optimizer"][0], tf.float32)
        momentum = tf.minimum(self.options.ema_momentum, (1 + step) / (10 + step))
        return [
            average * momentum + value * (1 - momentum)
            for average, value in zip(values["ema"], trainable, strict=True)
        ]


class TrainingStep:
    """One step on one replica; `run` is called inside `strategy.run`."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        state: TrainState,
        batch: Mapping[str, tf.TensorSpec],
        first_replica: int,
        *,
        compiled: bool,
    ) -> None:
        """Trace the step.

        Args:
            arithmetic: What it computes.
            state: What it changes.
            batch: Shape and dtype of a replica's batch.
            first_replica: Number of this process's first replica among all.
            compiled: Compile with XLA.
        """
        self.arithmetic = arithmetic
        self._state = state
        self._first_replica = first_replica
        self._compiled = compiled
        self.num_traces = 0
        values = {group: state.specs(group) for group in state.variables}
        replica = tf.TensorSpec([], tf.int64)
        if arithmetic.options.num_replicas == 1:
            self._whole = self._traced(self._alone, values, dict(batch), replica)
            self.functions: tuple[Any, ...] = (self._whole,)
        else:
            self.accumulate = self._traced(
                arithmetic.accumulate, values, dict(batch), replica
            )
            part = tf.nest.map_structure(
                lambda output: tf.TensorSpec(output.shape, output.dtype),
                self.accumulate.structured_outputs[0],
            )
            self._update = self._traced(arithmetic.update, values, part)
            self.functions = (self.accumulate, self._update)

    def _alone(
        self, values: Values, batch: Batch, replica: Any
    ) -> tuple[Values, Report, Any]:
        part, prediction = self.arithmetic.accumulate(values, batch, replica)
        after, report = self.arithmetic.update(values, part)
        return after, report, prediction

    def _traced(self, function: Callable[..., Any], *specs: Any) -> Any:
        def counted(*values: Any) -> Any:
            self.num_traces += 1
            return function(*values)

        return tf.function(
            counted, jit_compile=self._compiled or None, autograph=False
        ).get_concrete_function(*specs)

    def run(self, batch: Batch, wishes: Any) -> tuple[Report, Any, Any]:
        """Compute a step on the replica whose context this is.

        Args:
            batch: What this replica computes.
            wishes: [n] float32, added up over replicas on the way.

        Returns:
            The report, this replica's predictions, and the sum of wishes.
        """
        context = tf.distribute.get_replica_context()
        local = self.local_replica()
        values = self._state.read(local)
        replica = tf.constant(self._first_replica + local, tf.int64)
        if self.arithmetic.options.num_replicas == 1:
            after, report, prediction = self._whole(values, batch, replica)
        else:
            own, prediction = self.accumulate(values, batch, replica)
            reduced, wishes = self._reduce(context, own, wishes)
            after, report = self._update(values, reduced)
        self._state.write(local, after)
        return report, prediction, wishes

    def local_replica(self) -> int:
        """Return the number of the replica whose context this is, in this process."""
        return local_replica(self._first_replica)

    def _reduce(self, context: Any, part: Part, wishes: Any) -> tuple[Part, Any]:
        floats = [value for value in part.non_trainable if averaged(value)]
        count = len(part.gradients)
        # The wishes are an argument of the loop and lie on no device of a replica.
        wishes = tf.identity(wishes)
        summed = context.all_reduce(
            tf.distribute.ReduceOp.SUM,
            [*part.gradients, part.numerator, part.denominator, wishes, *floats],
        )
        means = iter(summed[count + 3 :])
        num_replicas = self.arithmetic.options.num_replicas
        others = [
            next(means) / tf.cast(num_replicas, value.dtype)
            if averaged(value)
            else value
            for value in part.non_trainable
        ]
        numerator, denominator, wishes = summed[count : count + 3]
        return Part(summed[:count], numerator, denominator, others), wishes


def local_replica(first_replica: int) -> int:
    """Return the number of the replica whose context this is, in this process."""
    context = tf.distribute.get_replica_context()
    return int(tf.get_static_value(context.replica_id_in_sync_group)) - first_replica


def _cut(batch: Batch, number: Any) -> dict[str, Any]:
    return {name: value[number] for name, value in batch.items() if name != "row"}


def _select(condition: Any, after: Values, before: Values) -> Values:
    return {
        group: [
            tf.where(condition, new, old)
            for new, old in zip(values, before[group], strict=True)
        ]
        for group, values in after.items()
    }
