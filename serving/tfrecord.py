"""TFRecord files, read and written without TensorFlow.

```
length   uint64
crc      uint32, masked CRC-32C of the length
data     bytes[length]
crc      uint32, masked CRC-32C of the data
```
See tensorflow/core/lib/io/record_writer.h.
"""

import struct
from collections.abc import Iterator
from typing import Protocol

import google_crc32c

from serving.errors import ServingError

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8


class Source(Protocol):
    """A file, or what reads like one."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes, or what is left."""


class RecordError(ServingError):
    """A file that is no TFRecord, or is damaged."""


def masked_crc(data: bytes) -> int:
    """Return the checksum as the format holds it, rotated by 15 bits and shifted."""
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def encode(data: bytes) -> bytes:
    """Return a record."""
    length = struct.pack("<Q", len(data))
    return b"".join(
        [length, _FOOTER.pack(masked_crc(length)), data, _FOOTER.pack(masked_crc(data))]
    )


def read(file: Source) -> Iterator[bytes]:
    """Yield the records of a file.

    Raises:
        RecordError: It is damaged; the message says at which byte.
    """
    offset = 0
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size:
            raise RecordError(f"truncated record at {offset}")
        length, crc = _HEADER.unpack(header)
        if masked_crc(header[:8]) != crc:
            raise RecordError(f"corrupted record at {offset}")
        body = file.read(length + _FOOTER.size)
        if len(body) < length + _FOOTER.size:
            raise RecordError(f"truncated record at {offset}")
        data = body[:length]
        if masked_crc(data) != _FOOTER.unpack(body[length:])[0]:
            raise RecordError(f"corrupted record at {offset}")
        yield data
        offset += len(header) + len(body)
