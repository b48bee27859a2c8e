"""HPACK header blocks, decoded once: a client sends the same few again and again."""

import hpack

Headers = tuple[tuple[bytes, bytes], ...]
MAX_BLOCKS = 256
MAX_LIST_BYTES = 4 << 20


class HeaderDecoder:
    """Decodes the blocks of one connection.

    A block that only refers to the tables means the same until the dynamic table
    changes; then nothing that was remembered holds any longer.
    """

    def __init__(self) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=MAX_LIST_BYTES)
        self._known: dict[bytes, Headers] = {}

    def decode(self, block: bytes) -> Headers:
        """Return names and values.

        Raises:
            hpack.HPACKError: It is no header block; the connection is lost.
        """
        known = self._known.get(block)
        if known is not None:
            return known
        newest, length, maxsize = self._table()
        headers = tuple(
            (bytes(name), bytes(value))
            for name, value in self._decoder.decode(block, raw=True)
        )
        after = self._table()
        # By identity: the entry before is kept alive, so that no other takes its place.
        if after[0] is not newest or after[1:] != (length, maxsize):
            self._known.clear()
        elif len(self._known) < MAX_BLOCKS:
            self._known[block] = headers
        return headers

    def _table(self) -> tuple[object, int, int]:
        """Return what differs after every change of the dynamic table."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return entries[0] if entries else None, len(entries), table.maxsize
