"""What one pair shows and the mean of many; and start-ups that get slower one after another."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from judge.sides import pair
from measure.recordings import MS, recording_of, round_of

from pytest_fileperf.judge.difference import Difference
from pytest_fileperf.judge.evidence import pair_side
from pytest_fileperf.judge.trend import trend_of
from pytest_fileperf.judge.unit import PairValue, changes, mean_difference
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
    side = pair_side(rounds, ((0, 10), (20, 30)))
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
    first, second = changes(RPS, [steady, noisy])
    assert (first.first, first.pairs, second.first, second.pairs) == (0, 1, 1, 1)
    assert [first.value, first.low, first.high] == pytest.approx([-0.1] * 3)
    assert second.value == pytest.approx(0)
    margin = 1.6449 * math.sqrt(math.pi / 3 * 0.025 / 5)
    assert [second.low, second.high] == pytest.approx([math.exp(-margin) - 1, math.exp(margin) - 1])


def test_a_greater_latency_is_a_greater_change_and_pairs_that_are_judged_together_are_one() -> None:
    (change,) = changes(P99, [pair((), (), now_ms=[10])])
    assert change.value == pytest.approx(1, abs=0.003)
    found = changes(P99, [pair((), (), requests=requests) for requests in (300, 150, 150, 10)])
    assert [(change.first, change.pairs) for change in found] == [(0, 1), (1, 3)]


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
    trend = trend_of(recorded([[1728, 1730, 1700], [1400, 1410, 1390], [992, 990, 1000], [780, 779, 790]]))
    assert trend is not None
    assert (trend.falls, trend.of_rate) == (True, True)
    assert [round(level, -1) for level in trend.levels] == [1720, 1400, 990, 780]


@pytest.mark.parametrize(
    "levels",
    [(1728, 780), (1000, 980, 960, 940), (1000, 990, 500, 495), (1000, 700, 800, 500)],
    ids=["few start-ups", "small changes", "a single jump", "up and down"],
)
def test_there_is_no_trend(levels: tuple[int, ...]) -> None:
    assert trend_of(recorded([[level] * 4 for level in levels])) is None


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
        found += trend_of(recorded(rates.tolist())) is not None
    assert found <= 5
