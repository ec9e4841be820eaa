"""Parses bodies in HTTP/1.1's chunked encoding. Does no I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto

import httpx

from pytest_fileperf.wire.framing import MAX_HEAD_BYTES, check_trailers

_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\n]*)?[ \t]*\r")
"""The line before a chunk, without its line feed. The pattern allows the same lines as h11, which httpx uses."""


class _Line(Enum):
    SIZE = auto()
    AFTER_DATA = auto()
    """The empty line after a chunk."""
    TRAILER = auto()


class ChunkedReader:
    __slots__ = ("_line", "_next", "_trailers", "left", "received")

    def __init__(self) -> None:
        self.left = 0
        self.received = 0
        self._line = bytearray()
        self._next = _Line.SIZE
        self._trailers = b""

    def skip(self, size_bytes: int) -> None:
        self.left -= size_bytes
        self.received += size_bytes

    def feed(self, data: memoryview, deliver: Callable[[memoryview], object] | None) -> int:
        """Takes the next bytes. If the body ends in them, returns how many of them belong to it. Otherwise returns -1.

        `deliver` gets each piece of content. Raises httpx.RemoteProtocolError if the encoding is invalid.
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
            # Most lines are short, so the first 64 bytes are searched before all others.
            piece = bytes(data[position : position + 64])
            stop = piece.find(b"\n")
            if stop < 0 and end - position > 64:
                piece = bytes(data[position:end])
                stop = piece.find(b"\n")
            if stop < 0:
                self._line += piece
                self._check_start()
                return -1
            line = bytes(self._line) + piece[:stop] if self._line else piece[:stop]
            self._line = bytearray()
            position += stop + 1
            if self._ends_with(line):
                return position
        return -1

    def _check_start(self) -> None:
        """Raises httpx.RemoteProtocolError if the incomplete line cannot become a valid one."""
        if self._next is _Line.AFTER_DATA and self._line != b"\r":
            raise httpx.RemoteProtocolError(f"a chunk is followed by {bytes(self._line[:20])!r}, not by a line end")
        if len(self._line) + len(self._trailers) > MAX_HEAD_BYTES:
            raise httpx.RemoteProtocolError("the chunked answer has a line, or trailers, of more than 100 KiB")

    def _ends_with(self, line: bytes) -> bool:
        """Takes a line without its line feed. Returns whether the body ends with this line."""
        if self._next is _Line.AFTER_DATA:
            if line != b"\r":
                raise httpx.RemoteProtocolError(f"a chunk is followed by {line[:20]!r}, not by a line end")
            self._next = _Line.SIZE
            return False
        if self._next is _Line.TRAILER:
            if line not in (b"\r", b""):
                self._trailers += line + b"\n"
                self._check_start()
                return False
            if self._trailers:
                check_trailers(self._trailers + line + b"\n")
            return True
        match = _CHUNK_SIZE.fullmatch(line)
        if match is None:
            raise httpx.RemoteProtocolError(f"illegal chunk size line {line[:40]!r}")
        self.left = int(match[1], 16)
        self._next = _Line.AFTER_DATA if self.left else _Line.TRAILER
        return False
