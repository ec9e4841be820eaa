"""How a connection tells its owner of an answer, and what the connections of one event loop share."""

from __future__ import annotations

import mmap
from functools import cache
from typing import Protocol, TypeAlias

import httpx

from pytest_fileperf.wire.framing import HeadCache, ResponseHead

__all__ = ("KNOWN_BYTES", "KNOWN_MOST", "SKIP_BYTES", "Exchange", "KnownAnswers", "Scratch")

_READ_BYTES = 256 * 1024
SKIP_BYTES = 16 * 1024 * 1024
"""The most that is skipped at once."""
KNOWN_BYTES = 4096
"""Longer answers are parsed each time: their heads are known, and that is what costs."""
KNOWN_MOST = 1024
"""Known answers kept; a `date` header makes one a second."""

KnownAnswers: TypeAlias = dict[bytes, tuple[ResponseHead, int]]
"""Head and body length of good answers to one request by their bytes, shared by the connections that send it."""


class Exchange(Protocol):
    """The owner's side of one request: the connection calls it when something happens."""

    def on_head(self, head: ResponseHead) -> bool:
        """Takes the final response head; returns whether the body shall be handed out."""
        ...

    def on_body(self, data: memoryview) -> None:
        """Takes a piece of the body; the memory is overwritten after the call."""
        ...

    def on_end(self, repeated: bool) -> bool:
        """The answer is complete; the connection is free, or closed when it cannot be used again.

        Returns whether another answer with exactly these bytes would be good too. Connections that keep known answers
        then end it with `repeated`, without `on_head` and `on_body`.
        """
        ...

    def on_failure(self, error: httpx.TransportError) -> None:
        """The answer will not be complete; the connection is closed."""
        ...


class Scratch:
    """What the connections of one event loop share: a read buffer, unread memory to skip into, parsed heads."""

    __slots__ = ("buffer", "heads", "nowhere", "view")

    def __init__(self) -> None:
        self.buffer = bytearray(_READ_BYTES)
        self.view = memoryview(self.buffer)
        self.nowhere = _nowhere()
        """Never touched, so it costs address space but no memory."""
        self.heads = HeadCache()


@cache
def _nowhere() -> mmap.mmap:
    """Returns the memory that skipped data would go to; one for the whole process, as nothing is ever written there."""
    return mmap.mmap(-1, SKIP_BYTES)
