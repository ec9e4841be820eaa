"""What the arguments of `stream` become, and whole runs of streams on servers of several kinds."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pytest_fileperf import payload
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Stream
from pytest_fileperf.settings.arguments import STREAM_GATE, stream_from

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


def stream(**arguments: object) -> Stream:
    call = stream_from("/events", arguments)
    assert call.problems == ()
    assert isinstance(call.work, Stream)
    return call.work


def problems(**arguments: object) -> tuple[str, ...]:
    call = stream_from("/events", arguments)
    assert call.work is None
    return call.problems


def test_a_stream_is_a_request_whose_pieces_are_events() -> None:
    assert stream() == Stream(operation=Operation(method="GET", url="/events"))
    call = stream_from("/events", {"events": 5, "connections": 2})
    assert (call.where, call.keys, call.default_gate) == ("stream GET /events", {"connections": 2}, STREAM_GATE)


def test_its_keywords_are_read_as_they_may_be_written() -> None:
    made = stream(method="post", each="64KiB", events="20", listen_for="2s", json={"a": 1})
    assert (made.each, made.events, made.lasts_ns) == (65536, 20, 2_000_000_000)
    assert (made.operation.method, made.operation.arguments) == ("POST", {"json": {"a": 1}})
    assert stream(each=None, events=None, listen_for=None, method=None) == stream()


def test_every_mistake_is_named_at_once() -> None:
    found = problems(event=5, events=0, each="word", listen_for="soon")
    assert "unknown key 'event' (did you mean events?)" in found[0]
    assert [problem.partition(":")[0] for problem in found[1:]] == ["each", "events", "listen_for"]


@pytest.mark.parametrize(
    "arguments,problem",
    [
        ({"events": 5, "expect_bytes": 10}, "expect_bytes is of the whole answer, and events ends the stream before"),
        ({"listen_for": 1, "expect_body": b"a"}, "expect_body is of the whole answer, and listen_for ends the stream"),
        ({"content": payload("1KiB", unique=True)}, "and what is unique makes another one of it each time"),
        ({"headers": {"x": "{id}"}, "feed": ["a"]}, "a stream is of one request, and a feed makes many"),
        ({"method": "HEAD"}, "a HEAD request has an answer without a body"),
    ],
)
def test_what_does_not_go_together_says_why(arguments: dict[str, object], problem: str) -> None:
    assert problem in problems(**arguments)[0]


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
