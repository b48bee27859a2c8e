"""What a model and its loss take of a batch of packed columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from components.trainer.columns import Layout


class Examples(NamedTuple):
    """One micro-batch."""

    inputs: dict[str, Any]
    """[batch, …] each, by the model's input."""
    label: Any
    """[batch, 1]."""
    weight: Any
    """[batch] float32, 0 where the mask is."""
    mask: Any
    """[batch] float32, 0 for rows that only fill up."""


@dataclass(frozen=True)
class ExampleReader:
    """Knows which column is what."""

    layout: Layout
    input_names: Sequence[str]
    label_key: str
    weight_key: str | None

    def read(self, batch: Mapping[str, Any]) -> Examples:
        """Take a micro-batch apart.

        Args:
            batch: `{float32, int64: [batch, width], mask: [batch]}`.
        """
        columns = self.layout.unpack(batch)
        mask = batch["mask"]
        weight = mask
        if self.weight_key is not None:
            given = tf.cast(tf.reshape(columns[self.weight_key], [-1]), tf.float32)
            weight = tf.where(mask > 0, given, 0.0)
        inputs = {name: columns[name] for name in self.input_names}
        return Examples(inputs, columns[self.label_key], weight, mask)


def batch_specs(
    layout: Layout, micro_batches: int, examples: int
) -> dict[str, tf.TensorSpec]:
    """Return shape and dtype of what a replica computes in one step."""
    shape = [micro_batches, examples]
    packed = {
        group: tf.TensorSpec([*shape, width], group)
        for group, width in layout.widths.items()
    }
    return {**packed, "mask": tf.TensorSpec(shape, tf.float32)}
