"""HTTP/1.1 over loopback: one connection, its requests, its end."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from serving.errors import ServerError
from serving.server import http_transport, offload
from serving.server.http_transport import HttpOptions, HttpTransport
from serving.server.offload import Pace
from serving.server.rest import HttpRequest, HttpResponse
from serving.server.steps import Steps

pytestmark = pytest.mark.integration
TIMEOUT_S = 30.0


class Answers:
    """Answers with the method, target and body; slowly, if it is told to."""

    def __init__(self) -> None:
        self.gate: threading.Event | None = None
        self.threads: list[str] = []

    def __call__(self, request: HttpRequest) -> Steps[HttpResponse]:
        yield from ()
        self.threads.append(threading.current_thread().name)
        if self.gate is not None:
            assert self.gate.wait(TIMEOUT_S)
        text = f"{request.method} {request.target} ".encode()
        return HttpResponse(200, text + request.body)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def transport(answers: Answers) -> Iterator[HttpTransport]:
    started = HttpTransport(answers, HttpOptions(port=0))
    started.start()
    yield started
    started.stop(5.0)


def connect(transport: HttpTransport) -> socket.socket:
    return socket.create_connection(("127.0.0.1", transport.port), TIMEOUT_S)


def read(connection: socket.socket, count: int = 1) -> list[bytes]:
    """Read so many responses and return their bodies."""
    bodies: list[bytes] = []
    content = b""
    while len(bodies) < count:
        piece = connection.recv(65536)
        assert piece, content
        content += piece
        while b"\r\n\r\n" in content:
            head, _, rest = content.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            if len(rest) < length:
                break
            bodies.append(rest[:length])
            content = rest[length:]
    return bodies


def test_requests_sent_together_are_answered_in_their_order(
    transport: HttpTransport,
) -> None:
    with connect(transport) as connection:
        requests = (
            b"POST /%d HTTP/1.1\r\nContent-Length: 1\r\n\r\n%d" % (i, i)
            for i in range(9)
        )
        connection.sendall(b"".join(requests))
        assert read(connection, 9) == [b"POST /%d %d" % (i, i) for i in range(9)]


def test_connection_is_kept_or_closed_as_the_client_asks(
    transport: HttpTransport,
) -> None:
    with connect(transport) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\n\r\n")
        read(connection)
        connection.sendall(b"GET /b HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert read(connection) == [b"GET /b "]
        assert connection.recv(1) == b""
    with connect(transport) as connection:
        connection.sendall(b"GET /c HTTP/1.0\r\n\r\n")
        assert read(connection) == [b"GET /c "]
        assert connection.recv(1) == b""


def test_client_that_expects_to_be_asked_for_its_body_is_asked(
    transport: HttpTransport,
) -> None:
    with connect(transport) as connection:
        connection.sendall(
            b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        )
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"ab")
        assert read(connection) == [b"POST / ab"]


def test_head_is_answered_without_a_body(transport: HttpTransport) -> None:
    with connect(transport) as connection:
        connection.sendall(b"HEAD /a HTTP/1.0\r\n\r\n")
        content = b"".join(iter(lambda: connection.recv(1000), b""))
    assert b"Content-Length: 8\r\n" in content
    assert content.endswith(b"\r\n\r\n")


def test_what_is_no_http_is_refused_and_closed(transport: HttpTransport) -> None:
    with connect(transport) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        content = b"".join(iter(lambda: connection.recv(1000), b""))
    assert content.startswith(b"HTTP/1.1 400 ")
    assert b"Malformed HTTP request" in content


def test_quick_paths_run_on_the_loop_and_slow_ones_on_threads(
    transport: HttpTransport, answers: Answers
) -> None:
    with connect(transport) as connection:
        for _ in range(20):
            connection.sendall(b"GET /quick HTTP/1.1\r\n\r\n")
            read(connection)
    assert answers.threads[0].startswith("rest")
    assert answers.threads[-1] == "http"


def test_slow_request_holds_nobody_up_and_is_waited_for_at_the_end(
    answers: Answers,
) -> None:
    transport = HttpTransport(answers, HttpOptions(port=0))
    transport.start()
    answers.gate = threading.Event()
    with connect(transport) as slow:
        slow.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
        deadline = time.monotonic() + TIMEOUT_S
        while not answers.threads and time.monotonic() < deadline:
            time.sleep(0.005)
        gate, answers.gate = answers.gate, None
        with connect(transport) as other:
            other.sendall(b"GET /other HTTP/1.1\r\n\r\n")
            assert read(other) == [b"GET /other "]
        stopping = threading.Thread(target=transport.stop, args=(TIMEOUT_S,))
        stopping.start()
        gate.set()
        assert read(slow) == [b"GET /slow "]
        stopping.join(TIMEOUT_S)
        assert not stopping.is_alive()


def test_idle_connection_is_closed(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_transport, "IDLE_TIMEOUT_S", 0.1)
    with connect(transport) as connection:
        connection.sendall(b"GET /a HTTP/1.1\r\n")
        assert connection.recv(1) == b""


def test_port_that_is_taken_is_named(transport: HttpTransport) -> None:
    with pytest.raises(ServerError, match=f"REST port 127.0.0.1:{transport.port}"):
        HttpTransport(Answers(), HttpOptions(port=transport.port))


def test_pace_remembers_averages_and_not_without_end() -> None:
    pace = Pace()
    assert not pace.is_quick("a")
    pace.note("a", 0.01)
    for _ in range(40):
        pace.note("a", 0.0)
    assert pace.is_quick("a")
    pace.note("a", 1.0)
    assert not pace.is_quick("a")
    for number in range(2 * offload.MAX_KEYS):
        pace.note(str(number), 0.0)
    assert len(pace._averages) <= offload.MAX_KEYS


def raw(transport: HttpTransport, *pieces: bytes) -> bytes:
    """Send pieces, and return all that comes until the server hangs up."""
    with connect(transport) as connection:
        for piece in pieces:
            connection.sendall(piece)
        connection.settimeout(TIMEOUT_S)
        return b"".join(iter(lambda: connection.recv(65536), b""))


UPGRADE = (
    b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
)


def test_wish_to_speak_http2_is_answered_in_http1(transport: HttpTransport) -> None:
    head = b"POST /a HTTP/1.1\r\nContent-Length: 4\r\n" + UPGRADE + b"\r\n"
    answer = raw(transport, head + b"body")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"POST /a body")


def test_connection_of_http10_is_kept_where_both_say_so(
    transport: HttpTransport,
) -> None:
    with connect(transport) as connection:
        connection.sendall(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert b"Connection: keep-alive\r\n" in connection.recv(65536)
        connection.sendall(b"GET /b HTTP/1.0\r\n\r\n")
        assert b"Connection: close\r\n" in connection.recv(65536)


def test_refusal_comes_after_the_answers_before_it(transport: HttpTransport) -> None:
    answer = raw(transport, b"GET /a HTTP/1.1\r\n\r\nnonsense\r\n\r\n")
    first, second = answer.split(b"HTTP/1.1 ")[1:]
    assert first.endswith(b"GET /a ")
    assert second.startswith(b"400 ")


def test_target_with_a_host_means_its_path(transport: HttpTransport) -> None:
    answer = raw(
        transport, b"GET http://x:80/a?b HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    assert answer.endswith(b"GET /a?b ")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"The URL is longer"),
        (
            b"GET /a HTTP/1.1\r\n" + b"X: " + b"a" * (2 << 20) + b"\r\n\r\n",
            b"The headers are longer",
        ),
    ],
)
def test_heads_without_measure_are_refused(
    transport: HttpTransport, request_: bytes, text: bytes
) -> None:
    with connect(transport) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(request_)
        content = connection.recv(65536)
    assert content.startswith(b"HTTP/1.1 400")
    assert text in content


def test_client_that_sends_and_does_not_read_is_not_read_from(
    transport: HttpTransport,
) -> None:
    body = bytes(100_000)
    request = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with connect(transport) as connection:
        connection.settimeout(1.0)
        numbers = iter(range(2000))
        with contextlib.suppress(TimeoutError):
            while next(numbers, None) is not None:
                connection.sendall(request)
    assert next(numbers, 2000) < 500


def test_answer_that_is_on_its_way_is_not_cut_off_by_a_stop(
    answers: Answers,
) -> None:
    transport = HttpTransport(answers, HttpOptions(port=0))
    transport.start()
    body = bytes(20 << 20)
    head = b"POST /a HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(transport) as connection:
        connection.sendall(head + body)
        content = connection.recv(1000)
        stopping = threading.Thread(target=transport.stop, args=(TIMEOUT_S,))
        stopping.start()
        size = len(content)
        while piece := connection.recv(1 << 20):
            size += len(piece)
        stopping.join(TIMEOUT_S)
    assert size > len(body)
