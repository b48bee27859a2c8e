"""One request on its way: what it asks of the server beside its message."""

from collections.abc import Callable
from dataclasses import dataclass

from serving.errors import Code, RequestError

Clock = Callable[[], float]


def _never() -> bool:
    return False


@dataclass(slots=True)
class Call:
    """A request's protocol and deadline, and what was found out while answering it."""

    api: str
    """Predict, Classify, …"""
    protocol: str
    """`grpc` or `rest`."""
    deadline: float | None = None
    """By the clock, in seconds; None: none."""
    model: str = ""
    version: int | None = None
    label: str = ""
    signature: str = ""
    is_cancelled: Callable[[], bool] = _never
    """Tells whether nobody waits for the answer any more."""

    def check_deadline(self, clock: Clock) -> None:
        """Refuse to go on when nobody waits for the answer any more.

        Raises:
            RequestError: DEADLINE_EXCEEDED.
        """
        if self.deadline is not None and clock() >= self.deadline:
            raise RequestError(
                Code.DEADLINE_EXCEEDED,
                "The deadline passed before the request was run",
            )

    def time_left_s(self, clock: Clock) -> float | None:
        """Return the seconds until the deadline, at least 0; None: no deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - clock())
