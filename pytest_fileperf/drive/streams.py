"""Reads streamed answers piece by piece, and records when each piece came. Pieces are events, lines or bytes."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic_ns
from typing import cast

import httpx

from pytest_fileperf.drive.journey import ClientSlot, body_of, problem_of_answer, send
from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.drive.slots import Connect, Idle, ReplaySlot, problem_of, shown
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.work import EVENT, Each, Stream, counted, parse_each, why_ended_early, why_unfit
from pytest_fileperf.units import format_duration
from pytest_fileperf.wire.family import kind
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.pieces import piece_counter
from pytest_fileperf.wire.request import LoadClient, WireRequest

EACH = "fileperf_each"
"""Key in a request's `extensions`. Users' code sets it to the kind of the answer's pieces, such as `line`."""
_SENT_NS = "fileperf_sent_ns"
"""Key in a request's `extensions`. Its value is the instant at which the request was sent."""


class StreamTimes:
    __slots__ = ("_due_ns", "_last_ns", "_pieces", "_spread", "_started_ns", "_tally", "count")

    def __init__(self, tally: Tally, each: Each, *, started_ns: int, due_ns: int | None = None) -> None:
        self._tally = tally
        self._pieces = piece_counter(each)
        self._spread = isinstance(each, int)
        self._started_ns = started_ns
        self._due_ns = due_ns
        self._last_ns = 0
        self.count = 0

    def take(self, data: bytes | memoryview, at_ns: int) -> None:
        if found := self._pieces.feed(data):
            self._note(found, at_ns)

    def end(self, at_ns: int) -> None:
        if self._pieces.rest():
            self._note(1, at_ns)

    def _note(self, found: int, at_ns: int) -> None:
        tally = self._tally
        if not self.count:
            tally.first_event(at_ns, self._started_ns, self._due_ns)
            self._last_ns = at_ns
            self.count, found = 1, found - 1
        self.count += found
        if not found:
            return
        # Events that were read together came together. Bytes flow evenly, so their pieces share the time.
        gap_ns = at_ns - self._last_ns
        first_ns, next_ns = (gap_ns // found, gap_ns // found) if self._spread else (gap_ns, 0)
        tally.next_event(at_ns, first_ns)
        for _ in range(found - 1):
            tally.next_event(at_ns, next_ns)
        self._last_ns = at_ns


class StreamSlot(ReplaySlot):
    """Sends one request again and again, and reads each streamed answer until enough pieces have come."""

    __slots__ = ("_ended_ns", "_problem", "_stream", "_times", "_until")

    def __init__(
        self,
        *,
        load: Turns,
        tally: Tally,
        request: WireRequest,
        stream: Stream,
        connect: Connect,
        idle: Idle | None = None,
    ) -> None:
        expect = stream.operation.expect
        super().__init__(load=load, tally=tally, request=request, expect=expect, connect=connect, idle=idle)
        self._stream = stream
        self._times: StreamTimes | None = None
        """The times of the answer's pieces; None if the answer is not read in pieces."""
        self._problem: tuple[str, str] | None = None
        self._ended_ns = 0
        """When enough pieces had come, or it was clear that the answer isn't a stream; 0 before that."""
        self._until: asyncio.TimerHandle | None = None

    def close(self) -> None:
        self._drop_timer()
        super().close()

    # --- the exchange

    def on_head(self, head: ResponseHead) -> bool:
        self._excerpt.clear()
        super().on_head(head)
        self._times, self._problem, self._ended_ns = None, None, 0
        connection, stream = self._connection, self._stream
        assert connection is not None
        if not self._expect.allows_status(head.status):
            return True
        if unfit := why_unfit(stream.each, head.content_type, head.content_encoding):
            self._problem = "stream", unfit
            self._enough(connection.ended_ns)
            return True
        self._times = StreamTimes(self._tally, stream.each, started_ns=connection.started_ns, due_ns=self._due_ns)
        if stream.lasts_ns is not None:
            left_ns = connection.started_ns + stream.lasts_ns - monotonic_ns()
            self._until = asyncio.get_running_loop().call_later(max(0, left_ns) / 1e9, self._time_is_over)
        return True

    def on_body(self, data: memoryview) -> None:
        super().on_body(data)
        times, connection = self._times, self._connection
        if times is None or self._ended_ns:
            return
        assert connection is not None
        times.take(data, connection.ended_ns)
        if self._stream.events is not None and times.count >= self._stream.events:
            self._enough(connection.ended_ns)

    def on_end(self, repeated: bool) -> bool:
        connection, times = self._connection, self._times
        assert connection is not None
        if self._ended_ns:
            self._judge()
        elif times is None:
            super().on_end(repeated)
        else:
            times.end(connection.ended_ns)
            lasted_ns = connection.ended_ns - connection.started_ns
            digest = "" if self._digest is None else self._digest.hexdigest()
            self._problem = problem_of(self._expect, connection.status, connection.body_bytes, digest)
            if (why := why_ended_early(self._stream, times.count, lasted_ns)) is not None:
                self._problem = "stream", why
            self._ended_ns = connection.ended_ns
            self._judge()
        return False  # an equal answer must be read again, to record when its pieces come

    def on_failure(self, error: httpx.TransportError) -> None:
        if self._ended_ns:
            return  # it had enough: `_stop` is on its way
        self._drop_timer()
        times, self._times = self._times, None
        if times is not None:
            error = type(error)(f"{error}, after {counted(self._stream.each, times.count)}")
        super().on_failure(error)

    # --- ending

    def _enough(self, at_ns: int) -> None:
        """Ends the stream as soon as the connection has handled its newest data."""
        self._ended_ns = at_ns
        asyncio.get_running_loop().call_soon(self._stop)

    def _time_is_over(self) -> None:
        times = self._times
        if times is None or self._ended_ns:
            return
        self._ended_ns = monotonic_ns()
        if not times.count:
            self._problem = _nothing_came(self._stream)
        self._stop()

    def _stop(self) -> None:
        if self._ended_ns:
            assert self._connection is not None
            self._connection.close()
            self._judge()

    def _judge(self) -> None:
        connection, ended_ns = self._connection, self._ended_ns
        assert connection is not None
        self._drop_timer()
        self._times, self._ended_ns = None, 0
        problem = self._problem
        if problem is None and ended_ns - connection.started_ns > self._load.timeout_ns:
            problem = "timeout", self._load.too_late
        if problem is None:
            self._tally.success(
                connection.started_ns,
                connection.first_byte_ns,
                ended_ns,
                connection.status,
                self._taken_bytes(connection),
                connection.body_bytes,
                self._due_ns,
            )
        else:
            kind, what = problem
            if connection.body_bytes or kind != "stream":  # the stream itself says that nothing came
                what += shown(kind, bytes(self._excerpt), connection.body_bytes, connection.content_encoding)
            self._tally.failure(kind, what, ended_ns, connection.status, due_ns=self._due_ns)
        self._note_breach(connection)
        self._go_on()

    def _drop_timer(self) -> None:
        if self._until is not None:
            self._until.cancel()
            self._until = None


# --- through httpx's client


def stream_call(stream: Stream, tally: Tally) -> Callable[[LoadClient, ClientSlot], Awaitable[object]]:
    async def call(client: LoadClient, slot: ClientSlot) -> None:
        started_ns = monotonic_ns()
        response = await send(client, stream.operation)
        times = StreamTimes(tally, stream.each, started_ns=started_ns, due_ns=slot.due_ns)
        try:
            slot.problem = await _problem_of_reading(stream, response, times, started_ns)
        except httpx.TransportError as error:
            raise type(error)(f"{error}, after {counted(stream.each, times.count)}") from error
        finally:
            await response.aclose()

    return call


async def _problem_of_reading(
    stream: Stream, response: httpx.Response, times: StreamTimes, started_ns: int
) -> tuple[str, str] | None:
    """Reads until enough pieces have come. Returns (kind, description) of a problem; None if all went well."""
    expect, encoding = stream.operation.expect, response.headers.get("Content-Encoding", "")
    if not expect.allows_status(response.status_code):
        return await problem_of_answer(expect, response)
    if unfit := why_unfit(stream.each, response.headers.get("Content-Type", ""), encoding):
        return "stream", unfit
    loop, size, digest = asyncio.get_running_loop(), 0, hashlib.sha256()
    left_ns = None if stream.lasts_ns is None else started_ns + stream.lasts_ns - monotonic_ns()
    limit = asyncio.timeout_at(None if left_ns is None else loop.time() + left_ns / 1e9)
    try:
        async with limit:
            async for block in body_of(response):
                size += len(block)
                if expect.sha256:
                    digest.update(block)
                times.take(block, monotonic_ns())
                if stream.events is not None and times.count >= stream.events:
                    return None
    except TimeoutError:
        if not limit.expired():
            raise
        return None if times.count else _nothing_came(stream)
    ended_ns = monotonic_ns()
    times.end(ended_ns)
    if why := why_ended_early(stream, times.count, ended_ns - started_ns):
        return "stream", why
    return problem_of(expect, response.status_code, size, digest.hexdigest() if expect.sha256 else "")


def _nothing_came(stream: Stream) -> tuple[str, str]:
    assert stream.lasts_ns is not None
    return "stream", f"{counted(stream.each, 0)} came within {format_duration(stream.lasts_ns)}"


# --- in journeys


def watch_answers(client: LoadClient, tally: Tally) -> None:
    """Records when the pieces of event streams come. For other answers, the request's extension `EACH` is needed."""

    async def on_request(request: httpx.Request) -> None:
        request.extensions[_SENT_NS] = monotonic_ns()

    async def on_response(response: httpx.Response) -> None:
        each = _each_of(response)
        if each is not None:
            times = StreamTimes(tally, each, started_ns=response.request.extensions[_SENT_NS])
            timed = kind(client.family, _TimedBody, "AsyncByteStream")
            response.stream = timed(cast(httpx.AsyncByteStream, response.stream), times)

    client.event_hooks["request"].append(on_request)
    client.event_hooks["response"].append(on_response)


def _each_of(response: httpx.Response) -> Each | None:
    """Returns the kind of the answer's pieces; None if pieces are not recorded.

    Raises PlanError if the request's extension `EACH` does not fit the answer.
    """
    asked, headers = response.request.extensions.get(EACH), response.headers
    content_type, encoding = headers.get("Content-Type", ""), headers.get("Content-Encoding", "")
    if asked is None:
        return EVENT if why_unfit(EVENT, content_type, encoding) is None else None
    try:
        each = parse_each(asked)
    except ValueError as error:
        raise PlanError(f"{EACH}: {error}") from error
    if unfit := why_unfit(each, content_type, encoding):
        raise PlanError(f"{EACH}: {unfit}")
    return each


class _TimedBody(httpx.AsyncByteStream):
    def __init__(self, body: httpx.AsyncByteStream, times: StreamTimes) -> None:
        self._body = body
        self._times = times

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for block in self._body:
            self._times.take(block, monotonic_ns())
            yield block
        self._times.end(monotonic_ns())

    async def aclose(self) -> None:
        await self._body.aclose()
