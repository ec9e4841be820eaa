"""How a connection tells its owner about an answer, and the state that an event loop's connections share."""

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
"""The most to skip at once."""
SKIP_AT_LEAST_BYTES = 64 * 1024 if sys.platform == "linux" else sys.maxsize
"""Shorter rests are read: a kernel-side skip saves nothing on them. Only Linux skips for `MSG_TRUNC`."""
_KNOWN_MOST = 64
"""In answers, of some KiB each. A `date` header makes one a second, so more would grow for minutes, like a leak."""


class KnownAnswers(dict[bytes, tuple[ResponseHead, int]]):
    """Head and body length of good answers to one request by their bytes, shared by the connections that send it."""

    LONGEST_BYTES = 4096
    """Longer answers are parsed each time: their heads are known, and those cost most."""

    def keep(self, raw: bytes, head: ResponseHead, body_bytes: int) -> None:
        if len(self) >= _KNOWN_MOST:
            self.clear()
        self[raw] = (head, body_bytes)


class Breach(StrEnum):
    """How a server broke the protocol on a connection silently, beside good answers."""

    CUT_OFF = "cut_off"
    """It answered before it had taken the whole request, so the rest was not sent."""
    OUT_OF_STEP = "out_of_step"
    """It sent more than the answer."""
    CLOSED_UNSAID = "closed_unsaid"
    """It closed the connection after an answer that did not announce it."""


class Exchange(Protocol):
    """The owner's side of one request: the connection calls it when something happens."""

    def on_head(self, head: ResponseHead) -> bool:
        """Takes the final response head; returns whether it wants the body."""
        ...

    def on_body(self, data: memoryview) -> None:
        """Takes a piece of the body. The memory is overwritten after the call."""
        ...

    def on_end(self, repeated: bool) -> bool:
        """Takes the end of a complete answer. The connection is free, or closed if it cannot be used again.

        Returns whether exactly these bytes would be a good answer again. Connections that keep known answers then end
        it with `repeated`, without `on_head` and `on_body`.
        """
        ...

    def on_failure(self, error: httpx.TransportError) -> None:
        """Takes the error that ends the exchange before its answer is complete. The connection is closed."""
        ...


class Sockets:
    __slots__ = ("closed_said", "most_open", "open", "opened")

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0
        """The most at one time, since its reader has set it."""
        self.opened = 0
        self.closed_said = 0
        """How many the server closed after an answer that announced it (`Connection: close`)."""

    def add(self) -> None:
        self.opened += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)


class Scratch:
    """Shared by an event loop's connections: a read buffer, unread memory to skip into, parsed heads."""

    __slots__ = ("buffer", "heads", "nowhere", "sockets", "view")

    def __init__(self) -> None:
        self.buffer = bytearray(_READ_BYTES)
        self.view = memoryview(self.buffer)
        self.nowhere = _nowhere()
        """Never touched, so it costs address space but no memory."""
        self.heads = HeadCache()
        self.sockets = Sockets()


@cache
def _nowhere() -> mmap.mmap:
    return mmap.mmap(-1, SKIP_BYTES)
