"""One run at a time: who waits, what it is told, and what a killed holder leaves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.locks import exclusive

HOLDER = """\
import os, pathlib, signal, sys
from serving.locks import exclusive

with exclusive(pathlib.Path(sys.argv[1]), print):
    print("held", flush=True)
    if sys.stdin.readline() == "die\\n":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def refuse_to_wait(pid: str) -> None:
    pytest.fail(f"had to wait for {pid}")


@contextmanager
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the lock until it is sent a line."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process


def send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def test_a_free_lock_is_taken_at_once_and_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    with exclusive(path, refuse_to_wait):
        assert path.read_text() == str(os.getpid())


def test_a_lock_given_back_is_free_though_its_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with exclusive(path, refuse_to_wait):
        pass
    assert path.exists()
    with exclusive(path, refuse_to_wait):
        pass


def test_an_error_in_the_block_gives_the_lock_back(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(ZeroDivisionError), exclusive(path, refuse_to_wait):
        raise ZeroDivisionError
    with exclusive(path, refuse_to_wait):
        pass


def test_a_longer_pid_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("9" * 30)
    with exclusive(path, refuse_to_wait):
        assert path.read_text() == str(os.getpid())


@pytest.mark.parametrize(("line", "status"), [("done", 0), ("die", -9)])
def test_the_second_waits_for_the_process_it_is_told(
    line: str, status: int, tmp_path: Path
) -> None:
    """The lock is free again when its holder is done, or killed with signal 9."""
    path = tmp_path / "lock"
    waited: list[str] = []
    with holder(path) as first:

        def let_go(pid: str) -> None:
            waited.append(pid)
            send(first, line)

        with exclusive(path, let_go):
            assert path.read_text() == str(os.getpid())
    assert waited == [str(first.pid)]
    assert first.returncode == status


def test_a_holder_without_a_name_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    waited: list[str] = []
    with holder(path) as first:
        path.write_text("")

        def let_go(pid: str) -> None:
            waited.append(pid)
            send(first, "done")

        with exclusive(path, let_go):
            pass
    assert waited == ["unknown"]
