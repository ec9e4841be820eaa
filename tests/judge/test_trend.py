"""Steps and slow changes in simulated histories with known truth. `benchmarks/trend.py` prints rates from many more."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest

from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Course, Observed, courses_of


def observed(
    rng: np.random.Generator,
    *levels: tuple[int, float],
    slow: tuple[int, int, float] | None = None,
    links: Mapping[int, float] = {},
    runs: int = 60,
) -> Observed:
    """Returns a series: levels with their first runs, and a slow change from one run to another."""
    at, errors = np.arange(runs), rng.uniform(0.005, 0.015, runs)
    ratios = errors * rng.standard_normal(runs) + 0.004 * rng.standard_normal(runs)
    for begin, change in levels:
        ratios[begin:] += change
    if slow is not None:
        first, last, change = slow
        ratios += change * np.clip((at - first + 1) / (last - first + 1), 0, 1)
    variances = np.zeros(runs)
    for begin, error in links.items():
        variances[begin] = error**2
    return Observed(ratios=ratios.tolist(), errors=errors.tolist(), links=variances.tolist(), session_sd=0.01)


def courses(count: int, *levels: tuple[int, float], **more: object) -> list[Course]:
    rng = np.random.default_rng(2026)
    return courses_of([observed(rng, *levels, **more) for _ in range(count)])  # type: ignore[arg-type]


def test_the_division_is_the_cheapest_of_all() -> None:
    rng = np.random.default_rng(7)

    def cost(y: np.ndarray, v: np.ndarray) -> float:
        mean = np.sum(y / v) / np.sum(1 / v)
        return float(np.sum((y - mean) ** 2 / v))

    for _ in range(20):
        (course,) = courses_of([observed(rng, (int(rng.integers(3, 10)), 0.05), runs=12)])
        y, v, _ = course.judged
        ways = [cuts for number in range(4) for cuts in combinations(range(3, 10), number)]
        ways = [
            cuts for cuts in ways if all(b - a >= TREND.least for a, b in zip((0, *cuts), (*cuts, 12), strict=True))
        ]
        costs = {
            cuts: TREND.penalty * len(cuts)
            + sum(cost(y[a:b], v[a:b]) for a, b in zip((0, *cuts), (*cuts, 12), strict=True))
            for cuts in ways
        }
        assert course.begins[1:] == min(costs, key=costs.__getitem__)


def test_unchanged_code_has_no_step() -> None:
    """Each of 400 series is looked at once. Were there a step in 1 of 50, more than 2 would be seen 98 times of 100."""
    assert sum(bool(course.steps) for course in courses(400)) <= 2


def test_a_step_is_found_where_it_is_with_its_size() -> None:
    found = courses(100, (20, -0.05))
    steps = [step for course in found for step in course.steps]
    assert sum(len(course.steps) == 1 for course in found) >= 97
    assert sum(abs(step.at - 20) <= 2 for step in steps) >= 95
    assert sum(step.earliest <= 20 <= step.latest for step in steps) >= 85
    assert sum(abs(step.change + 0.05) < 1.6449 * step.error for step in steps) >= 80
    assert sum(step.is_slow for step in steps) <= 8


def test_a_slow_change_is_told_from_a_step() -> None:
    found = courses(100, slow=(20, 39, -0.08))
    assert sum(any(step.is_slow for step in course.steps) for course in found) >= 75


def test_a_renewed_baseline_is_no_step_however_lucky_it_was() -> None:
    assert sum(bool(course.steps) for course in courses(200, (30, 0.03), links={30: 0.02})) <= 4
    assert sum(bool(course.steps) for course in courses(50, (30, 0.03))) >= 48


def test_odd_runs_are_no_steps() -> None:
    rng = np.random.default_rng(3)
    series = []
    for _ in range(100):
        own = observed(rng)
        ratios = np.array(own.ratios)
        ratios[[15, 40]] += (0.3, -0.2)
        series.append(Observed(ratios=ratios.tolist(), errors=own.errors, links=own.links, session_sd=0.01))
    assert sum(bool(course.steps) for course in courses_of(series)) <= 3


@pytest.mark.parametrize("runs", [1, 2, 9])
def test_few_runs_show_no_step(runs: int) -> None:
    rng = np.random.default_rng(1)
    (course,) = courses_of([observed(rng, (runs // 2, 0.5), runs=runs)])
    assert not course.steps
    assert len(course.levels) == runs


def test_how_soon_a_step_would_show_is_so() -> None:
    (course,) = courses(1, runs=100)
    runs = course.runs_to_show(0.03)
    assert runs is not None
    later = courses(200, (60, -0.03), runs=60 + runs)
    assert 0.7 <= sum(any(abs(step.at - 60) <= 6 for step in course.steps) for course in later) / 200 <= 0.95
    assert course.runs_to_show(0.001) is None
