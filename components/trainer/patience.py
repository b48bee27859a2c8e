"""Waits for input that comes from other processes, but not for ever.

A tf.data service that is gone is waited for by TensorFlow without end, in code that
neither a signal nor a deadline reaches. So a thread reads, and this one looks at the
clock.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from components.faults import reason
from components.trainer.loop import InputLost

LIMIT_S = 600.0
"""Time without a chunk after which none is believed to come: a large shuffle buffer is
filled well before that."""
STOP_LIMIT_S = 10.0
"""The same when this process was asked to stop."""
POLL_S = 1.0
LOSSES = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.NotFoundError,
)
"""What TensorFlow says of a service where it does say something."""


@dataclass(frozen=True)
class Patience:
    """How long to wait, and what for."""

    source: str
    """Where input comes from, in the user's words."""
    may_save: bool
    """Whether this process alone may write a checkpoint."""
    wants_stop: Callable[[], bool]
    """Whether this process was asked to stop."""
    limit_s: float = LIMIT_S
    stop_limit_s: float = STOP_LIMIT_S
    poll_s: float = POLL_S
    clock: Callable[[], float] = time.monotonic


def patiently(begin: Callable[[], Iterator[Any]], patience: Patience) -> Iterator[Any]:
    """Yield what an endless iterator yields, as long as it does.

    Args:
        begin: Makes the iterator; may hang, too.
        patience: How long to wait.

    Raises:
        InputLost: Nothing has come for too long, or its source is gone.
    """
    reader = ThreadPoolExecutor(1, "input")
    try:
        source = _wait(reader.submit(begin), patience)
        while True:
            yield _wait(reader.submit(next, source), patience)
    finally:
        reader.shutdown(wait=False)


def _wait(future: "Future[Any]", patience: Patience) -> Any:
    begun = patience.clock()
    while True:
        try:
            return future.result(timeout=patience.poll_s)
        except TimeoutError:
            _check(patience, patience.clock() - begun)
        except LOSSES as error:
            raise _lost(patience, f"is gone ({reason(error)})") from error


def _check(patience: Patience, waited_s: float) -> None:
    asked = patience.wants_stop()
    limit_s = patience.stop_limit_s if asked else patience.limit_s
    if waited_s > limit_s:
        raise _lost(patience, f"has handed out nothing for {waited_s:.0f} s", asked)


def _lost(patience: Patience, what: str, asked: bool = False) -> InputLost:
    return InputLost(
        f"{patience.source} {what}", may_save=patience.may_save, by_wish=asked
    )
