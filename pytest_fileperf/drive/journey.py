"""Runs journeys: users' coroutine functions, which send requests through an httpx or httpx2 client.

Requests that cannot be sent as prepared bytes go the same way.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from time import monotonic_ns
from types import TracebackType
from typing import Any

import httpx

from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.drive.slots import EXCERPT_BYTES, RECONNECT_PAUSE_S, kind_of, problem_of, shown
from pytest_fileperf.measure.tally import Tally
from pytest_fileperf.plan.request import Expectation, Operation
from pytest_fileperf.plan.work import Pause, parse_pause, why_no_name
from pytest_fileperf.wire.family import classes_of
from pytest_fileperf.wire.request import LoadClient
from pytest_fileperf.wire.transport import LoadTransport

# --- The answers that came while a journey, a step or a request ran


class Answers:
    __slots__ = ("_responses", "first_ns", "first_uncounted_ns", "status")

    def __init__(self) -> None:
        self._responses: list[httpx.Response] = []
        self.status: int | None = None
        """The first status of 500 or more. If there is none, the newest answer's status; None before an answer."""
        self.first_ns: int | None = None
        self.first_uncounted_ns = 0
        """The client's uncounted time until the first answer, in ns (see `Uncounted`)."""

    def take(self, response: httpx.Response, now_ns: int, uncounted_ns: int) -> None:
        if self.first_ns is None:
            self.first_ns, self.first_uncounted_ns = now_ns, uncounted_ns
        if self.status is None or self.status < 500:
            self.status = response.status_code
        self._responses.append(response)

    @property
    def count(self) -> int:
        return len(self._responses)

    def first_counted_ns(self, ended_ns: int, uncounted_ns: int, before_ns: int = 0) -> int:
        """Returns the first answer's instant, minus the call's uncounted time until then (see `Uncounted`).

        If no answer came, the call's end counts instead. `before_ns` is the client's uncounted time before the call.
        """
        if self.first_ns is None:
            return ended_ns - uncounted_ns
        return self.first_ns - (self.first_uncounted_ns - before_ns)

    def bytes_both_ways(self) -> tuple[int, int]:
        sent = sum(int(response.request.headers.get("Content-Length", 0)) for response in self._responses)
        return sent, sum(response.num_bytes_downloaded for response in self._responses)


# --- How long a journey's code blocks the event loop: from each resumption to the next wait


class CodeTime:
    """Awaits `code`, and measures in `total_ns` how long `code` blocked the event loop."""

    __slots__ = ("_code", "total_ns")

    def __init__(self, code: Awaitable[object]) -> None:
        self._code: Generator[Any, Any, object] = code.__await__()
        self.total_ns = 0

    def __await__(self) -> Generator[Any, Any, object]:
        return self  # it is an iterator with the methods that the interpreter calls

    def __iter__(self) -> CodeTime:
        return self

    # Each method has its own lines, because it is called whenever a journey goes on.
    def __next__(self) -> object:
        since_ns = monotonic_ns()
        try:
            return self._code.send(None)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def send(self, value: object) -> object:
        since_ns = monotonic_ns()
        try:
            return self._code.send(value)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def throw(self, *error: Any) -> object:
        since_ns = monotonic_ns()
        try:
            return self._code.throw(*error)
        finally:
            self.total_ns += monotonic_ns() - since_ns

    def close(self) -> None:
        self._code.close()


# --- Steps of a journey: which requests belong to a step, how long the step takes, and how it ends
#
#     journey ──── login ──── pause ──── download ──── …
#     step         └ requests                └ requests, and inner steps
#
# A request belongs to the innermost step of its task, and to every step around that one.

_NOW: ContextVar[Step | None] = ContextVar("_NOW", default=None)
"""The innermost step that the current task is in; None outside of steps. New tasks inherit the step."""


class Uncounted:
    """Time that no figure counts: pauses, and the client's own work while it waits for no answer.

    On an idle core, httpx needs up to a millisecond to build a request and to read its answer. If this time counted, a
    server would seem slower in a journey than in a load without httpx.
    """

    __slots__ = ("_calls", "_ended_ns", "_goes_on", "_on_the_way", "_pauses", "_since_ns")

    def __init__(self) -> None:
        self._pauses = self._calls = self._on_the_way = 0
        self._goes_on = False
        self._since_ns = 0
        self._ended_ns = 0

    def change(self, *, pauses: int = 0, calls: int = 0, on_the_way: int = 0, at_ns: int | None = None) -> None:
        """Notes that pauses, client calls or requests begin (positive numbers) or end (negative numbers).

        `at_ns` is the time of the change; None stands for now.
        """
        self._pauses += pauses
        self._calls += calls
        self._on_the_way += on_the_way
        goes_on = self._pauses > 0 or (self._calls > 0 and not self._on_the_way)
        if goes_on is self._goes_on:
            return
        self._goes_on = goes_on
        now_ns = monotonic_ns() if at_ns is None else at_ns
        if goes_on:
            self._since_ns = now_ns
        else:
            self._ended_ns += now_ns - self._since_ns

    def until_ns(self, now_ns: int) -> int:
        """Returns the uncounted time so far. `now_ns` must be the present instant."""
        return self._ended_ns + (now_ns - self._since_ns if self._goes_on else 0)


@contextmanager
def uncounted_in(whole: Uncounted, *, pauses: int = 0, calls: int = 0) -> Iterator[None]:
    concerned = _concerned(whole)
    for uncounted in concerned:
        uncounted.change(pauses=pauses, calls=calls)
    try:
        yield
    finally:
        for uncounted in concerned:
            uncounted.change(pauses=-pauses, calls=-calls)


def on_the_way_in(whole: Uncounted) -> Callable[[int], None]:
    """Notes that a request is on its way. When the request ends, call the returned function with that instant."""
    concerned = _concerned(whole)
    for uncounted in concerned:
        uncounted.change(on_the_way=1)

    def ended(at_ns: int) -> None:
        for uncounted in concerned:
            uncounted.change(on_the_way=-1, at_ns=at_ns)

    return ended


def _concerned(whole: Uncounted) -> list[Uncounted]:
    found, step = [whole], _NOW.get()
    while step is not None:
        found.append(step.uncounted)
        step = step.outer
    return found


class Step:
    __slots__ = ("_answers", "_is_over", "_slot", "_started_ns", "_tally", "outer", "uncounted")

    def __init__(self, slot: ClientSlot | None, tally: Tally | None) -> None:
        """Outside of a load, `slot` and `tally` are None, and nothing is measured."""
        self._slot = slot
        self._tally = tally
        self._answers = Answers()
        self._started_ns = 0
        self._is_over = False
        self.uncounted = Uncounted()
        self.outer: Step | None = None

    async def __aenter__(self) -> None:
        if self._started_ns:
            raise RuntimeError("a step can be used only once. Call client.step(…) again for each use")
        self.outer = _NOW.get()
        _NOW.set(self)
        self._started_ns = monotonic_ns()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended_ns = monotonic_ns()
        _NOW.set(self.outer)
        self._is_over = True  # answers to tasks that go on do not belong to it
        tally, slot = self._tally, self._slot
        if tally is None or slot is None or not tally.counts(slot.due_ns):
            return
        if problem := self._problem(slot, error, ended_ns):
            tally.failure(*problem, ended_ns, self._answers.status)
        elif error is None:
            answers, uncounted_ns = self._answers, self.uncounted.until_ns(ended_ns)
            first_ns = answers.first_counted_ns(ended_ns, uncounted_ns) + uncounted_ns
            # As if the step had begun later, so that its end stays right.
            started_ns = self._started_ns + uncounted_ns
            tally.success(started_ns, first_ns, ended_ns, answers.status or 0, *answers.bytes_both_ways())
        else:
            return
        tally.answers(self._answers.count)

    def take(self, response: httpx.Response) -> None:
        if not self._is_over:
            now_ns = monotonic_ns()
            self._answers.take(response, now_ns, self.uncounted.until_ns(now_ns))

    def _problem(self, slot: ClientSlot, error: BaseException | None, ended_ns: int) -> tuple[str, str] | None:
        """Returns (kind, example) of the step's failure. None if the step went well, or the load's end cut it off."""
        if isinstance(error, asyncio.CancelledError):
            if slot.load_ends:
                return None
            return ("timeout", slot.load.too_late) if slot.is_expired else ("cancelled", "the step was cancelled")
        if error is not None:
            return kind_of(error) if isinstance(error, Exception) else None
        if (self._answers.status or 0) >= 500:
            return f"status {self._answers.status}", f"answer {self._answers.status}"
        if ended_ns - self._started_ns - self.uncounted.until_ns(ended_ns) > slot.load.timeout_ns:
            return "timeout", slot.load.too_late
        return None


# --- A journey's client: an `httpx.AsyncClient` that can also pause and go through steps


class Client(LoadClient):
    """One simulated user's HTTP client, with its own cookies and connections. A journey gets it as an argument.

    An `httpx.AsyncClient`, or an `httpx2.AsyncClient` if `family` is `"httpx2"`.
    """

    def __init__(self, *, number: int = 0, **options: Any) -> None:
        """`number` is the user's number in the whole load, and seeds the user's random pauses."""
        super().__init__(**options)
        # User code will hardly use these names on its client.
        self.fileperf_uncounted = Uncounted()
        transport = options.get("transport")
        self.wire = transport if isinstance(transport, LoadTransport) else None
        """The client's `LoadTransport`. None for HTTP/2, and if the app runs in this process."""
        if self.wire is not None:
            self.wire.under_way = partial(on_the_way_in, self.fileperf_uncounted)
        self._number = number
        self._chances: dict[Pause, random.Random] = {}
        self.fileperf_slot: ClientSlot | None = None
        """The slot that runs the client's journeys; None outside of a load."""
        self._tallies: dict[str, Tally | None] = {}

    async def pause(self, time: float | str | Pause) -> None:
        """Waits like a user who reads or thinks. No figure counts the pause.

        `time` is a text such as `"1s"`, a number of seconds, `uniform(…)` or `exponential(…)`. Raises ValueError for
        anything else.
        """
        pause = parse_pause(time)
        if pause is None:
            return
        chance = self._chances.get(pause)
        if chance is None:
            chance = self._chances[pause] = random.Random(f"{pause.seed} {self._number}")  # noqa: S311 - no secret
        with uncounted_in(self.fileperf_uncounted, pauses=1):
            await asyncio.sleep(pause.draw(chance) / 1e9)

    def step(self, name: str) -> AbstractAsyncContextManager[None]:
        """Gives a part of the journey its own figures: `async with client.step("login"): …`.

        A step fails if an exception leaves its block, or if an answer has status 500 or more. Steps may contain steps,
        and several tasks may run steps at once. Outside of a load, nothing is measured. Raises ValueError for an
        invalid name, and if a journey has more than a hundred step names.
        """
        if name not in self._tallies:
            if problem := why_no_name(name):
                raise ValueError(problem)
            self._tallies[name] = None if self.fileperf_slot is None else self.fileperf_slot.tally.step(name)
        return Step(self.fileperf_slot, self._tallies[name])

    def build_request(self, method: str, url: httpx.URL | str, **arguments: Any) -> httpx.Request:
        """Builds the request as httpx does. No figure counts the time for this."""
        with self._calling():
            return super().build_request(method, url, **arguments)

    async def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """Sends the request as httpx does. Figures count only the time while the request is on its way."""
        with self._calling():
            return await super().send(request, **options)

    def _calling(self) -> AbstractContextManager[None]:
        return nullcontext() if self.wire is None else uncounted_in(self.fileperf_uncounted, calls=1)


# --- client_slot


class ClientSlot:
    """Awaits `call` again and again, each time with the same httpx client."""

    def __init__(
        self,
        *,
        load: Turns,
        tally: Tally,
        client: Client,
        call: Callable[[Client, ClientSlot], Awaitable[object]],
        unchecked: bool,
    ) -> None:
        """If `unchecked`, `call` does not check answers, so a status of 500 or more is a failure."""
        self.load = load
        self.tally = tally
        """Counts the current call's result. If `call` sends different requests, `call` chooses the tally."""
        self._client = client
        self._call = call
        self._unchecked = unchecked
        self._wire = client.wire
        self._unsent_before = 0
        """The transport's number of unsent bytes before the current call."""
        self.answers = Answers()
        """The current call's answers."""
        self.due_ns: int | None = None
        self.problem: tuple[str, str] | None = None
        """(kind, example) of the current call's failure, if the failure raised no exception."""
        self.is_expired = False
        self.load_ends = False
        """Whether the call is cancelled because the load ends. This is not a failure."""
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._started_ns: int | None = None
        self._uncounted_ns = client.fileperf_uncounted.until_ns
        self._uncounted_before_ns = 0
        client.fileperf_slot = self
        client.event_hooks["response"].append(self._on_response)

    def start(self, due_ns: int | None) -> None:
        self._started_ns = None  # a task cancelled before its first step would never report its end
        self._task = asyncio.create_task(self._run(due_ns))

    def expire(self, started_before_ns: int) -> None:
        if self._wire is not None and self._task is not None and self._task.done():
            self._wire.close_rested()  # connections
        if self._task is None or self._started_ns is None or self._started_ns >= started_before_ns:
            return
        # Uncounted time extends a call's time limit, but at most doubles it.
        uncounted_ns = min(self._uncounted_ns(monotonic_ns()) - self._uncounted_before_ns, self.load.timeout_ns)
        if self._started_ns + uncounted_ns < started_before_ns:
            self.is_expired = True
            self._task.cancel()

    async def aclose(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None and not self._task.done():
            self.load_ends = True
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    async def _on_response(self, response: httpx.Response) -> None:
        now_ns = monotonic_ns()
        self.answers.take(response, now_ns, self._uncounted_ns(now_ns))
        self.tally.sent(response.request)
        step = _NOW.get()
        while step is not None:
            step.take(response)
            step = step.outer

    async def _run(self, due_ns: int | None) -> None:
        _NOW.set(None)  # it is in no step, whatever step its maker was in
        self.answers, self.due_ns, self.problem, self.is_expired = Answers(), due_ns, None, False
        started_ns = self._started_ns = monotonic_ns()
        self._uncounted_before_ns = self._uncounted_ns(started_ns)
        refused = False
        code = CodeTime(self._called())
        try:
            await code
        except asyncio.CancelledError:
            if self.is_expired:
                self.tally.failure("timeout", self.load.too_late, monotonic_ns(), due_ns=due_ns)
            elif self._task is not None and self._task.cancelling():
                raise
            else:
                what = "the journey awaited something that was cancelled"
                self.tally.failure("cancelled", what, monotonic_ns(), due_ns=due_ns)
        except Exception as error:  # the user's code may raise anything; each failure is a sample
            self.tally.failure(*kind_of(error), monotonic_ns(), self.answers.status, due_ns=due_ns)
            refused = "ConnectError" in classes_of(error)
        else:
            self._finished(started_ns)
        finally:
            self.tally.held_loop(code.total_ns)
        if self.tally.counts(due_ns):
            self.tally.answers(self.answers.count)
        if self._wire is not None and self._wire.breaches:
            for breach, count in self._wire.breaches.items():
                self.tally.breach(breach, count)
            self._wire.breaches.clear()
            self._unsent_before = self._wire.unsent_bytes
        if refused:
            self._pause = asyncio.get_running_loop().call_later(RECONNECT_PAUSE_S, self.load.next, self)
        else:
            self.load.next(self)

    async def _called(self) -> None:
        await self._call(self._client, self)  # a call that raises before it can be awaited also fails in here

    def _finished(self, started_ns: int) -> None:
        ended_ns, problem, answers, due_ns = monotonic_ns(), self.problem, self.answers, self.due_ns
        uncounted_ns, status = self._uncounted_ns(ended_ns) - self._uncounted_before_ns, answers.status or 0
        if problem is None and self._unchecked and status >= 500:
            problem = f"status {status}", f"answer {status}"
        if problem is None and ended_ns - started_ns - uncounted_ns > self.load.timeout_ns:
            problem = "timeout", self.load.too_late
        if problem is not None:
            self.tally.failure(*problem, ended_ns, answers.status, due_ns=due_ns)
            return
        self.tally.uncounted(uncounted_ns)
        first_ns = answers.first_counted_ns(ended_ns, uncounted_ns, self._uncounted_before_ns)
        if due_ns is None:
            # As if the call had begun later, so that its end stays right.
            started_ns, first_ns = started_ns + uncounted_ns, first_ns + uncounted_ns
        else:
            ended_ns -= uncounted_ns  # the time it was due stays right
        bytes_sent, bytes_received = answers.bytes_both_ways()
        if self._wire is not None:
            bytes_sent = max(0, bytes_sent - (self._wire.unsent_bytes - self._unsent_before))
        self.tally.success(started_ns, first_ns, ended_ns, status, bytes_sent, bytes_received, due_ns)


# --- Sends a request through httpx's client, and reads its answer


_OF_SENDING = ("auth", "follow_redirects")


def built(client: LoadClient, operation: Operation) -> httpx.Request:
    arguments = {name: value for name, value in operation.arguments.items() if name not in _OF_SENDING}
    return client.build_request(operation.method, operation.url, **arguments)


async def send(client: LoadClient, operation: Operation) -> httpx.Response:
    """Sends the request, and returns the answer before its body is read."""
    of_sending = {name: value for name, value in operation.arguments.items() if name in _OF_SENDING}
    return await client.send(built(client, operation), stream=True, **of_sending)


async def problem_of_answer(expect: Expectation, response: httpx.Response) -> tuple[str, str] | None:
    """Reads the whole answer. Returns (kind, description) of its problem; None if the answer is as expected."""
    encoding = "" if response.is_stream_consumed else response.headers.get("Content-Encoding", "")
    size, excerpt = 0, b""
    digest = hashlib.sha256() if expect.sha256 else None
    async for block in body_of(response):
        size += len(block)
        if digest is not None:
            digest.update(block)
        if len(excerpt) < EXCERPT_BYTES:
            excerpt += block[:EXCERPT_BYTES]
    problem = problem_of(expect, response.status_code, size, "" if digest is None else digest.hexdigest())
    if problem is None:
        return None
    kind, what = problem
    return kind, what + shown(kind, excerpt, size, encoding)


async def body_of(response: httpx.Response) -> AsyncIterator[bytes]:
    """Yields the body's bytes, without decompressing them."""
    # If an auth flow has already read the body, httpx has only the decompressed bytes.
    if response.is_stream_consumed:
        yield response.content
        return
    async for block in response.aiter_raw():
        yield block
