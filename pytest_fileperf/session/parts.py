"""What runs show of each part of a load, and of each step of its journeys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.result import Result, TestId
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.measurement import Measurement, measurement_of
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.session.loading import Record, Run, of_part
from pytest_fileperf.session.rig import Task

__all__ = ("part_recording", "part_results", "part_tasks", "with_other_answers", "with_parts")


def part_tasks(task: Task, runs: Sequence[Run]) -> tuple[Task, ...]:
    """Returns the task of each part of the load, and of each step that the runs have figures of.

    Raises PlanError for steps that were asked for and have none, although their journey went well.
    """
    reached = {f"{part}#{step}".lstrip("#"): False for run in runs for part, step, _ in run.result.steps}
    others: dict[str, Task] = {}
    for run in runs:
        for part, step, rounds in run.result.steps:
            if any(round_.requests or round_.failed for round_ in rounds):
                other = task.of_step(part=part, name=step)
                others[other.test.own] = other
    problems = [
        _why_not(part.test, tuple(reached))
        for part in task.parts
        if part.test.step and part.test.own not in others and _went_well(runs, part.test.part)
    ]
    if problems:
        raise PlanError(*problems, where=task.work.name)
    asked = [part for part in task.parts if not part.test.step or part.test.own in others]
    return (*asked, *(other for own, other in others.items() if own not in {part.test.own for part in asked}))


def _went_well(runs: Sequence[Run], part: str) -> bool:
    """Returns whether a journey succeeded at all."""
    rounds = (dict(run.result.parts)[part] if part else run.result.rounds for run in runs)
    return any(round_.requests for own in rounds for round_ in own)


def _why_not(test: TestId, reached: Sequence[str]) -> str:
    """Returns why a step has no figures; `reached` are the steps of the load, those of the warm-up among them."""
    if test.own in reached:
        return (
            f"step {test.own!r} was reached in the warm-up only, so it has no figures: give the test warmup=0, or let "
            "users come to it more often"
        )
    others = f"reached: {', '.join(sorted(reached))}" if reached else "no step was reached"
    return f"step {test.own!r} was never reached; {others}"


def part_recording(test: TestId, runs: Sequence[Run], record: Record) -> Recording:
    """Returns the recording of a part or step."""
    return record([of_part(run, test.part, test.step) for run in runs])


def part_results(task: Task, whole: Result, runs: Sequence[Run], record: Record) -> tuple[Result, ...]:
    """Returns what the runs show of each part and step, without a verdict. What limited it is known of all only.

    Raises PlanError for steps that were asked for and have no figures.
    """
    found = []
    of_whole = {name: getattr(whole.measurement, name) for name in ("client", "limit", "saturated", "busy")}
    for part in part_tasks(task, runs):
        recording = part_recording(part.test, runs, record)
        names = {"part": part.test.part, "step": part.test.step}
        found.append(
            replace(
                whole,
                test=part.test,
                work=part.title,
                identity={**whole.identity, **{kind: name for kind, name in names.items() if name}},
                recording=recording,
                measurement=replace(measurement_of(recording), **of_whole),
                verdict=Verdict(),
                explanation=None,
            )
        )
    return tuple(found)


def with_other_answers(whole: Result, parts: Sequence[Result]) -> Result:
    """Returns the result of a whole load that answers otherwise where one of its parts does.

    Of a mix only its parts tell: how often each of them is in it is chance.
    """
    of_parts = tuple(replace(other, of=part.test.own) for part in parts for other in part.other_answers)
    is_mix = any(not part.test.step for part in parts)
    return replace(whole, other_answers=of_parts or (() if is_mix else whole.other_answers))


def with_parts(whole: Result, parts: Sequence[Result]) -> Result:
    """Returns the result of a whole load, whose figures have those of its parts and steps."""

    def with_steps(run: Measurement, part: str) -> Measurement:
        own = [result for result in parts if result.test.step and result.test.part == part]
        return replace(run, steps={result.test.step: result.measurement for result in own})

    own = {
        result.test.part: with_steps(result.measurement, result.test.part) for result in parts if not result.test.step
    }
    return replace(whole, measurement=replace(with_steps(whole.measurement, ""), parts=own))
