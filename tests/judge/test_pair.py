from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge.pairs import pair

from pytest_fileperf.judge.evidence import pair_side
from pytest_fileperf.judge.paired import paired_difference
from pytest_fileperf.judge.unit import changes
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Round

RPS, P99 = METRICS["rps"], METRICS["p99"]
MS = 1_000_000


def round_of(
    phase: Phase, requests: int, *, length_ms: int = 50, latency_ms: int = 5, typical_rps: float | None = None
) -> Round:
    latency = Histogram.of([latency_ms * MS] * requests)
    return Round(
        boot=0,
        index=0,
        phase=phase,
        started_ns=0,
        ended_ns=length_ms * MS,
        requests=requests,
        latency=latency,
        ttfb=latency,
        bytes_sent=0,
        bytes_received=requests * 1000,
        server_cpu_ns=requests * MS,
        typical_rps=typical_rps,
    )


def test_a_side_has_the_rates_of_its_turns_and_the_latencies_of_everything() -> None:
    rounds = [
        round_of(phase, requests)
        for phase, requests in (
            (Phase.HANDOVER, 7), (Phase.ROUND, 100), (Phase.HANDOVER, 1), (Phase.HANDOVER, 2), (Phase.ROUND, 200),
            (Phase.HANDOVER, 4), (Phase.DRAIN, 1),
        )
    ]  # fmt: skip
    side = pair_side(rounds, ((0, 10), (20, 30)))
    assert [turn["rps"] for turn in side.turns] == [2000, 4000]
    assert [turn["cpu_per_request"] for turn in side.turns] == pytest.approx([0.001, 0.001])
    assert all("p99" not in turn for turn in side.turns)
    assert side.latency.count == 315
    assert [stretch.count for stretch in side.stretches] == [107, 208]
    assert side.memory == ((0, 10), (20, 30))


def test_what_a_turn_cannot_tell_is_left_out() -> None:
    side = pair_side([round_of(Phase.ROUND, 0)])
    assert side.turns[0]["rps"] == 0
    assert "cpu_per_request" not in side.turns[0]
    assert side.runs == {}


def test_rates_by_the_typical_pace_of_a_turn() -> None:
    rounds = [round_of(Phase.HANDOVER, 3), round_of(Phase.ROUND, 100, typical_rps=2500.0), round_of(Phase.ROUND, 1)]
    assert pair_side(rounds).typical == ({"rps": 2500, "throughput": 2_500_000}, {})


def test_each_pair_shows_a_change_with_its_own_interval() -> None:
    steady = pair([1000] * 5, [900] * 5)
    noisy = pair([1000] * 5, [1000 * math.exp(at / 10) for at in (-2, -1, 0, 1, 2)])
    first, second = changes(RPS, [steady, noisy])
    assert (first.first, first.pairs, second.first, second.pairs) == (0, 1, 1, 1)
    assert [first.value, first.low, first.high] == pytest.approx([-0.1] * 3)
    assert second.value == pytest.approx(0)
    margin = 1.6449 * math.sqrt(math.pi / 3 * 0.025 / 5)
    assert [second.low, second.high] == pytest.approx([math.exp(-margin) - 1, math.exp(margin) - 1])


def test_a_greater_latency_is_a_greater_change() -> None:
    (change,) = changes(P99, [pair((), (), now_ms=[10])])
    assert change.value == pytest.approx(1, abs=0.003)


def test_pairs_that_are_judged_together_are_one_change() -> None:
    found = changes(P99, [pair((), (), requests=requests) for requests in (300, 150, 150, 10)])
    assert [(change.first, change.pairs) for change in found] == [(0, 1), (1, 3)]


@given(st.lists(st.tuples(st.floats(10, 1e4), st.floats(10, 1e4)), min_size=3, max_size=8))
def test_all_pairs_together_lie_among_them(rates: list[tuple[float, float]]) -> None:
    pairs = [pair([base], [now], requests=10) for base, now in rates]
    together, each = paired_difference(RPS, pairs), [change.value for change in changes(RPS, pairs)]
    assert together is not None
    assert min(each) - 1e-9 <= math.exp(-together.worse) - 1 <= max(each) + 1e-9
