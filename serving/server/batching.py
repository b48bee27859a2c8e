"""Requests run together: one call of TensorFlow for what several clients ask.

The parameters and their defaults are those of TensorFlow Serving's
session_bundle_config.proto and shared_batch_scheduler.h. There are no threads here:
the thread whose request is first in a queue runs the batch for all in it, for to hand
a request to another thread costs more than a small model.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from serving.errors import Code, RequestError, ServerError, invalid_argument
from serving.server.call import Clock
from serving.server.steps import WAITS, Outputs, Run
from serving.server.versions import Model
from serving.tensors import Array

Inputs = Mapping[str, Array]
RunBatch = Callable[[Inputs], Outputs]


MAX_TIMEOUT_S = 86400.0


@dataclass(frozen=True)
class BatchingOptions:
    """How requests become batches."""

    max_batch_size: int = 1000
    """Rows."""
    batch_timeout_s: float = 0.0
    """How long the first request of a batch waits for others."""
    max_enqueued_batches: int = 10
    """Batches of a queue that may wait; more is refused with UNAVAILABLE."""
    num_batch_threads: int = len(os.sched_getaffinity(0))
    """Batches that run at once, of all models."""
    allowed_batch_sizes: tuple[int, ...] = ()
    """A batch is filled up to the next of these; empty: as it is."""
    pads_variable_length: bool = False
    """Fill shorter inputs up with zeros; else only equal shapes are run together."""
    splits_large: bool = True
    """Cut what is larger than `max_batch_size`; else it is refused."""

    def padded(self, size: int) -> int:
        """Return the allowed size for so many rows."""
        return min((s for s in self.allowed_batch_sizes if s >= size), default=size)


def from_parameters(message: Any, where: str) -> BatchingOptions:
    """Take the contents of a BatchingParameters.

    Raises:
        ServerError: A value is not allowed.
    """
    defaults = BatchingOptions()

    def number(name: str, default: int, least: int = 1) -> int:
        value = getattr(message, name).value if message.HasField(name) else default
        if value < least:
            raise ServerError(f"{where}: {name} must be at least {least}, got {value}")
        return int(value)

    max_batch_size = number("max_batch_size", defaults.max_batch_size)
    sizes = tuple(message.allowed_batch_sizes)
    if list(sizes) != sorted(set(sizes)) or (sizes and sizes[-1] != max_batch_size):
        raise ServerError(
            f"{where}: allowed_batch_sizes must increase and end with max_batch_size "
            f"({max_batch_size}), got {list(sizes)}"
        )
    splits = message.enable_large_batch_splitting
    return BatchingOptions(
        max_batch_size,
        min(number("batch_timeout_micros", 0, 0) / 1e6, MAX_TIMEOUT_S),
        number("max_enqueued_batches", defaults.max_enqueued_batches),
        number("num_batch_threads", defaults.num_batch_threads),
        sizes,
        message.pad_variable_length_inputs,
        splits.value if message.HasField("enable_large_batch_splitting") else True,
    )


class _Task:
    """A request that waits: until it is answered, or told to lead."""

    __slots__ = (
        "deadline",
        "error",
        "inputs",
        "leads",
        "outputs",
        "queued",
        "size",
        "waited_s",
        "wake",
    )

    def __init__(
        self, inputs: Inputs, size: int, queued: float, deadline: float | None
    ) -> None:
        self.inputs, self.size = inputs, size
        self.queued, self.deadline = queued, deadline
        self.outputs: Outputs = {}
        self.error: RequestError | None = None
        self.leads = False
        self.waited_s = 0.0
        self.wake = threading.Lock()
        self.wake.acquire()

    def answer(self) -> Outputs:
        if self.error is not None:
            raise self.error
        return self.outputs


class _Queue:
    """What waits for one signature of one version, in inputs of one shape."""

    __slots__ = ("has_leader", "is_full", "run", "size", "tasks")

    def __init__(self, run: RunBatch, lock: threading.Lock) -> None:
        self.run = run
        self.tasks: deque[_Task] = deque()
        self.size = 0
        self.has_leader = False
        self.is_full = threading.Condition(lock)


class BatchScheduler:
    """Forms and runs batches; models and versions take turns."""

    def __init__(
        self,
        options: BatchingOptions,
        clock: Clock = time.monotonic,
        observe: Callable[[int, int, float], None] = lambda *_: None,
    ) -> None:
        """Begin without a queue.

        Args:
            options: How requests become batches.
            clock: Seconds.
            observe: Told of each batch: its rows, rows with padding, and the seconds
                that its first request waited.
        """
        self.options = options
        self._clock, self._observe = clock, observe
        self._lock = threading.Lock()
        self._queues: dict[Hashable, _Queue] = {}
        self._num_free = options.num_batch_threads
        self._is_hurried = False

    def hurry(self) -> None:
        """Run what waits, and let nothing wait for others any more."""
        with self._lock:
            self._is_hurried = True
            for queue in self._queues.values():
                queue.is_full.notify_all()

    def run(
        self, key: Hashable, run: RunBatch, inputs: Inputs, deadline: float | None
    ) -> Outputs:
        """Run inputs together with others of the same key.

        Args:
            key: What may be run together.
            run: Runs a batch.
            inputs: [rows, …] each.
            deadline: By the clock; None: none.

        Raises:
            RequestError: There is no room, the deadline passed, or the run failed.
        """
        tasks = self._tasks(inputs, deadline)
        with self._lock:
            queue = self._queues.get(key)
            if queue is None:
                queue = self._queues[key] = _Queue(run, self._lock)
            self._admit(queue, tasks)
            self._appoint()
            if queue.size >= self.options.max_batch_size:
                queue.is_full.notify_all()
        for task in tasks:
            task.wake.acquire()
            if task.leads:
                self._lead(key, queue)
        WAITS.seconds += max(task.waited_s for task in tasks)
        return _joined(tasks)

    def run_now(
        self, run: RunBatch, requests: Sequence[tuple[Inputs, float | None]]
    ) -> list[Outputs | RequestError]:
        """Run requests that have come together, at once and on this thread.

        Args:
            run: Runs a batch.
            requests: Inputs, and the deadline of each, as for `run`.
        """
        results: list[Outputs | RequestError] = []
        split: list[list[_Task] | RequestError] = []
        for inputs, deadline in requests:
            try:
                split.append(self._tasks(inputs, deadline))
            except RequestError as error:
                split.append(error)
        for batch in self._batches(split):
            self._run_batch(run, batch)
        for tasks in split:
            try:
                results.append(_joined(tasks) if isinstance(tasks, list) else tasks)
            except RequestError as error:
                results.append(error)
        return results

    def _batches(
        self, split: Sequence[list[_Task] | RequestError]
    ) -> Iterator[list[_Task]]:
        batch: list[_Task] = []
        size = 0
        for task in chain.from_iterable(s for s in split if isinstance(s, list)):
            if batch and size + task.size > self.options.max_batch_size:
                yield batch
                batch, size = [], 0
            batch.append(task)
            size += task.size
        if batch:
            yield batch

    def _tasks(self, inputs: Inputs, deadline: float | None) -> list[_Task]:
        """Cut a request into what fits in a batch."""
        size, limit, now = num_rows(inputs), self.options.max_batch_size, self._clock()
        if size <= limit:
            return [_Task(inputs, size, now, deadline)]
        if not self.options.splits_large:
            raise invalid_argument(
                f"Task size {size} is larger than maximum input batch size {limit}"
            )
        return [
            _Task(
                {name: array[begin : begin + limit] for name, array in inputs.items()},
                min(limit, size - begin),
                now,
                deadline,
            )
            for begin in range(0, size, limit)
        ]

    def _admit(self, queue: _Queue, tasks: Sequence[_Task]) -> None:
        size = sum(task.size for task in tasks)
        room = self.options.max_enqueued_batches * self.options.max_batch_size
        if queue.tasks and queue.size + size > room:
            raise RequestError(
                Code.UNAVAILABLE,
                "The batch scheduling queue to which this task was submitted is full",
            )
        queue.tasks.extend(tasks)
        queue.size += size

    def _appoint(self) -> None:
        """Let the first requests of waiting queues lead, as far as threads are free."""
        if not self._num_free:
            return
        for key, queue in list(self._queues.items()):
            if queue.has_leader or not queue.tasks:
                continue
            # Last in turn from now on.
            self._queues[key] = self._queues.pop(key)
            self._num_free -= 1
            queue.has_leader = True
            first = queue.tasks[0]
            first.leads = True
            first.wake.release()
            if not self._num_free:
                return

    def _lead(self, key: Hashable, queue: _Queue) -> None:
        """Form a batch, run it, and answer all that are in it."""
        with self._lock:
            batch = self._collect(queue)
            queue.has_leader = False
            if not queue.tasks:
                self._queues.pop(key, None)
            self._appoint()
        try:
            self._run_batch(queue.run, batch)
        finally:
            with self._lock:
                self._num_free += 1
                self._appoint()
            for task in batch:
                if not task.leads:
                    task.wake.release()

    def _collect(self, queue: _Queue) -> list[_Task]:
        options = self.options
        first = queue.tasks[0]
        until = first.queued + options.batch_timeout_s
        if first.deadline is not None:
            until = min(until, first.deadline)  # nobody waits for longer
        while queue.size < options.max_batch_size and not self._is_hurried:
            left = until - self._clock()
            if left <= 0:
                break
            queue.is_full.wait(left)
        batch: list[_Task] = []
        size = 0
        while queue.tasks and size + queue.tasks[0].size <= options.max_batch_size:
            task = queue.tasks.popleft()
            size += task.size
            batch.append(task)
        queue.size -= size
        return batch

    def _run_batch(self, run: RunBatch, batch: Sequence[_Task]) -> None:
        now = self._clock()
        alive = []
        for task in batch:
            task.waited_s = now - task.queued
            if task.deadline is not None and now >= task.deadline:
                task.error = RequestError(
                    Code.DEADLINE_EXCEEDED, "The deadline passed in the batching queue"
                )
            else:
                alive.append(task)
        if not alive:
            return
        try:
            size = sum(task.size for task in alive)
            padded = self.options.padded(size)
            self._observe(size, padded, now - alive[0].queued)
            outputs = run(_merge([task.inputs for task in alive], padded - size))
            _split(outputs, alive, padded)
            # What a batch takes beyond a request's own share, it waits for others.
            others_s = (self._clock() - now) * (1 - 1 / len(alive))
            for task in alive:
                task.waited_s += others_s
        except RequestError as error:
            for task in alive:
                task.error = error
        except Exception as error:  # noqa: BLE001  every waiting request must hear of it
            for task in alive:
                task.error = RequestError(Code.INTERNAL, str(error))


def _joined(tasks: Sequence[_Task]) -> Outputs:
    """Return the answer of a request that was cut into tasks."""
    answers = [task.answer() for task in tasks]
    if len(answers) == 1:
        return answers[0]
    return {
        name: np.concatenate([answer[name] for answer in answers])
        for name in answers[0]
    }


def num_rows(inputs: Inputs) -> int:
    """Return the rows that all inputs have.

    Raises:
        RequestError: An input has none, or another number.
    """
    sizes = set()
    for array in inputs.values():
        if not array.ndim:
            raise invalid_argument(
                "Batching session Run() input tensors must have at least one dimension"
            )
        sizes.add(len(array))
    if len(sizes) > 1:
        raise invalid_argument(
            "Batching session Run() input tensors must have equal 0th-dimension size"
        )
    return sizes.pop() if sizes else 0


def _merge(parts: Sequence[Inputs], num_filled: int) -> Inputs:
    """Return the parts one after the other, and rows that only fill up."""
    if len(parts) == 1 and not num_filled:
        return parts[0]
    merged = {}
    for name in parts[0]:
        arrays = _equal_shapes([part[name] for part in parts])
        if num_filled:
            # As the original: the first row of the last request.
            arrays.append(np.repeat(arrays[-1][:1], num_filled, axis=0))
        merged[name] = np.concatenate(arrays)
    return merged


def _equal_shapes(arrays: Sequence[Array]) -> list[Array]:
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) == 1:
        return list(arrays)
    largest = np.max([array.shape[1:] for array in arrays], axis=0)
    filled = []
    for array in arrays:
        missing = largest - array.shape[1:]
        nothing: Any = b"" if array.dtype == object else 0
        widths = [(0, 0), *((0, int(count)) for count in missing)]
        filled.append(np.pad(array, widths, constant_values=nothing))
    return filled


def _split(outputs: Outputs, tasks: Sequence[_Task], size: int) -> None:
    for name, array in outputs.items():
        if not array.ndim or len(array) != size:
            raise RequestError(
                Code.FAILED_PRECONDITION,
                f"Batched output tensor's 0th dimension does not equal the sum of the "
                f"0th dimension sizes of the input tensors (output {name}: "
                f"{list(array.shape)}, rows: {size})",
            )
    begin = 0
    for task in tasks:
        end = begin + task.size
        task.outputs = {name: array[begin:end] for name, array in outputs.items()}
        begin = end


class CheckedModel(Model, Protocol):
    """A model that can tell what it would refuse."""

    def check(self, signature_name: str, inputs: Inputs, wanted: Sequence[str]) -> None:
        """Refuse what `run` would refuse before it runs."""


class BatchedModel:
    """A model whose requests are run together."""

    def __init__(self, model: CheckedModel, scheduler: BatchScheduler) -> None:
        self._model, self._scheduler = model, scheduler
        self.options = scheduler.options

    @property
    def signatures(self) -> Mapping[str, Any]:
        """SignatureDef by name."""
        return self._model.signatures

    def run(
        self,
        signature_name: str,
        inputs: Inputs,
        wanted: Sequence[str],
        deadline: float | None = None,
    ) -> Outputs:
        """Run a signature, together with what others ask of it meanwhile.

        Raises:
            RequestError: As the model's, or there is no room for more.
        """
        names = tuple(wanted)
        self._model.check(signature_name, inputs, names)
        if not num_rows(inputs):
            return self._model.run(signature_name, inputs, names, deadline)
        key = self._key(signature_name, inputs, names)
        return self._scheduler.run(
            key, self._runner(signature_name, names), inputs, deadline
        )

    def queue_of(self, run: Run) -> Hashable:
        """Return what runs must have in common to be run together.

        None: this one is to be run by itself, at once, and be it to be refused.
        """
        names = tuple(run.wanted)
        try:
            self._model.check(run.signature_name, run.inputs, names)
            if not num_rows(run.inputs):
                return None
        except RequestError:
            return None
        return self._key(run.signature_name, run.inputs, names)

    def run_together(self, runs: Sequence[Run]) -> list[Outputs | RequestError]:
        """Run what `queue_of` says belongs together, at once and on this thread."""
        first = runs[0]
        return self._scheduler.run_now(
            self._runner(first.signature_name, tuple(first.wanted)),
            [(run.inputs, run.deadline) for run in runs],
        )

    def _key(
        self, signature_name: str, inputs: Inputs, names: tuple[str, ...]
    ) -> Hashable:
        shapes: tuple[Any, ...]
        if self.options.pads_variable_length:
            shapes = tuple(inputs[name].ndim for name in sorted(inputs))
        else:
            shapes = tuple(inputs[name].shape[1:] for name in sorted(inputs))
        return id(self), signature_name, names, shapes

    def _runner(self, signature_name: str, names: tuple[str, ...]) -> RunBatch:
        return lambda batch: self._model.run(signature_name, batch, names)

    def close(self) -> None:
        """Give the memory back."""
        self._model.close()
