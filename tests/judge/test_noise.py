from __future__ import annotations

import math

import pytest
from judge.pairs import pair

from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.paired import ASKED, compare_pairs, noise_floor
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.metrics import METRICS

RPS, P99 = METRICS["rps"], METRICS["p99"]
EVEN = (990.0, 1010.0, 1000.0, 1005.0, 995.0, 1000.0)
ALPHA = 0.001


def pairs(spread: float, count: int = 9) -> list[Pair]:
    """Returns pairs of the same code whose boots differ by so much, in turn in both directions."""
    ratios = (1 - spread, 1.0, 1 + spread)
    return [pair(EVEN, [value * ratios[number % 3] for value in EVEN], requests=500) for number in range(count)]


def test_the_smallest_worsening_is_that_of_the_last_look() -> None:
    floor = noise_floor(RPS, pairs(0.02), tolerance=0.015, alpha=ALPHA, seconds=60)
    last = compare_pairs(RPS, pairs(0.02), tolerance=0.015, alpha=ALPHA, share=RULES.looks[-1][1])
    assert (floor.metric, floor.seconds) == ("rps", 60)
    assert floor.smallest == pytest.approx(last.detectable)


def test_noisier_machines_see_less_and_need_longer() -> None:
    quiet, noisy = (noise_floor(RPS, pairs(at), tolerance=0.015, alpha=ALPHA, seconds=60) for at in (0.01, 0.1))
    assert quiet.smallest is not None
    assert noisy.smallest is not None
    assert quiet.smallest < noisy.smallest
    assert all(quiet.seconds_for[change] < noisy.seconds_for[change] for change in ASKED)


@pytest.mark.parametrize("tolerance", [0.015, 0.05, 0.5])
def test_every_change_has_a_time_whatever_the_tolerance(tolerance: float) -> None:
    floor = noise_floor(RPS, pairs(0.02), tolerance=tolerance, alpha=ALPHA, seconds=60)
    assert set(floor.seconds_for) == set(ASKED)
    assert all(0 < seconds < math.inf for seconds in floor.seconds_for.values())
    assert floor.seconds_for[0.02] > floor.seconds_for[0.05]


def test_the_time_for_the_smallest_worsening_is_the_time_there_was() -> None:
    """By the square root law; found by trying changes, as only those of interest are told."""
    floor = noise_floor(RPS, pairs(0.02), tolerance=0.005, alpha=ALPHA, seconds=60)
    assert floor.smallest is not None
    side_of_change = [floor.smallest < change for change in ASKED]
    assert [floor.seconds_for[change] < 60 for change in ASKED] == side_of_change


def test_too_little_to_tell_has_no_figures() -> None:
    floor = noise_floor(P99, pairs(0.02, count=2), tolerance=0.1, alpha=ALPHA, seconds=7)
    assert (floor.metric, floor.seconds, floor.smallest, floor.seconds_for) == ("p99", 7, None, {})
