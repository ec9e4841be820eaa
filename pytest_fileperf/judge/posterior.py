"""Tells how likely each capacity of a server is, by what loads of it have shown; pure.

Model
    Of a load's requests, a share is beyond a limit: slower than it, or failed. It grows with the rate r:
    logit share = logit allowed + slope · log(r / pace). A server has another pace in each load, as other work on the
    machine has its turns: log pace is normal around that of the boot, and that of boots around that of all of them.
    How many of a load's requests are beyond is beta-binomial, as requests that meet the same queue are slow together;
    and a few loads (`ODD`) say nothing, as the machine stood still in them.
    Slope, togetherness, and how much pace differs between loads are not known: the posterior is over a grid of them.

Capacity
    The rate at which the pace is high enough in nine of ten loads, for a p99 (`held`). Where the pace is steady, it is
    what theory says. The rate at which the mean over loads is as allowed would be that of the slowest ones, of which a
    minute has one or two.
    Of several limits, the capacity is the lowest of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.measure.capacity import RateTried

__all__ = ("Posterior", "held", "posterior_of")

ODD = 0.01
"""Share of loads in which the machine stood still, or something else that says nothing about the rate."""
EXPECTED, EXPECTED_SD, ELSEWHERE = -0.15, 0.5, 0.02
"""Of the capacity's logarithm, from that of the closed loop's rate; and how likely any other rate is beside it."""
BOOT_SD = 0.04
"""How much the logarithms of boots' paces differ."""

_STEP = 0.006
_SLOPES = np.array([8.0, 16, 28, 48, 84, 150, 300])
_SLOPE_WEIGHTS = np.array([0.25, 0.7, 1, 1, 1, 1, 1])
_TOGETHER = np.array([0.001, 0.008, 0.04, 0.15])
_PACE_SDS = (0.0, 0.01, 0.02, 0.04, 0.08)
_SHAPE = (len(_PACE_SDS), len(_TOGETHER), len(_SLOPES))
_MOST_LOGIT = 18.0
_TINY = 1e-290

Grid: TypeAlias = tuple[float, int, int]
"""The rate to begin with, and by which powers of 2 of it the grid of rates begins and ends."""
_Array: TypeAlias = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Posterior:
    """How likely each capacity is."""

    logs: _Array
    """Logarithms of capacities, ascending; shape (capacities,)."""
    shares: _Array
    """How likely each is; same shape, 1 in all."""

    @property
    def mean(self) -> float:
        """Mean of the logarithm."""
        return float(self.logs @ self.shares)

    @property
    def sd(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(max(0.0, float((self.logs - self.mean) ** 2 @ self.shares)))

    def quantile(self, share: float) -> float:
        """Returns the logarithm that the capacity exceeds with a probability of 1 - share."""
        return float(self.logs[min(int(np.searchsorted(np.cumsum(self.shares), share)), len(self.logs) - 1)])


def held(allowed: float) -> float:
    """Returns the share of loads that hold a limit at the capacity: nine of ten for a p99, and half of them for a p50.

    Where one load in ten has a tenth of its requests beyond, it is 1 % of all. Loads of a queue with a steady pace hold
    as often where as many requests are beyond as the limit allows: of M/D/1 at a p99 of 100 ms, 92 % do.
    """
    return max(0.5, 1 - math.sqrt(allowed))


def posterior_of(
    loads: Sequence[RateTried], allowed: Sequence[tuple[str, float]], *, start: float, boot: int | None = None
) -> Posterior:
    """Returns how likely capacities are, of a boot or of all boots.

    `allowed` has the share of requests that may be beyond each limit, by its name; `start` is the closed loop's rate.
    There is one load at least, but a boot need not have one.
    """
    grid = _grid(start, loads)
    logs = _logs(grid)
    above = np.ones_like(logs)
    for name, share in allowed:
        likely = _of_limit(loads, name, share, grid, boot)
        above *= 1 - np.cumsum(likely) + likely
    found = np.clip(-np.diff(above, append=0.0), 0.0, None)
    return Posterior(logs, found / found.sum())


def _of_limit(loads: Sequence[RateTried], name: str, allowed: float, grid: Grid, boot: int | None) -> _Array:
    """Returns how likely capacities by one limit are; shape (capacities,)."""
    logs = _logs(grid)
    by_boot: dict[int, _Array] = {}
    for load in loads:
        # The rate as it was asked for: the one that came by chance would make the figure too high, and look more
        # certain than it is, as that such a rate comes now and then is part of what the capacity means.
        seen = _likelihood(load.rate, load.made, load.beyond[name], allowed, grid)
        by_boot[load.boot] = by_boot[load.boot] + seen if load.boot in by_boot else seen
    pace = np.log(_SLOPE_WEIGHTS)[:, None] + np.log(_expected(grid[0], logs)) + np.zeros((*_SHAPE, 1))
    for number, seen in by_boot.items():
        if number != boot:
            pace = pace + _blurred(seen, BOOT_SD)
    if boot is not None:
        pace = _blurred(pace, BOOT_SD) + by_boot.get(boot, 0.0)
    likely = np.exp(pace - pace.max()).sum(axis=(1, 2))
    # What is known of paces, moved to the capacities that they mean.
    below = np.rint(NormalDist().inv_cdf(held(allowed)) * np.array(_PACE_SDS) / _STEP).astype(np.intp)
    from_index = np.clip(np.arange(logs.size) + below[:, None], 0, logs.size - 1)
    capacities = np.take_along_axis(likely, from_index, axis=1).sum(axis=0)
    return np.asarray(capacities / capacities.sum())


@lru_cache(maxsize=128)
def _likelihood(rate: float, made: int, beyond: int, allowed: float, grid: Grid) -> _Array:
    """Returns the logarithm of how likely a load's count is; shape (pace sds, togetherness, slopes, paces)."""
    from scipy.special import expit, gammaln

    share = expit(_logits(allowed, math.log(rate) - _logs(grid)))
    weight = (1 / _TOGETHER - 1)[:, None, None]
    slow, fast = share * weight, (1 - share) * weight
    ways = math.lgamma(made + 1) - math.lgamma(beyond + 1) - math.lgamma(made - beyond + 1)
    chance = gammaln(beyond + slow) - gammaln(slow) + gammaln(made - beyond + fast) - gammaln(fast)
    chance += gammaln(weight) - gammaln(made + weight) + ways
    each = np.stack([_blurred(chance, sd) for sd in _PACE_SDS])
    found: _Array = np.logaddexp(math.log(1 - ODD) + each, math.log(ODD / (made + 1))).astype(np.float32)
    return found


def _logits(allowed: float, above: _Array) -> _Array:
    """Returns the logits of the share beyond, so far above the pace; shape (slopes, paces)."""
    logits = math.log(allowed / (1 - allowed)) + _SLOPES[:, None] * above
    return np.asarray(np.clip(logits, -_MOST_LOGIT, _MOST_LOGIT))


def _blurred(logs: _Array, sd: float) -> _Array:
    """Returns logarithms of likelihoods over paces, where the pace is off by chance with this deviation."""
    from scipy.ndimage import gaussian_filter1d

    if not sd:
        return logs
    most = logs.max(axis=-1, keepdims=True)
    likely = gaussian_filter1d(np.exp((logs - most).astype(np.float64)), sd / _STEP, axis=-1, mode="nearest")
    return np.asarray(np.log(np.maximum(likely, _TINY)) + most)


def _grid(start: float, loads: Sequence[RateTried]) -> Grid:
    """Returns a grid that reaches from half of the lowest rate to twice the highest."""
    rates = [math.log2(load.rate / start) for load in loads]
    return start, math.floor(min(rates)) - 1, math.ceil(max(rates)) + 1


@lru_cache(maxsize=16)
def _logs(grid: Grid) -> _Array:
    start, low, high = grid
    return math.log(start) + np.arange(low * math.log(2), high * math.log(2), _STEP)


def _expected(start: float, logs: _Array) -> _Array:
    off = (logs - math.log(start) - EXPECTED) / EXPECTED_SD
    return np.asarray(np.exp(-0.5 * off**2) + ELSEWHERE)
