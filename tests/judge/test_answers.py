from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from pytest_fileperf.judge.evidence import Answers, differing

CONSTANT = [(11_750.0,) * 4] * 3


def sizes_differ(base: Sequence[Sequence[float]], now: Sequence[Sequence[float]]) -> bool:
    sides = (Answers(sizes=tuple(map(tuple, side)), statuses={200: 1000}) for side in (base, now))
    return bool(differing(*sides))


def growing(rate: float, rounds: int = 20) -> list[list[float]]:
    return [[2.0 + 60 * rate * (place + 1) for place in range(rounds)] for _ in range(3)]


@pytest.mark.parametrize(
    "base, now, differ",
    [
        (CONSTANT, [(28.0,) * 4], True),
        (CONSTANT, CONSTANT, False),
        (CONSTANT, [(11_700.0,) * 4], False),
        ([(90.0,)], [(28.0,)], True),
        ([(17.0,)], [(18.0,)], False),
        ([], CONSTANT, False),
        ([(40.0, 41.0, 41.5, 42.0)], [(44.0, 45.0, 46.0, 46.0)], False),
        (growing(1), growing(13), False),
        ([(1000.0, 4000.0)], [(28.0, 28.0)], False),
    ],
)
def test_sizes(base: Sequence[Sequence[float]], now: Sequence[Sequence[float]], differ: bool) -> None:
    assert sizes_differ(base, now) is differ


def test_sizes_that_vary_differ_beyond_their_chance() -> None:
    chance = random.Random(1)

    def drawn(mean: float, rounds: int = 8) -> list[list[float]]:
        return [[mean * chance.lognormvariate(0, 0.2) for _ in range(rounds)] for _ in range(3)]

    assert sum(sizes_differ(drawn(9000), drawn(9000)) for _ in range(500)) <= 1
    assert all(sizes_differ(drawn(9000), drawn(100)) for _ in range(50))


@pytest.mark.parametrize(
    "base, now, differ",
    [
        ({200: 500}, {304: 900}, True),
        ({200: 500}, {200: 499, 503: 1}, False),
        ({200: 500, 404: 500}, {200: 520, 404: 480}, False),
        ({200: 5000}, {200: 4500, 302: 500}, True),
        ({}, {200: 1}, False),
    ],
)
def test_statuses(base: dict[int, int], now: dict[int, int], differ: bool) -> None:
    assert bool(differing(Answers(statuses=base), Answers(statuses=now))) is differ
