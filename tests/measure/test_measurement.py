"""The figures of a run, in seconds, bytes and counts; each metric's value; and what a session keeps of them."""

from __future__ import annotations

import math
import pickle
import random
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from measure.recordings import MS, SECOND, alike, in_ms, recording_of, round_of
from report.samples import one, recording, result, watched

from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.codec import Encoder
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.measurement import Background, background_of, measurement_of
from pytest_fileperf.measure.metrics import METRICS, littles_law
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import (
    Boot,
    Failure,
    Phase,
    Recording,
    Round,
    Samples,
    merge_failures,
    pack,
    packable_in,
)


def round_in_ms(*latencies_ms: int, index: int = 0, phase: Phase = Phase.ROUND) -> Round:
    count = len(latencies_ms)
    return round_of(
        latency=in_ms(*latencies_ms),
        ttfb=in_ms(*(value / 2 for value in latencies_ms)),
        index=index,
        phase=phase,
        bytes_sent=1000 * count,
        bytes_received=10 * count,
        statuses=((200, count),),
        server_cpu_ns=400 * MS,
        client_cpu_ns=300 * MS,
    )


FAILED = replace(
    round_in_ms(20, 40, index=1),
    statuses=((200, 2), (500, 3)),
    failures=(
        Failure(kind="timeout", count=1, example="after 30 s"),
        Failure(kind="status 500", count=3, example="500 Internal Server Error: boom"),
    ),
)
WHOLE = Recording(
    rounds=(round_in_ms(10, 20, 30, 40), FAILED, round_in_ms(100, index=2, phase=Phase.DRAIN)),
    boots=(Boot(index=0, peak_rss_bytes=5000),),
    connections=4,
    engine="client",
    why_engine="a journey",
    wait_ns=SECOND // 2,
)


def test_the_figures_of_a_run() -> None:
    found = measurement_of(WHOLE)
    assert (found.requests, found.errors, found.connections) == (7, 4, 4)
    assert [found.rps, found.success_ratio, found.duration, found.wait] == pytest.approx([3.0, 7 / 11, 2.0, 0.5])
    assert list(found.error_kinds.items()) == [("status 500", 3), ("timeout", 1)]
    assert [failure.kind for failure in found.failures] == ["status 500", "timeout"]
    assert found.statuses == {200: 7, 500: 3}
    # Bytes and latencies are of all requests, rates of the rounds.
    assert (found.bytes_sent, found.bytes_received) == (7000, 70)
    assert (found.bytes_sent_per_second, found.bytes_received_per_second, found.throughput) == (3000.0, 30.0, 3030.0)
    latency = found.latency
    assert (latency.count, latency.min, latency.max, found.ttfb.max) == (7, 0.010, 0.100, 0.050)
    assert [latency.mean, latency.within_one_stdev] == pytest.approx([0.260 / 7, 6 / 7])
    assert latency.p50 == pytest.approx(0.030, rel=1e-3)
    assert latency.p99 == latency.p999 == latency.percentile(100) == 0.100
    assert [found.server.cpu_per_request, found.server.cpu_share] == pytest.approx([0.8 / 6, 0.4])
    assert [found.client.cpu_per_request, found.client.cpu_share] == pytest.approx([0.1, 0.3])
    assert (found.server.peak_rss, found.client.engine, found.client.why_engine) == (5000, "client", "a journey")
    assert str(found) == "3.00 requests/s, p99 100 ms, 4 errors"
    assert repr(found) == "<Measurement: 3.00 requests/s, p99 100 ms, 4 errors>"


def test_what_there_is_nothing_of_is_zero_or_none() -> None:
    failed = replace(FAILED, requests=0, latency=EMPTY, ttfb=EMPTY, server_cpu_ns=None)
    found = measurement_of(replace(WHOLE, rounds=(failed,), boots=(Boot(index=0),)))
    assert str(found) == "no request succeeded, 4 failed"
    assert (found.server.cpu_per_request, found.server.cpu_share, found.server.peak_rss) == (None, None, None)
    nothing = measurement_of(recording_of(boots=()))
    assert (nothing.rps, nothing.requests, nothing.success_ratio, nothing.duration) == (0.0, 0, 0.0, 0.0)
    assert (nothing.latency.count, nothing.latency.p99, nothing.latency.max, nothing.saturated) == (0, 0.0, 0.0, False)


@pytest.mark.parametrize("share,saturated", [(0.90, False), (0.91, True)])
def test_a_busy_generator_is_saturated_but_not_when_it_shares_the_app_s_process(share: float, saturated: bool) -> None:
    busy = replace(WHOLE, rounds=(replace(FAILED, client_cpu_ns=round(share * SECOND)),))
    assert measurement_of(busy).saturated is saturated
    assert measurement_of(replace(busy, engine="in-process")).saturated is False


def test_when_all_end_in_the_drain_the_rates_are_over_the_whole_time() -> None:
    late = replace(WHOLE, rounds=(round_in_ms(), round_in_ms(100, 200, index=1, phase=Phase.DRAIN)))
    found = measurement_of(late)
    assert found.rps == 1.0
    assert found.bytes_sent_per_second == 1000.0


def test_of_kinds_of_failure_that_are_as_frequent_the_status_is_first() -> None:
    kinds = ("disconnected", "status 500", "timeout")
    merged = merge_failures(Failure(kind=kind, count=1 + (kind == "timeout"), example="") for kind in kinds)
    assert [failure.kind for failure in merged] == ["timeout", "status 500", "disconnected"]


# --- Work that one side of a comparison does in the other side's turns


TURN_MS, HANDOVER_MS = 60, 10
CYCLES = 20
TEN_LATE = (Failure(kind="status 500", count=10, example=""),)


def side(
    first: int, *, background: float = 0.0, late: int = 0, late_failures: tuple[Failure, ...] = (), known: bool = True
) -> Recording:
    """Returns a side with every second turn. A request costs 1 ms of CPU; `late` ones end in each of the other's turns.

    Between them is what `run_load` makes: late answers, most of the other's turn, the handover to the next one.
    """
    rounds: list[Round] = []
    failed = sum(failure.count for failure in late_failures)

    def add(phase: Phase, start_ms: int, end_ms: int, requests: int, cpu_ms: float) -> None:
        rounds.append(
            round_of(
                latency=EMPTY,
                requests=requests,
                index=len(rounds),
                phase=phase,
                start_ns=start_ms * MS,
                length_ns=(end_ms - start_ms) * MS,
                server_cpu_ns=round(cpu_ms * MS) if known else None,
            )
        )

    for cycle in range(CYCLES):
        for turn in range(2):
            start_ms = (2 * cycle + turn) * TURN_MS
            begun_ms, end_ms = start_ms + HANDOVER_MS, start_ms + TURN_MS
            if turn == first:
                add(Phase.HANDOVER, start_ms - 5, begun_ms, 10, 15)
                add(Phase.ROUND, begun_ms, end_ms, 45, 45)
            else:
                add(Phase.HANDOVER, start_ms, begun_ms, 8, 10)
                cpu_ms = background * (end_ms - 5 - begun_ms) + late + failed
                add(Phase.HANDOVER, begun_ms, end_ms - 5, late, cpu_ms)
                rounds[-1] = replace(rounds[-1], failures=late_failures)
    return Recording(rounds=tuple(rounds), boots=(), connections=8, engine="replay")


def test_each_side_s_work_in_the_other_s_turns_is_a_share_of_a_core_and_late_answers_are_none() -> None:
    found = background_of(side(0, background=0.07), side(1, background=0.01))
    assert (found.base, found.now) == pytest.approx((0.07, 0.01))
    found = background_of(side(0, background=0.07, late=9), side(1, late_failures=TEN_LATE))
    assert (found.base, found.now) == pytest.approx((0.07, 0.0))
    late = side(0, late=5)
    cheap = tuple(replace(each, server_cpu_ns=0) if each.phase is Phase.HANDOVER else each for each in late.rounds)
    assert background_of(replace(late, rounds=cheap), side(1)).base == 0.0
    # It is not known where no CPU time was read or no turns alternate.
    assert background_of(side(0, known=False), side(1)) == Background(base=None, now=0.0)
    assert background_of(replace(late, rounds=side(0).measured()), side(1)).base is None
    assert background_of(side(0), replace(side(1), rounds=())) == Background(base=None, now=None)


@pytest.mark.parametrize(
    "base, now, text",
    [
        (0.071, 0.0, "the old code used 7 % of a core during the other version's measurement"),
        (None, 0.124, "the new code used 12 % of a core during the other version's measurement"),
        (
            0.03,
            0.5,
            "the old code used 3 % and the new code used 50 % of a core during the other version's measurement",
        ),
        (0.02, 0.019, ""),
        (None, None, ""),
    ],
)
def test_more_than_a_fiftieth_of_a_core_is_said(base: float | None, now: float | None, text: str) -> None:
    why = ", so its background work slows the other version" if text else ""
    assert str(Background(base=base, now=now, surely_base=base or 0.0, surely_now=now or 0.0)) == text + why


def test_it_is_said_only_if_most_turns_show_it() -> None:
    """Some late readings on a busy machine show as much as steady work does; so do few turns."""
    quiet, steady = side(0), side(0, background=0.07)
    idle = [place for place, own in enumerate(quiet.rounds) if own.phase is Phase.HANDOVER and own.requests == 0]
    late = [replace(own, server_cpu_ns=20 * MS) if place in idle[:4] else own for place, own in enumerate(quiet.rounds)]
    found = background_of(replace(quiet, rounds=tuple(late)), side(1))

    assert found.base == pytest.approx(0.089, abs=0.01)
    assert str(found) == ""
    assert "the old code used 7 % of a core" in str(background_of(steady, side(1)))
    few = tuple(own for own in steady.rounds if own.ended_ns <= 8 * TURN_MS * MS)
    assert str(background_of(replace(steady, rounds=few), side(1))) == ""


# --- each metric over rounds and over a run, with what it says where it cannot tell


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


def recorded(
    connections: int, load: Callable[[float], Sequence[tuple[float, float]]], seconds: float, boots: int = 1
) -> Recording:
    rounds = [one for boot in range(boots) for one in rounds_of(load(WARMUP_S + seconds), seconds, boot)]
    made = recording_of(*rounds, boots=tuple(Boot(index=boot) for boot in range(boots)))
    return replace(made, connections=connections)


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
    made = recorded(connections, sleeps(connections, lambda: each), seconds, boots)
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
    made = recorded(1000, sleeps(1000, lambda: draw(chance)), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1000 / mean, rel=0.05)


@pytest.mark.parametrize("first", [0.3, 1.2, 2.4])
def test_slow_first_requests_are_not_left_out(first: float) -> None:
    """As in a cold pool, or after a login: the counts say what the server did, within one request a connection."""

    def load(until: float) -> list[tuple[float, float]]:
        return [(0.0, first)] * 32 + [
            (first + place * 0.15, first + (place + 1) * 0.15)
            for place in range(math.ceil((until - first) / 0.15))
            for _ in range(32)
        ]

    made = recorded(32, load, 1.3, 3)
    ended = sum(round_.requests for round_ in made.measured())
    assert METRICS["rps"].of_run(made) == pytest.approx(ended / (3 * 1.3), abs=2 * 32 / 1.3)


@pytest.mark.parametrize("each", [0.002, 0.2])
def test_a_server_of_one_core_never_has_more_than_it_can(each: float) -> None:
    made = recorded(16, queue(16, each), 4.0)
    assert METRICS["rps"].of_run(made) == pytest.approx(1 / each, rel=0.02)


# --- what is kept is small, and the same as before


RESULTS: Mapping[str, Callable[[], Result]] = {
    "alone": lambda: result(recorded=recording(boots=1, rounds=2)),
    "open loop": lambda: one("watched", "test_overloaded"),
    "in turn": lambda: one("in_turn", "test_slower"),
}


def full(chance: np.random.Generator) -> Result:
    """Returns a result of 12 rounds of 3,000 requests each, as of four seconds."""
    recorded = recording(boots=1, rounds=12)
    each = [Histogram.of(chance.lognormal(15.4, 0.5, 3_000).astype(np.int64)) for _ in recorded.rounds]
    rounds = (
        replace(round_, latency=latency, ttfb=Histogram.merged([latency]))
        for round_, latency in zip(recorded.rounds, each, strict=True)
    )
    return result(recorded=replace(recorded, rounds=tuple(rounds)))


@pytest.mark.parametrize("name", RESULTS)
def test_no_histogram_is_left_out_and_none_changes(name: str) -> None:
    made = RESULTS[name]()
    encoder = Encoder()
    encoder.encode(made, Result)
    held = {histogram.encode() for histogram in packable_in(made) if isinstance(histogram, Histogram)}
    assert held >= {text for text, *_ in encoder.histograms}
    before = pickle.loads(pickle.dumps(made))
    pack([made])
    assert made == before


def test_samples_are_kept_small_and_equal() -> None:
    recorded = watched(recording(), looks=40)
    boots = tuple(replace(boot, samples=Samples(boot.samples)) for boot in recorded.boots)
    small = replace(recorded, boots=boots)
    for _ in range(2):
        assert small == recorded
        assert recorded == small
        assert boots[0].samples[1:] == recorded.boots[0].samples[1:]
        assert len(boots[0].samples) == len(recorded.boots[0].samples)
        pack([small])
    assert len(pickle.dumps(small)) < 0.5 * len(pickle.dumps(recorded))


def test_a_measurement_is_kept_in_some_ten_kilobytes() -> None:
    chance = np.random.default_rng(1)
    pack([full(chance)])  # what is made once is there
    tracemalloc.start()
    try:
        kept = full(chance)
        pack([kept])
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept.measurement.requests
    assert size < 60_000
