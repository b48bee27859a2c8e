"""`taxiway replay` says what differs, and refuses what cannot be trained again."""

import json
from pathlib import Path
from typing import Any

import pytest

from components.errors import ResumeError
from components.trainer.config import RECORD_FILE
from pipeline.cli import main

pytestmark = pytest.mark.integration  # reading a record imports TensorFlow

SETTINGS = """
project: small
data: {files: rows.csv, split: {by: hash}}
label: {column: y, kind: binary}
features: {x: {kind: numeric}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # It moves this process's standard error for good.
    monkeypatch.setattr("pipeline.commands.replay.quiet", lambda log: None)
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    version = tmp_path / "models" / "small" / "3"
    (version / "variables").mkdir(parents=True)
    (version / "saved_model.pb").touch()
    (version / "variables" / "variables.index").touch()
    (version / "variables" / "variables.data-00000-of-00001").touch()
    return tmp_path


def replay(project: Path, version: str, capfd: pytest.CaptureFixture[str]) -> str:
    assert main(["-c", str(project), "replay", version]) == 1
    return capfd.readouterr().err


def test_a_version_that_is_not_there_is_named_with_those_that_are(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "no version 7; versions: 3" in replay(project, "7", capfd)


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        (None, "holds no record of its training (assets.extra/taxiway_training.json)"),
        ("{}", "is of another version of Taxiway"),
        ("[", "is of another version of Taxiway"),
    ],
    ids=["none", "incomplete", "not JSON"],
)
def test_a_version_without_a_usable_record_is_refused(
    record: str | None,
    sentence: str,
    project: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if record is not None:
        path = project / "models" / "small" / "3" / RECORD_FILE
        path.parent.mkdir()
        path.write_text(record)
    assert sentence in replay(project, "3", capfd)


def record(project: Path, **changed: Any) -> dict[str, Any]:
    """Give version 3 a record, the data that it names, and return the record."""
    for name in ("train/x.gz", "eval/x.gz", "transform/graph"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(b"1")
    made = {
        "seed": 1,
        "deterministic": True,
        "git_commit": None,
        "git_dirty": None,
        "data_digest": "d",
        "transform_digest": "t",
        "libraries": {},
        "devices": ["H200", "H200"],
        "strategy": "mirrored on GPU:0, GPU:1",
        "num_replicas": 2,
        "precision": "mixed_bfloat16",
        "xla": "whole",
        "accumulation": 1,
        "micro_batch_size": 32,
        "num_steps": 9,
        "seconds": 1.0,
        "gpu_hours": 0.0,
        "energy_joules": None,
        "weight_digests": [[9, "w"]],
        "request": {
            "table": {
                "label": {"column": "y", "kind": "binary"},
                "features": {"x": {"kind": "numeric"}},
            },
            "settings": {"batch_size": 64, "cpu_devices": 1},
            "train_files": [f"{project}/train/*"],
            "eval_files": [f"{project}/eval/*"],
            "transform_output": f"{project}/transform",
            "work_dir": "/then/work",
            "export_dir": "/then/export",
            "log_dir": "/then/log",
            "project_root": str(project),
        },
        **changed,
    }
    path = project / "models" / "small" / "3" / RECORD_FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(made))
    return made


class FakeTraining:
    """Stands in for `supervise`: notes what it is asked for, and is interrupted."""

    def __init__(self, made: dict[str, Any] | None = None) -> None:
        self._made = made
        self.asked: list[Any] = []

    def __call__(self, request: Any, _: Any) -> None:
        self.asked.append(request)
        request.work_dir.mkdir(parents=True, exist_ok=True)
        if self._made is None:
            raise ResumeError("stopped")
        path = request.export_dir / RECORD_FILE
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(self._made))


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    training = FakeTraining()
    monkeypatch.setattr("components.trainer.supervisor.supervise", training)
    return training


def shown(project: Path, capfd: pytest.CaptureFixture[str], *words: str) -> str:
    main(["-c", str(project), "replay", "3", *words])
    return capfd.readouterr().out


def test_what_differs_is_said_before_it_trains(
    project: Path, interrupted: FakeTraining, capfd: pytest.CaptureFixture[str]
) -> None:
    record(project)
    lines = shown(project, capfd).splitlines()
    for line in (
        "differs: num replicas: was 2, is 1",
        "differs: strategy: was mirrored on GPU:0, GPU:1, is one_device on CPU:0",
        "differs: precision: was mixed_bfloat16, is float32",
        "differs: micro batch size: was 32, is 64",
        "equal bit by bit can only be expected where nothing differs",
    ):
        assert line in lines
    assert any(
        line.startswith("differs: devices: was H200, H200, is ") for line in lines
    )
    assert len(interrupted.asked) == 1


def test_the_digests_of_today_are_handed_on(
    project: Path, interrupted: FakeTraining, capfd: pytest.CaptureFixture[str]
) -> None:
    made = record(project)
    made["request"]["digests"] = {"data": "d", "transform": "t"}
    record(project, request=made["request"])
    assert "differs: data digest: was d, is " in shown(project, capfd)
    assert len(interrupted.asked[0].digests.data) == 64


def test_a_change_of_the_micro_batch_in_the_middle_is_said(
    project: Path, interrupted: FakeTraining, capfd: pytest.CaptureFixture[str]
) -> None:
    record(project, micro_batches=[[0, 64], [5, 32]])
    assert (
        "memory was too little after step 5: until there a replica computed 64 "
        "examples at once, then 32; a replay takes 32 for all steps and cannot be equal "
        "bit by bit"
    ) in shown(project, capfd)


def test_a_replay_goes_on_where_record_and_surroundings_are_the_same(
    project: Path, interrupted: FakeTraining, capfd: pytest.CaptureFixture[str]
) -> None:
    record(project)
    shown(project, capfd)
    shown(project, capfd)
    record(project, seed=2)
    shown(project, capfd)
    (project / "train" / "x.gz").write_bytes(b"2")
    shown(project, capfd)
    first, second, other, again = (asked.work_dir for asked in interrupted.asked)
    assert first == second
    assert len({first, other, again}) == 3
    assert [path for path in (first, other, again) if path.exists()] == [again]


def test_what_only_training_shows_is_said_afterwards(
    project: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made = record(project)
    now = {**made, "xla": "off", "num_replicas": 1}
    training = FakeTraining(now)
    monkeypatch.setattr("components.trainer.supervisor.supervise", training)
    lines = shown(project, capfd).splitlines()
    assert "differed: xla: was whole, is off" in lines
    assert "differed: num replicas: was 2, is 1" not in lines  # it was said before
    said = json.loads(shown(project, capfd, "--json"))
    assert said["equal"]
    assert {"xla: was whole, is off", "num replicas: was 2, is 1"} <= set(
        said["differences"]
    )
    assert not training.asked[0].work_dir.exists()
