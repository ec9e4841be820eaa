"""A percentile's interval by the share of slow requests: what it holds, what bounds nothing, and how often it errs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import STABILISED, known, measured, stalling, swapped

from pytest_fileperf.judge.difference import Difference
from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.ranks import difference_by_ranks
from pytest_fileperf.measure.metrics import METRICS

P50, P99 = METRICS["p50"], METRICS["p99"]
RNG_SEED = 4


def usual_ms(rng: np.random.Generator, requests: int) -> np.ndarray:
    """Smooth, its p99 some 3 times its p50."""
    return 5.0 * np.exp(0.47 * rng.standard_normal(requests))


def paused_ms(rng: np.random.Generator, requests: int, *, share: float = 0.008) -> np.ndarray:
    """Nearly 1 request of 100 waits for a pause of 50 ms, so that p99 lies where latency jumps."""
    return usual_ms(rng, requests) * 0.5 + 50.0 * (rng.random(requests) < share)


def pairs(made: Sequence[tuple[np.ndarray, np.ndarray]], *, boots_anew: bool = True) -> list[Pair]:
    return [
        Pair(base=measured(base), now=measured(now), stabilised=STABILISED, base_boots_anew=boots_anew)
        for base, now in made
    ]


def worse(made: Sequence[Pair], *, usual: float = 0.04, calm: bool = False) -> Difference:
    return known(difference_by_ranks(P99, made, usual=usual, calm=calm))


def smooth(ratio: float, *, count: int = 8, requests: int = 5000) -> list[Pair]:
    rng = np.random.default_rng(RNG_SEED)
    return pairs([(usual_ms(rng, requests), ratio * usual_ms(rng, requests)) for _ in range(count)])


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.1, 4.0])
def test_the_interval_holds_the_ratio_by_which_all_latencies_differ(ratio: float) -> None:
    made = smooth(ratio)
    found, other = worse(made), worse(swapped(made))
    assert found.low(0.001) < found.low(0.05) < math.log(ratio) < found.high(0.05) < found.high(0.001)
    assert found.low(0.05) <= found.worse <= found.high(0.05)
    assert found.high(0.05) - found.low(0.05) < 0.2
    assert other.worse == pytest.approx(-found.worse, abs=0.02)
    assert (other.high(0.001) < 0) is (found.low(0.001) > 0)


@pytest.mark.parametrize("share, is_worse", [(0.008, False), (0.016, True)])
def test_where_latency_jumps_twice_as_many_slow_requests_are_found_and_luck_is_not(
    share: float, is_worse: bool
) -> None:
    rng = np.random.default_rng(RNG_SEED)
    made = pairs([(paused_ms(rng, 5000), paused_ms(rng, 5000, share=share)) for _ in range(8)])
    assert (worse(made).low(0.001) > math.log(1.1)) is is_worse


def test_pairs_make_it_narrower_unless_they_are_slow_on_both_sides_or_empty_on_one() -> None:
    made, rng = smooth(1.0), np.random.default_rng(RNG_SEED + 1)
    assert worse(smooth(1.0, count=32)).error < worse(smooth(1.0, count=4)).error / 2
    slow = pairs([(3 * usual_ms(rng, 5000), 3 * usual_ms(rng, 5000))])
    assert worse([*made, *slow]).error < 1.1 * worse(made).error
    empty = pairs([(np.array([]), np.full(10, 5.0))])
    assert worse([*made, *empty]).df == worse(made).df


def test_too_few_pairs_or_requests_or_one_pair_with_all_slow_ones_bound_nothing() -> None:
    assert difference_by_ranks(P99, smooth(4.0, count=2), usual=0.04) is None
    assert difference_by_ranks(P99, smooth(4.0, requests=100), usual=0.04) is None
    assert difference_by_ranks(P50, smooth(4.0, requests=100), usual=0.01) is not None
    steady = np.full(300, 5.0)
    paused = measured(np.concatenate((steady[:200], np.full(100, 50.0))), stretches=3)
    made = pairs([(steady, steady)] * 3)
    assert difference_by_ranks(P99, [*made, replace(made[0], base=paused)], usual=0.04) is None


def test_between_stalls_single_slow_requests_are_found_and_with_all_requests_stalls() -> None:
    found = [worse(stalling(seed, slow=0.01), calm=calm).low(0.001) for seed in range(5) for calm in (True, False)]
    assert all(low > math.log(1.1) for low in found[::2])
    assert sum(low > math.log(1.1) for low in found[1::2]) <= 2
    assert worse(stalling(stalls=0.12)).low(0.001) > math.log(1.1)


def test_without_stalls_both_say_the_same_and_without_stretches_of_both_sides_only_one_does() -> None:
    made = stalling(stalls=0.0, base_stalls=0.0)
    bounds = [[one.worse, one.low(0.05), one.high(0.05)] for one in (worse(made, calm=True), worse(made))]
    assert bounds[0] == pytest.approx(bounds[1], abs=0.02)
    whole = [replace(each, base=replace(each.base, stretches=())) for each in stalling()]
    assert difference_by_ranks(P99, whole, usual=0.04, calm=True) is None
    assert difference_by_ranks(P99, whole, usual=0.04) is not None


def test_requests_that_all_take_as_long_differ_by_what_boots_do() -> None:
    """Of 4 pairs: not by chance at 5 %, by chance at 1 in 10,000."""
    found = worse(pairs([(np.full(1000, 5.0), np.full(1000, 5.5))] * 4))
    assert found.worse == pytest.approx(math.log(1.1), abs=0.002)
    assert found.low(0.05) == pytest.approx(found.worse)
    assert 0.03 < found.worse - found.low(1e-4) < 0.1


def test_a_base_that_is_always_the_same_boot_leaves_its_luck_in_however_many_pairs() -> None:
    rng = np.random.default_rng(RNG_SEED)
    made = [(usual_ms(rng, 3000), usual_ms(rng, 3000)) for _ in range(60)]
    anew, same = (worse(pairs(made, boots_anew=boots_anew), usual=0.2) for boots_anew in (True, False))
    assert same.error > 0.2 / math.sqrt(2) > 2 * anew.error


SIDES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=40)


@settings(max_examples=50)
@given(
    st.lists(st.tuples(SIDES, SIDES), min_size=3, max_size=6), st.sampled_from([50, 99, 99.9]), st.floats(0.001, 0.5)
)
def test_whatever_was_measured_bounds_are_in_order_and_no_number_is_missing(
    made: list[tuple[list[float], list[float]]], percent: float, usual: float
) -> None:
    metric = replace(P99, percentile=percent, least_requests=1)
    found = difference_by_ranks(metric, pairs([(np.array(base), np.array(now)) for base, now in made]), usual=usual)
    if found is None:
        return
    bounds = [found.low(0.001), found.low(0.05), found.high(0.05), found.high(0.001)]
    assert bounds == sorted(bounds)
    assert all(map(math.isfinite, (found.low(1e-9), bounds[2], found.error)))
    assert not (found.is_above(0.0, 0.05) and found.is_below(0.0, 0.05))


# --- How often it errs


def test_of_the_same_code_neither_side_has_more_slow_requests_in_the_mean() -> None:
    """Half of two hundred comparisons are above 0; the share is within three of its deviations."""
    rng = np.random.default_rng(RNG_SEED)
    above = 0
    for _ in range(200):
        found = worse(pairs([(usual_ms(rng, 1000), usual_ms(rng, 1000)) for _ in range(12)]))
        above += found.is_above(0.0, 0.5)
    assert 79 <= above <= 121, above


@pytest.mark.parametrize(
    "latencies, requests, boot_sd, usual",
    [(usual_ms, 1000, 0.0, 0.04), (paused_ms, 1000, 0.04, 0.04), (usual_ms, 1000, 0.28, 0.28)],
)
def test_an_error_of_one_in_a_hundred_is_at_most_that(
    latencies: Callable[[np.random.Generator, int], np.ndarray], requests: int, boot_sd: float, usual: float
) -> None:
    """Of 120 comparisons of the same code 1 is expected; were it 10, more than 4 would be seen 39 times of 40."""
    rng = np.random.default_rng(RNG_SEED)
    wrong = 0
    for _ in range(120):
        boots = np.exp(boot_sd * rng.standard_normal(5))
        made = pairs([(latencies(rng, requests), boot * latencies(rng, requests)) for boot in boots])
        found = difference_by_ranks(P99, made, usual=usual)
        wrong += found is not None and found.is_above(0.0, 0.01)
    assert wrong <= 4


def test_so_it_is_where_requests_stall_together() -> None:
    """Between stalls and with them. Were it 5 of 46 comparisons, more than 1 would be seen 19 times of 20."""
    wrong = {True: 0, False: 0}
    for seed in range(46):
        made = stalling(seed)
        for calm in wrong:
            found = difference_by_ranks(P99, made, usual=0.04, calm=calm)
            wrong[calm] += found is not None and found.is_above(0.0, 0.01)
    assert max(wrong.values()) <= 1, wrong
