"""Compares one metric with another session's figures, and decides PASS, IMPROVED, REGRESSED or INCONCLUSIVE.

Model
    A start-up's log value is   session's mean + its own offset + chance in its rounds or requests.
    A version's mean is over its start-ups. `worse` says by how much the new mean is worse than the old one.

Variance of `worse`
    start-ups  s² (1/k₁ + 1/k₂), where s² is the variance of a start-up's value (`evidence`).
    session    how much unchanged code changes between sessions, on any machine (`Rules.environment_sd`).
    The sum's degrees of freedom are Welch's and Satterthwaite's (Satterthwaite, Biometrics Bull. 2 (1946) 110–114).

Outcome, with L = log(1 + tolerance)
    REGRESSED     two one-sided tests agree. First, `worse` is above L with an error of 5 % (a t-test against a
                  threshold, as in McCarthy and Smyth, Bioinformatics 25 (2009) 765–771). Second, `worse` is above 0
                  with the error alpha. The second test is for a whole session: with Bonferroni's alpha, the probability
                  that identical code regresses in any gate is at most `Rules.session_alpha`. A metric is also REGRESSED
                  if its whole interval is beyond ten times the tolerance.
    IMPROVED      the same in the good direction.
    PASS          `worse` is at most L, and its upper one-sided 95 % bound below L + 2 % (`Rules.excluded_more`), or
                  2 L + 2 % for a percentile (`Rules.tail_tolerances`). So a true loss of that much passes in at most 1
                  of 20 runs.
    INCONCLUSIVE  otherwise.

Why Bonferroni and not Holm: Holm's procedure sorts the p values of all tests. But a test fails in its own call phase,
when the later tests' p values do not exist. Bonferroni is Holm's first step, and a little stricter than the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from pytest_fileperf.judge.baseline import Entry, sealed, work_differences
from pytest_fileperf.judge.difference import (
    Difference,
    Differences,
    Threshold,
    compare_counts,
    decide,
    judged,
)
from pytest_fileperf.judge.environment import condition_changes, package_changes
from pytest_fileperf.judge.evidence import (
    Evidence,
    Level,
    OtherAnswers,
    counts_of,
    level_of,
    measured_of,
    reached_by_all,
    tail_factor,
    value_of,
    variance_of_boots,
)
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import MetricComparison, NoiseOf, Outcome, Reason, ReasonKind, unless_far_worse
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.units import as_share


class ErrorBudget:
    """Divides a session's probability of error equally among its gates. A gate is one metric that a test judges.

    If a gate is REGRESSED, the next test may use its part again. (Tian and Ramdas, "Online control of the familywise
    error rate", Stat. Methods Med. Res. 30 (2021) 976–993: the online fallback procedure.)
    """

    def __init__(self, gates: int) -> None:
        self._each = RULES.session_alpha / max(1, gates)
        self._left = 0.0

    def level(self, gates: int, *, of_parts: int = 0) -> float:
        """Returns the probability of error for each gate of the next test.

        `gates` counts the test's gates for its whole load. Its gates for parts of the load, `of_parts`, share the same
        error.
        """
        return (self._each * max(1, gates) + self._left) / max(1, gates + of_parts)

    def used(self, level: float, regressed: int) -> None:
        """Call this after a test, with its number of REGRESSED gates. `level` was each gate's probability of error."""
        self._left = level * regressed


def compare(
    metric: Metric,
    *,
    base: Evidence,
    now: Evidence,
    tolerance: float,
    alpha: float,
    sd: float,
) -> MetricComparison:
    """Compares a metric's figures from two sessions.

    With a `tolerance` of 0.05, a duration may be 1.05 times as long. `alpha` is this gate's probability of error, from
    `ErrorBudget`. For `sd` see `difference_of`.
    """
    if metric.is_counted:
        return compare_counts(metric, tolerance, *(counts_of(metric, own.boots) for own in (base, now)))
    is_memory = metric.name == "rss"
    requests = reached_by_all((*base.boots, *now.boots)) if is_memory else None
    if requests is not None:
        base, now = base.after(requests), now.after(requests)
    base_level, now_level = level_of(metric, base), level_of(metric, now)
    change, why = None, None
    if base_level is None or now_level is None:
        why = why_no_level(metric, base, "base") if base_level is None else why_no_level(metric, now, "now")
    elif is_memory and requests is None:
        why = Reason(kind=ReasonKind.MEMORY_COURSE)
    elif min(base.requests, now.requests) < metric.least_requests:
        side, count = ("now", now.requests) if now.requests <= base.requests else ("base", base.requests)
        needed, change = metric.least_requests, as_share(now_level.mean - base_level.mean)
        why = Reason(kind=ReasonKind.FEW_REQUESTS, metric=metric.name, side=side, count=count, needed=needed)
    levels = MetricComparison.of(
        metric,
        tolerance,
        after_requests=requests,
        base=measured_of(metric, base) if base_level else None,
        now=now_level.value if now_level else None,
        change=change,
        reason=why,
    )
    if why is not None or base_level is None or now_level is None:
        return levels
    difference = difference_of(metric, base, now, (base_level, now_level), sd=sd)
    threshold = Threshold.of(levels.tolerance, alpha)
    of_figures = Differences(metric=metric, main=difference, pass_error=RULES.bound_error)
    outcome, _ = decide(of_figures, threshold)
    seen = as_share(difference.detectable(threshold))
    reason = Reason(kind=ReasonKind.IMPROVED) if outcome is Outcome.IMPROVED else None
    if outcome is None:
        noise_of = NoiseOf.SESSIONS if 2 * sd**2 > difference.error**2 else NoiseOf.BOOTS
        reason = _why_undecided(of_figures, levels.tolerance, seen, noise_of)
    return unless_far_worse(judged(levels, outcome, difference, seen, reason))


def difference_of(
    metric: Metric, base: Evidence, now: Evidence, levels: tuple[Level, Level], *, sd: float, df: float = math.inf
) -> Difference:
    """Returns how much worse `now` is than `base`, by their `levels`.

    `sd` is how much unchanged code differs between sessions: a standard deviation, as a log ratio. `df` is its degrees
    of freedom.
    """
    boot, boot_df = variance_of_boots(metric, levels, set(base.stabilised) & set(now.stabilised))
    boots, session = boot * sum(1 / len(level.boots) for level in levels), sd**2
    return Difference(
        worse=metric.worse_sign * (levels[1].mean - levels[0].mean),
        error=math.sqrt(boots + session),
        df=(boots + session) ** 2 / (boots**2 / boot_df + session**2 / df),
    )


def _why_undecided(found: Differences, tolerance: float, seen: float, noise_of: NoiseOf) -> Reason:
    if found.main.worse > math.log1p(tolerance):
        return Reason(kind=ReasonKind.NOISE, share=tolerance, noise_of=noise_of)
    if seen > (most := RULES.most_told(tolerance)):
        return Reason(kind=ReasonKind.NOTHING_TOLD, share=most, noise_of=noise_of)
    # The least tolerance, in whole per cents, with which this evidence would PASS.
    least = max(found.main.worse, (found.main.high(RULES.bound_error) - RULES.excluded_more) / found.tolerances)
    allowed = math.floor(100 * math.expm1(least) + 1) / 100
    return Reason(kind=ReasonKind.UNSEEN, share=seen, tolerance=allowed, noise_of=noise_of)


def why_no_level(metric: Metric, evidence: Evidence, side: str) -> Reason:
    if evidence.requests == 0:
        return Reason(kind=ReasonKind.NO_REQUEST, side=side)
    known = any(metric.name in values for boot in evidence.boots for values in (*boot.turns, boot.runs))
    return Reason(kind=ReasonKind.WAS_ZERO if known else ReasonKind.NOT_MEASURED, metric=metric.name, side=side)


# --- Two separate questions: is the code slower, and is the environment slower?
#
# `judge_stored` judges the code by stored figures, if there is nothing better. If the baseline's code was measured
# alternately, `paired` judges the code. The environment is machine, packages and settings. `judge_world` judges it by
# the baseline's own code: its figures now, compared with its stored figures.

_GOOD = (Outcome.PASS, Outcome.IMPROVED)
_UNDECIDED = (ReasonKind.NOISE, ReasonKind.UNSEEN, ReasonKind.NOTHING_TOLD)


def judge_stored(
    *,
    tolerances: Mapping[str, float],
    alpha: float,
    found: Entry | None,
    now: Evidence,
    identity: Mapping[str, object],
    packages: Mapping[str, str],
    saturated: bool,
    busy: Busy,
    no_code: str = "",
) -> tuple[MetricComparison, ...]:
    """Compares the code here with the stored figures in `found`, the baseline. Without a baseline, outcomes are NEW.

    `alpha` is the probability of error for each metric in `tolerances`. `no_code` says why the baseline's code was not
    measured again. An outcome that a busy machine may explain becomes INCONCLUSIVE.
    """
    apart: Reason | None
    if found is None:
        apart = Reason(kind=ReasonKind.NO_BASELINE_SATURATED if saturated else ReasonKind.NO_BASELINE)
    elif found.differences:
        differences = tuple(found.differences.values())
        apart = Reason(kind=ReasonKind.OTHER_MACHINE, differences=differences, text=no_code)
    else:
        apart = _why_other_work(_other_work(found, identity))
    comparisons = []
    for name, tolerance in tolerances.items():
        metric = METRICS[name]
        if found is None or apart is not None:
            outcome, value = Outcome.NEW if found is None else Outcome.INCONCLUSIVE, value_of(metric, now)
            comparisons.append(MetricComparison.of(metric, tolerance, outcome, now=value, reason=apart))
            continue
        # The deviation of sessions is wide, and equal for all machines, because nobody knows this machine's.
        sd = RULES.environment_sd * tail_factor(metric)
        comparison = compare(metric, base=found.evidence, now=now, tolerance=tolerance, alpha=alpha, sd=sd)
        if comparison.outcome is Outcome.REGRESSED:
            changed, why = package_changes(found.packages, packages), found.reason or ""
            others = busy if busy.is_busy else None
            about = None
            if changed or why or others:
                day = found.captured.partition("T")[0] if changed or why else ""
                about = Reason(kind=ReasonKind.SINCE_BASELINE, packages=changed, day=day, text=why, busy=others)
            comparison = _unless_explained(comparison.with_outcome(Outcome.REGRESSED, about), busy)
        elif comparison.outcome in _GOOD:
            comparison = _unless_stored_busy(comparison, found.busy or Busy())
        elif no_code and comparison.reason is not None and comparison.reason.kind in _UNDECIDED:
            comparison = comparison.undecided(Reason(kind=ReasonKind.NO_CODE, text=no_code))
        comparisons.append(comparison)
    return unless_saturated(comparisons, saturated)


def judge_world(
    found: Entry,
    now: Evidence,
    *,
    tolerances: Mapping[str, float],
    alpha: float,
    identity: Mapping[str, object],
    packages: Mapping[str, str],
    conditions: Mapping[str, str],
    saturated: bool,
    busy: Busy,
) -> tuple[MetricComparison, ...]:
    """Judges the environment: compares the figures of the baseline's own code `now` with its stored figures.

    A metric is REGRESSED if it became worse by more than sessions ever differ. `identity`, `packages` and `conditions`
    belong to the measurement `now`. If the baseline measured other work or comes from another machine, nothing is
    compared.
    """
    if not found.differences.keys() <= {"python"} or _other_work(found, identity):
        return ()
    changed = (*found.differences.values(), *condition_changes(found.conditions, conditions))
    of_packages = package_changes(found.packages, packages)
    comparisons = []
    for name, tolerance in tolerances.items():
        metric, base = METRICS[name], found.evidence
        # By the spread of start-ups alone: the deviations of sessions are counted afterwards.
        comparison = compare(metric, base=base, now=now, tolerance=tolerance, alpha=alpha, sd=0.0)
        if comparison.change is None or comparison.low is None:
            continue
        outcome = comparison.outcome
        if _deviations(comparison, min(_bounds(comparison)), busy) > RULES.environment_failed:
            outcome = Outcome.REGRESSED
        elif outcome is Outcome.REGRESSED:
            outcome = Outcome.INCONCLUSIVE
        about = Reason(
            kind=ReasonKind.WORLD_UNCLEAR if outcome is Outcome.INCONCLUSIVE else ReasonKind.WORLD,
            metric=metric.name,
            ratio=1 + comparison.change,
            differences=changed,
            packages=of_packages,
            busy=busy if busy.is_busy and outcome is Outcome.REGRESSED else None,
        )
        comparison = comparison.with_outcome(outcome, None if outcome is Outcome.PASS else about)
        comparisons.append(_unless_explained(comparison, busy) if outcome is Outcome.REGRESSED else comparison)
    return unless_saturated(comparisons, saturated)


def _deviations(world: MetricComparison, worse: float, busy: Busy) -> float:
    """Returns the log ratio `worse`, divided by the usual standard deviation between sessions.

    The part of `worse` that a `busy` machine may explain does not count.
    """
    metric = METRICS[world.metric]
    worse -= busy.explains(metric) if worse > 0 else 0.0
    return worse / (RULES.environment_sd * tail_factor(metric))


def unless_environment(
    comparisons: Sequence[MetricComparison], world: Sequence[MetricComparison], busy: Busy
) -> tuple[MetricComparison, ...]:
    """Changes outcomes if the environment (machine, packages or settings) became slower since the baseline.

    `comparisons` judge the code. `world` judges the environment, and comes from `judge_world`. If the environment is
    clearly slower, PASS and IMPROVED become INCONCLUSIVE. If it is far slower, all outcomes become REGRESSED.
    """
    worlds = {item.metric: item for item in world}
    return tuple(
        _in_environment(item, worlds[item.metric], busy)
        if item.metric in worlds and item.outcome in (*_GOOD, Outcome.INCONCLUSIVE)
        else item
        for item in comparisons
    )


def _in_environment(code: MetricComparison, world: MetricComparison, busy: Busy) -> MetricComparison:
    worse = _worse(world, world.change)
    off, seen = _deviations(world, worse, busy), _deviations(world, worse, Busy())
    if seen <= RULES.environment_noted or world.reason is None:
        return code
    reason = replace(world.reason, kind=ReasonKind.ENVIRONMENT)
    # By the nearer bound of the interval: a short measurement on a busy machine knows little.
    least = _deviations(world, min(_bounds(world)), busy)
    # Even undecided code: requests that take 30 times as long leave no time to compare.
    if least > RULES.environment_failed and world.outcome is Outcome.REGRESSED:
        return world.with_outcome(Outcome.REGRESSED, reason)
    if code.outcome not in _GOOD:
        return code
    if off <= RULES.environment_noted:  # others explain it, but not any amount of it
        if seen <= RULES.environment_failed:
            return code
        return code.undecided(Reason(kind=ReasonKind.BUSY, busy=busy))
    return code.undecided(reason)


def judge_same_code(
    found: Entry,
    now: Evidence,
    *,
    tolerances: Mapping[str, float],
    identity: Mapping[str, object],
    saturated: bool,
) -> tuple[MetricComparison, ...]:
    """Returns PASS for each metric, because the code equals the baseline's code and cannot be slower.

    A metric is INCONCLUSIVE if it was not measured. All metrics are INCONCLUSIVE if the load generator was `saturated`,
    or if the baseline measured other work.
    """
    differences, comparisons = _other_work(found, identity), []
    alike = not found.differences and not differences
    # Only figures depend on how start-ups were stabilised.
    other_work = None if differences.keys() <= {"server.stabilised"} else _why_other_work(differences)
    for name, tolerance in tolerances.items():
        metric, value = METRICS[name], value_of(METRICS[name], now)
        base, is_known = value_of(metric, found.evidence) if alike else None, value is not None
        reason = Reason(kind=ReasonKind.SAME_CODE, side="base") if is_known else why_no_level(metric, now, "now")
        comparison = MetricComparison.of(
            metric,
            tolerance,
            Outcome.PASS if is_known and other_work is None else Outcome.INCONCLUSIVE,
            base=None if base is None else measured_of(metric, found.evidence),
            now=value,
            change=value / base - 1 if value is not None and base else None,
            reason=other_work or reason,
        )
        comparisons.append(comparison)
    return unless_saturated(comparisons, saturated)


def unless_saturated(comparisons: Sequence[MetricComparison], saturated: bool) -> tuple[MetricComparison, ...]:
    """Makes PASS and IMPROVED INCONCLUSIVE if the load generator was `saturated`, because this may hide a loss."""
    reason, hidden = Reason(kind=ReasonKind.SATURATED), _GOOD if saturated else ()
    return _undecided(comparisons, reason, hidden, lambda item: _is_of_load(item) and not _is_counted(item))


def unless_lost(comparisons: Sequence[MetricComparison], lost: str) -> tuple[MetricComparison, ...]:
    """Makes outcomes INCONCLUSIVE if a part of the load is missing. `lost` says which part, or is empty."""
    every = set(Outcome) - {Outcome.NEW} if lost else set()
    return _undecided(comparisons, Reason(kind=ReasonKind.LOST, text=lost), every)


def unless_left(
    comparisons: Sequence[MetricComparison], now: Recording, base: Recording | None
) -> tuple[MetricComparison, ...]:
    """Makes outcomes INCONCLUSIVE if a version goes on working after its answers, because delayed work saves nothing.

    For example, a new version that delays work may only seem IMPROVED. If `base` is None, the old version was not
    measured.
    """
    left, of_base = now.left_share, 0.0 if base is None else base.left_share
    hidden: tuple[Outcome, ...] = ()
    if left:
        hidden = (Outcome.IMPROVED,) if of_base or base is None else _GOOD
    elif of_base:
        hidden = (Outcome.REGRESSED,)
    reason = Reason(kind=ReasonKind.LEFT_WORK, side="now" if left else "base", share=left or of_base)
    return _undecided(
        comparisons, reason, hidden, lambda item: _is_of_load(item) and METRICS[item.metric].unit is not Unit.BYTES
    )


def unless_base_failed(
    comparisons: Sequence[MetricComparison], base: Recording, *, allowed: float, title: str
) -> tuple[MetricComparison, ...]:
    """Makes outcomes INCONCLUSIVE if more than a share `allowed` of the old version's requests failed.

    A rate stays REGRESSED, because without failures the old version's rate would be even higher. `title` names the old
    version.
    """
    failed = sum(round_.failed for round_ in base.rounds)
    made = failed + sum(round_.requests for round_ in base.rounds)
    if failed <= allowed * made:
        return tuple(comparisons)
    reason = Reason(kind=ReasonKind.BASE_FAILED, count=failed, total=made, side=title)
    comparisons = _undecided(comparisons, reason, _GOOD)
    # Latencies show nothing, because they only cover the requests that the old version answered.
    return _undecided(
        comparisons,
        reason,
        (Outcome.REGRESSED,),
        lambda item: _is_of_load(item) and (METRICS[item.metric].unit is Unit.SECONDS or _is_counted(item)),
    )


def unless_unsteady(
    comparisons: Sequence[MetricComparison], busy: Busy, *, by_others: float = 0.0
) -> tuple[MetricComparison, ...]:
    """Makes regressions INCONCLUSIVE that a `busy` machine may explain, if two versions were loaded alternately.

    `by_others` is how much other programs on the new version's core may have lengthened its requests, as a log ratio.
    """

    def may_be_equal(item: MetricComparison) -> bool:
        if not (busy.is_busy and _is_of_load(item)):
            return False
        # On a busy machine, the rate at typical moments depends on chance. So the whole load must also be slower.
        if item.total is not None and item.total[0] <= 0 <= item.total[1]:
            return True
        is_of_time = not METRICS[item.metric].of_processes
        return is_of_time and by_others > 0 and min(_bounds(item)) - by_others <= math.log1p(item.tolerance)

    return _undecided(comparisons, Reason(kind=ReasonKind.BUSY, busy=busy), (Outcome.REGRESSED,), may_be_equal)


def unless_other_answers(
    comparisons: Sequence[MetricComparison], other: Sequence[OtherAnswers]
) -> tuple[MetricComparison, ...]:
    """Makes IMPROVED INCONCLUSIVE if the versions gave different answers (`other`): that is different work."""
    reason = Reason(kind=ReasonKind.OTHER_ANSWERS)
    return tuple(
        replace(item.undecided(reason), detectable=None) if other and item.outcome is Outcome.IMPROVED else item
        for item in comparisons
    )


def unless_same_files(comparisons: Sequence[MetricComparison], files: Sequence[str]) -> tuple[MetricComparison, ...]:
    """Makes PASS and IMPROVED INCONCLUSIVE if both versions ran the same `files`: a loss there would not show."""
    reason = Reason(kind=ReasonKind.SAME_FILES, differences=tuple(files))
    return _undecided(comparisons, reason, (*_GOOD, Outcome.INCONCLUSIVE) if files else (), lambda _: True)


def _is_of_load(comparison: MetricComparison) -> bool:
    """Returns whether a load affects the metric. It does not affect start-up times."""
    return not METRICS[comparison.metric].of_start


def _is_counted(comparison: MetricComparison) -> bool:
    return METRICS[comparison.metric].is_counted


def _undecided(
    comparisons: Sequence[MetricComparison],
    reason: Reason,
    of: Collection[Outcome],
    also: Callable[[MetricComparison], bool] = _is_of_load,
) -> tuple[MetricComparison, ...]:
    """Makes comparisons INCONCLUSIVE if `of` contains their outcome and `also` returns true."""
    return tuple(item.undecided(reason) if item.outcome in of and also(item) else item for item in comparisons)


def may_be_worse(comparison: MetricComparison) -> bool:
    """Returns whether a metric is or may be worse than its baseline.

    Storing its new value as the baseline could hide a slow drift.
    """
    undecided = comparison.outcome is Outcome.INCONCLUSIVE and comparison.low is not None
    return comparison.outcome is Outcome.REGRESSED or undecided


def _unless_explained(regression: MetricComparison, busy: Busy) -> MetricComparison:
    """Makes a regression INCONCLUSIVE if a `busy` machine may explain it."""
    least = min(_bounds(regression)) - busy.explains(METRICS[regression.metric])
    if not busy.is_busy or least > math.log1p(regression.tolerance):
        return regression
    return regression.undecided(Reason(kind=ReasonKind.BUSY, busy=busy))


def _unless_stored_busy(comparison: MetricComparison, busy: Busy) -> MetricComparison:
    """Makes PASS or IMPROVED INCONCLUSIVE if the stored figures come from a `busy` machine, and may hide a loss."""
    if not busy.is_busy or comparison.low is None:
        return comparison
    worst = max(_bounds(comparison)) + busy.explains(METRICS[comparison.metric])
    allowed = math.log1p(comparison.tolerance) + RULES.excluded_more if comparison.outcome is Outcome.PASS else 0.0
    if worst <= allowed:
        return comparison
    return comparison.undecided(Reason(kind=ReasonKind.BUSY_FIGURES, busy=busy))


def _bounds(comparison: MetricComparison) -> tuple[float, float]:
    """Returns how much worse the metric is at both ends of its interval, as log ratios."""
    return _worse(comparison, comparison.low), _worse(comparison, comparison.high)


def _worse(comparison: MetricComparison, change: float | None) -> float:
    """Converts a change, as a share, to a log ratio that is above 0 if the metric got worse."""
    if change is None:
        return 0.0
    return METRICS[comparison.metric].worse_sign * (math.log1p(change) if change > -1 else -math.inf)


def _other_work(found: Entry, identity: Mapping[str, object]) -> Mapping[str, str]:
    # As JSON, so that tuples become lists as in the file.
    now = json.loads(json.dumps(identity))
    same_form = sealed(now, found.salt) if found.salt else now
    assert isinstance(same_form, dict)
    return work_differences(found.identity, same_form)


def _why_other_work(different: Mapping[str, str]) -> Reason | None:
    if not different:
        return None
    only_rows = all(place.startswith("work.rows.") for place in different)
    kind = ReasonKind.OTHER_ROWS if only_rows else ReasonKind.OTHER_WORK
    return Reason(kind=kind, differences=tuple(different.values()))
