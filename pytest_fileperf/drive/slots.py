"""Slots that replay requests. A slot sends one request at a time, as prepared bytes, and checks the answer."""

from __future__ import annotations

import asyncio
import hashlib
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from time import monotonic_ns
from typing import TypeAlias, cast

import httpx

from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.request import Expectation, without_queries
from pytest_fileperf.versions.tree import is_of_the_user
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import Breach
from pytest_fileperf.wire.family import classes_of
from pytest_fileperf.wire.framing import ResponseHead
from pytest_fileperf.wire.request import WireRequest

# --- Describes a failed request: its kind, and an example in words with the line of the user's own code

EXCERPT_BYTES = 300


def problem_of(expect: Expectation, status: int, body_bytes: int, digest: str) -> tuple[str, str] | None:
    """Returns (kind, description) of an answer's problem; None if the answer is as expected.

    `digest` is the body's SHA-256, or empty if it is not checked.
    """
    if not expect.allows_status(status):
        return f"status {status}", f"answer {status}"
    if expect.size_bytes is not None and body_bytes != expect.size_bytes:
        return "size", f"{body_bytes} bytes instead of {expect.size_bytes}"
    if digest and digest != expect.sha256:
        return "digest", f"{body_bytes} bytes whose SHA-256 is not {expect.sha256}"
    return None


def shown(kind: str, excerpt: bytes, size_bytes: int, encoding: str) -> str:
    """Returns the end of an error message: how the body begins, or how it is compressed."""
    if encoding and encoding != "identity" and size_bytes:
        compared = kind in ("size", "digest")
        advice = '. To compare it uncompressed, give headers={"Accept-Encoding": "identity"}' if compared else ""
        return f", with a body compressed by {encoding}{advice}"
    if not excerpt:
        return "" if size_bytes else ", without a body"
    text = excerpt.decode("utf-8", "replace")
    return ", body begins: " + "".join(char if char.isprintable() else "·" for char in text)[:EXCERPT_BYTES]


_KINDS = {
    "ConnectTimeout": "connect",
    "TimeoutException": "timeout",
    "ConnectError": "connect",
    "NetworkError": "disconnected",
    "RemoteProtocolError": "protocol",
}
"""Maps names of httpx's exception classes to kinds of failures. The most derived class counts."""
_CUT_OFF = ("peer closed connection", "Server disconnected")
"""How httpx's messages begin if an answer ended early. The exception's class does not show this."""


def kind_of(error: Exception) -> tuple[str, str]:
    """Returns (kind, message) of a failure. The message begins with the line in the user's code, if there is any."""
    classes = classes_of(error)
    if "HTTPStatusError" in classes:
        kind = f"status {cast(httpx.HTTPStatusError, error).response.status_code}"
    elif classes[:1] == ["RemoteProtocolError"] and str(error).startswith(_CUT_OFF):
        kind = "disconnected"
    elif isinstance(error, AssertionError):
        kind = "assertion"
    else:
        kind = next((_KINDS[name] for name in classes if name in _KINDS), type(error).__name__)
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if file := _shown_file(frame.f_code.co_filename):
            place = f"{file}:{line}: "
    try:
        text = str(error) or type(error).__name__
    except Exception:  # user code's own `__str__` raised
        text = type(error).__name__
    # The text may contain a whole answer.
    return kind, place + without_queries(text if len(text) <= 2_000 else f"{text[:1_999]}…")


@lru_cache(maxsize=1024)
def _shown_file(name: str) -> str:
    """Returns how to show a file's path; empty for files of this package and of Python."""
    if not is_of_the_user(name):
        return ""
    file, here = Path(name), Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


# --- Opens connections without overflowing the listen queue, and keeps free ones for the next request
#
# A connection that the load does not need would change the server. A sync worker waits for a request on it, and a limit
# of connections counts it.

Connect: TypeAlias = Callable[[], Awaitable[Connection]]
"""Opens a connection. Raises httpx.ConnectError or httpx.ConnectTimeout."""

OPENED_AT_ONCE = 64
"""At most this many connections are opened at once. Servers' listen queues have room for more: 100 by asyncio's
default."""
KEPT_IDLE_NS = 1_000_000_000
"""A connection that had no request for this long is closed. Servers wait longer (gunicorn 2 s, uvicorn 5 s). A busy
server may close a connection although the next request is already there."""


class Idle:
    """Open connections that no request uses. Connections that are idle for too long are closed."""

    def __init__(self, breach: Callable[[Breach], None]) -> None:
        """`breach` is called if the server breaks the protocol on a free connection."""
        self._breach = breach
        self._free: deque[Connection] = deque()
        self._closing: asyncio.TimerHandle | None = None

    def put(self, connection: Connection) -> None:
        self._free.append(connection)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(KEPT_IDLE_NS / 1e9, self._close_rested)

    def take(self) -> Connection | None:
        """Returns the open connection that was used last; None if no free connection is open."""
        while self._free:
            connection = self._free.pop()
            if connection.closed:
                self._note(connection)
            elif monotonic_ns() - connection.ended_ns > KEPT_IDLE_NS:
                connection.close()
            else:
                return connection
        return None

    def close(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
        for connection in self._free:
            connection.close()

    def _close_rested(self) -> None:
        before_ns = monotonic_ns() - KEPT_IDLE_NS
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
    """Lets connections to a port of this machine open no faster than the server accepts them."""

    def __init__(self, port: int, *, openers: int = 1) -> None:
        """`openers` is how many load generators open connections at the same time. Port 0 stands for a Unix socket."""
        self._port = port
        self._at_once = self._left = max(1, OPENED_AT_ONCE // openers)
        self._turn = asyncio.Lock()

    async def may_open(self) -> bool:
        """Waits until one more connection may open. Returns whether it had to wait."""
        if self._left and not self._turn.locked():
            self._left -= 1
            return False
        async with self._turn:
            if not self._left:
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):  # then the kernel retries a connection beyond the backlog anyway
                        while waiting_to_be_accepted(self._port) > OPENED_AT_ONCE // 4:  # noqa: ASYNC110 - it has no event
                            await asyncio.sleep(0.001)
                self._left = self._at_once
            self._left -= 1
            return True


async def open_all(openings: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Awaits all openings, `OPENED_AT_ONCE` at a time. The first error is raised, and ends all other openings."""
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
    """Returns how many connections to a local TCP port wait to be accepted; 0 if the system doesn't report it."""
    longest = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines: list[str] = []
        with suppress(OSError), Path(table).open(encoding="ascii") as file:
            # Listening sockets (state 0A) come first. These are the first hundred lines.
            lines = file.read(16_384).splitlines()[1:]
        for line in lines:
            # "  0: 0100007F:1F90 00000000:0000 0A 00000000:00000003 …": number, local, remote, state, queues
            fields = line.split()
            if len(fields) < 5 or fields[3] != "0A":
                break
            if int(fields[1].rpartition(":")[2], 16) == port:
                longest = max(longest, int(fields[4].partition(":")[2], 16))
    return longest


# --- slots

RECONNECT_PAUSE_S = 0.05
"""If the server refuses a connection, the slot waits this long before the next try."""


class ReplaySlot:
    """Sends the same request again and again, over one connection. If the server closes it, the slot connects again.

    If slots share connections (`idle`), a slot gives its connection back after each request.
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
        request: WireRequest,
        expect: Expectation,
        connect: Connect,
        idle: Idle | None = None,
    ) -> None:
        """`idle` contains free connections, which all slots share. None if each slot keeps its own connection."""
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
        """Whether the current answer's head alone shows that the answer is good."""
        self._is_simple = request.whole is not None
        """Whether each request is one piece of memory, without files."""
        self._digest = hashlib.sha256() if expect.sha256 else None
        self._excerpt = bytearray()
        self._seen_body = False
        self._due_ns: int | None = None

    async def open(self) -> None:
        self._connection = await self._connect()

    def start(self, due_ns: int | None) -> None:
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
        connection = self._connection
        if connection is not None and connection.busy and connection.started_ns < started_before_ns:
            connection.fail(httpx.ReadTimeout(self._load.too_late))

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.close()

    async def _reopen(self, began_ns: int) -> None:
        """Connects and sends the request. The measured time begins at `began_ns`."""
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
        if self._idle is not None:
            self._give_away(self._idle)
        self._load.next(self)

    def _give_away(self, idle: Idle) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            idle.put(connection)

    # --- the exchange

    def on_head(self, head: ResponseHead) -> bool:
        """Returns whether the body is needed, for its digest or for an error message."""
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
        if self._digest is not None:
            self._digest.update(data)
        if len(self._excerpt) < EXCERPT_BYTES:
            self._excerpt += data[: EXCERPT_BYTES - len(self._excerpt)]

    def on_end(self, repeated: bool) -> bool:
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
        self._tally.failure(*kind_of(error), monotonic_ns(), due_ns=self._due_ns)
        # Not at once: this may be called from a sweep over all slots.
        asyncio.get_running_loop().call_soon(self._go_on)


Aim: TypeAlias = tuple[Expectation, Tally]
"""How to check and count an answer."""
Draw: TypeAlias = Callable[[WireRequest], Aim]
"""A function that writes the next request into its argument, and returns how to check and count the answer."""


class VaryingSlot(ReplaySlot):
    __slots__ = ("_aim", "_row", "draw")

    def __init__(self, *, load: Turns, tally: Tally, draw: Draw, connect: Connect, idle: Idle | None = None) -> None:
        self._aim: Aim | None = None
        self._row = WireRequest()
        self.draw = draw
        super().__init__(load=load, tally=tally, request=self._row, expect=Expectation(), connect=connect, idle=idle)

    def start(self, due_ns: int | None) -> None:
        aim = self.draw(self._row)
        if aim is not self._aim:
            self._aim = aim
            expect, self._tally = aim
            if expect is not self._expect:
                self._expect, self._good_head = expect, None
                self._digest = hashlib.sha256() if expect.sha256 else None
        ReplaySlot.start(self, due_ns)
