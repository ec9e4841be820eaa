"""The figures of a run, in seconds, bytes and counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.recording import Boot, Failure, Phase, Recording, Round, merge_failures

SECOND = 1_000_000_000
MS = 1_000_000


def round_of(*latencies_ms: int, index: int = 0, phase: Phase = Phase.ROUND) -> Round:
    latency = Histogram.of([value * MS for value in latencies_ms])
    return Round(
        boot=0,
        index=index,
        phase=phase,
        started_ns=index * SECOND,
        ended_ns=(index + 1) * SECOND,
        requests=latency.count,
        latency=latency,
        ttfb=Histogram.of([value * MS // 2 for value in latencies_ms]),
        bytes_sent=1000 * latency.count,
        bytes_received=10 * latency.count,
        statuses=((200, latency.count),),
        server_cpu_ns=400 * MS,
        client_cpu_ns=300 * MS,
    )


FAILED = replace(
    round_of(20, 40, index=1),
    statuses=((200, 2), (500, 3)),
    failures=(
        Failure(kind="timeout", count=1, example="after 30 s"),
        Failure(kind="status 500", count=3, example="500 Internal Server Error: boom"),
    ),
)
RUN = Recording(
    rounds=(round_of(10, 20, 30, 40), FAILED, round_of(100, index=2, phase=Phase.DRAIN)),
    boots=(Boot(index=0, peak_rss_bytes=5000),),
    connections=4,
    engine="client",
    why_engine="a journey",
    wait_ns=SECOND // 2,
)


def test_counts_and_rates() -> None:
    found = measurement_of(RUN)
    assert (found.requests, found.errors, found.connections) == (7, 4, 4)
    assert found.rps == 3.0
    assert found.success_ratio == pytest.approx(7 / 11)
    assert list(found.error_kinds.items()) == [("status 500", 3), ("timeout", 1)]
    assert [failure.kind for failure in found.failures] == ["status 500", "timeout"]
    assert found.statuses == {200: 7, 500: 3}
    assert (found.duration, found.wait) == (2.0, 0.5)


def test_its_text_is_short() -> None:
    found = measurement_of(RUN)
    assert str(found) == "3.00 requests/s, p99 100 ms, 4 errors"
    assert repr(found) == "<Measurement: 3.00 requests/s, p99 100 ms, 4 errors>"
    nothing = replace(RUN, rounds=(replace(FAILED, requests=0, latency=Histogram.of([]), ttfb=Histogram.of([])),))
    assert str(measurement_of(nothing)) == "no request succeeded, 4 failed"


def test_bytes_are_of_all_requests_and_their_rates_of_the_rounds() -> None:
    found = measurement_of(RUN)
    assert (found.bytes_sent, found.bytes_received) == (7000, 70)
    assert (found.bytes_sent_per_second, found.bytes_received_per_second) == (3000.0, 30.0)
    assert found.throughput == 3030.0


def test_latencies_are_of_all_requests_in_seconds() -> None:
    found = measurement_of(RUN).latency
    assert (found.count, found.min, found.max) == (7, 0.010, 0.100)
    assert found.mean == pytest.approx(0.260 / 7)
    assert found.p50 == pytest.approx(0.030, rel=1e-3)
    assert found.p99 == found.p999 == found.percentile(100) == 0.100
    assert found.within_one_stdev == pytest.approx(6 / 7)
    assert measurement_of(RUN).ttfb.max == 0.050


def test_what_server_and_generator_used() -> None:
    found = measurement_of(RUN)
    assert found.server.cpu_per_request == pytest.approx(0.8 / 6)
    assert found.server.cpu_share == pytest.approx(0.4)
    assert found.server.peak_rss == 5000
    assert found.client.cpu_share == pytest.approx(0.3)
    assert found.client.cpu_per_request == pytest.approx(0.1)
    assert (found.client.engine, found.client.why_engine) == ("client", "a journey")


def test_what_the_platform_cannot_tell_is_none() -> None:
    found = measurement_of(replace(RUN, rounds=(replace(FAILED, server_cpu_ns=None),), boots=(Boot(index=0),))).server
    assert (found.cpu_per_request, found.cpu_share, found.peak_rss) == (None, None, None)


@pytest.mark.parametrize("share,saturated", [(0.90, False), (0.91, True)])
def test_a_busy_generator_is_saturated_but_not_when_it_shares_the_app_s_process(share: float, saturated: bool) -> None:
    busy = replace(RUN, rounds=(replace(FAILED, client_cpu_ns=round(share * SECOND)),))
    assert measurement_of(busy).saturated is saturated
    assert measurement_of(replace(busy, engine="in-process")).saturated is False


def test_nothing_measured_is_all_zero() -> None:
    found = measurement_of(Recording(rounds=(), boots=(), connections=1, engine="replay"))
    assert (found.rps, found.requests, found.success_ratio, found.duration) == (0.0, 0, 0.0, 0.0)
    assert (found.latency.count, found.latency.p99, found.latency.max) == (0, 0.0, 0.0)
    assert found.saturated is False


def test_when_all_end_in_the_drain_the_rates_are_over_the_whole_time() -> None:
    late = replace(RUN, rounds=(round_of(), round_of(100, 200, index=1, phase=Phase.DRAIN)))
    found = measurement_of(late)
    assert found.rps == 1.0
    assert found.bytes_sent_per_second == 1000.0


def test_of_kinds_of_failure_that_are_as_frequent_the_status_is_first() -> None:
    kinds = ("disconnected", "status 500", "timeout")
    merged = merge_failures(Failure(kind=kind, count=1 + (kind == "timeout"), example="") for kind in kinds)
    assert [failure.kind for failure in merged] == ["timeout", "status 500", "disconnected"]
