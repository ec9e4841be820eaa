"""What a load is made of: streams and their pieces, mixes and whose turn it is, pauses and what is drawn for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest

from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import (
    EVENT,
    LINE,
    Each,
    Mix,
    Part,
    Pause,
    Stream,
    counted,
    exponential,
    in_smoke,
    parse_each,
    parse_pause,
    plural,
    turns,
    uniform,
    why_ended_early,
    why_unfit,
)

SECOND = 1_000_000_000
STREAM = Stream(operation=Operation(method="GET", url="/events"))


@pytest.mark.parametrize(
    "value,each,words,one",
    [
        ("event", EVENT, "events", "1 event"),
        ("line", LINE, "lines", "1 line"),
        ("64KiB", 65536, "pieces of 64.0 KiB", "1 piece of 64.0 KiB"),
        (1000, 1000, "pieces of 1000 B", "1 piece of 1000 B"),
    ],
)
def test_a_piece_is_an_event_a_line_or_a_size(value: object, each: Each, words: str, one: str) -> None:
    assert (parse_each(value), plural(each), counted(each, 1)) == (each, words, one)
    assert (counted(EVENT, 0), counted(LINE, 1_200)) == ("no event", "1,200 lines")


@pytest.mark.parametrize("value", ["word", 0, "0KiB", 1.5, None])
def test_nothing_else_is_a_piece(value: object) -> None:
    with pytest.raises(ValueError, match=r'a piece of an answer. Write "event", "line", or a size'):
        parse_each(value)


@pytest.mark.parametrize(
    "each,content_type,encoding,problem",
    [
        (EVENT, "text/event-stream", "", None),
        (EVENT, "Text/Event-Stream; charset=utf-8", "identity", None),
        (EVENT, "text/html; charset=utf-8", "", "the answer is text/html, but events come as text/event-stream"),
        (EVENT, "", "", "the answer is of no type"),
        (
            EVENT,
            "text/event-stream",
            "gzip",
            "compressed with gzip. Ask for it uncompressed, with headers={",
        ),
        (LINE, "application/json", "", None),
        (LINE, "application/json", "br", "compressed with br"),
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
        (
            None,
            2,
            12,
            "the answer ended after 500 ms, before the 2.00 s of listen_for. If it should end, omit listen_for",
        ),
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


# --- Mixes


async def journey(client: object, made: object) -> None:
    return None


GET = Operation(method="GET", url="/a")
ROWS = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda made: [made])
PARTS = (
    Part(name="get", work=GET),
    Part(name="rows", work=ROWS, weight=9),
    Part(name="walk", work=Journey(name="journey", function=journey, takes_value=True), weight=2),
)
MIX = Mix(parts=PARTS)


@pytest.mark.parametrize(
    "weights,counts",
    [
        ([1], [10_000]),
        ([1, 9], [1000, 9000]),
        ([0.5, 0.25, 0.25], [5000, 2500, 2500]),
        ([3, 3, 3], [3334, 3333, 3333]),
        ([1, 2, 4], [1428, 2858, 5714]),
        ([0.1, 99.9], [10, 9990]),
        ([1, 123_456], [10, 9990]),
    ],
)
def test_turns_are_as_weights_say(weights: list[float], counts: list[int]) -> None:
    seen = Counter(islice(turns(weights), 10_000))
    assert [seen[place] for place in range(len(weights))] == pytest.approx(counts, abs=10)


def test_the_identity_has_all_parts_and_weights() -> None:
    assert [part["name"] for part in MIX.identity()["mix"]] == ["get", "rows", "walk"]  # type: ignore[attr-defined]
    assert MIX.identity() != in_smoke(MIX).identity()
    assert MIX.name == "mix of get, rows, walk"


# --- Pauses


def drawn(pause: Pause, users: int, each: int) -> list[list[int]]:
    return [list(islice(pauses, each)) for pauses in islice(pause.of_users(), users)]


@pytest.mark.parametrize(
    "value,text",
    [
        ("1s", "1.00 s"),
        (0.25, "250 ms"),
        (uniform("0.5s", 2), "500 ms to 2.00 s"),
        (exponential("1s"), "1.00 s on average"),
    ],
)
def test_a_pause_is_written_in_several_ways(value: object, text: str) -> None:
    assert str(parse_pause(value)) == text
    assert [parse_pause(none) for none in (0, "0s", uniform(0, 0))] == [None] * 3


@pytest.mark.parametrize(
    "value,said",
    [
        ("soon", "'soon' isn't a duration"),
        (-1, "it must be finite and not negative"),
        (["1s"], "isn't a pause. Write seconds"),
    ],
)
def test_nonsense_is_refused(value: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_pause(value)


def test_a_distribution_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="the shortest pause, 2s, is longer than the longest, 1s"):
        uniform("2s", "1s")
    with pytest.raises(ValueError, match="the mean of a pause must be above 0"):
        exponential(0)


def test_users_begin_within_their_first_pause_and_then_pause_as_asked() -> None:
    pause = parse_pause("1s")
    assert pause is not None
    found = drawn(pause, users=50, each=3)
    firsts = [first for first, *_ in found]
    assert len(set(firsts)) == 50
    assert 0 <= min(firsts) <= max(firsts) <= SECOND
    assert {later for _, *rest in found for later in rest} == {SECOND}
