"""How much worse a latency percentile is than base's, by the share of requests that take longer.

For any ratio r, the share of now's requests that take longer than r times base's percentile is compared with the share
of base's that take longer than the percentile itself, in each pair of boots. The r at which the two cannot be told
apart are the interval (Woodruff, "Confidence intervals for medians and other position measures", J. Am. Stat. Assoc. 47
(1952) 635–646, for two samples in pairs). A share is as exact where latency jumps at the percentile, as at the part of
the requests that a pause hits, as anywhere; a percentile's value is chance there, and an interval around it is as wide
as the jump.

*Between stalls* fewer slow requests count: in a stretch of time, a turn, no more of them than chance has. A stall makes
all connections wait at once, so thousands of requests hold only a few stalls, and a percentile is as uncertain as their
number. That single requests take longer shows with a fraction of the load.

What is expected of the shares in a pair: binomial, times how many slow requests come together (`clustering`), and what
the usual difference of two boots moves across the percentile. What the pairs show is moderated with that by
`Rules.ranks_prior_df` degrees of freedom, and may be less: pauses at equal distances differ less than by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.difference import Difference, moderated, standard_errors
from pytest_fileperf.judge.evidence import Pair, boots_of, sides_of
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.unit import clustering, grouped
from pytest_fileperf.measure.histogram import Histogram, middle_of
from pytest_fileperf.measure.metrics import Metric

_STEPS = 1000
"""Of a log ratio of 1: a latency is known to a thousandth."""
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_NODE_WEIGHTS /= _NODE_WEIGHTS.sum()
"""A normal distribution, in seven points."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RankDifference(Difference):
    """Its `error` is that of the lower bound, which a worsening is shown by; the upper one may be farther off."""

    first: int
    """The least ratio to base's percentile, in steps; the next ones follow step by step."""
    beyond: NDArray[np.float64]
    """For each ratio by how much more of now's requests take longer than that, than of base's than its percentile."""
    beyond_error: NDArray[np.float64]

    def low(self, error: float) -> float:
        """Returns the ratio below which more of now's requests are slow than can be chance."""
        return (self.first + int(np.argmin(self._slower(error)))) / _STEPS

    def high(self, error: float) -> float:
        """Returns the ratio above which fewer of them are; infinite where there are too few requests to tell."""
        above = int(np.argmin(self._faster(error)[::-1]))
        return (self.first + self.beyond.size - above) / _STEPS if above else math.inf

    def is_above(self, limit: float, error: float) -> bool:
        return bool(self._slower(error)[self._at(limit)])

    def is_below(self, limit: float, error: float) -> bool:
        return bool(self._faster(error)[self._at(limit)])

    def _slower(self, error: float) -> NDArray[np.bool_]:
        return self.beyond > standard_errors(error, self.df) * self.beyond_error

    def _faster(self, error: float) -> NDArray[np.bool_]:
        return self.beyond < -standard_errors(error, self.df) * self.beyond_error

    def _at(self, limit: float) -> int:
        return min(max(0, math.floor(limit * _STEPS) - self.first), self.beyond.size - 1)


def difference_by_ranks(
    metric: Metric, pairs: Sequence[Pair], *, usual: float, calm: bool = False
) -> Difference | None:
    """Returns None where too few requests are slow to bound it.

    `usual` is by how much the percentiles of two boots differ, as a log ratio. With `calm` only the slow requests
    between stalls count; None too where there are no stretches of time.
    """
    pairs = [pair for pair in pairs if pair.base.latency.count and pair.now.latency.count]
    requests = [sum(side.latency.count for side in own) for own in sides_of(pairs)]
    if len(pairs) < RULES.least_pairs or min(requests) < RULES.least_pairs * metric.least_requests:
        return None
    if calm and not all(boot.stretches for boot in boots_of(pairs)):
        return None
    base, tails, together = _shares_of(metric, pairs, calm=calm)
    # Two boots usually lie apart by a normal distribution, in steps.
    shifts = np.rint(usual * _STEPS * _NODES).astype(np.int64)
    ratios = np.arange(
        min(tail.first for tail in tails) + shifts.min(), max(tail.last for tail in tails) + shifts.max() + 1
    )
    now = np.array([tail.above(ratios) for tail in tails])
    counts = _counts(pairs)
    weights = _weights(counts)
    mean_base, mean_now = float(weights @ base), weights @ now
    binomial, moved = _variances(mean_base, mean_now, weights**2 / counts, shifts)
    deviations = now - base[:, None] - (mean_now - mean_base)
    variance = moderated(
        weights.size * (weights**2 @ (deviations * deviations)),
        weights.size - 1,
        usual=together * binomial + (weights**2).sum() * moved,
        weight=RULES.ranks_prior_df,
    )
    # The luck of a boot that all pairs have in common is in each of them alike: no number of pairs averages it out.
    common = 0.0 if all(pair.base_boots_anew for pair in pairs) else moved / 2
    beyond, beyond_error = np.asarray(mean_now - mean_base), np.sqrt(variance + common)
    first, df = int(ratios[0]), RULES.ranks_prior_df + len(pairs) - 1
    worse, margin = (first + int(np.argmax(beyond <= 0))) / _STEPS, standard_errors(RULES.bound_error, df)
    low = (first + int(np.argmin(beyond > margin * beyond_error))) / _STEPS
    error = max(0.0, worse - low) / margin
    found = _RankDifference(worse=worse, error=error, df=df, first=first, beyond=beyond, beyond_error=beyond_error)
    return found if math.isfinite(found.high(RULES.bound_error)) else None


# --- shares of slow requests; columns are ratios to base's percentile


def _variances(
    base: float, now: NDArray[np.float64], parts: NDArray[np.float64], shifts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the variance of the difference of shares by chance, and that which two boots give to a pair's share.

    `base` and `now` are the mean shares, `parts` what each pair's chance has in them: squares of weights over requests.
    """
    of_base, of_now = parts.sum(axis=1)
    places = np.arange(now.size) + shifts[:, None]
    at = now[np.minimum(np.maximum(places, 0), now.size - 1)]
    moved = np.asarray(_NODE_WEIGHTS @ (at - _NODE_WEIGHTS @ at) ** 2)
    return base * (1 - base) * of_base + now * (1 - now) * of_now, moved


def _shares_of(metric: Metric, pairs: Sequence[Pair], *, calm: bool) -> tuple[NDArray[np.float64], list[_Tail], float]:
    """Returns the shares above base's percentile, by pairs, now's by their ratio to it, and how many come together.

    Some neighbouring pairs have one percentile in common. As many of other requests lie above the percentile of a
    sample as above the middle between it and the next one.
    """
    assert metric.percentile is not None
    reach, together = 1 - metric.percentile / 100, clustering(pairs, metric.percentile)
    groups = grouped(pairs, RULES.ranks_group * metric.least_requests * together) or [list(pairs)]
    most = partial(RULES.most_by_chance, reach) if calm else None
    if most is not None:
        together = clustering(pairs, metric.percentile, most=most)
    base_shares, tails = [], []
    for group in groups:
        sides = [_tails(pair) for pair in group]
        at, part = _percentile([base for base, _ in sides], _weights(_counts(group)), reach)
        between = together / 2 / sum(pair.base.latency.count for pair in group)
        for base, now in sides if most is None else [_tails(pair, most) for pair in group]:
            above, with_it = base.above(np.array([at, at - 1]))
            base_shares.append(above + part * (with_it - above) + between)
            tails.append(_Tail(first=now.first - at, shares=now.shares))
    return np.array(base_shares), tails, together


def _counts(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Returns the requests of base and of now; a column for each pair."""
    return np.array([[side.latency.count for side in own] for own in sides_of(pairs)], dtype=float)


def _weights(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns how much each pair tells: as much as its requests, by their harmonic mean. The sum is 1."""
    weights = 1 / (1 / counts).sum(axis=0)
    return np.asarray(weights / weights.sum())


def _percentile(sides: Sequence[_Tail], weights: NDArray[np.float64], reach: float) -> tuple[int, float]:
    """Returns the step that a share `reach` of the weighted requests lies above, and which part of those at it counts.

    Many requests may lie at it: of those, as many count as lying above as make up the share.
    """
    steps = np.arange(min(side.first for side in sides), max(side.last for side in sides) + 1)
    shares = weights @ np.array([side.above(steps) for side in sides])
    at = int(np.argmax(shares <= reach + 1e-9))  # shares are rounded
    above, with_it = shares[at], shares[at - 1]
    return int(steps[at]), float(np.clip((reach - above) / (with_it - above), 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tail:
    """One side of a pair: which share of its requests took longer than each step.

    Steps are of a log ratio to what a request took in this pair, whichever the side. So a pair in which the machine was
    slow has its own measure, the same for both sides.
    """

    first: int
    """The step than which all requests take longer."""
    shares: NDArray[np.float64]
    """Above `first` and each step after it; of all requests that count at first, of none at last."""

    @property
    def last(self) -> int:
        """The step than which no request takes longer."""
        return self.first + self.shares.size - 1

    def above(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the share of the requests above each step."""
        return np.asarray(self.shares[np.minimum(np.maximum(steps - self.first, 0), self.shares.size - 1)])


def _tails(pair: Pair, most: Callable[[float], float] | None = None) -> tuple[_Tail, _Tail]:
    """Returns base and now; with `most`, given the requests of a stretch, no more than so many of them count."""
    sides = [pair.base, pair.now]
    logs = [_STEPS * np.log(np.maximum(middle_of(side.latency.steps), 1.0)) for side in sides]
    pace = sum(float(log @ side.latency.counts) / side.latency.count for log, side in zip(logs, sides, strict=True)) / 2
    tails = []
    for log, side in zip(logs, sides, strict=True):
        steps = np.rint(log - pace).astype(np.int64)
        first = int(steps[0]) - 1
        beyond = _beyond(side.latency, side.stretches if most else [], most)
        tails.append(_Tail(first=first, shares=beyond[np.bincount(steps - first).cumsum()]))
    return tails[0], tails[1]


def _beyond(
    latency: Histogram, stretches: Sequence[Histogram], most: Callable[[float], float] | None
) -> NDArray[np.float64]:
    """Returns the share of the requests beyond the first so many of all steps, of each stretch no more than `most`."""
    if most is None:
        return np.asarray(np.append(latency.counts[::-1].cumsum()[::-1], 0) / latency.count)
    steps, counts = zip(*(stretch.held.arrays() for stretch in stretches), strict=True)
    rows = np.repeat(np.arange(len(stretches)), [own.size for own in steps])
    columns = np.searchsorted(latency.steps, np.concatenate(steps))
    hit = np.zeros((len(stretches), len(latency.steps) + 1))
    hit[rows, columns] = np.concatenate(counts)
    beyond = np.minimum(hit[:, ::-1].cumsum(axis=1)[:, ::-1], [[most(stretch.count)] for stretch in stretches])
    return np.asarray(beyond.sum(axis=0) / max(1, sum(stretch.count for stretch in stretches)))
