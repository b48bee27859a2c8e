"""HTTP/1.1 on an event loop: connections, timeouts and threads, nothing about models.

Small models are run on the loop itself, for handing a request to a thread costs more
than running it; what has shown to take longer goes to a thread, so that it holds up
nobody else.
"""

import asyncio
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import uvloop

from serving.errors import ServerError
from serving.server import rest_json
from serving.server.ports import port_taken
from serving.server.rest import MAX_BODY_BYTES, HttpRequest, HttpResponse

log = logging.getLogger(__name__)
IDLE_TIMEOUT_S = 60.0
BACKLOG = 1024
# What takes longer on average goes to a thread.
INLINE_S = 0.001
MAX_PATHS = 1000
FORGETTING = 0.2
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
    may_run_inline: bool = True
    """False where answering waits for others, as in batching."""


class Pace:
    """How long requests to a path took on average, to know which to hand over."""

    def __init__(self) -> None:
        self._averages: dict[str, float] = {}

    def is_quick(self, path: str) -> bool:
        """Tell whether a request may run on the loop."""
        return self._averages.get(path, 1.0) < INLINE_S

    def note(self, path: str, seconds: float) -> None:
        """Count a request in."""
        average = self._averages.get(path)
        if average is None:
            if len(self._averages) >= MAX_PATHS:
                self._averages.clear()
            self._averages[path] = seconds
        else:
            self._averages[path] = average + FORGETTING * (seconds - average)


class HttpTransport:
    """Listens on a port and hands requests to a function."""

    def __init__(
        self, answer: Callable[[HttpRequest], HttpResponse], options: HttpOptions
    ) -> None:
        """Take the port.

        Raises:
            ServerError: It is taken.
        """
        self.answer, self.options = answer, options
        self.pace = Pace()
        self.in_flight = 0
        self.connections: set[_Connection] = set()
        self.loop = uvloop.new_event_loop()
        self.threads = ThreadPoolExecutor(options.num_threads, "rest")
        self._socket = _listen(options.host, options.port)
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._server: Any = None
        self._idle: asyncio.Event | None = None

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
        self.threads.shutdown(wait=False, cancel_futures=True)

    def came_back(self) -> None:
        """Count a request out that a thread has answered."""
        self.in_flight -= 1
        if not self.in_flight and self._idle is not None:
            self._idle.set()

    async def _stop(self, grace_s: float) -> None:
        self._server.close()
        if self.in_flight:
            self._idle = asyncio.Event()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), grace_s)
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        raise ServerError(port_taken("REST", host, port)) from error
    listener.setblocking(False)
    return listener


class _Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other."""

    def __init__(self, owner: HttpTransport) -> None:
        self._owner = owner
        self._parser: Any = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._timer: Any = None
        self._waiting: deque[tuple[HttpRequest, bool]] = deque()
        self._is_busy = self._is_full = False
        self._refuse: str | None = None
        self._reset()

    def _reset(self) -> None:
        self._target, self._is_gzip, self._size = b"", False, 0
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
        """Answer no more until the client reads."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_full = False
        self._next()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._owner.loop.call_later(IDLE_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if self._is_busy:
            self._wait()
        else:
            self._transport.abort()

    # Requests.

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        self._wait()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._reject("Upgrade is not supported")
        except httptools.HttpParserError as error:
            self._reject(self._refuse or f"Malformed HTTP request: {error}")

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take what matters of the headers."""
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
                if value.lower() == b"100-continue":
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
        request = HttpRequest(
            self._parser.get_method().decode(),
            self._target.decode("latin-1"),
            b"".join(self._body),
            self._is_gzip,
        )
        self._waiting.append((request, self._parser.should_keep_alive()))
        self._reset()
        self._next()

    def _next(self) -> None:
        owner = self._owner
        while self._waiting and not self._is_busy and not self._is_full:
            request, keep_alive = self._waiting.popleft()
            path = request.path
            if owner.options.may_run_inline and owner.pace.is_quick(path):
                self._send(request, keep_alive, self._timed(request, path))
            elif owner.in_flight >= owner.options.max_in_flight:
                self._send(request, keep_alive, overloaded())
            else:
                self._hand_over(request, keep_alive, path)

    def _hand_over(self, request: HttpRequest, keep_alive: bool, path: str) -> None:
        owner = self._owner
        owner.in_flight += 1
        self._is_busy = True
        self._transport.pause_reading()
        future: Any = owner.loop.run_in_executor(
            owner.threads, self._timed, request, path
        )
        future.add_done_callback(
            lambda done: self._came_back(request, keep_alive, done)
        )

    def _timed(self, request: HttpRequest, path: str) -> HttpResponse:
        started = time.perf_counter()
        response = self._owner.answer(request)
        self._owner.pace.note(path, time.perf_counter() - started)
        return response

    def _came_back(
        self,
        request: HttpRequest,
        keep_alive: bool,
        done: "asyncio.Future[HttpResponse]",
    ) -> None:
        self._owner.came_back()
        self._is_busy = False
        if self._transport.is_closing() or done.cancelled():
            return
        self._transport.resume_reading()
        self._send(request, keep_alive, done.result())
        self._next()

    def _send(
        self, request: HttpRequest, keep_alive: bool, response: HttpResponse
    ) -> None:
        self._write(response, keep_alive, with_body=request.method != "HEAD")
        if not keep_alive:
            self._waiting.clear()
            self._transport.close()

    def _write(
        self, response: HttpResponse, keep_alive: bool, *, with_body: bool = True
    ) -> None:
        lines = [
            f"HTTP/1.1 {response.status} {_REASONS.get(response.status, '')}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            *(f"{name}: {value}" for name, value in response.headers),
        ]
        if not keep_alive:
            lines.append("Connection: close")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._transport.write(head + response.body if with_body else head)

    def _reject(self, message: str) -> None:
        """Refuse what cannot be parsed; what follows on the wire is lost with it."""
        text = rest_json.error_json(message)
        self._write(HttpResponse(400, text.encode(errors="replace")), keep_alive=False)
        self._transport.close()


def overloaded() -> HttpResponse:
    """Return the answer to a request for which there is no room."""
    text = rest_json.error_json("The server is overloaded; try again later")
    return HttpResponse(503, text.encode(), headers=(("Retry-After", "1"),))
