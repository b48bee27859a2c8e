"""What an exception of user code or of TensorFlow says, in a sentence."""

import re
import traceback
from pathlib import Path

NOT_THE_REASON = re.compile(
    r"Graph execution error|Detected at node|File |\[\[|Hint|\d+ root error"
    r"|Exception encountered when calling"
)
"""How the lines begin with which TensorFlow and Keras surround the reason."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


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
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(root) and "site-packages" not in file.parts:
            return f"{text} ({file.relative_to(root)}:{frame.lineno} in {frame.name})"
    return text
