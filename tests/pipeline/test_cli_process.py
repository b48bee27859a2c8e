"""The `taxiway` command as a process: its words, its exit code, its options' places."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = """\
project: delays
data: {files: flights.csv}
label: {column: late, kind: binary}
features:
  delay: {kind: numeric}
"""


def taxiway(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_the_version_is_that_of_the_distribution() -> None:
    done = taxiway("--version")
    assert (done.stdout, done.returncode) == (f"taxiway {version('taxiway')}\n", 0)


@pytest.mark.parametrize("name", ["delays", "config", "serve"])
def test_a_project_folder_may_have_a_commands_name(name: str, tmp_path: Path) -> None:
    """`taxiway -c serve config check`, though `serve` is a command."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "taxiway.yaml").write_text(SETTINGS)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "-c", name, "config", "check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_wrong_settings_are_told_line_by_line_with_exit_code_2(tmp_path: Path) -> None:
    file = tmp_path / "taxiway.yaml"
    file.write_text(SETTINGS.replace("numeric", "numric"))
    done = taxiway("config", "check", "-c", file, "--set", "beam.num_processes=0")
    first, second = done.stderr.splitlines()
    assert first.startswith("taxiway: taxiway.yaml: beam.num_processes: got 0")
    assert second.endswith('(did you mean "numeric"?) at line 5')
    assert (done.stdout, done.returncode) == ("", 2)


def test_options_before_and_after_the_command_are_added_up(tmp_path: Path) -> None:
    file = tmp_path / "taxiway.yaml"
    file.write_text(SETTINGS)
    before = ("--set", "trainer.epochs=7", "--set", "trainer.seed=8", "-c", tmp_path)
    done = taxiway(*before, "config", "show", "--set", "trainer.epochs=9")
    assert done.returncode == 0, done.stderr
    assert "epochs: 9\n" in done.stdout
    assert "seed: 8\n" in done.stdout
