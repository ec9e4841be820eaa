from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

import pytest

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.pacing import ClosedLoop, FixedCount, Pacing

MS = 1_000_000


class FakeSlot:
    """Ends each piece of work one turn of the event loop after its start."""

    def __init__(self, load: LoadLoop, on_start: Callable[[], None]) -> None:
        self.load = load
        self.on_start = on_start
        self.at_once = 0
        self.most_at_once = 0
        self.expired: list[int] = []

    def start(self) -> None:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.on_start()
        asyncio.get_running_loop().call_soon(self.end)

    def end(self) -> None:
        self.at_once -= 1
        self.load.next(self)

    def expire(self, started_before_ns: int) -> None:
        self.expired.append(started_before_ns)


class EveryTwentyMs:
    """A pacing whose work is due in the future: five pieces, 20 ms apart."""

    def due(self, elapsed_ns: int, started: int) -> int | None:
        return started * 20 * MS if started < 5 else None


def run(pacing: Pacing, slot_count: int) -> tuple[list[int], list[FakeSlot]]:
    """Runs the loop; returns when each piece of work started, in ns since the origin, and the slots."""
    starts: list[int] = []
    slots: list[FakeSlot] = []

    async def load() -> None:
        recorder = Recorder(boot=0, round_ns=None, rounds=1, server_cpu=dict)
        loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=1000 * MS)
        origin_ns = monotonic_ns()
        slots.extend(FakeSlot(loop, lambda: starts.append(monotonic_ns() - origin_ns)) for _ in range(slot_count))
        await asyncio.wait_for(loop.run(slots, origin_ns=origin_ns), 10)

    asyncio.run(load())
    return starts, slots


@pytest.mark.parametrize("slot_count", [1, 3, 40])
def test_a_fixed_count_starts_exactly_so_many(slot_count: int) -> None:
    starts, slots = run(FixedCount(requests=25, duration_ns=10_000 * MS), slot_count)

    assert len(starts) == 25
    assert all(slot.most_at_once <= 1 for slot in slots)


def test_a_closed_loop_ends_when_its_time_is_over() -> None:
    starts, slots = run(ClosedLoop(duration_ns=30 * MS), 2)

    assert starts
    assert max(starts) < 30 * MS + 20 * MS
    assert all(slot.at_once == 0 for slot in slots)


def test_work_is_not_started_before_it_is_due() -> None:
    starts, _ = run(EveryTwentyMs(), 2)

    assert len(starts) == 5
    assert all(start >= due * 20 * MS - MS for due, start in enumerate(sorted(starts)))


def test_slots_are_asked_to_expire_what_is_older_than_the_time_limit() -> None:
    _, slots = run(ClosedLoop(duration_ns=150 * MS), 1)

    assert slots[0].expired
