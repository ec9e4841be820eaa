"""Slots that replay: a compiled request, or another one each time, is sent again and again on a warm connection."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import TypeAlias

import httpx

from pytest_fileperf.drive.failures import EXCERPT_BYTES, kind_of, problem_of, shown
from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.drive.opening import Connect, Idle
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.operation import Expectation
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.request import WireRequest
from pytest_fileperf.wire.templates import Row

__all__ = ("RECONNECT_PAUSE_S", "Aim", "Draw", "ReplaySlot", "VaryingSlot")

RECONNECT_PAUSE_S = 0.05
"""Time before a server that refused a connection is asked again: not in a busy loop."""


class ReplaySlot:
    """Replays one request on one connection, and connects when it has none, or the server has closed it.

    Slots that rest give their connection away after each request, and take one that is free for the next.
    It is the connection's exchange itself: there is no other layer between the end of an answer and the next `send`.
    """

    __slots__ = (
        "_connect",
        "_connection",
        "_digest",
        "_due_ns",
        "_excerpt",
        "_expect",
        "_good_head",
        "_idle",
        "_is_good",
        "_is_simple",
        "_load",
        "_opening",
        "_request",
        "_seen_body",
        "_tally",
    )

    def __init__(
        self,
        *,
        load: Turns,
        tally: Tally,
        request: WireRequest | Row,
        expect: Expectation,
        connect: Connect,
        idle: Idle | None = None,
    ) -> None:
        """`idle` are the free connections of all slots, where slots rest."""
        self._load = load
        self._tally = tally
        self._request = request
        self._expect = expect
        self._connect = connect
        self._idle = idle
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._good_head: ResponseHead | None = None
        self._is_good = False
        """Whether the head of this answer says that the whole of it is as good as an earlier one."""
        self._is_simple = request.whole is not None
        """Whether each request is written at once, so that no file can fail it."""
        self._digest = hashlib.sha256() if expect.sha256 else None
        self._excerpt = bytearray()
        self._seen_body = False
        self._due_ns: int | None = None

    async def open(self) -> None:
        """Connects; raises httpx.ConnectError or httpx.ConnectTimeout."""
        self._connection = await self._connect()

    def start(self, due_ns: int | None) -> None:
        """Sends the request."""
        self._due_ns = due_ns
        connection = self._connection
        if connection is None and self._idle is not None:
            connection = self._connection = self._idle.take()
        if connection is None or connection.closed:
            if connection is not None:
                self._note_breach(connection)
            self._opening = asyncio.create_task(self._reopen(monotonic_ns()))
        else:
            connection.start(self._request, self)

    def expire(self, started_before_ns: int) -> None:
        """Fails the request under way if it was sent before that instant."""
        connection = self._connection
        if connection is not None and connection.busy and connection.started_ns < started_before_ns:
            connection.fail(httpx.ReadTimeout(self._load.too_late))

    def close(self) -> None:
        """Closes the connection."""
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _reopen(self, began_ns: int) -> None:
        """Connects and sends the request. It began before that: the server was asked for the connection first."""
        try:
            connection = self._connection = await self._connect()
        except httpx.TransportError as error:
            self._connection = None
            self._tally.failure(*kind_of(error), monotonic_ns(), due_ns=self._due_ns)
            await asyncio.sleep(RECONNECT_PAUSE_S)
            self._load.next(self)
        else:
            connection.start(self._request, self)
            connection.started_ns = began_ns

    def _go_on(self) -> None:
        """Asks for the next piece of work; where slots rest the connection goes to the one that works next."""
        if self._idle is not None:
            self._give_away(self._idle)
        self._load.next(self)

    def _give_away(self, idle: Idle) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            idle.put(connection)

    # --- the exchange

    def on_head(self, head: ResponseHead) -> bool:
        """Takes the head; asks for the body where it must be hashed or shown."""
        if head is self._good_head:
            self._is_good = head.body >= 0 and not self._request.is_head
            return False
        self._is_good = False
        self._excerpt.clear()
        if self._digest is not None:
            self._digest = hashlib.sha256()
            return True
        expected = self._expect.size_bytes
        fits = self._expect.allows_status(head.status) and (expected is None or head.body < 0 or head.body == expected)
        if fits and self._seen_body:
            self._good_head = head
            return False
        self._seen_body = True
        return True

    def on_body(self, data: memoryview) -> None:
        """Takes a piece of the body."""
        if self._digest is not None:
            self._digest.update(data)
        if len(self._excerpt) < EXCERPT_BYTES:
            self._excerpt += data[: EXCERPT_BYTES - len(self._excerpt)]

    def on_end(self, repeated: bool) -> bool:
        """Judges the answer and goes on."""
        connection = self._connection
        assert connection is not None
        ended_ns = connection.ended_ns
        is_good = repeated or self._is_good
        if self._load.at_once and is_good and self._is_simple and self._tally.is_quick(ended_ns):
            started_ns, first_byte_ns = connection.started_ns, connection.first_byte_ns
            if not connection.closed and ended_ns - started_ns <= self._load.timeout_ns:
                # The next request is written first: the server works on it while this answer is counted.
                status, body_bytes = connection.status, connection.body_bytes
                self._load.next(self)
                if self._idle is not None and not connection.busy:
                    self._give_away(self._idle)
                self._tally.success(started_ns, first_byte_ns, ended_ns, status, self._request.body_bytes, body_bytes)
                return True
        problem = None
        if not is_good:
            digest = "" if self._digest is None else self._digest.hexdigest()
            problem = problem_of(self._expect, connection.status, connection.body_bytes, digest)
        too_late = connection.ended_ns - connection.started_ns > self._load.timeout_ns
        if problem is None and not too_late:
            self._tally.success(
                connection.started_ns,
                connection.first_byte_ns,
                connection.ended_ns,
                connection.status,
                self._request.body_bytes if not connection.unsent_bytes else self._taken_bytes(connection),
                connection.body_bytes,
                self._due_ns,
            )
        else:
            kind, what = problem or ("timeout", self._load.too_late)
            if problem is not None:
                what += shown(kind, bytes(self._excerpt), connection.body_bytes, connection.content_encoding)
            self._tally.failure(kind, what, connection.ended_ns, connection.status, due_ns=self._due_ns)
            self._excerpt.clear()
        if connection.closed:
            self._note_breach(connection)
        self._go_on()
        return problem is None

    def _taken_bytes(self, connection: Connection) -> int:
        return max(0, self._request.body_bytes - connection.unsent_bytes)

    def _note_breach(self, connection: Connection) -> None:
        breach, connection.breach = connection.breach, None
        if breach is not None:
            self._tally.breach(breach)

    def on_failure(self, error: httpx.TransportError) -> None:
        """Counts the failure and goes on."""
        self._tally.failure(*kind_of(error), monotonic_ns(), due_ns=self._due_ns)
        # Not at once: this may be called from within a sweep over all slots.
        asyncio.get_running_loop().call_soon(self._go_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What is common to requests that are judged and counted alike."""

    expect: Expectation
    tally: Tally


Draw: TypeAlias = Callable[[Row], Aim]
"""Makes the row the next request, and says how it is judged and counted."""


class VaryingSlot(ReplaySlot):
    """Replays another request each time."""

    __slots__ = ("_aim", "_row", "draw")

    def __init__(self, *, load: Turns, aim: Aim, draw: Draw, connect: Connect, idle: Idle | None = None) -> None:
        self._aim = aim
        self._row = Row()
        self.draw = draw
        """Where the next request comes from."""
        super().__init__(load=load, tally=aim.tally, request=self._row, expect=aim.expect, connect=connect, idle=idle)

    def start(self, due_ns: int | None) -> None:
        """Sends the next request."""
        aim = self.draw(self._row)
        if aim is not self._aim:
            self._aim, self._tally = aim, aim.tally
            if aim.expect is not self._expect:
                self._expect, self._good_head = aim.expect, None
                self._digest = hashlib.sha256() if aim.expect.sha256 else None
        ReplaySlot.start(self, due_ns)
