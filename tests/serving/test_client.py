"""Both clients against the running server: one protocol, one behaviour."""

import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

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
