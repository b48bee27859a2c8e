"""All that training changes: mirrored variables, read and written replica by replica.

Every replica computes its own update from the same reduced gradients, so the copies
of a variable stay equal without tf.distribute writing them.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from components.trainer.keras_internals import PureOptimizer
from components.trainer.precision import INITIAL_SCALE

Group = Literal["trainable", "non_trainable", "optimizer", "ema", "loss_scale"]
Values = dict[Group, list[Any]]
SEED_STATE = "seed_generator_state"
SEED_STRIDE = 1_000_003
"""Between the seeds of two replicas, so that dropout differs between them."""


class TrainState:
    """The variables of a run; built inside the strategy's scope."""

    def __init__(
        self,
        strategy: Any,
        model: keras.Model,
        optimizer: PureOptimizer,
        *,
        with_ema: bool,
    ) -> None:
        self._strategy = strategy
        trainable = list(model.trainable_variables)
        ema = [_variable(f"ema/{v.path}", v.numpy()) for v in trainable if with_ema]
        scale = [
            _variable("loss_scale/scale", np.float32(INITIAL_SCALE)),
            _variable("loss_scale/good_steps", np.int64(0)),
        ]
        self._averages = ema or optimizer.averages
        self.variables: dict[Group, list[keras.Variable]] = {
            "trainable": trainable,
            "non_trainable": list(model.non_trainable_variables),
            "optimizer": list(optimizer.variables),
            "ema": ema,
            "loss_scale": scale,
        }

    def components(self, variable: keras.Variable) -> tuple[Any, ...]:
        """Return the copies of a variable on this process's replicas."""
        copies: tuple[Any, ...] = self._strategy.experimental_local_results(
            variable.value
        )
        return copies

    def specs(self, group: Group) -> list[tf.TensorSpec]:
        """Return shape and dtype of each value of a group."""
        return [tf.TensorSpec(v.shape, v.dtype) for v in self.variables[group]]

    def read(self, replica: int) -> Values:
        """Return the values on one replica of this process."""
        return {
            group: [
                tf.convert_to_tensor(self.components(variable)[replica])
                for variable in variables
            ]
            for group, variables in self.variables.items()
        }

    def write(self, replica: int, values: Mapping[Group, Sequence[Any]]) -> None:
        """Set the values on one replica of this process."""
        for group, given in values.items():
            for variable, value in zip(self.variables[group], given, strict=True):
                self.components(variable)[replica].assign(value)

    def named(self) -> dict[str, Any]:
        """Return the first replica's copies by a name that stays the same."""
        return {
            f"{group}/{number:04d}/{variable.path}": self.components(variable)[0]
            for group, variables in self.variables.items()
            for number, variable in enumerate(variables)
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set every copy from `{name: value}`."""
        names = iter(self.named())
        for variables in self.variables.values():
            for variable in variables:
                value = values[next(names)]
                for component in self.components(variable):
                    component.assign(value)

    def weights(self) -> list[np.ndarray]:
        """Return the model's weights, averaged where an average is kept."""
        weights = self._averages or self.variables["trainable"]
        return [self.components(v)[0].numpy() for v in weights]

    def other_weights(self) -> list[np.ndarray]:
        """Return what the model holds beside its weights: statistics, seeds."""
        return [self.components(v)[0].numpy() for v in self.variables["non_trainable"]]

    def digest(self) -> str:
        """Return the sha256 of the trainable weights of the first replica."""
        return digest(
            self.components(v)[0].numpy() for v in self.variables["trainable"]
        )


def digest(arrays: Iterable[np.ndarray]) -> str:
    """Return the sha256 of the bytes of arrays, in order."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def averaged(value: Any) -> bool:
    """Tell whether replicas take the mean of a non-trainable value: all floats."""
    return bool(tf.as_dtype(value.dtype).is_floating)


def per_replica_seeds(
    variables: Sequence[keras.Variable], values: Sequence[Any], offset: Any
) -> list[Any]:
    """Return non-trainable values with the state of seed generators moved.

    Args:
        variables: The non-trainable variables, for their names.
        values: Their values.
        offset: [] int64, added to each seed; the replica's number times
            `SEED_STRIDE`, or minus that to undo it.
    """
    return [
        value + tf.cast(tf.stack([offset, 0]), value.dtype)
        if variable.path.endswith(SEED_STATE)
        else value
        for variable, value in zip(variables, values, strict=True)
    ]


def _variable(name: str, value: Any) -> keras.Variable:
    return keras.Variable(
        value, dtype=str(value.dtype), trainable=False, name=name.replace("/", "_")
    )
