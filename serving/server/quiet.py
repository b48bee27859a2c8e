"""Keeps libraries that write to descriptor 2 off the screen."""

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

NOISY_LOGGERS = ("tensorflow", "absl")


def quiet(log: Path) -> TextIO:
    """Send what libraries write to standard error to a file from now on.

    TensorFlow and gRPC write to the descriptor itself, some of it before anyone can
    ask them not to. Python's own standard error stays where it was.

    Returns:
        The log that takes it, opened to append.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    file = log.open("a", encoding="utf-8")
    sys.stderr.flush()
    screen = os.dup(2)
    os.dup2(file.fileno(), 2)
    sys.stderr = os.fdopen(screen, "w", buffering=1)
    for name in NOISY_LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(logging.StreamHandler(file))
        logger.propagate = False
    return file
