"""Measures the code here on its own: boot, warm up, rounds, end it, next boot; as often as is wanted.

The last boot goes on serving, and is the next measurement's first where that is of the same server.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from pytest_fileperf.judge.evidence import evidence_of, precision_of
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict, check_limits
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import busy_of
from pytest_fileperf.plan.load import CapacityPlan, LoadPlan
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.capacity import Load, RateSearch, search_alone
from pytest_fileperf.session.loads import Looked, Record, Run, Tell, Teller, asked_alone, explain_costs, recording_of
from pytest_fileperf.session.rig import Measured, Rig, Task, part_results
from pytest_fileperf.session.setup import Steps, setup_identity, work_on
from pytest_fileperf.settings.plans import AlonePlan, capacity_title, load_identity, load_title

__all__ = (
    "After",
    "Kept",
    "identity_of",
    "judged_by_limits",
    "measure_alone",
    "measure_to_store",
    "once",
    "precision_said",
)


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
    boots = _Boots(task, plan, rig)
    if plan.capacity is not None:
        return _searched(task, plan, plan.capacity, rig, boots)
    runs, record = _made(plan, rig, boots, after)
    recording = record(runs)
    last = recording if len(runs) == plan.boots else record(runs[-plan.boots :])
    measurement = measurement_of(recording)
    if last is not recording:
        # A boot may be idle between two runs, while others are loaded: what limits it shows in one run.
        alone = measurement_of(last)
        cpu, workers = alone.server.cpu_share, alone.server.worker_cpu_shares
        use = replace(measurement.server, cpu_share=cpu, worker_cpu_shares=workers)
        measurement = replace(measurement, limit=alone.limit, busy=alone.busy, server=use)
    measured = _measured(task, plan, boots, recording, measurement, load_title(plan.load, len(recording.boots)))
    return replace(measured, parts=part_results(task, measured.result, runs, record))


def _searched(task: Task, plan: AlonePlan, sought: CapacityPlan, rig: Rig, boots: _Boots) -> Measured:
    """Returns what a search for the capacity has found; its figures are those of the loads at the capacity."""
    search = RateSearch(sought, pinned=plan.server.cores is not None, chance=rig.chance)
    try:
        boots.search(search)
    finally:
        rig.progress.done()
    capacity, recording = search.capacity(), search.recording()
    is_generator = capacity.ended is CapacityEnd.GENERATOR
    measurement = replace(measurement_of(recording), limit=capacity.limit, saturated=is_generator)
    measured = _measured(task, plan, boots, recording, measurement, capacity_title(sought))
    return replace(measured, result=replace(measured.result, capacity=capacity))


def _measured(
    task: Task, plan: AlonePlan, boots: _Boots, recording: Recording, measurement: Measurement, load: str
) -> Measured:
    server = boots.last
    result = Result(
        test=task.test,
        work=task.work.name,
        server=server.title,
        load=load,
        identity=identity_of(task, plan, recording, server.identity()),
        recording=recording,
        measurement=measurement,
        verdict=Verdict(),
        server_notes=server.notes,
        explanation=None if plan.profile is None else boots.costs(plan.profile, measurement.server.cpu_per_request),
    )
    return Measured(result=result, log=boots.log, loaded=server.loaded)


def judged_by_limits(task: Task, result: Result) -> Result:
    """Returns the result with what its limits say of it, and the generator's saturation."""
    limits = check_limits(task.settings.limits, result.recording)
    return replace(result, verdict=replace(result.verdict, limits=limits, saturated=result.measurement.saturated))


def identity_of(task: Task, plan: AlonePlan, recording: Recording, server: Mapping[str, object]) -> dict[str, object]:
    """Returns what must be equal for stored figures to compare, as JSON values; `server` is what the server's is."""
    return {
        "work": task.work.identity(),
        "server": server,
        "load": load_identity(plan.load) | ({} if plan.capacity is None else {"capacity": dict(plan.capacity.limits)}),
        "engine": recording.engine,
        "pinned": recording.pinned,
        # Only where there are any: baselines of before have no such keys.
        **({"tracer": recording.tracer} if recording.tracer else {}),
        **({"load from": "cluster"} if recording.is_from_cluster else {}),
        **setup_identity(task.settings),
    }


@dataclass(slots=True)
class _Boots:
    """Makes runs on boots of the server, of which one serves at a time."""

    task: Task
    plan: AlonePlan
    rig: Rig
    seen: list[RunningServer] = field(default_factory=list)
    """All that were loaded: the place of each is the boot's in the recording."""
    log: tuple[str, ...] = ()
    """The last lines of the first boot that answered with a status of 500 or more: only its log says why."""

    @property
    def last(self) -> RunningServer:
        """The one that serves."""
        return self.seen[-1]

    def one_run_each(self, title: str) -> list[Run]:
        """Makes one run on each boot, in random order, but first on the one that serves."""
        plan, rig, made = self.plan, self.rig, list[Run]()
        served = plan.server
        teller = Teller(
            sink=rig.progress,
            clock=rig.clock,
            title=title,
            begun_s=rig.clock(),
            total_s=None if plan.load.counted else plan.boots * plan.load.duration_ns / 1e9,
            boots=plan.boots,
        )
        begun_s = rig.clock()
        for number in self._numbers():
            if made and (rig.clock() - begun_s) * (1 + 1 / len(made)) > plan.most_ns / 1e9:
                break  # as long as the boots so far have taken, there is no time for another
            server = rig.servers.boot(served.spec, served.app, number, served.cores)
            requests = sum(round_.requests for run in made for round_ in run.result.rounds)
            with self._set_up(server) as work:
                tell = partial(teller.tell, boot=len(made) + 1, requests=requests)
                run = self._run(work, server, plan.load, tell)
                if not made:  # one boot tells it of all
                    load = partial(self._run, work, server, tell=tell)
                    run = asked_alone(run, plan.load, load, _record_of(plan))
                made.append(run)
            if not any(round_.requests for round_ in run.result.rounds):
                break  # other boots would take as long to say the same
        return made

    def search(self, search: RateSearch) -> None:
        """Makes the loads of a search for the capacity."""
        plan, rig, sought = self.plan, self.rig, self.plan.capacity
        assert sought is not None
        total_s = sought.total_ns / 1e9
        teller = Teller(
            sink=rig.progress,
            clock=rig.clock,
            title=self.task.test.title,
            begun_s=rig.clock(),
            total_s=total_s,
            boots=plan.boots,
        )
        served = plan.server

        @contextmanager
        def serving(number: int) -> Iterator[Load]:
            server = rig.servers.boot(served.spec, served.app, number, served.cores)
            with self._set_up(server) as work:

                def load(plan: LoadPlan) -> Run:
                    tell = partial(teller.tell, boot=len(self.seen), requests=search.requests)
                    return self._run(work, server, plan, tell)

                yield load

        search_alone(search, serving, self._numbers(), plan.load, total_s=total_s, clock=rig.clock)

    def _numbers(self) -> list[int]:
        """Returns the boots in random order, but first the one that serves."""
        served = self.plan.server
        numbers = self.rig.chance.sample(range(self.plan.boots), self.plan.boots)
        numbers.sort(key=lambda number: number != self.rig.servers.serving(served.spec, served.app))
        return numbers

    def costs(self, plan: LoadPlan, cpu_per_request: float | None) -> Explanation:
        """Returns which functions cost CPU."""
        served, cores = self.plan.server, self.plan.server.generator_cores
        server = self.rig.servers.any_boot(served.spec, served.app, served.cores)
        with self._set_up(server) as work:

            def load(plan: LoadPlan, server: RunningServer) -> Run:
                return self.rig.loads.make(work, plan, 0, server, cores, lambda _: None)

            looked = Looked(server=server, root=None, cpu_per_request=cpu_per_request)
            return explain_costs(load, plan, looked, cores)

    @contextmanager
    def _set_up(self, server: RunningServer) -> Iterator[Work]:
        """Gives what to load the boot that serves with, after the test's setup."""
        with work_on(server, self.rig.servers, self.task.work, Steps.of(self.task.settings)) as work:
            yield work

    def _run(self, work: Work, server: RunningServer, plan: LoadPlan, tell: Tell) -> Run:
        if server not in self.seen:
            self.seen.append(server)
        index, cores = self.seen.index(server), self.plan.server.generator_cores
        run = self.rig.loads.make(work, plan, index, server, cores, tell)
        if not self.log and any(status >= 500 for round_ in run.result.rounds for status, _ in round_.statuses):
            self.log = server.log
        return run


def _record_of(plan: AlonePlan) -> Record:
    """Returns what makes a recording of runs."""
    load, pinned = plan.load, plan.server.cores is not None
    return partial(recording_of, connections=load.connections, open_loop=load.pacing().open_loop, pinned=pinned)


def _made(plan: AlonePlan, rig: Rig, boots: _Boots, after: After) -> tuple[Sequence[Run], Record]:
    """Makes runs on boots until it is enough; returns all that were kept, and what makes a recording of runs."""
    record = _record_of(plan)
    title = boots.task.test.title
    try:
        kept = after((), boots.one_run_each(title), record)
        while kept.why_again:
            runs = boots.one_run_each(f"{title}, again: {kept.why_again}")
            kept = after(kept.runs, runs, record)
    finally:
        rig.progress.done()
    return kept.runs, record


# --- Measures what becomes a baseline: until its level is known well enough, and not while others use the machine
#
# A baseline is read for as long as it stands, so it is worth more time than a run that is compared once.

KNOWN_TO = 0.015
"""Standard error of the log level of requests/s, and other metrics of rounds, that is good enough for a baseline."""
LONGEST_S, MOST_TIMES = 60.0, 12
"""A baseline takes so long at the most, and so many times as long as other measurements of the test; and no longer
than `max_duration`."""


def measure_to_store(task: Task, plan: AlonePlan, rig: Rig) -> Measured:
    """Measures the code here until its level is known; raises what booting and loading raise.

    What was measured while others used the machine does not count, unless there is nothing else when the time is over.
    """
    # A load that is made as a whole is made once, and a search ends by itself.
    if plan.load.counted or plan.load.ramp is not None or plan.capacity is not None:
        return measure_alone(task, plan, rig)
    limit_s = min(LONGEST_S, MOST_TIMES * task.settings.duration_ns / 1e9, plan.most_ns / 1e9)
    return measure_alone(task, plan, rig, _UntilKnown(task.settings.gate, rig.clock, limit_s).after)


def precision_said(gate: Sequence[str], recording: Recording) -> str:
    """Returns a sentence where the level is not known as well as a baseline's should be; else an empty text."""
    error = _error(gate, recording)
    if error <= KNOWN_TO:
        return ""
    return f"the stored level is known to {100 * error:.1f} % only, not to {100 * KNOWN_TO:g} %: the machine is noisy"


@dataclass(slots=True)
class _UntilKnown:
    """Decides after each run on every boot what to keep, and whether it is enough."""

    gate: Sequence[str]
    clock: Callable[[], float]
    limit_s: float
    begun_s: float = 0.0
    last_s: float = 0.0

    def __post_init__(self) -> None:
        self.begun_s = self.last_s = self.clock()

    def after(self, kept: Sequence[Run], new: Sequence[Run], record: Record) -> Kept:
        """Returns the runs to keep, and why others are needed."""
        now_s = self.clock()
        is_over = now_s - self.begun_s + (now_s - self.last_s) > self.limit_s
        self.last_s = now_s
        if busy_of(record(new)).is_busy:
            return Kept(runs=kept or new) if is_over else Kept(runs=kept, why_again="the machine was busy")
        kept = [*kept, *new]
        if is_over or _error(self.gate, record(kept)) <= KNOWN_TO:
            return Kept(runs=kept)
        return Kept(runs=kept, why_again="its level is not known well")


def _error(gate: Sequence[str], recording: Recording) -> float:
    """Returns the greatest standard error of the gated metrics that rounds tell; 0.0 where there is none."""
    evidence = evidence_of(recording)
    metrics = [METRICS[name] for name in gate if METRICS[name].percentile is None]
    return max(filter(math.isfinite, (precision_of(metric, evidence) for metric in metrics)), default=0.0)
