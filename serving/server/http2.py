"""HTTP/2 frames and connections for a gRPC server: RFC 9113, as far as gRPC uses it.

```
length(24) type(8) flags(8) stream(32) payload
```
No input or output here: bytes come in by `receive`, and go out by a function.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import hpack

from serving.server.hpack_cache import HeaderDecoder, Headers

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = 0, 1, 2, 3, 4
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 5, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 3, 4, 5
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
STREAM_CLOSED = 5
FRAME_SIZE_ERROR, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 8, 9, 11
DEFAULT_WINDOW = 65535
PRIORITY_BYTES = 5
MAX_WINDOW = 2**31 - 1
MAX_RECEIVED_FRAME = 16384
MAX_HEADER_BLOCK = 1 << 20
# Of a connection, answered or not; a client that goes over it is refused.
MAX_STREAMS = 10_000
REFUSED_STREAM = 7
# Credit for what was received is given back in such pieces.
CREDIT = 1 << 24
_HEAD = struct.Struct(">BHBBL")
_SETTING = struct.Struct(">HL")
_LONG = struct.Struct(">L")


class ConnectionLost(Exception):  # noqa: N818  the peer broke the protocol
    """The connection cannot go on; the code says why."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def frame(
    kind: int, flags: int, stream: int, payload: bytes | memoryview = b""
) -> bytes:
    """Return a frame."""
    size = len(payload)
    head = _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream)
    return b"".join((head, payload))


class Streams(Protocol):
    """Who is told of streams."""

    def opened(self, stream: int, headers: Headers) -> None:
        """A stream's headers have come."""

    def received(self, stream: int, data: bytes) -> None:
        """A piece of a stream's data has come."""

    def ended(self, stream: int) -> None:
        """The client has sent all of a stream."""

    def reset(self, stream: int) -> None:
        """The client takes a stream back."""


@dataclass(slots=True)
class _Outgoing:
    """What waits for the peer's window."""

    credit: int = 0
    """Beyond the window that every stream begins with; data that was sent is debt."""
    waiting: deque[tuple[memoryview, bytes]] = field(default_factory=deque)
    """Data, and the frame that follows when it is sent."""


class Connection:
    """The server's side of one connection."""

    def __init__(self, streams: Streams, write: Callable[[bytes], None]) -> None:
        """Say hello.

        Args:
            streams: Who is told.
            write: Takes bytes for the peer.
        """
        self._streams, self._write = streams, write
        self._buffer = b""
        self.has_preface = False
        self._decoder = HeaderDecoder()
        self._block: tuple[int, int, bytearray] | None = None
        self._open: set[int] = set()
        self._outgoing: dict[int, _Outgoing] = {}
        self._blocked: dict[int, _Outgoing] = {}
        self._window = DEFAULT_WINDOW
        self._initial_window = DEFAULT_WINDOW
        self._max_frame = MAX_RECEIVED_FRAME
        self._uncredited = 0
        self.last_stream = 0
        settings = _SETTING.pack(MAX_CONCURRENT_STREAMS, MAX_STREAMS)
        settings += _SETTING.pack(INITIAL_WINDOW_SIZE, MAX_WINDOW)
        credit = _LONG.pack(MAX_WINDOW - DEFAULT_WINDOW)
        write(frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, credit))

    def receive(self, data: bytes) -> None:
        """Take bytes of the peer.

        Raises:
            ConnectionLost: It broke the protocol.
        """
        if self._buffer:
            data = self._buffer + data
        place = 0
        if not self.has_preface:
            start = data[: len(PREFACE)]
            if not PREFACE.startswith(start):
                raise ConnectionLost(PROTOCOL_ERROR, "no HTTP/2 preface")
            if len(start) < len(PREFACE):
                self._buffer = data
                return
            self.has_preface = True
            place = len(PREFACE)
        for kind, flags, stream, payload in self._frames(data, place):
            if self._block is not None and kind != CONTINUATION:
                raise ConnectionLost(PROTOCOL_ERROR, "expected CONTINUATION")
            self._take(kind, flags, stream, payload)

    def _frames(self, data: bytes, place: int) -> Iterator[tuple[int, int, int, bytes]]:
        """Yield the frames that are whole, and keep the rest."""
        length = len(data)
        while length - place >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, place)
            size = high << 16 | low
            if size > MAX_RECEIVED_FRAME:
                raise ConnectionLost(FRAME_SIZE_ERROR, f"a frame of {size} bytes")
            end = place + _HEAD.size + size
            if length < end:
                break
            yield kind, flags, stream & MAX_WINDOW, data[place + _HEAD.size : end]
            place = end
        self._buffer = data[place:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        match kind:
            case 0:
                self._take_data(flags, stream, payload)
            case 1:
                self._take_headers(flags, stream, payload)
            case 9:
                self._take_continuation(flags, stream, payload)
            case 3:
                self._take_reset(stream, payload)
            case 4:
                self._take_settings(flags, stream, payload)
            case 6:
                self._take_ping(flags, stream, payload)
            case 8:
                self._take_window_update(stream, payload)
            case 5:
                raise ConnectionLost(PROTOCOL_ERROR, "a client must not push")
            # PRIORITY, GOAWAY and what is not known change nothing.

    def _take_data(self, flags: int, stream: int, payload: bytes) -> None:
        if stream == 0:
            raise ConnectionLost(PROTOCOL_ERROR, "DATA of no stream")
        self._credit(len(payload))
        if stream not in self._open:
            if stream > self.last_stream:
                raise ConnectionLost(PROTOCOL_ERROR, "DATA of a stream never opened")
            return  # it was answered or reset; what is on its way is dropped
        self._streams.received(stream, _unpadded(flags, payload))
        if flags & END_STREAM and stream in self._open:
            self._open.discard(stream)
            self._streams.ended(stream)

    def _credit(self, size: int) -> None:
        self._uncredited += size
        if self._uncredited >= CREDIT:
            self._write(frame(WINDOW_UPDATE, 0, 0, _LONG.pack(self._uncredited)))
            self._uncredited = 0

    def _take_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream % 2:
            raise ConnectionLost(PROTOCOL_ERROR, "a client's streams are odd")
        block = _unpadded(flags, payload)
        if flags & HAS_PRIORITY:
            if len(block) < PRIORITY_BYTES:
                raise ConnectionLost(FRAME_SIZE_ERROR, "HEADERS with half a priority")
            block = block[PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._decode(flags, stream, block)
        else:
            self._block = flags, stream, bytearray(block)

    def _take_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if self._block is None or self._block[1] != stream:
            raise ConnectionLost(PROTOCOL_ERROR, "CONTINUATION of nothing")
        first, _, block = self._block
        block += payload
        if len(block) > MAX_HEADER_BLOCK:
            raise ConnectionLost(ENHANCE_YOUR_CALM, "headers without end")
        if flags & END_HEADERS:
            self._block = None
            self._decode(first, stream, bytes(block))

    def _decode(self, flags: int, stream: int, block: bytes) -> None:
        try:
            headers = self._decoder.decode(block)
        except (hpack.HPACKError, UnicodeDecodeError) as error:
            raise ConnectionLost(COMPRESSION_ERROR, str(error)) from error
        if stream in self._open:
            if not flags & END_STREAM:
                raise ConnectionLost(PROTOCOL_ERROR, "headers amid a stream")
        elif stream <= self.last_stream:
            return  # trailers of a stream that was answered
        else:
            self.last_stream = stream
            if len(self._outgoing) >= MAX_STREAMS:
                refusal = _LONG.pack(REFUSED_STREAM)
                self._write(frame(RST_STREAM, 0, stream, refusal))
                return
            self._open.add(stream)
            self._outgoing[stream] = _Outgoing()
            self._streams.opened(stream, headers)
        if flags & END_STREAM and stream in self._open:
            self._open.discard(stream)
            self._streams.ended(stream)

    def _take_reset(self, stream: int, payload: bytes) -> None:
        if len(payload) != _LONG.size:
            raise ConnectionLost(FRAME_SIZE_ERROR, "RST_STREAM")
        if stream == 0 or stream > self.last_stream:
            raise ConnectionLost(PROTOCOL_ERROR, "RST_STREAM of a stream never opened")
        self._open.discard(stream)
        self._blocked.pop(stream, None)
        if self._outgoing.pop(stream, None) is not None:
            self._streams.reset(stream)

    def _take_settings(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or len(payload) % _SETTING.size or (flags & ACK and payload):
            raise ConnectionLost(FRAME_SIZE_ERROR, "SETTINGS")
        if flags & ACK:
            return
        for key, value in _SETTING.iter_unpack(payload):
            if key == INITIAL_WINDOW_SIZE:
                if value > MAX_WINDOW:
                    raise ConnectionLost(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE")
                self._initial_window = value
            elif key == MAX_FRAME_SIZE:
                if not MAX_RECEIVED_FRAME <= value < 1 << 24:
                    raise ConnectionLost(PROTOCOL_ERROR, "MAX_FRAME_SIZE")
                self._max_frame = value
        self._write(frame(SETTINGS, ACK, 0))
        self._go_on()

    def _take_ping(self, flags: int, stream: int, payload: bytes) -> None:
        if stream or len(payload) != 8:
            raise ConnectionLost(FRAME_SIZE_ERROR, "PING")
        if not flags & ACK:
            self._write(frame(PING, ACK, 0, payload))

    def _take_window_update(self, stream: int, payload: bytes) -> None:
        if len(payload) != _LONG.size:
            raise ConnectionLost(FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        credit = _LONG.unpack(payload)[0] & MAX_WINDOW
        if not credit and stream in self._outgoing:
            self._break(stream, PROTOCOL_ERROR)
            return
        if not credit:
            raise ConnectionLost(PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        if stream == 0:
            self._window += credit
            if self._window > MAX_WINDOW:
                raise ConnectionLost(FLOW_CONTROL_ERROR, "the window is too large")
            self._go_on()
            return
        if stream > self.last_stream:
            raise ConnectionLost(
                PROTOCOL_ERROR, "WINDOW_UPDATE of a stream never opened"
            )
        outgoing = self._outgoing.get(stream)
        if outgoing is None:
            return
        outgoing.credit += credit
        if self._initial_window + outgoing.credit > MAX_WINDOW:
            self._break(stream, FLOW_CONTROL_ERROR)
        elif outgoing.waiting:
            self._send_waiting(stream, outgoing)

    def _break(self, stream: int, code: int) -> None:
        """End a stream whose peer broke its rules; the others go on."""
        self._open.discard(stream)
        self._outgoing.pop(stream, None)
        self._blocked.pop(stream, None)
        self._write(frame(RST_STREAM, 0, stream, _LONG.pack(code)))
        self._streams.reset(stream)

    # Sending.

    def send_headers(self, stream: int, block: bytes, *, ends: bool) -> None:
        """Send an encoded header block."""
        outgoing = self._outgoing.get(stream)
        if outgoing is None:
            return  # the client took it back
        flags = END_HEADERS | (END_STREAM if ends else 0)
        self._follow(stream, outgoing, frame(HEADERS, flags, stream, block), ends=ends)

    def send(self, stream: int, data: bytes, trailers: bytes = b"") -> None:
        """Send data as far as the peer's window goes, and an encoded block at its end.

        Args:
            stream: Which.
            data: All of a message.
            trailers: Of a stream that ends with it; empty: it goes on.
        """
        outgoing = self._outgoing.get(stream)
        if outgoing is None:
            return
        last = b""
        if trailers:
            last = frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers)
        size = len(data)
        window = self._initial_window + outgoing.credit
        if size <= min(self._window, window, self._max_frame) and not outgoing.waiting:
            self._window -= size
            outgoing.credit -= size
            self._write(frame(DATA, 0, stream, data) + last)
            if last:
                self._close(stream)
            return
        outgoing.waiting.append((memoryview(data), last))
        self._send_waiting(stream, outgoing)

    def _follow(
        self, stream: int, outgoing: _Outgoing, sent: bytes, *, ends: bool
    ) -> None:
        if outgoing.waiting:
            outgoing.waiting.append((memoryview(b""), sent))
            return
        self._write(sent)
        if ends:
            self._close(stream)

    def _close(self, stream: int) -> None:
        """Forget a stream that is answered; what it still sends is not wanted."""
        self._outgoing.pop(stream, None)
        self._blocked.pop(stream, None)
        if stream in self._open:
            self._open.discard(stream)
            self._write(frame(RST_STREAM, 0, stream, _LONG.pack(NO_ERROR)))

    def _go_on(self) -> None:
        for stream, outgoing in list(self._blocked.items()):
            if self._window <= 0:
                return
            self._send_waiting(stream, outgoing)

    def _send_waiting(self, stream: int, outgoing: _Outgoing) -> None:
        while outgoing.waiting:
            data, last = outgoing.waiting.popleft()
            while data:
                window = self._initial_window + outgoing.credit
                size = min(len(data), self._window, window, self._max_frame)
                if size <= 0:
                    outgoing.waiting.appendleft((data, last))
                    self._blocked[stream] = outgoing
                    return
                self._write(frame(DATA, 0, stream, data[:size]))
                data = data[size:]
                self._window -= size
                outgoing.credit -= size
            if last:
                self._write(last)
                if last[4] & END_STREAM:
                    self._close(stream)

    @property
    def num_streams(self) -> int:
        """Streams that are not answered to their end."""
        return len(self._outgoing)

    def go_away(self, code: int = NO_ERROR) -> None:
        """Tell the peer to open no more streams here."""
        payload = _LONG.pack(self.last_stream) + _LONG.pack(code)
        self._write(frame(GOAWAY, 0, 0, payload))


def _unpadded(flags: int, payload: bytes) -> bytes:
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionLost(PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]
