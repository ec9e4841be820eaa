"""Measures the code here on its own: one run on each boot, one boot after the other."""

from __future__ import annotations

from functools import partial

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

__all__ = ("measure_alone",)


def measure_alone(task: Task, plan: AlonePlan, rig: Rig) -> Measured:
    """Returns what was measured of the code here. Raises what booting and loading raise."""
    served = plan.server
    servers = rig.servers.boots(served.spec, served.app, plan.boots, served.cores)
    recording = _recording(task, plan, rig, servers)
    measurement = measurement_of(recording)
    identity = {
        "work": task.work.identity(),
        "server": servers[0].identity(),
        "load": load_identity(plan.load),
        "engine": recording.engine,
        "pinned": recording.pinned,
    }
    result = Result(
        test=task.test,
        work=task.work.name,
        server=servers[0].title,
        load=load_title(plan.load, len(recording.boots)),
        identity=identity,
        recording=recording,
        measurement=measurement,
        verdict=Verdict(),
        explanation=_costs(task, plan, rig, servers[0], measurement.server.cpu_per_request),
    )
    failed = any(status >= 500 for status in measurement.statuses)
    return Measured(result=result, log=next((server.log for server in servers if server.log), ()) if failed else ())


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


def _recording(task: Task, plan: AlonePlan, rig: Rig, servers: tuple[RunningServer, ...]) -> Recording:
    """Makes one run on each boot, in random order, and returns everything measured."""
    load, made = plan.load, list[Run]()
    teller = Teller(
        sink=rig.progress,
        clock=rig.clock,
        title=task.test.title,
        begun_s=rig.clock(),
        total_s=None if load.counted else len(servers) * load.duration_ns / 1e9,
        boots=len(servers),
    )
    try:
        for index in rig.chance.sample(range(len(servers)), len(servers)):
            requests = sum(round_.requests for run in made for round_ in run.result.rounds)
            tell = partial(teller.tell, boot=len(made) + 1, requests=requests)
            made.append(rig.loads.make(task.work, load, index, servers[index], plan.server.generator_cores, tell))
    finally:
        rig.progress.done()
    open_loop, pinned = load.pacing().open_loop, plan.server.cores is not None
    return recording_of(made, connections=load.connections, open_loop=open_loop, pinned=pinned)
