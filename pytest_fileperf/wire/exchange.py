"""How a connection reports an answer to its owner, and the state that all connections of an event loop share."""

from __future__ import annotations

import mmap
import sys
from enum import StrEnum
from functools import cache
from typing import Protocol

import httpx

from pytest_fileperf.wire.framing import HeadCache, ResponseHead

_READ_BYTES = 256 * 1024
SKIP_BYTES = 16 * 1024 * 1024
SKIP_AT_LEAST_BYTES = 64 * 1024 if sys.platform == "linux" else sys.maxsize
"""A shorter rest of a body is read, because skipping it saves nothing. Only Linux skips with `MSG_TRUNC`."""
_KNOWN_MOST = 64
"""Answers of some KiB. A `date` header makes a new one each second, and more would look like a leak."""


class KnownAnswers(dict[bytes, tuple[ResponseHead, int]]):
    """By their bytes, the good answers to one request: head and body length. The request's connections share them."""

    LONGEST_BYTES = 4096
    """Longer answers are parsed each time. Their heads cost most, and are kept in `HeadCache`."""

    def keep(self, raw: bytes, head: ResponseHead, body_bytes: int) -> None:
        if len(self) >= _KNOWN_MOST:
            self.clear()
        self[raw] = (head, body_bytes)


class Breach(StrEnum):
    """How a server broke the protocol although its answers are good."""

    CUT_OFF = "cut_off"
    """It answered before it had taken the whole request, so the rest was not sent."""
    OUT_OF_STEP = "out_of_step"
    """It sent more than the answer."""
    CLOSED_UNSAID = "closed_unsaid"
    """It closed the connection without announcing it in the last answer."""


class Exchange(Protocol):
    def on_head(self, head: ResponseHead) -> bool:
        """Returns whether the owner wants the body."""
        ...

    def on_body(self, data: memoryview) -> None:
        """Must copy `data`, because its memory is overwritten after the call."""
        ...

    def on_end(self, repeated: bool) -> bool:
        """Ends a complete answer. The connection is then free, or closed if it cannot be used again.

        Returns whether the same bytes are always a good answer. Then later answers with these bytes have only this
        call, with `repeated`.
        """
        ...

    def on_failure(self, error: httpx.TransportError) -> None:
        """Ends an incomplete answer. The connection is closed then."""
        ...


class Sockets:
    __slots__ = ("closed_said", "most_open", "open", "opened")

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0
        """The most at one time in the current round. The recorder sets it back."""
        self.opened = 0
        self.closed_said = 0
        """How many connections the server closed with an announcement (`Connection: close`)."""

    def add(self) -> None:
        self.opened += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)


class Scratch:
    """Buffers, parsed heads and counts that all connections of an event loop share."""

    __slots__ = ("buffer", "heads", "nowhere", "sockets", "view")

    def __init__(self) -> None:
        self.buffer = bytearray(_READ_BYTES)
        self.view = memoryview(self.buffer)
        self.nowhere = _nowhere()
        """The target of skipped bytes. Nothing is written to it, so it costs address space but no memory."""
        self.heads = HeadCache()
        self.sockets = Sockets()


@cache
def _nowhere() -> mmap.mmap:
    return mmap.mmap(-1, SKIP_BYTES)
