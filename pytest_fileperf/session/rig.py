"""What a session measures with, what it is asked to measure, and what that leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.plan.request import Subject
from pytest_fileperf.plan.work import Work, parts_of, steps_of
from pytest_fileperf.report.progress import ProgressSink, SilentProgress
from pytest_fileperf.serve.imports import Imports
from pytest_fileperf.serve.launch import ServerPool, prepare
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.session.loads import Loader, Loads, Run, Teller, recording_of, rounds_of
from pytest_fileperf.session.sides import Absent
from pytest_fileperf.settings.plans import USUAL_PACE, Pace, ServerPlan
from pytest_fileperf.settings.settings import Options, Settings
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source

__all__ = ("Measured", "Rig", "Task", "subjects_of", "with_other_answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """What a session measures with. Whoever made it closes it."""

    progress: ProgressSink = field(default_factory=SilentProgress)
    servers: ServerPool = field(default_factory=ServerPool)
    """The server of the code here, which measurements share, and what starts those of a comparison."""
    loads: Loads = field(default_factory=Loader)
    clock: Callable[[], float] = monotonic
    chance: random.Random = field(default_factory=random.SystemRandom)
    """Not the generator that test suites seed: two sessions are not to have the same luck."""
    pace: Pace = USUAL_PACE
    source: Source | None = None
    """Finds the code of stored baselines; None where it is not looked for."""
    preloads: Preloads | None = None
    """What has imported the apps."""

    @classmethod
    def starting(cls, options: Options, *, progress: ProgressSink, source: Source | None) -> Rig:
        """Returns what starts real servers and generators."""
        coverage, network = options.coverage, options.network
        held = Preloads() if options.preloads else None
        return cls(
            progress=progress,
            servers=ServerPool(partial(prepare, coverage=coverage, imports=Imports(), preloads=held, network=network)),
            preloads=held,
            loads=Loader(
                coverage=coverage,
                network=network,
                cluster=None if options.cluster is None else Cluster(options.cluster),
            ),
            source=source,
        )

    def teller(self, title: str, total_s: float | None, *, boots: int = 1) -> Teller:
        """Returns what tells of a measurement that begins now."""
        return Teller(
            sink=self.progress, clock=self.clock, title=title, begun_s=self.clock(), total_s=total_s, boots=boots
        )

    def close(self) -> None:
        """Ends the generator and every server, and removes the code of baselines."""
        with ExitStack() as closing:
            if self.source is not None:
                closing.callback(self.source.close)
            if self.preloads is not None:
                closing.callback(self.preloads.close)
            closing.callback(self.servers.close)
            closing.callback(self.loads.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One measurement to make."""

    work: Work
    settings: Settings
    server: ServerPlan
    test: TestId
    said: tuple[str, ...] = ()
    """What a reader must know of how it is measured, as sentences without a full stop."""

    @property
    def parts(self) -> tuple[Task, ...]:
        """What is judged by itself, in place of the whole: each part of the load, and each step that was asked for."""
        parts = [self._of(part.work, part, part.name) for part in parts_of(self.work)]
        steps = [self._of(journey, step, part, step.name) for part, journey, step in steps_of(self.work)]
        return (*parts, *steps)

    def of_step(self, *, part: str, name: str) -> Task:
        """Returns the task of a step that nobody asked for: it has figures, and nothing judges them."""
        return self._of(self.work, Subject(name=name), part, name)

    def _of(self, work: Work, judged: Subject, part: str, step: str = "") -> Task:
        test = replace(self.test, part=part, step=step, group=None)
        return Task(
            work=work,
            settings=replace(self.settings, gate=judged.gate, tolerances=judged.tolerances, limits=judged.limits),
            server=self.server,
            said=self.said,
            test=replace(test, nodeid=f"{test.nodeid}#{test.own}"),
        )

    @property
    def subjects(self) -> tuple[Task, ...]:
        """What is judged: the whole load, and all that is judged by itself."""
        return (self, *self.parts)

    @property
    def own_identity(self) -> dict[str, object]:
        """What a part or step has in its identity beside that of the whole load."""
        names = {"part": self.test.part, "step": self.test.step}
        return {kind: name for kind, name in names.items() if name}

    @property
    def title(self) -> str:
        """What is measured: `GET /`, or `step login of visit`."""
        return f"step {self.test.step} of {self.work.name}" if self.test.step else self.work.name

    @property
    def allowed_errors(self) -> float:
        """The share of requests that may fail. Of a step it is what was asked for: its journey fails with it."""
        return self.settings.limits.get("max_error_rate", 1.0 if self.test.step else 0.0)

    @property
    def gates(self) -> int:
        """How many metrics are compared, of the whole and of all parts and steps."""
        return sum(len(subject.settings.gate) for subject in self.subjects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, and how it compares."""

    subjects: tuple[Task, ...]
    """The whole load, then each part, and each step that was measured."""
    results: tuple[Result, ...]
    """Of each of them; their verdicts lack the limits."""
    log: tuple[str, ...] = ()
    """The last lines of a server's log, where a status was 500 or more: only the log says why."""
    loaded: LoadedFiles = field(default_factory=LoadedFiles)
    """What the server's code was: the base's, where two versions were measured in turn."""
    base_alone: Recording | None = None
    """What the base shows when it is loaded alone, where two versions were measured in turn and that was planned."""
    absent: Absent | None = None
    """What one side lacks, where there was nothing to compare."""
    notes: tuple[str, ...] = ()
    """What a user has to know of the other side, where it could not be measured; they may have several lines."""
    tells_spread: bool = False
    """Whether `Verdict.world` tells how steady the machine is: only the session differs from when it was stored."""
    world_again: Callable[[], tuple[MetricComparison, ...]] | None = None
    """Measures for `Verdict.world` once more; None where that asks nothing."""


# --- What runs show of a whole load, of each of its parts, and of each step of its journeys


def subjects_of(
    task: Task, runs: Sequence[Run], recording: Recording, measurement: Measurement
) -> list[tuple[Task, Recording, Measurement]]:
    """Returns each subject that the runs have figures of, the whole load first, with its recording and figures.

    `recording` and `measurement` are those of the whole: what limited it is known of all only. Raises PlanError for
    steps that were asked for and have no figures.
    """
    parts = []
    for part in _parts_seen(task, runs) if runs else ():  # a search has no figures of parts
        own = recording_of(runs, part.test.part, part.test.step)
        figures = replace(
            measurement_of(own),
            client=measurement.client,
            limit=measurement.limit,
            saturated=measurement.saturated,
            busy=measurement.busy,
        )
        parts.append((part, own, figures))

    def steps(name: str) -> dict[str, Measurement]:
        return {part.test.step: run for part, _, run in parts if part.test.step and part.test.part == name}

    of_parts = {
        part.test.part: replace(run, steps=steps(part.test.part)) for part, _, run in parts if not part.test.step
    }
    return [(task, recording, replace(measurement, parts=of_parts, steps=steps(""))), *parts]


def _parts_seen(task: Task, runs: Sequence[Run]) -> tuple[Task, ...]:
    """Returns the task of each part of the load, and of each step that the runs have figures of.

    Raises PlanError for steps that were asked for and have none, although their journey went well.
    """
    reached = {name.lstrip("#") for run in runs for name in run.result.subjects if "#" in name}
    others: dict[str, Task] = {}
    for run in runs:
        for name, rounds in run.result.subjects.items():
            part, mark, step = name.rpartition("#")
            if mark and any(round_.requests or round_.failed for round_ in rounds):
                other = task.of_step(part=part, name=step)
                others[other.test.own] = other

    def went_well(part: str) -> bool:
        return any(round_.requests for run in runs for round_ in rounds_of(run, part))

    problems = [
        _why_not(part.test, reached)
        for part in task.parts
        if part.test.step and part.test.own not in others and went_well(part.test.part)
    ]
    if problems:
        raise PlanError(*problems, where=task.work.name)
    asked = [part for part in task.parts if not part.test.step or part.test.own in others]
    return (*asked, *(other for own, other in others.items() if own not in {part.test.own for part in asked}))


def _why_not(test: TestId, reached: set[str]) -> str:
    """Returns why a step has no figures; `reached` are the steps of the load, those of the warm-up among them."""
    if test.own in reached:
        return (
            f"step {test.own!r} was reached in the warm-up only, so it has no figures: give the test warmup=0, or let "
            "users come to it more often"
        )
    others = f"reached: {', '.join(sorted(reached))}" if reached else "no step was reached"
    return f"step {test.own!r} was never reached; {others}"


def with_other_answers(whole: Result, parts: Sequence[Result]) -> Result:
    """Returns the result of a whole load that answers otherwise where one of its parts does.

    Of a mix only its parts tell: how often each of them is in it is chance.
    """
    of_parts = tuple(replace(other, of=part.test.own) for part in parts for other in part.other_answers)
    is_mix = any(not part.test.step for part in parts)
    return replace(whole, other_answers=of_parts or (() if is_mix else whole.other_answers))
