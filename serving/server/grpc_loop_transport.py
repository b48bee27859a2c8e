"""The gRPC door on an event loop: HTTP/2 of our own, no grpcio on the path of a request.

A request takes about a third of the time that it takes by way of grpcio's Python server
(bench/serving.py). All answers of a turn are sent at once. See the gRPC protocol,
PROTOCOL-HTTP2.md.
"""

import asyncio
import logging
import ssl
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvloop

from serving.errors import Code, RequestError, ServerError
from serving.server import grpc_side_services, rpc
from serving.server.call import Call
from serving.server.grpc_options import GrpcOptions, Tls
from serving.server.hpack_cache import Headers
from serving.server.http2 import INTERNAL_ERROR, Connection, ConnectionLost
from serving.server.http_transport import linger, listen
from serving.server.offload import Offload
from serving.server.ports import port_taken
from serving.server.service import ModelServer
from serving.server.steps import Steps

log = logging.getLogger(__name__)
PREFIX_BYTES = 5
MAX_MESSAGE_BYTES = 2**31 - 1
HELLO_TIMEOUT_S = 30.0
BACKLOG = 1024
MAX_ROUTES = 256
# PROTOCOL-HTTP2.md: a timeout has at most so many digits.
MAX_TIMEOUT_DIGITS = 8
MAX_METADATA_BYTES = 64 << 10
MAX_SIDE_MESSAGE_BYTES = 4 << 20
MAX_KEY = 100
_UNITS_S = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
# Literals without indexing, so that all connections can share them: RFC 7541, 6.2.2.
# 0x88 is `:status 200`; content-type has index 31.
_TYPE = b"application/grpc"
_OPENING = b"\x88\x0f\x10" + bytes([len(_TYPE)]) + _TYPE
_ENCODINGS = {"identity": 0, "gzip": 31, "deflate": 15}


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + _string(name) + _string(value)


def _string(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    size, head = size - 127, bytearray([127])
    while size >= 128:
        head.append(size % 128 | 128)
        size //= 128
    head.append(size)
    return bytes(head) + text


def _trailers(code: Code, message: str = "") -> bytes:
    block = _literal(b"grpc-status", str(int(code)).encode())
    if message:
        safe = quote(message, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
        block += _literal(b"grpc-message", safe.encode("latin-1", "replace"))
    return block


_OK = _trailers(Code.OK)


@dataclass(frozen=True, slots=True)
class _Route:
    """What a request's headers mean."""

    path: str
    method: rpc.Method | None
    side: Callable[[bytes], bytes] | None
    """Answers each message, of a service beside ours."""
    timeout_s: float | None
    encoding: int
    """How compressed messages are inflated, as zlib's wbits; 0: not at all."""
    refusal: tuple[Code, str] | None
    """Why it is not taken."""


@dataclass(slots=True)
class _Stream:
    """One request on its way in."""

    route: _Route
    deadline: float | None
    pieces: list[bytes] = field(default_factory=list)
    """Of the message; of a service beside ours, what is not answered yet."""
    size: int = 0
    """Of the pieces, in bytes."""
    has_opened: bool = False
    """Whether headers were sent."""
    is_cancelled: bool = False
    needed: int = PREFIX_BYTES
    """Bytes without which there is nothing to do, of a service beside ours."""


class LoopGrpcTransport:
    """Listens on a port and answers TensorFlow Serving's services."""

    def __init__(self, server: ModelServer, options: GrpcOptions) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self.server, self.options = server, options
        self.methods = rpc.methods()
        self.side = grpc_side_services.SideServices(options.has_health_service)
        self.connections: set[_Peer] = set()
        self.loop = uvloop.new_event_loop()
        self.offload = Offload(
            "grpc", self.loop, options.num_threads, options.max_in_flight
        )
        self._tls = None if options.tls is None else _context(options.tls)
        self._socket = None
        self.port = 0
        if options.has_port:
            taken = port_taken("gRPC", options.host, options.port)
            self._socket = listen(options.host, options.port, taken)
            self.port = int(self._socket.getsockname()[1])
        self._thread = threading.Thread(target=self._run, name="grpc", daemon=True)
        self._servers: list[Any] = []

    def start(self) -> None:
        """Begin to answer.

        Raises:
            ServerError: The Unix socket cannot be listened on.
        """
        self.loop.run_until_complete(self._start())
        self._thread.start()
        self.side.set_serving(True)

    def route(self, headers: Headers) -> "_Route":
        """Read a request's headers."""
        fields = dict(headers)
        path = fields.get(b":path", b"").decode("latin-1")
        method, side = self.methods.get(path), self.side.handler(path)
        encoding = fields.get(b"grpc-encoding", b"identity").decode("latin-1")
        refusal = None
        if sum(len(n) + len(v) for n, v in headers) > MAX_METADATA_BYTES:
            refusal = (
                Code.RESOURCE_EXHAUSTED,
                f"The metadata is larger than {MAX_METADATA_BYTES} bytes",
            )
        elif not fields.get(b"content-type", b"").startswith(_TYPE):
            refusal = Code.UNKNOWN, "content-type must be application/grpc"
        elif method is None and side is None:
            refusal = Code.UNIMPLEMENTED, f"Method not found: {path[:200]}"
        elif encoding not in _ENCODINGS:
            refusal = (
                Code.UNIMPLEMENTED,
                f"grpc-encoding: got {encoding[:40]}, allowed: {', '.join(_ENCODINGS)}",
            )
        timeout_s = _timeout_s(fields.get(b"grpc-timeout"))
        wbits = _ENCODINGS.get(encoding, 0)
        return _Route(path, method, side, timeout_s, wbits, refusal)

    async def _start(self) -> None:
        if self._socket is not None:
            self._servers.append(
                await self.loop.create_server(
                    lambda: _Peer(self),
                    sock=self._socket,
                    backlog=BACKLOG,
                    ssl=self._tls,
                )
            )
        path = self.options.socket_path
        if path:
            try:
                self._servers.append(
                    await self.loop.create_unix_server(
                        lambda: _Peer(self), path, ssl=self._tls
                    )
                )
            except OSError as error:
                raise ServerError(
                    f"--grpc_socket_path: {path} cannot be listened on: "
                    f"{error.strerror}"
                ) from error

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self, grace_s: float) -> None:
        """Refuse new requests and let running ones finish."""
        if not self._thread.is_alive():
            if self._socket is not None:
                self._socket.close()
            self.loop.close()
            return
        self.side.set_serving(False)
        asyncio.run_coroutine_threadsafe(self._stop(grace_s), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.offload.close()

    async def _stop(self, grace_s: float) -> None:
        for server in self._servers:
            server.close()
        for peer in list(self.connections):
            peer.go_away()
        deadline = self.loop.time() + grace_s
        await self.offload.drain(grace_s)
        await linger(lambda: not any(p.is_busy for p in self.connections), deadline)
        for peer in list(self.connections):
            peer.hang_up()
        await linger(lambda: not self.connections, deadline)


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    try:
        with tempfile.TemporaryDirectory(prefix="tls-") as folder:
            key, certificate = Path(folder, "key"), Path(folder, "certificate")
            key.touch(0o600)
            key.write_bytes(tls.key)
            certificate.write_bytes(tls.certificate)
            context.load_cert_chain(certificate, key)
        if tls.client_ca is not None:
            context.load_verify_locations(cadata=tls.client_ca.decode())
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ServerError(f"--ssl_config_file: no usable PEM: {error}") from error
    if tls.requires_client:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Peer(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, owner: LoopGrpcTransport) -> None:
        self._owner = owner
        self._transport: Any = None
        self._out: list[bytes] = []
        self._is_receiving = self._transport_closes = False
        self._streams: dict[int, _Stream] = {}
        self._routes: dict[Headers, _Route] = {}
        self._connection = Connection(self, self._write)
        self._timer: Any = None

    # The connection.

    def connection_made(self, transport: Any) -> None:
        """Say hello."""
        self._transport = transport
        self._owner.connections.add(self)
        self._timer = self._owner.loop.call_later(HELLO_TIMEOUT_S, transport.abort)
        self._flush()

    def connection_lost(self, _: Exception | None) -> None:
        """Forget all that was asked here."""
        self._owner.connections.discard(self)
        for stream in self._streams.values():
            stream.is_cancelled = True
        self._streams.clear()
        self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Take bytes; all answers that are ready are sent in one piece."""
        self._is_receiving = True
        try:
            self._connection.receive(data)
            if self._connection.has_preface:
                self._timer.cancel()
        except ConnectionLost as lost:
            self._connection.go_away(lost.code)
            self._transport_closes = True
        except Exception:
            log.exception("a connection failed")
            self._connection.go_away(INTERNAL_ERROR)
            self._transport_closes = True
        self._is_receiving = False
        self._flush()
        if self._transport_closes:
            self._transport.close()

    def pause_writing(self) -> None:
        """Read no more until the client takes what it asked for."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._transport.resume_reading()

    def _write(self, data: bytes) -> None:
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self._is_receiving and self._transport is not None:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            if not self._transport.is_closing():
                self._transport.write(data)

    def go_away(self) -> None:
        """Take no more requests."""
        self._connection.go_away()
        self._flush()

    @property
    def is_busy(self) -> bool:
        """Whether answers are on their way; not those that never end."""
        watched = sum(
            self._owner.side.stays_open(stream.route.path)
            for stream in self._streams.values()
        )
        return self._connection.num_streams > watched

    def hang_up(self) -> None:
        """Close."""
        self._transport.close()

    # Streams.

    def opened(self, number: int, headers: Headers) -> None:
        """See what is asked for."""
        route = self._routes.get(headers)
        if route is None:
            route = self._owner.route(headers)
            if len(self._routes) < MAX_ROUTES:
                self._routes[headers] = route
        deadline = None
        if route.timeout_s is not None:
            deadline = time.monotonic() + route.timeout_s
        self._streams[number] = _Stream(route, deadline)
        if route.refusal is not None:
            self._refuse(number, *route.refusal)

    def received(self, number: int, data: bytes) -> None:
        """Keep a piece of a message."""
        stream = self._streams.get(number)
        if stream is None:
            return
        stream.pieces.append(data)
        stream.size += len(data)
        if stream.route.side is not None:
            self._answer_side(number, stream)
        elif stream.size > MAX_MESSAGE_BYTES + PREFIX_BYTES:
            self._refuse(number, Code.RESOURCE_EXHAUSTED, "The message is too large")

    def ended(self, number: int) -> None:
        """Answer."""
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.route.side is not None:
            self._end_side(number, stream)
            return
        try:
            message = _message(stream)
        except RequestError as error:
            self._refuse(number, error.code, str(error))
            return
        self._run(number, stream, message)

    def reset(self, number: int) -> None:
        """Forget a stream."""
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.is_cancelled = True

    def _run(self, number: int, stream: _Stream, message: bytes) -> None:
        # How long it takes goes by its size, too: one that is larger has to show first.
        kind = f"{stream.route.path}{_model_key(message)}{len(message).bit_length()}"
        steps = self._steps(stream, message)
        then = partial(self._came_back, number)
        offload = self._owner.offload
        if stream.route.method is not None and stream.route.method.waits:
            is_taken = offload.wait_aside(steps, then)
        else:
            is_taken = offload.take(kind, steps, then)
        if not is_taken:
            self._refuse(number, Code.RESOURCE_EXHAUSTED, "The server is overloaded")

    def _steps(self, stream: _Stream, message: bytes) -> Steps[bytes | RequestError]:
        """Answer with bytes, or the error that it is."""
        method = stream.route.method
        if method is None or stream.is_cancelled:
            return RequestError(Code.CANCELLED, "The client went away")
        call = Call(method.api, "grpc", stream.deadline)
        call.is_cancelled = lambda: stream.is_cancelled
        try:
            message = _inflated(stream, message)
            return (yield from rpc.steps(self._owner.server, method, message, call))
        except RequestError as error:
            return error

    def _came_back(self, number: int, answer: bytes | RequestError) -> None:
        self._finish(number, answer)
        self._flush()

    def _finish(self, number: int, answer: bytes | RequestError) -> None:
        if self._streams.pop(number, None) is None:
            return
        if isinstance(answer, RequestError):
            block = _OPENING + _trailers(answer.code, str(answer))
            self._connection.send_headers(number, block, ends=True)
            return
        self._connection.send_headers(number, _OPENING, ends=False)
        self._connection.send(number, _framed(answer), _OK)

    def _refuse(self, number: int, code: Code, message: str) -> None:
        self._finish(number, RequestError(code, message))

    # Services beside ours: health, reflection.

    def _answer_side(self, number: int, stream: _Stream) -> None:
        if stream.size > MAX_SIDE_MESSAGE_BYTES + PREFIX_BYTES:
            self._end_early(
                number,
                stream,
                RequestError(
                    Code.RESOURCE_EXHAUSTED,
                    f"The message is larger than {MAX_SIDE_MESSAGE_BYTES} bytes",
                ),
            )
            return
        if stream.size < stream.needed:
            return
        body = b"".join(stream.pieces)
        stream.pieces = [body]
        while len(body) >= PREFIX_BYTES:
            end = PREFIX_BYTES + int.from_bytes(body[1:PREFIX_BYTES])
            if len(body) < end:
                stream.needed = end
                return
            framed, body = body[:end], body[end:]
            stream.pieces, stream.size, stream.needed = [body], len(body), PREFIX_BYTES
            if not stream.has_opened:
                stream.has_opened = True
                self._connection.send_headers(number, _OPENING, ends=False)
            try:
                message = _inflated(stream, framed)
                answer = stream.route.side(message) if stream.route.side else b""
            except RequestError as error:
                self._end_early(number, stream, error)
                return
            self._connection.send(number, _framed(answer))

    def _end_early(self, number: int, stream: _Stream, error: RequestError) -> None:
        self._streams.pop(number, None)
        trailers = _trailers(error.code, str(error))
        block = trailers if stream.has_opened else _OPENING + trailers
        self._connection.send_headers(number, block, ends=True)

    def _end_side(self, number: int, stream: _Stream) -> None:
        if self._owner.side.stays_open(stream.route.path):
            return
        if stream.size or not stream.has_opened:
            error = RequestError(Code.INTERNAL, "The message is cut off, or missing")
            self._end_early(number, stream, error)
            return
        self._streams.pop(number, None)
        self._connection.send_headers(number, _OK, ends=True)


def _framed(message: bytes) -> bytes:
    return b"\x00" + len(message).to_bytes(4) + message


def _timeout_s(text: bytes | None) -> float | None:
    """Return the seconds of a grpc-timeout; None where it is none that can be read."""
    digits, unit = (text or b"")[:-1], (text or b"")[-1:].decode("latin-1")
    is_number = digits.isdigit() and len(digits) <= MAX_TIMEOUT_DIGITS
    if unit not in _UNITS_S or not is_number:
        return None
    return int(digits) * _UNITS_S[unit]


def _message(stream: _Stream) -> bytes:
    """Return the one message of a request, with its prefix.

    Raises:
        RequestError: There is none, or more than one.
    """
    pieces = stream.pieces
    body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    size = int.from_bytes(body[1:PREFIX_BYTES]) if len(body) >= PREFIX_BYTES else -1
    if size != len(body) - PREFIX_BYTES:
        raise RequestError(Code.INTERNAL, "Cannot parse the request: not one message")
    return body


def _inflated(stream: _Stream, body: bytes) -> bytes:
    """Return a message without its prefix, and inflated if it is compressed.

    Raises:
        RequestError: It cannot be inflated.
    """
    message = body[PREFIX_BYTES:]
    if not body[0]:
        return message
    if not stream.route.encoding:
        raise RequestError(Code.INTERNAL, "a compressed message without grpc-encoding")
    inflater = zlib.decompressobj(wbits=stream.route.encoding)
    try:
        inflated = inflater.decompress(message, MAX_MESSAGE_BYTES)
    except zlib.error as error:
        raise RequestError(Code.INTERNAL, f"Cannot inflate: {error}") from error
    if not inflater.eof:
        raise RequestError(Code.INTERNAL, "Cannot inflate: cut off, or too large")
    return inflated


def _model_key(body: bytes) -> str:
    """Return what tells requests to one model from those to others: its ModelSpec."""
    if len(body) > PREFIX_BYTES + 2 and body[PREFIX_BYTES] == 0x0A:
        start, size = PREFIX_BYTES + 2, min(body[PREFIX_BYTES + 1], MAX_KEY)
        return body[start : start + size].decode("latin-1")
    return ""
