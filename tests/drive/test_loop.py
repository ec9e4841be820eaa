from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns

import pytest

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.pacing import Arrivals, ClosedLoop, ConnectionRamp, ConstantRate, Pacing, Stage

MS = 1_000_000


class FakeSlot:
    """Ends each piece of work one turn of the event loop after its start."""

    busy = most_busy = 0
    """Of all slots together."""

    def __init__(self, load: LoadLoop, on_start: Callable[[], None]) -> None:
        self.load = load
        self.on_start = on_start
        self.at_once = 0
        self.most_at_once = 0
        self.expired: list[int] = []
        self.dues: list[int | None] = []

    def start(self, due_ns: int | None) -> None:
        self.dues.append(due_ns)
        FakeSlot.busy += 1
        FakeSlot.most_busy = max(FakeSlot.most_busy, FakeSlot.busy)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self.on_start()
        asyncio.get_running_loop().call_soon(self.end)

    def end(self) -> None:
        FakeSlot.busy -= 1
        self.at_once -= 1
        self.load.next(self)

    def expire(self, started_before_ns: int) -> None:
        self.expired.append(started_before_ns)


SPACING_NS = 80 * MS
"""Longer than a busy machine lets the loop wait."""
FIVE = ConstantRate(rate=12.5, duration_ns=5 * SPACING_NS)


class SlowSlot(FakeSlot):
    """Takes longer for a piece of work than anybody waits for the next."""

    def __init__(self, load: LoadLoop) -> None:
        super().__init__(load, lambda: None)

    def start(self, due_ns: int | None) -> None:
        self.dues.append(due_ns)
        asyncio.get_running_loop().call_later(0.1, self.load.next, self)


def run(pacing: Pacing, slot_count: int) -> tuple[list[int], list[FakeSlot]]:
    """Runs the loop; returns when each piece of work started, in ns since the origin, and the slots."""
    starts: list[int] = []
    slots: list[FakeSlot] = []
    FakeSlot.busy = FakeSlot.most_busy = 0

    async def load() -> None:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=1000 * MS)
        origin_ns = monotonic_ns()
        slots.extend(FakeSlot(loop, lambda: starts.append(monotonic_ns() - origin_ns)) for _ in range(slot_count))
        await asyncio.wait_for(loop.run(slots, origin_ns=origin_ns), 10)

    asyncio.run(load())
    return starts, slots


@pytest.mark.parametrize("slot_count", [1, 3, 40])
def test_a_fixed_count_starts_exactly_so_many(slot_count: int) -> None:
    starts, slots = run(ClosedLoop(requests=25, duration_ns=10_000 * MS), slot_count)

    assert len(starts) == 25
    assert all(slot.most_at_once <= 1 for slot in slots)


@pytest.mark.parametrize(
    "pacing, slot_count, at_once",
    [
        (ClosedLoop(requests=3, duration_ns=10_000 * MS), 1, True),
        (ClosedLoop(requests=3, duration_ns=10_000 * MS), 2, False),
        (Arrivals(due_ns=(0, 0, 0)), 1, False),
    ],
)
def test_only_a_single_slot_of_a_closed_loop_begins_its_next_work_at_once(
    pacing: Pacing, slot_count: int, at_once: bool
) -> None:
    _, slots = run(pacing, slot_count)

    assert slots[0].load.at_once is at_once


def test_a_closed_loop_ends_when_its_time_is_over() -> None:
    starts, slots = run(ClosedLoop(duration_ns=30 * MS), 2)

    assert starts
    assert max(starts) < 30 * MS + 20 * MS
    assert all(slot.at_once == 0 for slot in slots)


def test_work_is_not_started_before_it_is_due() -> None:
    starts, _ = run(FIVE, 2)

    assert len(starts) == 5
    assert all(start >= due * SPACING_NS for due, start in enumerate(starts))


def test_an_open_loop_uses_as_few_slots_as_it_can_and_says_when_work_was_due() -> None:
    _, (first, last) = run(FIVE, 2)

    assert first.dues == []
    assert [due_ns for due_ns in last.dues if due_ns is not None] == [
        (last.dues[0] or 0) + at * SPACING_NS for at in range(5)
    ]


def test_a_closed_loop_says_nothing_of_when_work_was_due() -> None:
    _, slots = run(ClosedLoop(requests=4, duration_ns=1000 * MS), 2)

    assert [slot.dues for slot in slots] == [[None, None], [None, None]]


def test_work_that_waits_longer_than_the_time_limit_for_a_slot_is_dropped() -> None:
    async def load() -> tuple[Recorder, list[int | None]]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        loop = LoadLoop(pacing=Arrivals(due_ns=(0,) * 10), recorder=recorder, timeout_ns=50 * MS)
        slot = SlowSlot(loop)
        origin_ns = monotonic_ns()
        recorder.begin(origin_ns)
        await asyncio.wait_for(loop.run([slot], origin_ns=origin_ns), 10)
        return recorder, slot.dues

    recorder, dues = asyncio.run(load())
    assert len(dues) == 1
    assert recorder.due_count == 10
    (round_,) = recorder.finish(monotonic_ns())
    assert [(failure.kind, failure.count) for failure in round_.failures] == [("dropped", 9)]


def test_a_ramp_of_connections_keeps_no_more_slots_busy_than_it_may() -> None:
    stages = (Stage(duration_ns=0, target=2), Stage(duration_ns=50 * MS, target=2))
    starts, slots = run(ConnectionRamp(stages=stages), 5)

    assert len(starts) > 10
    assert max(starts) < 50 * MS + 20 * MS
    assert FakeSlot.most_busy == 2
    assert sum(len(slot.dues) for slot in slots) == len(starts)
    assert sum(bool(slot.dues) for slot in slots) == 2


def test_slots_are_asked_to_expire_what_is_older_than_the_time_limit() -> None:
    _, slots = run(ClosedLoop(duration_ns=150 * MS), 1)

    assert slots[0].expired


@pytest.mark.parametrize("slot_count", [1, 4])
def test_nothing_begins_after_a_run_was_given_up(slot_count: int) -> None:
    """Slots that are cut off get free: their next work would be left without an end."""

    async def load() -> int:
        loop = LoadLoop(
            pacing=ClosedLoop(duration_ns=10_000 * MS),
            recorder=Recorder(boot=0, stretches=(), server_cpu=lambda: None),
            timeout_ns=1000 * MS,
        )
        slots = [FakeSlot(loop, lambda: None) for _ in range(slot_count)]
        asyncio.get_running_loop().call_later(0.01, loop.abort, KeyError("given up"))
        with pytest.raises(KeyError, match="given up"):
            await loop.run(slots, origin_ns=monotonic_ns())
        before = loop.started
        for _ in range(5):
            await asyncio.sleep(0)
        return loop.started - before

    assert asyncio.run(load()) == 0
