"""The Trainer trains and reports as `fit` does, and refuses what it would not."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from components.errors import ModelError
from components.trainer.config import TrainerSettings
from components.trainer.inputs import Input, ModelInputs
from components.trainer.keras_internals import compiled_loss_weight, compiled_metrics
from components.trainer.metrics import scalars
from components.trainer.model import check_model, check_training

SCRIPT = Path(__file__).with_name("trainer_as_keras.py")
CASES = ("metrics", "loss_weights", "unused", "sum", "mean_with_sample_weight")
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def found(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = tmp_path_factory.mktemp("as_keras") / "result.json"
    root = SCRIPT.parents[2]
    subprocess.run(
        [sys.executable, str(SCRIPT), str(small_data), str(result)],
        check=True,
        env={
            **os.environ,
            "TF_USE_LEGACY_KERAS": "0",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONPATH": str(root),
        },
    )
    return json.loads(result.read_text())


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES)
def test_weights_and_figures_are_those_of_fit(
    found: Mapping[str, Any], case: str
) -> None:
    one = found[case]
    assert max(one["weights"]) < TOLERANCE
    expected = {}
    for name, values in one["fit"].items():
        if len(values) == 1:
            expected[name] = values[0]
        else:
            expected |= {f"{name}_{i}": value for i, value in enumerate(values)}
    flat = {
        name.removesuffix("_0") if name not in expected else name: value
        for name, value in one["ours"].items()
    }
    assert flat.keys() == expected.keys()
    for name, value in expected.items():
        assert flat[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name


def test_vector_of_a_metric_has_a_name_for_each_number() -> None:
    found = {"f1": np.array([0.5, 0.25]), "auc": np.float32(0.75)}
    assert scalars(found) == {"f1_0": 0.5, "f1_1": 0.25, "auc": 0.75}


INPUTS = ModelInputs(
    (Input("x", "float32"), Input("z", "float32")), "binary", 1, TrainerSettings()
)


def model(**compiled: Any) -> keras.Model:
    x = keras.Input((1,), name="x")
    built = keras.Model(x, keras.layers.Dense(1)(x))
    built.compile("sgd", "mse", **compiled)
    return built


def test_metric_called_loss_is_refused() -> None:
    named = keras.metrics.MeanSquaredError(name="loss")
    with pytest.raises(ModelError, match="a metric called 'loss'"):
        check_training(model(metrics=[named]), "mine")
    check_training(model(metrics=["auc"]), "mine")


@pytest.mark.parametrize(
    ("given", "weight"), [(None, 1.0), (0.5, 0.5), ([0.0], 0.0), ({"y": 2.0}, 2.0)]
)
def test_loss_weight_is_what_compile_was_given(given: Any, weight: float) -> None:
    x = keras.Input((1,), name="x")
    built = keras.Model(x, keras.layers.Dense(1, name="y")(x))
    built.compile("sgd", "mse", loss_weights=given)
    assert compiled_loss_weight(built) == weight


class Late(keras.metrics.Metric):
    """Makes its variable when it is first updated."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total = self.add_variable((), "zeros", name="total")

    def result(self) -> Any:
        return self.total


def test_metric_without_variables_is_refused_and_a_late_auc_is_built() -> None:
    label, prediction = keras.KerasTensor((4, 2)), keras.KerasTensor((4, 2))
    with pytest.raises(ModelError, match="metric late has no variables before"):
        compiled_metrics(model(metrics=[Late(name="late")]), label, prediction)
    auc = keras.metrics.AUC(multi_label=True)
    plain, _ = compiled_metrics(model(metrics=[auc]), label, prediction)
    assert plain.variables


def test_layer_that_assigns_its_trainable_weight_is_refused() -> None:
    x = keras.Input((1,), name="x")
    layer = keras.layers.SpectralNormalization(keras.layers.Dense(1))
    built = keras.Model(x, layer(x))
    built.compile("sgd", "mse")
    with pytest.raises(ModelError, match=r"assigns its trainable weight \S*kernel"):
        check_training(built, "mine")


def test_output_inside_a_dict_is_refused() -> None:
    x = keras.Input((1,), name="x")
    built = keras.Model(x, {"y": keras.layers.Dense(1)(x)})
    with pytest.raises(ModelError, match="returns its output inside a dict"):
        check_model(built, INPUTS, "mine")


def test_input_under_another_key_than_its_name_is_refused() -> None:
    x, z = keras.Input((1,), name="x"), keras.Input((1,), name="z")
    y = keras.layers.Dense(1)(keras.ops.concatenate([x, z]))
    with pytest.raises(ModelError, match="input 'z' under the key 'x'"):
        check_model(keras.Model({"x": z, "z": x}, y), INPUTS, "mine")
    check_model(keras.Model({"x": x, "z": z}, y), INPUTS, "mine")
