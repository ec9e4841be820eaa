"""How a connection reports an answer, and data that all connections of an event loop share."""

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
"""If more bytes than this are left of an unwanted body, the kernel drops them (`MSG_TRUNC`, only on Linux). For fewer
bytes, this saves nothing."""
_KNOWN_MOST = 64
"""At most this many parsed answers are kept, to recognise equal ones. A `date` header makes a new one each second."""


class KnownAnswers(dict[bytes, tuple[ResponseHead, int]]):
    """Good answers to one request. Maps an answer's bytes to its head and its body's length in bytes.

    All connections that send this request share this object.
    """

    LONGEST_BYTES = 4096
    """Longer answers are not kept. They cost little more, because `HeadCache` keeps their parsed heads."""

    def keep(self, raw: bytes, head: ResponseHead, body_bytes: int) -> None:
        if len(self) >= _KNOWN_MOST:
            self.clear()
        self[raw] = (head, body_bytes)


class Breach(StrEnum):
    """How a server broke the protocol, although the answer itself was good."""

    CUT_OFF = "cut_off"
    """The server answered before it had taken the whole request, so the last bytes were not sent."""
    OUT_OF_STEP = "out_of_step"
    """The server sent more than the answer."""
    CLOSED_UNSAID = "closed_unsaid"
    """The server closed the connection without announcing it in the last answer."""


class Exchange(Protocol):
    """A request under way. Its connection calls these methods to report the answer."""

    def on_head(self, head: ResponseHead) -> bool:
        """Gets the answer's head. Returns whether the body is wanted."""
        ...

    def on_body(self, data: memoryview) -> None:
        """Gets the next bytes of the body. Must copy `data`, because its memory is overwritten after the call."""
        ...

    def on_end(self, repeated: bool) -> bool:
        """Is called once the answer is complete. The connection is then free or closed.

        Returns whether an answer with exactly these bytes is always good. If so, the connection may report later equal
        answers only by this call, with `repeated` True.
        """
        ...

    def on_failure(self, error: httpx.TransportError) -> None:
        """Is called if the request fails. The connection is then closed."""
        ...


class Sockets:
    """Counts an event loop's connections."""

    __slots__ = ("closed_said", "most_open", "open", "opened")

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0
        """The most connections that were open at one time in the current round of the load."""
        self.opened = 0
        self.closed_said = 0
        """How many connections the server closed after it had announced this (`Connection: close`)."""

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
        """The buffer for skipped bytes. Nothing is written to it, so it costs address space but no memory."""
        self.heads = HeadCache()
        self.sockets = Sockets()


@cache
def _nowhere() -> mmap.mmap:
    return mmap.mmap(-1, SKIP_BYTES)
