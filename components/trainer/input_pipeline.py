"""Feeds replicas with chunks of batches, read by tf.data while the devices compute.

An element is what one replica computes in a chunk, a dict:

```
float32, int64   [steps, micro-batches, examples, width]  packed columns
mask             [steps, micro-batches, examples] float32 0 for rows that fill up
row              [steps, micro-batches, examples] int64   numbers of the examples
```
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import tensorflow as tf

from components.trainer.batches import BatchPlan, epoch_order
from components.trainer.columns import Layout
from components.trainer.split import ROW_BITS, Split, parser

PREFETCHED_CHUNKS = 2


@dataclass(frozen=True)
class Reading:
    """How a split is read by this process."""

    split: Split
    layout: Layout
    plan: BatchPlan
    replicas: range
    """Replicas of this process, among those of the plan."""
    seed: int | None = None
    """Shuffle by it, anew in each epoch; None keeps the order."""
    shuffle_buffer: int = 100_000
    """Examples that are mixed at a time where the split is not cached."""
    service: str | None = None
    """Address of a tf.data service that does the reading."""


def distribute(
    strategy: Any, reading: Reading, first_epoch: int = 0, first_chunk: int = 0
) -> Iterator[Any]:
    """Return the per-replica elements of all epochs from a position on, without end."""
    dataset = chunks(reading, first_epoch, first_chunk)
    options = tf.data.Options()
    options.deterministic = True
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    # Endless: a dataset that may end is asked on all replicas whether it has.
    dataset = dataset.with_options(options).repeat()
    return iter(strategy.distribute_datasets_from_function(lambda _: dataset))


def chunks(reading: Reading, first_epoch: int = 0, first_chunk: int = 0) -> Any:
    """Return the elements of this process's replicas, in turn, chunk after chunk."""
    if reading.split.rows is None or reading.service is not None:
        dataset = _streamed(reading, first_epoch, first_chunk)
    else:
        dataset = _gathered(reading, reading.split.rows, first_epoch, first_chunk)
    return dataset.prefetch(PREFETCHED_CHUNKS * len(reading.replicas))


def _gathered(
    reading: Reading, rows: Any, first_epoch: int, first_chunk: int
) -> tf.data.Dataset:
    plan = reading.plan
    shape = (plan.chunk_steps, plan.accumulation, plan.micro_batch_size)

    def numbers() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for epoch in count(first_epoch):
            begin = first_chunk if epoch == first_epoch else 0
            for chunk, mask in plan.chunks(_order(reading, epoch), begin):
                for replica in reading.replicas:
                    yield chunk[:, replica], mask[:, replica]

    take = {group: _taker(matrix) for group, matrix in rows.items()}

    def gather(row: Any, mask: Any) -> dict[str, Any]:
        element = {group: function(row) for group, function in take.items()}
        return {**element, "mask": mask, "row": row}

    return tf.data.Dataset.from_generator(
        numbers,
        output_signature=(
            tf.TensorSpec(shape, tf.int64),
            tf.TensorSpec(shape, tf.float32),
        ),
    ).map(gather, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def _order(reading: Reading, epoch: int) -> np.ndarray:
    num_examples = reading.split.num_examples
    if reading.seed is None:
        return np.arange(num_examples)
    return epoch_order(num_examples, reading.seed, epoch)


def _taker(matrix: np.ndarray) -> Any:
    """Return a function from numbers of any shape to the rows that they name."""
    width = matrix.shape[1]
    if not isinstance(matrix, np.memmap):
        with tf.device("CPU:0"):
            tensor = tf.constant(matrix)
        return lambda row: tf.gather(tensor, row)

    def take(row: Any) -> Any:
        taken = tf.numpy_function(matrix.__getitem__, [row], matrix.dtype)
        return tf.ensure_shape(taken, [*row.shape, width])

    return take


def _streamed(reading: Reading, first_epoch: int, first_chunk: int) -> tf.data.Dataset:
    plan = reading.plan
    chunk_size = plan.chunk_steps * plan.batch_size
    kept = min(reading.split.num_examples, plan.steps_per_epoch * plan.batch_size)

    def epoch_chunks(epoch: Any) -> tf.data.Dataset:
        records = _records(reading, epoch)
        if reading.service is not None:  # its workers go round at their own pace
            return records.repeat().batch(chunk_size, drop_remainder=True)
        return records.take(kept).batch(chunk_size)

    epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
    dataset = epochs.flat_map(epoch_chunks).skip(first_chunk)
    dataset = dataset.map(
        _chunk_parser(reading), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    if reading.service is not None:
        dataset = dataset.apply(
            tf.data.experimental.service.distribute(
                tf.data.experimental.service.ShardingPolicy.OFF, reading.service
            )
        )
    return dataset.unbatch()


def _records(reading: Reading, epoch: Any) -> tf.data.Dataset:
    """Return `(row number, serialized example)`, shuffled."""
    files = reading.split.files

    def numbered(file: Any, name: Any) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(name, compression_type="GZIP").enumerate()
        return records.map(lambda row, record: (file * (1 << ROW_BITS) + row, record))

    records = (
        tf.data.Dataset.from_tensor_slices(list(files))
        .enumerate()
        .interleave(
            numbered,
            cycle_length=min(len(files), 16),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
    )
    if reading.seed is None:
        return records
    return records.shuffle(
        reading.shuffle_buffer,
        seed=reading.seed + epoch,
        reshuffle_each_iteration=reading.service is not None,
    )


def _chunk_parser(reading: Reading) -> Any:
    plan, parse = reading.plan, parser(reading.layout)
    steps, replicas, micro_batches, examples = plan.chunk_shape
    size = steps * plan.batch_size
    first, mine = reading.replicas.start, len(reading.replicas)

    def own(values: Any) -> Any:
        """Cut [chunk examples, …] down to this process's replicas, in front."""
        rest = values.shape[1:]
        cut = tf.reshape(values, [steps, replicas, micro_batches, examples, *rest])
        cut = cut[:, first : first + mine]
        return tf.transpose(cut, [1, 0, 2, 3, *range(4, 4 + len(rest))])

    def parse_chunk(row: Any, record: Any) -> dict[str, Any]:
        present = tf.size(row)
        places = tf.range(size)
        mask = tf.cast(places < present, tf.float32)
        # As BatchPlan.chunks: the incomplete batch is filled up with its own rows.
        last = (present - 1) // plan.batch_size * plan.batch_size
        again = last + (places - last) % (present - last)
        places = tf.where(places < present, places, again)
        records = tf.reshape(own(tf.gather(record, places)), [-1])
        packed = {
            group: tf.reshape(
                matrix, [mine, steps, micro_batches, examples, matrix.shape[1]]
            )
            for group, matrix in parse(records).items()
        }
        return {**packed, "mask": own(mask), "row": own(tf.gather(row, places))}

    return parse_chunk
