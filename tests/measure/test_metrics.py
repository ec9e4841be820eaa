"""Each metric's value over rounds and over a run, with what it says where it cannot tell."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, littles_law
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Boot, Failure, Phase, Recording, Round

SECOND = 1_000_000_000
MS = 1_000_000


def round_of(
    *latencies_ms: int, boot: int = 0, index: int = 0, phase: Phase = Phase.ROUND, cpu_ms: int | None = 100
) -> Round:
    latency = Histogram.of([value * MS for value in latencies_ms])
    return Round(
        boot=boot,
        index=index,
        phase=phase,
        started_ns=index * SECOND,
        ended_ns=(index + 1) * SECOND,
        requests=latency.count,
        latency=latency,
        ttfb=latency,
        bytes_sent=100 * latency.count,
        bytes_received=300 * latency.count,
        server_cpu_ns=None if cpu_ms is None else cpu_ms * MS,
    )


def recording_of(*rounds: Round, boots: tuple[Boot, ...] = (Boot(index=0),)) -> Recording:
    return Recording(rounds=rounds, boots=boots, connections=4, engine="replay")


DRAIN = round_of(50, 60, index=2, phase=Phase.DRAIN)
RUN = recording_of(
    round_of(10, 20, 30, 40),
    replace(
        round_of(10, 20, index=1, cpu_ms=200),
        failures=(Failure(kind="timeout", count=2, example="after 30 s"),),
    ),
    DRAIN,
    boots=(Boot(index=0, peak_rss_bytes=1000), Boot(index=1, peak_rss_bytes=3000), Boot(index=2)),
)


@pytest.mark.parametrize(
    "name,value",
    [
        ("rps", 3.0),  # six requests in two rounds of a second: the drain is in no rate
        ("throughput", 1200.0),
        ("p50", 0.020),  # of all eight: the drain is in the latencies
        ("p99", 0.060),
        ("mean", 0.030),
        ("latency", 0.060),
        ("cpu_per_request", 0.050),
        ("rss", 3000.0),
        ("error_rate", 0.2),
    ],
)
def test_the_value_of_a_run(name: str, value: float) -> None:
    assert METRICS[name].of_run(RUN) == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(
    "name,value",
    [
        ("rps", 2.0),
        ("throughput", 800.0),
        ("p50", 0.010),
        ("mean", 0.015),
        ("latency", 0.020),
        ("cpu_per_request", 0.100),
        ("rss", None),
        ("error_rate", 0.5),
    ],
)
def test_the_value_of_a_round(name: str, value: float | None) -> None:
    found = METRICS[name].of_round(RUN.rounds[1])
    assert found is None if value is None else found == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize("name", sorted(set(METRICS) - {"rps", "throughput"}))
def test_an_empty_run_tells_nothing(name: str) -> None:
    assert METRICS[name].of_run(recording_of(round_of(cpu_ms=None))) is None
    assert METRICS[name].of_round(round_of(cpu_ms=None)) is None


def test_an_empty_run_has_a_rate_of_zero_and_no_rounds_have_none() -> None:
    assert METRICS["rps"].of_run(recording_of(round_of())) == 0.0
    assert METRICS["rps"].of_run(recording_of()) is None


def test_a_round_of_no_length_has_no_rate() -> None:
    instant = replace(round_of(10), ended_ns=0)
    assert METRICS["rps"].of_round(instant) is None
    assert METRICS["throughput"].of_round(instant) is None


def test_requests_that_all_end_in_the_drain_still_have_a_rate() -> None:
    assert METRICS["rps"].of_run(recording_of(round_of(), DRAIN)) == pytest.approx(1.0)


def test_cpu_that_one_round_cannot_tell_is_left_out_with_its_requests() -> None:
    run = recording_of(round_of(10, 10, cpu_ms=100), round_of(10, 10, 10, index=1, cpu_ms=None))
    assert METRICS["cpu_per_request"].of_run(run) == pytest.approx(0.05)


def test_names_are_the_keys_and_percentiles_say_which_they_are() -> None:
    assert all(metric.name == name for name, metric in METRICS.items())
    percentiles = {name: metric.percentile for name, metric in METRICS.items() if metric.percentile is not None}
    assert percentiles == {"p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "p999": 99.9}


def test_more_is_better_for_rates_alone() -> None:
    assert {name for name, metric in METRICS.items() if metric.worse_sign < 0} == {
        "rps",
        "throughput",
        "event_rate",
        "capacity",
    }


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.percentile is not None])
def test_the_least_requests_of_a_percentile_bound_it_with_95_percent(name: str) -> None:
    """The chance that none of n requests lies above the percentile is q^n: at most 5 % from that n on."""
    metric = METRICS[name]
    assert metric.percentile is not None
    share = metric.percentile / 100
    assert share**metric.least_requests <= 0.05 < share ** (metric.least_requests - 1)


STREAMS = replace(
    round_of(10),
    events=400,
    first_event=Histogram.of([50 * MS] * 10),
    event_gap=Histogram.of([20 * MS] * 380 + [70 * MS] * 10),
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


def test_a_round_in_which_no_event_came_has_a_rate_of_zero() -> None:
    assert METRICS["event_rate"].of_round(replace(STREAMS, events=0)) == 0.0


# --- Closed loops whose true rate is known: whatever is cut off by the ends of a run, requests/s have Little's law


S = 1_000_000_000
WARMUP_S = 0.3


def rounds_of(samples: Sequence[tuple[float, float]], seconds: float, boot: int) -> tuple[Round, ...]:
    """Returns the rounds of a load, of requests by when they begin and end since its warm-up began."""
    origin_ns = 5 * S
    stretches = [(round(seconds * S * place / 10), Phase.ROUND) for place in range(1, 11)]
    recorder = Recorder(boot=boot, stretches=stretches, server_cpu=lambda: None)
    recorder.begin(origin_ns + round(WARMUP_S * S))
    for start, end in sorted(samples, key=lambda sample: sample[1]):
        began_ns, ended_ns = origin_ns + round(start * S), origin_ns + round(end * S)
        recorder.tallies[0].success(began_ns, ended_ns, ended_ns, 200, 0, 100)
    return recorder.finish(origin_ns + round((WARMUP_S + seconds + 10) * S))


def recorded(load: Callable[[float], Sequence[tuple[float, float]]], seconds: float, boots: int = 1) -> Recording:
    rounds = [one for boot in range(boots) for one in rounds_of(load(WARMUP_S + seconds), seconds, boot)]
    made = tuple(Boot(index=boot) for boot in range(boots))
    return Recording(rounds=tuple(rounds), boots=made, connections=16, engine="replay")


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


@pytest.mark.parametrize("each", [0.05, 0.3, 1.0, 1.4, 1.8, 2.4, 3.4, 5.0])
@pytest.mark.parametrize("connections", [1, 16, 200])
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
    made = recorded(sleeps(2000, lambda: draw(chance)), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(2000 / mean, rel=0.04)


@pytest.mark.parametrize("each", [0.002, 0.02, 0.1, 0.2])
def test_a_server_of_one_core_never_has_more_than_it_can(each: float) -> None:
    made = recorded(queue(16, each), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1 / each, rel=0.02)
