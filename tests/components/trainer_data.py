"""Makes what the Trainer reads: a Transform graph and transformed examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TABLE = {
    "label": {"column": "y", "kind": "binary"},
    "weight": "w",
    "features": {
        "x": {"kind": "numeric"},
        "z": {"kind": "numeric"},
        "city": {"kind": "categorical"},
    },
}
CITIES = ("Bonn", "Köln", "Oslo", "Rome")


def write_transform(
    folder: Path, table: Mapping[str, Any], rows: Sequence[bytes] | None = None
) -> None:
    """Run the real Transform over serialized raw rows, or a few, and write its graph."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import (
        dataset_metadata,
        metadata_io,
        schema_utils,
    )
    from tfx_bsl.public import tfxio

    from components.features import FeatureTable
    from components.transform.preprocess import preprocessing_fn

    made = FeatureTable.model_validate(table)
    dtypes = {"float": tf.float32, "int": tf.int64, "string": tf.string}
    schema = schema_utils.schema_from_feature_spec(
        {n: tf.io.VarLenFeature(dtypes[d]) for n, d in made.column_dtypes().items()}
    )
    source = tfxio.TFExampleBeamRecord(
        physical_format="inmem", telemetry_descriptors=["test"], schema=schema
    )
    if rows is None:
        rows = [_raw(number, made.column_dtypes()) for number in range(40)]
    with (
        tft_beam.Context(temp_dir=str(folder / "tmp")),
        beam.Pipeline(runner="FnApiRunner") as pipeline,
    ):
        raw = pipeline | beam.Create(rows) | source.BeamSource()
        analyse = tft_beam.AnalyzeDataset(
            lambda inputs: preprocessing_fn(
                inputs, {"feature_table": made.model_dump_json()}
            )
        )
        transform_fn = (raw, source.TensorAdapterConfig()) | analyse
        transform_fn | tft_beam.WriteTransformFn(str(folder))
    metadata_io.write_metadata(
        dataset_metadata.DatasetMetadata(schema), str(folder / "metadata")
    )


def _raw(number: int, dtypes: Mapping[str, str]) -> bytes:
    import tensorflow as tf

    example = tf.train.Example()
    for name, dtype in dtypes.items():
        feature = example.features.feature[name]
        if dtype == "string":
            feature.bytes_list.value.append(CITIES[number % len(CITIES)].encode())
        elif dtype == "int":
            feature.int64_list.value.append(number % 2)
        else:
            feature.float_list.value.append(number / 10)
    return example.SerializeToString()


def columns(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Return transformed columns that a small model can learn from."""
    random = np.random.default_rng(seed)
    x, z = random.normal(size=(2, count)).astype(np.float32)
    city = random.integers(0, len(CITIES), count)
    odds = 1 / (1 + np.exp(-(2 * x - z + (city - 1.5))))
    return {
        "x": x,
        "z": z,
        "city": city,
        "y__label": (random.random(count) < odds).astype(np.int64),
        "w__weight": random.uniform(0.5, 2.0, count).astype(np.float32),
    }


def write_examples(path: Path, values: Mapping[str, np.ndarray]) -> None:
    """Write transformed columns as one gzipped TFRecord file."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for number in range(len(next(iter(values.values())))):
            example = tf.train.Example()
            for name, column in values.items():
                feature, value = example.features.feature[name], column[number]
                if column.dtype.kind == "f":
                    feature.float_list.value.append(value)
                else:
                    feature.int64_list.value.append(value)
            writer.write(example.SerializeToString())
