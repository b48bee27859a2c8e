"""The loss of an effective batch, as sums that parts of the batch can add up.

A loss is `Σ numerators / Σ denominators` over micro-batches and replicas, so that the
gradient does not depend on how the batch was cut, an incomplete last part included.
By Keras' reductions, with l the loss and w the weight of an example, 0 for those that
only fill up:

```
sum_over_batch_size, mean     Σ w·l / number of examples
mean_with_sample_weight       Σ w·l / Σ w
sum                           Σ w·l
```
"""

from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from components.errors import ModelError
from components.trainer.examples import ExampleReader

REDUCTIONS = ("mean", "mean_with_sample_weight", "sum", "sum_over_batch_size")


@dataclass(frozen=True)
class Objective:
    """A Keras loss, cut into what each micro-batch adds."""

    loss: keras.Loss
    micro_batch_size: int
    """Examples that each part holds, filled up."""
    num_parts: int
    """Micro-batches of an effective batch, over all replicas."""
    weight: float = 1.0
    """What `compile(loss_weights=…)` multiplies the loss by."""

    def __post_init__(self) -> None:
        """Refuse what cannot be cut."""
        if self.loss.reduction not in REDUCTIONS:
            raise ModelError(
                f"trainer.model: loss {self.loss.name} has reduction "
                f"{self.loss.reduction!r}, allowed: {', '.join(REDUCTIONS)}"
            )

    def part(
        self, label: Any, prediction: Any, weight: Any, mask: Any
    ) -> tuple[Any, Any]:
        """Return numerator and denominator of one micro-batch, each [] float32.

        Args:
            label: [batch, …].
            prediction: [batch, outputs] float32.
            weight: [batch] float32, 0 where the mask is.
            mask: [batch] float32, 0 for rows that only fill up.

        Raises:
            ModelError: The loss does not give one value for each example.
        """
        # As Keras' Loss.__call__ does: a loss of the user's own may not cast.
        label = tf.cast(label, prediction.dtype)
        losses = self.loss.call(label, prediction)
        if losses.shape.rank == 0 or losses.shape[0] != self.micro_batch_size:
            raise ModelError(
                f"trainer.model: loss {self.loss.name} returns shape {losses.shape}, "
                f"allowed: one value for each of the {self.micro_batch_size} examples"
            )
        rest = list(range(1, losses.shape.rank))
        reduce = tf.reduce_sum if self.loss.reduction == "sum" else tf.reduce_mean
        losses = tf.cast(reduce(losses, rest) if rest else losses, tf.float32)
        # A row that only fills up may have a loss that is not finite: 0 · inf is NaN.
        losses = tf.where(mask > 0, losses, 0.0)
        total = tf.reduce_sum(losses * weight) * self.weight
        size = float(self.micro_batch_size)
        if self.loss.reduction == "sum":
            return total, tf.constant(1.0 / self.num_parts)
        counted = weight if self.loss.reduction == "mean_with_sample_weight" else mask
        return total / size, tf.reduce_sum(counted) / size


@dataclass(frozen=True)
class Problem:
    """What is learnt: a model, what it reads, and what it is measured by."""

    model: keras.Model
    reader: ExampleReader
    objective: Objective
