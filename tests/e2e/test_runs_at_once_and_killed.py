"""Two runs at once, and a run killed in the middle: nothing lost, nothing twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.model_repository import ModelRepository

pytestmark = pytest.mark.e2e
DATA = Path(__file__).parents[1] / "data" / "flights" / "flights.csv"
TIMEOUT_S = 240

SETTINGS = """
project: small
data:
  files: flights.csv
  split: {by: column, column: month, train: [1, 2, 3, 4, 5, 6, 7, 8], eval: [9]}
label: {column: late, kind: binary, missing: drop}
features: {distance: {kind: numeric}}
trainer: {batch_size: 64, epochs: 1}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(DATA, tmp_path)
    (tmp_path / "taxiway.yaml").write_text(SETTINGS)
    return tmp_path


def start(project: Path, *overrides: str) -> "subprocess.Popen[str]":
    temporary = project / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "pipeline", "-c", str(project), "run"),
            *(word for override in overrides for word in ("--set", override)),
        ],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after {TIMEOUT_S} s"
        time.sleep(0.1)


def done_steps(project: Path) -> list[str]:
    records = sorted((project / ".taxiway" / "runs").glob("*/run.json"))
    if not records:
        return []
    steps = json.loads(records[-1].read_text())["steps"]
    return [step["id"] for step in steps if step["state"] == "done"]


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            child = int(stat.parent.name)
            found |= {child} | descendants(child)
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_second_run_waits_for_the_first_and_then_has_nothing_to_do(
    project: Path,
) -> None:
    first = start(project)
    wait_for((project / ".taxiway" / "runs").exists, "run")
    second = start(project)
    shown_by_first, _ = first.communicate(timeout=TIMEOUT_S)
    shown_by_second, _ = second.communicate(timeout=TIMEOUT_S)
    assert first.returncode == second.returncode == 0, shown_by_first
    assert f"(process {first.pid}) is at work; waiting for it" in shown_by_second
    assert "nothing has changed: version 1 stands" in shown_by_second
    assert ModelRepository(project / "models", "small").versions() == [1]
    assert list((project / "tmp").iterdir()) == [], "temporary files left behind"


def test_a_run_killed_in_the_middle_goes_on_where_it_stopped(project: Path) -> None:
    killed = start(project)
    wait_for(lambda: "SchemaGen" in done_steps(project), "SchemaGen")
    family = descendants(killed.pid)
    assert family
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=TIMEOUT_S)
    wait_for(lambda: not any(map(is_running, family)), "end of the steps' processes")

    again = start(project)
    shown, _ = again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0, shown
    lines = {line.split()[1]: line for line in shown.splitlines() if line[:2] == "  "}
    assert "cached" in lines["SchemaGen"]
    assert "cached" not in lines["Trainer"]
    assert ModelRepository(project / "models", "small").versions() == [1]


def test_a_run_whose_processes_are_all_told_to_stop_can_be_gone_on_with(
    project: Path,
) -> None:
    """`timeout`, systemd and batch systems tell the whole group."""
    told = start(project, "trainer.epochs=100000", "trainer.checkpoints.every_s=1")
    training = project / ".taxiway" / "training"
    wait_for(lambda: any(training.glob("*/checkpoints/step-*")), "checkpoint")
    os.killpg(told.pid, signal.SIGTERM)
    shown, _ = told.communicate(timeout=TIMEOUT_S)
    assert told.returncode == 75, shown
    assert "its state is saved: run again to go on" in shown


PREEMPTED_MODEL = """
import os
import signal
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from components.trainer import wide_and_deep

FILE = Path(__file__).with_name("runner.pid")


class Preempt(keras.layers.Layer):
    batches = 0

    def call(self, values, training=False):
        if not training:
            return values
        return values + tf.ensure_shape(tf.numpy_function(self.strike, [], tf.float32), [])

    def strike(self):
        Preempt.batches += 1
        if Preempt.batches == 5 and FILE.exists():
            os.kill(int(FILE.read_text()), signal.SIGTERM)
            FILE.unlink()
        return np.float32(0)


def build_model(inputs):
    inner = wide_and_deep.build_model(inputs)
    return keras.Model(inner.inputs, Preempt(dtype="float32")(inner.output))
"""
DETERMINISTIC = """
trainer:
  model: preempted.build_model
  batch_size: 8
  epochs: 20
  deterministic: true
  tensorboard: {enabled: false}
"""


def test_a_preempted_run_goes_on_and_its_version_can_be_replayed(
    project: Path,
) -> None:
    """SIGTERM to the runner reaches the training, which saves its state first."""
    (project / "preempted.py").write_text(PREEMPTED_MODEL)
    settings = SETTINGS.replace("trainer: {batch_size: 64, epochs: 1}\n", "")
    (project / "taxiway.yaml").write_text(settings + DETERMINISTIC)
    preempted = start(project)
    (project / "runner.pid").write_text(str(preempted.pid))
    shown, _ = preempted.communicate(timeout=TIMEOUT_S)
    assert preempted.returncode == 75, shown
    assert "Trainer was stopped" in shown
    assert "its state is saved: run again to go on" in shown

    again = start(project)
    shown, _ = again.communicate(timeout=TIMEOUT_S)
    assert again.returncode == 0, shown
    log = max((project / ".taxiway" / "runs").glob("*/Trainer.log"))
    assert "going on after step" in log.read_text()
    assert list((project / ".taxiway" / "training").iterdir()) == []

    replay = subprocess.run(
        [sys.executable, "-m", "pipeline", "-c", str(project), "replay", "1"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=TIMEOUT_S,
        check=False,
    )
    assert replay.returncode == 0, replay.stderr
    assert "equal bit by bit" in replay.stdout
