"""Opens connections without overflowing the server's listen queue, and keeps those that are free for the next request.

A connection that a load does not need changes the server: a sync worker waits for a request on it, and a server that
limits its connections counts it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns
from typing import TypeAlias

from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import Breach

__all__ = ("KEPT_IDLE_NS", "OPENED_AT_ONCE", "Connect", "Idle", "Openings", "open_all", "waiting_to_be_accepted")

Connect: TypeAlias = Callable[[], Awaitable[Connection]]
"""Opens a connection; raises httpx.ConnectError or httpx.ConnectTimeout."""

OPENED_AT_ONCE = 64
"""Well below the listen backlog of any server that expects load (asyncio's own default is 100)."""
KEPT_IDLE_NS = 1_000_000_000
"""A connection that has rested for this long is closed. httpx keeps them for 5 s, but servers close idle connections
(gunicorn after 2 s, uvicorn after 5 s), and a busy server may close one although the next request is there already."""
_LOOK_AGAIN_S = 0.001
_PATIENCE_S = 1.0
"""A connection beyond the backlog is tried again by the kernel after this time anyway."""
_FIRST_BYTES = 16_384
"""Listening sockets come first in the kernel's table: some hundred lines of it, however many connections follow."""
_LISTEN = "0A"


class Idle:
    """The free connections of a load whose slots rest. The one that was used last goes first; others are closed."""

    def __init__(self, breach: Callable[[Breach], None], *, kept_ns: int = KEPT_IDLE_NS) -> None:
        """`breach` hears what the server did to free connections."""
        self._breach = breach
        self._kept_ns = kept_ns
        self._free: deque[Connection] = deque()
        """By when they were used last."""
        self._closing: asyncio.TimerHandle | None = None

    def put(self, connection: Connection) -> None:
        """Takes a connection whose answer has ended."""
        self._free.append(connection)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(self._kept_ns / 1e9, self._close_rested)

    def take(self) -> Connection | None:
        """Returns the connection that was used last; None where none is open."""
        while self._free:
            connection = self._free.pop()
            if connection.closed:
                self._note(connection)
            elif monotonic_ns() - connection.ended_ns > self._kept_ns:
                connection.close()
            else:
                return connection
        return None

    def close(self) -> None:
        """Closes all of them."""
        if self._closing is not None:
            self._closing.cancel()
        for connection in self._free:
            connection.close()

    def _close_rested(self) -> None:
        """Closes what has rested for long enough, and looks again when the next one has."""
        before_ns = monotonic_ns() - self._kept_ns
        while self._free and (self._free[0].closed or self._free[0].ended_ns <= before_ns):
            connection = self._free.popleft()
            self._note(connection)
            connection.close()
        self._closing = None
        if self._free:
            rest_s = (self._free[0].ended_ns - before_ns) / 1e9
            self._closing = asyncio.get_running_loop().call_later(rest_s, self._close_rested)

    def _note(self, connection: Connection) -> None:
        breach, connection.breach = connection.breach, None
        if breach is not None:
            self._breach(breach)


class Openings:
    """Lets connections to a port of this machine be opened no faster than its server takes them."""

    def __init__(self, port: int, *, openers: int = 1) -> None:
        """So many `openers` open connections to it at the same time."""
        self._port = port
        self._at_once = self._left = max(1, OPENED_AT_ONCE // openers)
        self._turn = asyncio.Lock()

    async def may_open(self) -> bool:
        """Returns when one more connection can be opened, but does not wait for ever; whether it has waited."""
        if self._left and not self._turn.locked():
            self._left -= 1
            return False
        async with self._turn:
            if not self._left:
                await self._let_accept()
                self._left = self._at_once
            self._left -= 1
            return True

    async def _let_accept(self) -> None:
        """Waits until the server has accepted most of what was opened."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while waiting_to_be_accepted(self._port) > OPENED_AT_ONCE // 4:  # noqa: ASYNC110 - it tells if asked
                    await asyncio.sleep(_LOOK_AGAIN_S)


async def open_all(openings: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Runs all openings, some at a time; raises what the first raises, and none goes on then."""
    for first in range(0, len(openings), OPENED_AT_ONCE):
        tasks = [asyncio.ensure_future(opening()) for opening in openings[first : first + OPENED_AT_ONCE]]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise


def waiting_to_be_accepted(port: int) -> int:
    """Returns how many connections to a listening TCP port wait to be accepted; 0 where the system does not tell."""
    if sys.platform != "linux":
        return 0
    return max(_queue(Path("/proc/net/tcp"), port), _queue(Path("/proc/net/tcp6"), port))


def _queue(table: Path, port: int) -> int:
    try:
        with table.open(encoding="ascii") as file:
            lines = file.read(_FIRST_BYTES).splitlines()[1:]
    except OSError:
        return 0
    longest = 0
    for line in lines:
        # "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 …": number, local, remote, state, queues
        fields = line.split()
        if len(fields) < 5 or fields[3] != _LISTEN:
            break
        if int(fields[1].rpartition(":")[2], 16) == port:
            longest = max(longest, int(fields[4].partition(":")[2], 16))
    return longest
