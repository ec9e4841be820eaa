"""The slot of code that goes through an httpx client: a journey, or a request that is not replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns

import httpx

from pytest_fileperf.drive.answers import Answers
from pytest_fileperf.drive.code_time import CodeTime
from pytest_fileperf.drive.failures import kind_of
from pytest_fileperf.drive.loop import Turns
from pytest_fileperf.drive.slots import RECONNECT_PAUSE_S
from pytest_fileperf.drive.steps import Walk, answered
from pytest_fileperf.drive.user import Client
from pytest_fileperf.measure.tally import Tally

__all__ = ("ClientSlot", "Sent")


class Sent:
    """What one call of a journey or operation has sent and received."""

    __slots__ = (
        "answers",
        "due_ns",
        "problem",
        "tally",
    )

    def __init__(self, tally: Tally, due_ns: int | None = None) -> None:
        self.tally = tally
        """What counts it."""
        self.due_ns = due_ns
        """When it was due in an open loop."""
        self.answers = Answers()
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
        self._wire = client.wire
        self._unsent_before = 0
        """What the wire had not sent before this call."""
        self._sent = Sent(tally)
        self._walk = Walk(timeout_ns=load.timeout_ns, too_late=load.too_late)
        self._task: asyncio.Task[None] | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._started_ns: int | None = None
        self._due_ns: int | None = None
        self._expired = False
        self._uncounted_before_ns = 0
        """What of the client's time did not count before this call."""
        client.goes(self._walk, tally.step)
        client.event_hooks["response"].append(self._on_response)

    def start(self, due_ns: int | None) -> None:
        """Starts the coroutine."""
        self._due_ns = due_ns
        self._started_ns = None  # a task cancelled before its first step would never say that it has ended
        self._task = asyncio.create_task(self._run())

    def expire(self, started_before_ns: int) -> None:
        """Cancels the coroutine if it began before that instant; pauses are left out, up to as long a time.

        Between two pieces of work it closes connections that have rested for long.
        """
        if self._wire is not None and self._task is not None and self._task.done():
            self._wire.close_rested()
        if self._task is None or self._started_ns is None or self._started_ns >= started_before_ns:
            return
        uncounted_ns = min(self._client.uncounted_ns(monotonic_ns()) - self._uncounted_before_ns, self._load.timeout_ns)
        if self._started_ns + uncounted_ns < started_before_ns:
            self._expired = True
            self._walk.expires()
            self._task.cancel()

    async def aclose(self) -> None:
        """Ends what is under way and closes the client."""
        if self._pause is not None:
            self._pause.cancel()
        if self._task is not None and not self._task.done():
            self._walk.ends()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    async def _on_response(self, response: httpx.Response) -> None:
        now_ns = monotonic_ns()
        self._sent.answers.take(response, now_ns, self._client.uncounted_ns(now_ns))
        answered(response)

    async def _run(self) -> None:
        sent = self._sent = Sent(self._tally, self._due_ns)
        self._walk.begin(self._due_ns)
        self._expired = False
        started_ns = self._started_ns = monotonic_ns()
        self._uncounted_before_ns = self._client.uncounted_ns(started_ns)
        refused = False
        code = CodeTime(self._called(sent))
        try:
            await code
        except asyncio.CancelledError:
            if self._expired:
                sent.tally.failure("timeout", self._load.too_late, monotonic_ns(), due_ns=self._due_ns)
            elif self._task is not None and self._task.cancelling():
                raise
            else:
                what = "it awaited something that was cancelled"
                sent.tally.failure("cancelled", what, monotonic_ns(), due_ns=self._due_ns)
        except Exception as error:  # the user's code may raise anything; each failure is a sample
            sent.tally.failure(*kind_of(error), monotonic_ns(), sent.answers.status, due_ns=self._due_ns)
            refused = isinstance(error, httpx.ConnectError)
        else:
            self._finished(sent, started_ns)
        finally:
            sent.tally.held_loop(code.total_ns)
        if sent.tally.counts(self._due_ns):
            sent.tally.answers(sent.answers.count)
        self._note_breaches(sent)
        if refused:
            self._pause = asyncio.get_running_loop().call_later(RECONNECT_PAUSE_S, self._load.next, self)
        else:
            self._load.next(self)

    async def _called(self, sent: Sent) -> None:
        await self._call(self._client, sent)  # a call that raises before it can be awaited fails in here, too

    def _note_breaches(self, sent: Sent) -> None:
        if self._wire is not None and self._wire.breaches:
            for breach, count in self._wire.breaches.items():
                sent.tally.breach(breach, count)
            self._wire.breaches.clear()
            self._unsent_before = self._wire.unsent_bytes

    def _finished(self, sent: Sent, started_ns: int) -> None:
        answers, ended_ns, problem = sent.answers, monotonic_ns(), sent.problem
        uncounted_ns = self._client.uncounted_ns(ended_ns) - self._uncounted_before_ns
        if problem is None and self._unchecked and (answers.status or 0) >= 500:
            problem = f"status {answers.status}", f"answer {answers.status}"
        if problem is None and ended_ns - started_ns - uncounted_ns > self._load.timeout_ns:
            problem = "timeout", self._load.too_late
        if problem is not None:
            sent.tally.failure(*problem, ended_ns, answers.status, due_ns=self._due_ns)
            return
        first_ns = answers.first_ns or ended_ns
        if uncounted_ns:
            sent.tally.uncounted(uncounted_ns)
            first_ns -= answers.first_uncounted_ns - self._uncounted_before_ns if answers.first_ns else uncounted_ns
            if self._due_ns is None:
                # As if it had begun later, so that it still ends when it did.
                started_ns, first_ns = started_ns + uncounted_ns, first_ns + uncounted_ns
            else:
                ended_ns -= uncounted_ns  # it was due when it was
        bytes_sent, bytes_received = answers.bytes_both_ways()
        if self._wire is not None:
            bytes_sent = max(0, bytes_sent - (self._wire.unsent_bytes - self._unsent_before))
        sent.tally.success(
            started_ns,
            first_ns,
            ended_ns,
            answers.status or 0,
            bytes_sent,
            bytes_received,
            self._due_ns,
        )
