"""Streams on a scripted server: what ends them, what is counted, and what is said of those that break off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from drive.scripted import MS, Handler, answer, counted, failures, run, totals

from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Stream

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENTS = Stream(operation=Operation(method="GET", url="/events"))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def server(count: int, *, every_s: float = 0.0, end: bytes | None = b"0\r\n\r\n", together: int = 1) -> Handler:
    """Returns a server that sends so many events; with `end` None it breaks off after them."""

    async def handler(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for event in range(0, count, together):
            await asyncio.sleep(every_s)
            writer.write(b"".join(chunk(b"data: %d\n\n" % one) for one in range(event, min(event + together, count))))
            await writer.drain()
        if end is None:
            writer.transport.abort()
        else:
            writer.write(end)

    return handler


def as_journey(stream: Stream) -> Stream:
    """Returns the stream in a form that goes through httpx's client."""
    operation = replace(stream.operation, arguments={**stream.operation.arguments, "follow_redirects": True})
    return replace(stream, operation=operation)


ENGINES = pytest.mark.parametrize("through", [lambda stream: stream, as_journey], ids=["replay", "client"])
Through = Callable[[Stream], Stream]


def events_of(result: Run) -> tuple[int, int, int]:
    """Returns how many events, first events and gaps there were."""
    first = Histogram.merged(round_.first_event for round_ in result.rounds)
    gap = Histogram.merged(round_.event_gap for round_ in result.rounds)
    return sum(round_.events or 0 for round_ in result.rounds), first.count, gap.count


@ENGINES
def test_a_stream_ends_with_its_answer(through: Through) -> None:
    result = run(server(5), through(EVENTS), counted(4, connections=2))

    assert totals(result) == (4, {})
    assert events_of(result) == (20, 4, 16)


@ENGINES
def test_a_stream_ends_with_a_number_of_events(through: Through) -> None:
    result = run(server(1000, every_s=0.001), through(replace(EVENTS, events=3)), counted(4, connections=2))

    assert totals(result) == (4, {})
    events, first, gaps = events_of(result)
    assert (first, gaps) == (4, events - 4)
    assert 12 <= events < 100


@ENGINES
def test_the_number_of_events_may_be_all_that_the_answer_has(through: Through) -> None:
    result = run(server(3), through(replace(EVENTS, events=3)), counted(6))

    assert totals(result) == (6, {})
    assert events_of(result) == (18, 6, 12)


@ENGINES
def test_a_stream_ends_after_a_time(through: Through) -> None:
    stream = through(replace(EVENTS, lasts_ns=400 * MS))  # a busy machine may take long to begin
    result = run(server(10_000, every_s=0.001), stream, counted(2, connections=2))

    assert totals(result) == (2, {})
    assert events_of(result)[1] == 2
    assert min(round_.latency.min_ns for round_ in result.rounds) >= 390 * MS


@ENGINES
def test_a_time_in_which_nothing_comes_is_a_failure(through: Through) -> None:
    result = run(server(1, every_s=10), through(replace(EVENTS, lasts_ns=20 * MS)), counted(1))

    assert totals(result) == (0, {"stream": 1})
    assert failures(result)[0].example == "no event came within 20.0 ms"


@ENGINES
def test_an_answer_that_ends_too_early_is_a_failure(through: Through) -> None:
    result = run(server(2), through(replace(EVENTS, events=3)), counted(2))

    assert totals(result) == (0, {"stream": 2})
    assert "the answer ended after 2 of 3 events" in failures(result)[0].example


@ENGINES
def test_an_answer_without_events_is_a_failure(through: Through) -> None:
    assert "without any events" in failures(run(server(0), through(EVENTS), counted(1)))[0].example


@ENGINES
def test_a_stream_that_breaks_off_is_a_failure_and_says_how_far_it_came(through: Through) -> None:
    result = run(server(3, end=None, every_s=0.01), through(EVENTS), counted(2))

    assert totals(result) == (0, {"disconnected": 2})
    assert failures(result)[0].example.endswith(", after 3 events")


@ENGINES
def test_a_stream_that_takes_longer_than_the_time_limit_is_a_failure(through: Through) -> None:
    result = run(server(10_000, every_s=0.001), through(EVENTS), counted(1, timeout_ms=100))

    assert totals(result) == (0, {"timeout": 1})


@ENGINES
def test_an_answer_of_another_kind_is_a_failure(through: Through) -> None:
    async def page(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"<html>", extra="Content-Type: text/html\r\n"))

    result = run(page, through(EVENTS), counted(3))

    assert totals(result) == (0, {"stream": 3})
    assert "the answer is text/html, and events come as text/event-stream" in failures(result)[0].example


@ENGINES
def test_a_bad_status_fails_and_shows_the_body(through: Through) -> None:
    async def broken(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"no more streams", "503 Service Unavailable"))

    result = run(broken, through(EVENTS), counted(3))

    assert totals(result) == (0, {"status 503": 3})
    assert "no more streams" in failures(result)[0].example


@ENGINES
def test_a_long_download_is_cut_into_pieces_and_checked(through: Through) -> None:
    async def download(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"x" * 100_000))

    stream = through(replace(EVENTS, each=40_000))
    assert events_of(run(download, stream, counted(2))) == (6, 2, 4)
    wrong = replace(stream, operation=replace(stream.operation, expect=Expectation(size_bytes=99)))
    assert totals(run(download, wrong, counted(2))) == (0, {"size": 2})


def test_events_that_come_together_have_no_gap() -> None:
    result = run(server(6, together=3, every_s=0.02), EVENTS, counted(1))

    gap = Histogram.merged(round_.event_gap for round_ in result.rounds)
    assert gap.count == 5
    assert gap.percentile_ns(50) == 0


async def listen(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/events") as response:
        assert len([line async for line in response.aiter_lines() if line.startswith("data")]) == 4


async def download_lines(client: httpx.AsyncClient) -> None:
    await client.get("/lines", extensions={"fileperf_each": "line"})


async def nonsense(client: httpx.AsyncClient) -> None:
    await client.get("/lines", extensions={"fileperf_each": "word"})


def test_events_that_a_journey_reads_are_counted() -> None:
    result = run(server(4), Journey(name="listen", function=listen), counted(3))

    assert totals(result) == (3, {})
    assert events_of(result) == (12, 3, 9)


async def two_lines(number: int, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"one\ntwo\n"))


def test_a_journey_may_say_what_the_pieces_of_an_answer_are() -> None:
    result = run(two_lines, Journey(name="download_lines", function=download_lines), counted(3))
    assert events_of(result) == (6, 3, 3)

    wrong = run(two_lines, Journey(name="nonsense", function=nonsense), counted(1))
    assert "fileperf_each: 'word' is no piece of an answer" in failures(wrong)[0].example


def test_other_answers_of_a_journey_have_no_events() -> None:
    async def get(client: httpx.AsyncClient) -> None:
        await client.get("/")

    result = run(two_lines, Journey(name="get", function=get), counted(1))
    assert [round_.events for round_ in result.rounds] == [None]
