"""What runs on an event loop and what on threads, by how long it took before.

Small models are run on the loop itself, for handing a request to a thread costs more
than running it; what has shown to take longer goes to a thread, so that it holds up
nobody else.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from serving.server.gather import Gather
from serving.server.steps import WAITS, Steps, T, finish

# What takes longer on average goes to a thread.
INLINE_S = 0.001
FORGETTING = 0.2
MAX_KEYS = 1000
# Requests that wait for models to load, at once.
MAX_ASIDE = 64


class Pace:
    """How long requests of a kind took on average."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def is_quick(self, kind: str) -> bool:
        """Tell whether a request may run on the loop; the first of a kind may not."""
        return self._averages.get(kind, 1.0) < INLINE_S

    def note(self, kind: str, seconds: float) -> None:
        """Count a request in."""
        average = self._averages.get(kind)
        if average is not None:
            self._averages[kind] = average + FORGETTING * (seconds - average)
            return
        if len(self._averages) >= MAX_KEYS:
            self._averages.clear()
        self._averages[kind] = seconds


class Offload:
    """Runs requests for a transport; all but the work itself is on its loop."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        num_threads: int,
        max_in_flight: int,
    ) -> None:
        """Begin idle.

        Args:
            name: Of the threads.
            loop: The transport's.
            num_threads: Requests that threads run at once.
            max_in_flight: Requests that may wait for a thread or run on one.
        """
        self._loop = loop
        self._threads = ThreadPoolExecutor(num_threads, name)
        self._aside = ThreadPoolExecutor(MAX_ASIDE, f"{name} aside")
        self._max_in_flight = max_in_flight
        self._pace = Pace()
        self._gather = Gather(loop, self._pace.note)
        self._in_flight = self._num_aside = 0
        self._idle: asyncio.Event | None = None

    def take(self, kind: str, steps: Steps[T], then: Callable[[T], None]) -> bool:
        """Answer a request, now or later; return False if there is no room for it.

        Args:
            kind: Of the request: what takes the same time.
            steps: Of the request; they must not raise.
            then: Told the answer, on the loop.
        """
        if self._pace.is_quick(kind):
            self._gather.add(kind, steps, then)
            return True
        if self._in_flight >= self._max_in_flight:
            return False
        self._submit(self._threads, partial(self._run, kind, steps), then)
        return True

    def wait_aside(self, steps: Steps[T], then: Callable[[T], None]) -> bool:
        """Answer a request that waits for long, away from all others.

        Return False if so many wait that it would never get its turn.
        """
        if self._num_aside >= MAX_ASIDE:
            return False
        self._num_aside += 1

        def came_back(answer: T) -> None:
            self._num_aside -= 1
            then(answer)

        self._submit(self._aside, partial(finish, steps), came_back)
        return True

    def _submit(
        self,
        threads: ThreadPoolExecutor,
        work: Callable[[], T],
        then: Callable[[T], None],
    ) -> None:
        self._in_flight += 1
        future: Any = self._loop.run_in_executor(threads, work)

        def came_back(done: "asyncio.Future[T]") -> None:
            self._in_flight -= 1
            if not self._in_flight and self._idle is not None:
                self._idle.set()
            if not done.cancelled():
                then(done.result())

        future.add_done_callback(came_back)

    def _run(self, kind: str, steps: Steps[T]) -> T:
        started, waited = time.perf_counter(), WAITS.seconds
        answer = finish(steps)
        seconds = time.perf_counter() - started - (WAITS.seconds - waited)
        self._pace.note(kind, seconds)
        return answer

    async def drain(self, grace_s: float) -> None:
        """Wait until no thread works, at most so long."""
        self._gather.run_all()
        if self._in_flight:
            self._idle = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._aside.shutdown(wait=False, cancel_futures=True)
