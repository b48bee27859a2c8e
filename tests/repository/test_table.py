"""The table at the end of a test run says what ran, what did not, and why."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.integration
def test_with_tfx(): pass

@pytest.mark.gpu
def test_on_gpu(): pytest.skip("no GPU here")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  integration\n  e2e\n  slow\n  gpu\n"
    )
    return tmp_path


def lines_of(project: Path, *arguments: str, checks: str = "") -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=project,
        env={**os.environ, "TAXIWAY_CHECKS": checks},
        capture_output=True,
        text=True,
        check=True,
    )
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def test_each_kind_has_its_counts_and_each_skip_its_reason(project: Path) -> None:
    lines = lines_of(project)
    assert any(re.match("unit tests 1 passed 0 failed 0 not run", it) for it in lines)
    assert any(re.match("integration tests 1 passed 0 failed", it) for it in lines)
    assert any(re.match("gpu tests 0 passed 0 failed 1 not run", it) for it in lines)
    assert "1 not run: no GPU here" in lines


def test_fast_leaves_out_all_but_unit_tests(project: Path) -> None:
    lines = lines_of(project, "--fast")
    assert lines.count("1 not run: left out by --fast") == 2


def test_checks_that_ran_before_are_in_the_table(project: Path) -> None:
    lines = lines_of(project, checks="mypy\tFAILED\t7\n")
    assert "mypy FAILED 7 s" in lines


@pytest.mark.parametrize("arguments", [(), ("-q",), ("--fast",)])
def test_the_last_line_is_pytests_summary(
    project: Path, arguments: tuple[str, ...]
) -> None:
    assert re.search(r"\d passed.* in ", lines_of(project, *arguments)[-1])
