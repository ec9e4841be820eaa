"""What went on during the rounds, read off samples that were taken before, during and after them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measure.recordings import SECOND, Core, Made

from pytest_fileperf.host.sample import ProcessUse, Sample
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round
from pytest_fileperf.measure.usage import CoreUse, usage_of

MS = 1_000_000
MADE = Made().recording()


def round_of(start_s: float, end_s: float, *, boot: int = 0, phase: Phase = Phase.ROUND, requests: int = 10) -> Round:
    """A round whose requests take 100 ms each."""
    latencies = Histogram.of([100 * MS] * requests)
    return Round(
        boot=boot,
        index=0,
        phase=phase,
        started_ns=round(start_s * SECOND),
        ended_ns=round(end_s * SECOND),
        requests=requests,
        latency=latencies,
        ttfb=latencies,
        bytes_sent=0,
        bytes_received=0,
    )


def boot_of(*cpu: tuple[float, float], index: int = 0, pids: tuple[int, ...] = (1,)) -> Boot:
    """A boot whose processes have each used so many seconds of CPU, at such instants in seconds."""
    return Boot(
        index=index,
        worker_pids=pids,
        samples=tuple(
            Sample(at_ns=round(at_s * SECOND), server=tuple(process(pid, cpu_s) for pid in pids)) for at_s, cpu_s in cpu
        ),
    )


def process(pid: int, cpu_s: float) -> ProcessUse:
    return ProcessUse(
        pid=pid,
        cpu_ns=round(cpu_s * SECOND),
        main_cpu_ns=None,
        waiting_ns=None,
        rss_bytes=0,
        threads=1,
        files=None,
        written_bytes=None,
        read_bytes=None,
    )


def recording_of(boots: tuple[Boot, ...], rounds: tuple[Round, ...]) -> Recording:
    return Recording(rounds=rounds, boots=boots, connections=4, engine="replay")


@pytest.mark.parametrize(
    "cpu, ran",
    [
        (((0, 0), (1, 0), (3, 2)), 1.0),  # from 1 to 3
        (((0, 0), (4, 2)), 0.5),  # the line between
        (((0, 0), (2, 0), (4, 2)), 0.5),  # idle, then busy
        (((2, 0.25), (3, 0.5)), 0.25),  # part of it
        (((0, 0), (1, 5), (3, 5), (4, 9)), 0.0),  # busy before and after
    ],
)
def test_what_ran_before_and_after_the_rounds_does_not_count(cpu: tuple[tuple[float, float], ...], ran: float) -> None:
    (worker,) = usage_of(recording_of((boot_of(*cpu),), (round_of(1, 2), round_of(2, 3)))).workers

    assert worker.ran == pytest.approx(ran)


@pytest.mark.parametrize("cpu", [(), ((2, 1),), ((0, 0), (1, 1)), ((3, 0), (4, 1))])
def test_samples_that_say_nothing_of_the_rounds(cpu: tuple[tuple[float, float], ...]) -> None:
    assert usage_of(recording_of((boot_of(*cpu),), (round_of(1, 3),))).workers == ()


def test_the_workers_of_several_boots_are_taken_together_by_how_busy_they_were() -> None:
    first = Made(workers=(Core(ran=0.9), Core(ran=0.2))).recording().boots[0]
    second = Made(workers=(Core(ran=0.4), Core(ran=0.7))).recording().boots[0]
    recording = recording_of((first, replace(second, index=1)), (round_of(0, 2), round_of(0, 2, boot=1)))

    ran = [worker.ran for worker in usage_of(recording).workers]

    assert ran == pytest.approx([0.8, 0.3])


def test_boots_with_different_numbers_of_workers_are_not_taken_together() -> None:
    recording = recording_of(
        (boot_of((0, 0), (2, 1)), boot_of((0, 0), (2, 1), index=1, pids=(1, 2))),
        (round_of(0, 2), round_of(0, 2, boot=1)),
    )

    assert usage_of(recording).workers == ()


def test_a_boot_without_rounds_does_not_count() -> None:
    recording = recording_of((boot_of((0, 0), (2, 1)), boot_of((0, 0), (2, 2), index=1)), (round_of(0, 2),))

    assert usage_of(recording).workers == (CoreUse(ran=0.5),)


def test_requests_in_flight_are_those_that_end_times_how_long_they_took() -> None:
    usage = usage_of(recording_of((), (round_of(0, 1, requests=30), round_of(1, 2, requests=50))))

    assert usage.rps == pytest.approx(40)
    assert usage.in_flight == pytest.approx(4)


def test_drains_count_only_where_nothing_ended_before() -> None:
    drain = round_of(1, 2, phase=Phase.DRAIN, requests=20)

    assert usage_of(recording_of((), (round_of(0, 1, requests=10), drain))).rps == pytest.approx(10)
    assert usage_of(recording_of((), (round_of(0, 1, requests=0), drain))).rps == pytest.approx(10)


def test_looks_outside_of_the_rounds_do_not_count() -> None:
    made = Made(main="iiiiiiiiiibbbbbbbbbbb", busy=(0,) * 10 + (5,) * 11).recording()
    late = replace(made, rounds=(replace(made.rounds[0], started_ns=SECOND),))

    whole, part = usage_of(made).threads, usage_of(late).threads

    assert whole is not None
    assert part is not None
    assert (whole.looks, part.looks) == (21, 11)
    assert (part.idle, part.blocked, part.pool_busy) == (0.0, 1.0, 5.0)
    assert whole.blocked == pytest.approx(11 / 21)


def test_a_recording_without_rounds_is_empty() -> None:
    usage = usage_of(replace(MADE, rounds=()))

    assert (usage.rps, usage.in_flight, usage.workers, usage.threads) == (0.0, 0.0, (), None)


@pytest.mark.parametrize("core, wanted", [(Core(ran=0.5, waited=0.3), 0.8), (Core(ran=0.9, main_ran=0.1), 0.9)])
def test_a_core_is_wanted_by_who_runs_and_by_a_main_thread_that_waits(core: Core, wanted: float) -> None:
    (worker,) = usage_of(Made(workers=(core,)).recording()).workers

    assert worker.wanted == pytest.approx(wanted)
