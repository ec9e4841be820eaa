"""Each metric's value over rounds and over a run, with what it says where it cannot tell."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from measure.recordings import MS, SECOND, alike, in_ms, recording_of, round_of

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, littles_law
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Boot, Failure, Phase, Recording, Round


def of(*latencies_ms: int, index: int = 0, phase: Phase = Phase.ROUND, cpu_ms: int | None = 100) -> Round:
    cpu_ns = None if cpu_ms is None else cpu_ms * MS
    latency = in_ms(*latencies_ms)
    return round_of(latency=latency, index=index, phase=phase, server_cpu_ns=cpu_ns, bytes_received=400 * latency.count)


DRAIN = of(50, 60, index=2, phase=Phase.DRAIN)
RUN = recording_of(
    of(10, 20, 30, 40),
    replace(of(10, 20, index=1, cpu_ms=200), failures=(Failure(kind="timeout", count=2, example="after 30 s"),)),
    DRAIN,
    boots=(Boot(index=0, peak_rss_bytes=1000), Boot(index=1, peak_rss_bytes=3000), Boot(index=2)),
)
EMPTY_ROUND = of(cpu_ms=None)


@pytest.mark.parametrize(
    "name, of_run, of_round, of_nothing",
    [
        ("rps", 3.0, 2.0, 0.0),  # six requests in two rounds of a second: the drain is in no rate
        ("throughput", 1200.0, 800.0, 0.0),
        ("p50", 0.020, 0.010, None),  # of all eight: the drain is in the latencies
        ("p99", 0.060, 0.020, None),
        ("mean", 0.030, 0.015, None),
        ("latency", 0.060, 0.020, None),
        ("cpu_per_request", 0.050, 0.100, None),
        ("rss", 3000.0, None, None),
        ("error_rate", 0.2, 0.5, None),
    ],
)
def test_values_of_a_run_and_of_a_round(
    name: str, of_run: float, of_round: float | None, of_nothing: float | None
) -> None:
    metric = METRICS[name]
    assert metric.of_run(RUN) == pytest.approx(of_run, rel=1e-3)
    found = metric.of_round(RUN.rounds[1])
    assert found == (None if of_round is None else pytest.approx(of_round, rel=1e-3))
    assert metric.of_run(recording_of(EMPTY_ROUND)) == metric.of_round(EMPTY_ROUND) == of_nothing


def test_rates_and_cpu_where_rounds_tell_little() -> None:
    rps = METRICS["rps"]
    instant = replace(of(10), ended_ns=0)
    assert [METRICS[name].of_round(instant) for name in ("rps", "throughput")] == [None, None]
    assert rps.of_run(recording_of()) is None
    assert rps.of_run(recording_of(of(), DRAIN)) == pytest.approx(1.0), "all ended in the drain"
    run = recording_of(of(10, 10, cpu_ms=100), of(10, 10, 10, index=1, cpu_ms=None))
    assert METRICS["cpu_per_request"].of_run(run) == pytest.approx(0.05)


def test_every_metric_has_its_name_its_direction_and_its_percentile() -> None:
    """The chance that none of n requests lies above a percentile is q^n: at most 5 % from the least number on."""
    assert all(metric.name == name for name, metric in METRICS.items())
    better_if_more = {name for name, metric in METRICS.items() if metric.worse_sign < 0}
    assert better_if_more == {"rps", "throughput", "event_rate", "capacity"}
    percentiles = {name: metric.percentile for name, metric in METRICS.items() if metric.percentile is not None}
    assert percentiles == {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}
    for name, percentile in percentiles.items():
        share, least = percentile / 100, METRICS[name].least_requests
        assert share**least <= 0.05 < share ** (least - 1)


STREAMS = replace(
    of(10), events=400, first_event=alike(50, 10), event_gap=Histogram.merged([alike(20, 380), alike(70, 10)])
)


@pytest.mark.parametrize(
    "name,value",
    [
        ("event_rate", 400.0),
        ("first_event_p50", 0.050),
        ("first_event_p99", None),  # of ten streams nobody can tell it
        ("event_gap_p50", 0.020),
        ("event_gap_p99", 0.070),
    ],
)
def test_the_figures_of_events(name: str, value: float | None) -> None:
    metric = METRICS[name]
    assert metric.of_round(STREAMS) == (None if value is None else pytest.approx(value, rel=1e-3))
    assert metric.of_run(recording_of(STREAMS)) == pytest.approx(value or 0.050, rel=1e-3)
    assert METRICS["event_rate"].of_round(replace(STREAMS, events=0)) == 0.0


# --- Closed loops whose true rate is known: whatever is cut off by the ends of a run, requests/s have Little's law


WARMUP_S = 0.3


def rounds_of(samples: Sequence[tuple[float, float]], seconds: float, boot: int) -> tuple[Round, ...]:
    """Returns the rounds of a load, of requests by when they begin and end since its warm-up began."""
    origin_ns = 5 * SECOND
    stretches = [(round(seconds * SECOND * place / 10), Phase.ROUND) for place in range(1, 11)]
    recorder = Recorder(boot=boot, stretches=stretches, server_cpu=lambda: None)
    recorder.begin(origin_ns + round(WARMUP_S * SECOND))
    for start, end in sorted(samples, key=lambda sample: sample[1]):
        began_ns, ended_ns = origin_ns + round(start * SECOND), origin_ns + round(end * SECOND)
        recorder.tallies[0].success(began_ns, ended_ns, ended_ns, 200, 0, 100)
    return recorder.finish(origin_ns + round((WARMUP_S + seconds + 10) * SECOND))


def recorded(load: Callable[[float], Sequence[tuple[float, float]]], seconds: float, boots: int = 1) -> Recording:
    rounds = [one for boot in range(boots) for one in rounds_of(load(WARMUP_S + seconds), seconds, boot)]
    return replace(recording_of(*rounds, boots=tuple(Boot(index=boot) for boot in range(boots))), connections=16)


def sleeps(connections: int, draw: Callable[[], float]) -> Callable[[float], list[tuple[float, float]]]:
    """Returns a load of so many connections, each of which sends again at once."""

    def load(until: float) -> list[tuple[float, float]]:
        found = []
        for _ in range(connections):
            now = 0.0
            while now < until:
                found.append((now, now := now + draw()))
        return found

    return load


def queue(connections: int, each: float) -> Callable[[float], list[tuple[float, float]]]:
    """Returns a load of a server that answers one request after the other: the queue has to grow first."""

    def load(until: float) -> list[tuple[float, float]]:
        began = [0.0] * connections
        found: list[tuple[float, float]] = []
        for place in count():
            if began[place % connections] >= until:
                return found
            end = (place + 1) * each
            found.append((began[place % connections], end))
            began[place % connections] = end
        raise AssertionError

    return load


@pytest.mark.parametrize("each", [0.05, 1.0, 1.4, 3.4, 5.0])
@pytest.mark.parametrize("connections", [1, 16])
@pytest.mark.parametrize("seconds, boots", [(4.0, 1), (1.0, 3)])
def test_equal_requests_have_their_rate(each: float, connections: int, seconds: float, boots: int) -> None:
    made = recorded(sleeps(connections, lambda: each), seconds, boots)
    law = littles_law(made)
    assert law is not None
    assert METRICS["rps"].of_run(made) == pytest.approx(connections / each, rel=0.03)
    assert METRICS["throughput"].of_run(made) == pytest.approx(100 * connections / each, rel=0.03)
    assert law.in_flight == pytest.approx(connections, rel=0.01)
    assert law.agrees is (each <= seconds)


@pytest.mark.parametrize(
    "draw,mean",
    [
        (lambda chance: chance.uniform(1, 5), 3.0),
        (lambda chance: 0.05 if chance.random() < 0.9 else 3.0, 0.345),
        (lambda chance: chance.expovariate(10), 0.1),
    ],
)
def test_requests_of_any_length_have_it_on_average(draw: Callable[[random.Random], float], mean: float) -> None:
    chance = random.Random(7)
    made = recorded(sleeps(1000, lambda: draw(chance)), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1000 / mean, rel=0.05)


@pytest.mark.parametrize("each", [0.002, 0.2])
def test_a_server_of_one_core_never_has_more_than_it_can(each: float) -> None:
    made = recorded(queue(16, each), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1 / each, rel=0.02)
