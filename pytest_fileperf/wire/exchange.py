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
"""The remaining bytes of an unwanted body are skipped only if they are more than this. For fewer bytes, skipping saves
nothing. Only Linux skips, with `MSG_TRUNC`."""
_KNOWN_MOST = 64
"""At most this many known answers are kept, of some KiB each. A `date` header makes a new answer each second. Without a
limit, kept answers would look like a memory leak."""


class KnownAnswers(dict[bytes, tuple[ResponseHead, int]]):
    """Good answers to one request. Maps an answer's bytes to its head and its body's length in bytes.

    All connections that send this request share them.
    """

    LONGEST_BYTES = 4096
    """Longer answers are parsed each time. Most of the cost is in parsing heads, and `HeadCache` keeps parsed heads."""

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
    """A request under way. Its connection reports the answer by these calls."""

    def on_head(self, head: ResponseHead) -> bool:
        """Gets the answer's head. Returns whether the owner wants the body."""
        ...

    def on_body(self, data: memoryview) -> None:
        """Gets the next bytes of the body. Must copy `data`, because its memory is overwritten after the call."""
        ...

    def on_end(self, repeated: bool) -> bool:
        """Is called once the answer is complete. The connection is then free, or closed if it cannot be used again.

        Returns whether an answer of exactly these bytes is always good. If so, later answers of the same bytes skip the
        other methods: they cause only this call, with `repeated` True.
        """
        ...

    def on_failure(self, error: httpx.TransportError) -> None:
        """Is called if the answer cannot become complete. The connection is then closed."""
        ...


class Sockets:
    """Counts of the connections of an event loop."""

    __slots__ = ("closed_said", "most_open", "open", "opened")

    def __init__(self) -> None:
        self.open = 0
        self.most_open = 0
        """The most connections open at one time in the current round. The recorder resets it for each round."""
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
