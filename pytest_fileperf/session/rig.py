"""The equipment of a session, and the results of a measurement."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Note, NoteKind, Reason
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.plan.request import WHOLE_LOAD, SubjectName
from pytest_fileperf.report.progress import ProgressLine, ProgressSink, SilentProgress
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.budget import TimeBudget
from pytest_fileperf.session.loads import Loader, recording_of
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Options
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """The tools of a session: progress line, servers, load generators, clock, chance. Its maker must close it."""

    progress: ProgressSink = field(default_factory=SilentProgress)
    servers: ServerPool = field(default_factory=ServerPool)
    """Shares the server of the code here between measurements, and launches both servers of a comparison."""
    loads: Loader = field(default_factory=Loader)
    clock: Callable[[], float] = monotonic
    chance: random.Random = field(default_factory=random.SystemRandom)
    """Random numbers without a seed. Test suites seed the `random` module, but each session needs other numbers."""
    source: Source = field(default_factory=lambda: Source(Path.cwd(), Path(".fileperf")))
    time: TimeBudget | None = None
    """The time that all comparisons share; None if each has its own `max_duration`."""

    @classmethod
    def starting(
        cls, options: Options, *, progress: ProgressSink, source: Source, time: TimeBudget | None, asks: bool = False
    ) -> Rig:
        """With `asks`, the rig asks servers which endpoints their apps have."""
        coverage, network, family = options.coverage, options.network, options.client
        preloads = Preloads() if options.preloads else None
        cluster = None if options.cluster is None else Cluster(options.cluster)
        return cls(
            progress=progress,
            servers=ServerPool(network, coverage, preloads, family, {} if asks else None),
            loads=Loader(coverage=coverage, network=network, family=family, cluster=cluster),
            source=source,
            time=time,
        )

    def telling(self, title: str, total_s: float | None, boots: int = 1) -> Callable[[int, int, RunProgress], None]:
        """Returns a function that shows a load's progress. The elapsed time counts from this call.

        The function takes the start-up's number (from 1 on), the number of requests before that load, and the load's
        progress. `total_s` is the time of the whole measurement, None if unknown.
        """
        begun_s = self.clock()

        def tell(boot: int, requests: int, run: RunProgress) -> None:
            elapsed_s, requests = self.clock() - begun_s, requests + run.requests
            line = ProgressLine(
                title=title, run=run, boot=boot, boots=boots, elapsed_s=elapsed_s, total_s=total_s, requests=requests
            )
            self.progress.update(line)

        return tell

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self.source.close)
            if self.servers.preloads is not None:
                closing.callback(self.servers.preloads.close)
            closing.callback(self.servers.close)
            closing.callback(self.loads.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    results: tuple[Result, ...]
    """The result of the whole load, then of each measured part and step. The verdicts do not contain the absolute
    limits yet."""
    log: tuple[str, ...] = ()
    """A server's last log lines after an answer with a status of 500 or more; else empty."""
    loaded: LoadedFiles = field(default_factory=LoadedFiles)
    """The code files that the server has loaded. After a comparison, these are the old version's files."""
    base_alone: Recording | None = None
    """A recording of the old version, loaded alone. None if the comparison did not ask for this load."""
    why_not: Reason | None = None
    notes: tuple[str, ...] = ()
    """Texts for the user about an old version that could not be measured."""

    def judged(
        self, judge: Callable[[Result], Result], why_not: Reason | None = None, notes: tuple[str, ...] = ()
    ) -> Measured:
        """Returns a copy with the results that `judge` returns, and with `why_not` and `notes`."""
        # Parts are first: they use some of the session's allowed probability of a false alarm. The whole load gets the
        # remainder.
        results = [judge(result) for result in reversed(self.results)]
        return replace(self, results=tuple(reversed(results)), why_not=why_not, notes=notes)


def notes_of(server: RunningServer) -> tuple[Note, ...]:
    """Returns notes: how the served app differs from the test's app, and why each start-up imports the app anew."""
    found = (
        Note(kind=NoteKind.SET_BY_TEST, texts=tuple(map(" ".join, server.changed))),
        Note(kind=NoteKind.NOT_AS_MADE, texts=tuple(f"{name} ({why})" for name, why in server.own)),
        Note(kind=NoteKind.IMPORTS_ANEW, texts=tuple(filter(None, (server.why_fresh,)))),
    )
    return tuple(note for note in found if note.texts)


# --- Results of a whole load, of each of its parts, and of each step of its journeys


def with_parts(plan: Plan, runs: Sequence[Run], whole: Result) -> tuple[Result, ...]:
    """Returns the whole load's result, then each part's and step's result. All have the same bottleneck."""
    parts, run = [], whole.measurement
    for subject in _parts_seen(plan, runs) if runs else ():  # a search has no figures of parts
        own, test = recording_of(runs, *subject), whole.test.of(subject)
        figures = measurement_of(own, client=run.client, limit=run.limit, saturated=run.saturated, busy=run.busy)
        names = {kind: name for kind, name in zip(("part", "step"), subject, strict=True) if name}
        identity, work = {**whole.identity, **names}, plan.title_of(subject)
        parts.append(whole.having(test=test, work=work, identity=identity, recording=own, measurement=figures))

    def steps(name: str) -> dict[str, Measurement]:
        return {own.test.step: own.measurement for own in parts if own.test.step and own.test.part == name}

    of_parts = {
        own.test.part: replace(own.measurement, steps=steps(own.test.part)) for own in parts if not own.test.step
    }
    return whole.having(measurement=replace(run, parts=of_parts, steps=steps(""))), *parts


def _parts_seen(plan: Plan, runs: Sequence[Run]) -> tuple[SubjectName, ...]:
    reached = {subject for run in runs for subject in run.subjects if subject[1]}
    seen = {
        subject: None
        for run in runs
        for subject, rounds in run.subjects.items()
        if subject[1] and any(round_.requests or round_.failed for round_ in rounds)
    }
    asked = [subject for subject in plan.subjects if subject != WHOLE_LOAD]
    problems = [
        _why_not((part, step), reached)
        for part, step in asked
        if step and (part, step) not in seen and any(own.requests for run in runs for own in run.rounds_of(part))
    ]
    if problems:
        raise PlanError(*problems, where=plan.work.name)
    of_asked = (subject for subject in asked if not subject[1] or subject in seen)
    return (*of_asked, *(subject for subject in seen if subject not in plan.subjects))


def _why_not(subject: SubjectName, reached: set[SubjectName]) -> str:
    own, *names = ("#".join(filter(None, each)) for each in (subject, *reached))
    if subject in reached:
        return (
            f"only the warm-up reached step {own!r}, so it has no figures. Give the test warmup=0, or let "
            "its journey reach the step more often"
        )
    others = f"Reached steps: {', '.join(sorted(names))}" if names else "No step was reached"
    return f"step {own!r} was never reached. {others}"
