"""What of a journey's time is in its latency and in those of its steps: not what the client itself does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator

import httpx
import pytest
from drive.scripted import answer
from drive.test_run import counted, run, totals
from drive.test_steps import latency

from pytest_fileperf.drive.journey import Client
from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.wire.connection import Connection

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
