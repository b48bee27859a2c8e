"""HTTP/1.1 on an event loop: connections and timeouts, nothing about models."""

import asyncio
import logging
import re
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import httptools
import uvloop

from serving.errors import ServerError
from serving.server import rest_json
from serving.server.offload import Offload
from serving.server.ports import port_taken
from serving.server.rest import MAX_BODY_BYTES, HttpRequest, HttpResponse
from serving.server.steps import Steps

log = logging.getLogger(__name__)
IDLE_TIMEOUT_S = 60.0
BACKLOG = 1024
LINGER_S = 0.01
MAX_TARGET_BYTES = 64 << 10
MAX_HEADER_BYTES = 1 << 20
MAX_KIND = 200
# The answer to a wish to speak HTTP/2 is HTTP/1.1 (RFC 9110, 7.8), but the parser would
# stop for it. Of the same length, for the rest of the request lies behind.
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_NO_UPGRADE = b"\r\nx-upgr.:"
_ABSOLUTE = re.compile(r"[a-z][a-z0-9+.-]*://[^/?]*", re.IGNORECASE)
_REASONS = {status.value: status.phrase for status in HTTPStatus} | {
    499: "Client Closed Request"
}


@dataclass(frozen=True)
class HttpOptions:
    """How HTTP is spoken."""

    host: str = "127.0.0.1"
    port: int = 8501
    """0 takes any free one."""
    num_threads: int = 8
    """For requests that take longer."""
    max_in_flight: int = 1024
    """Requests that may wait for a thread; more are refused with 503."""


class HttpTransport:
    """Listens on a port and hands requests to a function."""

    def __init__(
        self, steps: Callable[[HttpRequest], Steps[HttpResponse]], options: HttpOptions
    ) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self.steps, self.options = steps, options
        self.connections: set[_Connection] = set()
        self.loop = uvloop.new_event_loop()
        self.offload = Offload(
            "rest", self.loop, options.num_threads, options.max_in_flight
        )
        taken = port_taken("REST", options.host, options.port)
        self._socket = listen(options.host, options.port, taken)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._server: Any = None

    def start(self) -> None:
        """Begin to answer."""
        self._server = self.loop.run_until_complete(
            self.loop.create_server(
                lambda: _Connection(self), sock=self._socket, backlog=BACKLOG
            )
        )
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def stop(self, grace_s: float) -> None:
        """Refuse new connections and let running requests finish."""
        if self._server is None:
            self._socket.close()
            self.loop.close()
            return
        asyncio.run_coroutine_threadsafe(self._stop(grace_s), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self.offload.close()

    async def _stop(self, grace_s: float) -> None:
        deadline = self.loop.time() + grace_s
        self._server.close()
        await self.offload.drain(grace_s)
        for connection in list(self.connections):
            connection.close()
        # What was answered is on its way to clients that may read slowly.
        await linger(lambda: not self.connections, deadline)


async def linger(is_over: Callable[[], bool], deadline: float) -> None:
    """Wait for a fact, until a time of the running loop."""
    loop = asyncio.get_running_loop()
    while not is_over() and loop.time() < deadline:  # noqa: ASYNC110  it is the end
        await asyncio.sleep(LINGER_S)


def listen(host: str, port: int, taken: str) -> socket.socket:
    """Take a port.

    Raises:
        ServerError: It is taken; in the words given.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ServerError(taken) from error
    listener.setblocking(False)
    return listener


def overloaded() -> HttpResponse:
    """Return the answer to a request for which there is no room."""
    text = rest_json.error_json("The server is overloaded; try again later")
    return HttpResponse(503, text.encode(), headers=(("Retry-After", "1"),))


class _Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other."""

    def __init__(self, owner: HttpTransport) -> None:
        self._owner = owner
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._timer: Any = None
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = self._is_full = self._is_paused = self._is_lost = False
        self._refuse: str | None = None
        self._is_in_headers = True
        self._reset()

    def _reset(self) -> None:
        self._target, self._is_gzip, self._size = b"", False, 0
        self._header_size, self._is_in_headers, self._expects = 0, True, False
        self._body: list[bytes] = []

    # The connection.

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._owner.connections.add(self)
        self._wait()

    def connection_lost(self, _: Exception | None) -> None:
        """End."""
        self._owner.connections.discard(self)
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Hang up."""
        self._transport.close()

    def pause_writing(self) -> None:
        """Answer no more, and read no more, until the client reads."""
        self._is_full = True
        self._pause()

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self._resume()

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_busy or self._is_full:
            return
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        self._next()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._owner.loop.call_later(IDLE_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if self._is_busy:
            self._wait()
        elif self._transport.get_write_buffer_size():
            self._transport.abort()  # to close would wait for a client that reads not
        else:
            self._transport.close()

    # Requests.

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._is_lost:
            return
        self._wait()
        if self._is_in_headers:
            data = _UPGRADE.sub(_NO_UPGRADE, data, count=1)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject("Upgrade is not supported")
        except httptools.HttpParserError as error:
            self._reject(self._refuse or f"Malformed HTTP request: {error}")

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._target += url
        if len(self._target) > MAX_TARGET_BYTES:
            self._refuse = f"The URL is longer than {MAX_TARGET_BYTES} bytes"
            raise ValueError(self._refuse)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take what matters of the headers."""
        self._header_size += len(name) + len(value)
        if self._header_size > MAX_HEADER_BYTES:
            self._refuse = f"The headers are longer than {MAX_HEADER_BYTES} bytes"
            raise ValueError(self._refuse)
        match name.lower():
            case b"content-encoding":
                self._is_gzip = value.lower() == b"gzip"
            case b"content-length":
                if not value.isdigit() or int(value) > MAX_BODY_BYTES:
                    shown = value[:100].decode(errors="replace")
                    self._refuse = (
                        f"Content-Length: got {shown}, allowed: 0 to {MAX_BODY_BYTES}"
                    )
                    raise ValueError(self._refuse)
            case b"expect":
                self._expects = value.lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """Let a client go on that asks whether it may."""
        self._is_in_headers = False
        is_first = not self._waiting and not self._is_busy
        if self._expects and is_first and self._parser.get_http_version() != "1.0":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._size += len(body)
        if self._size > MAX_BODY_BYTES:
            self._refuse = f"The body is larger than {MAX_BODY_BYTES} bytes"
            raise ValueError(self._refuse)
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Queue the request."""
        target = self._target.decode("latin-1")
        if not target.startswith("/"):
            target = _ABSOLUTE.sub("", target, count=1) or "/"
        request = HttpRequest(
            self._parser.get_method().decode(),
            target,
            b"".join(self._body),
            self._is_gzip,
        )
        keeps = self._parser.should_keep_alive()
        is_old = self._parser.get_http_version() == "1.0"
        self._waiting.append(_Waiting(request, keeps, is_old))
        self._reset()
        self._next()

    def _next(self) -> None:
        owner = self._owner
        while self._waiting and not self._is_busy and not self._is_full:
            waiting = self._waiting.popleft()
            request = waiting.request
            if request is None:
                self._end(waiting)
                return
            self._is_busy = True
            steps = owner.steps(request)
            then = partial(self._came_back, waiting)
            # How long it takes goes by its size, too.
            kind = f"{request.path[:MAX_KIND]} {len(request.body).bit_length()}"
            if not owner.offload.take(kind, steps, then):
                then(overloaded())
            if self._is_busy:
                self._pause()

    def _came_back(self, waiting: "_Waiting", response: HttpResponse) -> None:
        self._is_busy = False
        if self._transport.is_closing():
            return
        self._send(waiting, response)
        if self._is_paused:  # or else `_next` goes on by itself
            self._resume()

    def _send(self, waiting: "_Waiting", response: HttpResponse) -> None:
        is_head = waiting.request is not None and waiting.request.method == "HEAD"
        connection = "" if waiting.keeps_alive else "close"
        if waiting.is_old and waiting.keeps_alive:
            connection = "keep-alive"
        self._write(response, connection, with_body=not is_head)
        if not waiting.keeps_alive:
            self._waiting.clear()
            self._transport.close()

    def _write(
        self, response: HttpResponse, connection: str, *, with_body: bool = True
    ) -> None:
        lines = [
            f"HTTP/1.1 {response.status} {_REASONS.get(response.status, '')}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            *(f"{name}: {value}" for name, value in response.headers),
        ]
        if connection:
            lines.append(f"Connection: {connection}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._transport.write(head + response.body if with_body else head)

    def _reject(self, message: str) -> None:
        """Refuse what cannot be parsed, after the answers to what came before."""
        text = rest_json.error_json(message)
        refusal = HttpResponse(400, text.encode(errors="replace"))
        self._is_lost = True
        self._pause()
        self._waiting.append(_Waiting(None, keeps_alive=False, refusal=refusal))
        self._next()

    def _end(self, waiting: "_Waiting") -> None:
        self._write(waiting.refusal or overloaded(), "close")
        self._waiting.clear()
        self._transport.close()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request whose turn has not come, or the refusal that ends the connection."""

    request: HttpRequest | None
    keeps_alive: bool
    is_old: bool = False
    """Whether it is of HTTP/1.0, where who keeps a connection says so."""
    refusal: HttpResponse | None = None
