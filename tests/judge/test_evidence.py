"""What a recording says for comparisons: its stored form, other answers, and levels with their errors."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import STABILISED, boot, side
from measure.recordings import alike, recording_of, round_of

from pytest_fileperf.judge.evidence import (
    BootEvidence,
    Evidence,
    Level,
    biweight,
    clustering_of,
    differing,
    evidence_of,
    excess_of,
    hodges_lehmann,
    precision_of,
    quantile_variance,
    spread_of,
    variance_of_location,
)
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Phase

TWO_BOOTS = recording_of(
    round_of(300, boot=0),
    round_of(200, boot=0, index=1),
    round_of(4, boot=0, index=2, phase=Phase.DRAIN),
    round_of(400, boot=1),
    boots=(
        Boot(index=0, peak_rss_bytes=1000, stabilised=("hash seed", "addresses")),
        Boot(index=1, peak_rss_bytes=2000, stabilised=("addresses",)),
    ),
)


def test_each_boot_has_its_own_rounds_latencies_and_runs_and_what_was_not_measured_is_left_out() -> None:
    found = evidence_of(TWO_BOOTS)
    first, second = found.boots
    assert [[values["rps"] for values in boot.turns] for boot in found.boots] == [[300, 200], [400]]
    # A round tells a percentile only from its least number of requests on.
    assert [("p95" in values, "p99" in values) for values in first.turns] == [(True, True), (True, False)]
    assert all("cpu_per_request" not in values for boot in found.boots for values in boot.turns)
    assert (first.requests, first.latency.count, second.requests, found.requests) == (504, 504, 400, 904)
    assert (first.runs, second.runs) == ({"rss": 1000}, {"rss": 2000})
    assert found.stabilised == ("addresses",), "what all boots held equal"
    late = recording_of(round_of(0), round_of(3, index=1, phase=Phase.DRAIN))
    assert evidence_of(late).boots[0].runs["rps"] == pytest.approx(1.5), "all ended in the drain"
    assert evidence_of(recording_of(boots=())) == Evidence(boots=())


VALUES = st.dictionaries(st.sampled_from(["rps", "p50", "p99", "error_rate"]), st.floats(0, 1e12), max_size=4)
BOOTS = st.builds(
    BootEvidence,
    turns=st.lists(VALUES, max_size=4).map(tuple),
    latency=st.lists(st.integers(0, 10**10), max_size=20).map(Histogram.of),
    runs=VALUES,
)


@settings(max_examples=50)
@given(st.builds(Evidence, boots=st.lists(BOOTS, max_size=3).map(tuple), stabilised=st.just(("addresses",))))
def test_the_stored_form_comes_back_to_five_digits(evidence: Evidence) -> None:
    stored = json.loads(json.dumps(evidence.to_json(), allow_nan=False))
    back = Evidence.from_json(Placed(stored))
    assert back.stabilised == evidence.stabilised
    for before, after in zip(evidence.boots, back.boots, strict=True):
        assert after.requests == before.requests
        assert after.latency.steps.tolist() == before.latency.steps.tolist()
        assert after.runs == pytest.approx(dict(before.runs), rel=1e-4)
        told = [values for values in before.turns if values]
        assert [values for values in after.turns if values] == [
            pytest.approx(dict(values), rel=1e-4) for values in told
        ]
    assert back.to_json() == stored


# --- Whether two sides give the same answers


CONSTANT = [(11_750.0,) * 4] * 3


def sizes_differ(base: Sequence[Sequence[float]], now: Sequence[Sequence[float]]) -> bool:
    return bool(differing(*(answered(side, {200: 1000}) for side in (base, now))))


def answered(sizes: Sequence[Sequence[float]], statuses: Mapping[int, int]) -> Evidence:
    boots = (BootEvidence(turns=(), latency=EMPTY, runs={}, sizes=tuple(own)) for own in sizes)
    return Evidence(boots=tuple(boots), statuses=statuses)


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
    assert bool(differing(answered((), base), answered((), now))) is differ


# --- How exactly a level is known, by boots and rounds


RPS = METRICS["rps"]


def test_a_level_is_as_exact_as_its_boots_and_rounds() -> None:
    """A boot of four rounds has 1 % of its own, and the usual 3 % of a round, whose weight is 3 beside these 4."""
    one = Evidence(boots=(boot(1000, 1000, 1000, 1000),), stabilised=STABILISED)
    assert precision_of(RPS, one) == pytest.approx(math.hypot(0.01, 0.03 * math.sqrt(4 / 7 * math.pi / 3 / 4)))
    errors = [precision_of(RPS, side(*[2000, 2050, 1950] * times)) for times in (1, 3)]
    assert errors[0] / errors[1] > math.sqrt(3) / 1.1
    few, many = (Evidence(boots=(boot(*[990, 1010] * rounds),) * 3, stabilised=STABILISED) for rounds in (2, 12))
    assert precision_of(RPS, many) < precision_of(RPS, few)
    calm = precision_of(RPS, side(2000, 2010, 1990))
    assert precision_of(RPS, side(2000, 2300, 1750)) > 3 * calm
    assert precision_of(RPS, side(2000, 2010, 1990, stabilised=())) > 2 * calm
    assert precision_of(RPS, Evidence(boots=())) == precision_of(METRICS["rss"], side(2000)) == math.inf


# --- A side's level: robust locations, spreads and the uncertainty of a percentile


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
def test_robust_locations(values: list[float], location: float) -> None:
    assert biweight(values) == pytest.approx(location, abs=0.05)
    walsh = [(a + b) / 2 for i, a in enumerate(values) for b in values[i:]]
    assert hodges_lehmann(values) == float(np.median(walsh))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(-5, 5), st.floats(0.1, 10))
def test_locations_move_with_their_values_and_lie_among_them(values: list[float], shift: float, scale: float) -> None:
    values = [round(value, 3) for value in values]
    for location in (biweight, hodges_lehmann):
        found = location(values)
        assert min(values) - 1e-9 <= found <= max(values) + 1e-9
        assert location([value * scale + shift for value in values]) == pytest.approx(found * scale + shift, abs=1e-3)


def test_the_biweight_of_normal_values_costs_a_tenth() -> None:
    """Of 1,500 samples the variance is known to 4 %."""
    rng = np.random.default_rng(5)
    found = [biweight(rng.standard_normal(30).tolist()) for _ in range(1500)]
    assert float(np.var(found)) * 30 == pytest.approx(1.1, abs=0.12)


def level(*rounds: tuple[float, ...]) -> Level:
    return Level(boots=tuple(0.0 for _ in rounds), rounds=rounds, sampling=None)


def test_the_spread_of_rounds_is_that_within_boots_and_not_moved_by_far_off_ones() -> None:
    rng = np.random.default_rng(5)
    boots = [tuple(offset + 0.03 * rng.standard_normal(4)) for offset in rng.standard_normal(300)]
    hit = [(*rounds[:3], rounds[3] - 0.5) if index % 12 == 0 else rounds for index, rounds in enumerate(boots)]
    for rounds in (boots, hit):
        found = spread_of([level(*rounds)])
        assert math.sqrt(found[0]) == pytest.approx(0.03, rel=0.12)
        assert found[1] == 900


def test_single_rounds_have_no_spread_and_more_make_a_boot_s_location_more_exact() -> None:
    assert spread_of([level((1.0,), (2.0,)), level(())]) == (0.0, 0)
    assert variance_of_location(0.04, [level((0.0,) * 4)]) == pytest.approx(0.01 * math.pi / 3)
    assert variance_of_location(0.04, [level((0.0,), (0.0,) * 4)]) == pytest.approx(0.025 * math.pi / 3)


@pytest.mark.parametrize("count", [300, 5000])
def test_the_variance_of_a_percentile_is_that_of_repeated_samples(count: int) -> None:
    rng = np.random.default_rng(count)
    samples = 5e6 * np.exp(0.4 * rng.standard_normal((400, count)))
    found = np.mean([quantile_variance(Histogram.of(row.astype(np.int64)), 99) for row in samples[:60]])
    seen = float(np.var(np.log(np.quantile(samples, 0.99, axis=1, method="inverted_cdf"))))
    assert math.sqrt(found) == pytest.approx(math.sqrt(seen), rel=0.25)
    assert quantile_variance(alike(5, 1000), 99) == quantile_variance(alike(5, 1), 99) == 0.0


def stretch(slow: int, of: int = 300) -> Histogram:
    return Histogram.of([30_000_000] * slow + [5_000_000] * (of - slow))


@pytest.mark.parametrize("together, percent, clusters", [(1, 98.0, 1.0), (32, 90.0, 32)])
def test_requests_that_wait_for_the_same_pause_go_together(together: int, percent: float, clusters: float) -> None:
    rng = np.random.default_rng(3)
    drawn = rng.binomial(300, 0.01, size=400) if together == 1 else rng.binomial(1, 0.1, size=400)
    stretches = [stretch(together * int(slow)) for slow in drawn]
    assert clustering_of([excess_of(stretches, percent)] * 2) == pytest.approx(clusters, rel=0.2)
    assert clustering_of([]) == clustering_of([excess_of([], 99.0), excess_of([stretch(0)], 99.0)]) == 1.0


def test_a_percentile_varies_by_about_what_is_said_where_requests_go_together() -> None:
    """Pauses of 20 to 60 ms hit 32 requests at once, in so many turns. Of 100 samples a deviation is known to 7 %."""
    rng = np.random.default_rng(11)
    found, clustered, independent = [], [], []
    for _ in range(100):
        values = 5e6 * rng.uniform(0.8, 1.2, (30, 300))
        values[:, :32] += (rng.random((30, 1)) < 0.3) * 30e6 * rng.uniform(0.7, 2.0, (30, 1))
        stretches = [Histogram.of(each.astype(np.int64)) for each in values]
        latency = Histogram.merged(stretches)
        found.append(math.log(latency.percentile_ns(99)))
        clustered.append(quantile_variance(latency, 99, clustering=clustering_of([excess_of(stretches, 99)])))
        independent.append(quantile_variance(latency, 99))
    assert 0.3 < float(np.mean(clustered)) / float(np.var(found)) < 3.3
    assert float(np.mean(independent)) < 0.4 * float(np.mean(clustered))
