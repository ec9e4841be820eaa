"""A side's level of one metric on the log scale: one value a boot, and how exactly each boot's value is known.

On the log scale a change is a ratio, whatever the unit, and noise that grows with the level is even.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import mul
from statistics import fmean, median

import numpy as np

from pytest_fileperf.judge.evidence import BootEvidence, Evidence
from pytest_fileperf.measure.histogram import Histogram, step_of
from pytest_fileperf.measure.metrics import Metric

__all__ = (
    "HODGES_LEHMANN_COST",
    "Level",
    "biweight",
    "clustering_of",
    "excess_of",
    "hodges_lehmann",
    "level_of",
    "measured_of",
    "quantile_variance",
    "spread_of",
    "tail_factor",
    "variance_of_location",
)

HODGES_LEHMANN_COST = math.pi / 3
"""Its variance over the mean's for normal data; less than 1 as soon as a few values are far off."""
_NORMAL_PAIR = 0.6744897501960817 * math.sqrt(2)
"""The median absolute difference of two values of a normal distribution, in standard deviations."""
_RANK_ERRORS = 2.0
"""Standard errors of a rank, on either side, at whose values a percentile's interval ends."""
_BIWEIGHT_STEPS, _BIWEIGHT_EXACT = 50, 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One side's level of a metric, in natural logarithms of its SI value."""

    boots: tuple[float, ...]
    """One value a boot; never empty."""
    rounds: tuple[tuple[float, ...], ...]
    """The round values of each of these boots, where a round could tell."""
    sampling: float | None
    """Mean over the boots of the variance that a boot's percentile has from the finite number of its requests, or its
    capacity from that of its loads."""

    @property
    def mean(self) -> float:
        """The side's level: the mean of its boots."""
        return fmean(self.boots)

    @property
    def value(self) -> float:
        """The side's level in the metric's unit."""
        return math.exp(self.mean)


def level_of(metric: Metric, evidence: Evidence) -> Level | None:
    """Returns the level of the metric on one side; None where no boot has a value above 0.

    A percentile comes from the boot's pooled latencies, as single rounds have few requests; a metric of rounds is the
    Hodges–Lehmann estimate of the boot's rounds, as a few rounds are far off; a metric of runs is the boot's own.
    """
    values, rounds, sampling = [], [], []
    for boot in evidence.boots:
        logs = tuple(math.log(of[metric.name]) for of in boot.rounds if of.get(metric.name, 0.0) > 0)
        value = _boot_value(metric, boot, logs)
        if value is None:
            continue
        values.append(value)
        rounds.append(logs)
        if metric.name in boot.variances:
            sampling.append(boot.variances[metric.name])
        elif metric.percentile is not None:
            sampling.append(quantile_variance(boot.latency, metric.percentile))
    if not values:
        return None
    return Level(boots=tuple(values), rounds=tuple(rounds), sampling=fmean(sampling) if sampling else None)


def _boot_value(metric: Metric, boot: BootEvidence, logs: tuple[float, ...]) -> float | None:
    if metric.percentile is not None:
        value_ns = boot.latency.percentile_ns(metric.percentile)
        return math.log(value_ns / 1e9) if value_ns > 0 else None
    if not logs:
        value = boot.runs.get(metric.name, 0.0)
        return math.log(value) if value > 0 else None
    known = [values[metric.name] for values in boot.rounds if metric.name in values]
    # Where a round saw nothing end (few, long requests) its logarithm does not exist; the mean counts it all the same.
    return hodges_lehmann(logs) if len(logs) == len(known) else math.log(fmean(known))


def measured_of(metric: Metric, evidence: Evidence) -> float | None:
    """Returns what was measured of the metric in all, as a report shows it; None where nothing was."""
    if metric.percentile is not None:
        latency = Histogram.merged(boot.latency for boot in evidence.boots)
        return latency.percentile_ns(metric.percentile) / 1e9 if latency.count else None
    found = []
    for boot in evidence.boots:
        rounds = [values.get(metric.name, 0.0) for values in boot.rounds]
        found.append(fmean(rounds) if any(rounds) else boot.runs.get(metric.name))
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def hodges_lehmann(values: Sequence[float]) -> float:
    """Returns the median of the means of all pairs, each value with itself among them.

    Hodges and Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34 (1963) 598–611: nearly as
    exact as the mean for normal values, and not moved far by up to 29 % of values that are far off.
    """
    ordered = sorted(values)
    return median((low + high) / 2 for index, low in enumerate(ordered) for high in ordered[index:])


def biweight(values: Sequence[float]) -> float:
    """Returns Tukey's biweight: a mean that a value counts for the less in, the farther off it is, and at last nothing.

    Mosteller and Tukey, "Data Analysis and Regression" (1977), chapter 10: six median absolute deviations, repeated to
    its fixed point. Nearly as exact as the mean for normal values, and hardly moved by up to half of the values, where
    those far off lie on both sides.
    """
    location = centre = median(values)
    reach = 6 * median(abs(value - centre) for value in values)
    if reach <= 0:
        return centre
    for _ in range(_BIWEIGHT_STEPS):
        weights = [max(0.0, 1 - ((value - location) / reach) ** 2) ** 2 for value in values]
        before, location = location, _mean(values, weights)
        if abs(location - before) < _BIWEIGHT_EXACT * reach:
            break
    return location


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(map(mul, values, weights)) / math.fsum(weights)


def spread_of(levels: Sequence[Level]) -> tuple[float, int] | None:
    """Returns the variance of one round within its boot and its degrees of freedom; None where no boot has two rounds.

    From the median of the absolute differences of all pairs within a boot: far-off rounds hardly move it, and
    it needs no centre, which few rounds would make too good.
    """
    boots = [rounds for level in levels for rounds in level.rounds]
    gaps = [abs(one - other) for rounds in boots for one, other in combinations(rounds, 2)]
    if not gaps:
        return None
    return (median(gaps) / _NORMAL_PAIR) ** 2, sum(len(rounds) - 1 for rounds in boots if rounds)


def variance_of_location(round_variance: float, levels: Sequence[Level]) -> float:
    """Returns the mean variance that the boots' values have from the finite number of their rounds."""
    return fmean(
        HODGES_LEHMANN_COST * round_variance / max(1, len(rounds)) for level in levels for rounds in level.rounds
    )


def quantile_variance(latency: Histogram, percent: float, *, clustering: float = 1.0) -> float:
    """Returns the variance of the logarithm of a sample percentile, from the binomial interval of its rank.

    The number of samples below the true percentile is binomial, so ranks n·q ± 2 sqrt(n·q·(1-q)) hold it with 95 %
    (Hahn and Meeker, "Statistical Intervals", 1991, section 5.2), and a quarter of the distance of their values is the
    deviation. Those of 68 % end before a cliff that chance may well put the percentile on.
    `clustering` is how many requests go together, as those that wait for the same pause do (`clustering_of`); with 1
    they are taken for independent.
    """
    count, share = latency.count, percent / 100
    half = _RANK_ERRORS * math.sqrt(clustering * count * share * (1 - share))
    low, high = (
        latency.percentile_ns(100 * min(max(rank, 1.0), count) / count)
        for rank in (count * share - half, count * share + half)
    )
    return (math.log(max(high, 1) / max(low, 1)) / (2 * _RANK_ERRORS)) ** 2


def excess_of(
    stretches: Sequence[Histogram], percent: float, *, most: Callable[[float], float] | None = None
) -> tuple[float, float]:
    """Returns how much the number of requests beyond a percentile varies between stretches of time: sums of squares.

    The one found, and the one expected if every request were slow by chance of its own. For `clustering_of`. With
    `most`, given the requests of a stretch, no more than so many of them count as slow.
    """
    if not stretches:
        return 0.0, 0.0
    counts = np.array([stretch.count for stretch in stretches], dtype=np.float64)
    (slow,) = step_of(np.array([Histogram.merged(stretches).percentile_ns(percent)]))
    which = np.repeat(np.arange(len(stretches)), [len(stretch.steps) for stretch in stretches])
    beyond = np.concatenate([stretch.counts * (stretch.steps > slow) for stretch in stretches])
    above = np.bincount(which, weights=beyond, minlength=len(stretches))
    if most is not None:
        above = np.minimum(above, [most(stretch.count) for stretch in stretches])
    share = float(above.sum() / max(1.0, counts.sum()))
    return float(((above - share * counts) ** 2).sum()), share * (1 - share) * float(counts.sum())


def clustering_of(excesses: Iterable[tuple[float, float]]) -> float:
    """Returns how many requests beyond a percentile go together, by their excesses on some sides; at least 1.

    The design effect of a share in cluster samples (Woodruff, "Confidence intervals for medians and other position
    measures", J. Am. Stat. Assoc. 47 (1952) 635–646, puts such an interval of the share on the percentile).
    """
    found, expected = (math.fsum(parts) for parts in zip((0.0, 0.0), *excesses, strict=True))
    return max(1.0, found / expected) if expected > 0 else 1.0


def tail_factor(metric: Metric) -> float:
    """Returns how much more a percentile varies than a rate does: its number of nines squared, at least 1.

    p90 and below 1, p95 1.7, p99 4, p99.9 9. A rule of thumb: where p50 varied by 2 to 10 %, p99 did by 12 to 39 %.
    """
    if metric.percentile is None:
        return 1.0
    return float(max(1.0, math.log10(1 - metric.percentile / 100) ** 2))
