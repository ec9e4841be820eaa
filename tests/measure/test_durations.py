"""Samples become the same histogram in whatever way they are gathered."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.measure.histogram import EMPTY, HIGHEST_NS, Histogram
from pytest_fileperf.measure.tally import Durations

SAMPLES = st.lists(st.integers(0, 1 << 22), max_size=50)  # small enough for exact sums of squares


def gathered(*blocks: list[int]) -> Histogram:
    """Returns what is taken of the blocks; all but the last are folded before."""
    made = Durations()
    for number, block in enumerate(blocks):
        if number:
            made.fold()
        made.block.extend(block)
    return made.take()


@given(SAMPLES, SAMPLES)
def test_a_histogram_is_the_same_of_one_block_and_of_several(one: list[int], two: list[int]) -> None:
    assert gathered(one + two) == gathered(one, two) == gathered(one, two, []) == Histogram.of(one + two)


def test_nothing_is_left_after_a_histogram_was_taken() -> None:
    made = Durations()
    for more in (made.block.extend, made.block.extend):
        more([5, 7])
        assert made.take().count == 2
        assert made.take() is EMPTY


def test_no_sample_is_beyond_the_highest() -> None:
    assert gathered([HIGHEST_NS + 5]).max_ns == gathered([HIGHEST_NS + 5], []).max_ns == HIGHEST_NS


def test_a_round_of_few_samples_needs_no_table_of_all_counts() -> None:
    """Making it, and looking through it, is most of what the end of a round takes."""
    tracemalloc.start()
    try:
        gathered(list(range(200)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


def test_a_round_of_many_samples_is_kept_small() -> None:
    """All rounds of a load are kept to its end, in the generator's memory."""
    samples = list(range(1_000_000, 9_000_000, 1_000))
    taken = gathered(samples, [])
    assert taken == Histogram.of(samples)
    assert taken.held.size_bytes < Histogram.of(samples).held.size_bytes / 4
