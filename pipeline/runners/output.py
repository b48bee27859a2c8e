"""Where this process's standard output and error go, and what is kept out of them."""

import logging
import os
import sys
from itertools import pairwise
from pathlib import PurePath

LOG_VARIABLE = "TAXIWAY_PRELOAD_LOG"
"""Names the log of the process that loads TFX."""
ORCHESTRATION = ("tfx", "orchestration")
"""The part of TFX that logs what it was asked for, in hundreds of lines."""


def redirect(path: str) -> None:
    """Send standard output and error of this process to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Tell whether a record goes into a step's log.

    TFX's launcher logs the step's definition, its artifacts and its arguments; they
    stand in ML Metadata, too. What it warns of stays.
    """
    parts = PurePath(record.pathname).parts
    dumps = ORCHESTRATION in pairwise(parts)
    return record.levelno >= logging.WARNING or not dumps


def leave_out_dumps() -> None:
    """Keep TFX's dumps out of what this process logs from now on."""
    # On the logger, not on a handler: absl swaps handlers when it is initialised.
    logging.getLogger("absl").addFilter(is_worth_a_line)
