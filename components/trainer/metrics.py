"""Loss and metrics over many batches, counted on every replica and added up at the end."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from components.trainer.examples import Examples
from components.trainer.keras_internals import compiled_metrics


class Metrics:
    """The loss and the metrics that a model was compiled with.

    Built inside the strategy's scope. As everywhere in Keras, what replicas counted is
    added up.
    """

    def __init__(
        self, strategy: Any, model: keras.Model, label: Any, prediction: Any
    ) -> None:
        """Build for labels and predictions of these shapes and dtypes (specs)."""
        self._strategy = strategy
        self._plain, self._weighted = compiled_metrics(
            model,
            keras.KerasTensor(label.shape, label.dtype.name),
            keras.KerasTensor(prediction.shape, prediction.dtype.name),
        )
        self._loss = [
            keras.Variable(0.0, trainable=False, aggregation="sum", name=name)
            for name in ("numerator", "denominator")
        ]
        self._variables = [
            *self._plain.variables,
            *self._weighted.variables,
            *self._loss,
        ]
        self._initial = [variable.numpy() for variable in self._variables]
        scalar = tf.TensorSpec([], tf.float32)
        weights = tf.TensorSpec([label.shape[0]], tf.float32)
        specs = [tf.TensorSpec(v.shape, v.dtype) for v in self._variables]
        self._count = tf.function(self._counted, autograph=False).get_concrete_function(
            specs, Examples({}, label, weights, weights), prediction, (scalar, scalar)
        )
        self._sum = tf.function(self._summed, autograph=False)

    def update(
        self,
        replica: int,
        examples: Examples,
        prediction: Any,
        loss: Sequence[Any],
        counts: Any = True,
    ) -> None:
        """Count a batch, inside `strategy.run`.

        Args:
            replica: Number among the replicas of this process.
            examples: Label, weight and mask, [batch, …].
            prediction: [batch, outputs] float32.
            loss: Numerator and denominator, [] each.
            counts: [] bool; whether the batch is counted at all.
        """
        components = [self._components(v)[replica] for v in self._variables]
        before = [tf.convert_to_tensor(component) for component in components]
        after = self._count(
            before,
            examples._replace(inputs={}),
            prediction,
            tuple(loss),
        )
        for component, old, new in zip(components, before, after, strict=True):
            component.assign(tf.where(counts, new, old))

    def contribution(
        self, examples: Examples, prediction: Any, loss: Sequence[Any]
    ) -> list[Any]:
        """Return what `update` would add for a batch, as values, on any device."""
        initial = [tf.constant(value) for value in self._initial]
        after = self._counted(
            initial, examples._replace(inputs={}), prediction, tuple(loss)
        )
        return [new - old for new, old in zip(after, initial, strict=True)]

    def add(self, contribution: Sequence[np.ndarray]) -> None:
        """Count what `contribution` said of batches, on the first replica."""
        for variable, value in zip(self._variables, contribution, strict=True):
            component = self._components(variable)[0]
            component.assign_add(tf.cast(value, component.dtype))

    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shape of each part of a contribution."""
        return [value.shape for value in self._initial]

    def _counted(
        self,
        values: list[Any],
        examples: Examples,
        prediction: Any,
        loss: Sequence[Any],
    ) -> list[Any]:
        plain, weighted, so_far = self._split(values)
        if plain:
            plain = self._plain.stateless_update_state(
                plain, examples.label, prediction, sample_weight=examples.mask
            )
        if weighted:
            weighted = self._weighted.stateless_update_state(
                weighted, examples.label, prediction, sample_weight=examples.weight
            )
        return [*plain, *weighted, so_far[0] + loss[0], so_far[1] + loss[1]]

    def _split(self, values: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        first = len(self._plain.variables)
        return values[:first], values[first:-2], values[-2:]

    def values(self) -> dict[str, Any]:
        """Return what was counted so far, over all replicas of all workers, by name."""
        return {
            f"metrics/{number:04d}": value for number, value in enumerate(self._sum())
        }

    def restore(self, values: Mapping[str, Any], *, is_chief: bool) -> None:
        """Go on from `values()`: the first replica of all takes everything over."""
        for number, variable in enumerate(self._variables):
            for place, component in enumerate(self._components(variable)):
                value = values[f"metrics/{number:04d}"]
                mine = is_chief and place == 0
                component.assign(value if mine else tf.zeros_like(component))

    def result(self) -> dict[str, float]:
        """Return `{loss, metric…: value}` over all replicas, of all workers."""
        plain, weighted, loss = self._split(list(self._sum()))
        results = {"loss": float(loss[0]) / float(loss[1]) if float(loss[1]) else 0.0}
        for metric, values in ((self._plain, plain), (self._weighted, weighted)):
            if values:
                found = metric.stateless_result(values)
                for name, value in scalars(found).items():
                    # As Keras names a metric that stands in both lists.
                    results[f"weighted_{name}" if name in results else name] = value
        return results

    def _summed(self) -> list[Any]:
        def on_replica() -> list[Any]:
            context = tf.distribute.get_replica_context()
            number = int(tf.get_static_value(context.replica_id_in_sync_group))
            own = [
                tf.identity(self._components(v)[number % self._num_local])
                for v in self._variables
            ]
            if context.num_replicas_in_sync == 1:
                return own
            summed: list[Any] = context.all_reduce(tf.distribute.ReduceOp.SUM, own)
            return summed

        values = self._strategy.run(on_replica)
        return [self._strategy.experimental_local_results(v)[0] for v in values]

    @property
    def _num_local(self) -> int:
        return len(self._components(self._variables[-1]))

    def reset(self) -> None:
        """Begin anew."""
        for variable, initial in zip(self._variables, self._initial, strict=True):
            for component in self._components(variable):
                component.assign(initial)

    def _components(self, variable: keras.Variable) -> tuple[Any, ...]:
        components: tuple[Any, ...] = self._strategy.experimental_local_results(
            variable.value
        )
        return components


def scalars(found: Mapping[str, Any]) -> dict[str, float]:
    """Return each value as a number; those of a vector as `name_0`, `name_1` and on."""
    flat: dict[str, float] = {}
    for name, value in found.items():
        numbers = np.ravel(np.asarray(value, np.float64)).tolist()
        if np.ndim(value) == 0:
            flat[name] = numbers[0]
        else:
            flat |= {f"{name}_{index}": number for index, number in enumerate(numbers)}
    return flat
