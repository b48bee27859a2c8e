"""Nonsense over both APIs, slow clients, and many reloads: the server lives and stays small."""

import json
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from contract_server import (
    MODELS,
    Contracted,
    StatusError,
    config,
    examples,
    model_spec,
    predict_request,
    running,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import apis

METHODS = (
    "PredictionService/Predict",
    "PredictionService/Classify",
    "PredictionService/Regress",
    "PredictionService/MultiInference",
    "PredictionService/GetModelMetadata",
    "ModelService/GetModelStatus",
)
LOST = {"UNKNOWN", "INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
MAX_GROWTH = 1.1
fuzz = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contracted]:
    folder = tmp_path_factory.mktemp("victim")
    with running(
        folder / "log",
        "--model_name=m",
        f"--model_base_path={MODELS / 'half_plus_two'}",
    ) as server:
        yield server
        assert server.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]
        assert "Traceback" not in server.log.read_text()


def valid_requests() -> list[bytes]:
    regression = apis.RegressionRequest(
        model_spec=model_spec("m", signature="regress_x_to_y"),
        input=examples({"x": 1.0}),
    )
    return [
        predict_request("m", {"x": [1.0, 2.0]}).SerializeToString(),
        regression.SerializeToString(),
    ]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid request with a few bytes changed, or cut off."""
    content = bytearray(draw(st.sampled_from(valid_requests())))
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


@fuzz
@given(method=st.sampled_from(METHODS), payload=st.binary(max_size=200) | damaged())
def test_any_bytes_over_grpc_are_answered(
    victim: Contracted, method: str, payload: bytes
) -> None:
    assert status_of(victim, method, payload) not in LOST


def status_of(victim: Contracted, method: str, payload: bytes) -> str:
    call = victim.channel.unary_unary(f"/tensorflow.serving.{method}")
    try:
        call(payload, timeout=30)
    except grpc.RpcError as error:
        name: str = error.code().name
        is_unreadable = name == "INTERNAL" and "parse" in error.details()
        return "UNREADABLE" if is_unreadable else name
    return "OK"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.just({"b64": "YQ=="})
    | st.builds(lambda text: {"b64": text}, st.text(max_size=8))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)
BODIES = st.dictionaries(
    st.sampled_from(
        ["instances", "inputs", "signature_name", "examples", "context", "other"]
    ),
    VALUES,
    max_size=4,
)


@fuzz
@given(
    verb=st.sampled_from(["predict", "classify", "regress"]),
    body=BODIES.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=100),
)
def test_any_body_over_rest_is_answered_in_json(
    victim: Contracted, verb: str, body: bytes
) -> None:
    status, headers, text = victim.http("POST", f"/v1/models/m:{verb}", body)
    assert status in {200, 400}, text
    assert headers["content-type"] == "application/json"
    json.loads(text)


@fuzz
@given(
    path=st.text(
        st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60
    )
)
def test_any_path_is_answered(victim: Contracted, path: str) -> None:
    status, _, _ = victim.http("GET", f"/v1/models/{path}")
    assert status in {200, 400, 404}


@fuzz
@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_on_the_rest_port_end_in_an_answer_or_a_closed_connection(
    victim: Contracted, content: bytes
) -> None:
    with socket.create_connection(("127.0.0.1", victim.rest_port), 30) as connection:
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def test_half_open_and_slow_clients_hold_nobody_up(victim: Contracted) -> None:
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{"
    slow = [
        socket.create_connection(("127.0.0.1", victim.rest_port)) for _ in range(200)
    ]
    try:
        for number, connection in enumerate(slow):
            connection.sendall(head[: number % len(head) + 1])
        for _ in range(20):
            assert victim.rest_predict("m", {"inputs": [2.0]}) == (
                200,
                {"outputs": [3.0]},
            )
            assert victim.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]
    finally:
        for connection in slow:
            connection.close()


def test_client_that_does_not_read_holds_nobody_up(victim: Contracted) -> None:
    body = json.dumps({"inputs": [1.25] * 200_000}).encode()
    head = f"POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", victim.rest_port)) as connection:
        connection.settimeout(1.0)
        try:
            for _ in range(20):
                connection.sendall(head.encode() + body)
        except TimeoutError:
            pass  # the server does not read on, either
        assert victim.rest_predict("m", {"inputs": [2.0]}) == (200, {"outputs": [3.0]})


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.improves("memory")
def test_fifty_reloads_keep_memory_flat(tmp_path: Path) -> None:
    base = MODELS / "half_plus_two"

    def only(version: int) -> str:
        policy = f"model_version_policy {{ specific {{ versions: {version} }} }}"
        return config(("m", base, policy))

    file = tmp_path / "models.config"
    file.write_text(only(123))
    sizes = []
    with running(tmp_path / "log", f"--model_config_file={file}") as server:

        def swap(number: int) -> None:
            version = 123 + number % 2
            assert server.reload(only(version)) == ("OK", "")
            assert server.predict("m", {"x": [2.0]}, version=version)["y"][0] == 3.0

        for number in range(1, 61):
            swap(number)
            if number % 10 == 0:
                sizes.append(resident_mib(server.process.pid))
    assert sizes[-1] <= MAX_GROWTH * sizes[0], sizes


def test_requests_go_on_while_versions_are_swapped(tmp_path: Path) -> None:
    base = MODELS / "half_plus_two"
    both = "model_version_policy { all {} }"
    file = tmp_path / "models.config"
    file.write_text(config(("m", base, "")))

    def policies() -> Iterator[Any]:
        for number in range(20):
            yield config(("m", base, both if number % 2 == 0 else ""))

    with running(tmp_path / "log", f"--model_config_file={file}") as server:
        for text in policies():
            assert server.reload(text) == ("OK", "")
            for _ in range(20):
                assert server.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]


@pytest.mark.improves("overload")
def test_overload_is_shed_at_once_and_passes(echo: Path, tmp_path: Path) -> None:
    """Eight may wait or run; sixty-four come at once, over either API."""
    x = np.ones(1, np.float32)
    body = {"signature_name": "slow", "inputs": [1.0]}

    def over_grpc(server: Contracted) -> str:
        try:
            server.predict("echo", {"x": x}, signature="slow", timeout_s=20)
        except StatusError as error:
            return error.code
        return "OK"

    def over_rest(server: Contracted) -> int:
        return server.rest_predict("echo", body)[0]

    with running(
        tmp_path / "log",
        "--model_name=echo",
        f"--model_base_path={echo}",
        "--grpc_max_threads=2",
        "--rest_api_num_threads=2",
        "--max_in_flight=8",
    ) as server:
        for ask, shed, served in (
            (over_grpc, "RESOURCE_EXHAUSTED", "OK"),
            (over_rest, 503, 200),
        ):
            with ThreadPoolExecutor(64) as pool:
                answers = Counter(pool.map(ask, [server] * 64))
            assert set(answers) == {shed, served}
            assert answers[served] >= 8
            assert ask(server) == served


@fuzz
@given(st.binary(min_size=1, max_size=300), st.booleans())
def test_any_bytes_on_the_grpc_port_end_in_an_answer_or_a_closed_connection(
    victim: Contracted, content: bytes, has_preface: bool
) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    with socket.create_connection(("127.0.0.1", victim.grpc_port), 30) as connection:
        connection.sendall(preface + content if has_preface else content)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def test_many_requests_at_once_on_one_connection(victim: Contracted) -> None:
    payload = predict_request("m", {"x": np.arange(50, dtype=np.float32)})
    stub = victim.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    content = payload.SerializeToString()
    calls = [stub.future(content, timeout=30) for _ in range(600)]
    first = calls[0].result()
    assert all(call.result() == first for call in calls)


def test_sixty_four_megabytes_both_ways_beside_small_requests(
    victim: Contracted,
) -> None:
    large = np.arange(16 << 20, dtype=np.float32)
    with ThreadPoolExecutor(4) as pool:
        future = pool.submit(victim.predict, "m", {"x": large})
        for _ in range(20):
            assert victim.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]
        answer = future.result()["y"]
    assert answer.shape == large.shape
    assert answer[-1] == large[-1] / 2 + 2


def test_compressed_requests_are_inflated(victim: Contracted) -> None:
    stub = victim.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    content = predict_request(
        "m", {"x": np.zeros(1000, np.float32)}
    ).SerializeToString()
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        answer = stub(content, timeout=30, compression=compression)
        response = apis.PredictResponse.FromString(answer)
        assert response.outputs["y"].float_val[:3] == [2.0, 2.0, 2.0]


def test_request_that_is_taken_back_disturbs_no_other(victim: Contracted) -> None:
    stub = victim.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    content = predict_request(
        "m", {"x": np.zeros(100_000, np.float32)}
    ).SerializeToString()
    for _ in range(50):
        stub.future(content, timeout=30).cancel()
    assert victim.predict("m", {"x": [2.0]})["y"].tolist() == [3.0]
