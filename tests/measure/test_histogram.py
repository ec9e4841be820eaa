"""The histogram keeps three digits, merges in any order, and its stored form is the standard one."""

from __future__ import annotations

import base64
import math
import pickle

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf.measure.histogram import HIGHEST_NS, Histogram, highest_equivalent, middle_of, step_of

DURATIONS = st.one_of(st.integers(0, 5000), st.integers(0, HIGHEST_NS), st.integers(1_000_000, 80_000_000))
SAMPLES = st.lists(DURATIONS, max_size=120)


def facts(histogram: Histogram) -> tuple[object, ...]:
    return (
        histogram.steps.tolist(),
        histogram.counts.tolist(),
        histogram.count,
        histogram.min_ns,
        histogram.max_ns,
        histogram.sum_ns,
        pytest.approx(histogram.sum_squares, rel=1e-12),
    )


def nearest_rank(values: list[int], percent: float) -> int:
    return sorted(values)[max(1, math.ceil(percent / 100 * len(values) - 1e-9 * len(values))) - 1]


@given(SAMPLES, SAMPLES, SAMPLES)
def test_merging_is_associative_and_commutative(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = map(Histogram.of, (one, two, three))
    whole = facts(Histogram.of(one + two + three))
    assert facts(Histogram.merged([a, b, c])) == whole
    assert facts(Histogram.merged([c, a, b])) == whole
    assert facts(Histogram.merged([Histogram.merged([a, b]), c])) == whole
    assert facts(Histogram.merged([a, Histogram.merged([b, c])])) == whole


@given(SAMPLES)
def test_one_at_a_time_is_all_at_once_and_packed_it_is_what_it_was(values: list[int]) -> None:
    plain, packed = Histogram.of(values), Histogram.of(values)
    assert facts(Histogram.merged(Histogram.of([value]) for value in values)) == facts(plain)
    packed.held.pack({})
    assert packed == plain == pickle.loads(pickle.dumps(packed))
    assert facts(packed) == facts(plain)
    assert packed.encode() == plain.encode()


def many_times(histogram: Histogram, doublings: int) -> Histogram:
    for _ in range(doublings):
        histogram = Histogram.merged([histogram, histogram])
    return histogram


@pytest.mark.parametrize("doublings", [0, 17])
def test_counts_of_any_size_are_packed(doublings: int) -> None:
    values = np.random.default_rng(1).lognormal(15.4, 0.5, 3_000).astype(np.int64)
    plain, packed = (many_times(Histogram.of(values), doublings) for _ in range(2))
    packed.held.pack({})
    assert packed == plain
    assert packed.count == 3_000 << doublings


@given(st.lists(DURATIONS, min_size=1, max_size=120), st.floats(0, 100))
def test_a_percentile_is_the_nearest_rank_to_three_digits(values: list[int], percent: float) -> None:
    exact = nearest_rank(values, percent)
    found = Histogram.of(values).percentile_ns(percent)
    assert exact <= found <= exact * 1.001


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("percent,rank", [(0, 1), (50, None), (99, None), (99.9, None), (100, None)])
def test_percentiles_of_small_counts(count: int, percent: float, rank: int | None) -> None:
    # 1 to 101 are kept exactly, so the value is the rank.
    assert Histogram.of(range(1, count + 1)).percentile_ns(percent) == (rank or math.ceil(percent * count / 100))
    assert Histogram.of(range(1, 1001)).percentile_ns(99.9) == 999, "no rounding errors"


@settings(deadline=None)
@given(st.lists(st.integers(0, HIGHEST_NS), min_size=1, max_size=60), st.integers(1, 100))
def test_a_percentile_is_the_hdrhistogram_package_s_at_the_same_rank(values: list[int], percent: int) -> None:
    """That package rounds the rank to the nearest; ours is never below the share asked for, nor above the maximum."""
    theirs = HdrHistogram(1, HIGHEST_NS, 3)
    for value in values:
        theirs.record_value(value)
    rank = math.ceil(percent * len(values) / 100)
    expected = theirs.get_value_at_percentile(100 * rank / len(values))
    assert Histogram.of(values).percentile_ns(percent) == min(expected, max(values))


@given(st.lists(DURATIONS, min_size=1, max_size=60))
def test_steps_are_those_of_the_hdrhistogram_package(values: list[int]) -> None:
    theirs = HdrHistogram(1, HIGHEST_NS, 3)
    assert step_of(np.array(values, dtype=np.int64)).tolist() == [
        theirs.get_counts_array_index(value) for value in values
    ]
    for step, value in zip(step_of(np.array(values, dtype=np.int64)).tolist(), values, strict=True):
        assert highest_equivalent(step) == theirs.get_highest_equivalent_value(value)
        assert abs(middle_of(np.array([step]))[0] - value) <= value / 2000


@settings(deadline=None)
@given(SAMPLES)
def test_the_stored_form_keeps_steps_and_counts_and_the_rest_to_three_digits(values: list[int]) -> None:
    before = Histogram.of(values)
    after = Histogram.decode(before.encode())
    assert (after.steps.tolist(), after.counts.tolist()) == (before.steps.tolist(), before.counts.tolist())
    assert after.count == before.count
    assert after.min_ns == pytest.approx(before.min_ns, rel=1e-3)
    assert after.max_ns == pytest.approx(before.max_ns, rel=1e-3)
    assert after.mean_ns() == pytest.approx(before.mean_ns(), rel=1e-3)
    assert after.encode() == before.encode()


def test_the_stored_form_is_what_the_hdrhistogram_package_writes_and_reads() -> None:
    values = [0, 7, 5_000_000, 5_000_100, 80_000_000, HIGHEST_NS]
    theirs = HdrHistogram(1, HIGHEST_NS, 3)
    for value in values:
        theirs.record_value(value)
    text = Histogram.of(values).encode()
    assert text == theirs.encode().decode("ascii")
    assert HdrHistogram.decode(text.encode("ascii")).get_total_count() == len(values)


def test_a_whole_run_s_samples_are_stored_small() -> None:
    values = np.random.default_rng(1).lognormal(15.4, 0.5, 100_000).astype(np.int64)
    text = Histogram.of(values).encode()
    assert len(text) < 6000
    assert Histogram.decode(text).percentile_ns(99) == Histogram.of(values).percentile_ns(99)


GOOD = Histogram.of([1_000_000, 2_000_000, 90_000_000]).encode()


def with_byte_changed(index: int) -> str:
    raw = bytearray(base64.b64decode(GOOD))
    raw[index] ^= 0x55
    return base64.b64encode(raw).decode("ascii")


@pytest.mark.parametrize(
    "text",
    ["", "x", "ü", "AAAA", GOOD[:-8], *(with_byte_changed(index) for index in (0, 2, 5, 8, 12, -3))],
)
def test_a_damaged_stored_form_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"not an HdrHistogram V2 text: ."):
        Histogram.decode(text)


def test_a_stored_form_of_another_range_is_an_error() -> None:
    other = HdrHistogram(1, 3_600_000, 2)
    other.record_value(1000)
    with pytest.raises(ValueError, match=r"from 1 to 3600000 with 2 digits, not from 1 to 14400000000000 with 3"):
        Histogram.decode(other.encode().decode("ascii"))


def test_mean_and_deviation_are_exact_and_nothing_has_no_figures() -> None:
    histogram, empty = Histogram.of([2_000_001, 4_000_003, 9_000_005]), Histogram.of([])
    assert histogram.mean_ns() == 15_000_009 / 3
    assert histogram.stdev_ns() == pytest.approx(float(np.std([2_000_001, 4_000_003, 9_000_005], ddof=1)))
    assert Histogram.of([5]).stdev_ns() == 0.0
    assert histogram.share_within(0, 5_000_000) == pytest.approx(2 / 3)
    assert (empty.count, empty.percentile_ns(99), empty.mean_ns(), empty.stdev_ns()) == (0, 0, 0.0, 0.0)
    assert (empty.share_within(0, 10), empty.under_way_ns()) == (0.0, 0)
    assert Histogram.merged([]).count == Histogram.merged([empty, empty]).count == 0


@pytest.mark.parametrize(
    "values, under_way",
    [
        pytest.param([7_000] * 9, 7_000, id="all-alike"),
        pytest.param([50_000] * 200 + [50_000_000], 50_000_000, id="few-take-most-of-the-time"),
        pytest.param([50_000] * 2_000 + [50_000_000], 50_000, id="one-stall"),
        pytest.param([0, 0, 0], 0, id="no-time-at-all"),
    ],
)
def test_what_is_under_way_at_a_random_moment_is_what_the_time_goes_into(values: list[int], under_way: int) -> None:
    assert Histogram.of(values).under_way_ns() == pytest.approx(under_way, rel=1e-3)


def test_what_is_longer_than_the_range_counts_as_its_end_but_keeps_the_maximum() -> None:
    histogram = Histogram.of([5, 3 * HIGHEST_NS])
    assert (histogram.count, histogram.max_ns) == (2, 3 * HIGHEST_NS)
    assert histogram.percentile_ns(100) == pytest.approx(HIGHEST_NS, rel=1e-3)


def test_what_is_no_duration_or_percentile_is_refused() -> None:
    with pytest.raises(ValueError, match="a duration cannot be negative"):
        Histogram.of([3, -1])
    for percent in (-0.1, 100.1, float("nan")):
        with pytest.raises(ValueError, match="must lie between 0 and 100"):
            Histogram.of([1]).percentile_ns(percent)
