"""The two kinds of work: a compiled request replayed on a warm connection, and any code on an httpx client."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic_ns
from typing import TypeAlias

import httpx

from pytest_fileperf.drive.failures import EXCERPT_BYTES, kind_of, problem_of, shown
from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.drive.user import Client
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.operation import Expectation
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.request import WireRequest
from pytest_fileperf.wire.templates import Row

__all__ = (
    "Aim",
    "ClientSlot",
    "Draw",
    "ReplaySlot",
    "Sent",
    "VaryingSlot",
)

STALE_NS = 1_000_000_000
"""A connection that has rested for this long is not used again: servers close idle connections (gunicorn after 2 s,
uvicorn after 5 s), and a busy server may close one although the next request is there already."""
_RECONNECT_PAUSE_S = 0.05
"""Time before a server that refused a connection is asked again: not in a busy loop."""


class ReplaySlot:
    """Replays one request on one connection, and connects anew when the server has closed it.

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
        "_load",
        "_opening",
        "_request",
        "_seen_body",
        "_stale_ns",
        "_tally",
        "_used_ns",
    )

    def __init__(
        self,
        *,
        load: Turns,
        tally: Tally,
        request: WireRequest | Row,
        expect: Expectation,
        connect: Callable[[], Awaitable[Connection]],
        stale_ns: int = STALE_NS,
    ) -> None:
        self._load = load
        self._tally = tally
        self._request = request
        self._expect = expect
        self._connect = connect
        self._stale_ns = stale_ns
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._good_head: ResponseHead | None = None
        self._digest = hashlib.sha256() if expect.sha256 else None
        self._excerpt = bytearray()
        self._seen_body = False
        self._due_ns: int | None = None
        self._used_ns = 0
        """When the connection was opened, or its last answer ended."""

    async def open(self) -> None:
        """Connects; raises httpx.ConnectError or httpx.ConnectTimeout."""
        self._connection = await self._connect()
        self._used_ns = monotonic_ns()

    def start(self, due_ns: int | None) -> None:
        """Sends the request."""
        self._due_ns = due_ns
        connection = self._connection
        if self._load.slots_rest and connection is not None and monotonic_ns() - self._used_ns > self._stale_ns:
            connection.close()
        if connection is None or connection.closed:
            self._opening = asyncio.create_task(self._reopen())
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

    async def _reopen(self) -> None:
        try:
            self._connection = await self._connect()
        except httpx.TransportError as error:
            self._tally.failure(*kind_of(error), monotonic_ns(), due_ns=self._due_ns)
            await asyncio.sleep(_RECONNECT_PAUSE_S)
            self._load.next(self)
        else:
            self._connection.start(self._request, self)

    # --- the exchange

    def on_head(self, head: ResponseHead) -> bool:
        """Takes the head; asks for the body where it must be hashed or shown."""
        if head is self._good_head:
            return False
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
        self._used_ns = connection.ended_ns
        problem = None
        if not repeated:
            digest = "" if self._digest is None else self._digest.hexdigest()
            problem = problem_of(self._expect, connection.status, connection.body_bytes, digest)
        too_late = connection.ended_ns - connection.started_ns > self._load.timeout_ns
        if problem is None and not too_late:
            self._tally.success(
                connection.started_ns,
                connection.first_byte_ns,
                connection.ended_ns,
                connection.status,
                self._request.body_bytes,
                connection.body_bytes,
                self._due_ns,
            )
        else:
            kind, what = problem or ("timeout", self._load.too_late)
            if problem is not None:
                what += shown(kind, bytes(self._excerpt), connection.body_bytes, connection.content_encoding)
            self._tally.failure(kind, what, connection.ended_ns, connection.status, due_ns=self._due_ns)
            self._excerpt.clear()
        self._load.next(self)
        return problem is None

    def on_failure(self, error: httpx.TransportError) -> None:
        """Counts the failure and goes on."""
        self._tally.failure(*kind_of(error), monotonic_ns(), due_ns=self._due_ns)
        # Not at once: this may be called from within a sweep over all slots.
        asyncio.get_running_loop().call_soon(self._load.next, self)


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

    def __init__(self, *, load: Turns, aim: Aim, draw: Draw, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._aim = aim
        self._row = Row()
        self.draw = draw
        """Where the next request comes from."""
        super().__init__(load=load, tally=aim.tally, request=self._row, expect=aim.expect, connect=connect)

    def start(self, due_ns: int | None) -> None:
        """Sends the next request."""
        aim = self.draw(self._row)
        if aim is not self._aim:
            self._aim, self._tally = aim, aim.tally
            if aim.expect is not self._expect:
                self._expect, self._good_head = aim.expect, None
                self._digest = hashlib.sha256() if aim.expect.sha256 else None
        super().start(due_ns)


class Sent:
    """What one call of a journey or operation has sent and received."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "due_ns",
        "first_byte_ns",
        "paused_first_ns",
        "problem",
        "status",
        "tally",
    )

    def __init__(self, tally: Tally, due_ns: int | None = None) -> None:
        self.tally = tally
        """What counts it."""
        self.due_ns = due_ns
        """When it was due in an open loop."""
        self.status: int | None = None
        """The status of the last answer, or the first status from 500 on."""
        self.first_byte_ns: int | None = None
        """When the first answer's head was there."""
        self.paused_first_ns = 0
        """How long its client had paused until then, since it was made."""
        self.bytes_sent = 0
        self.bytes_received = 0
        self.problem: tuple[str, str] | None = None
        """Kind and example of a failure that raised nothing."""


class ClientSlot:
    """Runs a coroutine function on an httpx client of its own, again and again."""

    def __init__(
        self,
        *,
        load: Turns,
        tally: Tally,
        client: Client,
        call: Callable[[Client, Sent], Awaitable[object]],
        unchecked: bool,
    ) -> None:
        """With `unchecked`, `call` does not judge answers itself: one of 500 or more is a failure."""
        self._load = load
        self._tally = tally
        self._client = client
        self._call = call
        self._unchecked = unchecked
        self._sent = Sent(tally)
        self._responses: list[httpx.Response] = []
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._started_ns: int | None = None
        self._due_ns: int | None = None
        self._expired = False
        self._paused_before_ns = 0
        """How long the client had paused before this call."""
        client.event_hooks["response"].append(self._on_response)

    def start(self, due_ns: int | None) -> None:
        """Starts the coroutine."""
        self._due_ns = due_ns
        self._started_ns = None  # a task cancelled before its first step would never say that it has ended
        self._task = asyncio.create_task(self._run())

    def expire(self, started_before_ns: int) -> None:
        """Cancels the coroutine if it began before that instant; its pauses do not count, up to as long a time."""
        if self._task is None or self._started_ns is None or self._started_ns >= started_before_ns:
            return
        paused_ns = min(self._client.paused_ns - self._paused_before_ns, self._load.timeout_ns)
        if self._started_ns + paused_ns < started_before_ns:
            self._expired = True
            self._task.cancel()

    async def aclose(self) -> None:
        """Ends what is under way and closes the client."""
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    async def _on_response(self, response: httpx.Response) -> None:
        sent = self._sent
        if sent.first_byte_ns is None:
            sent.first_byte_ns = monotonic_ns()
            sent.paused_first_ns = self._client.paused_ns
        if sent.status is None or sent.status < 500:
            sent.status = response.status_code
        self._responses.append(response)

    async def _run(self) -> None:
        sent = self._sent = Sent(self._tally, self._due_ns)
        self._responses = []
        self._expired = False
        self._paused_before_ns = self._client.paused_ns
        started_ns = self._started_ns = monotonic_ns()
        try:
            await self._call(self._client, sent)
        except asyncio.CancelledError:
            if self._expired:
                sent.tally.failure("timeout", self._load.too_late, monotonic_ns(), due_ns=self._due_ns)
            elif self._task is not None and self._task.cancelling():
                raise
            else:
                what = "it awaited something that was cancelled"
                sent.tally.failure("cancelled", what, monotonic_ns(), due_ns=self._due_ns)
        except Exception as error:  # the user's code may raise anything; each failure is a sample
            sent.tally.failure(*kind_of(error), monotonic_ns(), sent.status, due_ns=self._due_ns)
            if isinstance(error, httpx.ConnectError):
                self._pause = asyncio.get_running_loop().call_later(_RECONNECT_PAUSE_S, self._load.next, self)
                return
        else:
            self._finished(sent, started_ns)
        self._load.next(self)

    def _finished(self, sent: Sent, started_ns: int) -> None:
        paused_ns = self._client.paused_ns - self._paused_before_ns
        ended_ns, problem = monotonic_ns(), sent.problem
        if problem is None and self._unchecked and (sent.status or 0) >= 500:
            problem = f"status {sent.status}", f"answer {sent.status}"
        if problem is None and ended_ns - started_ns - paused_ns > self._load.timeout_ns:
            problem = "timeout", self._load.too_late
        if problem is not None:
            sent.tally.failure(*problem, ended_ns, sent.status, due_ns=self._due_ns)
            return
        first_ns = sent.first_byte_ns or ended_ns
        if paused_ns:
            sent.tally.pause(paused_ns)
            first_ns -= sent.paused_first_ns - self._paused_before_ns if sent.first_byte_ns else paused_ns
            if self._due_ns is None:
                # As if it had begun later, so that it still ends when it did.
                started_ns, first_ns = started_ns + paused_ns, first_ns + paused_ns
            else:
                ended_ns -= paused_ns  # it was due when it was
        for response in self._responses:
            sent.bytes_sent += int(response.request.headers.get("Content-Length", 0))
            sent.bytes_received += response.num_bytes_downloaded
        sent.tally.success(
            started_ns,
            first_ns,
            ended_ns,
            sent.status or 0,
            sent.bytes_sent,
            sent.bytes_received,
            self._due_ns,
        )
