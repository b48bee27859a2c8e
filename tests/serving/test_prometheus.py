"""Metrics in Prometheus' text format."""

import threading

import pytest

from serving.errors import Code
from serving.server.call import Call
from serving.server.metrics import Metrics
from serving.server.prometheus import (
    Counter,
    Gauge,
    Histogram,
    exponential,
    exposition,
)


def test_counter_gauge_and_histogram_are_written_as_prometheus_reads_them() -> None:
    counter = Counter(":a:count", "Things.", ("model", "status"))
    counter.add(("m", "OK"))
    counter.add(("m", "OK"), 2)
    gauge = Gauge("b", "Now.", (), lambda: [((), 0.5)])
    histogram = Histogram("c", "Times.", ("model",), (1, 2.5))
    for value in (0.5, 1, 2, 99):
        histogram.observe(("m",), value)
    assert exposition([counter, gauge, histogram]) == (
        "# HELP :a:count Things.\n"
        "# TYPE :a:count counter\n"
        ':a:count{model="m",status="OK"} 3\n'
        "# HELP b Now.\n"
        "# TYPE b gauge\n"
        "b 0.5\n"
        "# HELP c Times.\n"
        "# TYPE c histogram\n"
        'c_bucket{model="m",le="1"} 2\n'
        'c_bucket{model="m",le="2.5"} 3\n'
        'c_bucket{model="m",le="+Inf"} 4\n'
        'c_sum{model="m"} 102.5\n'
        'c_count{model="m"} 4\n'
    )


def test_values_of_labels_are_escaped() -> None:
    counter = Counter("a", "A.", ("x",))
    counter.add(('q"\\\n',))
    assert list(counter.samples()) == [r'a{x="q\"\\\n"} 1']


def test_bounds_grow_as_tensorflow_servings() -> None:
    bounds = exponential(10, 1.8, 33)
    assert bounds[:3] == pytest.approx([10, 18, 32.4])
    assert len(bounds) == 33


def test_counting_from_many_threads_loses_nothing() -> None:
    counter, histogram = Counter("a", "A.", ()), Histogram("b", "B.", (), (1,))

    def count() -> None:
        for _ in range(2000):
            counter.add(())
            histogram.observe((), 0.5)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value(()) == 16_000
    assert "b_count 16000" in list(histogram.samples())


def test_names_that_clients_make_up_become_no_labels() -> None:
    metrics = Metrics()
    for number in range(100):
        call = Call("Predict", "grpc", model=f"made up {number}", label=str(number))
        metrics.request(call, Code.NOT_FOUND, 0.001)
    text = metrics.text()
    assert "made up" not in text
    assert (
        ':tensorflow:serving:request_count{model_name="",status="NOT_FOUND"} 100'
        in text
    )
