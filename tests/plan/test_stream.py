"""What a stream is, what its pieces are, and what is wrong with an answer that ended."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import (
    EVENT,
    LINE,
    Each,
    Stream,
    counted,
    in_smoke,
    parse_each,
    plural,
    why_ended_early,
    why_unfit,
)

SECOND = 1_000_000_000
STREAM = Stream(operation=Operation(method="GET", url="/events"))


@pytest.mark.parametrize("value,each", [("event", EVENT), ("line", LINE), ("64KiB", 65536), (1000, 1000)])
def test_a_piece_is_an_event_a_line_or_a_size(value: object, each: Each) -> None:
    assert parse_each(value) == each


@pytest.mark.parametrize("value", ["word", 0, "0KiB", 1.5, None])
def test_nothing_else_is_a_piece(value: object) -> None:
    with pytest.raises(ValueError, match='is no piece of an answer: write "event", "line", or a size'):
        parse_each(value)


@pytest.mark.parametrize("each,text", [(EVENT, "events"), (LINE, "lines"), (65536, "pieces of 64.0 KiB")])
def test_pieces_in_words(each: Each, text: str) -> None:
    assert plural(each) == text


@pytest.mark.parametrize(
    "each,content_type,encoding,problem",
    [
        (EVENT, "text/event-stream", "", None),
        (EVENT, "Text/Event-Stream; charset=utf-8", "identity", None),
        (EVENT, "text/html; charset=utf-8", "", "the answer is text/html, and events come as text/event-stream"),
        (EVENT, "", "", "the answer is of no type"),
        (EVENT, "text/event-stream", "gzip", 'packed by gzip: ask for it as it is, headers={"Accept-Encoding"'),
        (LINE, "application/json", "", None),
        (LINE, "application/json", "br", "packed by br"),
        (65536, "application/json", "gzip", None),
    ],
)
def test_which_answers_can_be_cut(each: Each, content_type: str, encoding: str, problem: str | None) -> None:
    found = why_unfit(each, content_type, encoding)
    assert found is None if problem is None else problem in (found or "")


@pytest.mark.parametrize(
    "events,lasts_s,count,problem",
    [
        (None, None, 1, None),
        (None, None, 0, "the answer ended without any events"),
        (20, None, 12, "the answer ended after 12 of 20 events"),
        (None, 2, 12, "the answer ended after 500 ms, and was to be read for 2.00 s: leave listen_for out"),
    ],
)
def test_an_answer_that_ends_before_the_stream(
    events: int | None, lasts_s: int | None, count: int, problem: str | None
) -> None:
    stream = replace(STREAM, events=events, lasts_ns=lasts_s and lasts_s * SECOND)
    assert why_ended_early(stream, count, SECOND // 2) == problem


def test_what_ends_a_stream_is_part_of_what_it_is() -> None:
    assert STREAM.identity()["stream"] == {"each": "event"}
    long = replace(STREAM, each=1024, events=5, lasts_ns=SECOND)
    assert long.identity()["stream"] == {"each": 1024, "events": 5, "seconds": 1.0}
    assert long.identity()["url"] == "/events"


def test_a_smoke_run_reads_a_few_events_of_streams_that_end_by_time() -> None:
    assert in_smoke(replace(STREAM, events=50)) == replace(STREAM, events=50)
    assert in_smoke(replace(STREAM, lasts_ns=SECOND)) == replace(STREAM, lasts_ns=SECOND, events=3)
    assert in_smoke(STREAM) is STREAM
    assert in_smoke(STREAM.operation) is STREAM.operation


@pytest.mark.parametrize(
    "each,count,text",
    [(EVENT, 0, "no event"), (EVENT, 1, "1 event"), (LINE, 1_200, "1,200 lines"), (65536, 1, "1 piece of 64.0 KiB")],
)
def test_pieces_are_counted_in_words(each: Each, count: int, text: str) -> None:
    assert counted(each, count) == text
