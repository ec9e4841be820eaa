"""Measures the code here alone: start, warm-up, rounds, end, then the next start-up, as often as needed.

The last start-up keeps running. It is the first start-up for the next measurement of the same server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.judge.evidence import evidence_of, precision_of
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.rules import RULES
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
from pytest_fileperf.session.loads import Load, Tell, after_probe, asked_alone, recording_of
from pytest_fileperf.session.rig import Measured, Rig, notes_of, with_parts
from pytest_fileperf.session.setup import setup_identity, work_on
from pytest_fileperf.settings.plans import Plan, load_identity, load_title


def measure_alone(plan: Plan, rig: Rig, *, most_loads: int = 1) -> Measured:
    """Measures the code here, without another version.

    Repeats the load until its figures are certain, at most `most_loads` times. Leaves out loads on a busy machine. If
    the machine was always busy, the last load counts.
    """
    return _Alone(plan, rig).measured(most_loads=most_loads)


class _Alone:
    def __init__(self, plan: Plan, rig: Rig) -> None:
        self._plan = plan
        self._rig = rig
        self._seen: list[RunningServer] = []
        """All servers loaded so far. A server's index in this list is `Boot.index` in the recording."""
        self._log: tuple[str, ...] = ()
        """The last log lines of the first server that answered with a status of 500 or more."""

    def measured(self, *, most_loads: int) -> Measured:
        plan, runs, search, capacity = self._plan, list[Run](), None, None
        try:
            if plan.searches:
                search = self._search()
            elif most_loads > 1 and not plan.load.counted and plan.load.ramp is None:  # made once if not divisible
                runs = self._until_known(most_loads)
            else:
                runs = self._one_run_each(plan.test.title)
        finally:
            self._rig.progress.done()
        if search is not None:
            capacity, recording, load = search.capacity(), search.recording(), plan.search_title
            is_generator = capacity.ended is CapacityEnd.GENERATOR
            measurement = measurement_of(recording, limit=capacity.limit, saturated=is_generator)
        else:
            recording = recording_of(runs)
            load = load_title(plan.load, len(recording.boots))
            measurement = measurement_of(recording_of(runs[-plan.boots :]))
            if len(runs) > plan.boots:
                # A start-up may idle between two loads, while others are loaded: a single load shows what limits it.
                last = measurement
                measurement = measurement_of(
                    recording,
                    limit=last.limit,
                    busy=last.busy,
                    cpu_share=last.server.cpu_share,
                    worker_cpu_shares=last.server.worker_cpu_shares,
                )
        server, log = self._seen[-1], self._log
        whole = Result(
            test=plan.test,
            work=plan.work.name,
            server=server.title,
            load=load,
            identity=identity_of(plan, recording, server.identity()),
            recording=recording,
            measurement=measurement,
            verdict=Verdict(),
            notes=notes_of(server),
            capacity=capacity,
        )
        whole, *parts = with_parts(plan, runs, whole)
        if plan.profiles:
            number = self._rig.servers.serving(plan.settings.server, plan.app) or 0
            cpu_s = measurement.server.cpu_per_request
            with self._booted(number, lambda _: None) as (profiled, load_by):
                looked = Looked(server=profiled, load=load_by, root=None, cpu_per_request=cpu_s)
                whole = whole.having(explanation=explain_costs(plan.profile(), looked, plan.generator_cores))
        return Measured(results=(whole, *parts), log=log, loaded=server.loaded)

    def _until_known(self, most_loads: int) -> list[Run]:
        plan, clock, kept = self._plan, self._rig.clock, list[Run]()
        limit_s = min(60.0, most_loads * plan.settings.duration_ns / 1e9, plan.most_ns / 1e9)
        title, begun_s = plan.test.title, clock()
        last_s = begun_s
        while True:
            new = self._one_run_each(title)
            now_s = clock()
            is_over = now_s - begun_s + (now_s - last_s) > limit_s
            last_s = now_s
            is_busy = busy_of(recording_of(new)).is_busy
            if not is_busy:
                kept += new
            if is_over or (not is_busy and level_error(plan.settings.gate, recording_of(kept)) <= RULES.known_to):
                return kept or new
            why = "the machine was busy" if is_busy else "its figures are still too uncertain"
            title = f"{plan.test.title}, again because {why}"

    def _one_run_each(self, title: str) -> list[Run]:
        plan, rig, made = self._plan, self._rig, list[Run]()
        total_s = None if plan.load.counted else plan.boots * plan.load.duration_ns / 1e9
        begun_s, tell = rig.clock(), rig.telling(title, total_s, plan.boots)
        for number in self._numbers():
            if made and (rig.clock() - begun_s) * (1 + 1 / len(made)) > plan.most_ns / 1e9:
                break  # judged by the start-ups so far, there is no time for another
            requests = sum(round_.requests for run in made for round_ in run.rounds)
            with self._booted(number, partial(tell, len(made) + 1, requests)) as (_, load):
                run = load(self._plan.load) if made else self._first_run(load)
                left_s = plan.most_ns / 1e9 - (rig.clock() - begun_s)
                made.append(run if made else asked_alone(run, load, left_s=left_s))  # one start-up answers this for all
            if not any(round_.requests for round_ in run.rounds):
                break  # others would take as long, with the same result
        return made

    def _first_run(self, load: Load) -> Run:
        """Makes the load. If it counts connections' first requests, and later ones are faster, makes a longer load."""
        plan = self._plan
        run, connections = load(plan.load), plan.load.connections
        warmed = sum(warm_up.made for warm_up in run.warm_ups.values())
        answered = [round_.latency for round_ in run.rounds if round_.requests]
        if warmed >= connections or not answered or not plan.leaves_out_first or plan.first_ns:
            return run
        first_ns, longer = answered[0].under_way_ns(), None
        if warmed + sum(latency.count for latency in answered) <= connections:  # nobody sent a second request
            longer_plan = plan.longer_load(first_ns)
            longer = None if longer_plan is None else load(longer_plan)
        later_ns = [round_.latency.under_way_ns() for round_ in (longer or run).rounds if round_.requests]
        self._plan = plan.with_slow_first(first_ns, later_ns[-1] if later_ns else first_ns)
        return run if self._plan is plan else after_probe(longer or load(self._plan.load), run)

    def _search(self) -> RateSearch:
        plan, rig, search = self._plan, self._rig, RateSearch(self._plan, chance=self._rig.chance)
        total_s, begun_s, numbers = plan.settings.search_ns / 1e9, rig.clock(), self._numbers()
        told = rig.telling(plan.test.title, total_s, plan.boots)

        def tell(progress: RunProgress) -> None:
            told(len(self._seen), search.requests, progress)

        for place, number in enumerate(numbers):
            ends_s = begun_s + total_s * (place + 1) / len(numbers)
            with self._booted(number, tell) as (_, load):
                if place == 0:
                    search.begin(closed_loop(load, plan.load))
                while search.step(load, place, left_s=ends_s - rig.clock()):
                    pass
            if search.is_over:
                break
        return search

    def _numbers(self) -> list[int]:
        """Returns the start-ups' numbers in random order. If a start-up already serves, its number comes first."""
        plan, rig = self._plan, self._rig
        serving = rig.servers.serving(plan.settings.server, plan.app)
        return sorted(rig.chance.sample(range(plan.boots), plan.boots), key=lambda number: number != serving)

    @contextmanager
    def _booted(self, number: int, tell: Tell) -> Iterator[tuple[RunningServer, Load]]:
        """After the test's setup, yields a server and a function that loads it. The teardown follows the block."""
        plan, rig = self._plan, self._rig
        boot = partial(rig.servers.boot, is_timed=plan.times_starts, counts_queries=plan.counts_queries)
        server = boot(plan.settings.server, plan.app, number, plan.cores)
        with work_on(server, rig.servers, plan.work, plan.settings) as work:

            def load(load_plan: LoadPlan) -> Run:
                if server not in self._seen:
                    self._seen.append(server)
                run = rig.loads.make(work, load_plan, self._seen.index(server), server, plan.generator_cores, tell)
                if not self._log and any(status >= 500 for round_ in run.rounds for status, _ in round_.statuses):
                    self._log = server.log
                return run

            yield server, load


def level_error(gate: Sequence[str], recording: Recording) -> float:
    """Returns the largest relative standard error of the metrics in `gate`; 0.0 if none is known.

    Leaves out percentiles, counts and start-ups.
    """
    evidence = evidence_of(recording)
    metrics = [METRICS[name] for name in gate if METRICS[name].percentile is None]
    metrics = [metric for metric in metrics if not (metric.of_start or metric.is_counted)]
    return max(filter(math.isfinite, (precision_of(metric, evidence) for metric in metrics)), default=0.0)


def identity_of(plan: Plan, recording: Recording, server: object) -> dict[str, object]:
    """Returns the values that two stored results must share to be compared. `server` is the server's own identity."""
    return {
        "work": plan.work.identity(),
        "server": server,
        "load": load_identity(plan.load) | ({"capacity": plan.search_limits} if plan.searches else {}),
        "engine": recording.engine,
        "pinned": recording.pinned,
        # Keys that are left out if they do not apply, because older baselines lack them.
        **({"tracer": recording.tracer} if recording.tracer else {}),
        **({"load from": "cluster"} if any(own.worker for boot in recording.boots for own in boot.generators) else {}),
        **setup_identity(plan.settings),
    }
