"""The process of a step answers with a sentence, whatever the step's code does."""

import errno
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from components.errors import ResumeError
from pipeline.config import load_settings
from pipeline.runners import worker
from pipeline.runners.job import Failure, Job

SETTINGS = """
project: small
data: {files: rows.csv, split: {by: hash}}
label: {column: y, kind: binary}
features: {x: {kind: numeric}}
"""


@pytest.fixture
def attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[BaseException], Failure]:
    """Return a function that runs a step which raises something."""
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    settings = load_settings(tmp_path, environ={})
    job = Job(settings.to_json(), "run", "Transform", "", tmp_path / "step.log")
    for name in (worker.KEY_VARIABLE, worker.PROGRESS_VARIABLE, worker.RUN_VARIABLE):
        monkeypatch.setenv(name, "")  # what the worker sets is undone

    def run(error: BaseException) -> Failure:
        def step(*_: object) -> NoReturn:
            raise error

        monkeypatch.setattr(worker, "_run", step)
        answer = worker._attempt(job)
        assert isinstance(answer, Failure)
        return answer

    return run


def test_an_exit_in_the_users_code_is_a_failure(
    attempt: Callable[[BaseException], Failure],
) -> None:
    assert attempt(SystemExit(0)).reason == (
        "sys.exit(0) was called; raise an exception that says why instead"
    )


def test_a_full_disk_is_told_without_a_traceback(
    attempt: Callable[[BaseException], Failure], capfd: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/run/x")
    assert attempt(full).reason == (
        "/run/x: No space left on device; free some space there, then run again"
    )
    assert "Traceback" not in capfd.readouterr().err


def test_other_errors_leave_their_traceback_in_the_log(
    attempt: Callable[[BaseException], Failure], capfd: pytest.CaptureFixture[str]
) -> None:
    assert attempt(KeyError("x")).reason == "KeyError: 'x'"
    assert "Traceback" in capfd.readouterr().err


def test_a_step_that_was_asked_to_stop_can_be_resumed(
    attempt: Callable[[BaseException], Failure],
) -> None:
    assert attempt(ResumeError("stopped")) == Failure("stopped", resumable=True)
