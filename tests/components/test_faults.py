"""The sentence for whatever user code or TensorFlow raise."""

import errno
from pathlib import Path

import pytest

from components.errors import StorageError
from components.faults import reason, sentence, storage_fault, telling_of_storage

GRAPH_ERROR = """Graph execution error:

Detected at node wide/truediv defined at (most recent call last):
  File "model.py", line 63, in call

OOM when allocating tensor with shape[1024,16384]
\t [[{{node wide/truediv}}]]
Hint: If you want to see a list of allocated tensors"""
TWO_ERRORS = """2 root error(s) found.
  (0) UNKNOWN:  ValueError: no such city
  (1) CANCELLED: Function was cancelled"""
KERAS_ERROR = (
    "Exception encountered when calling Wide.call().\n\n"
    "\x1b[1munsupported operand\x1b[0m\n\nArguments received by Wide.call():"
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no such file", "no such file"),
        ("first\nsecond", "first"),
        ("", ""),
        ("Hint", "Hint"),
        (GRAPH_ERROR, "OOM when allocating tensor with shape[1024,16384]"),
        (TWO_ERRORS, "UNKNOWN:  ValueError: no such city"),
        (KERAS_ERROR, "unsupported operand"),
    ],
    ids=["plain", "lines", "nothing", "hint only", "graph", "two errors", "Keras"],
)
def test_the_line_that_says_why_is_found(text: str, said: str) -> None:
    assert reason(RuntimeError(text)) == said


def test_an_error_in_the_projects_code_names_file_line_and_function(
    tmp_path: Path,
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def build():\n    raise KeyError('x')\n")
    scope: dict[str, object] = {}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    with pytest.raises(KeyError) as caught:
        scope["build"]()
    assert sentence(caught.value, tmp_path) == "KeyError: 'x' (mine.py:2 in build)"
    assert sentence(caught.value, tmp_path / "other") == "KeyError: 'x'"


class LibraryError(Exception):
    """An error as TensorFlow raises it: known by where its class is."""


LibraryError.__module__ = "tensorflow.python.framework.errors_impl"


def raised(source: str, file: Path) -> BaseException:
    """Run a file's source and return what it raises."""
    file.write_text(source)
    try:
        exec(compile(source, str(file), "exec"), {})
    except (OSError, SystemExit) as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("sys.exit()", "sys.exit()"),
        ("sys.exit('no')", "sys.exit('no')"),
        ("exit(0)", "sys.exit(0)"),
    ],
)
def test_an_exit_is_told_as_one_with_its_place(
    call: str, said: str, tmp_path: Path
) -> None:
    error = raised(f"import sys\n{call}\n", tmp_path / "mine.py")
    assert sentence(error, tmp_path) == (
        f"{said} was called; raise an exception that says why instead "
        "(mine.py:2 in <module>)"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/run/x.json"),
            (
                "/run/x.json: No space left on device; free some space there, then run "
                "again"
            ),
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "/work: No space left on device; free some space there, then run again",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/run"),
            "/run: Permission denied; let this user read and write it, then run again",
        ),
        (
            LibraryError("{{node SaveV2}} /run/values.data; Read-only file system"),
            (
                "/run/values.data: Read-only file system; mount it writable, or move the "
                "project, then run again"
            ),
        ),
        (
            LibraryError("Disk quota exceeded [Op:SaveV2]"),
            (
                "/work: Disk quota exceeded; free some space there, or ask for a larger "
                "quota, then run again"
            ),
        ),
    ],
)
def test_a_disk_that_takes_nothing_is_told_with_its_path_and_what_to_do(
    error: BaseException, said: str
) -> None:
    assert storage_fault(error, Path("/work")) == said


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/run/x"),
        RuntimeError("OOM when allocating tensor"),
        OSError("without a number"),
        LibraryError("OOM when allocating tensor"),
        ValueError("no city: Permission denied"),
    ],
)
def test_other_errors_are_none_of_a_disks(error: BaseException) -> None:
    assert storage_fault(error, Path("/work")) is None


def test_what_the_users_code_cannot_write_is_told_with_its_place_instead(
    tmp_path: Path,
) -> None:
    source = "open('/dev/full', 'wb', buffering=0).write(b'x')\n"
    error = raised(source, tmp_path / "mine.py")
    assert isinstance(error, OSError)
    assert storage_fault(error, Path("/work"), tmp_path) is None
    assert storage_fault(error, Path("/work"), tmp_path / "other") is not None


def test_telling_of_storage_lets_other_errors_pass() -> None:
    with pytest.raises(FileNotFoundError), telling_of_storage(Path(), Path("/none")):
        Path("/none/at all").read_text()
    told = pytest.raises(StorageError, match="^/x: Read-only file system; ")
    with told, telling_of_storage(Path(), Path("/none")):
        raise OSError(errno.EROFS, "Read-only file system", "/x")
