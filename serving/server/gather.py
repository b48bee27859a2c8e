"""Requests of an event loop's turn, taken step by step together.

All are read first, then run, then answered: the same work side by side costs a third
less than each request from end to end (bench/serving.py), for its code stays in the
processor's caches. Where batching is on, one call of TensorFlow serves them all; a batch
is then what came in a turn of the loop, or for as long as `batch_timeout_micros` says.
There are no threads here and no locks.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from serving.server.batching import BatchedModel, num_rows
from serving.server.steps import Outputs, Run, Steps

# So many runs do not wait for more of their turn: the first has waited long enough.
MAX_ALONE = 32
Results = list[tuple[Outputs | Exception, float]]
"""What came of each run, and the seconds that the loop worked on it."""


@dataclass(slots=True)
class _Request:
    """A request on its way."""

    kind: str
    steps: Steps[Any]
    then: Callable[[Any], None]
    seconds: float = 0.0
    """That the loop has worked on it."""


@dataclass(slots=True)
class _Queue:
    """What is run next."""

    run: Callable[[Sequence[Run]], Results]
    limit: int
    """Size at which nothing more is waited for."""
    timer: asyncio.Handle
    size: int = 0
    waiting: list[tuple[_Request, Run]] = field(default_factory=list)


class Gather:
    """Takes requests' steps on an event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, note: Callable[[str, float], None]
    ) -> None:
        """Begin with nothing.

        Args:
            loop: Whose thread calls all this.
            note: Told of each request's kind, and of the seconds that the loop worked
                on it, its share of a batch included.
        """
        self._loop, self._note = loop, note
        self._queues: dict[Hashable, _Queue] = {}

    def add(self, kind: str, steps: Steps[Any], then: Callable[[Any], None]) -> None:
        """Take a request's steps; tell `then` the answer, now or soon."""
        self._go_on(_Request(kind, steps, then), partial(next, steps))

    def _go_on(self, request: _Request, step: Callable[[], Run]) -> None:
        """Take a step: to the next run, or to the answer."""
        started = time.perf_counter()
        try:
            run = step()
        except StopIteration as stop:
            seconds = request.seconds + time.perf_counter() - started
            self._note(request.kind, seconds)
            request.then(stop.value)
            return
        model = run.model if isinstance(run.model, BatchedModel) else None
        key = model.queue_of(run) if model else None
        request.seconds += time.perf_counter() - started
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._open(key, model)
        queue.waiting.append((request, run))
        queue.size += 1 if key is None else num_rows(run.inputs)
        if queue.size >= queue.limit:
            self._run(key)

    def _open(self, key: Hashable, model: BatchedModel | None) -> _Queue:
        if model is None or key is None:
            timer = self._loop.call_soon(self._run, key)
            return _Queue(_one_by_one, MAX_ALONE, timer)
        options = model.options
        if options.batch_timeout_s:
            timer = self._loop.call_later(options.batch_timeout_s, self._run, key)
        else:
            timer = self._loop.call_soon(self._run, key)
        return _Queue(partial(_together, model), options.max_batch_size, timer)

    def _run(self, key: Hashable) -> None:
        queue = self._queues.pop(key)
        queue.timer.cancel()
        results = queue.run([run for _, run in queue.waiting])
        for (request, _), (result, seconds) in zip(queue.waiting, results, strict=True):
            request.seconds += seconds
            if isinstance(result, Exception):
                self._go_on(request, partial(request.steps.throw, result))
            else:
                self._go_on(request, partial(request.steps.send, result))

    def run_all(self) -> None:
        """Let nothing wait any longer."""
        while self._queues:
            self._run(next(iter(self._queues)))


def _one_by_one(runs: Sequence[Run]) -> Results:
    results: Results = []
    for run in runs:
        started = time.perf_counter()
        result: Outputs | Exception
        try:
            result = run()
        except Exception as error:  # noqa: BLE001  each request has its own
            result = error
        results.append((result, time.perf_counter() - started))
    return results


def _together(model: BatchedModel, runs: Sequence[Run]) -> Results:
    started = time.perf_counter()
    results = model.run_together(runs)
    seconds = (time.perf_counter() - started) / len(runs)
    return [(result, seconds) for result in results]
