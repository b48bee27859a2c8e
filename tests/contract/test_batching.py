"""Requests run together: every answer is its own, sizes and limits are honoured."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from contract_server import (
    MODELS,
    Contracted,
    StatusError,
    config,
    examples,
    running,
    until,
)

from serving import apis

PARAMETERS = """
max_batch_size { value: 32 }
batch_timeout_micros { value: 5000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 2 }
allowed_batch_sizes: 4
allowed_batch_sizes: 16
allowed_batch_sizes: 32
"""


@contextmanager
def batching(folder: Path, parameters: str) -> Iterator[Contracted]:
    file = folder / "batching.config"
    file.write_text(parameters)
    models = folder / "models.config"
    models.write_text(
        config(
            ("half", MODELS / "half_plus_two", ""),
            ("matrix", MODELS / "matrix_half_plus_two", ""),
        )
    )
    monitoring = folder / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    with running(
        folder / "log",
        f"--monitoring_config_file={monitoring}",
        f"--model_config_file={models}",
        "--enable_batching=true",
        f"--batching_parameters_file={file}",
    ) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contracted]:
    with batching(tmp_path_factory.mktemp("batching"), PARAMETERS) as started:
        yield started


def test_every_client_gets_its_own_rows(server: Contracted) -> None:
    def ask(number: int) -> None:
        rows = np.arange(number, number + 1 + number % 5, dtype=np.float32)
        if number % 3 == 0:
            status, body = server.rest_predict("half", {"inputs": rows.tolist()})
            assert (status, body["outputs"]) == (200, (rows / 2 + 2).tolist())
        elif number % 3 == 1:
            assert (
                server.predict("half", {"x": rows})["y"].tolist()
                == (rows / 2 + 2).tolist()
            )
        else:
            square = np.stack([rows, rows])
            outputs = server.predict("matrix", {"x": square})
            assert outputs["y"].tolist() == (square / 2 + 2).tolist()

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(200)))


def test_examples_are_batched_too(server: Contracted) -> None:
    request = apis.RegressionRequest(input=examples({"x": 80.0}, {"x": 200.0}))
    request.model_spec.name = "half"
    request.model_spec.signature_name = "regress_x_to_y"
    response = server.call("PredictionService", "Regress", request)
    assert [r.value for r in response.result.regressions] == [42.0, 102.0]


def test_input_without_rows_is_refused(server: Contracted) -> None:
    with pytest.raises(StatusError, match="dimension") as refused:
        server.predict("half", {"x": np.float32(1)})
    assert refused.value.code == "INVALID_ARGUMENT"


def test_request_that_is_wrong_fails_alone(server: Contracted) -> None:
    with pytest.raises(StatusError, match="input size does not match"):
        server.predict("half", {"z": [1.0]})
    assert server.predict("half", {"x": [2.0]})["y"].tolist() == [3.0]


@pytest.mark.improves("large batch")
@pytest.mark.parametrize("rows", [32, 33, 100])
def test_request_larger_than_a_batch_is_split(server: Contracted, rows: int) -> None:
    x = np.arange(rows, dtype=np.float32)
    assert server.predict("half", {"x": x})["y"].tolist() == (x / 2 + 2).tolist()


def test_request_larger_than_a_batch_is_refused_where_splitting_is_off(
    tmp_path: Path,
) -> None:
    off = PARAMETERS + "enable_large_batch_splitting { value: false }"
    with batching(tmp_path, off) as server:
        assert server.predict("half", {"x": np.ones(32, np.float32)})["y"].shape == (
            32,
        )
        with pytest.raises(StatusError) as refused:
            server.predict("half", {"x": np.ones(33, np.float32)})
    assert refused.value.code == "INVALID_ARGUMENT"


@pytest.mark.improves("mixed shapes")
def test_unequal_shapes_are_not_run_together(server: Contracted) -> None:
    def ask(width: int) -> None:
        x = np.ones([2, width], np.float32)
        assert server.predict("matrix", {"x": x})["y"].shape == (2, width)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, [1, 2, 3, 4] * 20))


def test_variable_lengths_are_padded_when_asked_for(tmp_path: Path) -> None:
    def ask(server: Contracted, width: int) -> int:
        x = np.ones([1, width], np.float32)
        return int(server.predict("matrix", {"x": x})["y"].shape[1])

    widths = [1, 2, 3, 4] * 20
    parameters = PARAMETERS + "pad_variable_length_inputs: true"
    with batching(tmp_path, parameters) as server, ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda width: ask(server, width), widths))
    assert all(shape >= width for shape, width in zip(got, widths, strict=True))


@pytest.mark.parametrize(
    "parameters",
    ["max_batch_size { value: 0 }", "allowed_batch_sizes: 7", "nonsense: 1"],
)
def test_parameters_that_cannot_be_end_the_start(
    tmp_path: Path, parameters: str
) -> None:
    ended = pytest.raises(AssertionError, match="the server ended")
    with ended, batching(tmp_path, parameters):
        pass


@pytest.mark.improves("deadline")
def test_request_whose_deadline_passes_in_the_queue_is_not_run_and_counted(
    tmp_path: Path,
) -> None:
    slow = "max_batch_size { value: 100 } batch_timeout_micros { value: 1500000 }"
    with batching(tmp_path, slow) as server:
        with pytest.raises(StatusError) as refused:
            server.predict("half", {"x": [1.0]}, timeout_s=0.3)
        assert refused.value.code == "DEADLINE_EXCEEDED"

        def metrics() -> str:
            return server.http("GET", "/monitoring/prometheus/metrics")[2].decode()

        counted = ':request_count{model_name="half",status="DEADLINE_EXCEEDED"} 1'
        until(lambda: counted in metrics())
        assert ":runtime_latency_count{" not in metrics()
