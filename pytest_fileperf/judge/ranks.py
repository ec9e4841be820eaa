"""How much worse a latency percentile is than the old version's, by the share of requests that take longer.

An example: the old p99 is 10 ms, so 1 % of the old requests take longer. If 1 % of the new requests take longer than 12
ms, the ratio is 1.2. For any ratio r, two shares are compared in each pair. One is the share of new requests that take
longer than r times the old percentile. The other is the share of old requests that take longer than the percentile. The
interval has the ratios r without a clear difference, as in Woodruff, for two samples in pairs. ("Confidence intervals
for medians and other position measures", J. Am. Stat. Assoc. 47 (1952) 635–646.)

Latency may jump at the percentile, for example if a pause hits just that share of the requests. Then chance decides the
percentile's value. But shares are as exact there as elsewhere.

*Between stalls* means that each slice of the load counts at most as many slow requests as chance explains. A stall
makes all connections wait at once. So thousands of requests contain only a few stalls, and a percentile is as uncertain
as their number. If stalls are left out, a shorter load shows that single requests got slower.

The expected spread of shares between pairs is binomial, times the number of slow requests that come together
(`clustering`). The usual difference of two start-ups adds to it. The observed spread may be smaller, because pauses at
equal distances differ less than by chance. So both are mixed (`Rules.ranks_prior_df`).
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
"""Steps in a log ratio of 1. Latencies and their ratios are whole numbers of such steps."""
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_NODE_WEIGHTS /= _NODE_WEIGHTS.sum()
"""Seven points and their weights, which stand for a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RankDifference(Difference):
    """How much worse a percentile is, with bounds from the share of requests that take longer.

    `error` belongs to the lower bound. The upper bound may be farther from `worse`.
    """

    first: int
    """Logarithm of the first ratio in `beyond`, in steps (`_STEPS`). Each next ratio is one step greater."""
    beyond: NDArray[np.float64]
    """For each ratio: the share of new requests above the ratio, minus the share of old requests above 1. Both are in
    multiples of the old percentile."""
    beyond_error: NDArray[np.float64]
    """The standard error of each value in `beyond`."""

    def low(self, error: float) -> float:
        """Returns the lower bound, as a log ratio. More new requests exceed each smaller ratio than chance allows."""
        return (self.first + int(np.argmin(self._slower(error)))) / _STEPS

    def high(self, error: float) -> float:
        """Returns the upper bound, as a log ratio. Infinite with too few requests to tell.

        Fewer new requests exceed each greater ratio than chance allows.
        """
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
    """Returns how much worse the percentile is. None if pairs or slow requests are too few to tell.

    `usual` is how much the percentile usually differs between two start-ups: a standard deviation, as a log ratio. With
    `calm`, only slow requests between stalls count.
    """
    pairs = [pair for pair in pairs if pair.base.latency.count and pair.now.latency.count]
    requests = [sum(side.latency.count for side in own) for own in sides_of(pairs)]
    if len(pairs) < RULES.least_pairs or min(requests) < RULES.least_pairs * metric.least_requests:
        return None
    if calm and not all(boot.stretches for boot in boots_of(pairs)):
        return None
    base, tails, together = _shares_of(metric, pairs, calm=calm)
    # The usual difference of two start-ups is a normal distribution, in steps.
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
    # If all pairs share a start-up, each of them has its luck, and more pairs do not average it out.
    common = 0.0 if all(pair.base_boots_anew for pair in pairs) else moved / 2
    beyond, beyond_error = np.asarray(mean_now - mean_base), np.sqrt(variance + common)
    first, df = int(ratios[0]), RULES.ranks_prior_df + len(pairs) - 1
    worse, margin = (first + int(np.argmax(beyond <= 0))) / _STEPS, standard_errors(RULES.bound_error, df)
    low = (first + int(np.argmin(beyond > margin * beyond_error))) / _STEPS
    error = max(0.0, worse - low) / margin
    found = _RankDifference(worse=worse, error=error, df=df, first=first, beyond=beyond, beyond_error=beyond_error)
    return found if math.isfinite(found.high(RULES.bound_error)) else None


# --- shares of slow requests; columns are ratios to the old percentile


def _variances(
    base: float, now: NDArray[np.float64], parts: NDArray[np.float64], shifts: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns two variances of the mean share of slow requests: by chance, and because start-ups differ.

    `base` and `now` are mean shares, and `now` has a share for each ratio. `parts` has two rows, for the old and the
    new version: each pair's squared weight over its requests. `shifts` has differences of two start-ups, in steps.
    """
    of_base, of_now = parts.sum(axis=1)
    places = np.arange(now.size) + shifts[:, None]
    at = now[np.minimum(np.maximum(places, 0), now.size - 1)]
    moved = np.asarray(_NODE_WEIGHTS @ (at - _NODE_WEIGHTS @ at) ** 2)
    return base * (1 - base) * of_base + now * (1 - now) * of_now, moved


def _shares_of(metric: Metric, pairs: Sequence[Pair], *, calm: bool) -> tuple[NDArray[np.float64], list[_Tail], float]:
    """Returns old shares, new tails, and how many slow requests come together.

    An old share is a pair's share of old requests above the old percentile. A new tail is the distribution of a pair's
    new latencies ÷ that percentile. Neighbouring pairs with few requests share one percentile.
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
        # The percentile is itself an old request: half of it counts as slow, or half of its bunch.
        between = together / 2 / sum(pair.base.latency.count for pair in group)
        for base, now in sides if most is None else [_tails(pair, most) for pair in group]:
            above, with_it = base.above(np.array([at, at - 1]))
            base_shares.append(above + part * (with_it - above) + between)
            tails.append(_Tail(first=now.first - at, shares=now.shares))
    return np.array(base_shares), tails, together


def _counts(pairs: Sequence[Pair]) -> NDArray[np.float64]:
    """Returns numbers of requests in two rows, for the old and the new version. Each pair has a column."""
    return np.array([[side.latency.count for side in own] for own in sides_of(pairs)], dtype=float)


def _weights(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns each pair's weight: the harmonic mean of its old and new requests, scaled to a sum of 1."""
    weights = 1 / (1 / counts).sum(axis=0)
    return np.asarray(weights / weights.sum())


def _percentile(sides: Sequence[_Tail], weights: NDArray[np.float64], reach: float) -> tuple[int, float]:
    """Returns the step above which a share `reach` of all requests lies. Pairs count by their `weights`.

    Also returns the part of the requests at this step that makes the share exactly `reach`.
    """
    steps = np.arange(min(side.first for side in sides), max(side.last for side in sides) + 1)
    shares = weights @ np.array([side.above(steps) for side in sides])
    at = int(np.argmax(shares <= reach + 1e-9))  # shares are rounded
    above, with_it = shares[at], shares[at - 1]
    return int(steps[at]), float(np.clip((reach - above) / (with_it - above), 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tail:
    """One version in a pair of start-ups: the share of its requests that took longer than each step.

    A step is 0.001 in log(latency ÷ mean latency). The mean is over the pair's two versions, so a slow moment of the
    machine makes no difference.
    """

    first: int
    """A step that all requests exceed."""
    shares: NDArray[np.float64]
    """For `first` and each step after it: the share of requests that took longer. It falls from 1.0 to 0.0."""

    @property
    def last(self) -> int:
        """The first step that no request exceeds."""
        return self.first + self.shares.size - 1

    def above(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(self.shares[np.minimum(np.maximum(steps - self.first, 0), self.shares.size - 1)])


def _tails(pair: Pair, most: Callable[[float], float] | None = None) -> tuple[_Tail, _Tail]:
    """Returns the old and the new version's tail. For `most` see `excess_of`."""
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
    """Returns the share of requests at or above each step of `latency`.

    With `most`, no stretch counts more of its requests than `most` allows.
    """
    if most is None:
        return np.asarray(np.append(latency.counts[::-1].cumsum()[::-1], 0) / latency.count)
    steps, counts = zip(*(stretch.held.arrays() for stretch in stretches), strict=True)
    rows = np.repeat(np.arange(len(stretches)), [own.size for own in steps])
    columns = np.searchsorted(latency.steps, np.concatenate(steps))
    hit = np.zeros((len(stretches), len(latency.steps) + 1))
    hit[rows, columns] = np.concatenate(counts)
    beyond = np.minimum(hit[:, ::-1].cumsum(axis=1)[:, ::-1], [[most(stretch.count)] for stretch in stretches])
    return np.asarray(beyond.sum(axis=0) / max(1, sum(stretch.count for stretch in stretches)))
