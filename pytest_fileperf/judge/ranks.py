"""How much worse a latency percentile is than base's, told by the share of requests that take longer.

For any ratio r, the share of now's requests that take longer than r times base's percentile is compared with the share
of base's that take longer than the percentile itself, in each pair of boots. The r at which the two cannot be told
apart are the interval (Woodruff, "Confidence intervals for medians and other position measures", J. Am. Stat. Assoc. 47
(1952) 635–646, for two samples in pairs). A share is as exact where latency jumps at the percentile, as at the part of
the requests that a pause hits, as anywhere; a percentile's value is chance there, and an interval around it is as wide
as the jump.

*Between stalls* the same is told of fewer: of a stretch of time, a turn, no more slow requests count than chance has. A
stall makes all connections wait at once, so some thousands of requests hold but a few of them, and a percentile is as
uncertain as their number; that single requests take longer shows with a fraction of the load.

What is expected of the shares in a pair: binomial, times how many slow requests come together (`clustering`), and what
the usual difference of two boots moves across the percentile. What the pairs show is moderated with that by `_PRIOR_DF`
degrees of freedom, and may be less: pauses that come at equal distances differ less than by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.pair import Pair
from pytest_fileperf.judge.unit import clustering, grouped
from pytest_fileperf.judge.worse import LEAST_PAIRS, Worse, standard_errors
from pytest_fileperf.measure.histogram import Histogram, middle_of
from pytest_fileperf.measure.metrics import Metric

__all__ = ("worse_by_ranks",)

_STEPS = 1000
"""Of a log ratio of 1: a latency is known to a thousandth."""
_ROUNDING = 1e-9
_PRIOR_DF = 4
"""Weight of what is expected of the shares in a pair, as that of five pairs: less than of rates, as what is expected
leans on more that is not known, and the spread may be less."""
_TIMES = 5
"""Neighbouring pairs share one percentile of base until about 15 slow requests, or as many bunches of them, lie above
it: fewer say little about it, and all pairs have moments of their own."""
_MOST_DEVIATIONS = 3.0
"""So many deviations of a Poisson number above the usual one, and 1 more, are the most that chance has in a stretch."""
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(7)
_NODE_WEIGHTS /= _NODE_WEIGHTS.sum()
"""A normal distribution, in seven points."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _WorseByRanks(Worse):
    """Its `error` is that of the lower bound, which a worsening is shown by; the upper one may be farther off."""

    ratios: NDArray[np.float64]
    """Log ratios to base's percentile, ascending: all at which `beyond` or its error changes."""
    beyond: NDArray[np.float64]
    """By how much more of now's requests take longer than that, than of base's than its percentile."""
    beyond_error: NDArray[np.float64]

    def low(self, error: float) -> float:
        """Returns the ratio below which more of now's requests are slow than can be chance."""
        return float(self.ratios[np.flatnonzero(~self._slower(error))[0]])

    def high(self, error: float) -> float:
        """Returns the ratio above which fewer of them are; infinite where there are too few requests to tell."""
        last = np.flatnonzero(~self._faster(error))[-1]
        return float(self.ratios[last + 1]) if last + 1 < len(self.ratios) else math.inf

    def is_above(self, limit: float, error: float) -> bool:
        return bool(self._slower(error)[self._at(limit)])

    def is_below(self, limit: float, error: float) -> bool:
        return bool(self._faster(error)[self._at(limit)])

    def _slower(self, error: float) -> NDArray[np.bool_]:
        return self.beyond > standard_errors(error, self.df) * self.beyond_error

    def _faster(self, error: float) -> NDArray[np.bool_]:
        return self.beyond < -standard_errors(error, self.df) * self.beyond_error

    def _at(self, limit: float) -> int:
        return max(0, int(np.searchsorted(self.ratios, limit, side="right")) - 1)


def worse_by_ranks(
    metric: Metric, pairs: Sequence[Pair], *, usual: float, error: float, calm: bool = False
) -> Worse | None:
    """Returns how much worse a percentile of now is; None where too few requests are slow to bound it at this `error`.

    `usual` is by how much the percentiles of two boots differ, as a log ratio. With `calm` it is told between stalls;
    None too where there are no stretches of time.
    """
    assert metric.percentile is not None
    told = [pair for pair in pairs if pair.base.latency.count and pair.now.latency.count]
    counts = np.array([[pair.base.latency.count, pair.now.latency.count] for pair in told], dtype=np.float64).T
    if len(told) < LEAST_PAIRS or min(counts.sum(axis=1)) < LEAST_PAIRS * metric.least_requests:
        return None
    if calm and not all(side.stretches for pair in told for side in (pair.base, pair.now)):
        return None
    weights = 1 / (1 / counts).sum(axis=0)
    weights /= weights.sum()
    reach, together = 1 - metric.percentile / 100, clustering(told, metric.percentile)
    groups = grouped(told, _TIMES * metric.least_requests * together) or [told]
    most = partial(_most, reach=reach) if calm else None
    if most is not None:
        together = clustering(told, metric.percentile, most=most)
    base_shares, now = _aligned(groups, weights, reach, together, most)
    # Rows are pairs; columns are latencies, between which nothing changes.
    steps, shifts = np.concatenate([side.steps for side in now]), np.rint(usual * _STEPS * _NODES).astype(np.int64)
    least = steps.min() + shifts.min() - 1  # all of now's requests take longer
    latencies = np.unique(np.concatenate([[least], *(steps + shift for shift in shifts)]))
    now_shares = np.array([side.above(latencies) for side in now])
    base_share, now_share = weights @ base_shares, weights @ now_shares
    beyond = now_share - base_share
    binomial = (base_share * (1 - base_share)) / counts[0][:, None] + (now_share * (1 - now_share)) / counts[1][:, None]
    moved = _moved(latencies, now_share, shifts)
    expected = weights**2 @ (together * binomial + moved)
    spread = len(told) * (weights**2 @ (now_shares - base_shares - beyond) ** 2) / (len(told) - 1)
    df = _PRIOR_DF + len(told) - 1
    birge = (_PRIOR_DF + (len(told) - 1) * spread / expected) / df
    # The luck of a boot that all pairs have in common is in each of them alike, and no number of pairs averages it out.
    common = 0.0 if all(pair.base_boots_anew for pair in told) else moved / 2
    worse = _WorseByRanks(
        value=float(latencies[np.flatnonzero(beyond <= 0)[0]]) / _STEPS,
        error=0.0,
        df=df,
        units=len(told),
        ratios=latencies / _STEPS,
        beyond=beyond,
        beyond_error=np.sqrt(birge * expected + common),
    )
    if not math.isfinite(worse.high(error)):
        return None
    return replace(worse, error=max(0.0, worse.value - worse.low(error)) / standard_errors(error, df))


def _aligned(
    groups: Sequence[Sequence[Pair]],
    weights: NDArray[np.float64],
    reach: float,
    together: float,
    most: Callable[[float], float] | None,
) -> tuple[NDArray[np.float64], list[_Latencies]]:
    """Returns for each base the share above its percentile, as a column, and now's latencies as ratios to that.

    As many of other requests lie above the percentile of a sample as above the middle between it and the next one.
    """
    now, shares, first = [], [], 0
    for group in groups:
        own = [_both_sides(pair) for pair in group]
        of_base = [base for base, _ in own]
        at, part = _percentile(of_base, weights[first : first + len(group)], reach)
        if most is not None:
            own = [_both_sides(pair, most) for pair in group]
            of_base = [base for base, _ in own]
        above, with_it = (np.array([base.above(np.array([step])) for base in of_base]) for step in (at, at - 1))
        now += [replace(side, steps=side.steps - at) for _, side in own]
        between = together / 2 / sum(pair.base.latency.count for pair in group)
        shares.append(above + part * (with_it - above) + between)
        first += len(group)
    return np.concatenate(shares), now


def _most(requests: float, *, reach: float) -> float:
    """Returns how many of a stretch's requests are slow by chance at most; of more, so many count."""
    usual = reach * requests
    return usual + _MOST_DEVIATIONS * math.sqrt(usual) + 1


def _moved(steps: NDArray[np.int64], shares: NDArray[np.float64], shifts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the variance that the difference of two boots gives to the share above each step: `shares`, usually."""
    padded = np.concatenate((shares[:1], shares))
    moved = np.array([padded[np.searchsorted(steps, steps + shift, side="right")] for shift in shifts])
    return np.asarray(_NODE_WEIGHTS @ (moved - _NODE_WEIGHTS @ moved) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Latencies:
    """One side of a pair, in steps of a log ratio to what a request took in this pair, whichever the side.

    So a pair in which the machine was slow has its own measure, the same for both sides.
    """

    steps: NDArray[np.int64]
    """Ascending."""
    beyond: NDArray[np.float64]
    """Share of the requests that took longer than the first so many of `steps`; begins with that of all that count."""

    def above(self, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the share of the requests above each of the steps."""
        return np.asarray(self.beyond[np.searchsorted(self.steps, steps, side="right")])


def _both_sides(pair: Pair, most: Callable[[float], float] | None = None) -> tuple[_Latencies, _Latencies]:
    """Returns base and now; with `most`, given the requests of a stretch, no more than so many of them count."""
    sides = [pair.base, pair.now]
    logs = [_STEPS * np.log(np.maximum(middle_of(side.latency.steps), 1.0)) for side in sides]
    paces = [float(log @ side.latency.counts) / side.latency.count for log, side in zip(logs, sides, strict=True)]
    base, now = (
        _Latencies(
            steps=np.rint(log - sum(paces) / 2).astype(np.int64),
            beyond=_beyond(side.latency, side.stretches if most else (side.latency,), most),
        )
        for log, side in zip(logs, sides, strict=True)
    )
    return base, now


def _beyond(
    latency: Histogram, stretches: Sequence[Histogram], most: Callable[[float], float] | None
) -> NDArray[np.float64]:
    """Returns the share of the requests beyond the first so many of all steps, of each stretch no more than `most`."""
    rows = np.repeat(np.arange(len(stretches)), [len(stretch.steps) for stretch in stretches])
    columns = np.searchsorted(latency.steps, np.concatenate([stretch.steps for stretch in stretches]))
    hit = np.zeros((len(stretches), len(latency.steps) + 1))
    hit[rows, columns] = np.concatenate([stretch.counts for stretch in stretches])
    beyond = hit[:, ::-1].cumsum(axis=1)[:, ::-1]
    if most is not None:
        beyond = np.minimum(beyond, [[most(stretch.count)] for stretch in stretches])
    return np.asarray(beyond.sum(axis=0) / max(1, sum(stretch.count for stretch in stretches)))


def _percentile(sides: Sequence[_Latencies], weights: NDArray[np.float64], reach: float) -> tuple[int, float]:
    """Returns the step that a share `reach` of the weighted requests lies above, and which part of those at it counts.

    Many requests may lie at it: of those, as many count as lying above as make up the share.
    """
    steps = np.unique(np.concatenate([side.steps for side in sides]))
    weights = weights / weights.sum()
    shares = weights @ np.array([side.above(steps) for side in sides])
    at = steps[np.flatnonzero(shares <= reach + _ROUNDING)[0]]
    above, with_it = (weights @ np.array([side.above(np.array([step])) for side in sides]) for step in (at, at - 1))
    return int(at), float(np.clip((reach - above) / (with_it - above), 0.0, 1.0)[0])
