"""Where this process's standard output and error go."""

import os
import sys

LOG_VARIABLE = "TAXIWAY_PRELOAD_LOG"
"""Names the log of the process that loads TFX."""


def redirect(path: str) -> None:
    """Send standard output and error of this process to the end of a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
