"""`taxiway config`: the settings checked, shown, and described for editors."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from pipeline.cli import main
from pipeline.config import settings_json_schema

SETTINGS = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  distance: {kind: numeric}
  origin: {kind: categorical}
"""


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    return str(tmp_path)


def test_right_settings_are_told_in_brief(
    project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-c", project, "config", "check"]) == 0
    assert capsys.readouterr().out == (
        f"{project}/taxiway.yaml: no faults; 2 features from 2 columns, "
        "binary label 'late'\n"
    )


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (
            ["trainer.batch_size=100", "trainer.cpu_devices=3"],
            "does not divide by 3 replicas; 99 or 102 would",
        ),
        (
            ["trainer.batch_size=10", "trainer.accumulation_steps=4"],
            "and trainer.accumulation_steps 4; 8 or 12 would",
        ),
        (
            ["trainer.batch_size=10", "trainer.num_local_workers=4"],
            "does not divide by 4 replicas; 8 or 12 would",
        ),
        (["trainer.strategy=tpu"], "tpu, which this version does not train on"),
        (["trainer.device=gpu", "trainer.cpu_devices=2"], "cpu_devices is set, too"),
        (["trainer.all_reduce=nccl", "trainer.device=cpu"], "which needs GPUs"),
        (["trainer.all_reduce=ring"], "which is for strategy multi_worker"),
        (["trainer.strategy=multi_worker"], "but nothing says who the workers are"),
        (["trainer.strategy=parameter_server"], "who the workers and servers are"),
    ],
)
def test_what_no_machine_could_train_is_refused(
    project: str,
    capsys: pytest.CaptureFixture[str],
    overrides: list[str],
    text: str,
) -> None:
    given = [word for override in overrides for word in ("--set", override)]
    assert main(["-c", project, *given, "config", "check"]) == 1
    assert text in capsys.readouterr().err


def test_code_is_imported_only_when_asked(
    project: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    command = ["-c", project, "--set", "trainer.model=not_there.build", "config"]
    assert main([*command, "check"]) == 0
    assert main([*command, "check", "--code"]) == 1
    assert capsys.readouterr().err == (
        f"taxiway: not_there.build: no module 'not_there' in {project} "
        "or among installed packages\n"
    )


def test_wrong_settings_exit_with_2_and_a_line_for_each_fault(
    project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = ["--set", "trainer.epochs=x", "--set", "trainer.seed=y"]
    assert main(["-c", project, "config", "check", *faults]) == 2
    assert capsys.readouterr().err == (
        'taxiway: taxiway.yaml: trainer.epochs: got "x", allowed: a whole number '
        "(from --set trainer.epochs)\n"
        'taxiway.yaml: trainer.seed: got "y", allowed: a whole number '
        "(from --set trainer.seed)\n"
    )


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_shown_settings_have_defaults_and_overrides(
    arguments: list[str], project: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["-c", project, "--set", "trainer.epochs=7", "config", "show"]
    assert main([*command, *arguments]) == 0
    text = capsys.readouterr().out
    shown = json.loads(text) if arguments else yaml.safe_load(text)
    assert shown["trainer"]["epochs"] == 7
    assert shown["schema"]["on_anomaly"] == "error"
    assert shown["push"]["model"] == "delays"


def test_shown_settings_can_be_loaded_again(
    project: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    main(["-c", project, "config", "show"])
    copy = tmp_path / "copy.yaml"
    copy.write_text(capsys.readouterr().out)
    assert main(["-c", str(copy), "config", "check"]) == 0


def test_the_schema_needs_no_project(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == settings_json_schema()
