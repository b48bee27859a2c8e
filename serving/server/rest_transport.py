"""The REST door of the model server: HTTP/1.1 in TensorFlow Serving's paths and codes."""

import json
import logging
import re
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from serving import apis
from serving.errors import Code, RequestError, ServerError, invalid_argument
from serving.model_repository import parse_version
from serving.server import rest_json
from serving.server.grpc_transport import port_taken
from serving.server.service import SIGNATURE_DEF, ModelServer

log = logging.getLogger(__name__)
MAX_BODY_BYTES = 100 << 20
IDLE_TIMEOUT_S = 60
HTTP_STATUS: Mapping[Code, int] = {
    Code.CANCELLED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
}
_MODEL = r"/v1/models/(?P<name>[^/:]+)"
_MODEL += r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_PREDICT = re.compile(rf"{_MODEL}:predict", re.IGNORECASE)
_METADATA = re.compile(rf"{_MODEL}/metadata", re.IGNORECASE)
_STATUS = re.compile(_MODEL, re.IGNORECASE)
_LENGTH = re.compile(r"[0-9]{1,18}")
_NO_NAME = re.compile(r"/v1/models/?", re.IGNORECASE)


@dataclass(frozen=True)
class HttpRequest:
    """What of an HTTP request decides its answer."""

    method: str
    target: str
    """Path and query."""
    body: bytes = b""

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]


def answer(server: ModelServer, request: HttpRequest) -> tuple[int, str]:
    """Return HTTP status and JSON body; errors are answers, too."""
    try:
        return 200, _route(server, request)
    except RequestError as error:
        return HTTP_STATUS.get(error.code, 500), rest_json.error_json(str(error))
    except Exception as error:
        log.exception("a request failed")
        return 500, rest_json.error_json(str(error))


def _route(server: ModelServer, request: HttpRequest) -> str:
    routes: list[tuple[str, re.Pattern[str], Callable[..., str]]] = [
        ("POST", _PREDICT, _predict),
        ("GET", _METADATA, _metadata),
        ("GET", _STATUS, _status),
    ]
    for method, pattern, respond in routes:
        match = pattern.fullmatch(request.path)
        if match and method == request.method:
            return respond(server, _spec(match), request)
    if request.method == "GET" and _NO_NAME.fullmatch(request.path):
        raise invalid_argument("Missing model name in request.")
    raise invalid_argument(f"Malformed request: {request.method} {request.target}")


def _spec(match: re.Match[str]) -> Any:
    spec = apis.ModelSpec(name=match["name"])
    if match["version"] is not None:
        version = parse_version(match["version"])
        if version is None:
            raise invalid_argument(f"Version out of range: {match['version'][:100]}")
        spec.version.value = version
    if match["label"] is not None:
        spec.version_label = match["label"]
    return spec


def _predict(server: ModelServer, spec: Any, request: HttpRequest) -> str:
    body = rest_json.parse_body(request.body)
    signature = server.signature(spec, body.signature_name)
    inputs = rest_json.to_inputs(body, signature)
    outputs = server.run(spec, body.signature_name, inputs)
    write = rest_json.predictions if body.is_row_format else rest_json.outputs_json
    return write(outputs)


def _metadata(server: ModelServer, spec: Any, _: HttpRequest) -> str:
    asked = apis.GetModelMetadataRequest(
        model_spec=spec, metadata_field=[SIGNATURE_DEF]
    )
    response = server.get_model_metadata(asked)
    signatures = apis.SignatureDefMap()
    response.metadata[SIGNATURE_DEF].Unpack(signatures)
    document = {
        "model_spec": json.loads(rest_json.message_json(response.model_spec)),
        "metadata": {SIGNATURE_DEF: json.loads(rest_json.message_json(signatures))},
    }
    return json.dumps(document, indent=1)


def _status(server: ModelServer, spec: Any, _: HttpRequest) -> str:
    asked = apis.GetModelStatusRequest(model_spec=spec)
    return rest_json.message_json(server.get_model_status(asked))


def inflate(body: bytes) -> bytes:
    """Inflate a gzip body.

    Raises:
        RequestError: It is not whole, or it grows over the limit.
    """
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        inflated = inflater.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise invalid_argument(f"Cannot inflate the gzip body: {error}") from error
    if not inflater.eof:
        raise invalid_argument(
            "Cannot inflate the gzip body: it is cut off, or holds more than "
            f"{MAX_BODY_BYTES} bytes"
        )
    return inflated


class InFlight:
    """Counts the requests that are being answered."""

    def __init__(self) -> None:
        self._number = 0
        self._changed = threading.Condition()

    def __enter__(self) -> None:
        with self._changed:
            self._number += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._number -= 1
            self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until there are none, at most `timeout_s` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._number == 0, timeout_s)


class RestTransport:
    """Listens on a port and answers REST, a thread for each connection."""

    def __init__(self, server: ModelServer, host: str, port: int) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self._in_flight = InFlight()
        bound = {"model_server": server, "in_flight": self._in_flight}
        handler = type("Handler", (_Handler,), bound)
        try:
            self._http = _HttpServer((host, port), handler)
        except OSError as error:
            raise ServerError(port_taken("REST", host, port)) from error
        self.port: int = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self, grace_s: float) -> None:
        """Refuse new connections and let running requests finish."""
        if self._thread.is_alive():
            self._http.shutdown()
        self._http.server_close()
        self._in_flight.wait(grace_s)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log what a broken connection raised instead of printing it."""
        log.debug("connection of %s broke: %s", client_address, sys.exc_info()[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    # Small answers must not wait for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    model_server: ModelServer
    in_flight: InFlight

    def __getattr__(self, name: str) -> Callable[[], None]:
        """Take any method, `do_PUT` as `do_GET`: which are allowed the routes know."""
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def _handle(self) -> None:
        try:
            body = self._body()
        except RequestError as error:
            # What is left of the body would be read as the next request.
            self.close_connection = True
            self._send(400, rest_json.error_json(str(error)))
            return
        request = HttpRequest(self.command, self.path, body)
        with self.in_flight:
            self._send(*answer(self.model_server, request))

    def _body(self) -> bytes:
        if "Transfer-Encoding" in self.headers:
            raise invalid_argument(
                "Transfer-Encoding is not supported; send the body with Content-Length"
            )
        length = self.headers.get("Content-Length", "0")
        if not _LENGTH.fullmatch(length) or int(length) > MAX_BODY_BYTES:
            raise invalid_argument(
                f"Content-Length: got {length[:100]}, allowed: 0 to {MAX_BODY_BYTES}"
            )
        body = self.rfile.read(int(length))
        is_gzip = self.headers.get("Content-Encoding", "").lower() == "gzip"
        return inflate(body) if is_gzip else body

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Leave access logs to a proxy: a line a request costs more than it tells."""
