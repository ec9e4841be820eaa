"""Compares two versions that are loaded alternately, one pair after the other. A pair is a start-up of each version.

Evidence
    How much worse the new version is, with bounds at any probability of error. For a rate it is the mean of the pairs'
    values (`unit`). For a percentile it comes from the share of requests that take longer (`ranks`). Rounds within a
    start-up depend on each other, and so do requests within a round. This dependence needs no model, because only the
    spread between pairs counts, and pairs are independent.
    Each metric also has a guard, a second figure, which gets a part of the error. A rate is judged in typical moments.
    Its guard is the rate over the whole load, with stalls that are too rare to be typical. A percentile is judged by
    all requests. Its guard is the percentile between stalls. In a stall all connections wait at once, so a few stalls
    cause most of a percentile's random variation.

Sequence
    A look is one judgement of the evidence so far. Each look may use only its `share` of the error probabilities (Lan
    and DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983) 659–663). The sum of the
    shares bounds the error, however much evidence the looks have in common (Bonferroni).

Outcome, with L = log(1 + tolerance); bounds are one-sided, at this look's share of their error
    REGRESSED  the lower bound at the gate's alpha is above 0, and the lower bound at `Rules.bound_error` is above L.
               It is enough if the guard meets both conditions. For a percentile, the percentile itself must then be
               above L at `Rules.calm_error`. At the end also if the whole interval is beyond ten times the tolerance.
    IMPROVED   the same in the good direction. But a rate is not IMPROVED if its guard may be worse.
    PASS       the estimate is at most L. Its upper bound is below L + 2 % for a rate (`Rules.excluded_more`), below
               2 L + 2 % for a percentile (`Rules.tail_tolerances`). This bound has the same error at each look.
               No PASS if the guard may be worse: if its lower bound at all of `Rules.bound_error` is above L.
               A rate's guard must also exclude a loss by stalls: its upper bound, at the rate's own error, is below
               L + 5 % (`Rules.total_more`). A server that stalls now and then has the same typical speed as a server
               without stalls.
    undecided  otherwise; INCONCLUSIVE once the time is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TypeAlias

from pytest_fileperf.judge.difference import (
    Difference,
    Differences,
    Threshold,
    compare_counts,
    decide,
    judged,
)
from pytest_fileperf.judge.evidence import (
    BootEvidence,
    Pair,
    boots_of,
    counts_of,
    percentile_of,
    reached_by_all,
    sides_of,
    tail_factor,
)
from pytest_fileperf.judge.ranks import difference_by_ranks
from pytest_fileperf.judge.rules import RULES, usual_sd
from pytest_fileperf.judge.unit import clustering, mean_difference, unit_of
from pytest_fileperf.judge.verdict import (
    MetricComparison,
    NoiseOf,
    Outcome,
    Reason,
    ReasonKind,
    agreeing,
    unless_far_worse,
)
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.units import as_share

Jump: TypeAlias = tuple[tuple[float, float], tuple[float, float]]


def share_of_looks(before: float, now: float) -> float:
    """Returns the share of the probability of error for a look. A look is one judgement of the evidence so far.

    `before` and `now` are the shares of the time that were over at the last look and at this look.
    """
    return sum(share for at, share in RULES.looks if before < at <= now)


def compare_pairs(
    metric: Metric,
    pairs: Sequence[Pair],
    *,
    tolerance: float,
    alpha: float,
    share: float,
    elapsed_s: float = 0.0,
    next_s: float = 0.0,
) -> MetricComparison:
    """Judges a metric by the pairs so far. INCONCLUSIVE means that they leave it undecided.

    `alpha` is the metric's probability of error over all judgements, and `share` the part of it for this judgement. The
    pairs took `elapsed_s`, and another pair will take `next_s`.
    """
    if metric.is_counted:
        known = (counts_of(metric, own) for own in sides_of(pairs))
        return compare_counts(metric, tolerance, *known, pairs=len(pairs))
    base, now = (_level(metric, own) for own in sides_of(pairs))
    evidence = paired_evidence(metric, pairs)
    levels = MetricComparison.of(
        metric,
        tolerance,
        base=base,
        now=now,
        total=evidence.guard.interval(metric) if evidence and evidence.guard and not evidence.is_calm else None,
        pairs=len(pairs),
        after_requests=reached_by_all(boots_of(pairs)) if metric.name == "rss" else None,
    )
    if evidence is None:
        return levels.undecided(_why_nothing(metric, pairs, base, now, elapsed_s, next_s))
    look, main = Threshold.of(levels.tolerance, alpha).part(share), evidence.main
    levels = replace(levels, log_ratio=metric.worse_sign * main.worse, log_error=main.error)
    outcome, guard = decide(evidence, look)
    # Slow requests between stalls show that a percentile is worse, but not by how much.
    shown = main if guard is None or evidence.is_calm else guard
    detectable, reason = _with_guard(evidence, look, Difference.detectable), None
    if outcome is Outcome.REGRESSED:
        detectable = min(detectable, shown.worse)  # a worsening that was found can be found
    if guard is not None and evidence.is_calm:
        reason = Reason(kind=ReasonKind.PAIRS_CALM_WORSE, share=as_share(guard.low(RULES.bound_error)))
    elif guard is not None and main.worse <= look.limit:
        reason = Reason(kind=ReasonKind.PAIRS_STALLS)
    elif outcome is None:
        times = _times_to_decide(evidence, _last_look(levels.tolerance, alpha))
        seconds = elapsed_s * times if 1 < times < math.inf else 0.0
        reason = replace(_why_undecided(evidence, look, detectable, _jump(metric, pairs)), seconds=seconds)
    return judged(levels, outcome, shown, as_share(detectable), reason)


def is_hopeless(metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, at: float) -> bool:
    """Returns whether more time is unlikely to decide. `at` is the share of the time that is over."""
    if at < RULES.hopeless_from or (evidence := paired_evidence(metric, pairs)) is None:
        return False
    # Errors shrink with the square root of the time, so the errors at the end can be foreseen.
    last, shrunk = _last_look(tolerance, alpha), math.sqrt(at)
    for difference, threshold in evidence.parts(last):
        later = Difference(worse=difference.worse, error=difference.error * shrunk, df=difference.df)
        # More time may decide if the estimate, moved by some errors, would be REGRESSED or IMPROVED. The guard never
        # shows a gain.
        seen = abs(later.worse) if difference is evidence.main else later.worse
        if seen + RULES.hopeless_errors * later.error >= later.least_shown(threshold):
            return False
    # Otherwise only a PASS may decide: would equal versions PASS with these errors?
    if evidence.may_be_worse(last.limit):
        return True
    if evidence.guard is not None and metric.worse_sign < 0:
        margin = evidence.guard.margin(RULES.rate_pass_error)
        if margin * shrunk >= last.limit + RULES.total_more:
            return True
    margin = evidence.main.high(evidence.pass_error) - evidence.main.worse
    return margin * shrunk >= evidence.excluded(last.limit)


def paired_evidence(metric: Metric, pairs: Sequence[Pair]) -> Differences | None:
    """Returns how much worse the new version is. None if the pairs show too little."""
    if (main := paired_difference(metric, pairs)) is None:
        return None
    error = RULES.rate_pass_error if metric.percentile is None else RULES.bound_error
    guard = paired_difference(metric, pairs, of_guard=True)
    return Differences(metric=metric, main=main, guard=guard, pass_error=error)


def paired_difference(metric: Metric, pairs: Sequence[Pair], *, of_guard: bool = False) -> Difference | None:
    """Returns `Differences.main`, or with `of_guard` the guard. None if the pairs show too little."""
    usual = usual_sd(RULES.pair_sd, set.intersection(*(set(pair.stabilised) for pair in pairs)))
    if metric.percentile is not None:
        return difference_by_ranks(metric, pairs, usual=usual * tail_factor(metric), calm=of_guard)
    units = [unit for pair in pairs if (unit := unit_of(metric, pair, total=of_guard)) is not None]
    if len(units) < RULES.least_pairs:
        return None
    return mean_difference(units, usual=usual, boots_anew=all(pair.base_boots_anew for pair in pairs))


def _level(metric: Metric, sides: Sequence[BootEvidence]) -> float | None:
    """Returns the metric's value over all these start-ups, in its unit. None if no start-up has a value."""
    if metric.percentile is not None:
        return percentile_of(sides, metric.percentile)
    turns = [rate for side in sides if (rate := side.rate(metric.name)) is not None]
    if any(turns):
        return fmean(turns)
    runs = [side.runs[metric.name] for side in sides if metric.name in side.runs]
    return median(runs) if runs else None


def _last_look(tolerance: float, alpha: float) -> Threshold:
    return Threshold.of(tolerance, alpha).part(RULES.looks[-1][1])


def smallest_seen(evidence: Differences, tolerance: float, alpha: float) -> float:
    """Returns the worsening (log ratio) that is found at the end with the probability `Rules.power`."""
    return _with_guard(evidence, _last_look(tolerance, alpha), Difference.detectable)


def time_to_see(evidence: Differences, change: float, tolerance: float, alpha: float) -> float:
    """Returns how long it takes to find a `change` (a log ratio), as a multiple of this evidence's time."""

    def times(difference: Difference, threshold: Threshold) -> float:
        seen = difference.margin(1 - RULES.power)
        beyond_zero = (difference.margin(threshold.alpha) + seen) / change
        return max(beyond_zero, (difference.margin(threshold.bound_error) + seen) / (change - threshold.limit)) ** 2

    return _with_guard(evidence, _last_look(tolerance, alpha), times)


def times_to_decide(metric: Metric, pairs: Sequence[Pair], tolerance: float, alpha: float) -> float:
    """Returns the time after which a decision is likely, as a multiple of these pairs' time. May be infinite."""
    evidence = paired_evidence(metric, pairs)
    return 2.0 if evidence is None else _times_to_decide(evidence, _last_look(tolerance, alpha))


def _times_to_decide(evidence: Differences, last: Threshold) -> float:
    main, guard = evidence.main, evidence.guard
    needs = [(main.margin(evidence.pass_error), evidence.excluded(last.limit) - max(0.0, main.worse))]
    if main.worse > last.limit:
        needs = [(main.margin(last.bound_error), main.worse - last.limit)]
    elif guard is not None and not evidence.is_calm:
        needs.append((guard.margin(RULES.rate_pass_error), last.limit + RULES.total_more - max(0.0, guard.worse)))
    return max((margin / room) ** 2 if room > 0 else math.inf for margin, room in needs)


def _with_guard(evidence: Differences, look: Threshold, need: Callable[[Difference, Threshold], float]) -> float:
    """Returns the least worsening, or the least time, with which a metric is REGRESSED. `need` computes it.

    Usually this is the value for `main`. For a percentile, the guard may need less.
    """
    needs = [need(difference, threshold) for difference, threshold in evidence.parts(look)]
    if not evidence.is_calm or len(needs) < 2:
        return needs[0]
    # If the guard's value counts, `main` must also be worse.
    hardly = Threshold(limit=look.limit, alpha=RULES.calm_error, bound_error=RULES.calm_error)
    return min(needs[0], max(needs[1], need(evidence.main, hardly)))


def _why_nothing(
    metric: Metric, pairs: Sequence[Pair], base: float | None, now: float | None, elapsed_s: float, next_s: float
) -> Reason:
    """Returns why the pairs show too little, with the time that would be enough."""
    for side, value in (("base", base), ("now", now)):
        if not value:
            return Reason(kind=ReasonKind.PAIRS_NO_RATIO, metric=metric.name, side=side)
    counts = [(pair.base.latency.count, pair.now.latency.count) for pair in pairs]
    if metric.percentile is None:
        usable = sum(unit_of(metric, pair, total=False) is not None for pair in pairs)
    else:
        usable = sum(min(requests) > 0 for requests in counts)
    if metric.percentile is None or usable < RULES.least_pairs:
        seconds = elapsed_s + (RULES.least_pairs - usable) * next_s if usable else 0.0
        return Reason(kind=ReasonKind.PAIRS_FEW, count=usable, needed=RULES.least_pairs, seconds=seconds)
    requests, needed = min(map(sum, zip(*counts, strict=True))), RULES.least_pairs * metric.least_requests
    if requests < needed:
        kind, seconds = ReasonKind.PAIRS_FEW_REQUESTS, elapsed_s * needed / requests if requests else 0.0
        return Reason(kind=kind, metric=metric.name, count=requests, needed=needed, seconds=seconds)
    together = clustering(pairs, metric.percentile)
    return Reason(kind=ReasonKind.PAIRS_CLUSTERED, metric=metric.name, count=requests, together=together)


def _why_undecided(evidence: Differences, look: Threshold, detectable: float, jump: Jump | None) -> Reason:
    guard = evidence.guard
    is_worse = evidence.main.worse > look.limit
    if guard is not None and evidence.may_be_worse(look.limit) and (evidence.is_calm or not is_worse):
        kind = ReasonKind.PAIRS_CALM_UNCLEAR if evidence.is_calm else ReasonKind.PAIRS_TOTAL_UNCLEAR
        return Reason(kind=kind, share=as_share(guard.worse), jump=jump)
    if is_worse:
        # A verdict takes more than the shown interval, because it counts all looks, and all tests of a session.
        is_nearly = evidence.main.is_above(look.limit, RULES.bound_error)
        kind = ReasonKind.PAIRS_NEARLY if is_nearly else ReasonKind.PAIRS_NOISE
        return Reason(kind=kind, share=as_share(look.limit), jump=jump)
    if guard is not None and evidence.may_lose(look.limit) and evidence.seems_well(look.limit):
        return _unseen(ReasonKind.PAIRS_TOTAL_UNSEEN, guard.high(RULES.rate_pass_error), look, jump)
    return _unseen(ReasonKind.PAIRS_UNSEEN, detectable, look, jump)


def _unseen(kind: ReasonKind, ratio: float, look: Threshold, jump: Jump | None) -> Reason:
    """Returns a reason which says that a worsening by `ratio` (log) might not show."""
    share = as_share(ratio)
    if share > (most := RULES.most_told(as_share(look.limit))):
        return Reason(kind=ReasonKind.NOTHING_TOLD, share=most, noise_of=NoiseOf.TURNS, jump=jump)
    return Reason(kind=kind, share=share, jump=jump)


def _jump(metric: Metric, pairs: Sequence[Pair]) -> Jump | None:
    """Returns a percentile on each side of the metric's, with its seconds, if latency jumps between both. Else None."""
    if metric.percentile is None:
        return None
    beside = (100 - metric.percentile) / 2
    latency = Histogram.merged(pair.base.latency for pair in pairs)
    before, after = (
        (at, latency.percentile_ns(at) / 1e9) for at in (metric.percentile - beside, metric.percentile + beside)
    )
    return (before, after) if before[1] > 0 and after[1] / before[1] >= RULES.jump else None


# --- The changes that a comparison could see on this machine, from a comparison of the same code with itself

ASKED = (0.05, 0.02)
"""Changes, as shares, for which `NoiseFloor` says how much time they need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """The changes of one metric that comparisons on this machine show in 8 of 10 cases."""

    metric: str
    seconds: float
    """The duration of the comparison."""
    smallest: float | None
    """The smallest worsening, as a share, that would have shown; None if the pairs show too little."""
    seconds_for: Mapping[float, float]
    """By change in `ASKED`: the duration that would show it."""


def noise_floor(metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, seconds: float) -> NoiseFloor:
    """Returns the changes that would show, by pairs that compared the same code with itself for these `seconds`."""
    evidence = paired_evidence(metric, pairs)
    if evidence is None:
        return NoiseFloor(metric=metric.name, seconds=seconds, smallest=None, seconds_for={})
    tolerance = MetricComparison.of(metric, tolerance, base=_level(metric, sides_of(pairs)[0])).tolerance
    # A change only shows with a smaller tolerance: here at most half of the change.
    times = {
        change: seconds
        * time_to_see(evidence, math.log1p(change), min(tolerance, math.expm1(math.log1p(change) / 2)), alpha)
        for change in ASKED
    }
    smallest = math.expm1(smallest_seen(evidence, tolerance, alpha))
    return NoiseFloor(metric=metric.name, seconds=seconds, smallest=smallest, seconds_for=times)


# --- Looks at a comparison's evidence as it comes in, and decides when it is enough


class Sequential:
    """Judges a test's metrics again and again while pairs of start-ups come in, until all are decided."""

    def __init__(
        self,
        tolerances: Mapping[str, float],
        *,
        alpha: float,
        limit_s: float,
        part: float = 1.0,
        to_the_end: bool = False,
    ) -> None:
        """`tolerances` has every metric to judge, and `alpha` is each metric's probability of error.

        `part` is the share of `alpha` for the judgements here: below 1 if the comparison may go on later. With
        `to_the_end` all of the time `limit_s` is used, whatever the evidence shows.
        """
        self._tolerances = tolerances
        self._alpha = alpha
        self._limit_s = limit_s
        self._part = part
        self._to_the_end = to_the_end
        self._looked_at = 0.0

    def look(self, pairs: Sequence[Pair], *, elapsed_s: float, next_s: float) -> tuple[MetricComparison, ...] | None:
        """Returns the verdict by the pairs so far. None if the comparison needs more pairs, and has the time for them.

        `next_s` is the time that another pair would take.
        """
        is_counted = all(METRICS[name].is_counted for name in self._tolerances)
        least = 1 if is_counted else RULES.least_pairs
        if len(pairs) < least and elapsed_s + next_s <= RULES.few_pairs_times * self._limit_s + RULES.few_pairs_more_s:
            return None
        last = elapsed_s + next_s > self._limit_s
        cycles = sum(len(pair.base.turns) for pair in pairs)  # 0 if these loads have none
        is_known = len(pairs) >= RULES.known_pairs or not 0 < cycles < RULES.known_cycles
        is_exact = all(METRICS[name].is_counted or METRICS[name].of_start for name in self._tolerances)
        if not (last or is_known or is_exact):
            return None
        at = 1.0 if last else min(elapsed_s / self._limit_s, 0.99)
        share = share_of_looks(self._looked_at, at)
        if share <= 0 and not is_counted:
            return None
        self._looked_at = at
        found = tuple(
            compare_pairs(
                METRICS[name],
                pairs,
                tolerance=tolerance,
                alpha=self._alpha,
                share=self._part * share,
                elapsed_s=elapsed_s,
                next_s=next_s,
            )
            for name, tolerance in self._tolerances.items()
        )
        if not last and (self._to_the_end or not self._is_over(found, pairs, at)):
            return None
        return tuple(map(unless_far_worse, found))

    def _is_over(self, found: Sequence[MetricComparison], pairs: Sequence[Pair], at: float) -> bool:
        """Returns whether a regression is found, or more time would decide nothing."""
        if any(item.outcome is Outcome.REGRESSED for item in found):
            return True
        if all(METRICS[item.metric].is_counted and item.outcome is not Outcome.INCONCLUSIVE for item in found):
            return True
        if len(pairs) < RULES.settled_pairs:
            return False
        # A metric cannot PASS while its figures are worse by more than the tolerance.
        return all(
            is_hopeless(METRICS[item.metric], pairs, tolerance=item.tolerance, alpha=self._alpha, at=at)
            for item in found
            if item.outcome is Outcome.INCONCLUSIVE
            or (item.outcome is not Outcome.WATCHED and agreeing(item, item.now, item.base).is_beyond)
        )
