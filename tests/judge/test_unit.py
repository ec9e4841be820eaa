"""What one pair shows and the mean of many, also by the share of slow requests; start-ups that get slower."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import STABILISED, known, measured, pair, stalling, swapped
from measure.recordings import MS, recording_of, round_of

from pytest_fileperf.judge.difference import Difference
from pytest_fileperf.judge.evidence import Pair, pair_side
from pytest_fileperf.judge.ranks import difference_by_ranks
from pytest_fileperf.judge.unit import PairValue, mean_difference, trend_of, unit_of, units_of
from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round

RPS, P99 = METRICS["rps"], METRICS["p99"]


def turn(phase: Phase, requests: int, *, typical_rps: float | None = None) -> Round:
    return round_of(requests, phase=phase, length_ns=50 * MS, server_cpu_ns=requests * MS, typical_rps=typical_rps)


def test_a_side_has_the_rates_of_its_turns_and_the_latencies_of_everything() -> None:
    between, of_side = Phase.HANDOVER, Phase.ROUND
    phases = (between, of_side, between, between, of_side, between, Phase.DRAIN)
    rounds = [turn(phase, requests) for phase, requests in zip(phases, (7, 100, 1, 2, 200, 4, 1), strict=True)]
    side = pair_side(rounds, Boot(index=0, memory=((0, 10), (20, 30))))
    assert [turn["rps"] for turn in side.turns] == [2000, 4000]
    assert [turn["cpu_per_request"] for turn in side.turns] == pytest.approx([0.001, 0.001])
    assert all("p99" not in turn for turn in side.turns)
    assert side.latency.count == 315
    assert [stretch.count for stretch in side.stretches] == [107, 208]
    assert side.memory == ((0, 10), (20, 30))


def test_what_a_turn_cannot_tell_is_left_out_and_rates_by_its_typical_pace() -> None:
    side = pair_side([turn(Phase.ROUND, 0)])
    assert (side.turns[0]["rps"], "cpu_per_request" in side.turns[0], side.runs) == (0, False, {})
    rounds = [turn(Phase.HANDOVER, 3), turn(Phase.ROUND, 100, typical_rps=2500.0), turn(Phase.ROUND, 1)]
    assert pair_side(rounds).typical == ({"rps": 2500, "throughput": 2_500_000}, {})


def test_each_pair_shows_a_change_with_its_own_interval() -> None:
    steady = pair([1000] * 5, [900] * 5)
    noisy = pair([1000] * 5, [1000 * math.exp(at / 10) for at in (-2, -1, 0, 1, 2)])
    first, second = (known(unit_of(RPS, one, total=False)).changes(RPS) for one in (steady, noisy))
    assert first == pytest.approx([-0.1] * 3)
    margin = 1.6449 * math.sqrt(math.pi / 3 * 0.025 / 5)
    assert second == pytest.approx([0, math.exp(-margin) - 1, math.exp(margin) - 1], abs=1e-9)


def test_a_greater_latency_is_a_greater_change_and_pairs_that_are_judged_together_are_one() -> None:
    ((_, unit),) = units_of(P99, [pair((), (), now_ms=[10])])
    assert known(unit).changes(P99)[0] == pytest.approx(1, abs=0.003)
    found = units_of(P99, [pair((), (), requests=requests) for requests in (300, 150, 150, 10)])
    assert [len(own) for own, _ in found] == [1, 3]


# --- The mean of what pairs show


def units(*known: tuple[float, ...]) -> Difference:
    """Returns the mean of units: values, variances and numbers of cycles."""
    made = (PairValue(**dict(zip(("value", "variance", "cycles"), one, strict=False))) for one in known)  # type: ignore[arg-type]
    return mean_difference(list(made), usual=0.01, boots_anew=True)


def test_two_exact_units_far_apart_have_an_error_like_their_distance_whatever_inexact_ones_say() -> None:
    found = units((0.0, 0.0), (0.34, 0.0), (0.16, 0.03), (0.18, 0.03), (0.17, 0.03))
    assert found.worse == pytest.approx(0.17, abs=0.01)
    assert 0.01 < found.error < 0.34


@pytest.mark.parametrize(
    "others, own, weights",
    [
        # As if ten cycles more had deviated as usual: a unit whose own say that it is exact is not taken for that.
        pytest.param((40e-4 / 20, 20), (0.0, 20), (2e-4, 10 * 40e-4 / 30 / 20), id="moderated by those of all"),
        # Ten elevenths of it: as if ten more had told it, and its own had deviated by nothing.
        pytest.param((33e-4 / 3, 3), (0.0, 1), (11e-4, 30e-4), id="one cycle"),
        pytest.param((0.0,), (3e-4,), (0.0, 3e-4), id="variances that no cycles told"),
    ],
)
def test_how_exactly_a_unit_is_known(
    others: tuple[float, ...], own: tuple[float, ...], weights: tuple[float, float]
) -> None:
    found = units((0.0, *others), (0.0, *others), (0.03, *own))
    of_others, of_own = (1 / (1e-4 + variance) for variance in weights)
    assert found.worse == pytest.approx(0.03 * of_own / (2 * of_others + of_own))


def test_units_of_one_cycle_each_are_as_uncertain_as_they_differ() -> None:
    """Student's t of the mean of 0.1, 0.2 and 0.6, by hand: squares of 0.14 on two degrees of freedom.

    One unit of more cycles does not tell how uncertain the others are.
    """
    found = units((0.1, 0.0, 1), (0.2, 0.0, 1), (0.6, 0.0, 1))
    assert [found.worse, found.df, found.error] == pytest.approx([0.3, 2, math.sqrt(0.14 / 2 / 3)])
    for cycles in (1, 2):
        found = units(*((value, (cycles - 1) * 1e-9, cycles) for value in (0.1, 0.2, 0.6)), (0.3, 1e-9, 3))
        assert [found.worse, found.df, found.error] == pytest.approx([0.3, 3, math.sqrt(0.14 / 3 / 4)])


@pytest.mark.parametrize("apart, df", [(0.0083, 1 + 2), (0.0084, 2)])
def test_they_are_moderated_while_they_differ_no_more_than_boots_do(apart: float, df: float) -> None:
    """By hand: two of the squares, each of 0.833 deviations, are 1.386, the median of chi squared."""
    assert units(*((value, 0.0, 1) for value in (-apart, 0.0, apart))).df == df


@pytest.mark.parametrize("later", [(), (2,), (4, 4)])
@pytest.mark.parametrize("sd", [0.03, 0.5])
def test_noise_beyond_the_usual_is_not_taken_for_a_change(sd: float, later: tuple[int, ...]) -> None:
    """Three units of one cycle each, then some of more, whose cycles deviate by so much: few more than 1 % err."""
    rng, times, wrong = np.random.default_rng(1), 400, 0
    for _ in range(times):
        made = []
        for cycles in (1, 1, 1, *later):
            deviations = rng.normal(0, sd, cycles)
            variance = float(deviations.var(ddof=1)) / cycles if cycles > 1 else 0.0
            made.append((float(deviations.mean()), variance, cycles))
        wrong += units(*made).is_above(0.0, 0.01)
    assert wrong <= 12


# --- Start-ups that get slower one after another


def recorded(rates: Sequence[Sequence[float]]) -> Recording:
    rounds = (
        round_of(latency=EMPTY, boot=boot, index=index, requests=round(rate), server_cpu_ns=round(rate * 0.1 * MS))
        for boot, of_boot in enumerate(rates)
        for index, rate in enumerate(of_boot)
    )
    return recording_of(*rounds, boots=tuple(Boot(index=boot) for boot in range(len(rates))))


def test_start_ups_that_get_slower_one_after_another_are_noticed() -> None:
    levels = trend_of(recorded([[1728, 1730, 1700], [1400, 1410, 1390], [992, 990, 1000], [780, 779, 790]]))
    assert [round(level, -1) for level in levels] == [1720, 1400, 990, 780]


@pytest.mark.parametrize(
    "levels",
    [(1728, 780), (1000, 980, 960, 940), (1000, 990, 500, 495), (1000, 700, 800, 500)],
    ids=["few start-ups", "small changes", "a single jump", "up and down"],
)
def test_there_is_no_trend(levels: tuple[int, ...]) -> None:
    assert trend_of(recorded([[level] * 4 for level in levels])) == ()


@pytest.mark.parametrize(
    "others, is_trend",
    [((1000, 980, 1010), True), ((1000, 400, 900), False), ((1000, 700, 480), True)],
    ids=["alike", "as different, in no order", "the same trend"],
)
def test_the_other_version_shows_how_much_start_ups_differ(others: tuple[int, ...], is_trend: bool) -> None:
    falling, beside = (recorded([[level] * 4 for level in levels]) for levels in ((1000, 700, 500), others))
    assert (trend_of(falling, beside) != ()) is is_trend


def test_the_same_code_has_a_trend_by_chance_in_at_most_1_of_200_measurements() -> None:
    """Start-ups differ by 1 to 6 %, rounds by 3 to 9 %, and the machine drifts by up to 4 % a minute.

    Were it 1 of 100, more than 5 of 1,000 would be seen 14 times of 15.
    """
    rng, found = np.random.default_rng(2026), 0
    for _ in range(1000):
        of_boots, of_rounds, drift = rng.uniform(0.01, 0.06), rng.uniform(0.03, 0.09), rng.normal(0, 0.012)
        boots = int(rng.integers(3, 7))
        levels = rng.normal(0, of_boots, boots) + drift * np.arange(boots)
        rates = 2000 * np.exp(levels[:, None] + rng.normal(0, of_rounds, (boots, 4)))
        found += trend_of(recorded(rates.tolist())) != ()
    assert found <= 5


# --- a percentile's interval by the share of slow requests: what it holds, what bounds nothing, how often it errs


P50 = METRICS["p50"]
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
    """Half of a hundred comparisons are above 0; the share is within three of its deviations."""
    rng = np.random.default_rng(RNG_SEED)
    above = 0
    for _ in range(100):
        found = worse(pairs([(usual_ms(rng, 1000), usual_ms(rng, 1000)) for _ in range(12)]))
        above += found.is_above(0.0, 0.5)
    assert 35 <= above <= 65, above


@pytest.mark.parametrize(
    "latencies, requests, boot_sd, usual",
    [(usual_ms, 1000, 0.0, 0.04), (paused_ms, 1000, 0.04, 0.04), (usual_ms, 1000, 0.28, 0.28)],
)
def test_an_error_of_one_in_a_hundred_is_at_most_that(
    latencies: Callable[[np.random.Generator, int], np.ndarray], requests: int, boot_sd: float, usual: float
) -> None:
    """Were it 8 of 100 comparisons of the same code, one of 45 would be seen 39 times of 40."""
    rng = np.random.default_rng(RNG_SEED)
    wrong = 0
    for _ in range(45):
        boots = np.exp(boot_sd * rng.standard_normal(5))
        made = pairs([(latencies(rng, requests), boot * latencies(rng, requests)) for boot in boots])
        found = difference_by_ranks(P99, made, usual=usual)
        wrong += found is not None and found.is_above(0.0, 0.01)
    assert wrong == 0


def test_so_it_is_where_requests_stall_together() -> None:
    """Between stalls and with them. Were it 1 of 8 comparisons, one of 24 would be seen 19 times of 20."""
    wrong = {True: 0, False: 0}
    for seed in range(24):
        made = stalling(seed)
        for calm in wrong:
            found = difference_by_ranks(P99, made, usual=0.04, calm=calm)
            wrong[calm] += found is not None and found.is_above(0.0, 0.01)
    assert max(wrong.values()) == 0, wrong
