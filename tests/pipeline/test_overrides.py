"""Settings from the command line and the environment: what wins, what is refused."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from pipeline.config import ProjectSettings, load_settings
from pipeline.errors import SettingsError

BASE = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  DepDelay: {kind: numeric}
trainer: {epochs: 1}
evaluator: {slices: [origin]}
"""
KNOWN = (
    "known here: accumulation_steps, all_reduce, batch_size, checkpoints, clip_norm, "
    "cpu_devices, deterministic, device, dropout, early_stopping_patience, "
    "ema_momentum, embedding_dim, epochs, hidden_units, input, last_batch, "
    "learning_rate, memory_retries, model, nan_policy, num_local_servers, "
    "num_local_workers, precision, "
    "seed, steps_per_execution, strategy, tensorboard, workers, xla"
)


def load(
    folder: Path, *overrides: str, environ: Mapping[str, str] | None = None
) -> ProjectSettings:
    (folder / "taxiway.yaml").write_text(BASE)
    return load_settings(folder, overrides, environ or {})


def refusal(
    folder: Path, *overrides: str, environ: Mapping[str, str] | None = None
) -> str:
    with pytest.raises(SettingsError) as caught:
        load(folder, *overrides, environ=environ)
    return str(caught.value)


def test_the_command_line_wins_over_the_environment_over_the_file(
    tmp_path: Path,
) -> None:
    environ = {"TAXIWAY__TRAINER__EPOCHS": "2"}
    assert load(tmp_path).trainer.epochs == 1
    assert load(tmp_path, environ=environ).trainer.epochs == 2
    assert load(tmp_path, "trainer.epochs=3", environ=environ).trainer.epochs == 3


def test_the_last_of_two_overrides_wins(tmp_path: Path) -> None:
    assert load(tmp_path, "trainer.epochs=3", "trainer.epochs=4").trainer.epochs == 4


def test_a_value_is_yaml(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "trainer.hidden_units=[8, 4]",
        "data.split={by: hash, eval_percent: 30}",
        "weight=no",
        "beam.args=[--a=b]",
    )
    assert settings.trainer.hidden_units == (8, 4)
    assert settings.data.split.model_dump()["eval_percent"] == 30
    assert settings.weight == "no"
    assert settings.beam.args == ("--a=b",)


def test_a_section_that_the_file_lacks_is_made(tmp_path: Path) -> None:
    assert load(tmp_path, "push.model=other").push.model == "other"


def test_a_variable_is_matched_whatever_its_case(tmp_path: Path) -> None:
    environ = {
        "taxiway__Features__DEPDELAY__scale": "log",
        "TAXIWAY__SCHEMA__ON_ANOMALY": "warn",
    }
    settings = load(tmp_path, environ=environ)
    assert settings.features["DepDelay"].model_dump()["scale"] == "log"
    assert settings.schema_.on_anomaly == "warn"


def test_other_variables_are_not_settings(tmp_path: Path) -> None:
    environ = {"TAXIWAY_PYTHON": "/usr/bin/python3", "TAXIWAY": "x", "HOME": "/"}
    assert load(tmp_path, environ=environ) == load(tmp_path)


OVERRIDES = {
    "trainer.epochs=x": (
        'taxiway.yaml: trainer.epochs: got "x", allowed: a whole number '
        "(from --set trainer.epochs)"
    ),
    "trainer.epoch=3": (
        f'taxiway.yaml: trainer.epoch: unknown key (did you mean "epochs"?); {KNOWN} '
        "(from --set trainer.epoch)"
    ),
    "features.DepDelay.kind=numric": (
        'taxiway.yaml: features.DepDelay.kind: got "numric", allowed: numeric, '
        "bucketized, categorical, cyclic, text, crossed "
        '(did you mean "numeric"?) (from --set features.DepDelay.kind)'
    ),
    "trainer.epochs=": (
        "taxiway.yaml: trainer.epochs: got nothing, allowed: a whole number "
        "(from --set trainer.epochs)"
    ),
    "trainer.epochs": (
        "--set trainer.epochs: allowed: KEY=VALUE, for example trainer.epochs=3"
    ),
    "=3": "--set =3: allowed: KEY=VALUE, for example trainer.epochs=3",
    "a..b=3": "--set a..b=3: allowed: KEY=VALUE, for example trainer.epochs=3",
    "project.name=3": ("project is a value; it has no keys (from --set project.name)"),
    "evaluator.slices.0=carrier": (
        "evaluator.slices is a list, set it whole; it has no keys "
        "(from --set evaluator.slices.0)"
    ),
    "trainer.epochs=[": (
        "--set trainer.epochs:1:2: expected the node content, but found '<stream end>'"
    ),
}


@pytest.mark.parametrize(("override", "message"), OVERRIDES.items())
def test_a_wrong_override_is_named(override: str, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, override) == message


def test_an_unknown_section_is_told_of_its_override(tmp_path: Path) -> None:
    message = refusal(tmp_path, "trainr.epochs=3")
    assert message.startswith(
        'taxiway.yaml: trainr: unknown key (did you mean "trainer"?)'
    )
    assert message.endswith("(from --set trainr.epochs)")


VARIABLES = {
    "TAXIWAY__TRAINER__EPOCHS": (
        'taxiway.yaml: trainer.epochs: got "x", allowed: a whole number '
        "(from TAXIWAY__TRAINER__EPOCHS)"
    ),
    "TAXIWAY__TRAINER__EPOCH": (
        f'taxiway.yaml: trainer.epoch: unknown key (did you mean "epochs"?); {KNOWN} '
        "(from TAXIWAY__TRAINER__EPOCH)"
    ),
    "TAXIWAY__": (
        "TAXIWAY__: no setting has this name, allowed: TAXIWAY__SECTION__KEY, "
        "for example TAXIWAY__TRAINER__EPOCHS"
    ),
}


@pytest.mark.parametrize(("name", "message"), VARIABLES.items())
def test_a_wrong_variable_is_named(name: str, message: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, environ={name: "x"}) == message
