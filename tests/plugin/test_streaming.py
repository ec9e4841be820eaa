"""Whole runs of streams on servers of several kinds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

APP = """
import asyncio


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    kind = b"text/event-stream" if scope["path"] == "/events" else b"text/plain"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
    endless = scope["path"] == "/events"
    number = 0
    while endless or number < 8:
        await asyncio.sleep(0.01)
        number += 1
        await send({"type": "http.response.body", "body": b"data: %d\\n\\n" % number, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
"""
TESTS = """
import pytest


@pytest.fixture
def anyio_backend():
    return "asyncio"


def test_events(fileperf):
    result = fileperf.stream("/events", events=5, connections=4, requests=8, gate="none", min_event_rate=1)
    assert result.requests == 8
    assert result.events.count >= 40
    assert result.events.first.count == 8
    assert result.events.gap.p50 > 0.005


def test_lines(fileperf):
    result = fileperf.stream("/lines", each="line", connections=2, requests=4, gate="none")
    assert result.events.count == 8 * result.requests


async def follow(client):
    async with client.stream("GET", "/events") as response:
        async for line in response.aiter_lines():
            if line == "data: 3":
                return


@pytest.mark.fileperf(pause="10ms")
def test_pauses(fileperf):
    result = fileperf.get("/lines", connections=2, requests=6, gate="none")
    assert result.requests == 6


async def wait_for(afileperf):
    return await afileperf.stream("/events", events=2, connections=1, requests=2, gate="none")


@pytest.mark.anyio
async def test_awaited(afileperf):
    assert (await wait_for(afileperf)).events.count >= 4


def test_journey(fileperf):
    result = fileperf.run(follow, connections=2, requests=4, gate="none")
    assert result.events.count >= 12 or result.requests > 4
"""


@pytest.fixture
def streaming(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(stream_app=APP, test_it=TESTS)
    pytester.makeini("[pytest]\nfileperf_app = stream_app:app\npythonpath = .\n")
    return pytester


@pytest.mark.parametrize("arguments", [("--fileperf",), ("--fileperf-smoke",)], ids=["in full", "smoke"])
def test_streams_of_an_app_in_the_test_process(streaming: pytest.Pytester, run_load: Run, arguments: list[str]) -> None:
    run_load(*arguments).assert_outcomes(passed=5)


def test_streams_of_a_server_are_shown_and_gated(streaming: pytest.Pytester, run_load: Run) -> None:
    streaming.makepyfile(
        test_it="""
        def test_events(fileperf):
            fileperf.stream("/events", events=5, connections=4)
        """
    )
    quick = ("--fileperf-duration=0.6s", "--fileperf-rounds=2", "--fileperf-boots=1", "--fileperf-warmup=0")
    shown = run_load("--fileperf", "--fileperf-server=uvicorn", *quick, "-v", "--fileperf-json=out.json")
    shown.assert_outcomes(passed=1)
    shown.stdout.fnmatch_lines(["*events/s*first event p50*"])
    (found,) = json.loads((streaming.path / "out.json").read_text())["results"]
    assert found["summary"]["events"]["count"] > 10
    gates = {item["metric"]: item["outcome"] for item in found["verdict"]["comparisons"]}
    assert gates == {"event_rate": "NEW", "first_event_p50": "NEW"}


def test_events_of_what_is_no_stream_are_refused(streaming: pytest.Pytester, run_load: Run) -> None:
    streaming.makepyfile(
        test_it="""
        def test_limit(fileperf):
            fileperf.get("/lines", min_event_rate=5)

        def test_time(fileperf):
            fileperf.stream("/events", listen_for="5s", timeout="2s")
        """
    )
    result = run_load("--fileperf")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*only streams have events: measure min_event_rate with fileperf.stream*",
            "*listen_for is 5.00 s, and what takes longer than timeout, 2.00 s, has failed: raise the timeout*",
        ]
    )
