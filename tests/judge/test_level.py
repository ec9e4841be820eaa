"""A side's level: robust locations, spreads and the uncertainty of a percentile."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.judge.evidence import (
    Level,
    biweight,
    clustering_of,
    excess_of,
    hodges_lehmann,
    quantile_variance,
    spread_of,
    variance_of_location,
)
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


@pytest.mark.parametrize(
    "values,location",
    [
        ([3.0], 3.0),
        ([1.0, 2.0], 1.5),
        ([0.0, 0.0, 0.0, -40.0], 0.0),
        ([1, 2, 3, 4], 2.5),
        ([-1, -1, 0, 1, 1, 100], 0.0),
        ([-0.1, 0.0, 0.1] * 5 + [-60, 50, -70, 80] * 3, 0.0),  # 12 of 27 are far off
    ],
)
def test_biweight(values: list[float], location: float) -> None:
    assert biweight(values) == pytest.approx(location, abs=0.05)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(-5, 5), st.floats(0.1, 10))
def test_the_biweight_moves_with_its_values_and_lies_among_them(
    values: list[float], shift: float, scale: float
) -> None:
    values = [round(value, 3) for value in values]
    location = biweight(values)
    assert min(values) - 1e-9 <= location <= max(values) + 1e-9
    assert biweight([value * scale + shift for value in values]) == pytest.approx(location * scale + shift, abs=1e-3)


def test_the_biweight_of_normal_values_costs_a_tenth() -> None:
    rng = np.random.default_rng(5)
    found = [biweight(rng.standard_normal(30).tolist()) for _ in range(4000)]
    assert float(np.var(found)) * 30 == pytest.approx(1.1, abs=0.08)


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
@pytest.mark.once
def test_the_variance_of_a_percentile_is_that_of_repeated_samples(count: int) -> None:
    rng = np.random.default_rng(count)
    samples = 5e6 * np.exp(0.4 * rng.standard_normal((400, count)))
    found = np.mean([quantile_variance(Histogram.of(row.astype(np.int64)), 99) for row in samples[:60]])
    seen = float(np.var(np.log(np.quantile(samples, 0.99, axis=1, method="inverted_cdf"))))
    assert math.sqrt(found) == pytest.approx(math.sqrt(seen), rel=0.25)


def test_equal_latencies_have_an_exact_percentile() -> None:
    assert quantile_variance(Histogram.of([5_000_000] * 1000), 99) == 0.0
    assert quantile_variance(Histogram.of([5_000_000]), 99) == 0.0


def stretch(slow: int, of: int = 300) -> Histogram:
    return Histogram.of([30_000_000] * slow + [5_000_000] * (of - slow))


def test_requests_that_are_slow_by_chance_of_their_own_are_no_clusters() -> None:
    rng = np.random.default_rng(3)
    stretches = [stretch(int(slow)) for slow in rng.binomial(300, 0.01, size=400)]
    assert clustering_of([excess_of(stretches, 98.0)]) == pytest.approx(1.0, abs=0.2)


def test_requests_that_wait_for_the_same_pause_go_together() -> None:
    rng = np.random.default_rng(3)
    stretches = [stretch(32 * int(slow)) for slow in rng.binomial(1, 0.1, size=400)]
    assert clustering_of([excess_of(stretches, 90.0)] * 2) == pytest.approx(32, rel=0.15)


def test_nothing_is_no_cluster() -> None:
    assert clustering_of([]) == 1.0
    assert clustering_of([excess_of([], 99.0), excess_of([stretch(0)], 99.0)]) == 1.0


@pytest.mark.parametrize("pauses", [0.15, 0.3])
@pytest.mark.once
def test_a_percentile_varies_by_about_what_is_said_where_requests_go_together(pauses: float) -> None:
    """Pauses of 20 to 60 ms hit 32 requests at once, in so many turns."""
    rng = np.random.default_rng(11)
    found, clustered, independent = [], [], []
    for _ in range(300):
        stretches = []
        for _ in range(30):
            values = np.full(300, 5e6) * rng.uniform(0.8, 1.2, 300)
            if rng.random() < pauses:
                values[:32] += 30e6 * rng.uniform(0.7, 2.0)
            stretches.append(Histogram.of(values.astype(np.int64)))
        latency = Histogram.merged(stretches)
        found.append(math.log(latency.percentile_ns(99)))
        clustered.append(quantile_variance(latency, 99, clustering=clustering_of([excess_of(stretches, 99)])))
        independent.append(quantile_variance(latency, 99))
    truth = float(np.var(found))
    assert 0.3 < float(np.mean(clustered)) / truth < 3.3
    assert float(np.mean(independent)) < 0.4 * float(np.mean(clustered))
