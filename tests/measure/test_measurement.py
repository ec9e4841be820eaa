"""The figures of a run, in seconds, bytes and counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measure.recordings import MS, SECOND, in_ms
from measure.recordings import recording_of as recorded
from measure.recordings import round_of as made

from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.measurement import Background, background_of, measurement_of
from pytest_fileperf.measure.recording import Boot, Failure, Phase, Recording, Round, merge_failures


def round_of(*latencies_ms: int, index: int = 0, phase: Phase = Phase.ROUND) -> Round:
    count = len(latencies_ms)
    return made(
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


def test_the_figures_of_a_run() -> None:
    found = measurement_of(RUN)
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
    found = measurement_of(replace(RUN, rounds=(failed,), boots=(Boot(index=0),)))
    assert str(found) == "no request succeeded, 4 failed"
    assert (found.server.cpu_per_request, found.server.cpu_share, found.server.peak_rss) == (None, None, None)
    nothing = measurement_of(recorded(boots=()))
    assert (nothing.rps, nothing.requests, nothing.success_ratio, nothing.duration) == (0.0, 0, 0.0, 0.0)
    assert (nothing.latency.count, nothing.latency.p99, nothing.latency.max, nothing.saturated) == (0, 0.0, 0.0, False)


@pytest.mark.parametrize("share,saturated", [(0.90, False), (0.91, True)])
def test_a_busy_generator_is_saturated_but_not_when_it_shares_the_app_s_process(share: float, saturated: bool) -> None:
    busy = replace(RUN, rounds=(replace(FAILED, client_cpu_ns=round(share * SECOND)),))
    assert measurement_of(busy).saturated is saturated
    assert measurement_of(replace(busy, engine="in-process")).saturated is False


def test_when_all_end_in_the_drain_the_rates_are_over_the_whole_time() -> None:
    late = replace(RUN, rounds=(round_of(), round_of(100, 200, index=1, phase=Phase.DRAIN)))
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
            made(
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
        (0.071, 0.0, "the base used 7 % of a core while the other side had its turn"),
        (None, 0.124, "the code here used 12 % of a core while the other side had its turn"),
        (0.03, 0.5, "the base used 3 % and the code here used 50 % of a core while the other side had its turn"),
        (0.02, 0.019, ""),
        (None, None, ""),
    ],
)
def test_more_than_a_fiftieth_of_a_core_is_said(base: float | None, now: float | None, text: str) -> None:
    why = ": background work of one side slows the other" if text else ""
    assert str(Background(base=base, now=now, surely_base=base or 0.0, surely_now=now or 0.0)) == text + why


def test_it_is_said_only_if_most_turns_show_it() -> None:
    """Some late readings on a busy machine show as much as steady work does; so do few turns."""
    quiet, steady = side(0), side(0, background=0.07)
    idle = [place for place, own in enumerate(quiet.rounds) if own.phase is Phase.HANDOVER and own.requests == 0]
    late = [replace(own, server_cpu_ns=20 * MS) if place in idle[:4] else own for place, own in enumerate(quiet.rounds)]
    found = background_of(replace(quiet, rounds=tuple(late)), side(1))

    assert found.base == pytest.approx(0.089, abs=0.01)
    assert str(found) == ""
    assert "the base used 7 % of a core" in str(background_of(steady, side(1)))
    few = tuple(own for own in steady.rounds if own.ended_ns <= 8 * TURN_MS * MS)
    assert str(background_of(replace(steady, rounds=few), side(1))) == ""
