"""`taxiway replay` refuses what cannot be trained again, in a sentence."""

from pathlib import Path

import pytest

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
