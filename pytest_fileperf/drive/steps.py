"""The steps of a journey, while a user goes through them: which one a request is in, how long it takes, how it ends.

    journey ──── login ──── pause ──── download ──── …
    step         └ requests                └ requests, and steps in it

A request belongs to the innermost step of its task, and to every step that one is in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic_ns
from types import TracebackType

import httpx

from pytest_fileperf.drive.answers import Answers
from pytest_fileperf.drive.failures import kind_of
from pytest_fileperf.measure.tally import Tally

__all__ = ("Step", "Uncounted", "Walk", "answered", "on_the_way_in", "uncounted_in")

_NOW: ContextVar[Step | None] = ContextVar("_NOW", default=None)
"""The step that a task is in: tasks that begin within a step are in it, too."""


class Uncounted:
    """How long nothing went on that counts: a pause, or work of the client while no request of it was on its way.

    On a core that was idle before, httpx takes up to a millisecond to make a request and to take its answer: without
    this, a server would seem slower to a journey than to a replayed request. What several tasks do at once counts once.
    """

    __slots__ = ("_calls", "_ended_ns", "_goes_on", "_on_the_way", "_pauses", "_since_ns")

    def __init__(self) -> None:
        self._pauses = self._calls = self._on_the_way = 0
        """Those that go on."""
        self._goes_on = False
        self._since_ns = 0
        self._ended_ns = 0

    def change(self, *, pauses: int = 0, calls: int = 0, on_the_way: int = 0, at_ns: int | None = None) -> None:
        """Takes how many more pauses, calls of the client, or requests that are on their way, there are since `at_ns`.

        Without it, since now.
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
        """Returns how long it was until now, what goes on among it.

        It asks for the same instant that the time itself is taken at: with two, less than nothing could be left.
        """
        return self._ended_ns + (now_ns - self._since_ns if self._goes_on else 0)


@contextmanager
def uncounted_in(whole: Uncounted, *, pauses: int = 0, calls: int = 0) -> Iterator[None]:
    """Lets a journey pause, or its client work, and so each step that the task is in."""
    concerned = _concerned(whole)
    for uncounted in concerned:
        uncounted.change(pauses=pauses, calls=calls)
    try:
        yield
    finally:
        for uncounted in concerned:
            uncounted.change(pauses=-pauses, calls=-calls)


def on_the_way_in(whole: Uncounted) -> Callable[[int], None]:
    """Notes that a request of this task is on its way; returns what notes until when it was."""
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


class Walk:
    """The run of a journey that is under way, as its steps have to know it."""

    __slots__ = ("cancelled", "due_ns", "timeout_ns", "too_late")

    def __init__(self, *, timeout_ns: int | None = None, too_late: str = "") -> None:
        self.timeout_ns = timeout_ns
        self.too_late = too_late
        """The message about what takes longer."""
        self.begin(None)

    def begin(self, due_ns: int | None) -> None:
        """Begins the next run. It is in no step, whatever the task was in that makes it."""
        _NOW.set(None)
        self.due_ns = due_ns
        """When it was due in an open loop."""
        self.cancelled: tuple[str, str] | None = ("cancelled", "it was cancelled")
        """Kind and example of the failure of a step that is cancelled; None where the load ends: that fails nothing."""

    def expires(self) -> None:
        """Says that it takes too long, before it is cancelled."""
        self.cancelled = "timeout", self.too_late

    def ends(self) -> None:
        """Says that the load ends, before it is cancelled."""
        self.cancelled = None


class Step:
    """One time that a user goes through a step; a context manager."""

    __slots__ = ("_answers", "_is_over", "_started_ns", "_tally", "_walk", "outer", "uncounted")

    def __init__(self, walk: Walk, tally: Tally | None) -> None:
        """Without a `tally` nothing is measured."""
        self._walk = walk
        self._tally = tally
        self._answers = Answers()
        self._started_ns = 0
        self._is_over = False
        self.uncounted = Uncounted()
        self.outer: Step | None = None
        """The step that it is in."""

    async def __aenter__(self) -> None:
        if self._started_ns:
            raise RuntimeError("a step is gone through once: call client.step(…) each time")
        self.outer = _NOW.get()
        _NOW.set(self)
        self._started_ns = monotonic_ns()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        ended_ns = monotonic_ns()
        _NOW.set(self.outer)
        self._is_over = True  # what tasks that go on get is none of it
        tally, walk = self._tally, self._walk
        if tally is None or not tally.counts(walk.due_ns):
            return
        if problem := self._problem(error, ended_ns):
            tally.failure(*problem, ended_ns, self._answers.status)
        elif error is None:
            self._succeeded(tally, ended_ns)
        else:
            return
        tally.answers(self._answers.count)

    def take(self, response: httpx.Response) -> None:
        """Takes an answer to a request that was made in it."""
        if not self._is_over:
            now_ns = monotonic_ns()
            self._answers.take(response, now_ns, self.uncounted.until_ns(now_ns))

    def _problem(self, error: BaseException | None, ended_ns: int) -> tuple[str, str] | None:
        """Returns kind and example of its failure; None where it went well, and where the load ends."""
        if isinstance(error, asyncio.CancelledError):
            return self._walk.cancelled
        if error is not None:
            return kind_of(error) if isinstance(error, Exception) else None
        if (self._answers.status or 0) >= 500:
            return f"status {self._answers.status}", f"answer {self._answers.status}"
        limit_ns = self._walk.timeout_ns
        if limit_ns is not None and ended_ns - self._started_ns - self.uncounted.until_ns(ended_ns) > limit_ns:
            return "timeout", self._walk.too_late
        return None

    def _succeeded(self, tally: Tally, ended_ns: int) -> None:
        answers, uncounted_ns = self._answers, self.uncounted.until_ns(ended_ns)
        first_ns = (
            ended_ns - uncounted_ns if answers.first_ns is None else answers.first_ns - answers.first_uncounted_ns
        )
        # As if it had begun later, so that it still ends when it did.
        started_ns = self._started_ns + uncounted_ns
        status, (sent, received) = answers.status or 0, answers.bytes_both_ways()
        tally.success(started_ns, first_ns + uncounted_ns, ended_ns, status, sent, received)


def answered(response: httpx.Response) -> None:
    """Takes an answer for every step that the task is in."""
    step = _NOW.get()
    while step is not None:
        step.take(response)
        step = step.outer
