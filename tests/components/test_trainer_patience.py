"""Input of other processes is waited for, but not for ever; time is a fake."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from components.trainer.loop import InputLost
from components.trainer.patience import Patience, patiently


class Clock:
    """Goes on by so much each time that it is looked at."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self.now = 0.0

    def __call__(self) -> float:
        self.now += self._step_s
        return self.now


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Ends what hangs at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def patience(*, asked: bool = False, may_save: bool = True) -> Patience:
    return Patience(
        "the service", may_save, lambda: asked, poll_s=0.001, clock=Clock(4.0)
    )


def test_what_comes_is_handed_on_in_order() -> None:
    chunks = patiently(lambda: iter(range(10**9)), patience())
    assert [next(chunks) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("asked", "seconds"), [(False, 604), (True, 12)], ids=["running", "asked to stop"]
)
def test_a_source_that_hangs_is_given_up(
    seconds: int, over: threading.Event, *, asked: bool
) -> None:
    def hanging() -> Iterator[int]:
        yield 1
        over.wait()

    chunks = patiently(hanging, patience(asked=asked, may_save=False))
    assert next(chunks) == 1
    with pytest.raises(
        InputLost, match=f"^the service has handed out nothing for {seconds} s$"
    ) as lost:
        next(chunks)
    assert (lost.value.by_wish, lost.value.may_save) == (asked, False)


def test_a_source_that_hangs_before_it_has_begun_is_given_up(
    over: threading.Event,
) -> None:
    def begin() -> Any:
        over.wait()

    with pytest.raises(InputLost, match="nothing for 604 s"):
        next(patiently(begin, patience()))


def test_a_source_that_says_that_it_is_gone_is_given_up_at_once() -> None:
    def gone() -> Iterator[int]:
        raise tf.errors.UnavailableError(None, None, "Socket closed")
        yield

    with pytest.raises(InputLost, match=r"^the service is gone \(Socket closed\)$"):
        next(patiently(gone, patience()))


def test_what_else_goes_wrong_is_not_hidden() -> None:
    def wrong() -> Iterator[int]:
        raise tf.errors.InvalidArgumentError(None, None, "no column x")
        yield

    with pytest.raises(tf.errors.InvalidArgumentError):
        next(patiently(wrong, patience()))
