"""Says how many generators make a load, and finds out how many it takes where that is asked for.

    1 generator | saturated? free cores? | 2 generators | saturated? free cores? | 4 generators | …

Each step is a short load of the code here on a boot that serves, which then is the measurement's first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from pytest_fileperf.drive.roster import Workers
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.measurement import SATURATED_CPU_SHARE
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.measure.sharing import busiest_share
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import InProcess, worker_count
from pytest_fileperf.session.loading import Run
from pytest_fileperf.session.planning import server_plan
from pytest_fileperf.session.rig import Rig, Task
from pytest_fileperf.session.setting_up import Steps, work_on
from pytest_fileperf.settings.keys import AUTO
from pytest_fileperf.settings.resolve import Settings
from pytest_fileperf.units import format_count

__all__ = ("with_generators",)

_NO_CORE = "no core is free for another one"
_PROBE_NS, _WARMUP_NS = 300_000_000, 100_000_000
"""Whether a core is used up shows after so long."""


def with_generators(task: Task, rig: Rig) -> Task:
    """Returns the task with its number of generators, and what is to be said of it.

    Raises what booting and loading raise, where short loads tell the number; GeneratorError where a cluster cannot make
    the load, and PlanError where it has too few workers.
    """
    settings, most, there = task.settings, _most(task.settings), rig.loads.workers()
    asked, workers = settings.generators, None if there is None else there.count
    task = replace(task, said=(*task.said, *_notes(there)))
    if isinstance(asked, int) and workers is not None and asked > workers:
        raise PlanError(
            f"generators={asked}, and the cluster has {format_count(workers, 'worker')}: start more, or ask for less"
        )
    if asked == AUTO:
        count, why = _enough(task, rig, most, workers)
        said: tuple[str, ...] = (f"generators=auto took {count}: {why}",)
    elif isinstance(asked, int) and asked > most:
        count, said = most, (f"{most} of {format_count(asked, 'generator')} made the load: {_only(settings, most)}",)
    elif asked is None and workers is not None:
        count = min(workers, most)
        said = ()
        if count < workers:
            said = (f"{count} of {format_count(workers, 'worker')} made the load: {_only(settings, most)}",)
    else:
        return task
    return replace(task, settings=replace(settings, generators=count), said=(*task.said, *said))


def _notes(there: Workers | None) -> Iterator[str]:
    """Yields what is to be said of the workers of a cluster."""
    if there is None:
        return
    for worker in there.silent:
        yield f"worker {worker} did not answer, and made no load"
    if there.is_shared:
        yield (
            "another test run has load generators on the same workers, and both disturb each other: "
            "let one end before the other, or give each a cluster"
        )


def _only(settings: Settings, most: int) -> str:
    return f"it has only {format_count(most, 'connection' if most == settings.connections else 'request')}"


def _enough(task: Task, rig: Rig, most: int, workers: int | None) -> tuple[int, str]:
    """Returns how many generators are enough, and why it is not more."""
    settings = task.settings
    if isinstance(settings.server, InProcess):
        return 1, "the app is loaded from the test process"
    cores = _free_cores(worker_count(settings.server) or 1) if workers is None else workers
    no_more = _NO_CORE if workers is None else "the cluster has no more workers"
    if min(cores, most) < 2:
        return 1, no_more if cores < 2 else "the load has one connection"
    served = server_plan(settings)
    server = rig.servers.any_boot(served.spec, served.app, served.cores)
    with work_on(server, rig.servers, task.work, Steps.of(settings)) as work:
        count = 1
        while True:
            run = _probed(replace(settings, generators=count), work, server, rig)
            share = busiest_share([round_ for round_ in run.result.rounds if round_.phase is Phase.ROUND])
            used = f"{'it' if count == 1 else 'the busiest'} used {share * 100:.0f} % of its core"
            if share <= SATURATED_CPU_SHARE:
                return count, used
            if count == min(most, cores):
                return count, f"{used}, and {'the load has no more connections' if count == most else no_more}"
            count = min(2 * count, most, cores)


def _probed(settings: Settings, work: Work, server: RunningServer, rig: Rig) -> Run:
    """Makes a short load with so many generators."""
    count, cores = settings.generators, server_plan(settings).generator_cores
    assert isinstance(count, int)
    return rig.loads.make(work, _probe(settings, count), 0, server, cores, lambda _: None)


def _probe(settings: Settings, generators: int) -> LoadPlan:
    """Returns a short load by so many generators, at the highest rate that is asked for, if any is."""
    ramp = settings.ramp
    return LoadPlan(
        connections=settings.connections,
        warmup_ns=_WARMUP_NS,
        round_ns=_PROBE_NS,
        rounds=1,
        timeout_ns=settings.timeout_ns,
        pause=settings.pause,
        rate=ramp.highest if ramp is not None and ramp.of_rate else settings.rate,
        generators=generators,
    )


def _most(settings: Settings) -> int:
    """Returns how many generators a load can have: each one has a connection, and a request of a fixed number."""
    return min(number for number in (settings.connections, settings.requests, settings.burst) if number is not None)


def _free_cores(workers: int) -> int:
    """Returns how many cores there are beside those of the server's workers."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores - workers
