"""What a recording says for comparisons: its stored form, other answers, and levels with their errors."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import STABILISED, Noise, boot, known, recording_of, round_of, side

from pytest_fileperf.judge.evidence import (
    Answers,
    BootEvidence,
    Evidence,
    Level,
    biweight,
    clustering_of,
    differing,
    evidence_of,
    excess_of,
    hodges_lehmann,
    level_of,
    precision_of,
    quantile_variance,
    spread_of,
    variance_of_location,
)
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.histogram import Histogram
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


def test_each_boot_has_its_own_rounds_latencies_and_runs() -> None:
    first, second = evidence_of(TWO_BOOTS).boots
    assert [values["rps"] for values in first.turns] == [300, 200]
    assert [values["rps"] for values in second.turns] == [400]
    assert (first.requests, first.latency.count, second.requests) == (504, 504, 400)
    assert (first.runs, second.runs) == ({"rss": 1000}, {"rss": 2000})


def test_a_round_tells_a_percentile_only_from_its_least_number_of_requests_on() -> None:
    first = evidence_of(TWO_BOOTS).boots[0]
    assert ["p99" in values for values in first.turns] == [True, False]
    assert ["p95" in values for values in first.turns] == [True, True]


def test_what_was_not_measured_is_left_out() -> None:
    assert all("cpu_per_request" not in values for boot in evidence_of(TWO_BOOTS).boots for values in boot.turns)


def test_only_what_all_boots_held_equal_is_stabilised() -> None:
    assert evidence_of(TWO_BOOTS).stabilised == ("addresses",)
    assert evidence_of(TWO_BOOTS).requests == 904


def test_a_boot_whose_requests_all_ended_in_the_drain_has_the_rate_of_the_run() -> None:
    late = recording_of(round_of(0, boot=0), round_of(3, boot=0, index=1, phase=Phase.DRAIN), boots=(Boot(index=0),))
    (boot,) = evidence_of(late).boots
    assert boot.runs["rps"] == pytest.approx(1.5)


def test_nothing_measured_is_no_evidence() -> None:
    assert evidence_of(recording_of(boots=())) == Evidence(boots=())


VALUES = st.dictionaries(st.sampled_from(["rps", "p50", "p99", "error_rate"]), st.floats(0, 1e12), max_size=4)
BOOTS = st.builds(
    BootEvidence,
    turns=st.lists(VALUES, max_size=4).map(tuple),
    latency=st.lists(st.integers(0, 10**10), max_size=20).map(Histogram.of),
    runs=VALUES,
)


@settings(deadline=None)
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


def test_a_stored_form_that_is_not_an_object_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^evidence\.boots\[0\] is not an object$"):
        Evidence.from_json(Placed({"boots": [3], "stabilised": []}, "evidence"))


# --- Whether two sides give the same answers


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


# --- How exactly a level is known, by boots and rounds


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


# --- A side's level: robust locations, spreads and the uncertainty of a percentile


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
        found = known(spread_of([level(*rounds)]))
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
