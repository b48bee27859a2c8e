"""Every metric of the model server: TensorFlow Serving's, and ours with more labels.

TensorFlow Serving's have its names, labels, buckets (10 µs · 1.8^n) and unit, µs; see
its servables/tensorflow/util.cc. Ours are in seconds, as Prometheus advises, and tell
versions and labels apart.
"""

from collections import deque
from contextlib import suppress
from typing import NamedTuple

from serving.errors import Code
from serving.server.call import Call
from serving.server.core import ServerCore
from serving.server.plan import State
from serving.server.prometheus import Counter, Gauge, Histogram, Metric, exposition
from serving.server.prometheus import exponential as exponential_bounds

MICROS = 1e6
TF_BOUNDS = exponential_bounds(10, 1.8, 33)
BOUNDS_S = exponential_bounds(100e-6, 2, 18)
ROW_BOUNDS = exponential_bounds(1, 2, 14)
ENTRY_POINTS = {"grpc": "GRPC", "rest": "REST"}
_CALL = ("model", "version", "label", "signature", "protocol")
_TF = ":tensorflow:serving:"


# Requests are counted so many at once; to count one is to remember how long it took.
FOLD_AT = 1024


class _Request(NamedTuple):
    """What requests that are counted together have in common."""

    api: str
    model: str
    version: str
    label: str
    signature: str
    protocol: str
    code: Code


def _taken(values: deque[float]) -> list[float]:
    """Empty a deque that other threads fill, and may empty, meanwhile."""
    taken: list[float] = []
    with suppress(IndexError):
        taken.extend(values.popleft() for _ in range(len(values)))
    return taken


class Metrics:
    """What is counted, and where."""

    def __init__(self) -> None:
        self._tf_requests = Counter(
            f"{_TF}request_count", "Requests by status.", ("model_name", "status")
        )
        self._tf_latency = Histogram(
            f"{_TF}request_latency",
            "Microseconds from a request's arrival to its answer.",
            ("model_name", "API", "entrypoint"),
            TF_BOUNDS,
        )
        self._tf_runtime = Histogram(
            f"{_TF}runtime_latency",
            "Microseconds that TensorFlow ran.",
            ("model_name", "API", "runtime"),
            TF_BOUNDS,
        )
        self._tf_warm_up = Histogram(
            f"{_TF}model_warmup_latency",
            "Microseconds that a version's warm-up took.",
            ("model_path", "status"),
            TF_BOUNDS,
        )
        self._tf_loads = Counter(
            ":tensorflow:cc:saved_model:load_attempt_count",
            "Loads by status.",
            ("model_path", "status"),
        )
        self._tf_load_latency = Counter(
            ":tensorflow:cc:saved_model:load_latency",
            "Microseconds that loads took.",
            ("model_path",),
        )
        self._tf_logged = Counter(
            f"{_TF}request_log_count",
            "Requests that were logged, by status.",
            ("model_name", "status"),
        )
        self._requests = Counter(
            "taxiway_requests_total", "Requests by status code.", (*_CALL, "code")
        )
        self._latency = Histogram(
            "taxiway_request_duration_seconds",
            "From a request's arrival to its answer.",
            _CALL,
            BOUNDS_S,
        )
        self._loads = Histogram(
            "taxiway_model_load_duration_seconds",
            "Loading a version, warm-up included.",
            ("model", "version", "status"),
            BOUNDS_S,
        )
        self._batch_rows = Histogram(
            "taxiway_batch_rows", "Rows of a batch, without padding.", (), ROW_BOUNDS
        )
        self._batch_padding = Counter(
            "taxiway_batch_padding_rows_total", "Rows that only filled batches up.", ()
        )
        self._batch_wait = Histogram(
            "taxiway_batch_wait_seconds",
            "Time that the first request of a batch waited in the queue.",
            (),
            BOUNDS_S,
        )
        self._answered: dict[_Request, deque[float]] = {}
        self._ran: dict[tuple[str, str], deque[float]] = {}
        self._all: list[Metric] = [
            value for value in vars(self).values() if hasattr(value, "samples")
        ]

    def watch(self, core: ServerCore) -> None:
        """Show the state of every version."""

        def states() -> list[tuple[tuple[str, ...], float]]:
            return [
                ((name, str(version), state.name), 1.0)
                for name in core.configs()
                for version, state in core.find(name).states().items()
            ]

        def in_flight() -> list[tuple[tuple[str, ...], float]]:
            return [
                ((name, str(servable.version)), float(servable.in_flight))
                for name in core.configs()
                for servable in core.find(name).servables()
                if servable.state is not State.END
            ]

        labels = ("model", "version")
        self._all += [
            Gauge(
                "taxiway_version_state",
                "1 for the state that a version is in.",
                (*labels, "state"),
                states,
            ),
            Gauge(
                "taxiway_requests_in_flight",
                "Requests that are being answered.",
                labels,
                in_flight,
            ),
        ]

    def request(self, call: Call, code: Code, seconds: float) -> None:
        """Count a request that was answered."""
        # A client's words must not become labels: anybody could make up as many.
        if call.version is None:
            key = _Request(call.api, "", "", "", "", call.protocol, code)
        else:
            signature = call.signature if code is Code.OK else ""
            key = _Request(
                call.api,
                call.model,
                str(call.version),
                call.label,
                signature,
                call.protocol,
                code,
            )
        values = self._answered.get(key)
        if values is None:
            values = self._answered.setdefault(key, deque())
        values.append(seconds)
        if len(values) >= FOLD_AT:
            self._count_requests(key, values)

    def _count_requests(self, key: "_Request", values: deque[float]) -> None:
        seconds = _taken(values)
        name, code = key.model, key.code.name
        self._tf_requests.add((name, code), len(seconds))
        self._tf_latency.observe(
            (name, key.api, ENTRY_POINTS[key.protocol]),
            *(value * MICROS for value in seconds),
        )
        labels = name, key.version, key.label, key.signature, key.protocol
        self._requests.add((*labels, code), len(seconds))
        self._latency.observe(labels, *seconds)

    def logged(self, model: str, code: Code) -> None:
        """Count a request that was logged, or could not be."""
        self._tf_logged.add((model, code.name))

    def run(self, call: Call, seconds: float) -> None:
        """Count a run of TensorFlow."""
        key = call.model, call.api
        values = self._ran.get(key)
        if values is None:
            values = self._ran.setdefault(key, deque())
        values.append(seconds)
        if len(values) >= FOLD_AT:
            self._count_runs(key, values)

    def _count_runs(self, key: tuple[str, str], values: deque[float]) -> None:
        micros = [value * MICROS for value in _taken(values)]
        self._tf_runtime.observe((*key, "TF1"), *micros)

    def load(self, model: str, path: str, code: Code, seconds: float) -> None:
        """Count a load, warm-up included."""
        status = "success" if code is Code.OK else "fail"
        self._tf_loads.add((path, status))
        self._tf_load_latency.add((path,), seconds * MICROS)
        version = path.rstrip("/").rpartition("/")[2]
        self._loads.observe((model, version, code.name), seconds)

    def warm_up(self, path: str, code: Code, seconds: float) -> None:
        """Count a version's warm-up."""
        self._tf_warm_up.observe((path, code.name), seconds * MICROS)

    def batch(self, rows: int, padded: int, waited_s: float) -> None:
        """Count a batch."""
        self._batch_rows.observe((), rows)
        self._batch_padding.add((), padded - rows)
        self._batch_wait.observe((), waited_s)

    def text(self) -> str:
        """Write all in Prometheus' text format."""
        for request, values in list(self._answered.items()):
            self._count_requests(request, values)
        for run, values in list(self._ran.items()):
            self._count_runs(run, values)
        return exposition(self._all)
