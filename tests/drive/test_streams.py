"""Streams on a scripted server: what ends them, what is counted, and what is said of those that break off; pieces."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import httpx
import pytest
from drive.scripted import MS, Handler, answer, counted, failures, run, saying, totals
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import EVENT, LINE, Each, Stream
from pytest_fileperf.wire.pieces import piece_counter

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
ENGINES = pytest.mark.parametrize("client", [False, True], ids=["replay", "client"])


def events(client: bool = False, **of_stream: object) -> Stream:
    """Returns a stream that is replayed, or one that goes through httpx's client."""
    operation = Operation(method="GET", url="/events", arguments={"follow_redirects": client})
    return replace(Stream(operation=operation), **of_stream)  # type: ignore[arg-type]


def server(count: int, *, every_s: float = 0.0, end: bytes | None = b"0\r\n\r\n", together: int = 1) -> Handler:
    """Returns a server that sends so many events; with `end` None it breaks off after them."""

    async def handler(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for event in range(0, count, together):
            await asyncio.sleep(every_s)
            data = [b"data: %d\n\n" % one for one in range(event, min(event + together, count))]
            writer.write(b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in data))
            await writer.drain()
        if end is None:
            writer.transport.abort()
        else:
            writer.write(end)

    return handler


def events_of(result: Run) -> tuple[int, int, int]:
    """Returns how many events, first events and gaps there were."""
    first = Histogram.merged(round_.first_event for round_ in result.rounds)
    gap = Histogram.merged(round_.event_gap for round_ in result.rounds)
    return sum(round_.events or 0 for round_ in result.rounds), first.count, gap.count


@ENGINES
def test_a_stream_ends_with_its_answer_or_a_number_of_events(client: bool) -> None:
    for of_stream in ({}, {"events": 5}):  # all that the answer has
        result = run(server(5), events(client, **of_stream), counted(4, connections=2))
        assert (totals(result), events_of(result)) == ((4, {}), (20, 4, 16))

    result = run(server(1000, every_s=0.001), events(client, events=3), counted(4, connections=2))
    assert totals(result) == (4, {})
    count, first, gaps = events_of(result)
    assert (first, gaps) == (4, count - 4)
    assert 12 <= count < 100


@ENGINES
def test_a_stream_ends_after_a_time(client: bool) -> None:
    stream = events(client, lasts_ns=400 * MS)  # a busy machine may take long to begin
    result = run(server(10_000, every_s=0.002), stream, counted(2, connections=2))

    assert totals(result) == (2, {})
    assert events_of(result)[1] == 2
    # What the client itself does meanwhile is in no latency.
    assert min(round_.latency.min_ns for round_ in result.rounds) + result.uncounted_ns >= 390 * MS


PAGE = saying(answer(b"<html>", extra="Content-Type: text/html\r\n"))
BUSY = saying(answer(b"no more streams", "503 Service Unavailable"))


@ENGINES
@pytest.mark.parametrize(
    "handler, of_stream, plan, kind, words",
    [
        (server(1, every_s=10), {"lasts_ns": 20 * MS}, counted(2), "stream", "no event came within 20.0 ms"),
        (server(2), {"events": 3}, counted(2), "stream", "the answer ended after 2 of 3 events"),
        (server(0), {}, counted(2), "stream", "without any events"),
        (server(3, end=None, every_s=0.01), {}, counted(2), "disconnected", ", after 3 events"),
        (server(10_000, every_s=0.001), {}, counted(2, timeout_ms=100), "timeout", "time limit of 100 ms"),
        (PAGE, {}, counted(2), "stream", "the answer is text/html, but events come as text/event-stream"),
        (BUSY, {}, counted(2), "status 503", "no more streams"),
    ],
    ids=["nothing comes", "too early", "without events", "breaks off", "too long", "another kind", "status"],
)
def test_what_goes_wrong_with_a_stream_is_a_failure_that_says_how_far_it_came(
    handler: Handler, of_stream: dict[str, object], plan: LoadPlan, kind: str, words: str, client: bool
) -> None:
    result = run(handler, events(client, **of_stream), plan)
    assert totals(result) == (0, {kind: 2})
    assert words in failures(result)[0].example


@ENGINES
def test_a_long_download_is_cut_into_pieces_and_checked(client: bool) -> None:
    stream, download = events(client, each=40_000), saying(answer(b"x" * 100_000))
    assert events_of(run(download, stream, counted(2))) == (6, 2, 4)
    wrong = replace(stream, operation=replace(stream.operation, expect=Expectation(size_bytes=99)))
    assert totals(run(download, wrong, counted(2))) == (0, {"size": 2})


def test_events_that_come_together_have_no_gap() -> None:
    result = run(server(6, together=3, every_s=0.02), events(), counted(1))

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


async def plain(client: httpx.AsyncClient) -> None:
    await client.get("/")


@pytest.mark.usefixtures("of_family")
def test_events_and_pieces_that_a_journey_asks_for_are_counted() -> None:
    result = run(server(4), Journey(name="listen", function=listen), counted(3))
    assert (totals(result), events_of(result)) == ((3, {}), (12, 3, 9))

    lines = saying(answer(b"one\ntwo\n"))
    result = run(lines, Journey(name="download_lines", function=download_lines), counted(3))
    assert events_of(result) == (6, 3, 3)
    wrong = run(lines, Journey(name="nonsense", function=nonsense), counted(1))
    assert "fileperf_each: 'word' isn't a piece of an answer" in failures(wrong)[0].example
    other = run(lines, Journey(name="plain", function=plain), counted(1))
    assert [round_.events for round_ in other.rounds] == [None]


# --- pieces of a body, however its bytes are cut on their way


def pieces_of(each: Each, body: bytes, *cuts: int) -> int:
    """Returns the pieces of a body that is cut at these places."""
    counter, places = piece_counter(each), sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    found = sum(counter.feed(memoryview(body)[start:end]) for start, end in pairwise(places))
    return found + counter.rest()


BODIES = [
    (EVENT, b"data: a\n\ndata: b\n\n", 2),
    (EVENT, b"data: a\r\n\r\ndata: b\r\rdata\n\n", 3),
    (EVENT, b"\xef\xbb\xbfdata: after a byte order mark\n\n", 1),
    (EVENT, b"event: tick\nid: 7\ndata: a\ndata: b\n\n", 1),
    (EVENT, b": ping\n\n:\n\nretry: 10\n\n", 0),
    (EVENT, b"database: no field of that name\n\ndata\n\n", 1),
    (EVENT, b"data: a\n\ndata: without an empty line\n", 1),
    (EVENT, b"\n\n\n\ndata: a\n\n\n\n", 1),
    (LINE, b'{"a": 1}\n{"b": 2}\n', 2),
    (LINE, b'{"a": 1}\r\n\r\n \n{"b": 2}', 2),
    (LINE, b"", 0),
    (4, b"0123456789", 3),
    (5, b"0123456789", 2),
    (100, b"0123456789", 1),
    (1, b"", 0),
]


@pytest.mark.parametrize("each,body,pieces", BODIES)
def test_pieces_of_a_whole_body(each: Each, body: bytes, pieces: int) -> None:
    assert pieces_of(each, body) == pieces


@given(body=st.sampled_from(BODIES), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_where_bytes_are_cut_makes_no_difference(body: tuple[Each, bytes, int], cuts: list[int]) -> None:
    each, content, pieces = body
    assert pieces_of(each, content, *cuts) == pieces


def test_a_line_without_an_end_takes_no_memory() -> None:
    counter = piece_counter(EVENT)
    for _ in range(100):
        counter.feed(b"data: " + b"x" * 10_000)
    assert counter.feed(b"\n\n") == 1
