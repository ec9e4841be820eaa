"""The load loop and its slots: when work begins, what is counted first, how fast connections are opened."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from time import monotonic_ns

import httpx
import pytest

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.slots import OPENED_AT_ONCE, Openings, ReplaySlot, open_all, waiting_to_be_accepted
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.measure.tally import BLOCK
from pytest_fileperf.plan.pacing import Arrivals, ClosedLoop, Pacing
from pytest_fileperf.plan.request import Expectation
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.request import compile_request

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


@pytest.mark.parametrize("alone_s, busy", [(5.0, [1, 1, 2, 3]), (0.0, [1, 2, 3])])
def test_the_others_may_wait_for_the_first_piece_of_work(alone_s: float, busy: list[int]) -> None:
    """It logs in for all of them."""

    async def load() -> list[int]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        pacing = ClosedLoop(requests=9, duration_ns=10_000 * MS)
        loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=1000 * MS, alone_s=alone_s)
        seen: list[int] = []
        slots = [FakeSlot(loop, lambda: seen.append(FakeSlot.busy)) for _ in range(3)]
        await asyncio.wait_for(loop.run(slots, origin_ns=monotonic_ns()), 10)
        return seen

    FakeSlot.busy = 0
    seen = asyncio.run(load())
    assert seen[: len(busy)] == busy
    assert len(seen) == 9


def test_they_do_not_wait_for_a_slow_first_piece_of_work() -> None:
    async def load() -> list[SlowSlot]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        pacing = ClosedLoop(duration_ns=60 * MS)
        loop = LoadLoop(pacing=pacing, recorder=recorder, timeout_ns=1000 * MS, alone_s=0.02)
        slots = [SlowSlot(loop) for _ in range(3)]
        await asyncio.wait_for(loop.run(slots, origin_ns=monotonic_ns()), 10)
        return slots

    assert [len(slot.dues) for slot in asyncio.run(load())] == [1, 1, 1]


def test_work_that_waits_longer_than_the_time_limit_for_a_slot_is_dropped() -> None:
    async def load() -> tuple[Recorder, list[int | None]]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        loop = LoadLoop(pacing=Arrivals(requests=10), recorder=recorder, timeout_ns=50 * MS)
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


# --- What comes first when an answer is complete: the next request, or that this one is counted

SECOND = 1_000_000_000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
FAILURE = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nsorry"
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"


class Turn:
    """Is asked for the next piece of work; notes whether the last one was counted by then."""

    timeout_ns = 60 * SECOND
    too_late = "too late"
    slots_rest = False

    def __init__(self, recorder: Recorder, *, at_once: bool) -> None:
        self.recorder = recorder
        self.at_once = at_once
        self.before = 0
        self.asked = asyncio.Event()
        self.was_counted = False

    def next(self, _: object) -> None:
        self.was_counted = counted_by(self.recorder) > self.before
        self.asked.set()


def counted_by(recorder: Recorder) -> int:
    return recorder.finished_requests + recorder.requests + recorder.failed


def recorder_of(round_s: float) -> Recorder:
    stretches = [(round(end_s * SECOND), Phase.ROUND) for end_s in (round_s, 600)]
    made = Recorder(boot=0, stretches=stretches, server_cpu=lambda: None)
    made.begin(monotonic_ns())
    made.advance(monotonic_ns())
    return made


async def counted_first(
    recorder: Recorder, answer: bytes = ANSWER, *, rests_s: float = 0.0, at_once: bool = True
) -> bool:
    """Returns whether an answer was counted before the next request was asked for; it follows a good one."""
    request = compile_request(httpx.Request("GET", "http://127.0.0.1/"))
    assert request is not None
    turn = Turn(recorder, at_once=at_once)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = Connection(asyncio.get_running_loop(), ours, Scratch(), KnownAnswers())

    async def connect() -> Connection:
        return connection

    tally = recorder.tallies[0]
    slot = ReplaySlot(load=turn, tally=tally, request=request, expect=Expectation(), connect=connect)
    await slot.open()
    with theirs:
        for raw, wait_s in ((ANSWER, 0.0), (answer, rests_s)):
            turn.before = counted_by(recorder)
            turn.asked.clear()
            slot.start(None)
            await asyncio.sleep(wait_s)
            theirs.send(raw)
            await asyncio.wait_for(turn.asked.wait(), 5)
        slot.close()
    return turn.was_counted


def test_the_next_request_is_written_before_an_answer_is_counted() -> None:
    """The server is not kept waiting by our own work."""
    recorder = recorder_of(60)

    assert asyncio.run(counted_first(recorder)) is False
    assert (recorder.requests, recorder.failed) == (2, 0)


@pytest.mark.parametrize("at_once, answer", [(False, ANSWER), (True, FAILURE), (True, LAST)])
def test_it_is_counted_first_where_nothing_is_written_at_once_or_more_is_to_be_done(
    at_once: bool, answer: bytes
) -> None:
    assert asyncio.run(counted_first(recorder_of(60), answer, at_once=at_once)) is True


def test_it_is_counted_first_where_that_ends_a_round() -> None:
    """Closing a round takes time that belongs to no request."""
    recorder = recorder_of(0.2)

    assert asyncio.run(counted_first(recorder, rests_s=0.3)) is True
    assert [round_.requests for round_ in recorder.finish(monotonic_ns())] == [1]
    assert recorder.requests == 1


def test_it_is_counted_first_where_that_fills_a_block() -> None:
    """A histogram is then made of the block."""
    recorder, now_ns = recorder_of(60), monotonic_ns()
    for _ in range(BLOCK - 2):
        recorder.tallies[0].success(now_ns - 1000, now_ns, now_ns, 200, 0, 5)

    assert asyncio.run(counted_first(recorder)) is True
    assert recorder.requests == BLOCK


# --- Connections are opened no faster than the server takes them


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a listen queue is")
FAMILIES = pytest.mark.parametrize(
    "family,host", [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")], ids=["IPv4", "IPv6"]
)


@linux_only
@FAMILIES
def test_how_many_wait_to_be_accepted_is_known(family: int, host: str) -> None:
    with socket.socket(family) as listener, ExitStack() as stack:
        listener.bind((host, 0))
        listener.listen(100)
        port = listener.getsockname()[1]
        for _ in range(5):
            stack.enter_context(socket.create_connection((host, port)))
        waiting = [waiting_to_be_accepted(port)]
        stack.enter_context(listener.accept()[0])
        waiting.append(waiting_to_be_accepted(port))

    assert waiting == [5, 4]
    assert waiting_to_be_accepted(port) == 0


@linux_only
def test_the_next_connections_wait_until_the_server_has_taken_those_before() -> None:
    """A server that takes a dozen connections every millisecond never has more than two batches in its queue."""
    longest = 0

    async def main() -> int:
        nonlocal longest
        loop = asyncio.get_running_loop()
        with socket.socket() as listener, ExitStack() as stack:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1000)
            listener.setblocking(False)
            address = listener.getsockname()

            openings = Openings(address[1])

            async def opening() -> None:
                await openings.may_open()
                sock = stack.enter_context(socket.socket())
                sock.setblocking(False)
                await loop.sock_connect(sock, address)

            async def accept() -> None:
                nonlocal longest
                while True:
                    longest = max(longest, waiting_to_be_accepted(address[1]))
                    for _ in range(12):
                        stack.enter_context((await loop.sock_accept(listener))[0])
                    await asyncio.sleep(0.001)

            accepting = asyncio.create_task(accept())
            await open_all([opening] * (5 * OPENED_AT_ONCE))
            accepting.cancel()
            return longest

    assert 0 < asyncio.run(main()) <= OPENED_AT_ONCE + OPENED_AT_ONCE // 4


def test_when_one_cannot_be_opened_none_goes_on() -> None:
    """What opened later would belong to nobody, and stay open."""
    ended: list[str] = []

    async def refused() -> None:
        raise httpx.ConnectError("refused")

    async def slow() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("slow")

    async def main() -> None:
        with pytest.raises(httpx.ConnectError, match="refused"):
            await open_all([slow, refused, slow])
        assert ended == ["slow", "slow"]

    asyncio.run(main())
