"""Transformed examples shaped like those of examples/flights, without its download.

The feature table is that of the example, its graph is made by the real Transform from
a few thousand random rows; the transformed columns are then drawn at random, ids over
all of their cardinality.

```
<folder>/transform     what Transform wrote
<folder>/train/        examples-…-of-….gz, gzipped TFRecords of tf.Examples
<folder>/eval/
```
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

EXAMPLE = Path(__file__).parents[1] / "examples/flights/taxiway.yaml"
CARDINALITIES = {
    "origin": 3,
    "carrier": 16,
    "dest": 105,
    "tailnum": 4_043,
    "engine": 6,
    "manufacturer": 35,
}
"""Distinct values of the text columns in the flights of 2013."""
NUM_RAW_ROWS = 5_000
"""What Transform analyses: enough for every value to occur."""
NUM_TRAIN_FILES = 4
"""TFX's input reads so many at once; one file would hold it back."""


@dataclass(frozen=True)
class Flights:
    """A folder of transformed examples."""

    folder: Path

    @property
    def transform(self) -> Path:
        """The folder of the Transform graph."""
        return self.folder / "transform"

    @property
    def train_files(self) -> list[str]:
        """Pattern of the train split's files."""
        return [str(self.folder / "train" / "*.gz")]

    @property
    def eval_files(self) -> list[str]:
        """Pattern of the eval split's files."""
        return [str(self.folder / "eval" / "*.gz")]


def feature_table() -> Any:
    """Return the feature table of examples/flights."""
    from components.features import FeatureTable

    settings = yaml.safe_load(EXAMPLE.read_text())
    return FeatureTable.model_validate(
        {"features": settings["features"], "label": settings["label"]}
    )


def write(folder: Path, num_train: int, num_eval: int) -> Flights:
    """Make the data; takes a minute for 200,000 examples."""
    import tensorflow_transform as tft

    flights = Flights(folder)
    table = feature_table()
    write_transform(flights.transform, table)
    transform = tft.TFTransformOutput(str(flights.transform))
    cardinalities = _cardinalities(table, transform)
    random = np.random.default_rng(1)
    for split, num_examples, num_files in (
        ("train", num_train, NUM_TRAIN_FILES),
        ("eval", num_eval, 1),
    ):
        columns = draw(cardinalities, table.label_key, num_examples, random)
        for number, rows in enumerate(
            np.array_split(np.arange(num_examples), num_files)
        ):
            path = folder / split / f"examples-{number:05d}-of-{num_files:05d}.gz"
            write_examples(path, {name: v[rows] for name, v in columns.items()})
    return flights


def write_transform(folder: Path, table: Any) -> None:
    """Run the real Transform over random rows and write its graph."""
    import apache_beam as beam
    import tensorflow as tf
    import tensorflow_transform.beam as tft_beam
    from tensorflow_transform.tf_metadata import schema_utils
    from tfx_bsl.public import tfxio

    from components.transform.preprocess import preprocessing_fn

    dtypes = {"float": tf.float32, "int": tf.int64, "string": tf.string}
    schema = schema_utils.schema_from_feature_spec(
        {n: tf.io.VarLenFeature(dtypes[d]) for n, d in table.column_dtypes().items()}
    )
    source = tfxio.TFExampleBeamRecord(
        physical_format="inmem", telemetry_descriptors=["bench"], schema=schema
    )
    config = {"feature_table": table.model_dump_json()}
    rows = list(_raw_rows(table.column_dtypes(), table.label.column))
    with (
        tft_beam.Context(temp_dir=str(folder / "tmp")),
        beam.Pipeline(runner="FnApiRunner") as pipeline,
    ):
        raw = pipeline | beam.Create(rows) | source.BeamSource()
        analyse = tft_beam.AnalyzeDataset(lambda x: preprocessing_fn(x, config))
        transform_fn = (raw, source.TensorAdapterConfig()) | analyse
        transform_fn | tft_beam.WriteTransformFn(str(folder))


def _raw_rows(dtypes: Mapping[str, str], label: str) -> Iterator[bytes]:
    import tensorflow as tf

    random = np.random.default_rng(0)
    for number in range(NUM_RAW_ROWS):
        example = tf.train.Example()
        for name, dtype in dtypes.items():
            feature = example.features.feature[name]
            if dtype == "string":
                value = f"{name} {number % CARDINALITIES[name]}"
                feature.bytes_list.value.append(value.encode())
            elif dtype == "int":
                top = 2 if name == label else 24
                feature.int64_list.value.append(int(random.integers(top)))
            else:
                feature.float_list.value.append(random.normal(50, 20))
        yield example.SerializeToString()


def _cardinalities(table: Any, transform: Any) -> dict[str, int | None]:
    """Map each model input to the number of its ids; None for numbers."""
    from components.trainer.config import TrainerSettings
    from components.trainer.inputs import describe_inputs

    described = describe_inputs(table, transform, TrainerSettings())
    return {spec.name: spec.cardinality for spec in described.inputs}


def draw(
    cardinalities: Mapping[str, int | None],
    label_key: str,
    num_examples: int,
    random: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Draw transformed columns, each [num_examples], and a label that they explain.

    Args:
        cardinalities: Of each model input; None for numbers.
        label_key: Name of the label.
        num_examples: How many.
        random: Where they come from.
    """
    columns: dict[str, np.ndarray] = {}
    odds = np.zeros(num_examples)
    for place, (name, cardinality) in enumerate(cardinalities.items()):
        effect = 0.3 * np.sin(place)
        if cardinality is None:
            columns[name] = random.normal(size=num_examples).astype(np.float32)
            odds += effect * columns[name]
        else:
            columns[name] = random.integers(0, cardinality, num_examples)
            odds += effect * (columns[name] / cardinality - 0.5)
    likely = 1 / (1 + np.exp(-odds))
    columns[label_key] = (random.random(num_examples) < likely).astype(np.int64)
    return columns


def write_examples(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    """Write transformed columns as one gzipped TFRecord file."""
    import tensorflow as tf

    path.parent.mkdir(parents=True, exist_ok=True)
    options = tf.io.TFRecordOptions(compression_type="GZIP")
    values = {name: column.tolist() for name, column in columns.items()}
    floats = {name for name, column in columns.items() if column.dtype.kind == "f"}
    with tf.io.TFRecordWriter(str(path), options) as writer:
        for row in zip(*values.values(), strict=True):
            example = tf.train.Example()
            for name, value in zip(values, row, strict=True):
                feature = example.features.feature[name]
                if name in floats:
                    feature.float_list.value.append(value)
                else:
                    feature.int64_list.value.append(value)
            writer.write(example.SerializeToString())
