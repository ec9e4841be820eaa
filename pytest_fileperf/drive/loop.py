"""The one load loop: gives each free slot its next piece of work when the pacing says so.

A slot is a place for one request at a time: a connection that replays a compiled request, or a journey's client.
Pacing, recorder and slots are handed in; there is no second loop for another shape of load.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic_ns
from typing import Protocol

from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.pacing import Pacing
from pytest_fileperf.units import format_duration

__all__ = ("LoadLoop", "Slot")

_SWEEP_S = 0.1
"""How often requests are checked against their time limit; a limit is kept to about this."""


class Slot(Protocol):
    """A place for one piece of work at a time."""

    def start(self) -> None:
        """Begins a piece of work; calls `LoadLoop.next` with itself when it has ended, well or not."""
        ...

    def expire(self, started_before_ns: int) -> None:
        """Fails the piece of work that is under way if it began before that instant."""
        ...


class LoadLoop:
    """Keeps slots busy until the pacing ends."""

    def __init__(self, *, pacing: Pacing, recorder: Recorder, timeout_ns: int) -> None:
        self._pacing = pacing
        self._recorder = recorder
        self._timeout_ns = timeout_ns
        self.too_late = f"no complete answer within the time limit of {format_duration(timeout_ns)}"
        """What is said of a piece of work that took longer."""
        self._loop = asyncio.get_running_loop()
        self._origin_ns = 0
        self.started = 0
        """Pieces of work begun so far."""
        self._free: list[Slot] = []
        self._busy = 0
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._last_start_ns = 0

    async def run(self, slots: Sequence[Slot], *, origin_ns: int) -> int:
        """Runs until no more work is due and what was under way has ended; returns the instant of its last start.

        `origin_ns` is the pacing's zero on the monotonic clock.
        """
        self._origin_ns = origin_ns
        self._busy = len(slots)
        sweeper = asyncio.create_task(self._sweep(slots))
        try:
            for slot in slots:
                self.next(slot)
            await self._ended
        finally:
            sweeper.cancel()
        return self._last_start_ns

    def next(self, slot: Slot) -> None:
        """Takes a slot that is free for its next piece of work.

        Work begins when the event loop has dealt with everything that arrived together: answers are read first and
        requests written after them, as wrk does. Writing a large body evicts what reading needs from the CPU's cache.
        """
        if not self._free:
            self._loop.call_soon(self._start_free)
        self._free.append(slot)

    def _start_free(self) -> None:
        """Starts the next piece of work of each free slot, now or when it is due; retires slots when there is none."""
        free, self._free = self._free, []
        for slot in free:
            now_ns = monotonic_ns()
            elapsed_ns = now_ns - self._origin_ns
            due_ns = self._pacing.due(elapsed_ns, self.started)
            if due_ns is None:
                self._retire()
                continue
            self.started += 1
            self._last_start_ns = now_ns
            if due_ns <= elapsed_ns:
                slot.start()
            else:
                self._loop.call_later((due_ns - elapsed_ns) / 1e9, slot.start)

    def _retire(self) -> None:
        self._busy -= 1
        if self._busy == 0 and not self._ended.done():
            self._ended.set_result(None)

    def abort(self, error: BaseException) -> None:
        """Ends the run with an error that is not the server's."""
        if not self._ended.done():
            self._ended.set_exception(error)

    async def _sweep(self, slots: Sequence[Slot]) -> None:
        """Fails what takes too long, and closes rounds in which nothing ends."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_ns = monotonic_ns()
            boundary_ns = self._recorder.next_boundary_ns
            if boundary_ns is not None and now_ns >= boundary_ns:
                self._recorder.advance(now_ns)
            for slot in slots:
                slot.expire(now_ns - self._timeout_ns)
