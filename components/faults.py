"""What an exception of user code, of TensorFlow or of a disk says, in a sentence."""

import errno
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.errors import StorageError

NOT_THE_REASON = re.compile(
    r"Graph execution error|Detected at node|File |\[\[|Hint|\d+ root error"
    r"|Exception encountered when calling"
)
"""How the lines begin with which TensorFlow and Keras surround the reason."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
REMEDIES = {
    errno.ENOSPC: "free some space there",
    errno.EDQUOT: "free some space there, or ask for a larger quota",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f)",
    errno.EROFS: "mount it writable, or move the project",
    errno.EACCES: "let this user read and write it",
    errno.EPERM: "let this user read and write it",
    errno.ENOTDIR: "remove the file that is in a folder's place",
    errno.EEXIST: "remove the file that is in a folder's place",
    errno.EIO: "look after that disk",
    errno.ESTALE: "look after that file server",
}
"""What a person does about a disk that does not take what is written."""


def reason(error: BaseException) -> str:
    """Return the line of an exception's text that says why."""
    text = COLOURS.sub("", str(error))
    lines = [line.strip() for line in text.splitlines()]
    telling = [line for line in lines if line and not NOT_THE_REASON.match(line)]
    first = next(iter(telling), "") or next(iter(filter(None, lines)), "")
    return re.sub(r"^\(\d+\) ", "", first)


def sentence(error: BaseException, root: Path) -> str:
    """Say what went wrong, and where in the user's own code if it was there.

    Args:
        error: The exception.
        root: The folder of the user's project.
    """
    why = reason(error)
    text = f"{type(error).__name__}: {why}" if why else type(error).__name__
    if isinstance(error, SystemExit):
        given = "" if error.code is None else repr(error.code)
        text = f"sys.exit({given}) was called; raise an exception that says why instead"
    return f"{text}{_place(error, root)}"


def _place(error: BaseException, root: Path) -> str:
    """Return the last line in the user's own code, in brackets; "" for none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(root) and "site-packages" not in file.parts:
            return f" ({file.relative_to(root)}:{frame.lineno} in {frame.name})"
    return ""


def storage_fault(
    error: BaseException, folder: Path, root: Path | None = None
) -> str | None:
    """Say which path could not be written, why, and what to do; None for other errors.

    TensorFlow has no code for it: a full disk is RESOURCE_EXHAUSTED, as is a lack of
    memory, and its text is what tells them apart.

    Args:
        error: The exception.
        folder: What was written to, where the exception does not say.
        root: The folder of the user's project: what its code writes is its own affair.
    """
    number: int | None = None
    path: object = None
    if isinstance(error, OSError):
        number, path = error.errno, error.filename
    elif type(error).__module__.startswith("tensorflow."):
        number, path = _storage_words(str(error))
    if number not in REMEDIES or (root is not None and _place(error, root)):
        return None
    where = folder if path is None else path
    return f"{where}: {os.strerror(number)}; {REMEDIES[number]}, then run again"


def _storage_words(text: str) -> tuple[int | None, str | None]:
    """Find the words of `strerror` at the end of a line, and a path in front of them.

    An example of TensorFlow's: `/models/values.data-00000; No space left on device`.
    """
    for number in REMEDIES:
        pattern = rf"(?:(/[^;:\n]*)[;:] )?{re.escape(os.strerror(number))}(?![\w])"
        if found := re.search(pattern, text):
            return number, found[1]
    return None, None


@contextmanager
def telling_of_storage(folder: Path, root: Path) -> Iterator[None]:
    """Make a sentence of an OSError that says that a disk does not take a file.

    Raises:
        StorageError: A path cannot be written.
    """
    try:
        yield
    except OSError as error:
        said = storage_fault(error, folder, root)
        if said is None:
            raise
        raise StorageError(said) from error
