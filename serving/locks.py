"""Locks between processes that outlive none of them."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

RETRY_S = 0.05


class LockTimeoutError(Exception):
    """Another process held the lock for too long; the message is its pid."""


@contextmanager
def exclusive(
    path: Path,
    on_wait: Callable[[str], None] = lambda _: None,
    timeout_s: float | None = None,
) -> Iterator[None]:
    """Hold the lock while the block runs; the kernel frees it if we are killed.

    Args:
        path: The lock file; it stays, and names the process that holds the lock.
        on_wait: Called with the holder's pid if we have to wait.
        timeout_s: How long to wait; None: without end.

    Raises:
        LockTimeoutError: It was held for longer.
        OSError: The file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try(descriptor):
            on_wait(_holder(descriptor))
            _wait(descriptor, timeout_s)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> str:
    return os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"


def _wait(descriptor: int, timeout_s: float | None) -> None:
    if timeout_s is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    deadline = time.monotonic() + timeout_s
    while not _try(descriptor):
        if time.monotonic() >= deadline:
            raise LockTimeoutError(_holder(descriptor))
        time.sleep(RETRY_S)
