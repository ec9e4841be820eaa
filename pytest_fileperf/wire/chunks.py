"""Bodies that come in chunks: where one ends, and how much content it has. Knows bytes only."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx

from pytest_fileperf.wire.framing import MAX_HEAD_BYTES

__all__ = ("ChunkedReader",)

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r")


class ChunkedReader:
    """Finds the end of a chunked body and counts its content; hands out the content only when asked to."""

    __slots__ = ("_after_data", "_line", "_trailers", "left", "received")

    def __init__(self) -> None:
        self.left = 0
        """Bytes of the current chunk still to come."""
        self.received = 0
        """Bytes of content so far."""
        self._line = b""
        self._after_data = False
        self._trailers = False

    def skip(self, size_bytes: int) -> None:
        """Counts so many bytes of the current chunk as received; at most `left`."""
        self.left -= size_bytes
        self.received += size_bytes

    def feed(self, data: memoryview, deliver: Callable[[memoryview], object] | None) -> int:
        """Reads on; returns how many bytes of `data` belonged to the body when it ended in them, or -1 for "more".

        `deliver` is called with each piece of content. Raises httpx.RemoteProtocolError.
        """
        position, end = 0, len(data)
        while position < end:
            if self.left:
                take = min(self.left, end - position)
                if deliver is not None:
                    deliver(data[position : position + take])
                self.skip(take)
                position += take
                continue
            # Lines are short: look at 64 bytes first and at everything only if that was not enough.
            piece = bytes(data[position : position + 64])
            stop = piece.find(b"\n")
            if stop < 0 and end - position > 64:
                piece = bytes(data[position:end])
                stop = piece.find(b"\n")
            if stop < 0:
                self._line += piece
                if len(self._line) > MAX_HEAD_BYTES:
                    raise httpx.RemoteProtocolError("a line in the chunked body is too long")
                return -1
            line = self._line + piece[:stop]
            self._line = b""
            position += stop + 1
            if self._ends_with(line):
                return position
        return -1

    def _ends_with(self, line: bytes) -> bool:
        """Takes a line without its LF; returns whether it was the body's last."""
        if self._after_data:
            if line != b"\r":
                raise httpx.RemoteProtocolError(f"a chunk is followed by {line[:20]!r} where a line end should be")
            self._after_data = False
            return False
        if self._trailers:
            if line == b"\r":
                return True
            if b":" not in line or line[:1] in b" \t:":
                raise httpx.RemoteProtocolError(f"illegal trailer {line[:40]!r}")
            return False
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise httpx.RemoteProtocolError(f"illegal chunk size line {line[:40]!r}")
        self.left = int(match[1], 16)
        self._trailers = self.left == 0
        self._after_data = self.left > 0
        return False
