"""What comes first when an answer is complete: the next request, or that this one is counted."""

from __future__ import annotations

import asyncio
import socket
from time import monotonic_ns

import httpx
import pytest

from pytest_fileperf.drive.slots import ReplaySlot
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.measure.tally import BLOCK
from pytest_fileperf.plan.request import Expectation
from pytest_fileperf.wire.connection import Connection
from pytest_fileperf.wire.exchange import KnownAnswers, Scratch
from pytest_fileperf.wire.request import compile_request

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
