"""Closed loops whose true rate is known: whatever is cut off by the ends of a run, requests/s have Little's law."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from pytest_fileperf.measure.metrics import METRICS, littles_law
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round

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


def recording_of(load: Callable[[float], Sequence[tuple[float, float]]], seconds: float, boots: int = 1) -> Recording:
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
    made = recording_of(sleeps(connections, lambda: each), seconds, boots)
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
    made = recording_of(sleeps(2000, lambda: draw(chance)), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(2000 / mean, rel=0.04)


@pytest.mark.parametrize("each", [0.002, 0.02, 0.1, 0.2])
def test_a_server_of_one_core_never_has_more_than_it_can(each: float) -> None:
    made = recording_of(queue(16, each), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1 / each, rel=0.02)
