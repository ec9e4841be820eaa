"""What went on during the rounds, read off samples that were taken before, during and after them."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from measure.recordings import SECOND, Core, Made

from pytest_fileperf.host.sample import ProcessUse, Sample
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round
from pytest_fileperf.measure.usage import (
    BUSY,
    Busy,
    CoreUse,
    busy_of,
    course_after,
    course_of,
    memory_after,
    thinned,
    usage_of,
)

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


# --- What others took from server and generator: only what was wanted, and only what others had


ALONE = Made(workers=(Core(ran=0.97),), generator=Core(ran=0.5), core_busy={0: 0.97, 1: 0.5})
SHARED = replace(ALONE, workers=(Core(ran=0.5, waited=0.48),), core_busy={0: 1.0, 1: 0.5})
EVERYWHERE = frozenset({0, 1})
CASES = {
    "nobody else": (ALONE, 0.0, 0.0),
    "another process has half of the server's core": (SHARED, 0.48, 0.0),
    "all that waits, and more that others do while nothing waits": (
        replace(SHARED, workers=(Core(ran=0.5, waited=0.2),)),
        0.2,
        0.0,
    ),
    "another process on the core of a server that waits for something else": (
        replace(ALONE, workers=(Core(ran=0.1),), core_busy={0: 1.0, 1: 0.5}),
        0.0,
        0.0,
    ),
    "threads of the server that wait for each other": (
        replace(ALONE, workers=(Core(ran=0.9, main_ran=0.3, waited=0.6),), core_busy={0: 0.92, 1: 0.5}),
        0.02,
        0.0,
    ),
    "the generator's core": (
        replace(ALONE, generator=Core(ran=0.3, waited=0.3), core_busy={0: 0.97, 1: 0.95}),
        0.0,
        0.3,
    ),
    "both": (replace(SHARED, generator=Core(ran=0.3, waited=0.1), core_busy={0: 1.0, 1: 0.9}), 0.48, 0.1),
    "a core of neither": (replace(ALONE, core_busy={0: 0.97, 1: 0.5, 2: 1.0}), 0.0, 0.0),
    "two workers that want two cores": (
        replace(
            ALONE,
            workers=(Core(ran=0.5, waited=0.45), Core(ran=0.7, waited=0.25)),
            cores=EVERYWHERE,
            generator_cores=frozenset({2}),
            core_busy={0: 0.95, 1: 0.97, 2: 0.5},
        ),
        0.7 / 1.9,
        0.0,
    ),
    "one of two workers has all the work": (
        replace(
            ALONE,
            workers=(Core(ran=0.6, waited=0.3), Core(ran=0.0)),
            cores=EVERYWHERE,
            generator_cores=frozenset({2}),
            core_busy={0: 1.0, 1: 0.0, 2: 0.5},
        ),
        0.3,
        0.0,
    ),
    "server and generator wait for each other only": (
        replace(
            ALONE,
            workers=(Core(ran=0.7, waited=0.3), Core(ran=0.7, waited=0.3)),
            generator=Core(ran=0.5, waited=0.4),
            cores=EVERYWHERE,
            generator_cores=EVERYWHERE,
            core_busy={0: 0.95, 1: 0.95},
        ),
        0.0,
        0.0,
    ),
    "the host": (replace(ALONE, core_stolen={0: 0.1, 1: 0.2}), 0.1 / 1.07, 0.2),
    "the host, half of it while others ran": (replace(SHARED, core_stolen={0: 0.1}), (0.48 + 0.05) / 1.03, 0.0),
    "nothing is known of cores": (replace(SHARED, core_busy={}), 0.0, 0.0),
    "nothing is known of where the server runs": (replace(SHARED, cores=frozenset()), 0.0, 0.0),
    "no samples": (replace(SHARED, looks=0), 0.0, 0.0),
    "which processes are workers is not known": (replace(SHARED, workers_known=False), 0.48, 0.0),
    "in-process": (replace(SHARED, engine="in-process"), 0.48, 0.0),
}


@pytest.mark.parametrize("made, server, generator", CASES.values(), ids=CASES)
def test_what_others_had(made: Made, server: float, generator: float) -> None:
    busy = busy_of(made.recording())

    assert (busy.server, busy.generator) == pytest.approx((server, generator))


def test_the_measurement_has_it() -> None:
    recording = SHARED.recording()

    assert measurement_of(recording).busy == busy_of(recording)


def test_several_boots_are_the_mean() -> None:
    alone, shared = ALONE.recording(), SHARED.recording()
    (round_,) = alone.rounds

    def second(boot: Boot) -> Boot:
        return replace(boot, index=1)

    both = replace(alone, rounds=(round_, replace(round_, boot=1)), boots=(*alone.boots, *map(second, shared.boots)))

    assert busy_of(both).server == pytest.approx(0.24)


@pytest.mark.parametrize("recording", [replace(ALONE.recording(), rounds=()), replace(ALONE.recording(), boots=())])
def test_nothing_measured_is_not_busy(recording: Recording) -> None:
    assert busy_of(recording) == Busy()


@pytest.mark.parametrize(
    "busy, text",
    [
        (Busy(server=BUSY - 0.001, generator=BUSY - 0.001), ""),
        (Busy(server=0.26), "others had the server's core for 26 % of the time"),
        (Busy(generator=0.07), "others had the load generator's core for 7 % of the time"),
        (
            Busy(server=0.26, generator=0.07),
            "others had the server's core for 26 % of the time and the load generator's core for 7 % of the time",
        ),
        (
            Busy(server=0.26, host=0.2),
            "others had the server's core for 26 % of the time (this virtual machine's host for 20 %)",
        ),
    ],
)
def test_it_is_said_from_a_threshold_on(busy: Busy, text: str) -> None:
    assert (str(busy), busy.is_busy) == (text, bool(text))


@pytest.mark.parametrize(
    "busy, metric, factor",
    [
        (Busy(server=0.2), "rps", 1 / 0.8**2),
        (Busy(server=0.2), "throughput", 1 / 0.8**2),
        (Busy(server=0.15, generator=0.05), "mean", 1 / 0.8**2),
        (Busy(server=0.2), "cpu_per_request", 1 / 0.8**2),
        (Busy(server=0.6, generator=0.5), "rps", math.inf),
        (Busy(server=0.25), "p50", 2),
        (Busy(server=0.06), "p90", 2.5),
        (Busy(server=0.06), "p99", math.inf),
        (Busy(server=0.2), "rss", 1),
        (Busy(server=0.2), "error_rate", 1),
        (Busy(server=BUSY - 0.001), "p99", 1),
    ],
)
def test_how_much_worse_it_may_make_a_metric(busy: Busy, metric: str, factor: float) -> None:
    assert busy.explains(METRICS[metric]) == pytest.approx(math.log(factor))


# ---


def stretch_of(start_ns: int, end_ns: int, requests: int) -> Round:
    return Round(
        boot=0,
        index=0,
        phase=Phase.ROUND,
        started_ns=start_ns,
        ended_ns=end_ns,
        requests=requests,
        latency=EMPTY,
        ttfb=EMPTY,
        bytes_sent=0,
        bytes_received=0,
    )


def test_readings_are_told_by_requests_those_of_the_warm_up_too() -> None:
    rounds = [stretch_of(100, 200, 40), stretch_of(200, 300, 0), stretch_of(300, 400, 60)]
    readings = [(0, 10), (50, 11), (150, 12), (250, 13), (400, 20)]
    course = ((0, 10), (10, 11), (40, 12), (60, 13), (120, 20))
    assert course_of(readings, rounds, warm=[(100, 0)], warmed=20) == course
    # In a comparison a side has turns in the warm-up, too: here the second half of it.
    assert course_of(readings, rounds, warm=[(50, 0)], warmed=20) == ((0, 10), (0, 11), *course[2:])
    assert course_of([], rounds, warm=[(100, 0)], warmed=0) == ()


def test_memory_after_so_many_requests_is_between_readings_and_never_beyond_them() -> None:
    course = ((10, 100), (20, 200), (20, 300))
    assert [memory_after(course, place) for place in (0, 10, 15, 20, 99)] == [100, 100, 150, 300, 300]


def test_a_run_after_another_one_goes_on_with_its_requests_and_its_peak() -> None:
    assert course_after(((0, 10), (5, 50)), ((0, 40), (5, 60))) == ((0, 10), (5, 50), (5, 50), (10, 60))
    assert course_after((), ((0, 40),)) == ((0, 40),)


def test_a_course_is_kept_small_with_the_ends_of_what_did_not_grow() -> None:
    flat = [(place, 7) for place in range(100)]
    assert thinned(flat, 64) == ((0, 7), (99, 7))
    many = thinned(((place, place) for place in range(1000)), 12)
    assert (len(many), many[0], many[-1]) == (12, (0, 0), (999, 999))
