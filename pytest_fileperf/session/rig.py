"""What a session measures with, and what that leaves."""

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
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import Note, NoteKind
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.report.progress import ProgressLine, ProgressSink, SilentProgress
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.preload import Preloads
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loads import Loader, Loads, recording_of, rounds_of
from pytest_fileperf.session.sides import Absent
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Options
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source


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
    source: Source = field(default_factory=lambda: Source(Path.cwd(), Path(".fileperf")))
    """Finds the code of stored baselines."""

    @classmethod
    def starting(cls, options: Options, *, progress: ProgressSink, source: Source) -> Rig:
        """Returns what starts real servers and generators."""
        coverage, network = options.coverage, options.network
        return cls(
            progress=progress,
            servers=ServerPool(network, coverage, Preloads() if options.preloads else None, options.client),
            loads=Loader(
                coverage=coverage,
                network=network,
                family=options.client,
                cluster=None if options.cluster is None else Cluster(options.cluster),
            ),
            source=source,
        )

    def tell(
        self,
        progress: RunProgress,
        *,
        title: str,
        begun_s: float,
        total_s: float | None,
        boots: int = 1,
        boot: int,
        requests: int,
    ) -> None:
        """Turns the progress of a run into a line about the whole measurement.

        That began at `begun_s` by the clock, and is planned to take `total_s`, or ends by a count. `boot` counts from
        1; `requests` are those of earlier runs.
        """
        self.progress.update(
            ProgressLine(
                title=title,
                run=progress,
                boot=boot,
                boots=boots,
                elapsed_s=self.clock() - begun_s,
                total_s=total_s,
                requests=requests + progress.requests,
            )
        )

    def close(self) -> None:
        """Ends the generator and every server, and removes the code of baselines."""
        with ExitStack() as closing:
            closing.callback(self.source.close)
            if self.servers.preloads is not None:
                closing.callback(self.servers.preloads.close)
            closing.callback(self.servers.close)
            closing.callback(self.loads.close)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured, and how it compares."""

    subjects: tuple[Plan, ...]
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

    def judged(
        self,
        judge: Callable[[Plan, Result], Result],
        *,
        absent: Absent | None = None,
        notes: tuple[str, ...] = (),
    ) -> Measured:
        """Returns it with results as they are judged: parts first, as the whole has the last word on the error left.

        `absent` and `notes` say why the other side could not be measured.
        """
        results = [judge(*each) for each in reversed([*zip(self.subjects, self.results, strict=True)])]
        return replace(self, results=tuple(reversed(results)), absent=absent or self.absent, notes=notes or self.notes)


def notes_of(server: RunningServer) -> tuple[Note, ...]:
    """Returns what a reader must know of what it serves."""
    found = (
        Note(kind=NoteKind.SET_BY_TEST, texts=tuple(map(" ".join, server.changed))),
        Note(kind=NoteKind.NOT_AS_MADE, texts=tuple(f"{name} ({why})" for name, why in server.own)),
        Note(kind=NoteKind.IMPORTS_ANEW, texts=tuple(filter(None, (server.why_fresh,)))),
    )
    return tuple(note for note in found if note.texts)


# --- What runs show of a whole load, of each of its parts, and of each step of its journeys


def subjects_of(
    plan: Plan, runs: Sequence[Run], recording: Recording, measurement: Measurement
) -> list[tuple[Plan, Recording, Measurement]]:
    """Returns each subject that the runs have figures of, the whole load first, with its recording and figures.

    `recording` and `measurement` are those of the whole: what limited it is known of all only. Raises PlanError for
    steps that were asked for and have no figures.
    """
    parts = []
    for part in _parts_seen(plan, runs) if runs else ():  # a search has no figures of parts
        own = recording_of(runs, part.test.part, part.test.step)
        figures = measurement_of(
            own,
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
    return [(plan, recording, replace(measurement, parts=of_parts, steps=steps(""))), *parts]


def _parts_seen(plan: Plan, runs: Sequence[Run]) -> tuple[Plan, ...]:
    """Returns the plan of each part of the load, and of each step that the runs have figures of.

    Raises PlanError for steps that were asked for and have none, although their journey went well.
    """
    reached = {subject for run in runs for subject in run.subjects if subject[1]}
    others: dict[str, Plan] = {}
    for run in runs:
        for (part, step), rounds in run.subjects.items():
            if step and any(round_.requests or round_.failed for round_ in rounds):
                other = plan.of_step(part=part, name=step)
                others[other.test.own] = other

    def went_well(part: str) -> bool:
        return any(round_.requests for run in runs for round_ in rounds_of(run, part))

    problems = [
        _why_not(part.test, reached)
        for part in plan.parts
        if part.test.step and part.test.own not in others and went_well(part.test.part)
    ]
    if problems:
        raise PlanError(*problems, where=plan.work.name)
    asked = [part for part in plan.parts if not part.test.step or part.test.own in others]
    return (*asked, *(other for own, other in others.items() if own not in {part.test.own for part in asked}))


def _why_not(test: TestId, reached: set[tuple[str, str]]) -> str:
    """Returns why a step has no figures; `reached` are the steps of the load, those of the warm-up among them."""
    if (test.part, test.step) in reached:
        return (
            f"step {test.own!r} was reached in the warm-up only, so it has no figures: give the test warmup=0, or let "
            "users come to it more often"
        )
    names = sorted("#".join(filter(None, subject)) for subject in reached)
    others = f"reached: {', '.join(names)}" if names else "no step was reached"
    return f"step {test.own!r} was never reached; {others}"


def with_other_answers(whole: Result, parts: Sequence[Result]) -> Result:
    """Returns the result of a whole load that answers otherwise where one of its parts does.

    Of a mix only its parts tell: how often each of them is in it is chance.
    """
    of_parts = tuple(replace(other, of=part.test.own) for part in parts for other in part.other_answers)
    is_mix = any(not part.test.step for part in parts)
    return whole.having(other_answers=of_parts or (() if is_mix else whole.other_answers))
