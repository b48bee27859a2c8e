"""TensorFlow Serving's known answers, over both APIs, from the running server."""

import gzip
import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from serving import apis
from serving.errors import ServerError
from serving.server.process import EmbeddedServer
from serving.tensors import to_array, to_proto

pytestmark = pytest.mark.integration
TIMEOUT_S = 60


def test_known_answers_over_rest(half_plus_two: Any) -> None:
    rows = half_plus_two.rest_predict({"instances": [2.0, 3.0, 4.0]})
    columns = half_plus_two.rest_predict({"inputs": [2.0, 3.0, 4.0]})
    assert rows == (200, {"predictions": [3.0, 3.5, 4.0]})
    assert columns == (200, {"outputs": [3.0, 3.5, 4.0]})


def test_known_answers_over_grpc(half_plus_two: Any) -> None:
    response = half_plus_two.grpc_predict([2.0, 3.0, 4.0])
    assert to_array(response.outputs["y"]).tolist() == [3.0, 3.5, 4.0]
    assert list(response.outputs["y"].float_val) == [3.0, 3.5, 4.0]
    assert response.model_spec.version.value == 124
    assert response.model_spec.signature_name == "serving_default"


def test_version_with_leading_zeros_is_asked_for_by_its_number(
    version_123: Any,
) -> None:
    assert version_123.grpc_predict([2.0], version=123).outputs["y"].float_val == [3.0]


def test_only_the_latest_version_is_served(half_plus_two: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        half_plus_two.grpc_predict([2.0], version=123)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert half_plus_two.states() == {124: ("AVAILABLE", "")}


def test_metadata_is_the_document_of_tensorflow_serving(
    version_123: Any, conformance: Path
) -> None:
    path = f"/v1/models/{version_123.model}/metadata"
    status, text = version_123.rest("GET", path)
    expected = (conformance / "half_plus_two.metadata.json").read_text()
    assert (status, json.loads(text)) == (200, json.loads(expected))


def test_status_over_rest(half_plus_two: Any) -> None:
    status, text = half_plus_two.rest("GET", "/v1/models/half_plus_two")
    assert (status, json.loads(text)) == (
        200,
        {
            "model_version_status": [
                {
                    "version": "124",
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
            ]
        },
    )


def test_tf1_model_that_tensorflow_2_refuses_is_served(
    start: Callable[..., Any], conformance: Path
) -> None:
    server = start("m", conformance / "models" / "half_plus_three")
    assert server.rest_predict({"instances": [2.0]}) == (200, {"predictions": [4.0]})
    assert server.grpc_predict([2.0]).outputs["y"].float_val == [4.0]


@pytest.mark.parametrize(
    ("spec", "code", "text"),
    [
        ({"name": "n"}, "NOT_FOUND", "Servable not found for request: Latest(n)"),
        ({"version_label": "x"}, "INVALID_ARGUMENT", "Unrecognized servable version"),
        (
            {"signature_name": "x"},
            "FAILED_PRECONDITION",
            'Serving signature key "x" not found.',
        ),
        (
            {"signature_name": "classify_x_to_y"},
            "INVALID_ARGUMENT",
            "Missing but required: {inputs}.",
        ),
    ],
)
def test_grpc_refuses_with_code_and_text(
    half_plus_two: Any, spec: dict[str, str], code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        half_plus_two.grpc_predict([2.0], **spec)
    assert caught.value.code() is grpc.StatusCode[code]
    assert text in caught.value.details()


def test_failure_inside_the_graph_is_the_clients_fault(half_plus_two: Any) -> None:
    """Parsing bytes that are no tf.Example fails while the graph runs."""
    request = apis.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.model_spec.signature_name = "regress_x_to_y"
    request.inputs["inputs"].CopyFrom(to_proto(np.array([b"\xff"], object)))
    with pytest.raises(grpc.RpcError, match="Could not parse example") as caught:
        half_plus_two.grpc("PredictionService/Predict", request, apis.PredictResponse)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_nan_and_infinity_go_in_and_come_out(half_plus_two: Any) -> None:
    body = '{"instances": [NaN, Infinity, -Infinity]}'
    status, text = half_plus_two.rest("POST", "/v1/models/half_plus_two:predict", body)
    assert status == 200
    assert "[NaN, Infinity, -Infinity]" in text


def test_malformed_json_is_400_and_says_where(half_plus_two: Any) -> None:
    status, text = half_plus_two.rest(
        "POST", "/v1/models/half_plus_two:predict", '{"instances": [1, 2}'
    )
    assert status == 400
    assert "JSON Parse error" in text
    assert "offset: 19 (line 1, column 20)" in text


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_malformed_requests(half_plus_two: Any, method: str) -> None:
    status, text = half_plus_two.rest(method, "/v1/models/half_plus_two", "body")
    assert status == 400
    assert f"Malformed request: {method} /v1/models/half_plus_two" in text


def test_one_connection_takes_good_and_bad_requests(half_plus_two: Any) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", half_plus_two.rest_port, timeout=TIMEOUT_S
    )
    path = "/v1/models/half_plus_two:predict"
    seen = []
    for body in ('{"instances": [1]}', "{", '{"instances": [1]}'):
        connection.request("POST", path, body)
        response = connection.getresponse()
        response.read()
        seen.append((response.version, response.status))
    connection.close()
    assert seen == [(11, 200), (11, 400), (11, 200)]


def test_gzip_body_is_inflated(half_plus_two: Any) -> None:
    connection = http.client.HTTPConnection(
        "127.0.0.1", half_plus_two.rest_port, timeout=TIMEOUT_S
    )
    connection.request(
        "POST",
        "/v1/models/half_plus_two:predict",
        gzip.compress(b'{"instances": [2.0]}'),
        {"Content-Encoding": "gzip"},
    )
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (200, {"predictions": [3]})
    connection.close()


def test_chunked_body_is_answered(half_plus_two: Any) -> None:
    head = "POST /v1/models/half_plus_two:predict HTTP/1.1\r\nConnection: close\r\n"
    chunks = '9\r\n{"inputs"\r\n6\r\n: [2]}\r\n0\r\n\r\n'
    address = ("127.0.0.1", half_plus_two.rest_port)
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{chunks}".encode())
        answers = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 1
    assert json.loads(answers.partition(b"\r\n\r\n")[2]) == {"outputs": [3.0]}


def test_five_megabytes_are_taken_over_grpc(half_plus_two: Any) -> None:
    response = half_plus_two.grpc_predict([1.0] * 1_000_000)
    assert len(response.outputs["y"].float_val) == 1_000_000


def test_int64_is_exact_over_both_apis(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    script = (
        "import sys, tensorflow as tf\n"
        "m = tf.Module()\n"
        "m.f = tf.function(lambda x: {'y': x, 'text': tf.strings.as_string(x)},\n"
        "    input_signature=[tf.TensorSpec([None], tf.int64, name='x')])\n"
        "tf.saved_model.save(m, sys.argv[1], signatures=m.f)\n"
    )
    folder = tmp_path / "m" / "1"
    subprocess.run([sys.executable, "-c", script, folder], check=True)
    server = start("m", folder.parent)
    number = 2**53 + 1
    assert server.rest_predict({"instances": [number]}) == (
        200,
        {"predictions": [{"text": str(number), "y": number}]},
    )
    request = apis.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(to_proto(np.array([number])))
    response = server.grpc("PredictionService/Predict", request, apis.PredictResponse)
    assert list(response.outputs["y"].int64_val) == [number]
    assert list(response.outputs["text"].string_val) == [str(number).encode()]


@pytest.mark.parametrize("flag", ["--port", "--rest_api_port"])
def test_taken_port_is_one_clear_sentence(conformance: Path, flag: str) -> None:
    other = {"--port": "--rest_api_port", "--rest_api_port": "--port"}[flag]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_server(conformance, f"{flag}={port}", f"{other}=0")
    assert done.returncode == 1
    assert f"127.0.0.1:{port} cannot be opened" in done.stderr
    assert "Traceback" not in done.stderr


def test_relative_base_path_is_refused() -> None:
    done = run_server(Path("relative"))
    assert done.returncode == 1
    assert "--model_base_path must be absolute, got relative" in done.stderr


def run_server(base: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    model = base / "models" / "half_plus_two"
    if not base.is_absolute():
        model = Path("relative")
    return subprocess.run(
        [
            *(sys.executable, "-m", "serving.server", f"--model_base_path={model}"),
            *("--host=127.0.0.1", "--free_ports", *flags),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def test_server_that_ends_at_start_is_an_error_that_names_its_log(
    tmp_path: Path,
) -> None:
    server = EmbeddedServer("m", tmp_path, tmp_path / "log")
    server._command = lambda: [sys.executable, "-c", "raise SystemExit(3)"]  # type: ignore[method-assign]
    with pytest.raises(ServerError, match="log"), server:
        pass
