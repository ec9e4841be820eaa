"""Judges a measurement against its baseline."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pytest_fileperf.judge.baseline import Entry, ForeignProfile
from pytest_fileperf.judge.environment import Environment, differences, package_changes
from pytest_fileperf.judge.evidence import Evidence
from pytest_fileperf.judge.gate import compare
from pytest_fileperf.judge.level import level_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.measure.busy import Busy
from pytest_fileperf.measure.metrics import METRICS, Metric, Unit
from pytest_fileperf.measure.recording import Recording

__all__ = ("judge", "may_be_worse", "unless_base_failed", "unless_saturated")


def judge(
    *,
    gate: Iterable[str],
    tolerances: Mapping[str, float],
    alpha: float,
    found: Entry | ForeignProfile | None,
    now: Evidence,
    identity: Mapping[str, object],
    environment: Environment,
    saturated: bool,
    busy: Busy | None = None,
) -> tuple[MetricComparison, ...]:
    """Returns a comparison for each metric named in `gate` with what the baseline store found.

    `tolerances` are shares by metric name; a metric that is not among them has its own. `alpha` is `alpha_each` of the
    session's gates. A saturated generator turns PASS and IMPROVED into INCONCLUSIVE, and its NEW run is not stored. The
    reason of a regression has the packages that changed since the baseline, and why the baseline was stored. A `busy`
    machine turns a regression that it explains into INCONCLUSIVE.
    """
    comparisons = []
    for metric in (METRICS[name] for name in gate):
        tolerance = tolerances.get(metric.name, metric.tolerance)
        comparison = _compared(metric, tolerance, alpha, found, now, identity)
        if saturated and comparison.outcome is Outcome.NEW:
            comparison = replace(comparison, reason=Reason(kind=ReasonKind.NO_BASELINE_SATURATED))
        elif comparison.outcome is Outcome.REGRESSED and isinstance(found, Entry):
            about = _about_baseline(found, environment)
            comparison = replace(comparison, reason=about)
            comparison = _unless_explained(comparison, about, metric, busy) if busy else comparison
        comparisons.append(unless_saturated(comparison) if saturated else comparison)
    return tuple(comparisons)


def unless_saturated(comparison: MetricComparison) -> MetricComparison:
    """Returns the comparison of a load that the generator limited: it can only show a regression."""
    if comparison.outcome in (Outcome.PASS, Outcome.IMPROVED):
        return replace(comparison, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.SATURATED))
    return comparison


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
    least = math.log1p(comparison.low) if metric.worse_sign > 0 else -math.log1p(comparison.high)
    if least - busy.explains(metric) > math.log1p(comparison.tolerance):
        return replace(comparison, reason=replace(about or Reason(kind=ReasonKind.SINCE_BASELINE), busy=busy))
    return replace(comparison, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.BUSY, busy=busy))


def _compared(
    metric: Metric,
    tolerance: float,
    alpha: float,
    found: Entry | ForeignProfile | None,
    now: Evidence,
    identity: Mapping[str, object],
) -> MetricComparison:
    level = level_of(metric, now)
    alone = MetricComparison(
        metric=metric.name, outcome=Outcome.NEW, tolerance=tolerance, now=level.value if level is not None else None
    )
    if found is None:
        return replace(alone, reason=Reason(kind=ReasonKind.NO_BASELINE))
    if isinstance(found, ForeignProfile):
        other = Reason(kind=ReasonKind.OTHER_MACHINE, differences=found.differences)
        return replace(alone, outcome=Outcome.INCONCLUSIVE, reason=other)
    # As JSON, so that a tuple is the list that the file gave back.
    if different := differences(found.identity, json.loads(json.dumps(identity))):
        other = Reason(kind=ReasonKind.OTHER_WORK, differences=different)
        return replace(alone, outcome=Outcome.INCONCLUSIVE, reason=other)
    return compare(metric, base=found.evidence, now=now, tolerance=tolerance, alpha=alpha)


def _about_baseline(base: Entry, environment: Environment) -> Reason | None:
    """Returns what to say about the baseline that a run regressed from; None for nothing."""
    different = package_changes(base.packages, environment.packages)
    if not different and not base.reason:
        return None
    return Reason(
        kind=ReasonKind.SINCE_BASELINE,
        differences=different,
        day=base.captured.partition("T")[0],
        text=base.reason or "",
    )
