"""Measures the code here on its own: one run on each boot, one boot after the other, as often as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from pytest_fileperf.judge.limits import check_limits
from pytest_fileperf.judge.result import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loading import Run, Teller, recording_of
from pytest_fileperf.session.planning import AlonePlan, load_identity, load_title
from pytest_fileperf.session.profiling import Looked, explain_costs
from pytest_fileperf.session.rig import Measured, Rig, Task

__all__ = ("After", "Kept", "Record", "identity_of", "judged_by_limits", "measure_alone", "once")

Record: TypeAlias = Callable[[Sequence[Run]], Recording]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is kept after a run on each boot."""

    runs: Sequence[Run]
    why_again: str = ""
    """Why there is to be another run on each boot; empty where it is enough."""


After: TypeAlias = Callable[[Sequence[Run], Sequence[Run], Record], Kept]
"""Decides after a run on each boot: given the runs kept so far, the new ones, and what makes a recording of runs."""


def once(kept: Sequence[Run], new: Sequence[Run], record: Record) -> Kept:
    """One run on each boot is enough."""
    return Kept(runs=new)


def measure_alone(task: Task, plan: AlonePlan, rig: Rig, after: After = once) -> Measured:
    """Returns what was measured of the code here. Raises what booting and loading raise."""
    served = plan.server
    servers = rig.servers.boots(served.spec, served.app, plan.boots, served.cores)
    recording, last = _recordings(task, plan, rig, servers, after)
    measurement = measurement_of(recording)
    if last is not recording:
        # Between two runs a boot is idle while the others are loaded: what limits it shows in one run.
        alone = measurement_of(last)
        cpu, workers = alone.server.cpu_share, alone.server.worker_cpu_shares
        use = replace(measurement.server, cpu_share=cpu, worker_cpu_shares=workers)
        measurement = replace(measurement, limit=alone.limit, busy=alone.busy, server=use)
    result = Result(
        test=task.test,
        work=task.work.name,
        server=servers[0].title,
        load=load_title(plan.load, len(recording.boots)),
        identity=identity_of(task, plan, recording, servers[0].identity()),
        recording=recording,
        measurement=measurement,
        verdict=Verdict(),
        explanation=_costs(task, plan, rig, servers[0], measurement.server.cpu_per_request),
    )
    failed = any(status >= 500 for status in measurement.statuses)
    log = next((server.log for server in servers if server.log), ()) if failed else ()
    return Measured(result=result, log=log, files=servers[0].files)


def judged_by_limits(task: Task, result: Result) -> Result:
    """Returns the result with what its limits say of it, and the generator's saturation."""
    limits = check_limits(task.settings.limits, result.recording)
    return replace(result, verdict=replace(result.verdict, limits=limits, saturated=result.measurement.saturated))


def identity_of(task: Task, plan: AlonePlan, recording: Recording, server: Mapping[str, object]) -> dict[str, object]:
    """Returns what must be equal for stored figures to compare, as JSON values; `server` is what the server's is."""
    return {
        "work": task.work.identity(),
        "server": server,
        "load": load_identity(plan.load),
        "engine": recording.engine,
        "pinned": recording.pinned,
        # Only where there is one: baselines of before have no such key.
        **({"tracer": recording.tracer} if recording.tracer else {}),
    }


def _costs(
    task: Task, plan: AlonePlan, rig: Rig, server: RunningServer, cpu_per_request: float | None
) -> Explanation | None:
    """Returns which functions cost CPU, where a profile is planned."""
    if plan.profile is None:
        return None
    cores = plan.server.generator_cores

    def load(plan: LoadPlan, server: RunningServer) -> Run:
        return rig.loads.make(task.work, plan, 0, server, cores, lambda _: None)

    return explain_costs(load, plan.profile, Looked(server=server, root=None, cpu_per_request=cpu_per_request), cores)


def _recordings(
    task: Task, plan: AlonePlan, rig: Rig, servers: tuple[RunningServer, ...], after: After
) -> tuple[Recording, Recording]:
    """Makes runs on each boot, in random order, until it is enough; returns all that was kept, and its last runs."""
    load = plan.load
    recording = partial(
        recording_of,
        connections=load.connections,
        open_loop=load.pacing().open_loop,
        pinned=plan.server.cores is not None,
    )
    title = task.test.title
    try:
        kept = after((), _one_each(task, plan, rig, servers, title), recording)
        while kept.why_again:
            runs = _one_each(task, plan, rig, servers, f"{title}, again: {kept.why_again}")
            kept = after(kept.runs, runs, recording)
    finally:
        rig.progress.done()
    whole, last = recording(kept.runs), kept.runs[-len(servers) :]
    return whole, whole if len(last) == len(kept.runs) else recording(last)


def _one_each(task: Task, plan: AlonePlan, rig: Rig, servers: tuple[RunningServer, ...], title: str) -> list[Run]:
    """Makes one run on each boot, in random order."""
    load, made = plan.load, list[Run]()
    teller = Teller(
        sink=rig.progress,
        clock=rig.clock,
        title=title,
        begun_s=rig.clock(),
        total_s=None if load.counted else len(servers) * load.duration_ns / 1e9,
        boots=len(servers),
    )
    for index in rig.chance.sample(range(len(servers)), len(servers)):
        requests = sum(round_.requests for run in made for round_ in run.result.rounds)
        tell = partial(teller.tell, boot=len(made) + 1, requests=requests)
        made.append(rig.loads.make(task.work, load, index, servers[index], plan.server.generator_cores, tell))
    return made
