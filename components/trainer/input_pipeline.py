"""Transformed examples as batches of `(inputs, label[, weight])`."""

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_transform as tft

from components.features import FeatureTable

SHUFFLE_BUFFER = 100_000


def dataset(
    file_patterns: list[str],
    table: FeatureTable,
    transform: tft.TFTransformOutput,
    names: Sequence[str],
    batch_size: int,
    shuffle_seed: int | None = None,
) -> tf.data.Dataset:
    """Read a split once, in batches of `[batch, 1]` columns.

    Whole batches are parsed at once: parsing row by row costs more than training.

    Args:
        file_patterns: Gzipped TFRecord files of transformed tf.Examples.
        table: Says which columns are the label and the weight.
        transform: Its feature spec parses the examples.
        names: Columns that are the model's inputs.
        batch_size: Examples in a batch; the last may be smaller.
        shuffle_seed: Order by this seed, anew in each epoch; None keeps the order.
    """
    spec = transform.transformed_feature_spec()
    files = tf.data.Dataset.list_files(file_patterns, shuffle=False)
    records = files.interleave(
        lambda file: tf.data.TFRecordDataset(file, compression_type="GZIP"),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    if shuffle_seed is not None:
        records = records.shuffle(SHUFFLE_BUFFER, seed=shuffle_seed)

    def parse(batch: tf.Tensor) -> tuple[dict[str, tf.Tensor] | tf.Tensor, ...]:
        columns = tf.io.parse_example(batch, spec)
        columns = {
            key: tf.sparse.to_dense(value)
            if isinstance(value, tf.SparseTensor)
            else value
            for key, value in columns.items()
        }
        inputs = {name: columns[name] for name in names}
        label = columns[table.label_key]
        if table.weight_key is None:
            return inputs, label
        return inputs, label, columns[table.weight_key]

    batches = records.batch(batch_size).map(
        parse, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    return batches.prefetch(tf.data.AUTOTUNE)
