"""What went on during the rounds, read off samples that were taken before, during and after them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from judge.sides import known
from measure.recordings import SECOND, Core, Made, alike, recording_of, round_of, use

from pytest_fileperf.host.sample import Sample
from pytest_fileperf.measure.growth import Growth, growth_of, joined
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Phase, Round
from pytest_fileperf.measure.usage import (
    BUSY,
    Busy,
    CoreUse,
    Usage,
    busy_of,
    course_after,
    course_of,
    thinned,
)

MADE = Made().recording()


def span(start_s: float, end_s: float, *, boot: int = 0, phase: Phase = Phase.ROUND, requests: int = 10) -> Round:
    """A round whose requests take 100 ms each."""
    length_ns = round((end_s - start_s) * SECOND)
    latency = alike(100, requests)
    return round_of(latency=latency, boot=boot, phase=phase, start_ns=round(start_s * SECOND), length_ns=length_ns)


def boot_of(*cpu: tuple[float, float], index: int = 0, pids: tuple[int, ...] = (1,)) -> Boot:
    """A boot whose processes have each used so many seconds of CPU, at such instants in seconds."""
    samples = (
        Sample(at_ns=round(at_s * SECOND), server=tuple(use(pid, cpu_s=cpu_s) for pid in pids)) for at_s, cpu_s in cpu
    )
    return Boot(index=index, worker_pids=pids, samples=tuple(samples))


@pytest.mark.parametrize(
    "cpu, ran",
    [
        (((0, 0), (1, 0), (3, 2)), 1.0),  # from 1 to 3
        (((0, 0), (4, 2)), 0.5),  # the line between
        (((0, 0), (2, 0), (4, 2)), 0.5),  # idle, then busy
        (((2, 0.25), (3, 0.5)), 0.25),  # part of it
        (((0, 0), (1, 5), (3, 5), (4, 9)), 0.0),  # busy before and after
        *((samples, None) for samples in ((), ((2, 1),), ((0, 0), (1, 1)), ((3, 0), (4, 1)))),  # nothing of the rounds
    ],
)
def test_only_what_ran_during_the_rounds_counts(cpu: tuple[tuple[float, float], ...], ran: float | None) -> None:
    workers = Usage(recording_of(span(1, 2), span(2, 3), boots=(boot_of(*cpu),))).workers
    assert [worker.ran for worker in workers] == ([] if ran is None else [pytest.approx(ran)])


def test_the_workers_of_several_boots_are_taken_together_by_how_busy_they_were() -> None:
    first, second = (
        Made(workers=(Core(ran=one), Core(ran=other))).recording().boots[0] for one, other in ((0.9, 0.2), (0.4, 0.7))
    )
    both = recording_of(span(0, 2), span(0, 2, boot=1), boots=(first, replace(second, index=1)))
    assert [worker.ran for worker in Usage(both).workers] == pytest.approx([0.8, 0.3])
    more = (boot_of((0, 0), (2, 1)), boot_of((0, 0), (2, 1), index=1, pids=(1, 2)))
    assert Usage(recording_of(span(0, 2), span(0, 2, boot=1), boots=more)).workers == ()
    unused = (boot_of((0, 0), (2, 1)), boot_of((0, 0), (2, 2), index=1))
    assert Usage(recording_of(span(0, 2), boots=unused)).workers == (CoreUse(ran=0.5),)


def test_requests_in_flight_are_those_that_end_times_how_long_they_took() -> None:
    usage = Usage(recording_of(span(0, 1, requests=30), span(1, 2, requests=50), boots=()))
    assert [usage.rps, usage.in_flight] == pytest.approx([40, 4])
    # Drains count only if nothing ended before.
    drain = span(1, 2, phase=Phase.DRAIN, requests=20)
    assert [Usage(recording_of(span(0, 1, requests=own), drain, boots=())).rps for own in (10, 0)] == [10, 10]
    none = Usage(replace(MADE, rounds=()))
    assert (none.rps, none.in_flight, none.workers, none.threads) == (0.0, 0.0, (), None)


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


def test_several_boots_are_the_mean_and_nothing_measured_is_not_busy() -> None:
    alone, shared = ALONE.recording(), SHARED.recording()
    (only,), (other,) = alone.rounds, shared.rounds
    boots = (*alone.boots, *(replace(boot, index=1) for boot in shared.boots))
    assert busy_of(replace(alone, rounds=(only, replace(other, boot=1)), boots=boots)).server == pytest.approx(0.24)
    assert measurement_of(shared).busy == busy_of(shared)
    # What the server's own children used that have ended is not what others took.
    with_children = replace(other, server_cpu_ns=other.duration_ns)
    assert busy_of(replace(shared, rounds=(with_children,))).server == 0
    assert busy_of(replace(alone, rounds=())) == busy_of(replace(alone, boots=())) == Busy()


@pytest.mark.parametrize(
    "busy, text",
    [
        (Busy(server=BUSY - 0.001, generator=BUSY - 0.001), ""),
        (Busy(server=0.26), "other programs used the server's core 26 % of the time"),
        (Busy(generator=0.07), "other programs used the load generator's core 7 % of the time"),
        (
            Busy(server=0.26, generator=0.07),
            "other programs used the server's core 26 % of the time and the load generator's core 7 % of the time",
        ),
        (
            Busy(server=0.26, host=0.2),
            "other programs used the server's core 26 % of the time (the host of this virtual machine 20 %)",
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


# --- The course of a server's memory, by its requests


def test_readings_are_told_by_requests_those_of_the_warm_up_too() -> None:
    rounds = [
        round_of(requests=requests, start_ns=start_ns, length_ns=100)
        for start_ns, requests in ((100, 40), (200, 0), (300, 60))
    ]
    readings = [(0, 10), (50, 11), (150, 12), (250, 13), (400, 20)]
    course = ((0, 10), (10, 11), (40, 12), (60, 13), (120, 20))
    assert course_of(readings, rounds, warm=[(100, 0)], warmed=20) == course
    # In a comparison a side has turns in the warm-up, too: here the second half of it.
    assert course_of(readings, rounds, warm=[(50, 0)], warmed=20) == ((0, 10), (0, 11), *course[2:])
    assert course_of([], rounds, warm=[(100, 0)], warmed=0) == ()


def test_a_run_after_another_one_goes_on_with_its_requests_and_its_peak() -> None:
    assert course_after(((0, 10), (5, 50)), ((0, 40), (5, 60))) == ((0, 10), (5, 50), (5, 50), (10, 60))
    assert course_after((), ((0, 40),)) == ((0, 40),)


def test_a_course_is_kept_small_with_the_ends_of_what_did_not_grow() -> None:
    flat = [(place, 7) for place in range(100)]
    assert thinned(flat, 64) == ((0, 7), (99, 7))
    many = thinned(((place, place) for place in range(1000)), 12)
    assert (len(many), many[0], many[-1]) == (12, (0, 0), (999, 999))


# --- what a server holds more of, request by request: which growth lasts


MIB = 1 << 20
LOOKS = 17


def seen(
    files: Callable[[float], float] = lambda _: 20,
    memory: Callable[[float], float] = lambda _: 50 * MIB,
    pids: Sequence[int] = (1,) * LOOKS,
) -> list[Sample]:
    """Returns looks in a second; what is held depends on the share of it that is over."""
    return [
        Sample(
            at_ns=round(SECOND * (1 + share)),
            server=(use(pids[at], threads=3, files=round(files(share)), rss_bytes=round(memory(share))),),
        )
        for at, share in enumerate(number / (LOOKS - 1) for number in range(LOOKS))
    ]


def grown(samples: Sequence[Sample], *, limit: int | None = 1024) -> Growth | None:
    """Returns the growth over a second of 1,000 requests."""
    halves = [
        round_of(requests=500, start_ns=start_ns, length_ns=SECOND // 2) for start_ns in (SECOND, SECOND * 3 // 2)
    ]
    return growth_of(samples, halves, connections=4, files_limit=limit)


COURSES: Mapping[str, tuple[list[Sample], frozenset[str]]] = {
    "nothing grows": (seen(), frozenset()),
    "a file for each request": (seen(files=lambda share: 20 + 900 * share), frozenset({"open_files"})),
    "a file for fifty requests": (seen(files=lambda share: 20 + 20 * share), frozenset({"open_files"})),
    "some files": (seen(files=lambda share: 20 + 10 * share), frozenset()),
    "a cache of files that is full": (seen(files=lambda share: 20 + min(200.0, 300 * share)), frozenset()),
    "files that are closed now and then": (seen(files=lambda share: 20 + 400 * (3 * share % 1)), frozenset()),
    "memory": (seen(memory=lambda share: (50 + 10 * share) * MIB), frozenset({"memory_bytes"})),
    "memory in the first half": (seen(memory=lambda share: (50 + 20 * min(0.5, share)) * MIB), frozenset()),
    "less and less memory": (seen(memory=lambda share: (50 + 20 * (1 - (1 - share) ** 3)) * MIB), frozenset()),
    "a little memory": (seen(memory=lambda share: (50 + 3 * share) * MIB), frozenset()),
}


@pytest.mark.parametrize("samples, lasting", COURSES.values(), ids=COURSES)
def test_growth_lasts_if_it_goes_on_to_the_end(samples: list[Sample], lasting: frozenset[str]) -> None:
    found = known(grown(samples))
    assert found.lasting == lasting


def test_growth_is_for_each_request() -> None:
    found = grown(seen(files=lambda share: 20 + 900 * share, memory=lambda share: 50 * MIB + 9_967_000 * share))
    assert found is not None
    assert found.open_files == pytest.approx(0.9)
    assert found.memory_bytes == pytest.approx(9_967, rel=0.001)
    assert found.threads == 0


def test_files_grow_until_the_limit_that_is_reached() -> None:
    found, before = (grown(seen(files=files)) for files in (lambda share: min(1024, 20 + 2000 * share), lambda _: 1023))
    assert found is not None
    assert (found.files_limit, found.lasting) == (1024, frozenset({"open_files"}))
    assert found.open_files == pytest.approx(2.0, rel=0.05)
    assert before is not None
    assert (before.files_limit, before.open_files) == (1024, None)
    assert grown(seen(pids=(1,) * 9 + (2,) * 8)) is None, "processes came and went"


def test_several_start_ups_have_a_mean_and_what_lasts_in_nearly_all() -> None:
    one = Growth(requests=100, open_files=1.0, lasting=frozenset({"open_files"}))
    other = Growth(requests=300, open_files=0.0)
    assert joined([one, one, None]) == Growth(requests=200, open_files=1.0, lasting=frozenset({"open_files"}))
    assert joined([one, other]) == Growth(requests=400, open_files=0.25)
    assert joined([None]) is None
