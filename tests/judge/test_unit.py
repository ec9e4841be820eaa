from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.pairs import pair
from judge.sides import MS, round_of

from pytest_fileperf.judge.evidence import pair_side
from pytest_fileperf.judge.paired import paired_difference
from pytest_fileperf.judge.unit import PairValue, changes, mean_difference
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Round

RPS, P99 = METRICS["rps"], METRICS["p99"]


def turn(phase: Phase, requests: int, *, typical_rps: float | None = None) -> Round:
    return round_of(requests, phase=phase, length_ns=50 * MS, server_cpu_ns=requests * MS, typical_rps=typical_rps)


def test_a_side_has_the_rates_of_its_turns_and_the_latencies_of_everything() -> None:
    rounds = [
        turn(phase, requests)
        for phase, requests in (
            (Phase.HANDOVER, 7), (Phase.ROUND, 100), (Phase.HANDOVER, 1), (Phase.HANDOVER, 2), (Phase.ROUND, 200),
            (Phase.HANDOVER, 4), (Phase.DRAIN, 1),
        )
    ]  # fmt: skip
    side = pair_side(rounds, ((0, 10), (20, 30)))
    assert [turn["rps"] for turn in side.turns] == [2000, 4000]
    assert [turn["cpu_per_request"] for turn in side.turns] == pytest.approx([0.001, 0.001])
    assert all("p99" not in turn for turn in side.turns)
    assert side.latency.count == 315
    assert [stretch.count for stretch in side.stretches] == [107, 208]
    assert side.memory == ((0, 10), (20, 30))


def test_what_a_turn_cannot_tell_is_left_out() -> None:
    side = pair_side([turn(Phase.ROUND, 0)])
    assert side.turns[0]["rps"] == 0
    assert "cpu_per_request" not in side.turns[0]
    assert side.runs == {}


def test_rates_by_the_typical_pace_of_a_turn() -> None:
    rounds = [turn(Phase.HANDOVER, 3), turn(Phase.ROUND, 100, typical_rps=2500.0), turn(Phase.ROUND, 1)]
    assert pair_side(rounds).typical == ({"rps": 2500, "throughput": 2_500_000}, {})


def test_each_pair_shows_a_change_with_its_own_interval() -> None:
    steady = pair([1000] * 5, [900] * 5)
    noisy = pair([1000] * 5, [1000 * math.exp(at / 10) for at in (-2, -1, 0, 1, 2)])
    first, second = changes(RPS, [steady, noisy])
    assert (first.first, first.pairs, second.first, second.pairs) == (0, 1, 1, 1)
    assert [first.value, first.low, first.high] == pytest.approx([-0.1] * 3)
    assert second.value == pytest.approx(0)
    margin = 1.6449 * math.sqrt(math.pi / 3 * 0.025 / 5)
    assert [second.low, second.high] == pytest.approx([math.exp(-margin) - 1, math.exp(margin) - 1])


def test_a_greater_latency_is_a_greater_change() -> None:
    (change,) = changes(P99, [pair((), (), now_ms=[10])])
    assert change.value == pytest.approx(1, abs=0.003)


def test_pairs_that_are_judged_together_are_one_change() -> None:
    found = changes(P99, [pair((), (), requests=requests) for requests in (300, 150, 150, 10)])
    assert [(change.first, change.pairs) for change in found] == [(0, 1), (1, 3)]


@given(st.lists(st.tuples(st.floats(10, 1e4), st.floats(10, 1e4)), min_size=3, max_size=8))
def test_all_pairs_together_lie_among_them(rates: list[tuple[float, float]]) -> None:
    pairs = [pair([base], [now], requests=10) for base, now in rates]
    together, each = paired_difference(RPS, pairs), [change.value for change in changes(RPS, pairs)]
    assert together is not None
    assert min(each) - 1e-9 <= math.exp(-together.worse) - 1 <= max(each) + 1e-9


# --- The mean of what pairs show


def test_two_exact_units_far_apart_have_an_error_like_their_distance_whatever_inexact_ones_say() -> None:
    known = [(0.0, 0.0), (0.34, 0.0), (0.16, 0.03), (0.18, 0.03), (0.17, 0.03)]
    units = [PairValue(value=value, variance=variance) for value, variance in known]
    found = mean_difference(units, usual=0.01, boots_anew=True)
    assert found.worse == pytest.approx(0.17, abs=0.01)
    assert 0.01 < found.error < 0.34


def test_how_much_a_unit_s_cycles_deviate_is_moderated_by_how_much_those_of_all_do() -> None:
    """As if ten cycles more had deviated as usual: a unit whose own say that it is exact is not taken for that."""
    known = [(0.00, 40e-4 / 20), (0.00, 40e-4 / 20), (0.03, 0.0)]
    units = [PairValue(value=value, variance=variance, cycles=20) for value, variance in known]
    found = mean_difference(units, usual=0.01, boots_anew=True)
    moderated = (10 * 40e-4 + 20 * 0.0) / 30 / 20
    weights = [1 / (1e-4 + 2e-4), 1 / (1e-4 + 2e-4), 1 / (1e-4 + moderated)]
    assert found.worse == pytest.approx(0.03 * weights[2] / sum(weights))


def test_a_unit_of_one_cycle_is_as_uncertain_as_a_cycle_usually_is() -> None:
    """Ten elevenths of it: as if ten more had told it, and its own had deviated by nothing."""
    several = [PairValue(value=0.0, variance=33e-4 / 3, cycles=3)] * 2
    one = PairValue(value=0.03, variance=0.0, cycles=1)
    found = mean_difference([*several, one], usual=0.01, boots_anew=True)
    weights = [1 / (1e-4 + 11e-4), 1 / (1e-4 + 11e-4), 1 / (1e-4 + 30e-4)]
    assert found.worse == pytest.approx(0.03 * weights[2] / sum(weights))


def test_variances_that_no_cycles_told_are_left_alone() -> None:
    units = [
        PairValue(value=0.0, variance=0.0),
        PairValue(value=0.03, variance=3e-4),
        PairValue(value=0.03, variance=3e-4),
    ]
    found = mean_difference(units, usual=0.01, boots_anew=True)
    assert found.worse == pytest.approx(0.03 * 2 / (4 + 2))


def test_units_of_one_cycle_each_are_as_uncertain_as_they_differ() -> None:
    """Student's t of the mean of 0.1, 0.2 and 0.6, by hand: squares of 0.14 on two degrees of freedom."""
    units = [PairValue(value=value, variance=0.0, cycles=1) for value in (0.1, 0.2, 0.6)]
    found = mean_difference(units, usual=0.01, boots_anew=True)
    assert [found.worse, found.df, found.error] == pytest.approx([0.3, 2, math.sqrt(0.14 / 2 / 3)])


@pytest.mark.parametrize("apart, df", [(0.0083, 1 + 2), (0.0084, 2)])
def test_they_are_moderated_while_they_differ_no_more_than_boots_do(apart: float, df: float) -> None:
    """By hand: two of the squares, each of 0.833 deviations, are 1.386, the median of chi squared."""
    units = [PairValue(value=value, variance=0.0, cycles=1) for value in (-apart, 0.0, apart)]
    assert mean_difference(units, usual=0.01, boots_anew=True).df == df


@pytest.mark.parametrize("cycles", [1, 2])
def test_one_unit_of_more_cycles_does_not_tell_how_uncertain_the_others_are(cycles: int) -> None:
    units = [PairValue(value=value, variance=(cycles - 1) * 1e-9, cycles=cycles) for value in (0.1, 0.2, 0.6)]
    found = mean_difference([*units, PairValue(value=0.3, variance=1e-9, cycles=3)], usual=0.01, boots_anew=True)
    assert [found.worse, found.df, found.error] == pytest.approx([0.3, 3, math.sqrt(0.14 / 3 / 4)])


@pytest.mark.parametrize("later", [(), (1, 1), (2,), (2, 2), (4, 4)])
@pytest.mark.parametrize("sd", [0.03, 0.1, 0.5])
def test_noise_beyond_the_usual_is_not_taken_for_a_change(sd: float, later: tuple[int, ...]) -> None:
    """Three units of one cycle each, then some of more, whose cycles deviate by so much: few more than 1 % err."""
    rng, times, wrong = np.random.default_rng(1), 400, 0
    for _ in range(times):
        units = []
        for cycles in (1, 1, 1, *later):
            deviations = rng.normal(0, sd, cycles)
            variance = float(deviations.var(ddof=1)) / cycles if cycles > 1 else 0.0
            units.append(PairValue(value=float(deviations.mean()), variance=variance, cycles=cycles))
        wrong += mean_difference(units, usual=0.01, boots_anew=True).is_above(0.0, 0.01)
    assert wrong <= 12
