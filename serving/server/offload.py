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
from typing import Any

# What takes longer on average goes to a thread.
INLINE_S = 0.001
FORGETTING = 0.2
MAX_KEYS = 1000


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
        self, name: str, num_threads: int, max_in_flight: int, *, may_run_inline: bool
    ) -> None:
        """Begin idle.

        Args:
            name: Of the threads.
            num_threads: Requests that threads run at once.
            max_in_flight: Requests that may wait for a thread or run on one.
            may_run_inline: False where answering waits for others, as in batching.
        """
        self._threads = ThreadPoolExecutor(num_threads, name)
        self._max_in_flight, self._may_run_inline = max_in_flight, may_run_inline
        self._pace = Pace()
        self._in_flight = 0
        self._idle: asyncio.Event | None = None

    def is_quick(self, kind: str) -> bool:
        """Tell whether a request may run here and now."""
        return self._may_run_inline and self._pace.is_quick(kind)

    def has_room(self) -> bool:
        """Tell whether another request may wait for a thread."""
        return self._in_flight < self._max_in_flight

    def run(self, kind: str, work: Callable[[], Any]) -> Any:
        """Run a request and note how long it took."""
        started = time.perf_counter()
        try:
            return work()
        finally:
            self._pace.note(kind, time.perf_counter() - started)

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        kind: str,
        work: Callable[[], Any],
        then: Callable[[Any], None],
    ) -> None:
        """Run a request on a thread; hand its result over on the loop."""
        self._in_flight += 1
        future: Any = loop.run_in_executor(self._threads, self.run, kind, work)

        def came_back(done: "asyncio.Future[Any]") -> None:
            self._in_flight -= 1
            if not self._in_flight and self._idle is not None:
                self._idle.set()
            if not done.cancelled():
                then(done.result())

        future.add_done_callback(came_back)

    async def drain(self, grace_s: float) -> None:
        """Wait until no thread works, at most so long."""
        if self._in_flight:
            self._idle = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False, cancel_futures=True)
