"""Makes one result of those of several generators that made a load together; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_fileperf.drive.alternating import answers_a_pace
from pytest_fileperf.drive.run import RunProgress, RunResult
from pytest_fileperf.measure.merging import merged_leads, merged_rounds, paced
from pytest_fileperf.measure.recording import Round, merged_warm_up, without_samples
from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.split import generators_used

__all__ = ("merged_progress", "merged_result")


def merged_result(plan: LoadPlan | Alternation, shares: Mapping[int, RunResult]) -> RunResult:
    """Returns what all generators have found on one target, given by their numbers; the plan is that of all."""
    results = list(shares.values())
    first = results[0]
    rounds = {name: _merged(plan, shares, name) for name in ("", *dict(first.parts))}
    dues = [result.due for result in results if result.due is not None]
    attacks = [result.attack for result in results if result.attack is not None]
    attack = (min(start for start, _ in attacks), max(end for _, end in attacks)) if attacks else None
    last_end_ns = max(result.last_end_ns for result in results)
    span_ns = 0 if isinstance(plan, Alternation) or plan.counted else plan.rounds * plan.round_ns
    return replace(
        first,
        rounds=rounds.pop(""),
        attack_ns=first.attack_ns if attack is None else attack[1] - attack[0],
        wait_ns=max(result.wait_ns for result in results) if attack is None else max(0, last_end_ns - attack[1]),
        due=sum(dues) if dues else None,
        leads=merged_leads([result.leads for result in results if result.leads is not None], span_ns=span_ns),
        uncounted_ns=sum(result.uncounted_ns for result in results),
        parts=tuple((name, tuple(replace(own, generators=()) for own in of)) for name, of in rounds.items()),
        warm_ups=tuple(
            (name, merged_warm_up(dict(result.warm_ups)[name] for result in results)) for name, _ in first.warm_ups
        ),
        attack=attack,
        last_end_ns=last_end_ns,
        ends=(),
        steps=_steps(results),
    )


def _steps(results: Sequence[RunResult]) -> tuple[tuple[str, str, tuple[Round, ...]], ...]:
    """Returns the rounds of each step that any generator has come to; without typical rates, which are no sums."""
    each = [{(part, step): rounds for part, step, rounds in own.steps} for own in results]
    return tuple((*key, _step(key, results, each)) for key in dict.fromkeys(key for own in each for key in own))


def _step(
    key: tuple[str, str], results: Sequence[RunResult], each: Sequence[Mapping[tuple[str, str], Sequence[Round]]]
) -> tuple[Round, ...]:
    found = merged_rounds(
        {
            number: steps[key] if key in steps else tuple(map(without_samples, own.rounds))
            for number, (own, steps) in enumerate(zip(results, each, strict=True), 1)
        }
    )
    return tuple(replace(own, generators=(), typical_rps=None) for own in found)


def _merged(plan: LoadPlan | Alternation, shares: Mapping[int, RunResult], name: str) -> tuple[Round, ...]:
    """Returns the rounds of the part with this name, or with no name of all."""
    rounds = merged_rounds({number: dict(own.parts)[name] if name else own.rounds for number, own in shares.items()})
    if not isinstance(plan, Alternation) or generators_used(plan) == 1:
        return rounds
    names = list(dict(next(iter(shares.values())).parts))
    of_name = slice(names.index(name), names.index(name) + 1) if name else slice(None)
    ends = [[in_round[of_name] for in_round in own.ends] for own in shares.values()]
    return paced(rounds, ends, over=answers_a_pace(plan.connections), together=plan.connections)


def merged_progress(shares: Mapping[int, RunProgress]) -> RunProgress:
    """Returns how far a load has come, by what each of its generators has said last."""
    newest = max(shares.values(), key=lambda own: own.elapsed_ns)
    known = [own.p99_ns for own in shares.values() if own.p99_ns is not None]
    return replace(
        newest,
        requests=sum(own.requests for own in shares.values()),
        rps=sum(own.rps for own in shares.values()),
        p99_ns=max(known, default=None),
        failed=sum(own.failed for own in shares.values()),
    )
