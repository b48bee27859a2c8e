"""Requests of a turn, read, run and answered together, on a loop that is stepped."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving import apis
from serving.errors import Code, RequestError, invalid_argument
from serving.server.batching import BatchedModel, BatchingOptions, BatchScheduler
from serving.server.gather import MAX_ALONE, Gather
from serving.server.steps import Run, Steps, finish
from serving.tensors import Array


class Handle:
    def __init__(self, call: Callable[[], None], after_s: float) -> None:
        self.call, self.after_s = call, after_s
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Calls what is due when it is told to."""

    def __init__(self) -> None:
        self.handles: list[Handle] = []

    def call_soon(self, call: Any, *args: Any) -> Handle:
        return self.call_later(0.0, call, *args)

    def call_later(self, after_s: float, call: Any, *args: Any) -> Handle:
        handle = Handle(lambda: call(*args), after_s)
        self.handles.append(handle)
        return handle

    def turn(self, passed_s: float = 0.0) -> None:
        due = [h for h in self.handles if h.after_s <= passed_s]
        self.handles = [h for h in self.handles if h.after_s > passed_s]
        for handle in due:
            if not handle.is_cancelled:
                handle.call()


class Doubler:
    """y = 2x; remembers its batches, refuses text and fails on 13."""

    def __init__(self) -> None:
        signature = apis.SignatureDef()
        signature.inputs["x"].name = "x:0"
        self.signatures = {"serving_default": signature}
        self.sizes: list[int] = []

    def check(self, _: str, inputs: Mapping[str, Array], wanted: Sequence[str]) -> None:
        if inputs["x"].dtype == object:
            raise invalid_argument("text")

    def run(
        self, _: str, inputs: Any, wanted: Any, deadline: float | None = None
    ) -> dict[str, Array]:
        self.check(_, inputs, wanted)
        self.sizes.append(len(inputs["x"]))
        if 13 in inputs["x"]:
            raise RequestError(Code.INTERNAL, "unlucky")
        return {"y": inputs["x"] * 2}

    def close(self) -> None:
        pass


def ask(model: Any, *values: Any) -> Steps[list[float] | str]:
    """Run a model on values; answer with its outputs or the error."""
    x = np.array(values, object if isinstance(values[0], str) else np.float32)
    try:
        outputs = yield Run(model, "serving_default", {"x": x})
    except RequestError as error:
        return str(error)
    answer: list[float] = outputs["y"].tolist()
    return answer


def batched(model: Doubler, **options: Any) -> BatchedModel:
    return BatchedModel(model, BatchScheduler(BatchingOptions(**options)))


class World:
    """A gather and what it answered, in order."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.noted: list[str] = []
        loop: Any = self.loop
        self.gather = Gather(loop, lambda kind, _: self.noted.append(kind))
        self.answers: list[Any] = []

    def add(self, model: Any, *values: Any) -> None:
        self.gather.add("kind", ask(model, *values), self.answers.append)


@pytest.fixture
def world() -> World:
    return World()


def test_steps_can_be_taken_by_one_thread_alone() -> None:
    assert finish(ask(Doubler(), 1, 2)) == [2, 4]
    assert finish(ask(Doubler(), 13)) == "unlucky"


def test_requests_of_a_turn_are_answered_at_its_end_each_by_itself(
    world: World,
) -> None:
    model = Doubler()
    for values in ((1,), (13,), (2, 3)):
        world.add(model, *values)
    assert world.answers == []
    world.loop.turn()
    assert world.answers == [[2], "unlucky", [4, 6]]
    assert model.sizes == [1, 1, 2]
    assert world.noted == ["kind"] * 3


def test_batch_serves_what_came_in_a_turn_and_nothing_of_the_next(
    world: World,
) -> None:
    model = Doubler()
    both = batched(model)
    world.add(both, 1)
    world.add(both, 2, 3)
    world.loop.turn()
    world.add(both, 4)
    world.loop.turn()
    assert world.answers == [[2], [4, 6], [8]]
    assert model.sizes == [3, 1]


def test_batch_that_fails_fails_for_all_in_it(world: World) -> None:
    both = batched(Doubler())
    world.add(both, 1)
    world.add(both, 13)
    world.loop.turn()
    assert world.answers == ["unlucky", "unlucky"]


def test_what_is_refused_keeps_out_of_the_batch(world: World) -> None:
    model = Doubler()
    both = batched(model)
    world.add(both, "a")
    world.add(both, 1)
    world.loop.turn()
    assert sorted(world.answers, key=str) == [[2], "text"]
    assert model.sizes == [1]


def test_full_batch_does_not_wait_and_a_timeout_lets_others_join(
    world: World,
) -> None:
    model = Doubler()
    both = batched(model, max_batch_size=3, batch_timeout_s=1.0)
    world.add(both, 1)
    world.loop.turn(0.5)
    assert world.answers == []
    world.add(both, 2)
    world.loop.turn(1.0)
    assert world.answers == [[2], [4]]
    world.add(both, 3, 4, 5)
    assert world.answers[2:] == [[6, 8, 10]]
    world.loop.turn(2.0)
    assert model.sizes == [2, 3]


def test_many_runs_do_not_wait_for_the_turn_to_end(world: World) -> None:
    model = Doubler()
    for value in range(MAX_ALONE + 1):
        world.add(model, 100 + value)
    assert len(world.answers) == MAX_ALONE
    world.loop.turn()
    assert len(world.answers) == MAX_ALONE + 1


def test_run_all_leaves_nothing_waiting(world: World) -> None:
    world.add(Doubler(), 1)
    world.add(batched(Doubler(), batch_timeout_s=9.0), 2)
    world.gather.run_all()
    assert world.answers == [[2], [4]]
    world.loop.turn(10.0)
    assert len(world.answers) == 2


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=9), max_size=12),
    st.integers(1, 8),
    st.booleans(),
    st.sets(st.integers(1, 8)),
)
def test_every_request_gets_its_own_rows(
    requests: list[list[int]], limit: int, splits: bool, sizes: set[int]
) -> None:
    world, model = World(), Doubler()
    allowed = tuple(sorted({s for s in sizes if s < limit} | {limit})) if sizes else ()
    both = batched(
        model, max_batch_size=limit, splits_large=splits, allowed_batch_sizes=allowed
    )
    expected = {}
    for number, values in enumerate(requests):
        is_refused = len(values) > limit and not splits
        expected[number] = "large" if is_refused else [2 * value for value in values]
    answers: dict[int, Any] = {}
    for number, values in enumerate(requests):
        steps = ask(both, *values)
        world.gather.add("k", steps, lambda a, n=number: answers.update({n: a}))  # type: ignore[misc]
    world.loop.turn()
    shown = {n: "large" if isinstance(a, str) else a for n, a in answers.items()}
    assert shown == expected
    assert all(size <= limit for size in model.sizes)
    assert not allowed or set(model.sizes) <= set(allowed)
