"""A side's level: robust locations, spreads and the uncertainty of a percentile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.judge.level import Level, hodges_lehmann, quantile_variance, spread_of, variance_of_location
from pytest_fileperf.measure.histogram import Histogram


@pytest.mark.parametrize(
    "values,location",
    [
        ([3.0], 3.0),
        ([1.0, 2.0], 1.5),
        ([1.0, 2.0, 9.0], 2.0 + 1.0 / 4),
        ([0.0, 0.0, 0.0, -40.0], 0.0),
        ([1, 2, 3, 4], 2.5),
    ],
)
def test_hodges_lehmann(values: list[float], location: float) -> None:
    walsh = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    expected = float(np.median(walsh))
    assert hodges_lehmann(values) == expected
    if values != [1.0, 2.0, 9.0]:
        assert expected == location


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(-5, 5))
def test_hodges_lehmann_moves_with_its_values_and_lies_among_them(values: list[float], shift: float) -> None:
    location = hodges_lehmann(values)
    assert min(values) <= location <= max(values)
    assert hodges_lehmann([value + shift for value in values]) == pytest.approx(location + shift, abs=1e-9)


def level(*rounds: tuple[float, ...]) -> Level:
    return Level(boots=tuple(0.0 for _ in rounds), rounds=rounds, sampling=None)


def test_the_spread_of_rounds_is_that_within_boots_and_not_moved_by_far_off_ones() -> None:
    rng = np.random.default_rng(5)
    boots = [tuple(offset + 0.03 * rng.standard_normal(4)) for offset in rng.standard_normal(300)]
    hit = [(*rounds[:3], rounds[3] - 0.5) if index % 12 == 0 else rounds for index, rounds in enumerate(boots)]
    for rounds in (boots, hit):
        found = spread_of([level(*rounds)])
        assert found is not None
        assert math.sqrt(found[0]) == pytest.approx(0.03, rel=0.12)
        assert found[1] == 900


def test_single_rounds_have_no_spread() -> None:
    assert spread_of([level((1.0,), (2.0,)), level(())]) is None


def test_more_rounds_make_a_boot_s_location_more_exact() -> None:
    assert variance_of_location(0.04, [level((0.0,) * 4)]) == pytest.approx(0.01 * math.pi / 3)
    assert variance_of_location(0.04, [level((0.0,), (0.0,) * 4)]) == pytest.approx(0.025 * math.pi / 3)


@pytest.mark.parametrize("count", [300, 2000, 20_000])
def test_the_variance_of_a_percentile_is_that_of_repeated_samples(count: int) -> None:
    rng = np.random.default_rng(count)
    samples = 5e6 * np.exp(0.4 * rng.standard_normal((400, count)))
    found = np.mean([quantile_variance(Histogram.of(row.astype(np.int64)), 99) for row in samples[:60]])
    seen = float(np.var(np.log(np.quantile(samples, 0.99, axis=1, method="inverted_cdf"))))
    assert math.sqrt(found) == pytest.approx(math.sqrt(seen), rel=0.25)


def test_equal_latencies_have_an_exact_percentile() -> None:
    assert quantile_variance(Histogram.of([5_000_000] * 1000), 99) == 0.0
    assert quantile_variance(Histogram.of([5_000_000]), 99) == 0.0
