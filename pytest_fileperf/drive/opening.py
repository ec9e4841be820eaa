"""Opens many connections without overflowing the server's listen queue, where each one too many costs a second."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

__all__ = ("OPENED_AT_ONCE", "open_all", "waiting_to_be_accepted")

OPENED_AT_ONCE = 64
"""Well below the listen backlog of any server that expects load (asyncio's own default is 100)."""
_LOOK_AGAIN_S = 0.001
_PATIENCE_S = 1.0
"""A connection beyond the backlog is tried again by the kernel after this time anyway."""
_FIRST_BYTES = 16_384
"""Listening sockets come first in the kernel's table: some hundred lines of it, however many connections follow."""
_LISTEN = "0A"


async def open_all(openings: Sequence[Callable[[], Awaitable[None]]], port: int, *, openers: int = 1) -> None:
    """Runs all openings of connections to that port of this machine, some at a time; raises what the first raises.

    So many `openers` do that at the same time, each with its own openings.
    """
    at_once = max(1, OPENED_AT_ONCE // openers)
    for first in range(0, len(openings), at_once):
        if first:
            await _let_accept(port)
        await asyncio.gather(*(opening() for opening in openings[first : first + at_once]))


async def _let_accept(port: int) -> None:
    """Waits until the server has accepted most of what was opened, but not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while waiting_to_be_accepted(port) > OPENED_AT_ONCE // 4:  # noqa: ASYNC110 - the kernel tells when asked
                await asyncio.sleep(_LOOK_AGAIN_S)


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
