"""What others took from server and generator: only what was wanted, and only what others had."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from measure.recordings import Core, Made

from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Recording
from pytest_fileperf.measure.usage import BUSY, Busy, busy_of

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
