"""Where a value that is not finite came from: a feature and its rows, or a layer."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from components.trainer.columns import Layout
from components.trainer.examples import ExampleReader
from components.trainer.split import Split

MAX_ROWS = 3


def explain(
    batches: Sequence[Mapping[str, np.ndarray]],
    reader: ExampleReader,
    split: Split,
    model: keras.Model | None,
) -> str:
    """Say what carried the first value that is not finite.

    Args:
        batches: One step of each replica: [micro-batches, examples, …] each.
        reader: Knows the columns.
        split: Knows where each row lies.
        model: Asked for the first layer, where every column is finite.
    """
    for batch in batches:
        flat = {
            name: value.reshape(-1, *value.shape[2:]) for name, value in batch.items()
        }
        found = _column(flat, reader.layout, split)
        if found:
            return found
    if model is not None:
        for batch in batches:
            layer = _layer(batch, reader, model)
            if layer:
                return layer
    return (
        "every value of the batch is finite: lower trainer.learning_rate, or set "
        "trainer.clip_norm"
    )


def _column(flat: Mapping[str, np.ndarray], layout: Layout, split: Split) -> str | None:
    real = flat["mask"] > 0
    for column in layout.columns:
        if column.group != "float32":
            continue
        values = flat["float32"][:, column.offset : column.offset + column.size]
        wrong = real & ~np.isfinite(values).all(axis=1)
        if wrong.any():
            numbers = np.unique(flat["row"][wrong])
            places = [split.place(int(number)) for number in numbers[:MAX_ROWS]]
            more = len(numbers) - len(places)
            rows = "; ".join(places) + (f"; and {more} more" if more else "")
            value = values[wrong][~np.isfinite(values[wrong])][0]
            return f"{column.key} is {value} in {rows}"
    return None


def _layer(
    batch: Mapping[str, np.ndarray], reader: ExampleReader, model: keras.Model
) -> str | None:
    """Run the model layer by layer and name the first that gives NaN or inf."""
    names, tensors = [], []
    for layer in model.layers:
        if not isinstance(layer, keras.layers.InputLayer):
            names.append(layer.name)
            tensors.append(layer.output)
    probe = keras.Model(model.inputs, tensors)
    for number in range(len(batch["mask"])):
        given = reader.read({key: value[number] for key, value in batch.items()}).inputs
        found = _as_list(probe(given, training=False))
        for name, value in zip(names, found, strict=True):
            array = np.asarray(value, np.float64)
            if not np.isfinite(array).all():
                return (
                    f"every column is finite, but layer {name} gives "
                    f"{array[~np.isfinite(array)].flat[0]}: lower "
                    "trainer.learning_rate, or set trainer.clip_norm"
                )
    return None


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
