"""gRPC over HTTP/2 by hand: what a well-behaved client never sends, and the end."""

import gzip
import socket
import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import hpack
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from serving import apis
from serving.model_server_config import ModelConfig
from serving.server.core import ServerCore
from serving.server.grpc_loop_transport import LoopGrpcTransport, _timeout_s
from serving.server.grpc_options import GrpcOptions
from serving.server.http2 import END_HEADERS, END_STREAM, PREFACE, frame
from serving.server.service import ModelServer
from serving.tensors import to_array, to_proto

pytestmark = pytest.mark.integration
TIMEOUT_S = 30.0
PREDICT = "/tensorflow.serving.PredictionService/Predict"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"


class Echo:
    """y = x; slowly, if it is told to."""

    def __init__(self) -> None:
        self.gate: threading.Event | None = None
        self.begun = threading.Event()
        self.signatures = {"serving_default": apis.SignatureDef()}

    def run(
        self, _: str, inputs: Any, wanted: Any, deadline: float | None = None
    ) -> Any:
        self.begun.set()
        if self.gate is not None:
            assert self.gate.wait(TIMEOUT_S)
        return {"y": inputs["x"]}

    def close(self) -> None:
        pass


@pytest.fixture
def model() -> Echo:
    return Echo()


@pytest.fixture
def transport(model: Echo, tmp_path: Path) -> Iterator[LoopGrpcTransport]:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").touch()
    core = ServerCore(lambda *_: model)
    core.begin([ModelConfig("m", tmp_path / "m")])
    options = GrpcOptions(port=0, has_health_service=True)
    started = LoopGrpcTransport(ModelServer(core), options)
    started.start()
    yield started
    started.stop(5.0)
    core.close()


def predict(value: float = 2.0) -> bytes:
    request = apis.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].dtype = 1
    request.inputs["x"].float_val.append(value)
    content: bytes = request.SerializeToString()
    return content


def framed(message: bytes, flag: int = 0) -> bytes:
    return bytes([flag]) + struct.pack(">I", len(message)) + message


def zipped(message: bytes) -> bytes:
    """Compress, without the time: names of tests are made of it."""
    return gzip.compress(message, mtime=0)


class Client:
    """A connection by hand."""

    def __init__(self, transport: LoopGrpcTransport) -> None:
        address = ("127.0.0.1", transport.port)
        self.socket = socket.create_connection(address, TIMEOUT_S)
        self.socket.sendall(PREFACE + frame(4, 0, 0))
        self.encoder, self.decoder = hpack.Encoder(), hpack.Decoder()
        self.content = b""

    def ask(self, body: bytes, path: str = PREDICT, **headers: str) -> dict[str, str]:
        """Send a request and return the headers of its answer, trailers included."""
        fields = [
            (":method", "POST"),
            (":path", path),
            ("content-type", "application/grpc"),
            *((name.replace("_", "-"), value) for name, value in headers.items()),
        ]
        block = self.encoder.encode(fields)
        self.socket.sendall(frame(1, END_HEADERS, 1, block))
        pieces = [body[at : at + 16384] for at in range(0, len(body), 16384)] or [b""]
        for piece in pieces[:-1]:
            self.socket.sendall(frame(0, 0, 1, piece))
        self.socket.sendall(frame(0, END_STREAM, 1, pieces[-1]))
        found: dict[str, str] = {}
        for kind, flags, payload in self.frames():
            if kind == 1:
                found |= dict(self.decoder.decode(payload))
                if flags & END_STREAM:
                    break
        return found

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        while True:
            while len(self.content) < 9:
                piece = self.socket.recv(65536)
                if not piece:
                    return
                self.content += piece
            size = int.from_bytes(self.content[:3])
            while len(self.content) < 9 + size:
                self.content += self.socket.recv(65536)
            kind, flags = self.content[3], self.content[4]
            payload, self.content = self.content[9 : 9 + size], self.content[9 + size :]
            yield kind, flags, payload


@pytest.fixture
def client(transport: LoopGrpcTransport) -> Iterator[Client]:
    made = Client(transport)
    yield made
    made.socket.close()


def test_request_by_hand_is_answered(client: Client) -> None:
    answer = client.ask(framed(predict()))
    assert (answer[":status"], answer["content-type"]) == ("200", "application/grpc")
    assert answer["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("body", "headers", "status", "text"),
    [
        (b"", {}, "13", "not one message"),
        (b"\x00\x00", {}, "13", "not one message"),
        (framed(predict()) * 2, {}, "13", "not one message"),
        (framed(predict())[:-1], {}, "13", "not one message"),
        (framed(predict(), 1), {}, "13", "without grpc-encoding"),
        (framed(b"no gzip", 1), {"grpc_encoding": "gzip"}, "13", "Cannot inflate"),
        (
            framed(zipped(predict())[:-4], 1),
            {"grpc_encoding": "gzip"},
            "13",
            "cut off",
        ),
        (framed(predict()), {"grpc_encoding": "snappy"}, "12", "got snappy, allowed"),
        (framed(predict()), {"content_type": "text/plain"}, "0", ""),
        (framed(b"\xff"), {}, "13", "Cannot parse"),
    ],
)
def test_messages_that_are_none(
    client: Client, body: bytes, headers: dict[str, str], status: str, text: str
) -> None:
    answer = client.ask(body, **headers)
    if "content_type" in headers:
        assert answer["grpc-status"] == "2"
    else:
        assert answer["grpc-status"] == status
    assert text in answer.get("grpc-message", "")


@pytest.mark.parametrize("name", ["gzip", "deflate"])
def test_messages_are_inflated(client: Client, name: str) -> None:
    packed = zipped(predict()) if name == "gzip" else zlib.compress(predict())
    assert client.ask(framed(packed, 1), grpc_encoding=name)["grpc-status"] == "0"


def test_unknown_method_is_unimplemented(client: Client) -> None:
    answer = client.ask(framed(b""), path="/a.B/C")
    assert answer["grpc-status"] == "12"
    assert answer["grpc-message"] == "Method not found: /a.B/C"


def test_message_of_an_error_is_escaped_for_a_header(client: Client) -> None:
    request = apis.GetModelStatusRequest()
    request.model_spec.name = "n\u00e4\n%"
    answer = client.ask(framed(request.SerializeToString()), path=STATUS)
    assert answer["grpc-message"].endswith("model n%C3%A4%0A%25")


def test_another_protocol_is_told_and_hung_up_on(transport: LoopGrpcTransport) -> None:
    address = ("127.0.0.1", transport.port)
    with socket.create_connection(address, TIMEOUT_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        content = b"".join(iter(lambda: connection.recv(1000), b""))
    assert frame(7, 0, 0, struct.pack(">LL", 0, 1)) in content


def test_stop_waits_for_what_runs_and_says_go_away(
    transport: LoopGrpcTransport, model: Echo
) -> None:
    model.gate = threading.Event()
    with grpc.insecure_channel(f"127.0.0.1:{transport.port}") as channel:
        future = channel.unary_unary(PREDICT).future(predict(7.0), timeout=TIMEOUT_S)
        assert model.begun.wait(TIMEOUT_S)
        stopping = threading.Thread(target=transport.stop, args=(TIMEOUT_S,))
        stopping.start()
        model.gate.set()
        response = apis.PredictResponse.FromString(future.result())
        stopping.join(TIMEOUT_S)
    assert to_array(response.outputs["y"]).tolist() == 7.0


def test_watching_health_goes_on_until_the_client_has_enough(
    transport: LoopGrpcTransport,
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{transport.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        assert watched.is_active()
        watched.cancel()
        with pytest.raises(grpc.RpcError) as unknown:
            stub.Check(health_pb2.HealthCheckRequest(service="x"), timeout=TIMEOUT_S)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        (b"2H", 7200.0),
        (b"3M", 180.0),
        (b"4S", 4.0),
        (b"500m", 0.5),
        (b"7u", 7e-6),
        (b"9n", 9e-9),
        (b"1x", None),
        (b"-1S", None),
        (b"mm", None),
        (b"", None),
    ],
)
def test_timeouts_are_read(text: bytes | None, seconds: float | None) -> None:
    assert _timeout_s(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize("digits", [9, 401, 5000])
def test_timeout_of_too_many_digits_is_none(client: Client, digits: int) -> None:
    answer = client.ask(framed(predict()), grpc_timeout="1" * digits + "S")
    assert answer["grpc-status"] == "0"


HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize("path", [HEALTH, REFLECTION])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (framed(b"\xff"), {}, "13"),
        (b"", {}, "13"),
        (framed(b"\n\x00")[:-1], {}, "13"),
        (framed(b"x", 1), {}, "13"),
        (framed(zipped(b"\xff"), 1), {"grpc_encoding": "gzip"}, "13"),
        (framed(zipped(b""), 1), {"grpc_encoding": "gzip"}, "0"),
        (framed(bytes(5 << 20)), {}, "8"),
    ],
)
def test_side_services_answer_what_is_none_and_the_connection_goes_on(
    client: Client, path: str, body: bytes, headers: dict[str, str], status: str
) -> None:
    answer = client.ask(body, path=path, **headers)
    assert answer["grpc-status"] == status


def test_metadata_that_is_too_large_is_one_requests_fault(
    transport: LoopGrpcTransport,
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{transport.port}") as channel:
        call = channel.unary_unary(PREDICT)
        with pytest.raises(grpc.RpcError) as refused:
            call(predict(), metadata=[("k", "x" * 70_000)], timeout=TIMEOUT_S)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert call(predict(), timeout=TIMEOUT_S)


def test_watch_of_a_service_that_is_not_known_stays_open(
    transport: LoopGrpcTransport,
) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{transport.port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        request = health_pb2.HealthCheckRequest(service="x")
        watched = stub.Watch(request, timeout=TIMEOUT_S)
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert next(watched).status == unknown
        assert watched.is_active()
        watched.cancel()


def reload_with(base_path: Path, name: str = "m") -> bytes:
    request = apis.ReloadConfigRequest()
    request.config.model_config_list.config.add(
        name=name, base_path=str(base_path), model_platform="tensorflow"
    )
    content: bytes = request.SerializeToString()
    return content


RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def test_reloads_that_wait_hold_up_no_request_and_no_stop(
    transport: LoopGrpcTransport, tmp_path: Path
) -> None:
    """Many without a deadline, some taken back, and the server is to stop at last."""
    with grpc.insecure_channel(f"127.0.0.1:{transport.port}") as channel:
        reload = channel.unary_unary(RELOAD)
        for _ in range(20):  # so quick that the next might be taken for quick, too
            reload(reload_with(tmp_path / "m"), timeout=TIMEOUT_S)
        waiting = [
            reload.future(reload_with(tmp_path / "missing", f"new-{n}"))
            for n in range(40)
        ]
        for future in waiting[::2]:
            future.cancel()
        request = apis.GetModelStatusRequest()
        request.model_spec.name = "none"
        status = channel.unary_unary(STATUS)
        for _ in range(30):
            with pytest.raises(grpc.RpcError) as answered:
                status(request.SerializeToString(), timeout=TIMEOUT_S)
            assert answered.value.code() is grpc.StatusCode.NOT_FOUND
        transport.server._core.end_waits()
        transport.stop(TIMEOUT_S)
        codes = {f.code().name for f in waiting[1::2]}
    assert codes <= {"CANCELLED", "ABORTED"}


def test_large_answer_goes_out_while_the_client_reads_slowly_and_the_server_stops(
    transport: LoopGrpcTransport,
) -> None:
    request = apis.PredictRequest()
    request.model_spec.name = "m"
    x = np.ones(8 << 20, np.float32)
    request.inputs["x"].CopyFrom(to_proto(x, raw=True))
    options = [("grpc.max_receive_message_length", -1)]
    address = f"127.0.0.1:{transport.port}"
    with grpc.insecure_channel(address, options) as channel:
        call = channel.unary_unary(PREDICT)
        future = call.future(request.SerializeToString(), timeout=TIMEOUT_S)
        while not transport.connections or not any(
            peer.is_busy for peer in transport.connections
        ):
            threading.Event().wait(0.005)
        transport.stop(TIMEOUT_S)
        response = apis.PredictResponse.FromString(future.result())
    assert to_array(response.outputs["y"]).shape == (8 << 20,)
