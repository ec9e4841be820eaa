"""How much worse the new version is by single pairs, and how certain that is.

A *pair* is a new start-up of each version, loaded alternately for some seconds. Its value d is how much worse the new
version is, as a log ratio. Its v is the variance of d.

rates        A turn is a short load of one version. A cycle has a turn of each version, a tenth of a second apart at
             most. d is the biweight of the cycles' log ratios: the *typical* ratio. v comes from the cycles' median
             deviation. So a longer slow moment of the machine hits both turns, and a shorter one makes an outlier. With
             few cycles, d is the Hodges–Lehmann estimate. With very few, v is their variance: two may be close by
             chance.
             A turn's rate comes from the median time in which as many answers came as there are connections. So a
             stall within the turn does not affect it. Few answers count by the time that they took, because chance
             decides how many end in the turn. If most turns have no such rate, counts decide.
             The *total* over all turns is judged in addition. It includes all stalls, even rare ones.
percentiles  d comes from the pooled latencies of each version. v comes from the binomial interval of the percentile's
             rank. This is wider if slow requests come together, because a pause hits all connections at once. If a pair
             has too few requests, neighbouring pairs make one unit. All this is for charts: `ranks` judges percentiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median, stdev, variance

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.difference import Difference, moderated
from pytest_fileperf.judge.evidence import (
    HODGES_LEHMANN_COST,
    Pair,
    biweight,
    boots_of,
    clustering_of,
    excess_of,
    hodges_lehmann,
    quantile_variance,
    sides_of,
)
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import Metric
from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.measure.usage import busy_of
from pytest_fileperf.units import as_share


@dataclass(frozen=True, slots=True, kw_only=True)
class PairValue:
    """How much worse the new version is, as a log ratio, by one pair of start-ups or several together."""

    value: float
    variance: float
    """Variance of `value`, from within the pair's start-ups."""
    cycles: int = 0
    """Number of cycles behind `variance`; 0 if it does not come from cycles. A cycle loads each version once."""

    def changes(self, metric: Metric) -> tuple[float, float, float]:
        """Returns the metric's change and the two ends of its 90 % interval, as shares.

        The interval leaves out the differences between start-ups.
        """
        # 1.6449 deviations on each side contain 90 % of a normal distribution.
        ratio, margin = metric.worse_sign * self.value, 1.6449 * math.sqrt(self.variance)
        return as_share(ratio), as_share(ratio - margin), as_share(ratio + margin)


def units_of(metric: Metric, pairs: Sequence[Pair]) -> list[tuple[list[Pair], PairValue | None]]:
    """Returns each pair with its value. For a percentile, returns groups of neighbouring pairs with enough requests.

    The value is None if the metric is not above 0 in the old or the new version.
    """
    if metric.percentile is None:
        return [([pair], unit_of(metric, pair, total=False)) for pair in pairs]
    # Requests that are slow together say as much as one.
    groups = grouped(pairs, metric.least_requests * clustering(pairs, metric.percentile))
    return [(group, _of_percentile(metric, metric.percentile, group)) for group in groups]


def grouped(pairs: Sequence[Pair], least: float) -> list[list[Pair]]:
    """Groups neighbouring pairs, until each group has at least `least` requests of both versions.

    Empty if all pairs together have fewer.
    """
    groups: list[list[Pair]] = []
    group: list[Pair] = []
    for pair in pairs:
        group = [*group, pair]
        if min(sum(one.base.latency.count for one in group), sum(one.now.latency.count for one in group)) >= least:
            groups.append(group)
            group = []
    if group and groups:
        groups[-1] += group
    return groups


def clustering(pairs: Sequence[Pair], percent: float, *, most: Callable[[float], float] | None = None) -> float:
    """Returns how many slow requests come together, for example in a stall. For `most` see `excess_of`.

    Reason for this number: 1,000 simulated tests of the same code with stalls. If slow requests counted one by one, p99
    was REGRESSED in 3 of them and IMPROVED in 2. With this number, it was in none.
    """
    return clustering_of(excess_of(boot.stretches, percent, most=most) for boot in boots_of(pairs))


def _of_percentile(metric: Metric, percent: float, pairs: Sequence[Pair]) -> PairValue:
    base, now = (Histogram.merged(side.latency for side in own) for own in sides_of(pairs))
    together = clustering(pairs, percent)
    variance = sum(quantile_variance(side, percent, clustering=together) for side in (base, now))
    ratio = math.log(now.percentile_ns(percent) / base.percentile_ns(percent))
    return PairValue(value=metric.worse_sign * ratio, variance=variance)


def unit_of(metric: Metric, pair: Pair, *, total: bool) -> PairValue | None:
    """Returns how much worse a pair's new version is in typical moments, or with `total` over the whole load.

    None if a version has no value above 0. Not for percentiles.
    """
    cycles = _cycles(metric.name, pair.base.turns, pair.now.turns)
    if not cycles or not all(map(sum, zip(*cycles, strict=True))):
        return None if total and not cycles else _of_runs(metric, pair)
    typical = [] if total else _cycles(metric.name, pair.base.typical, pair.now.typical)
    # Counts decide if fewer than half of the cycles, or only one of several, have a typical pace.
    if len(typical) == len(cycles) or (len(typical) > 1 and 2 * len(typical) >= len(cycles)):
        cycles = typical
    ratio, variance = _of_total(cycles) if total or len(cycles) == 1 else _of_cycles(cycles)
    return PairValue(value=metric.worse_sign * ratio, variance=variance, cycles=len(cycles))


def _of_runs(metric: Metric, pair: Pair) -> PairValue | None:
    base, now = (side.runs.get(metric.name, 0.0) for side in (pair.base, pair.now))
    uncertain = sum(side.variances.get(metric.name, 0.0) for side in (pair.base, pair.now))
    if min(base, now) <= 0:
        return None
    # Only other start-ups show the uncertainty of a start-up.
    cycles = 1 if metric.of_start else 0
    return PairValue(value=metric.worse_sign * math.log(now / base), variance=uncertain, cycles=cycles)


def _of_total(cycles: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the log ratio of the new mean to the old mean over all cycles, and its variance."""
    base, now = (math.fsum(values) / len(values) for values in zip(*cycles, strict=True))
    if len(cycles) < 2:
        return math.log(now / base), 0.0
    # A slow moment of a whole cycle slows both of its turns, and does not make their ratio uncertain.
    deviations = [of_now / now - of_base / base for of_base, of_now in cycles]
    squares = math.fsum(deviation * deviation for deviation in deviations)
    return math.log(now / base), squares / (len(cycles) - 1) / len(cycles)


def _of_cycles(cycles: Sequence[tuple[float, float]]) -> tuple[float, float]:
    # For a turn in which nothing ended: half of the least other value, because a logarithm needs one.
    least = [min(value for value in values if value > 0) / 2 for values in zip(*cycles, strict=True)]
    ratios = [math.log((now or least[1]) / (base or least[0])) for base, now in cycles]
    middle = median(ratios)
    squared = (1.4826 * median(abs(ratio - middle) for ratio in ratios)) ** 2
    if len(ratios) >= RULES.few_cycles:
        return biweight(ratios), 1.1 * squared / len(ratios)  # 1.1 times the mean's variance, for normal values
    if len(ratios) < RULES.deviation_cycles:
        squared = variance(ratios)
    return hodges_lehmann(ratios), HODGES_LEHMANN_COST * squared / len(ratios)


def _cycles(
    name: str, base: Sequence[Mapping[str, float]], now: Sequence[Mapping[str, float]]
) -> list[tuple[float, float]]:
    both = zip(base, now, strict=True)
    return [(of_base[name], of_now[name]) for of_base, of_now in both if name in of_base and name in of_now]


# --- How much worse the new version is by the values of pairs, and how certain that is
#
# Mean of the units
#     Weighted by 1 / (τ² + v): τ is the usual difference of two start-ups of the same code, v the uncertainty of a
#     unit. So pairs from a bad moment count less. If a pair's cycles give v, it is moderated by the comparison's usual
#     v, because a few cycles that happen to agree do not make a pair exact. If the units differ by more than their
#     weights say, the error of the mean grows by the ratio (Birge, "The calculation of errors by the method of least
#     squares", Phys. Rev. 40 (1932) 207–227). The ratio is moderated by `Rules.pair_prior_df` degrees of freedom,
#     because three pairs say little about their spread, and it is never below 1.
#
# Pairs of one or two cycles
#     Slow requests, or loads that are made as a whole, do not give v. Such pairs have their own spread: hardly
#     moderated while it is no more than start-ups differ by, and not at all beyond.


def mean_difference(units: Sequence[PairValue], *, usual: float, boots_anew: bool) -> Difference:
    """Returns the mean of the units with its error.

    `usual` is the usual deviation between two start-ups, as a log ratio. `boots_anew` is False if all pairs share the
    old version's start-up.
    """
    from scipy.special import chdtri

    values, cycles = np.array([unit.value for unit in units]), [unit.cycles for unit in units]
    # Some units have too few cycles, and fewer than two have enough to show the usual spread.
    alone = any(0 < count < RULES.least_cycles for count in cycles)
    alone = alone and sum(count >= RULES.least_cycles for count in cycles) < 2
    weights = 1 / (usual**2 + (np.zeros(len(units)) if alone else _moderated(units)))
    worse = float(np.average(values, weights=weights))
    squares, df = float(weights @ (values - worse) ** 2), len(units) - 1
    prior = RULES.pair_prior_df
    if alone:  # the usual loses its weight if they deviate by more than half of all such units would
        prior = RULES.alone_prior_df if squares <= float(chdtri(df, 0.5)) else 0
    birge = max(1.0, moderated(squares, df, usual=1.0, weight=prior))
    # If all pairs share a start-up, each of them has its luck, and more pairs do not average it out.
    common = 0.0 if boots_anew else usual**2 / 2
    return Difference(worse=worse, error=math.sqrt(birge / weights.sum() + common), df=prior + df)


def _moderated(units: Sequence[PairValue]) -> NDArray[np.float64]:
    """Returns the units' variances, each drawn towards their usual variance per cycle (`Rules.prior_cycles`)."""
    variances, cycles = (np.array([getattr(unit, name) for unit in units]) for name in ("variance", "cycles"))
    enough, known = cycles >= RULES.least_cycles, cycles > 0
    if enough.any():
        usual = float(np.median((variances * cycles)[enough]))
        many, own = cycles[known], variances[known]
        variances[known] = (RULES.prior_cycles * usual / many + many * own) / (RULES.prior_cycles + many)
    return variances


# --- Start-ups that get slower, or faster, one after another: then their mean describes none of them
#
# A trend has an order without exception, and steps of about one size. The change must exceed the differences between
# start-ups of the same code, and between their own rounds. On a quiet or noisy machine at most 0.5 % of unchanged code
# has such an order (`tests/judge/test_unit.py`).


def trend_of(recording: Recording, beside: Recording | None = None) -> tuple[float, ...]:
    """Returns a value for each start-up if start-ups get steadily slower or faster. Empty without such a trend.

    Values are requests/s, or latencies in seconds if the load has a fixed rate. `beside` is the other version. If its
    start-ups differ as much without a trend, the order may be chance.
    """
    values = _values_of(recording)
    if len(values) < 3 or not all(values):
        return ()
    levels = [fmean(map(math.log, own)) for own in values]
    # A few rounds of one start-up may agree by chance.
    deviations = [stdev(map(math.log, own)) if len(own) > 1 else 0.0 for own in values]
    usual = max(RULES.course_round_sd, median(deviations))
    errors = [max(usual, own) / math.sqrt(len(each)) for own, each in zip(deviations, values, strict=True)]
    if not _is_trend(levels, errors):
        return ()
    if beside is not None and not trend_of(beside):
        others = [fmean(map(math.log, own)) for own in _values_of(beside) if own]
        if others and max(others) - min(others) > RULES.course_chance * abs(levels[-1] - levels[0]):
            return ()
    return tuple(map(math.exp, levels))


def _values_of(recording: Recording) -> list[list[float]]:
    return [
        [
            value
            for round_ in recording.of_boot(boot).rounds
            if (value := _value(round_, recording.open_loop)) is not None
        ]
        for boot in recording.boots
    ]


def may_be_machine(recording: Recording, levels: Sequence[float]) -> bool:
    """Returns whether the machine may be the cause of a trend. `levels` has a value for each start-up.

    True if other programs were busy or CPU time per request changed with the trend, or if either is unknown.
    """
    if not any(boot.samples for boot in recording.boots) or busy_of(recording).is_busy:
        return True
    costs = []
    for boot in (recording.boots[0], recording.boots[-1]):
        rounds = recording.of_boot(boot).rounds
        known = [(round_.server_cpu_ns, round_.requests) for round_ in rounds if round_.server_cpu_ns is not None]
        cpu, requests = (sum(values) for values in zip(*known, strict=True)) if known else (0, 0)
        if not cpu or not requests:
            return True
        costs.append(cpu / requests)
    return abs(math.log(costs[1] / costs[0])) > RULES.course_cpu * abs(math.log(levels[-1] / levels[0]))


def _value(round_: Round, open_loop: bool) -> float | None:
    if round_.phase is not Phase.ROUND or not round_.requests or round_.duration_ns <= 0:
        return None
    return round_.latency.mean_ns() / 1e9 if open_loop else round_.requests / (round_.duration_ns / 1e9)


def _is_trend(levels: Sequence[float], errors: Sequence[float]) -> bool:
    total, steps = levels[-1] - levels[0], [after - before for before, after in pairwise(levels)]
    if abs(total) < RULES.course_totals[min(len(levels), 5) - 3]:
        return False
    least, sign = RULES.course_step * abs(total) / len(steps), math.copysign(1, total)
    return all(
        sign * step >= max(least, RULES.course_errors * math.hypot(*both))
        for step, both in zip(steps, pairwise(errors), strict=True)
    )
