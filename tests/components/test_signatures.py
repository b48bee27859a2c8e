"""Serving sees what training saw: both signatures and the training-time transform."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainer_data import write_transform

from serving.client.names import tensor_name

pytestmark = pytest.mark.integration

ROWS: list[dict[str, Any]] = [
    {"x": 1.5, "n": 3, "ci ty/µ, x": "Köln", "note": "a, b", "class": 23, "y": 1},
    {"x": -2.0, "n": 7, "ci ty/µ, x": "Oslo", "note": "", "class": 0, "y": 0},
    {"x": None, "n": None, "ci ty/µ, x": None, "note": None, "class": None, "y": 1},
    {"x": 1e6, "n": 2**40, "ci ty/µ, x": "Nowhere", "note": "\n", "class": 12, "y": 0},
    {"x": math.inf, "n": -1, "ci ty/µ, x": "Oslo", "note": "µ", "class": 6, "y": 1},
    {"x": None, "n": 3, "ci ty/µ, x": "Köln", "note": "a", "class": 23, "y": 0},
] * 20
DTYPES = {
    "x": "float",
    "n": "int",
    "ci ty/µ, x": "string",
    "note": "string",
    "class": "int",
}


@dataclass(frozen=True)
class Trained:
    """A model trained and exported from ROWS."""

    tf: Any
    table: Any
    transform: Any
    model: Any
    signatures: Any
    examples: list[bytes]
    path: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return _train(tmp_path_factory.mktemp("trained"))


def _train(folder: Path) -> Trained:
    import tensorflow as tf
    import tensorflow_transform as tft
    from tfx import v1 as tfx  # noqa: F401  first: see facts about import order

    from components.features import FeatureTable
    from components.trainer.config import TrainerSettings
    from components.trainer.export import export
    from components.trainer.inputs import describe_inputs
    from components.trainer.model import build

    table = FeatureTable.model_validate(
        {
            "label": {"column": "y", "kind": "binary"},
            "features": {
                "x": {"kind": "numeric", "missing_indicator": True},
                "x_log": {"kind": "numeric", "column": "x", "scale": "log"},
                "x_bucket": {"kind": "bucketized", "column": "x", "num_buckets": 3},
                "n": {"kind": "numeric", "dtype": "int", "missing": -1},
                "n_id": {"kind": "categorical", "column": "n", "dtype": "int"},
                "city": {"kind": "categorical", "column": "ci ty/µ, x"},
                "city_hash": {
                    "kind": "categorical",
                    "column": "ci ty/µ, x",
                    "hash_buckets": 7,
                },
                "city_x": {"kind": "crossed", "of": ["city", "x_bucket"]},
                "hour": {
                    "kind": "cyclic",
                    "column": "class",
                    "period": 24,
                    "dtype": "int",
                },
                "note": {"kind": "text"},
            },
        }
    )
    examples = [_example(row) for row in ROWS]
    write_transform(folder / "transform", table.model_dump(), examples)
    output = tft.TFTransformOutput(str(folder / "transform"))
    model = build(describe_inputs(table, output, TrainerSettings(hidden_units=(4,))))
    export(model, output, table, folder / "model")
    loaded = tf.saved_model.load(str(folder / "model"))
    return Trained(
        tf, table, output, model, loaded.signatures, examples, folder / "model"
    )


def _example(row: dict[str, Any]) -> bytes:
    import tensorflow as tf

    made = tf.train.Example()
    for name, value in row.items():
        if value is None:
            continue
        feature = made.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        elif isinstance(value, float):
            feature.float_list.value.append(value)
        else:
            feature.int64_list.value.append(value)
    return made.SerializeToString()


def _columns(tf: Any) -> dict[str, Any]:
    missing = {"float": math.nan, "int": -(2**63), "string": ""}
    types = {"float": tf.float32, "int": tf.int64, "string": tf.string}
    return {
        tensor_name(name): tf.constant(
            [[missing[dtype] if row[name] is None else row[name]] for row in ROWS],
            types[dtype],
        )
        for name, dtype in DTYPES.items()
    }


def test_both_signatures_agree_missing_values_included(trained: Trained) -> None:
    tf, signatures, examples = trained.tf, trained.signatures, trained.examples
    by_examples = signatures["serving_default"](examples=tf.constant(examples))
    by_columns = signatures["serving_columns"](**_columns(tf))
    np.testing.assert_array_equal(
        by_examples["probability"].numpy(), by_columns["probability"].numpy()
    )
    assert np.isfinite(by_columns["probability"].numpy()).all()


def test_signatures_agree_with_the_training_time_transform(trained: Trained) -> None:
    tf, output, model = trained.tf, trained.transform, trained.model
    signatures, examples = trained.signatures, trained.examples
    parsed = tf.io.parse_example(examples, output.raw_feature_spec())
    transformed = output.transform_features_layer()(parsed)
    expected = model({t.name: transformed[t.name] for t in model.inputs}).numpy()
    served = signatures["serving_default"](examples=tf.constant(examples))
    np.testing.assert_allclose(served["probability"].numpy(), expected, rtol=1e-6)


def test_a_transform_that_adds_to_the_table_keeps_its_ids_apart_from_the_rest(
    trained: Trained,
) -> None:
    from components.trainer.config import TrainerSettings
    from components.trainer.inputs import Input, describe_inputs

    fewer = {n: f for n, f in trained.table.features.items() if n != "city_hash"}
    table = trained.table.model_copy(update={"features": fewer})
    made = describe_inputs(table, trained.transform, TrainerSettings()).inputs
    by_name = {spec.name: spec for spec in made}
    assert made[-1] == by_name["city_hash"]
    assert (by_name["city_hash"].dtype, by_name["city_hash"].cardinality) == (
        "int64",
        None,
    )
    distinct_and_missing = 4
    assert by_name["city"].cardinality == distinct_and_missing + 1
    assert by_name["x"] == Input("x", "float32")


def test_serving_columns_take_every_input_column_and_no_label(trained: Trained) -> None:
    table, signatures = trained.table, trained.signatures
    _, inputs = signatures["serving_columns"].structured_input_signature
    assert set(inputs) == set(map(tensor_name, table.input_columns()))


def test_the_label_signature_gives_the_label_as_trained_on(trained: Trained) -> None:
    tf, table = trained.tf, trained.table
    signatures, examples = trained.signatures, trained.examples
    made = signatures["transform_label"](examples=tf.constant(examples))
    assert list(made) == [table.label_key]
    assert made[table.label_key].numpy().ravel().tolist() == [row["y"] for row in ROWS]


def test_transformed_numbers_are_finite_whatever_the_input(trained: Trained) -> None:
    tf, output, examples = trained.tf, trained.transform, trained.examples
    parsed = tf.io.parse_example(examples, output.raw_feature_spec())
    for name, value in output.transform_features_layer()(parsed).items():
        if value.dtype.is_floating:
            assert np.isfinite(value.numpy()).all(), name


def test_a_session_loader_serves_it_as_tensorflow_serving_would(
    trained: Trained,
) -> None:
    tf, signatures, examples = trained.tf, trained.signatures, trained.examples
    from serving.server.loader import LoadedModel

    model = LoadedModel(trained.path)
    served = model.run("serving_default", {"examples": np.array(examples, object)}, [])
    model.close()
    expected = signatures["serving_default"](examples=tf.constant(examples))
    np.testing.assert_allclose(
        served["probability"], expected["probability"].numpy(), rtol=1e-6
    )


def test_a_text_value_of_the_empty_string_is_missing_in_both(trained: Trained) -> None:
    tf, signatures = trained.tf, trained.signatures
    empty = _example({**ROWS[0], "note": ""})
    absent = _example({**ROWS[0], "note": None})
    one, other = signatures["serving_default"](examples=tf.constant([empty, absent]))[
        "probability"
    ].numpy()
    assert one == other
