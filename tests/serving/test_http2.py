"""HTTP/2 by frames: streams, windows, and what a peer must not do."""

import struct
from dataclasses import dataclass, field

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.server import http2
from serving.server.hpack_cache import HeaderDecoder, Headers
from serving.server.http2 import PREFACE, Connection, ConnectionLost, frame

HEADERS = ((b":method", b"POST"), (b":path", b"/a"), (b"te", b"trailers"))
ENDS = http2.END_HEADERS | http2.END_STREAM
TRAILERS = b"\x00\x01a\x01b"


@dataclass
class Told:
    """Notes what streams did."""

    events: list[tuple[object, ...]] = field(default_factory=list)

    def opened(self, stream: int, headers: Headers) -> None:
        self.events.append(("opened", stream, headers))

    def received(self, stream: int, data: bytes) -> None:
        self.events.append(("received", stream, data))

    def ended(self, stream: int) -> None:
        self.events.append(("ended", stream))

    def reset(self, stream: int) -> None:
        self.events.append(("reset", stream))


class Peer:
    """A client, by hand."""

    def __init__(self) -> None:
        self.told = Told()
        self.sent = bytearray()
        self.connection = Connection(self.told, self.sent.extend)
        self.encoder = hpack.Encoder()

    def open(self, stream: int = 1, flags: int = ENDS) -> "Peer":
        self.connection.receive(PREFACE)
        self.ask(stream, flags)
        self.frames()
        return self

    def ask(self, stream: int, flags: int = ENDS) -> None:
        block = self.encoder.encode(list(HEADERS))
        self.connection.receive(frame(1, flags, stream, block))

    def settings(self, key: int, value: int) -> None:
        self.connection.receive(frame(4, 0, 0, struct.pack(">HL", key, value)))

    def window(self, stream: int, credit: int) -> None:
        self.connection.receive(frame(8, 0, stream, struct.pack(">L", credit)))

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return and forget what was sent: type, flags, stream, payload."""
        found, place = [], 0
        while place < len(self.sent):
            high, low, kind, flags, stream = struct.unpack_from(
                ">BHBBL", self.sent, place
            )
            end = place + 9 + (high << 16 | low)
            found.append((kind, flags, stream, bytes(self.sent[place + 9 : end])))
            place = end
        self.sent.clear()
        return found

    def data(self) -> bytes:
        return b"".join(p for kind, _, _, p in self.frames() if kind == http2.DATA)


def test_server_says_hello_with_settings_and_a_large_window() -> None:
    assert [kind for kind, *_ in Peer().frames()] == [
        http2.SETTINGS,
        http2.WINDOW_UPDATE,
    ]


def test_request_may_come_byte_by_byte() -> None:
    peer = Peer()
    block = peer.encoder.encode(list(HEADERS))
    content = PREFACE + frame(4, 0, 0) + frame(1, http2.END_HEADERS, 1, block)
    content += frame(0, 0, 1, b"ab") + frame(0, http2.END_STREAM, 1, b"c")
    for place in range(len(content)):
        peer.connection.receive(content[place : place + 1])
    assert peer.told.events == [
        ("opened", 1, HEADERS),
        ("received", 1, b"ab"),
        ("received", 1, b"c"),
        ("ended", 1),
    ]


def test_headers_may_be_cut_padded_and_have_a_priority() -> None:
    peer = Peer()
    block = peer.encoder.encode(list(HEADERS))
    flags = http2.PADDED | http2.HAS_PRIORITY | http2.END_STREAM
    payload = bytes([3]) + bytes(5) + block[:4] + bytes(3)
    peer.connection.receive(PREFACE + frame(1, flags, 1, payload))
    peer.connection.receive(frame(9, 0, 1, block[4:6]))
    assert peer.told.events == []
    peer.connection.receive(frame(9, http2.END_HEADERS, 1, block[6:]))
    assert peer.told.events == [("opened", 1, HEADERS), ("ended", 1)]


def test_padding_of_data_is_taken_off() -> None:
    peer = Peer().open(flags=http2.END_HEADERS)
    peer.connection.receive(frame(0, http2.PADDED, 1, b"\x02abc\x00\x00"))
    assert peer.told.events[-1] == ("received", 1, b"abc")


def test_settings_and_pings_are_acknowledged() -> None:
    peer = Peer().open()
    peer.connection.receive(frame(4, 0, 0) + frame(6, 0, 0, b"12345678"))
    assert peer.frames() == [(4, http2.ACK, 0, b""), (6, http2.ACK, 0, b"12345678")]
    peer.connection.receive(frame(4, http2.ACK, 0) + frame(6, http2.ACK, 0, bytes(8)))
    assert peer.frames() == []


def test_answer_waits_for_the_windows_and_its_trailers_come_last() -> None:
    peer = Peer()
    peer.connection.receive(PREFACE)
    peer.settings(http2.INITIAL_WINDOW_SIZE, 10)
    peer.ask(1)
    peer.frames()
    peer.connection.send_headers(1, b"\x88", ends=False)
    peer.connection.send(1, bytes(range(25)), TRAILERS)
    assert [f[0] for f in peer.frames()] == [http2.HEADERS, http2.DATA]
    peer.window(1, 5)
    assert peer.data() == bytes(range(10, 15))
    peer.window(1, 100)
    (_, _, _, data), (kind, flags, _, trailers) = peer.frames()
    assert data == bytes(range(15, 25))
    assert (kind, flags, trailers) == (http2.HEADERS, ENDS, TRAILERS)


def test_connection_window_holds_for_all_streams_together() -> None:
    peer = Peer().open()
    peer.settings(http2.INITIAL_WINDOW_SIZE, 1 << 20)
    peer.ask(3)
    peer.frames()
    for stream in (1, 3):
        peer.connection.send(stream, bytes(40_000), TRAILERS)
    assert len(peer.data()) == http2.DEFAULT_WINDOW
    peer.window(0, 1 << 20)
    frames = peer.frames()
    assert sum(len(f[3]) for f in frames if f[0] == http2.DATA) == 80_000 - 65_535
    assert frames[-1][:3] == (http2.HEADERS, ENDS, 3)


def test_change_of_the_initial_window_holds_for_open_streams() -> None:
    peer = Peer()
    peer.connection.receive(PREFACE)
    peer.settings(http2.INITIAL_WINDOW_SIZE, 0)
    peer.ask(1)
    peer.frames()
    peer.connection.send(1, b"abc", TRAILERS)
    assert peer.data() == b""
    peer.settings(http2.INITIAL_WINDOW_SIZE, 2)
    assert peer.data() == b"ab"
    peer.settings(http2.INITIAL_WINDOW_SIZE, 0)
    peer.window(1, 3)
    assert peer.data() == b"c"


def test_frames_are_no_larger_than_the_peer_takes() -> None:
    peer = Peer().open()
    peer.connection.send(1, bytes(40_000), TRAILERS)
    sizes = [len(f[3]) for f in peer.frames() if f[0] == http2.DATA]
    assert sizes == [16_384, 16_384, 7_232]


def test_message_after_another_that_waits_keeps_its_place() -> None:
    peer = Peer()
    peer.connection.receive(PREFACE)
    peer.settings(http2.INITIAL_WINDOW_SIZE, 1)
    peer.ask(1)
    peer.connection.send(1, b"ab")
    peer.connection.send(1, b"cd")
    peer.connection.send_headers(1, TRAILERS, ends=True)
    peer.frames()
    peer.window(1, 10)
    assert [f[3] for f in peer.frames()] == [b"b", b"cd", TRAILERS]


def test_stream_that_is_reset_gets_no_answer() -> None:
    peer = Peer().open()
    peer.connection.receive(frame(3, 0, 1, bytes(4)))
    assert peer.told.events[-1] == ("reset", 1)
    peer.connection.send(1, b"abc", TRAILERS)
    peer.connection.send_headers(1, TRAILERS, ends=True)
    assert peer.frames() == []


def test_answer_before_the_end_of_a_request_resets_what_is_left() -> None:
    peer = Peer().open(flags=http2.END_HEADERS)
    peer.connection.send_headers(1, TRAILERS, ends=True)
    assert [f[0] for f in peer.frames()] == [http2.HEADERS, http2.RST_STREAM]
    peer.connection.receive(frame(0, http2.END_STREAM, 1, b"late"))
    assert peer.told.events == [("opened", 1, HEADERS)]


def test_credit_for_what_was_received_is_given_back() -> None:
    peer = Peer().open(flags=http2.END_HEADERS)
    for _ in range(http2.CREDIT // 16_384):
        peer.connection.receive(frame(0, 0, 1, bytes(16_384)))
    [(kind, _, stream, credit)] = peer.frames()
    assert (kind, stream, credit) == (8, 0, struct.pack(">L", http2.CREDIT))


def test_streams_over_the_bound_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_STREAMS", 2)
    peer = Peer().open()
    peer.ask(3)
    peer.ask(5)
    assert peer.frames() == [(3, 0, 5, struct.pack(">L", http2.REFUSED_STREAM))]
    peer.connection.send(1, b"a", TRAILERS)
    peer.frames()
    peer.ask(7)
    assert peer.told.events[-1] == ("ended", 7)


def test_going_away_names_the_last_stream() -> None:
    peer = Peer().open(7)
    peer.connection.go_away()
    assert peer.frames() == [(7, 0, 0, struct.pack(">LL", 7, 0))]


LONG = struct.pack(">L", 1)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (frame(0, 0, 0, b"x"), http2.PROTOCOL_ERROR),
        (frame(0, 0, 9, b"x"), http2.PROTOCOL_ERROR),
        (frame(0, http2.PADDED, 1, b"\x05ab"), http2.PROTOCOL_ERROR),
        (frame(1, ENDS, 2, b"\x88"), http2.PROTOCOL_ERROR),
        (frame(1, ENDS, 3, b"\xff\xff\xff\xff\xff\xff"), http2.COMPRESSION_ERROR),
        (frame(1, 0, 3, b"\x88") + frame(0, 0, 1, b"x"), http2.PROTOCOL_ERROR),
        (frame(9, 0, 3, b"\x88"), http2.PROTOCOL_ERROR),
        (frame(1, http2.END_HEADERS, 1, b"\x88"), http2.PROTOCOL_ERROR),
        (frame(3, 0, 9, LONG), http2.PROTOCOL_ERROR),
        (frame(3, 0, 1, b"x"), http2.FRAME_SIZE_ERROR),
        (frame(4, 0, 1), http2.FRAME_SIZE_ERROR),
        (frame(4, 0, 0, b"x"), http2.FRAME_SIZE_ERROR),
        (frame(4, 0, 0, struct.pack(">HL", 4, 2**31)), http2.FLOW_CONTROL_ERROR),
        (frame(4, 0, 0, struct.pack(">HL", 5, 1)), http2.PROTOCOL_ERROR),
        (frame(5, 0, 1, LONG), http2.PROTOCOL_ERROR),
        (frame(6, 0, 0, b"x"), http2.FRAME_SIZE_ERROR),
        (frame(8, 0, 0, bytes(4)), http2.PROTOCOL_ERROR),
        (frame(8, 0, 9, LONG), http2.PROTOCOL_ERROR),
        (frame(8, 0, 0, struct.pack(">L", 2**31 - 1)), http2.FLOW_CONTROL_ERROR),
        (b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", http2.FRAME_SIZE_ERROR),
    ],
)
def test_broken_protocol_ends_the_connection(content: bytes, code: int) -> None:
    peer = Peer().open(flags=http2.END_HEADERS)
    with pytest.raises(ConnectionLost) as lost:
        peer.connection.receive(content)
    assert lost.value.code == code


def test_headers_without_end_end_the_connection() -> None:
    peer = Peer().open()
    peer.connection.receive(frame(1, 0, 3, bytes(16_000)))
    more = b"".join(frame(9, 0, 3, bytes(16_000)) for _ in range(66))
    with pytest.raises(ConnectionLost, match="headers without end"):
        peer.connection.receive(more)


def test_other_protocols_are_refused_at_once() -> None:
    with pytest.raises(ConnectionLost, match="no HTTP/2 preface"):
        Peer().connection.receive(b"GET / HTTP/1.1\r\n")


def test_frames_that_are_not_known_change_nothing() -> None:
    peer = Peer().open()
    peer.connection.receive(frame(2, 0, 1, bytes(5)) + frame(0xFE, 7, 9, b"x"))
    assert peer.frames() == []


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_are_taken_or_end_the_connection(content: bytes, size: int) -> None:
    peer = Peer().open(flags=http2.END_HEADERS)
    try:
        for place in range(0, len(content), size):
            peer.connection.receive(content[place : place + size])
    except ConnectionLost:
        pass


NAMES = st.sampled_from([b":path", b"grpc-timeout", b"x", b"te"])
LISTS = st.lists(
    st.tuples(NAMES, st.binary(max_size=30)).map(tuple), min_size=1, max_size=5
)


@given(st.lists(LISTS, max_size=12), st.lists(st.integers(0, 400), max_size=3))
def test_remembered_blocks_mean_what_they_would_mean_now(
    lists: list[list[tuple[bytes, bytes]]], sizes: list[int]
) -> None:
    """Lists come again and again, entries are evicted, the table changes its size."""
    encoder, ours = hpack.Encoder(), HeaderDecoder()
    changes = {3 * i: size for i, size in enumerate(sizes)}
    for number, headers in enumerate([*lists, *lists, *lists]):
        if number in changes:
            encoder.header_table_size = changes[number]
        assert ours.decode(encoder.encode(headers)) == tuple(headers)
