"""Counters and histograms in Prometheus' text format, version 0.0.4.

Not the official client: that adds `_total` to the name of every counter, and TensorFlow
Serving's names, which dashboards know, have none.
"""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

Labels = tuple[str, ...]


class Metric(Protocol):
    """Something that is written out."""

    name: str
    about: str
    kind: str

    def samples(self) -> Iterable[str]:
        """Yield lines."""


class Counter:
    """A number that only grows, for each combination of labels."""

    kind = "counter"

    def __init__(self, name: str, about: str, labels: Sequence[str]) -> None:
        self.name, self.about = name, about
        self._labels = tuple(labels)
        self._values: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def add(self, labels: Labels, amount: float = 1) -> None:
        """Count."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + amount

    def value(self, labels: Labels) -> float:
        """Return the number so far."""
        return self._values.get(labels, 0)

    def samples(self) -> Iterable[str]:
        """Yield a line for each combination of labels."""
        with self._lock:
            values = dict(self._values)
        for labels, value in values.items():
            yield f"{self.name}{_braces(self._labels, labels)} {_number(value)}"


class Gauge:
    """Numbers that are asked for when they are written out."""

    kind = "gauge"

    def __init__(
        self,
        name: str,
        about: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Labels, float]]],
    ) -> None:
        self.name, self.about = name, about
        self._labels, self._read = tuple(labels), read

    def samples(self) -> Iterable[str]:
        """Yield a line for each combination of labels."""
        for labels, value in self._read():
            yield f"{self.name}{_braces(self._labels, labels)} {_number(value)}"


class Histogram:
    """How often values fell under each bound, for each combination of labels."""

    kind = "histogram"

    def __init__(
        self, name: str, about: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self.name, self.about = name, about
        self._labels, self._bounds = tuple(labels), tuple(bounds)
        self._counts: dict[Labels, npt.NDArray[np.int64]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = threading.Lock()

    def observe(self, labels: Labels, *values: float) -> None:
        """Count values in."""
        places = np.searchsorted(self._bounds, values)
        found = np.bincount(places, minlength=len(self._bounds) + 1)
        with self._lock:
            self._counts[labels] = self._counts.get(labels, 0) + found
            self._sums[labels] = self._sums.get(labels, 0.0) + math.fsum(values)

    def samples(self) -> Iterable[str]:
        """Yield the buckets, the sum and the count of each combination of labels."""
        with self._lock:
            counts = {k: values.tolist() for k, values in self._counts.items()}
            sums = dict(self._sums)
        names = (*self._labels, "le")
        for labels, values in counts.items():
            total = 0
            for bound, count in zip((*self._bounds, math.inf), values, strict=True):
                total += count
                braces = _braces(names, (*labels, _number(bound)))
                yield f"{self.name}_bucket{braces} {total}"
            braces = _braces(self._labels, labels)
            yield f"{self.name}_sum{braces} {_number(sums[labels])}"
            yield f"{self.name}_count{braces} {total}"


def exposition(metrics: Iterable[Metric]) -> str:
    """Write metrics as Prometheus reads them."""
    lines: list[str] = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.about}")
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines.extend(metric.samples())
    return "\n".join([*lines, ""])


def exponential(first: float, factor: float, count: int) -> list[float]:
    """Return bounds that grow by a factor."""
    return [first * factor**power for power in range(count)]


def _braces(names: Labels, values: Labels) -> str:
    if not names:
        return ""
    pairs = zip(names, values, strict=True)
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if value == math.inf:
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
