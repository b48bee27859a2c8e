"""How requests become batches, with runs that only pretend."""

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import apis
from serving.errors import Code, RequestError, ServerError
from serving.server.batching import (
    BatchedModel,
    BatchingOptions,
    BatchScheduler,
    from_parameters,
)
from serving.server.steps import Run
from serving.tensors import Array

TIMEOUT_S = 30.0


class Doubling:
    """y = 2x, and remembers the sizes that it was run with."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate: threading.Event | None = None
        self.begun = threading.Event()
        self.failure: Exception | None = None

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.sizes.append(len(inputs["x"]))
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(TIMEOUT_S)
        if self.failure is not None:
            raise self.failure
        return {"y": inputs["x"] * 2}


def rows(count: int, start: int = 0) -> dict[str, Array]:
    return {"x": np.arange(start, start + count, dtype=np.float32)}


def ask(
    scheduler: BatchScheduler, run: Doubling, inputs: dict[str, Array], key: str = "m"
) -> list[float]:
    answer: list[float] = scheduler.run(key, run, inputs, None)["y"].tolist()
    return answer


class Gated:
    """A scheduler whose only thread is busy, and requests that wait behind it."""

    def __init__(self, **options: Any) -> None:
        self.run = Doubling()
        self.run.gate = threading.Event()
        chosen = {"num_batch_threads": 1, **options}
        self.scheduler = BatchScheduler(BatchingOptions(**chosen))
        self.pool = ThreadPoolExecutor(64)
        self.first = self.pool.submit(ask, self.scheduler, self.run, rows(1))
        assert self.run.begun.wait(TIMEOUT_S)

    def submit(self, *args: Any) -> Any:
        return self.pool.submit(*args)

    def wait_for(self, count: int, key: str = "m") -> None:
        pause = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.005)):
            queue = self.scheduler._queues.get(key)
            if queue is not None and queue.size >= count:
                return
            pause.wait(0.005)
        pytest.fail("the requests did not come")

    def open(self) -> None:
        gate = self.run.gate
        assert gate is not None
        gate.set()


def test_request_alone_is_run_at_once() -> None:
    run = Doubling()
    scheduler = BatchScheduler(BatchingOptions())
    assert ask(scheduler, run, rows(3)) == [0.0, 2.0, 4.0]
    assert run.sizes == [3]
    assert scheduler._queues == {}


def test_what_waits_is_run_together_and_cut_apart_again() -> None:
    gated = Gated()
    asked = [
        gated.submit(ask, gated.scheduler, gated.run, rows(2, 10 * i)) for i in range(5)
    ]
    gated.wait_for(10)
    gated.open()
    assert gated.first.result(TIMEOUT_S) == [0.0]
    for i, future in enumerate(asked):
        assert future.result(TIMEOUT_S) == [20.0 * i, 20.0 * i + 2]
    assert gated.run.sizes == [1, 10]


def test_batches_are_filled_up_to_an_allowed_size() -> None:
    observed: list[tuple[int, int]] = []
    run = Doubling()
    scheduler = BatchScheduler(
        BatchingOptions(max_batch_size=8, allowed_batch_sizes=(2, 8)),
        observe=lambda size, padded, _: observed.append((size, padded)),
    )
    assert ask(scheduler, run, rows(3)) == [0.0, 2.0, 4.0]
    assert ask(scheduler, run, rows(1)) == [0.0]
    assert run.sizes == [8, 2]
    assert observed == [(3, 8), (1, 2)]


def test_large_request_is_split_and_put_together_again() -> None:
    run = Doubling()
    scheduler = BatchScheduler(BatchingOptions(max_batch_size=4))
    assert ask(scheduler, run, rows(10)) == (np.arange(10) * 2.0).tolist()
    assert sum(run.sizes) == 10
    assert max(run.sizes) <= 4


def test_queue_that_is_full_refuses_and_recovers() -> None:
    gated = Gated(max_batch_size=4, max_enqueued_batches=2)
    asked = [gated.submit(ask, gated.scheduler, gated.run, rows(4)) for _ in range(2)]
    gated.wait_for(8)
    with pytest.raises(RequestError, match="queue to which this task") as refused:
        ask(gated.scheduler, gated.run, rows(1))
    assert refused.value.code is Code.UNAVAILABLE
    gated.open()
    for future in asked:
        future.result(TIMEOUT_S)
    assert ask(gated.scheduler, gated.run, rows(1)) == [0.0]


def test_models_take_turns() -> None:
    """A queue that is always full does not keep another from its turn."""
    gated = Gated(max_batch_size=1)
    order: list[str] = []

    def noting(name: str) -> Callable[[Mapping[str, Array]], dict[str, Array]]:
        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            order.append(name)
            return {"y": inputs["x"]}

        return run

    asked = [
        gated.submit(gated.scheduler.run, "a", noting("a"), rows(1), None)
        for _ in range(6)
    ]
    gated.wait_for(6, "a")
    asked += [
        gated.submit(gated.scheduler.run, "b", noting("b"), rows(1), None)
        for _ in range(2)
    ]
    gated.wait_for(2, "b")
    gated.open()
    for future in asked:
        future.result(TIMEOUT_S)
    assert set(order[:4]) == {"a", "b"}
    assert order[:4].count("b") == 2


def test_run_that_fails_fails_all_its_requests_and_no_other() -> None:
    gated = Gated()
    asked = [gated.submit(ask, gated.scheduler, gated.run, rows(1)) for _ in range(3)]
    gated.wait_for(3)
    gated.run.failure = ValueError("kernel")
    gated.open()
    with pytest.raises(RequestError, match="kernel"):
        gated.first.result(TIMEOUT_S)
    for future in asked:
        with pytest.raises(RequestError, match="kernel") as failed:
            future.result(TIMEOUT_S)
        assert failed.value.code is Code.INTERNAL
    gated.run.failure = None
    assert ask(gated.scheduler, gated.run, rows(1)) == [0.0]


def test_expired_request_is_left_out_of_its_batch() -> None:
    gated = Gated()
    late = gated.submit(gated.scheduler.run, "m", gated.run, rows(5), 0.0)
    gated.wait_for(5)
    other = gated.submit(ask, gated.scheduler, gated.run, rows(2))
    gated.wait_for(7)
    gated.open()
    with pytest.raises(RequestError) as expired:
        late.result(TIMEOUT_S)
    assert expired.value.code is Code.DEADLINE_EXCEEDED
    assert other.result(TIMEOUT_S) == [0.0, 2.0]
    assert gated.run.sizes == [1, 2]


def test_output_without_rows_is_a_status() -> None:
    scheduler = BatchScheduler(BatchingOptions())
    with pytest.raises(RequestError, match="0th dimension") as failed:
        scheduler.run("m", lambda _: {"y": np.float32(1)}, rows(2), None)  # type: ignore[dict-item]
    assert failed.value.code is Code.FAILED_PRECONDITION


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40),
    limit=st.integers(1, 6),
    threads=st.integers(1, 3),
    timeout_s=st.sampled_from([0.0, 0.002]),
)
def test_every_request_gets_its_rows_whatever_comes_at_once(
    sizes: list[int], limit: int, threads: int, timeout_s: float
) -> None:
    run = Doubling()
    options = BatchingOptions(limit, timeout_s, 1000, threads)
    scheduler = BatchScheduler(options)
    with ThreadPoolExecutor(16) as pool:
        futures = [
            pool.submit(ask, scheduler, run, rows(size, 100 * number), str(number % 3))
            for number, size in enumerate(sizes)
        ]
        for number, (size, future) in enumerate(zip(sizes, futures, strict=True)):
            expected = (rows(size, 100 * number)["x"] * 2).tolist()
            assert future.result(TIMEOUT_S) == expected
    assert max(run.sizes) <= limit
    assert sum(run.sizes) == sum(sizes)
    assert scheduler._queues == {}
    assert scheduler._num_free == threads


def parameters(text: str) -> BatchingOptions:
    message = text_format.Parse(text, apis.BatchingParameters())
    return from_parameters(message, "file")


def test_parameters_are_read_with_the_originals_defaults() -> None:
    got = parameters("")
    assert (got.max_batch_size, got.batch_timeout_s) == (1000, 0.0)
    assert (got.max_enqueued_batches, got.allowed_batch_sizes) == (10, ())
    got = parameters(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 1500 } "
        "allowed_batch_sizes: 4 allowed_batch_sizes: 8 "
        "enable_large_batch_splitting { value: false }"
    )
    assert (got.max_batch_size, got.batch_timeout_s) == (8, 0.0015)
    assert (got.allowed_batch_sizes, got.splits_large) == ((4, 8), False)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("max_batch_size { value: 0 }", "max_batch_size must be at least 1, got 0"),
        ("batch_timeout_micros { value: -1 }", "must be at least 0, got -1"),
        ("allowed_batch_sizes: 7", r"end with max_batch_size \(1000\), got \[7\]"),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: 4 allowed_batch_sizes: 4",
            "must increase",
        ),
    ],
)
def test_parameters_that_cannot_be(text: str, refusal: str) -> None:
    with pytest.raises(ServerError, match=refusal):
        parameters(text)


class Checked(Doubling):
    """A model that takes what it gets."""

    signatures: ClassVar[Any] = {}

    def check(self, *_: Any) -> None:
        pass

    def run(self, _: str, inputs: Any, *__: Any) -> dict[str, Array]:
        return self(inputs)

    def close(self) -> None:
        pass


def test_request_without_rows_is_run_by_itself() -> None:
    options = BatchingOptions(max_batch_size=8, allowed_batch_sizes=(4, 8))
    model = Checked()
    batched = BatchedModel(model, BatchScheduler(options))
    assert batched.run("s", rows(0), ())["y"].tolist() == []
    assert model.sizes == [0]
    runs = [Run(batched, "s", rows(count)) for count in (3, 0)]
    assert batched.queue_of(runs[0]) is not None
    assert batched.queue_of(runs[1]) is None


def test_inputs_of_another_rank_are_not_padded_to_fit() -> None:
    batched = BatchedModel(
        Checked(), BatchScheduler(BatchingOptions(pads_variable_length=True))
    )
    keys = {
        batched.queue_of(Run(batched, "s", {"x": np.zeros(shape, np.float32)}))
        for shape in ((2, 3), (2, 7), (2, 3, 1))
    }
    assert len(keys) == 2


def test_timeout_without_measure_is_a_day() -> None:
    message = apis.BatchingParameters()
    message.batch_timeout_micros.value = 2**63 - 1
    options = from_parameters(message, "f")
    assert options.batch_timeout_s == 86400.0
    scheduler = BatchScheduler(options)
    run = Doubling()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, scheduler, run, rows(1))
        while not scheduler._queues:
            threading.Event().wait(0.005)
        scheduler.hurry()
        assert waiting.result(TIMEOUT_S) == [0.0]


def test_leader_waits_no_longer_than_its_deadline() -> None:
    scheduler = BatchScheduler(BatchingOptions(batch_timeout_s=3600.0))
    deadline = time.monotonic() + 0.05
    with pytest.raises(RequestError) as late:
        scheduler.run("m", Doubling(), rows(1), deadline)
    assert late.value.code is Code.DEADLINE_EXCEEDED
