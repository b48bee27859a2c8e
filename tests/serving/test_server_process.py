"""The server as a process: how it starts, ends, and outlives what it is sent."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from contract_server import publish as publish_by_hand

from serving import apis
from serving.errors import ServerError
from serving.model_repository import ModelRepository
from serving.server.process import EmbeddedServer
from serving.tensors import to_array, to_proto

pytestmark = pytest.mark.integration
TIMEOUT_S = 60.0


@pytest.fixture
def model(conformance: Path) -> Path:
    return conformance / "models" / "half_plus_two" / "00000123"


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    return ModelRepository(tmp_path / "models", "m")


def until(condition: Callable[[], bool]) -> None:
    """Wait for a fact, at most a minute."""
    pause = threading.Event()
    for _ in range(int(TIMEOUT_S / 0.05)):
        if condition():
            return
        pause.wait(0.05)
    pytest.fail("it did not come to be in a minute")


@contextmanager
def process(base_path: Path, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the server on free ports; it is killed if it outlives the block."""
    command = [sys.executable, "-m", "serving.server", f"--model_base_path={base_path}"]
    ports = ("--port=0", "--free_ports", "--host=127.0.0.1", "--may_be_empty")
    ports += ("--max_num_load_retries=0",)
    with subprocess.Popen(
        [*command, *ports, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()


def lines(started: "subprocess.Popen[str]", number: int) -> list[str]:
    output = started.stdout
    assert output is not None
    return [output.readline() for _ in range(number)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_server_that_is_told_to_stop_ends_with_0(model: Path, number: int) -> None:
    with process(model.parent, "--model_name=m") as started:
        ready = lines(started, 3)
        started.send_signal(number)
        said, errors = started.communicate(timeout=TIMEOUT_S)
    assert ready[2] == "version 124 of m is AVAILABLE\n"
    assert (started.returncode, said) == (0, "stopping\n")
    assert "Traceback" not in errors


def test_server_that_was_killed_starts_again_on_its_ports(model: Path) -> None:
    with process(model.parent) as first:
        addresses = lines(first, 3)[:2]
        first.kill()
        assert first.wait(TIMEOUT_S) == -signal.SIGKILL
    grpc_port = addresses[0].strip().rpartition(":")[2]
    rest_port = addresses[1].split("/")[2].rpartition(":")[2]
    flags = f"--port={grpc_port}", f"--rest_api_port={rest_port}"
    with process(model.parent, *flags) as second:
        assert lines(second, 2) == addresses
        assert "AVAILABLE" in lines(second, 1)[0]


@pytest.mark.parametrize("flag", ["--port", "--rest_api_port"])
@pytest.mark.parametrize("port", [-1, 65536, 99999])
def test_number_that_is_no_port_is_refused(
    tmp_path: Path, flag: str, port: int
) -> None:
    """Left to itself, gRPC listens on the port modulo 65536."""
    with process(tmp_path, f"{flag}={port}") as started:
        _, errors = started.communicate(timeout=TIMEOUT_S)
    assert started.returncode == 1
    assert errors == f"{flag} must be in [0, 65535], got {port}\n"


def test_stopped_server_has_no_process(model: Path, tmp_path: Path) -> None:
    with EmbeddedServer("m", model.parent, tmp_path / "log") as server:
        pid = server.pid
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ServerError, match="not running"):
        _ = server.pid
    server.stop()


def test_server_starts_without_a_base_path_and_says_so(tmp_path: Path) -> None:
    with process(tmp_path / "nowhere") as started:
        assert lines(started, 3)[2].startswith("no version yet in ")


def test_server_whose_only_version_is_broken_starts_and_says_why(
    repository: ModelRepository,
) -> None:
    folder = repository.folder / "1"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"\x00 no SavedModel")
    with process(repository.folder, "--model_name=m") as started:
        assert lines(started, 3)[2].startswith("version 1 of m cannot be loaded: ")


def test_base_path_that_goes_away_takes_no_version_with_it(
    start: Callable[..., Any], repository: ModelRepository, model: Path
) -> None:
    """A missing folder changes nothing; an empty one unloads all."""
    repository.publish(model)
    server = start("m", repository.folder)
    away = repository.folder.with_name("away")
    repository.folder.rename(away)
    for _ in range(10):
        assert server.rest_predict({"instances": [2.0]})[0] == 200
    repository.folder.mkdir()
    until(lambda: bool(server.states() == {1: ("END", "")}))
    assert server.rest_predict({"instances": [2.0]}) == (
        404,
        {"error": "Servable not found for request: Latest(m)"},
    )
    repository.publish(away / "1")
    until(lambda: bool(server.rest_predict({"instances": [2.0]})[0] == 200))


@pytest.mark.parametrize("lost", ["variables", "saved_model.pb"])
def test_version_that_lacks_a_part_never_serves(
    start: Callable[..., Any],
    repository: ModelRepository,
    model: Path,
    lost: str,
) -> None:
    repository.publish(model)
    server = start("m", repository.folder)
    broken = repository.folder / ".staging-test"
    shutil.copytree(model, broken)
    if lost == "variables":
        shutil.rmtree(broken / lost)
    else:
        (broken / lost).unlink()
    broken.rename(repository.folder / "2")
    publish_by_hand(model, repository.folder, 3)
    until(lambda: bool(server.states().get(3) == ("AVAILABLE", "")))
    until(lambda: bool(server.states()[1] == ("END", "")))
    assert server.states().get(2, ("never seen",))[0] in {"END", "never seen"}
    assert server.grpc_predict([2.0]).model_spec.version.value == 3


def test_matrices_go_in_and_come_out(
    start: Callable[..., Any], conformance: Path
) -> None:
    server = start("m", conformance / "models" / "matrix_half_plus_two")
    matrices = [[[1.0, 2.0], [3.0, 4.0]]]
    expected = [[[2.5, 3.0], [3.5, 4.0]]]
    assert server.rest_predict({"instances": matrices}) == (
        200,
        {"predictions": expected},
    )


TEXT_MODEL = """
import sys, tensorflow as tf
m = tf.Module()
m.f = tf.function(
    lambda x: {"scalar": x[0], "all": x, "same_bytes": x},
    input_signature=[tf.TensorSpec([None], tf.string, name="x")],
)
tf.saved_model.save(m, sys.argv[1], signatures=m.f)
"""


def test_text_and_bytes_come_back_whole_over_both_apis(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    """A scalar string is bytes to TensorFlow, and numpy's bytes end at their NULs."""
    folder = tmp_path / "m" / "1"
    subprocess.run([sys.executable, "-c", TEXT_MODEL, folder], check=True)
    server = start("m", folder.parent)
    assert server.rest_predict({"inputs": [{"b64": "YQA="}, "é"]}) == (
        200,
        {
            "outputs": {
                "scalar": "a\x00",
                "all": ["a\x00", "é"],
                "same_bytes": [{"b64": "YQA="}, {"b64": "w6k="}],
            }
        },
    )
    request = apis.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(to_proto(np.array([b"a\x00", b"\xff"], object)))
    response = server.grpc("PredictionService/Predict", request, apis.PredictResponse)
    outputs = {name: to_array(tensor) for name, tensor in response.outputs.items()}
    assert outputs["scalar"].item() == b"a\x00"
    assert outputs["all"].tolist() == [b"a\x00", b"\xff"]
    rows = server.rest_predict({"instances": ["a"]})
    assert rows[0] == 400
    assert "Tensor name: scalar has no shape information" in rows[1]["error"]


def raw(server: Any, *parts: bytes) -> bytes:
    """Send bytes and return all that comes until the server closes."""
    address = ("127.0.0.1", server.rest_port)
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(b"".join(parts))
        return b"".join(iter(partial(connection.recv, 65536), b""))


@pytest.mark.parametrize(
    "length",
    [b"-1", b"+1", b"x", b"\xb2", b"1" * 5000, str(2**40).encode(), b"1, 1"],
    ids=["negative", "sign", "word", "superscript", "long", "large", "list"],
)
def test_content_length_that_is_no_length_is_refused(
    half_plus_two: Any, length: bytes
) -> None:
    head = b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nContent-Length: "
    answer = raw(half_plus_two, head, length, b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Content-Length" in answer.partition(b"\r\n\r\n")[2]


def test_connection_that_the_server_ends_is_announced(half_plus_two: Any) -> None:
    """Else a pool of connections would send its next request into the void."""
    refused = raw(half_plus_two, b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n")
    asked = b"GET /v1/models/half_plus_two HTTP/1.1\r\nConnection: close\r\n\r\n"
    for answer in (refused, raw(half_plus_two, asked)):
        assert (
            b"\r\nConnection: close\r\n" in answer.partition(b"\r\n\r\n")[0] + b"\r\n"
        )


def test_half_a_surrogate_pair_is_answered(half_plus_two: Any) -> None:
    status, body = half_plus_two.rest_predict(
        {"instances": [1.0], "signature_name": "\ud800"}
    )
    assert status == 400
    assert "\ud800" in body["error"]


def test_connection_that_breaks_off_does_no_harm(half_plus_two: Any) -> None:
    head = (
        b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
    )
    address = ("127.0.0.1", half_plus_two.rest_port)
    for sent in (b"", b"GET", head, head + b'{"instances"', b"\x16\x03\x01\x00\xff\n"):
        with socket.create_connection(address, TIMEOUT_S) as connection:
            connection.sendall(sent)
    assert half_plus_two.rest_predict({"instances": [2.0]})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/", 404, "Not found: /"),
        ("GET", "/v1/models", 400, "Missing model name in request."),
        ("GET", "/v1/models/n", 404, "Could not find any versions of model n"),
        (
            "GET",
            "/v1/models/half_plus_two/versions/9",
            404,
            "Could not find version 9 of model half_plus_two",
        ),
        (
            "POST",
            "/v1/models/half_plus_two/versions/9:predict",
            404,
            "Servable not found for request: Specific(half_plus_two, 9)",
        ),
        (
            "POST",
            "/v1/models/half_plus_two/labels/canary:predict",
            400,
            "Unrecognized servable version label: canary",
        ),
    ],
)
def test_rest_refuses_with_status_and_text(
    half_plus_two: Any, method: str, path: str, status: int, text: str
) -> None:
    body = '{"instances": [1.0]}' if method == "POST" else None
    assert half_plus_two.rest(method, path, body) == (
        status,
        f'{{\n    "error": "{text}"\n}}',
    )


def test_grpc_says_what_is_wrong_with_a_tensor(half_plus_two: Any) -> None:
    request = apis.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].CopyFrom(apis.TensorProto(dtype=6, int_val=[300]))
    with pytest.raises(grpc.RpcError, match="DT_INT8 tensor of shape") as caught:
        half_plus_two.grpc("PredictionService/Predict", request, apis.PredictResponse)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_grpc_status_of_an_unknown_model_or_version_is_not_found(
    half_plus_two: Any,
) -> None:
    for name, version in (("n", None), ("half_plus_two", 9)):
        request = apis.GetModelStatusRequest()
        request.model_spec.name = name
        if version is not None:
            request.model_spec.version.value = version
        with pytest.raises(grpc.RpcError, match="Could not find") as caught:
            half_plus_two.grpc(
                "ModelService/GetModelStatus", request, apis.GetModelStatusResponse
            )
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_metadata_over_grpc_is_that_of_rest(half_plus_two: Any) -> None:
    request = apis.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "half_plus_two"
    response = half_plus_two.grpc(
        "PredictionService/GetModelMetadata", request, apis.GetModelMetadataResponse
    )
    signatures = apis.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert response.model_spec.version.value == 124
    _, text = half_plus_two.rest("GET", "/v1/models/half_plus_two/metadata")
    assert all(f'"{name}"' in text for name in signatures.signature_def)
    assert signatures.signature_def["serving_default"].inputs["x"].name == "x:0"


def test_answers_to_many_clients_are_not_mixed_up(half_plus_two: Any) -> None:
    wrong: list[Any] = []

    def client(number: float) -> None:
        for _ in range(10):
            over_rest = half_plus_two.rest_predict({"instances": [number]})
            over_grpc = half_plus_two.grpc_predict([number]).outputs["y"].float_val
            expected = number / 2 + 2
            if over_rest != (200, {"predictions": [expected]}) or over_grpc != [
                expected
            ]:
                wrong.append((number, over_rest, over_grpc))

    threads = [threading.Thread(target=client, args=(float(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)
