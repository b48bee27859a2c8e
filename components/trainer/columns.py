"""Many narrow columns as one matrix for each dtype, and back.

A batch of twenty columns is moved as two tensors: gathering, copying to a device and
slicing cost by the tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tensorflow as tf

from components.errors import ModelError

Group = Literal["float32", "int64"]
GROUPS: tuple[Group, ...] = ("float32", "int64")
Packed = dict[str, Any]
"""By group: [batch, width]."""


@dataclass(frozen=True)
class Column:
    """Where one column lies."""

    key: str
    group: Group
    offset: int
    shape: tuple[int, ...]
    """Shape of one example's value, at least of rank 1."""

    @property
    def size(self) -> int:
        """Numbers in one example's value."""
        size = 1
        for length in self.shape:
            size *= length
        return size


@dataclass(frozen=True)
class Layout:
    """The columns of a split, in the order of their names."""

    columns: tuple[Column, ...]

    @property
    def widths(self) -> dict[str, int]:
        """Numbers of one example in each group that has any."""
        widths: dict[str, int] = {
            group: sum(c.size for c in self.columns if c.group == group)
            for group in GROUPS
        }
        return {group: width for group, width in widths.items() if width}

    @property
    def row_bytes(self) -> int:
        """Bytes of one packed example."""
        size = {"float32": 4, "int64": 8}
        return sum(size[group] * width for group, width in self.widths.items())

    def keys(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.key for column in self.columns)

    def pack(self, parsed: Mapping[str, Any]) -> Packed:
        """Put `{key: [batch, *shape]}` side by side."""
        packed: Packed = {}
        for group in self.widths:
            flat = [
                tf.reshape(tf.cast(parsed[column.key], group), [-1, column.size])
                for column in self.columns
                if column.group == group
            ]
            packed[group] = tf.concat(flat, axis=1)
        return packed

    def unpack(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Take `{group: [batch, width]}` apart: `{key: [batch, *shape]}`."""
        values = {}
        for column in self.columns:
            matrix = packed[column.group]
            part = matrix[:, column.offset : column.offset + column.size]
            if column.shape != (column.size,):
                part = tf.reshape(part, [-1, *column.shape])
            values[column.key] = part
        return values


def layout(spec: Mapping[str, Any]) -> Layout:
    """Lay out the numeric columns of a feature spec; text cannot be trained on.

    Raises:
        ModelError: A column has no fixed shape.
    """
    offsets = dict.fromkeys(GROUPS, 0)
    columns = []
    for key, feature in sorted(spec.items()):
        if feature.dtype == tf.string:
            continue
        if not isinstance(feature, tf.io.FixedLenFeature):
            raise ModelError(
                f"transform.preprocessing_fn returns {key} as a sparse tensor, "
                "allowed: a dense one; components.transform.preprocess shows how"
            )
        group: Group = "float32" if feature.dtype.is_floating else "int64"
        shape = tuple(int(length) for length in feature.shape) or (1,)
        column = Column(key, group, offsets[group], shape)
        offsets[group] += column.size
        columns.append(column)
    return Layout(tuple(columns))
