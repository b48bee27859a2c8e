"""The scripts say in a sentence what a machine lacks, and leave nothing behind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def first_line(path: Path) -> str:
    return path.read_text().partition("\n")[0]


SCRIPTS = sorted(
    path
    for folder in ("scripts", "scripts/lib", ".ci")
    for path in (ROOT / folder).iterdir()
    if path.suffix == ".sh" or (path.is_file() and "bash" in first_line(path))
)
TOOLS = ("awk", "bash", "cat", "cut", "df", "dirname", "grep", "rm", "sed", "sha256sum")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without .venv, and beside it a folder `bin` that is all of PATH."""
    root = tmp_path / "checkout"
    for folder in ("scripts", "requirements"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copy(ROOT / "pyproject.toml", root)
    programs = tmp_path / "bin"
    programs.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        (programs / tool).symlink_to(found)
    write_program(programs / "uname", 'echo "Linux x86_64"')
    return root


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{line}\n")
    path.chmod(0o755)


def lint(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", checkout / "scripts/lint"],
        env={"PATH": str(checkout.parent / "bin")},
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_there_are_scripts_to_look_at() -> None:
    assert len(SCRIPTS) >= 6


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_bash_that_parses(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    assert os.access(script, os.X_OK) == (script.suffix == "")


def test_missing_python_311_is_said(checkout: Path) -> None:
    done = lint(checkout)
    assert done.returncode == 1
    assert "error: Python 3.11 is needed" in done.stderr
    assert not (checkout / ".venv").exists()


def test_python_of_another_version_is_not_taken(checkout: Path) -> None:
    write_program(checkout.parent / "bin/python3", "exit 1")
    assert "error: Python 3.11 is needed" in lint(checkout).stderr


def test_missing_ensurepip_is_said_with_its_debian_package(checkout: Path) -> None:
    lacks = 'case "$*" in *ensurepip*) exit 1;; esac'
    write_program(checkout.parent / "bin/python3.11", lacks)
    done = lint(checkout)
    assert done.returncode == 1
    assert "apt-get install python3.11-venv" in done.stderr


def test_other_platforms_are_refused(checkout: Path) -> None:
    write_program(checkout.parent / "bin/uname", 'echo "Darwin arm64"')
    done = lint(checkout)
    assert done.returncode == 1
    assert "for Linux on x86_64, this is: Darwin arm64" in done.stderr


def test_full_disk_is_said_before_anything_is_made(checkout: Path) -> None:
    (checkout.parent / "bin/df").unlink()
    table = "echo head; echo /dev/x 9 9 1024000 9 /"
    write_program(checkout.parent / "bin/df", table)
    done = lint(checkout)
    assert done.returncode == 1
    assert "only 1000 MB are free" in done.stderr


def sourced(command: str, **environment: str) -> str:
    """Run a command after bootstrap.sh was sourced, and return what it printed."""
    script = f"set -euo pipefail; . {ROOT}/scripts/lib/bootstrap.sh; {command}"
    done = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_pinned_prints_one_distribution_with_its_hashes() -> None:
    first, *hashes = sourced("pinned uv").splitlines()
    assert first.startswith("uv==")
    assert hashes
    assert all(line.startswith("    --hash=sha256:") for line in hashes)


def test_scripts_keep_bytecode_whatever_the_shell_says() -> None:
    script = 'echo "${PYTHONDONTWRITEBYTECODE-unset}"'
    assert sourced(script, PYTHONDONTWRITEBYTECODE="1") == "unset\n"


def test_index_of_pip_is_handed_to_uv() -> None:
    script = 'hand_pip_settings_to_uv; echo "$UV_DEFAULT_INDEX"'
    assert sourced(script, PIP_INDEX_URL="https://mirror") == "https://mirror\n"


def test_index_of_uv_itself_wins_over_that_of_pip() -> None:
    script = 'hand_pip_settings_to_uv; echo "$UV_DEFAULT_INDEX"'
    told = {"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "https://b"}
    assert sourced(script, **told) == "https://b\n"


def test_dev_environment_is_kept_where_the_full_one_would_do(tmp_path: Path) -> None:
    script = (
        f"stamp={tmp_path}/stamp; printf 'dev digest root' > $stamp; "
        'is_ready() { echo "$1"; }; bootstrap full'
    )
    assert sourced(script) == "dev\n"
