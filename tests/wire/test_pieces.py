"""Pieces of a body: events, lines and sizes, however the bytes are cut on their way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.plan.work import EVENT, LINE, Each
from pytest_fileperf.wire.pieces import piece_counter


def counted(each: Each, body: bytes, *cuts: int) -> int:
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
    assert counted(each, body) == pieces


@given(body=st.sampled_from(BODIES), cuts=st.lists(st.integers(0, 60), max_size=8))
def test_where_bytes_are_cut_makes_no_difference(body: tuple[Each, bytes, int], cuts: list[int]) -> None:
    each, content, pieces = body
    assert counted(each, content, *cuts) == pieces


def test_a_line_without_an_end_takes_no_memory() -> None:
    counter = piece_counter(EVENT)
    for _ in range(100):
        counter.feed(b"data: " + b"x" * 10_000)
    assert counter.feed(b"\n\n") == 1
