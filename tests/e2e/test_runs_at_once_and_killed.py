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


def start(project: Path) -> "subprocess.Popen[str]":
    temporary = project / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline", "-c", str(project), "run"],
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
