"""Users that pause: between their requests, and within a journey. No figure has the pauses in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from dataclasses import replace
from time import monotonic_ns

import httpx
import pytest
from drive.scripted import MS, answer, counted, hello, run, totals
from drive.test_loop import FakeSlot
from drive.test_steps import latency

from pytest_fileperf.drive.journey import Client
from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import ClosedLoop
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.plan.work import Pause, parse_pause
from pytest_fileperf.wire.connection import Connection


def load(pacing: ClosedLoop, pause: Pause | None, slots: int) -> tuple[int, int]:
    """Returns how many pieces of work were begun, and how long that took."""

    async def main() -> tuple[int, int]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        loop = LoadLoop(
            pacing=pacing, recorder=recorder, timeout_ns=1000 * MS, pauses=pause.of_users() if pause else None
        )
        begun_ns = monotonic_ns()
        await asyncio.wait_for(loop.run([FakeSlot(loop, lambda: None) for _ in range(slots)], origin_ns=begun_ns), 20)
        return loop.started, monotonic_ns() - begun_ns

    return asyncio.run(main())


def test_slots_pause_before_each_piece_of_work() -> None:
    started, took_ns = load(ClosedLoop(duration_ns=10_000 * MS, requests=4), parse_pause("50ms"), slots=1)
    assert started == 4
    assert took_ns >= 3 * 45 * MS


def test_a_pause_that_is_longer_than_the_load_does_not_make_it_longer() -> None:
    assert load(ClosedLoop(duration_ns=50 * MS), parse_pause(3600), slots=5)[0] <= 1


def test_slots_that_pause_end_with_the_number_of_requests() -> None:
    """Each has paused for a part of an hour when another one begins the last request."""
    started, _ = load(ClosedLoop(duration_ns=10**15, requests=3), Pause(low_ns=0, high_ns=20 * MS), slots=8)
    assert started == 3


async def reader(client: Client) -> None:
    (await client.get("/")).raise_for_status()
    await client.pause("50ms")
    await asyncio.gather(client.pause(0.02), client.pause("20ms"))  # counts once
    (await client.get("/")).raise_for_status()


async def thinker(client: Client) -> None:
    await client.pause("30ms")
    (await client.get("/")).raise_for_status()


def latency_ns(result: Run) -> int:
    return sum(round_.latency.sum_ns for round_ in result.rounds)


def test_pauses_of_a_journey_are_in_no_latency() -> None:
    begun_ns = monotonic_ns()
    result = run(hello, Journey(name="reader", function=reader), counted(3))
    took_ns = monotonic_ns() - begun_ns

    assert totals(result) == (3, {})
    assert result.uncounted_ns >= 3 * 68 * MS
    assert latency_ns(result) + result.uncounted_ns <= took_ns
    assert 0 < sum(round_.ttfb.sum_ns for round_ in result.rounds) <= latency_ns(result)


def test_a_pause_before_the_first_answer_is_not_in_the_time_to_it() -> None:
    plan = LoadPlan(connections=2, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS, rate=20)
    for own in (plan, counted(3)):
        begun_ns = monotonic_ns()
        result = run(hello, Journey(name="thinker", function=thinker), own)
        took_ns = monotonic_ns() - begun_ns
        good, failures = totals(result)
        assert (good > 1, failures) == (True, {})
        first_ns = [round_.ttfb.max_ns for round_ in result.rounds]
        assert max(first_ns) + result.uncounted_ns // good <= took_ns
        assert all(round_.ttfb.max_ns <= round_.latency.max_ns for round_ in result.rounds)


def test_a_pause_is_not_taken_for_an_answer_that_takes_too_long() -> None:
    async def patient(client: Client) -> None:
        await client.pause("300ms")
        await client.get("/")

    assert totals(run(hello, Journey(name="patient", function=patient), counted(1, timeout_ms=250))) == (1, {})


def test_a_journey_that_pauses_for_longer_than_the_time_limit_has_failed_in_the_end() -> None:
    async def asleep(client: Client) -> None:
        await client.pause(3600)

    assert totals(run(hello, Journey(name="asleep", function=asleep), counted(1, timeout_ms=100))) == (
        0,
        {"timeout": 1},
    )


def test_a_wrong_pause_is_a_failure_that_says_what_to_write() -> None:
    async def wrong(client: Client) -> None:
        await client.pause("soon")

    assert totals(run(hello, Journey(name="wrong", function=wrong), counted(1))) == (0, {"ValueError": 1})


def test_requests_are_replayed_with_pauses_between_them() -> None:
    result = run(hello, plan=replace(counted(6, connections=2), pause=parse_pause("20ms")))
    assert totals(result) == (6, {})


def test_what_a_user_keeps_stays_with_that_user() -> None:
    """Cookies that an answer sets come back from the same client only."""

    async def shop(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", extra=f"Set-Cookie: user={number}; Path=/\r\n"))

    async def visit(client: httpx.AsyncClient) -> None:
        before = client.cookies.get("user")
        await client.get("/")
        assert before is None or client.cookies.get("user") != before

    assert totals(run(shop, Journey(name="visit", function=visit), counted(6, connections=2))) == (6, {})


@pytest.mark.parametrize("number", [0, 1])
def test_each_user_has_pauses_of_its_own_by_the_seed(number: int) -> None:
    async def drawn(user: int) -> int:
        async with Client(number=user) as client:
            await client.pause(Pause(low_ns=1 * MS, high_ns=2 * MS))
            return client.uncounted_ns(monotonic_ns())

    assert asyncio.run(drawn(number)) >= 0.9 * MS


# --- What of a journey's time is in its latency and in those of its steps: not what the client itself does


SERVER_S, CLIENT_S = 0.03, 0.1


class Working(httpx.Auth):
    """Keeps the client busy before each request is sent, and after its answer came."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        time.sleep(CLIENT_S)
        yield request
        time.sleep(CLIENT_S)


async def slow(number: int, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(SERVER_S)
    writer.write(answer(b"hello"))


def whole(result: Run) -> Histogram:
    return Histogram.merged(round_.latency for round_ in result.rounds)


async def visit(client: Client) -> None:
    async with client.step("login"):
        await client.get("/", auth=Working())
        async with client.stream("GET", "/", auth=Working()) as response:
            await response.aread()


async def side_by_side(client: Client) -> None:
    async with client.step("login"):
        await asyncio.gather(client.get("/"), client.get("/", auth=Working()))


async def own_work(client: Client) -> None:
    async with client.step("login"):
        await client.get("/")
        time.sleep(CLIENT_S)  # noqa: ASYNC251 - work, not waiting


def test_what_the_client_does_is_in_no_latency() -> None:
    result = run(slow, Journey(name="visit", function=visit), counted(2))
    assert totals(result) == (2, {})
    assert result.uncounted_ns >= 2 * 4 * CLIENT_S * 1e9
    for seen in (whole(result), latency(result, "login")):
        assert 2 * SERVER_S * 0.98e9 <= seen.min_ns <= seen.max_ns < 4 * CLIENT_S * 1e9
    assert all(round_.ttfb.max_ns <= round_.latency.max_ns for round_ in result.rounds)


def test_a_look_for_a_free_connection_is_in_no_latency(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Connection] = []
    stale = Connection.stale

    def slowly_stale(connection: Connection) -> bool:
        time.sleep(4 * CLIENT_S)
        looked.append(connection)
        return stale(connection)

    async def twice(client: Client) -> None:
        async with client.step("login"):
            await client.get("/")
            await client.get("/")

    monkeypatch.setattr(Connection, "stale", slowly_stale)
    result = run(slow, Journey(name="twice", function=twice), counted(1))
    assert looked
    for seen in (whole(result), latency(result, "login")):
        assert 2 * SERVER_S * 0.98e9 <= seen.min_ns <= seen.max_ns < 4 * CLIENT_S * 1e9


def test_what_it_does_while_a_request_is_on_its_way_is_in_the_latency() -> None:
    result = run(slow, Journey(name="side_by_side", function=side_by_side), counted(2))
    assert totals(result) == (2, {})
    for seen in (whole(result), latency(result, "login")):
        assert seen.min_ns >= CLIENT_S * 0.98e9


def test_what_the_code_of_the_journey_does_is_in_the_latency() -> None:
    result = run(slow, Journey(name="own_work", function=own_work), counted(2))
    for seen in (whole(result), latency(result, "login")):
        assert seen.min_ns >= (SERVER_S + CLIENT_S) * 0.98e9


def test_no_time_is_less_than_nothing_where_a_pause_outlives_all_of_a_call_and_of_its_step() -> None:
    pausing: list[asyncio.Task[None]] = []

    async def idle(client: Client) -> None:
        if not pausing:
            pausing.append(asyncio.create_task(client.pause("30s")))
            await asyncio.sleep(0)
        async with client.step("rest"):
            begun = client.pause("30s")
            begun.send(None)
        begun.close()

    result = run(slow, Journey(name="idle", function=idle), counted(300))
    assert totals(result) == (300, {})
    for seen in (whole(result), latency(result, "rest")):
        assert 0 <= seen.min_ns <= seen.max_ns < CLIENT_S * 1e9


@pytest.mark.parametrize("fails", ["connect", "read", "cancelled"])
def test_a_request_that_fails_is_on_its_way_no_longer(fails: str) -> None:
    async def refusing(number: int, writer: asyncio.StreamWriter) -> None:
        if fails == "cancelled":
            await asyncio.sleep(10)
        writer.close()

    async def broken(client: Client) -> None:
        with pytest.raises((httpx.TransportError, TimeoutError)):
            async with asyncio.timeout(0.05):
                await client.get("http://127.0.0.1:1/" if fails == "connect" else "/")
        async with client.step("after"):
            with pytest.raises(httpx.UnsupportedProtocol):
                await client.get("ftp://127.0.0.1/", auth=Working())

    result = run(refusing, Journey(name="broken", function=broken), counted(1))
    assert totals(result) == (1, {})
    assert result.uncounted_ns >= CLIENT_S * 0.98e9


@pytest.mark.parametrize("blocks", [True, False], ids=["time.sleep", "asyncio.sleep"])
def test_code_that_blocks_the_event_loop_is_told_from_code_that_waits(blocks: bool) -> None:
    async def slow_user(client: Client) -> None:
        await client.get("/")
        if blocks:
            time.sleep(CLIENT_S)  # noqa: ASYNC251 - what such a journey does
        else:
            await asyncio.sleep(CLIENT_S)

    result = run(slow, Journey(name="slow_user", function=slow_user), counted(2))
    (round_,) = result.rounds
    assert round_.duration_ns >= 2 * (SERVER_S + CLIENT_S) * 1e9
    assert (round_.code_ns - round_.client_cpu_ns > 1.5 * CLIENT_S * 1e9) is blocks
