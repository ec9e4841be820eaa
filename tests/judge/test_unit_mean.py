from __future__ import annotations

import math

import numpy as np
import pytest

from pytest_fileperf.judge.difference import Difference
from pytest_fileperf.judge.unit import PairValue, mean_difference


def worse(*values: float) -> Difference:
    """Of units that are known as exactly as two boots are alike: by 0.01."""
    return mean_difference([PairValue(value=value, variance=0.0) for value in values], usual=0.01, boots_anew=True)


def test_units_that_are_near_each_other_have_their_mean() -> None:
    found = worse(0.01, 0.02, 0.03)
    assert [found.worse, found.error] == pytest.approx([0.02, 0.01 / math.sqrt(3)])


def test_a_unit_far_off_moves_the_mean_by_its_weight() -> None:
    assert worse(*[0.0] * 8, 0.9).worse == pytest.approx(0.1)


def test_two_camps_have_the_middle_and_an_error_as_great_as_their_distance_makes() -> None:
    found = worse(*[-0.1, 0.1] * 4)
    assert found.worse == pytest.approx(0.0, abs=1e-8)
    assert found.error == pytest.approx(math.sqrt((8 + 8 * 100) / 15 / 8) * 0.01)


def test_two_exact_units_far_apart_have_an_error_like_their_distance_whatever_inexact_ones_say() -> None:
    known = [(0.0, 0.0), (0.34, 0.0), (0.16, 0.03), (0.18, 0.03), (0.17, 0.03)]
    units = [PairValue(value=value, variance=variance) for value, variance in known]
    found = mean_difference(units, usual=0.01, boots_anew=True)
    assert found.worse == pytest.approx(0.17, abs=0.01)
    assert 0.01 < found.error < 0.34


def test_bounds_lie_on_both_sides() -> None:
    found = worse(0.0, 0.0, 0.0)
    assert [found.low(0.05), found.high(0.05)] == pytest.approx([-found.margin(0.05), found.margin(0.05)])


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
