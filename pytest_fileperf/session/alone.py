"""Measures the code here on its own: boot, warm up, rounds, end it, next boot; as often as is wanted.

The last boot goes on serving, and is the next measurement's first where that is of the same server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.judge.evidence import KNOWN_TO, evidence_of, precision_of
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import busy_of
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.capacity import RateSearch, closed_loop
from pytest_fileperf.session.causes import Looked, explain_costs
from pytest_fileperf.session.loads import Load, Tell, asked_alone, recording_of
from pytest_fileperf.session.rig import Measured, Rig, notes_of, subjects_of
from pytest_fileperf.session.setup import setup_identity, work_on
from pytest_fileperf.settings.plans import Plan, load_identity, load_title

LONGEST_S, MOST_TIMES = 60.0, 12
"""A baseline takes so long at the most, and so many times as long as other measurements of the test; and no longer
than `max_duration`."""


def measure_alone(plan: Plan, rig: Rig, *, to_store: bool = False) -> Measured:
    """Returns what was measured of the code here. Raises what booting and loading raise.

    What becomes a baseline is read for as long as it stands, so it is worth more time than a run that is compared once:
    `to_store` measures until the level is known, without what was measured while others used the machine, unless there
    is nothing else when the time is over.
    """
    boots, runs, search, capacity = _Boots(plan, rig), list[Run](), None, None
    try:
        if plan.searches:
            search = boots.search()
        elif to_store and not plan.load.counted and plan.load.ramp is None:  # what is made as a whole is made once
            runs = _until_known(plan, rig, boots)
        else:
            runs = boots.one_run_each(plan.test.title)
    finally:
        rig.progress.done()
    if search is not None:
        capacity, recording, load = search.capacity(), search.recording(), plan.search_title
        is_generator = capacity.ended is CapacityEnd.GENERATOR
        measurement = measurement_of(recording, limit=capacity.limit, saturated=is_generator)
    else:
        recording = recording_of(runs)
        load = load_title(plan.load, len(recording.boots))
        if len(runs) <= plan.boots:
            measurement = measurement_of(recording)
        else:
            # A boot may be idle between two runs, while others are loaded: what limits it shows in one run.
            last = measurement_of(recording_of(runs[-plan.boots :]))
            measurement = measurement_of(
                recording,
                limit=last.limit,
                busy=last.busy,
                cpu_share=last.server.cpu_share,
                worker_cpu_shares=last.server.worker_cpu_shares,
            )
    server = boots.seen[-1]
    identity = identity_of(plan, recording, server.identity())
    explained = boots.costs(measurement.server.cpu_per_request) if plan.profiles else None
    subjects = subjects_of(plan, runs, recording, measurement)
    results = [
        Result(
            test=subject.test,
            work=subject.title,
            server=server.title,
            load=load,
            identity=identity | subject.own_identity,
            recording=own,
            measurement=figures,
            verdict=Verdict(),
            notes=notes_of(server),
            explanation=None if subject.test.own else explained,
            capacity=capacity,
        )
        for subject, own, figures in subjects
    ]
    judged = tuple(subject for subject, _, _ in subjects)
    return Measured(subjects=judged, results=tuple(results), log=boots.log, loaded=server.loaded)


def _until_known(plan: Plan, rig: Rig, boots: _Boots) -> list[Run]:
    """Makes runs on boots until the level is known, or the time is over; returns all that count."""
    limit_s = min(LONGEST_S, MOST_TIMES * plan.settings.duration_ns / 1e9, plan.most_ns / 1e9)
    kept: list[Run] = []
    title, begun_s = plan.test.title, rig.clock()
    last_s = begun_s
    while True:
        new = boots.one_run_each(title)
        now_s = rig.clock()
        is_over = now_s - begun_s + (now_s - last_s) > limit_s
        last_s = now_s
        is_busy = busy_of(recording_of(new)).is_busy
        if not is_busy:
            kept += new
        if is_over or (not is_busy and level_error(plan.settings.gate, recording_of(kept)) <= KNOWN_TO):
            return kept or new
        title = f"{plan.test.title}, again: {'the machine was busy' if is_busy else 'its level is not known well'}"


def level_error(gate: Sequence[str], recording: Recording) -> float:
    """Returns the greatest standard error of the gated metrics that rounds tell; 0.0 where there is none."""
    evidence = evidence_of(recording)
    metrics = [METRICS[name] for name in gate if METRICS[name].percentile is None]
    return max(filter(math.isfinite, (precision_of(metric, evidence) for metric in metrics)), default=0.0)


def identity_of(plan: Plan, recording: Recording, server: Mapping[str, object]) -> dict[str, object]:
    """Returns what must be equal for stored figures to compare, as JSON values; `server` is what the server's is."""
    return {
        "work": plan.work.identity(),
        "server": server,
        "load": load_identity(plan.load) | ({"capacity": plan.search_limits} if plan.searches else {}),
        "engine": recording.engine,
        "pinned": recording.pinned,
        # Only where there are any: baselines of before have no such keys.
        **({"tracer": recording.tracer} if recording.tracer else {}),
        **({"load from": "cluster"} if recording.is_from_cluster else {}),
        **setup_identity(plan.settings),
    }


@dataclass(slots=True)
class _Boots:
    """Makes runs on boots of the server, of which one serves at a time."""

    plan: Plan
    rig: Rig
    seen: list[RunningServer] = field(default_factory=list)
    """All that were loaded: the place of each is the boot's in the recording."""
    log: tuple[str, ...] = ()
    """The last lines of the first boot that answered with a status of 500 or more: only its log says why."""

    def one_run_each(self, title: str) -> list[Run]:
        """Makes one run on each boot, in random order, but first on the one that serves."""
        plan, rig, made = self.plan, self.rig, list[Run]()
        total_s = None if plan.load.counted else plan.boots * plan.load.duration_ns / 1e9
        begun_s = rig.clock()
        tell = partial(rig.tell, title=title, begun_s=begun_s, total_s=total_s, boots=plan.boots)
        for number in self._numbers():
            if made and (rig.clock() - begun_s) * (1 + 1 / len(made)) > plan.most_ns / 1e9:
                break  # as long as the boots so far have taken, there is no time for another
            requests = sum(round_.requests for run in made for round_ in run.rounds)
            with self._booted(number, partial(tell, boot=len(made) + 1, requests=requests)) as load:
                run = load(plan.load)
                left_s = plan.most_ns / 1e9 - (rig.clock() - begun_s)
                made.append(run if made else asked_alone(run, load, left_s=left_s))  # one boot tells it of all
            if not any(round_.requests for round_ in run.rounds):
                break  # other boots would take as long to say the same
        return made

    def search(self) -> RateSearch:
        """Makes the loads of a search for the capacity, on each boot in its part of the time."""
        plan, rig, search = self.plan, self.rig, RateSearch(self.plan, chance=self.rig.chance)
        total_s, begun_s = plan.settings.search_ns / 1e9, rig.clock()
        told = partial(rig.tell, title=plan.test.title, begun_s=begun_s, total_s=total_s, boots=plan.boots)

        def tell(progress: RunProgress) -> None:
            told(progress, boot=len(self.seen), requests=search.requests)

        numbers = self._numbers()
        for place, number in enumerate(numbers):
            ends_s = begun_s + total_s * (place + 1) / len(numbers)
            with self._booted(number, tell) as load:
                if place == 0:
                    search.begin(closed_loop(load, plan.load))
                while search.step(load, place, left_s=ends_s - rig.clock()):
                    pass
            if search.is_over:
                break
        return search

    def _numbers(self) -> list[int]:
        """Returns the boots in random order, but first the one that serves."""
        plan = self.plan
        numbers = self.rig.chance.sample(range(plan.boots), plan.boots)
        numbers.sort(key=lambda number: number != self.rig.servers.serving(plan.settings.server, plan.app))
        return numbers

    def costs(self, cpu_per_request: float | None) -> Explanation:
        """Returns which functions cost CPU."""
        cores = self.plan.generator_cores
        server = self.rig.servers.any_boot(self.plan.settings.server, self.plan.app, self.plan.cores)
        with work_on(server, self.rig.servers, self.plan.work, self.plan.settings) as work:

            def load(plan: LoadPlan) -> Run:
                return self.rig.loads.make(work, plan, 0, server, cores, lambda _: None)

            looked = Looked(server=server, load=load, root=None, cpu_per_request=cpu_per_request)
            return explain_costs(self.plan.profile(), looked, cores)

    @contextmanager
    def _booted(self, number: int, tell: Tell) -> Iterator[Load]:
        """Gives what loads this boot, after the test's setup."""
        rig, cores = self.rig, self.plan.generator_cores
        server = rig.servers.boot(self.plan.settings.server, self.plan.app, number, self.plan.cores)
        with work_on(server, rig.servers, self.plan.work, self.plan.settings) as work:

            def load(plan: LoadPlan) -> Run:
                if server not in self.seen:
                    self.seen.append(server)
                run = rig.loads.make(work, plan, self.seen.index(server), server, cores, tell)
                if not self.log and any(status >= 500 for round_ in run.rounds for status, _ in round_.statuses):
                    self.log = server.log
                return run

            yield load
