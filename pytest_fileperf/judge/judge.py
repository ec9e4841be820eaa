"""Judges by stored figures, and answers two questions apart: whether the code is slower, and whether the world is.

The code's figures are judged here where stored ones have to do (`judge_stored`); where the baseline's code was measured
in turn, `paired` judges. The world is the machine, the packages and the environment: what the baseline's own code does
now, against what is stored of it (`judge_world`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_fileperf.judge.answers import OtherAnswers
from pytest_fileperf.judge.baseline import Found
from pytest_fileperf.judge.environment import condition_changes, package_changes
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.gate import compare, why_no_level
from pytest_fileperf.judge.level import level_of, measured_of, tail_factor
from pytest_fileperf.judge.other_work import work_differences
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.sealed import sealed
from pytest_fileperf.judge.steadiness import Steadiness
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.measure.busy import Busy
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.measure.recording import Recording

__all__ = (
    "judge_same_code",
    "judge_stored",
    "judge_world",
    "may_be_worse",
    "unless_base_failed",
    "unless_environment",
    "unless_left",
    "unless_lost",
    "unless_other_answers",
    "unless_same_files",
    "unless_saturated",
    "unless_unsteady",
)

_UNDECIDED = (ReasonKind.NOISE, ReasonKind.UNSEEN, ReasonKind.NOTHING_TOLD)


def judge_stored(
    *,
    gate: Iterable[str],
    tolerances: Mapping[str, float],
    alpha: float,
    found: Found | None,
    now: Evidence,
    identity: Mapping[str, object],
    packages: Mapping[str, str],
    steadiness: Steadiness,
    saturated: bool,
    busy: Busy | None = None,
    no_code: str = "",
) -> tuple[MetricComparison, ...]:
    """Returns a comparison of the code here with stored figures alone, for each metric named in `gate`.

    `tolerances` are shares by metric name; a metric that is not among them has its own. `alpha` is the level of each
    gate, from `ErrorBudget`. `packages` are those installed. `no_code` says why the baseline's code was not measured
    again: what the figures leave undecided has it as its reason.
    A saturated generator turns PASS and IMPROVED into INCONCLUSIVE, and its NEW run is not stored. The reason of a
    regression has the packages that changed since the baseline, and why the baseline was stored. A `busy` machine turns
    a regression that it explains into INCONCLUSIVE; one that was busy for the baseline does so to PASS and IMPROVED.
    """
    comparisons = []
    for metric in (METRICS[name] for name in gate):
        tolerance = tolerances.get(metric.name, metric.tolerance)
        comparison = _compared(metric, tolerance, alpha, found, now, identity, steadiness, no_code)
        if saturated and comparison.outcome is Outcome.NEW:
            comparison = replace(comparison, reason=Reason(kind=ReasonKind.NO_BASELINE_SATURATED))
        elif comparison.outcome is Outcome.REGRESSED and found is not None:
            about = _about_baseline(found, packages)
            comparison = replace(comparison, reason=about)
            comparison = _unless_explained(comparison, about, metric, busy) if busy else comparison
        elif comparison.outcome in (Outcome.PASS, Outcome.IMPROVED) and found is not None:
            comparison = _unless_stored_busy(comparison, metric, found.entry.busy)
        comparisons.append(unless_saturated(comparison) if saturated else comparison)
    return tuple(comparisons)


def judge_world(
    found: Found,
    now: Evidence,
    *,
    gate: Iterable[str],
    tolerances: Mapping[str, float],
    alpha: float,
    identity: Mapping[str, object],
    packages: Mapping[str, str],
    conditions: Mapping[str, str],
    steadiness: Steadiness,
    saturated: bool = False,
    busy: Busy | None = None,
) -> tuple[MetricComparison, ...]:
    """Returns a comparison of the baseline's own code, as it runs `now`, with what is stored of it, for each metric.

    Arguments are those of `judge_stored`; `packages`, `conditions` and `identity` are those of the code that was
    measured `now`. Empty for a baseline of another machine, though not of another Python alone, or of other work; a
    metric without figures is left out. REGRESSED where the machine has proven steady, by its spread, or where no
    sessions differ so: others do not show it.
    """
    if any(not one.startswith("python was ") for one in found.differences) or _other_work(found, identity):
        return ()
    changed = (
        *found.differences,
        *condition_changes(found.entry.conditions, conditions),
        *package_changes(found.entry.packages, packages),
    )
    comparisons = []
    for metric in (METRICS[name] for name in gate):
        tolerance = tolerances.get(metric.name, metric.tolerance)
        comparison = compare(
            metric,
            base=found.entry.evidence,
            now=now,
            tolerance=tolerance,
            alpha=alpha,
            spread=steadiness.spread(metric),
        )
        if comparison.change is None or comparison.low is None:
            continue
        ratio, steady = 1 + comparison.change, steadiness.is_steady((metric.name,), {metric.name: tolerance})
        if _deviations(comparison, busy) > RULES.environment_failed:
            comparison = replace(comparison, outcome=Outcome.REGRESSED)
        elif comparison.outcome is Outcome.REGRESSED and not steady:
            comparison = replace(comparison, outcome=Outcome.INCONCLUSIVE)
        undecided = comparison.outcome is Outcome.INCONCLUSIVE
        kind = ReasonKind.WORLD_UNCLEAR if undecided else ReasonKind.WORLD
        about = Reason(kind=kind, metric=metric.name, ratio=ratio, differences=changed)
        comparison = replace(comparison, reason=None if comparison.outcome is Outcome.PASS else about)
        if comparison.outcome is Outcome.REGRESSED and busy:
            comparison = _unless_explained(comparison, about, metric, busy)
        comparisons.append(unless_saturated(comparison) if saturated else comparison)
    return tuple(comparisons)


def _deviations(world: MetricComparison, busy: Busy | None) -> float:
    """Returns by how many deviations of sessions unchanged code is worse than what is stored of it.

    What others on the machine may have done counts for nothing.
    """
    metric = METRICS[world.metric]
    worse = 0.0 if world.change is None else metric.worse_sign * _log1p(world.change)
    worse -= busy.explains(metric) if busy is not None and worse > 0 else 0.0
    return worse / (RULES.environment_sd * tail_factor(metric))


def unless_environment(
    comparisons: Sequence[MetricComparison], world: Sequence[MetricComparison], busy: Busy | None = None
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of code that is no worse, with what the `world` did to it, a `busy` machine apart.

    INCONCLUSIVE where sessions hardly differ so; where none do, REGRESSED by the stored figures.
    """
    worlds = {item.metric: item for item in world}
    return tuple(
        item
        if item.outcome not in (Outcome.PASS, Outcome.IMPROVED) or item.metric not in worlds
        else _in_environment(item, worlds[item.metric], busy)
        for item in comparisons
    )


def _in_environment(code: MetricComparison, world: MetricComparison, busy: Busy | None) -> MetricComparison:
    off, seen = _deviations(world, busy), _deviations(world, None)
    if seen <= RULES.environment_noted or world.reason is None:
        return code
    if off <= RULES.environment_noted:  # others explain it, but not however much it is
        if seen <= RULES.environment_failed:
            return code
        return replace(code, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.BUSY, busy=busy))
    reason = replace(world.reason, kind=ReasonKind.ENVIRONMENT)
    if off <= RULES.environment_failed or world.outcome is not Outcome.REGRESSED:
        return replace(code, outcome=Outcome.INCONCLUSIVE, reason=reason)
    return replace(world, outcome=Outcome.REGRESSED, reason=reason)


def judge_same_code(
    found: Found,
    now: Evidence,
    *,
    gate: Iterable[str],
    tolerances: Mapping[str, float],
    identity: Mapping[str, object],
    saturated: bool,
) -> tuple[MetricComparison, ...]:
    """Returns a PASS for each metric of code that is that of the baseline: it cannot be slower.

    Packages may have changed: what they cost is the world's, as `judge_world` tells. INCONCLUSIVE is what was not
    measured `now`, what a saturated generator measured, and all of it where the baseline is of other work. Figures of
    the baseline are shown where they are of this machine profile and of the same work, started in the same way.
    """
    different = _other_work(found, identity)
    alike, comparisons = not found.differences and not different, []
    if all(difference.startswith("server.stabilised ") for difference in different):
        different = ()  # only figures depend on what was held alike between start-ups
    for metric in (METRICS[name] for name in gate):
        tolerance, level = tolerances.get(metric.name, metric.tolerance), level_of(metric, now)
        base = level_of(metric, found.entry.evidence) if alike else None
        if different:
            reason = _other_work_reason(different)
        else:
            reason = Reason(kind=ReasonKind.SAME_CODE, side="base") if level else why_no_level(metric, now, "now")
        comparison = MetricComparison(
            metric=metric.name,
            outcome=Outcome.PASS if level and not different else Outcome.INCONCLUSIVE,
            tolerance=tolerance,
            base=measured_of(metric, found.entry.evidence) if base else None,
            now=level.value if level else None,
            change=level.value / base.value - 1 if level and base else None,
            reason=reason,
        )
        comparisons.append(unless_saturated(comparison) if saturated else comparison)
    return tuple(comparisons)


def unless_saturated(comparison: MetricComparison) -> MetricComparison:
    """Returns the comparison of a load that the generator limited: it can only show a regression."""
    if comparison.outcome in (Outcome.PASS, Outcome.IMPROVED):
        return replace(comparison, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.SATURATED))
    return comparison


def unless_lost(comparisons: Sequence[MetricComparison], lost: str) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of a load of which a part may be `lost`: they tell nothing then, as `lost` says."""
    if not lost:
        return tuple(comparisons)
    reason = Reason(kind=ReasonKind.LOST, text=lost)
    return tuple(
        item if item.outcome is Outcome.NEW else replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason)
        for item in comparisons
    )


def unless_left(
    comparisons: Sequence[MetricComparison], now: Recording, base: Recording | None
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of code that may leave work behind its answers: what it gains by that is no gain.

    Nor is code slower that does all of its work, where the base left some.
    """
    left, of_base = now.left_share, 0.0 if base is None else base.left_share
    hidden: tuple[Outcome, ...] = ()
    if left:
        hidden = (Outcome.IMPROVED,) if of_base or base is None else (Outcome.IMPROVED, Outcome.PASS)
    elif of_base:
        hidden = (Outcome.REGRESSED,)
    reason = Reason(kind=ReasonKind.LEFT_WORK, side="now" if left else "base", share=left or of_base)
    return tuple(
        replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason)
        if item.outcome in hidden and METRICS[item.metric].unit is not Unit.BYTES
        else item
        for item in comparisons
    )


def unless_base_failed(
    comparisons: Sequence[MetricComparison], base: Recording, *, allowed: float, title: str
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons with a base that may fail more than is `allowed`: some are INCONCLUSIVE then.

    The base's true rates are higher than what it shows, so a regression of a rate stays one. Its latencies tell
    nothing: they are only those of the requests that it answered.
    """
    failed = sum(round_.failed for round_ in base.rounds)
    made = failed + sum(round_.requests for round_ in base.rounds)
    if failed <= allowed * made:
        return tuple(comparisons)
    reason = Reason(kind=ReasonKind.BASE_FAILED, count=failed, total=made, side=title)
    return tuple(
        replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason)
        if item.outcome in (Outcome.PASS, Outcome.IMPROVED)
        or (item.outcome is Outcome.REGRESSED and METRICS[item.metric].unit is Unit.SECONDS)
        else item
        for item in comparisons
    )


def unless_unsteady(comparisons: Sequence[MetricComparison], busy: Busy) -> tuple[MetricComparison, ...]:
    """Returns the comparisons in turn on a machine that may be `busy`: the typical moment is up to chance then.

    A typical pace that is worse is INCONCLUSIVE then, unless what was counted is worse, too.
    """
    reason = Reason(kind=ReasonKind.BUSY, busy=busy)
    return tuple(
        replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason)
        if busy.is_busy and item.outcome is Outcome.REGRESSED and _may_be_equal(item)
        else item
        for item in comparisons
    )


def _may_be_equal(item: MetricComparison) -> bool:
    return item.total is not None and item.total[0] <= 0 <= item.total[1]


def unless_other_answers(
    comparisons: Sequence[MetricComparison], other: Sequence[OtherAnswers]
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of a side whose answers may be `other` ones: that is other work, and no improvement."""
    reason = Reason(kind=ReasonKind.OTHER_ANSWERS)
    return tuple(
        replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason, detectable=None)
        if other and item.outcome is Outcome.IMPROVED
        else item
        for item in comparisons
    )


def unless_same_files(comparisons: Sequence[MetricComparison], files: Sequence[str]) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of sides that both ran these files: what is no worse may be so by them alone."""
    reason = Reason(kind=ReasonKind.SAME_FILES, differences=tuple(files))
    return tuple(
        replace(item, outcome=Outcome.INCONCLUSIVE, reason=reason)
        if files and item.outcome in (Outcome.PASS, Outcome.IMPROVED, Outcome.INCONCLUSIVE)
        else item
        for item in comparisons
    )


def may_be_worse(comparison: MetricComparison) -> bool:
    """Returns whether a metric is or may be worse than its baseline: storing that run would let a slow drift in."""
    undecided = comparison.outcome is Outcome.INCONCLUSIVE and comparison.low is not None
    return comparison.outcome is Outcome.REGRESSED or undecided


def _unless_explained(
    comparison: MetricComparison, about: Reason | None, metric: Metric, busy: Busy
) -> MetricComparison:
    """Returns a regression on a machine that may be busy: INCONCLUSIVE where what others did may explain it.

    It stays one where its lower bound, less what others may have done, is beyond the tolerance.
    `about` is its reason so far.
    """
    if not busy.is_busy or comparison.low is None or comparison.high is None:
        return comparison
    least = metric.worse_sign * _log1p(comparison.low if metric.worse_sign > 0 else comparison.high)
    if least - busy.explains(metric) > math.log1p(comparison.tolerance):
        return replace(comparison, reason=replace(about or Reason(kind=ReasonKind.SINCE_BASELINE), busy=busy))
    return replace(comparison, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.BUSY, busy=busy))


def _unless_stored_busy(comparison: MetricComparison, metric: Metric, busy: Busy | None) -> MetricComparison:
    """Returns what is no worse than figures of a machine that was perhaps `busy`: INCONCLUSIVE if they hide a loss."""
    if busy is None or not busy.is_busy or comparison.low is None or comparison.high is None:
        return comparison
    worst = metric.worse_sign * _log1p(comparison.high if metric.worse_sign > 0 else comparison.low)
    allowed = math.log1p(comparison.tolerance) + RULES.rate_excluded.more if comparison.outcome is Outcome.PASS else 0.0
    if worst + busy.explains(metric) <= allowed:
        return comparison
    return replace(comparison, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.BUSY_FIGURES, busy=busy))


def _log1p(change: float) -> float:
    return math.log1p(change) if change > -1 else -math.inf


def _compared(
    metric: Metric,
    tolerance: float,
    alpha: float,
    found: Found | None,
    now: Evidence,
    identity: Mapping[str, object],
    steadiness: Steadiness,
    no_code: str,
) -> MetricComparison:
    level = level_of(metric, now)
    alone = MetricComparison(
        metric=metric.name, outcome=Outcome.NEW, tolerance=tolerance, now=level.value if level is not None else None
    )
    if found is None:
        return replace(alone, reason=Reason(kind=ReasonKind.NO_BASELINE))
    if found.differences:
        other = Reason(kind=ReasonKind.OTHER_MACHINE, differences=found.differences, text=no_code)
        return replace(alone, outcome=Outcome.INCONCLUSIVE, reason=other)
    if different := _other_work(found, identity):
        other = _other_work_reason(different)
        return replace(alone, outcome=Outcome.INCONCLUSIVE, reason=other)
    spread = steadiness.spread(metric)
    comparison = compare(metric, base=found.entry.evidence, now=now, tolerance=tolerance, alpha=alpha, spread=spread)
    if no_code and comparison.reason is not None and comparison.reason.kind in _UNDECIDED:
        return replace(comparison, reason=Reason(kind=ReasonKind.NO_CODE, text=no_code))
    return comparison


def _other_work(found: Found, identity: Mapping[str, object]) -> tuple[str, ...]:
    """Returns how the work, the server or the load differ from those of the baseline."""
    # As JSON, so that a tuple is the list that the file gave back.
    now = json.loads(json.dumps(identity))
    same_form = sealed(now, found.salt) if found.salt else now
    assert isinstance(same_form, dict)
    return work_differences(found.entry.identity, same_form)


def _other_work_reason(different: tuple[str, ...]) -> Reason:
    """Returns why such a baseline does not compare; `different` is what `_other_work` found."""
    only_rows = all(difference.startswith("work.rows.") for difference in different)
    return Reason(kind=ReasonKind.OTHER_ROWS if only_rows else ReasonKind.OTHER_WORK, differences=different)


def _about_baseline(found: Found, packages: Mapping[str, str]) -> Reason | None:
    """Returns what to say about the baseline that a run regressed from; None for nothing."""
    entry = found.entry
    different = package_changes(entry.packages, packages)
    if not different and not entry.reason:
        return None
    return Reason(
        kind=ReasonKind.SINCE_BASELINE,
        differences=different,
        day=entry.captured.partition("T")[0],
        text=entry.reason or "",
    )
