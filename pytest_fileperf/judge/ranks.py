"""How much worse a latency percentile is than base's, told by the share of requests that take longer.

For any ratio r, the share of now's requests that take longer than r times base's percentile is compared with the share
of base's that take longer than the percentile itself, in each pair of boots. The r at which the two cannot be told
apart are the interval (Woodruff, "Confidence intervals for medians and other position measures", J. Am. Stat. Assoc. 47
(1952) 635–646, for two samples in pairs). A share is as exact where latency jumps at the percentile, as at the part of
the requests that a pause hits, as anywhere; a percentile's value is chance there, and an interval around it is as wide
as the jump.

What is expected of the shares in a pair: binomial, times how many slow requests come together (`clustering`), and what
the usual difference of two boots moves across the percentile. What the pairs show is moderated with that by `PRIOR_DF`
degrees of freedom, and may be less: pauses that come at equal distances differ less than by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.unit import clustering, grouped
from pytest_fileperf.judge.worse import LEAST_PAIRS, PRIOR_DF, Worse, standard_errors
from pytest_fileperf.measure.histogram import middle_of
from pytest_fileperf.measure.metrics import Metric

__all__ = ("worse_by_ranks",)

_STEPS = 1000
"""Of a log ratio of 1: a latency is known to a thousandth."""
_ROUNDING = 1e-9
_TIMES = 5
"""Pairs have base's percentile in common until it lies below about 15 slow requests, or as many that come together:
fewer say little about it, and many pairs have moments of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _WorseByRanks(Worse):
    """Its `error` is that of a symmetric interval as wide; its bounds are exact."""

    ratios: NDArray[np.float64]
    """Log ratios, ascending: base's percentile times one of them is a latency that now has."""
    beyond: NDArray[np.float64]
    """By how much more of now's requests take longer than that, than of base's than its percentile."""
    beyond_error: NDArray[np.float64]

    def low(self, error: float) -> float:
        """Returns the ratio below which more of now's requests are slow than can be chance."""
        slower = np.flatnonzero(self.beyond > standard_errors(error, self.df) * self.beyond_error)
        # Up to the next latency that now has, as many take longer than that.
        return float(self.ratios[slower[-1] + 1]) if slower.size else -math.inf

    def high(self, error: float) -> float:
        """Returns the ratio above which fewer of them are; infinite where there are too few requests to tell."""
        faster = np.flatnonzero(self.beyond < -standard_errors(error, self.df) * self.beyond_error)
        return float(self.ratios[faster[0]]) if faster.size else math.inf


def worse_by_ranks(metric: Metric, pairs: Sequence[Pair], *, usual: float, error: float) -> Worse | None:
    """Returns how much worse a percentile of now is; None where too few requests are slow to bound it at this `error`.

    `usual` is by how much the percentiles of two boots differ, as a log ratio.
    """
    assert metric.percentile is not None
    told = [pair for pair in pairs if pair.base.latency.count and pair.now.latency.count]
    counts = np.array([[pair.base.latency.count, pair.now.latency.count] for pair in told], dtype=np.float64).T
    if len(told) < LEAST_PAIRS or min(counts.sum(axis=1)) < LEAST_PAIRS * metric.least_requests:
        return None
    weights = 1 / (1 / counts).sum(axis=0)
    weights /= weights.sum()
    reach = 1 - metric.percentile / 100
    # Rows are pairs; of base a column, its percentile, of now one for each latency between which nothing changes.
    now, base_parts, first = [], [], 0
    for group in grouped(metric, told, times=_TIMES) or [told]:
        own = [_Latencies.of_pair(pair) for pair in group]
        at, shares = _percentile([base for base, _ in own], weights[first : first + len(group)], reach)
        now += [replace(side, steps=side.steps - at) for _, side in own]
        base_parts.append(shares)
        first += len(group)
    base_shares = np.concatenate(base_parts)
    steps, usual_steps = np.concatenate([side.steps for side in now]), round(usual * _STEPS)
    least = steps.min(keepdims=True) - usual_steps - 1  # all of now's requests take longer
    latencies = np.unique(np.concatenate([least, steps, steps - usual_steps, steps + usual_steps]))
    now_shares = np.array([side.above(latencies) for side in now])
    base_share, now_share = weights @ base_shares, weights @ now_shares
    beyond = now_share - base_share
    moved = (
        _at(latencies - usual_steps, latencies, now_share) - _at(latencies + usual_steps, latencies, now_share)
    ) / 2
    binomial = (base_share * (1 - base_share)) / counts[0][:, None] + (now_share * (1 - now_share)) / counts[1][:, None]
    expected = clustering(told, metric.percentile) * binomial + moved**2
    df = PRIOR_DF + len(told) - 1
    found = (PRIOR_DF + ((now_shares - base_shares - beyond) ** 2 / expected).sum(axis=0)) / df
    # The luck of a boot that all pairs have in common is in each of them alike, and no number of pairs averages it out.
    common = 0.0 if all(pair.base_boots_anew for pair in told) else moved**2 / 2
    worse = _WorseByRanks(
        value=_percentile(now, weights, reach)[0] / _STEPS,
        error=0.0,
        df=df,
        units=len(told),
        ratios=latencies / _STEPS,
        beyond=beyond,
        beyond_error=np.sqrt(found * (weights**2 @ expected) + common),
    )
    width = worse.high(error) - worse.low(error)
    return replace(worse, error=width / 2 / standard_errors(error, df)) if math.isfinite(width) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Latencies:
    """One side of a pair, in steps of a log ratio to what a request took in this pair, whichever the side.

    So a pair in which the machine was slow has its own measure, the same for both sides.
    """

    steps: NDArray[np.int64]
    """Ascending."""
    reached: NDArray[np.float64]
    """Share of the requests that took at most as long as the first so many of `steps`; begins with 0."""
    count: int

    @classmethod
    def of_pair(cls, pair: Pair) -> tuple[_Latencies, _Latencies]:
        """Returns base and now."""
        sides = [pair.base.latency, pair.now.latency]
        logs = [_STEPS * np.log(np.maximum(middle_of(side.steps), 1.0)) for side in sides]
        pace = sum(
            float(log[np.searchsorted(np.cumsum(side.counts), side.count / 2)])
            for log, side in zip(logs, sides, strict=True)
        )
        base, now = (
            cls(
                steps=np.rint(log - pace / 2).astype(np.int64),
                reached=np.concatenate(([0.0], np.cumsum(side.counts) / side.count)),
                count=side.count,
            )
            for log, side in zip(logs, sides, strict=True)
        )
        return base, now

    def above(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the share of the requests above each of the steps."""
        return np.asarray(1 - self.reached[np.searchsorted(self.steps, steps, side="right")])


def _percentile(
    sides: Sequence[_Latencies], weights: NDArray[np.float64], reach: float
) -> tuple[int, NDArray[np.float64]]:
    """Returns the step that a share `reach` of the weighted requests lies above, and how much of each side does.

    Many requests may lie at it: of those, as many count as lying above as make up the share.
    """
    steps = np.unique(np.concatenate([side.steps for side in sides]))
    weights = weights / weights.sum()
    shares = weights @ np.array([side.above(steps) for side in sides])
    at = steps[np.flatnonzero(shares <= reach + _ROUNDING)[0]]
    above, with_it = (np.array([side.above(np.array([step])) for side in sides]) for step in (at, at - 1))
    part = (reach - weights @ above) / (weights @ (with_it - above))
    return int(at), above + np.clip(part, 0.0, 1.0) * (with_it - above)


def _at(wanted: NDArray[np.int64], steps: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the share above any step, of shares known above `steps`."""
    return np.concatenate(([1.0], shares))[np.searchsorted(steps, wanted, side="right")]
