"""Draws of instants: each alone is as chance has it, and several together are as crowded as draws are on average."""

from __future__ import annotations

import random
from statistics import fmean, pstdev

import numpy as np
import pytest

from pytest_fileperf.plan.pacing import crowding, instants, place_of, spread_seed

SECOND = 1_000_000_000
RATE, LENGTH = 160.0, 2 * SECOND
SERVICE = SECOND / 200


def crowding_of(seed: int) -> float:
    return crowding(instants(RATE, LENGTH, seed), SERVICE)


def spread(chance: random.Random, place: float) -> float:
    return crowding_of(spread_seed(chance, place, rate=RATE, duration_ns=LENGTH, from_ns=0, busy_rate=200.0))


@pytest.mark.parametrize(
    "due,waited",
    [
        pytest.param([], 0.0, id="nothing"),
        pytest.param([0, 10, 20], 0.0, id="just in time"),
        pytest.param([0, 0, 0], 10.0, id="all at once"),
        pytest.param([0, 0, 100], 10 / 3, id="a gap clears the queue"),
    ],
)
def test_crowding_is_the_mean_wait_in_a_queue(due: list[int], waited: float) -> None:
    assert crowding(np.array(due, dtype=np.int64), 10.0) == pytest.approx(waited)


def test_a_warm_up_fills_the_queue_but_is_not_counted() -> None:
    assert crowding(np.array([0, 0, 0, 15]), 10.0, from_ns=15) == pytest.approx(15.0)


def test_draws_in_all_places_are_as_crowded_together_as_draws_by_chance() -> None:
    chance = random.Random(1)
    by_chance = [crowding_of(seed) for seed in range(400)]
    in_places = [spread(chance, place_of(number, 0.3)) for number in range(60)]
    error = pstdev(by_chance) / len(in_places) ** 0.5
    assert abs(fmean(in_places) - fmean(by_chance)) < 2 * error


def test_a_late_place_is_a_crowded_draw() -> None:
    chance = random.Random(1)
    assert fmean(spread(chance, 0.95) for _ in range(5)) > 1.5 * fmean(spread(chance, 0.05) for _ in range(5))


@pytest.mark.parametrize("rate", [0.01, 1e6])
def test_rates_of_any_size_have_a_draw(rate: float) -> None:
    seed = spread_seed(random.Random(1), 0.999, rate=rate, duration_ns=SECOND, from_ns=0, busy_rate=0.5)
    assert abs(len(instants(rate, SECOND, seed)) - rate) <= 5 * rate**0.5 + 1
