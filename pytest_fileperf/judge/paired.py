"""Compares two sides that were loaded in turn, pair of boots by pair of boots, as often as evidence comes in.

Evidence
    Of a rate the mean (`worse`) of what pairs show (`unit`), of a percentile the share of requests that take longer
    (`ranks`): either is how much worse now is, with bounds at any probability of error. Blocks that hang together
    inside (rounds in a boot, requests in a round) need no model of how: only the spread between pairs counts, and
    pairs are drawn independently.
    Either has something judged beside it, for a part of the error: beside a typical rate the total, in which stalls
    are that are too rare to be typical; beside a percentile the slow requests between stalls, as a few stalls in which
    all connections wait at once are most of a percentile's chance.

Sequence
    Error probabilities are spent over the looks at the evidence (Lan and DeMets, "Discrete sequential boundaries for
    clinical trials", Biometrika 70 (1983) 659–663): each look may use its `share` of them, and no more. Adding up
    the shares bounds the error whatever the looks have in common (Bonferroni), so the shares need no model either.

Outcome, with L = log(1 + tolerance) and every bound one-sided and at this look's share of its error
    REGRESSED  the lower bound at the gate's alpha is above 0, and the one at `BOUND_ERROR` above L.
    IMPROVED   the same in the good direction.
    PASS       the estimate is at most L, and its upper bound at `BOUND_ERROR` below 2 L + `CLEAR`.
               Not while what is judged beside it says otherwise: its lower bound at `BOUND_ERROR` is above L; nor is
               a rate IMPROVED then. It may be REGRESSED by that alone; a percentile only if it is itself above L,
               at `CALM_GUARD_ERROR`.
    undecided  otherwise; INCONCLUSIVE once the time is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median

from pytest_fileperf.judge.gate import POWER, STABILISATIONS
from pytest_fileperf.judge.level import tail_factor
from pytest_fileperf.judge.pair import Pair, PairSide
from pytest_fileperf.judge.ranks import worse_by_ranks
from pytest_fileperf.judge.unit import as_share, clustering, unit_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.judge.worse import LEAST_PAIRS, Worse, worse_by_units
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import Direction, Metric
from pytest_fileperf.units import format_share

__all__ = (
    "LOOKS",
    "Told",
    "compare_pairs",
    "is_hopeless",
    "share_of_looks",
    "smallest_seen",
    "time_to_see",
    "told_of",
    "worse_of",
)

BOUND_ERROR = 0.05
"""Probability to take a worsening that is tolerated for one that is not, and the other way round."""
CLEAR = 0.02
"""PASS excludes a worsening of twice the tolerance and this (on the log scale): of 4.1 % with 1 %."""
TOTAL_SHARE = 0.2
"""Part of the gate's alpha that the total has, where there is one; the typical ratio has the rest."""
CALM_SHARE = 0.5
"""Part of the gate's alpha that a percentile between stalls has; that of all requests has the rest."""
CALM_GUARD_ERROR = 0.2
"""Probability to take the percentile of all requests for beyond the tolerance, where those between stalls are worse."""
PAIR_SD_STABILISED = 0.01
"""Usual deviation of the ratio of two boots of the same code with all of `STABILISATIONS`."""
PAIR_SD_PARTLY = 0.035
PAIR_SD_FREE = 0.07
"""With some of them, and with none: √2 times what one boot's level deviates."""

_CLIFF = 1.7
"""Ratio of two latencies close to each other in rank that makes a cliff."""
_STALLS = "the typical turn is not worse, the total over all turns is: it stalls now and then"

LOOKS = ((0.10, 0.10), (0.15, 0.05), (0.20, 0.05), (0.30, 0.10), (0.40, 0.10), (0.55, 0.10), (0.75, 0.15), (1.0, 0.35))
"""When to look at the evidence, as a share of the time there is, and which share of the error that look may use: the
last one most, as small changes can only be seen by then."""


def share_of_looks(before: float, now: float) -> float:
    """Returns the share of the error for a look, by the shares of the time that are over at it and at the last one."""
    ends = list(accumulate(share for _, share in LOOKS))
    reached = [
        next((end for (at, _), end in zip(reversed(LOOKS), reversed(ends), strict=True) if at <= time), 0.0)
        for time in (before, now)
    ]
    return reached[1] - reached[0]


def compare_pairs(
    metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, share: float, last: bool
) -> MetricComparison:
    """Returns the comparison at this look; INCONCLUSIVE without a reason means undecided, unless it is the `last`.

    `alpha` is the gate's level over all looks, `share` the part that this look may use of it.
    """
    base, now = (_level(metric, [getattr(pair, side) for pair in pairs]) for side in ("base", "now"))
    levels = MetricComparison(
        metric=metric.name, outcome=Outcome.INCONCLUSIVE, tolerance=tolerance, base=base, now=now, pairs=len(pairs)
    )
    told = told_of(metric, pairs)
    if told is None:
        return replace(levels, reason=_why_nothing(metric, pairs, base, now) if last else "")
    sign = 1.0 if metric.direction is Direction.LOWER else -1.0
    limit = math.log1p(tolerance)
    outcome, by_beside = _outcome(told, limit, alpha, share)
    # Slow requests between stalls say that a percentile is worse, and not by how much.
    shown = told.beside if by_beside and told.beside is not None and not told.is_calm else told.first
    low, high = sorted(sign * bound for bound in (shown.low(BOUND_ERROR), shown.high(BOUND_ERROR)))
    detectable = _detectable(told, limit, alpha, share)
    if outcome is Outcome.REGRESSED:
        detectable = min(detectable, shown.value)  # what has been seen can be seen
    comparison = replace(
        levels,
        outcome=outcome or Outcome.INCONCLUSIVE,
        change=as_share(sign * shown.value),
        low=as_share(low),
        high=as_share(high),
        confidence=1 - 2 * BOUND_ERROR,
        detectable=as_share(detectable),
        reason=_why_beside(told, limit) if by_beside else "",
    )
    if outcome is None and last:
        return replace(comparison, reason=_why_undecided(metric, told, limit, comparison, pairs))
    return comparison


def is_hopeless(metric: Metric, pairs: Sequence[Pair], *, tolerance: float, alpha: float, at: float) -> bool:
    """Returns whether the rest of the time is unlikely to decide; `at` is the share of it that is over.

    Errors shrink with the square root of the time. Before half of it is over nothing is given up.
    """
    if at < 0.5 or (told := told_of(metric, pairs)) is None:
        return False
    shrunk, limit, share = math.sqrt(at), math.log1p(tolerance), LOOKS[-1][1]
    first = told.first
    passes = (first.high(share * BOUND_ERROR) - first.value) * shrunk < _clear(limit) and not told.vetoes(limit)
    values = (abs(first.value), told.beside.value if told.beside is not None else 0.0)  # what is beside is never better
    return not passes and all(
        value + 2 * worse.error * shrunk < _least_shown(replace(worse, error=worse.error * shrunk), limit, alpha, part)
        for value, (worse, part) in zip(values, told.parts(share), strict=False)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What pairs tell of a metric."""

    first: Worse
    beside: Worse | None
    """What is judged beside it: the total beside a typical rate, and beside a percentile what is between stalls."""
    is_calm: bool
    """Whether `beside` is between stalls."""

    def parts(self, share: float) -> list[tuple[Worse, float]]:
        """Returns `first`, and `beside` if there is one, each with its part of this share of the error."""
        if self.beside is None:
            return [(self.first, share)]
        beside = CALM_SHARE if self.is_calm else TOTAL_SHARE
        return [(self.first, (1.0 - beside) * share), (self.beside, beside * share)]

    def vetoes(self, limit: float) -> bool:
        """Returns whether what is judged beside speaks against a PASS."""
        return self.beside is not None and self.beside.is_above(limit, BOUND_ERROR)


def told_of(metric: Metric, pairs: Sequence[Pair]) -> Told | None:
    """Returns what the pairs tell; None where it is too little."""
    if (first := worse_of(metric, pairs)) is None:
        return None
    return Told(first=first, beside=worse_of(metric, pairs, beside=True), is_calm=metric.percentile is not None)


def worse_of(metric: Metric, pairs: Sequence[Pair], *, beside: bool = False) -> Worse | None:
    """Returns how much worse now is; None where too little tells.

    With `beside` by what is judged beside a typical rate, the total, or beside a percentile, what is between stalls.
    """
    if metric.percentile is not None:
        usual = _pair_sd(pairs) * tail_factor(metric)
        return worse_by_ranks(metric, pairs, usual=usual, error=BOUND_ERROR, calm=beside)
    units = [unit for pair in pairs if (unit := unit_of(metric, [pair], total=beside)) is not None]
    if len(units) < LEAST_PAIRS:
        return None
    return worse_by_units(
        units,
        usual=_pair_sd(pairs),
        boots_anew=all(pair.base_boots_anew for pair in pairs),
        robust=not beside and any(metric.name in turn for pair in pairs for turn in pair.base.turns),
    )


def _level(metric: Metric, sides: Sequence[PairSide]) -> float | None:
    """Returns a side's typical value in the metric's unit: of all latencies, or the median of all turns."""
    if metric.percentile is not None:
        latency = Histogram.merged(side.latency for side in sides)
        return latency.percentile_ns(metric.percentile) / 1e9 if latency.count else None
    turns = [level for side in sides for level in side.levels(metric.name)]
    if any(turns):
        return median(turns)
    runs = [side.runs[metric.name] for side in sides if metric.name in side.runs]
    return median(runs) if runs else None


def _pair_sd(pairs: Sequence[Pair]) -> float:
    held = frozenset.intersection(*(frozenset(pair.stabilised) for pair in pairs))
    if held >= STABILISATIONS:
        return PAIR_SD_STABILISED
    return PAIR_SD_PARTLY if held & STABILISATIONS else PAIR_SD_FREE


def _outcome(told: Told, limit: float, alpha: float, share: float) -> tuple[Outcome | None, bool]:
    """Returns the outcome, None where it is undecided, and whether what is judged beside decided it."""
    first, *beside = (
        worse.is_above(0.0, part * alpha) and worse.is_above(limit, part * BOUND_ERROR)
        for worse, part in told.parts(share)
    )
    if first:
        return Outcome.REGRESSED, False
    # Requests between stalls make a percentile no worse as long as there are fewer stalls for it.
    if any(beside) and (not told.is_calm or told.first.is_above(limit, CALM_GUARD_ERROR)):
        return Outcome.REGRESSED, True
    good, vetoed = _good(told.first, limit, alpha, share), told.vetoes(limit)
    return (None if vetoed and (good is Outcome.PASS or not told.is_calm) else good), False


def _good(worse: Worse, limit: float, alpha: float, share: float) -> Outcome | None:
    if worse.is_below(0.0, share * alpha) and worse.is_below(-limit, share * BOUND_ERROR):
        return Outcome.IMPROVED
    if worse.value <= limit and worse.is_below(_clear(limit), share * BOUND_ERROR):
        return Outcome.PASS
    return None


def _clear(limit: float) -> float:
    """Returns the log ratio that a PASS excludes."""
    return 2 * limit + CLEAR


def _least_shown(worse: Worse, limit: float, alpha: float, share: float) -> float:
    """Returns the least observed worsening that is REGRESSED at this look."""
    return max(worse.margin(share * alpha), limit + worse.margin(share * BOUND_ERROR))


def _detectable(told: Told, limit: float, alpha: float, share: float) -> float:
    """Returns the true worsening that this look would call REGRESSED with probability `POWER`."""
    seen = [_least_shown(worse, limit, alpha, part) + worse.margin(1 - POWER) for worse, part in told.parts(share)]
    if not told.is_calm or len(seen) < 2:
        return seen[0]
    guard = limit + told.first.margin(CALM_GUARD_ERROR) + told.first.margin(1 - POWER)
    return min(seen[0], max(seen[1], guard))


def smallest_seen(told: Told, limit: float, alpha: float) -> float:
    """Returns the true worsening, as a log ratio, that the last look would call REGRESSED with probability `POWER`."""
    return _detectable(told, limit, alpha, LOOKS[-1][1])


def time_to_see(told: Told, change: float, limit: float, alpha: float) -> float:
    """Returns how many times the time that this evidence took is needed to see a change (a log ratio)."""
    needed = [
        max(
            (worse.margin(part * alpha) + worse.margin(1 - POWER)) / change,
            (worse.margin(part * BOUND_ERROR) + worse.margin(1 - POWER)) / (change - limit),
        )
        for worse, part in told.parts(LOOKS[-1][1])
    ]
    if not told.is_calm or len(needed) < 2:
        return needed[0] ** 2
    guard = (told.first.margin(CALM_GUARD_ERROR) + told.first.margin(1 - POWER)) / (change - limit)
    return min(needed[0], max(needed[1], guard)) ** 2


def _why_nothing(metric: Metric, pairs: Sequence[Pair], base: float | None, now: float | None) -> str:
    for whose, value in (("the base", base), ("this side", now)):
        if not value:
            return f"{metric.title} was 0 or not measured on {whose}, and a change from or to 0 has no ratio"
    counts = [(pair.base.latency.count, pair.now.latency.count) for pair in pairs]
    if metric.percentile is None:
        told = sum(unit_of(metric, [pair], total=False) is not None for pair in pairs)
    else:
        told = sum(min(requests) > 0 for requests in counts)
    if metric.percentile is not None and told >= LEAST_PAIRS:
        requests, needed = min(map(sum, zip(*counts, strict=True))), LEAST_PAIRS * metric.least_requests
        few = f"{metric.title} needs {needed} requests a side, and there were {requests}"
        bunched = (
            f"{metric.title} cannot be told of {requests} requests a side, as"
            f" {clustering(pairs, metric.percentile):.2g} slow ones come together"
        )
        return f"{few if requests < needed else bunched}: give it a longer max_duration, or gate a lower percentile"
    return (
        f"it takes {LEAST_PAIRS} pairs of boots with answers on both sides, and there were {told}: give it a longer"
        " max_duration"
    )


def _why_beside(told: Told, limit: float) -> str:
    """Returns why it is REGRESSED, where what is judged first does not show it."""
    if told.is_calm and told.beside is not None:
        least = format_share(as_share(told.beside.low(BOUND_ERROR)))
        return f"shown by the requests that do not wait together with many others: worse by at least {least}"
    return _STALLS if told.first.value <= limit else ""


def _why_undecided(
    metric: Metric, told: Told, limit: float, comparison: MetricComparison, pairs: Sequence[Pair]
) -> str:
    if told.beside is not None and told.vetoes(limit):
        by = format_share(as_share(told.beside.value))
        if told.is_calm:
            what = f"not shown to be worse, but requests that do not wait together with many others may be, by {by}"
        else:
            what = f"the typical turn is not worse, but the total over all turns may be, by {by}"
    elif told.first.value > limit:
        what = f"may be worse by more than {format_share(comparison.tolerance)}, but the noise hides it"
    else:
        seen = format_share(comparison.detectable or 0.0)
        what = f"only a worsening of {seen} could have been seen in the time there was"
    return f"{what}: {_cliff(metric, pairs) or 'give it a longer max_duration, or a quieter machine'}"


def _cliff(metric: Metric, pairs: Sequence[Pair]) -> str:
    """Returns what to do about a percentile at which latency jumps, as at the share of requests that a pause hits."""
    if metric.percentile is None:
        return ""
    beside = (100 - metric.percentile) / 2
    latency = Histogram.merged(pair.base.latency for pair in pairs)
    low, high = (latency.percentile_ns(metric.percentile + side * beside) / 1e6 for side in (-1, 1))
    if low <= 0 or high / low < _CLIFF:
        return ""
    return (
        f"latency jumps there, from {low:.3g} ms at p{metric.percentile - beside:g} to {high:.3g} ms at "
        f"p{metric.percentile + beside:g}, and chance decides on which side it is: gate a percentile beside it"
    )
