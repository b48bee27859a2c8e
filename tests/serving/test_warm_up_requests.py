"""Warm-up requests are what clients would send, and servers can replay them."""

import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving import apis, tfrecord
from serving.model_repository import ModelRepository
from serving.saved_model import Signature, TensorSpec, check_servable
from serving.server.loader import LoadedModel
from serving.server.warmup import WarmUpOptions, warm_up
from serving.tensors import to_array
from serving.warm_up_requests import CLASSIFY, FILE, write

DATA = Path(__file__).parents[1] / "data"
PREDICT = "tensorflow/serving/predict"
Y = {"y": TensorSpec("DT_FLOAT", (-1, 1))}


def example(**values: Any) -> bytes:
    built = apis.Example()
    for name, value in values.items():
        feature = built.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif isinstance(value, int):
            feature.int64_list.value.append(value)
        elif value is not None:
            feature.float_list.value.append(value)
    content: bytes = built.SerializeToString(deterministic=True)
    return content


def logs(file: Path) -> list[Any]:
    with file.open("rb") as records:
        return [apis.PredictionLog.FromString(r) for r in tfrecord.read(records)]


def predict(**inputs: TensorSpec) -> dict[str, Signature]:
    return {"s": Signature(PREDICT, inputs, Y)}


def test_columns_are_filled_from_the_examples_missing_cells_included(
    tmp_path: Path,
) -> None:
    signatures = predict(
        f=TensorSpec("DT_FLOAT", (-1, 1)),
        i=TensorSpec("DT_INT64", (-1, 1)),
        t=TensorSpec("DT_STRING", (-1,)),
    )
    rows = [example(f=1.5, i=2, t=b"a"), example(f=None, i=None, t=None)]
    assert write(tmp_path / "w", "m", signatures, rows, (2, 3)) == []
    two, three = logs(tmp_path / "w")
    spec = two.predict_log.request.model_spec
    assert (spec.name, spec.signature_name) == ("m", "s")
    inputs = {k: to_array(v) for k, v in two.predict_log.request.inputs.items()}
    np.testing.assert_array_equal(inputs["f"], [[1.5], [np.nan]])
    assert inputs["i"].tolist() == [[2], [-(2**63)]]
    assert inputs["t"].tolist() == [b"a", b""]
    again = to_array(three.predict_log.request.inputs["f"])
    np.testing.assert_array_equal(again, [[1.5], [np.nan], [1.5]])


def test_signatures_that_take_examples_get_them(tmp_path: Path) -> None:
    spec = {"inputs": TensorSpec("DT_STRING", (-1,))}
    signatures = {
        "c": Signature(CLASSIFY, spec, Y),
        "p": Signature(PREDICT, spec, Y),
    }
    rows = [example(x=1.0)]
    assert write(tmp_path / "w", "m", signatures, rows, (1,)) == []
    classify, asked = logs(tmp_path / "w")
    taken = classify.classify_log.request.input.example_list.examples
    assert [e.SerializeToString() for e in taken] == rows
    assert to_array(asked.predict_log.request.inputs["inputs"]).tolist() == rows


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"z": TensorSpec("DT_FLOAT", (-1, 1))}, "the examples have no z"),
        ({"x": TensorSpec("DT_FLOAT", (-1, 20))}, "input x is no column"),
        ({"x": TensorSpec("DT_FLOAT", None)}, "input x is no column"),
        ({}, "it has no input"),
    ],
)
def test_signatures_that_cannot_be_fed_are_told(
    tmp_path: Path, inputs: dict[str, TensorSpec], reason: str
) -> None:
    notes = write(tmp_path / "w", "m", predict(**inputs), [example(x=1.0)], (1,))
    assert len(notes) == 1
    assert notes[0].startswith(f"signature s is not warmed up: {reason}")
    assert not (tmp_path / "w").exists()


def test_without_examples_nothing_is_warmed_up(tmp_path: Path) -> None:
    spec = TensorSpec("DT_STRING", (-1,))
    assert write(tmp_path / "w", "m", predict(x=spec), [], (1,)) == [
        "signature s is not warmed up: there is no example"
    ]


@pytest.mark.integration
def test_server_replays_them_for_a_model_of_the_pipeline(tmp_path: Path) -> None:
    answers = json.loads((DATA / "flights" / "answers.json").read_text())
    rows = [b64decode(text) for text in answers["examples"]]
    version = tmp_path / "1"
    shutil.copytree(DATA / "flights" / "model" / "1", version)
    signatures = check_servable(version)
    notes = write(version / FILE, "flights", signatures, rows, (1, 32))
    assert [note for note in notes if "serving" in note] == []
    model = LoadedModel(version)
    number = warm_up(model, version, WarmUpOptions())
    model.close()
    assert number == 2 * (len(signatures) - len(notes))
    assert number >= 4


def test_completed_copy_is_what_is_published(tmp_path: Path) -> None:
    source = DATA / "conformance" / "models" / "half_plus_two" / "00000123"
    repository = ModelRepository(tmp_path / "models", "m")

    def complete(copy: Path) -> None:
        (copy / "assets.extra").mkdir(exist_ok=True)
        (copy / "assets.extra" / "more").write_text("x")

    assert repository.publish(source, complete=complete).is_new
    assert not repository.publish(source, complete=complete).is_new
    manifest = repository.manifest(1)
    assert manifest is not None
    assert "assets.extra/more" in manifest.files
    assert repository.verify(1) == []
    assert repository.publish(source).version == 2
