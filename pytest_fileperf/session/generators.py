"""Finds out how many generators a load takes, where that is asked for, before it is measured.

    1 generator | saturated? free cores? | 2 generators | saturated? free cores? | 4 generators | …

Each step is a short load of the code here on a boot that serves, which then is the measurement's first.
"""

from __future__ import annotations

import os
from dataclasses import replace

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

    Raises what booting and loading raise, where short loads tell the number.
    """
    settings, most = task.settings, _most(task.settings)
    if settings.generators == AUTO:
        count, why = _enough(task, rig, most)
        said = f"generators=auto took {count}: {why}"
    elif isinstance(settings.generators, int) and settings.generators > most:
        count = most
        load = format_count(most, "connection" if most == settings.connections else "request")
        said = f"{count} of {format_count(settings.generators, 'generator')} made the load: it has only {load}"
    else:
        return task
    return replace(task, settings=replace(settings, generators=count), said=(*task.said, said))


def _enough(task: Task, rig: Rig, most: int) -> tuple[int, str]:
    """Returns how many generators are enough, and why it is not more."""
    settings = task.settings
    if isinstance(settings.server, InProcess):
        return 1, "the app is loaded from the test process"
    cores = _free_cores(worker_count(settings.server) or 1)
    if min(cores, most) < 2:
        return 1, _NO_CORE if cores < 2 else "the load has one connection"
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
                return count, f"{used}, and {'the load has no more connections' if count == most else _NO_CORE}"
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
