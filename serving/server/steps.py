"""A request as steps: it yields what a model has to run, and is sent the outputs.

Whoever takes the steps decides where that runs, and together with what: a thread by
itself (`finish`), or an event loop together with what else has come (gather.py).
"""

import threading
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from serving.server.versions import Model
from serving.tensors import Array

T = TypeVar("T")
Outputs = dict[str, Array]


@dataclass(frozen=True, slots=True)
class Run:
    """A signature of a model that is to be run."""

    model: Model
    signature_name: str
    inputs: Mapping[str, Array]
    wanted: Sequence[str] = ()
    """Outputs; all when empty."""
    deadline: float | None = None
    """By the clock, in seconds; None: none."""

    def __call__(self) -> Outputs:
        """Run it.

        Raises:
            RequestError: The model refuses it, or failed.
        """
        return self.model.run(
            self.signature_name, self.inputs, self.wanted, self.deadline
        )


Steps = Generator[Run, Outputs, T]


def after(steps: Steps[T], run: Run) -> Run:
    """Run what a request waits for; return what it asks for next.

    Raises:
        StopIteration: It is answered; the value is the answer.
    """
    try:
        outputs = run()
    except Exception as error:  # noqa: BLE001  the request decides what it means
        return steps.throw(error)
    return steps.send(outputs)


def finish(steps: Steps[T]) -> T:
    """Take all steps of a request here and now; return its answer."""
    try:
        run = next(steps)
        while True:
            run = after(steps, run)
    except StopIteration as stop:
        answer: T = stop.value
        return answer


class _Waits(threading.local):
    """How long this thread has waited for other requests, in seconds."""

    seconds = 0.0


WAITS = _Waits()
