"""Both clients against the running server: one protocol, one behaviour."""

import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.client import InputSpec, PredictionClient, VersionStatus, connect
from serving.client.rest_client import from_json, to_json
from serving.errors import ClientError

TIMEOUT_S = 30.0
BOTH = pytest.mark.parametrize("client", ["rest", "grpc"], indirect=True)


@pytest.fixture
def client(request: Any, half_plus_two: Any) -> Iterator[PredictionClient]:
    port = getattr(half_plus_two, f"{request.param}_port")
    opened = connect(request.param, f"127.0.0.1:{port}", "half_plus_two")
    yield opened
    opened.close()


@BOTH
@pytest.mark.integration
def test_predict_returns_the_outputs(client: PredictionClient) -> None:
    x = np.array([[2.0], [np.nan]], np.float32)
    outputs = client.predict({"x": x}, "serving_default", TIMEOUT_S)
    (y,) = outputs.values()
    np.testing.assert_array_equal(y, [[3.0], [np.nan]])


@BOTH
@pytest.mark.integration
def test_inputs_are_those_of_the_signature(client: PredictionClient) -> None:
    x = InputSpec("x", "DT_FLOAT", (-1, 1))
    assert client.inputs("serving_default", TIMEOUT_S) == (x,)
    examples = InputSpec("inputs", "DT_STRING", ())
    assert client.inputs("regress_x_to_y", TIMEOUT_S) == (examples,)


@BOTH
@pytest.mark.integration
def test_status_lists_versions(client: PredictionClient) -> None:
    assert client.status(TIMEOUT_S) == (VersionStatus(124, "AVAILABLE"),)


@BOTH
@pytest.mark.integration
def test_unknown_signature_is_answered_with_the_known_ones(
    client: PredictionClient,
) -> None:
    with pytest.raises(ClientError, match="no signature 's'; it has: classify_x2_to"):
        client.inputs("s", TIMEOUT_S)


@BOTH
@pytest.mark.integration
def test_refusal_names_address_and_reason(client: PredictionClient) -> None:
    x = np.array([1.0], np.float32)
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:\d+: .*input"):
        client.predict({"z": x}, "serving_default", TIMEOUT_S)


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_unreachable_server_is_an_error_with_the_address(api: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    client = connect(api, f"127.0.0.1:{port}", "m")
    try:
        with pytest.raises(ClientError, match=f"127.0.0.1:{port}.*refused"):
            client.status(TIMEOUT_S)
    finally:
        client.close()


@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_server_that_does_not_answer_is_an_error_after_the_deadline(api: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = connect(api, f"127.0.0.1:{port}", "m")
        try:
            with pytest.raises(ClientError, match=f"127.0.0.1:{port}"):
                client.status(0.05)
        finally:
            client.close()


@pytest.mark.parametrize("address", ["localhost:http", "nowhere.invalid:1", "[::1"])
@pytest.mark.parametrize("api", ["rest", "grpc"])
def test_bad_address_is_an_error_that_names_it(api: Any, address: str) -> None:
    client = connect(api, address, "m")
    try:
        with pytest.raises(ClientError) as caught:
            client.status(5.0)
    finally:
        client.close()
    assert address in str(caught.value)


def test_json_keeps_bytes_text_and_exact_integers() -> None:
    array = np.array([[b"text"], [b"\xff"]], object)
    assert to_json(array) == [["text"], [{"b64": "/w=="}]]
    np.testing.assert_array_equal(from_json(to_json(array)), array)
    numbers = np.array([2**53 + 1])
    assert from_json(to_json(numbers)).tolist() == numbers.tolist()


def test_answers_keep_bytes_that_end_in_nul() -> None:
    assert from_json([{"b64": "YQA="}]).tolist() == [b"a\x00"]
    assert from_json({"b64": "YQA="}).item() == b"a\x00"
    assert from_json([["a", "bc"]]).shape == (1, 2)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_answers_of_one_integer_type_are_exact(numbers: list[int]) -> None:
    """Not so in numpy: it takes a list of integers below and over 2^63 for floats."""
    assert from_json(numbers).tolist() == numbers


def test_large_floats_stay_floats() -> None:
    assert from_json([1e30, 1.5]).dtype == np.float64
    assert from_json([math.inf, math.nan]).dtype == np.float64


class Foreign(BaseHTTPRequestHandler):
    """A program on the port that is no model server."""

    content = b""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("content", [b"", b"hello", b"[]", b"5", b'"\xff"', b"\xff"])
def test_program_that_is_no_model_server_is_an_error(content: bytes) -> None:
    handler = type("Handler", (Foreign,), {"content": content})
    with HTTPServer(("127.0.0.1", 0), handler) as foreign:
        answering = threading.Thread(target=foreign.handle_request)
        answering.start()
        client = connect("rest", f"127.0.0.1:{foreign.server_port}", "m")
        with pytest.raises(ClientError, match=r"200, (not JSON|no JSON object)"):
            client.status(TIMEOUT_S)
        answering.join(TIMEOUT_S)


def test_model_name_that_no_url_holds_is_an_error() -> None:
    for name in ("a b", "modèle"):
        with pytest.raises(ClientError, match=r"REST http://127\.0\.0\.1:1: "):
            connect("rest", "127.0.0.1:1", name).status(TIMEOUT_S)
