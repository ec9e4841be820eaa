"""The test process's side of a generator on a Dask worker: takes orders as `process.Generator` does."""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future as Carrying
from contextlib import suppress
from dataclasses import replace
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from pytest_fileperf.drive.clock import SAME_CLOCK, ClockOffset, Reading, offset_of, on_this_clock
from pytest_fileperf.drive.messages import Begin, LoadOrder
from pytest_fileperf.drive.remote import Ended, RemoteGenerator, Said
from pytest_fileperf.drive.whereabouts import Whereabouts
from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.plan.network import is_loopback

if TYPE_CHECKING:
    from distributed import Future

    from pytest_fileperf.drive.cluster import Cluster

__all__ = ("RemoteHandle",)

_WAIT_S = 1.0
"""How long a question for messages waits for one."""
_SILENT_S = 4.0
"""A worker that does not answer for so much longer is taken for lost: its machine hangs, or the network is cut."""
_START_S = 15.0
_END_S = 1.5
_READINGS, _LEAST_READINGS, _READING_S = 16, 4, 0.5
"""How often the clock is read before a load: until it took so long, or often enough. Some milliseconds go by on one
network, half a second where questions take 40 ms."""
_KEPT_READINGS = 64
_Answer = TypeVar("_Answer")


class RemoteHandle:
    """A generator on a worker of its own."""

    tracer = ""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.worker = ""
        """The Dask worker's address; empty before its first load."""
        self.clock: ClockOffset = SAME_CLOCK
        self._there: Whereabouts | None = None
        self._pid: int | None = None
        self._actor: Any = None
        self._future: Future | None = None
        self._readings: deque[Reading] = deque(maxlen=_KEPT_READINGS)
        self._carrying: Carrying[None] | None = None
        self._ending: Carrying[None] | None = None
        self._how = ""
        """How it ended."""
        self._log = ""

    @property
    def pid(self) -> int | None:
        """Its process id, where it runs among the processes that are seen here; else None."""
        is_seen = self._there is not None and self._there.processes == Whereabouts.here().processes
        return self._pid if is_seen else None

    @property
    def head_start_ns(self) -> int:
        """How long a message may take to it."""
        return 2 * self.clock.distance_ns

    def order(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        """Starts a run; `put` is called with each of its messages, from another thread.

        The last one is None where it is lost.
        """
        self._carrying = self._cluster.spawn(self._carry_out(job, put))

    def send(self, message: object) -> None:
        """Sends it a message; when to begin is told on the clock there."""
        if isinstance(message, Begin):
            message = Begin(origin_ns=message.origin_ns + self.clock.ahead_ns)
        self._cluster.spawn(self._sent(message))

    def hang_up(self) -> None:
        """Tells it to end, and does not wait for that."""
        if self._actor is not None or self._carrying is not None:
            self._ending = self._cluster.spawn(self.ended_there())

    kill = hang_up

    def close(self) -> None:
        """Ends its process there; gives that up after a moment."""
        self.hang_up()
        ending, self._ending = self._ending, None
        if ending is not None:
            with suppress(TimeoutError):
                ending.result(2 * _END_S)

    def ended(self) -> str:
        """Returns `'s process ended with exit code 7`, to stand behind its name."""
        return self._how or " is gone"

    def log_tail(self) -> str:
        """Returns the last lines of its log, as the end of a message; empty where there are none."""
        return self._log

    def shorten_log(self) -> None:
        """Does nothing: the worker does."""

    # --- on the client's event loop

    async def ended_there(self) -> None:
        """Ends the generator's process, and gives the worker back."""
        actor, self._actor, self._pid = self._actor, None, None
        future, self._future = self._future, None
        carrying, self._carrying = self._carrying, None
        if carrying is not None:
            carrying.cancel()
        if actor is not None:
            with suppress(Exception):  # the worker may be gone, with its generator
                await _within(_END_S, actor.end())
        if future is not None:
            with suppress(Exception):
                future.release()
        if self.worker:
            self._cluster.release(self.worker)

    async def _carry_out(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        self._how = self._log = ""
        try:
            await self._run(job, put)
        except FilePerfError as error:
            put(error)
        except Exception as error:  # Dask has many ways to say that a worker is gone
            self._how = f" is gone ({_said(error)})"
            self._carrying = None  # it is this task, which goes on
            await self.ended_there()
            put(None)

    async def _run(self, job: LoadOrder, put: Callable[[object], None]) -> None:
        if self._actor is None:
            await self._bind()
        assert self._there is not None
        there, here = self._there, Whereabouts.here()
        if there.network != here.network and (far := [each.url for each in job.targets if _is_local(each.url)]):
            raise PlanError(
                f"worker {self.worker} is on another machine ({there.host}), and the server is at {far[0]}: say at "
                "which address it is reached from there, with --fileperf-host=ADDRESS and --fileperf-allow-host=ADDRESS"
            )
        await self._read_clock(same=there.clock == here.clock)
        cores = job.cores if there.machine == here.machine else None
        own = replace(job, cores=cores, pids=tuple(() for _ in job.pids), together=True)
        await _within(_START_S, self._actor.order(pickle.dumps(own)))
        while True:
            packed = await _within(_WAIT_S + _SILENT_S, self._actor.messages(_WAIT_S))
            said: Said = pickle.loads(packed)  # noqa: S301 - from our own generator
            self._pid = said.pid
            for message in said.messages:
                if isinstance(message, Ended):
                    self._how, self._log = message.how, message.log
                    put(None)
                    return
                if isinstance(message, tuple):
                    put(tuple(on_this_clock(each, self.clock) for each in message))
                    return
                put(message)
                if isinstance(message, Exception):
                    return

    async def _bind(self) -> None:
        """Takes a worker, and starts the actor there."""
        client = await self._cluster.client()
        self.worker = await self._cluster.worker_for(self)
        self._readings.clear()
        self._future = client.submit(
            RemoteGenerator,
            tuple(sys.path),
            key=f"fileperf-generator-{uuid4()}",
            workers=[self.worker],
            allow_other_workers=False,
            actor=True,
            retries=0,
        )
        with client.as_current():
            self._actor = await _within(_START_S, self._future)
        self._there = await _within(_SILENT_S, self._actor.whereabouts())

    async def _read_clock(self, *, same: bool) -> None:
        """Reads the clock there, some times; where it is the one here, once is enough to know how far away it is."""
        if same and self._readings:
            return
        begun_s = monotonic()
        for number in range(_READINGS):
            if number >= _LEAST_READINGS and (same or monotonic() - begun_s > _READING_S):
                break
            asked_ns = monotonic_ns()
            told_ns = await _within(_SILENT_S, self._actor.now_ns())
            self._readings.append(Reading(asked_ns=asked_ns, told_ns=told_ns, heard_ns=monotonic_ns()))
        found = offset_of(self._readings, now_ns=monotonic_ns())
        self.clock = replace(SAME_CLOCK, distance_ns=found.distance_ns) if same else found

    async def _sent(self, message: object) -> None:
        if self._actor is not None:
            with suppress(Exception):  # that it is gone shows where it is asked for messages
                await _within(_SILENT_S, self._actor.send(pickle.dumps(message)))


async def _within(seconds: float, answer: Awaitable[_Answer]) -> _Answer:
    """Returns the answer; raises TimeoutError where it takes longer."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None


def _is_local(url: str) -> bool:
    return is_loopback(urlsplit(url).hostname or "")


def _said(error: Exception) -> str:
    """Returns what happened in a few words: the first line, without what Dask adds for developers."""
    return (str(error).splitlines() or [type(error).__name__])[0].strip() or type(error).__name__
