"""`scripts/demo` takes a bare checkout to predictions over both APIs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scripts_made_this_environment() -> None:
    """Skip elsewhere: the demo would set up .venv while it runs these tests."""
    stamp = ROOT / ".venv/.taxiway-lock"
    if not stamp.is_file() or Path(sys.prefix) != ROOT / ".venv":
        pytest.skip("needs the .venv that scripts/test sets up")


@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("scripts_made_this_environment")
def test_demo_ends_with_predictions_and_a_summary_and_repeats_from_the_cache() -> None:
    first = demo()
    assert "P(late), REST  P(late), gRPC  was late" in first
    assert "336,776 rows: train 217,727, eval 27,010" in first
    assert "\nPusher            version " in first
    assert "nothing has changed" in demo()


def demo() -> str:
    done = subprocess.run(
        [ROOT / "scripts/demo"],
        env={**os.environ, "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if "could not be downloaded" in done.stdout + done.stderr:
        pytest.skip("the data could not be downloaded: no package index in reach")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
