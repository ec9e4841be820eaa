"""How exactly a level is known, by boots and rounds."""

from __future__ import annotations

import math

import pytest
from judge.sides import STABILISED, Noise, boot, side

from pytest_fileperf.judge.evidence import Evidence, level_of, precision_of
from pytest_fileperf.measure.metrics import METRICS

RPS = METRICS["rps"]


def test_it_is_the_usual_deviation_of_boots_and_rounds_where_little_is_known() -> None:
    """A boot of four rounds: 1 % of its own, and the usual 3 % of a round, whose weight is 4 beside these 3."""
    one = Evidence(boots=(boot(1000, 1000, 1000, 1000),), stabilised=STABILISED)
    assert precision_of(RPS, one) == pytest.approx(math.hypot(0.01, 0.03 * math.sqrt(4 / 7 * math.pi / 3 / 4)))


def test_more_boots_and_more_rounds_are_more_exact() -> None:
    errors = [precision_of(RPS, side(*[2000, 2050, 1950] * times)) for times in (1, 3)]
    assert errors[0] / errors[1] > math.sqrt(3) / 1.1
    few, many = (Evidence(boots=(boot(*[990, 1010] * rounds),) * 3, stabilised=STABILISED) for rounds in (2, 12))
    assert precision_of(RPS, many) < precision_of(RPS, few)


def test_boots_that_differ_are_less_exact_and_so_are_those_that_were_not_stabilised() -> None:
    assert precision_of(RPS, side(2000, 2300, 1750)) > 3 * precision_of(RPS, side(2000, 2010, 1990))
    assert precision_of(RPS, side(2000, 2010, 1990, stabilised=())) > 2 * precision_of(RPS, side(2000, 2010, 1990))


def test_no_level_is_not_known_at_all() -> None:
    assert precision_of(RPS, Evidence(boots=())) == math.inf
    assert precision_of(METRICS["rss"], side(2000)) == math.inf


def test_it_is_what_levels_of_one_session_deviate_by() -> None:
    """Simulated: 300 sessions of three boots of six rounds."""
    import numpy as np

    rng, noise = np.random.default_rng(7), Noise(rounds=6, far_off=0.0)
    sides = [noise.rates(rng, 7.6) for _ in range(300)]
    levels = [level.mean for one in sides if (level := level_of(RPS, one)) is not None]
    told = math.sqrt(sum(precision_of(RPS, one) ** 2 for one in sides) / len(sides))
    assert told == pytest.approx(float(np.std(levels)), rel=0.15)
