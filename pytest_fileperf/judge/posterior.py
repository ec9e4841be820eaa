"""Tells how likely each capacity of a server is, by what loads of it have shown; pure.

Model
    Of a load's requests, a share is beyond a limit: slower than it, or failed. It grows with the rate r:
    logit share = logit allowed + slope · log(r / pace). Loads show different paces, and capacities lie below them:
    log pace = log capacity + `room_above` + chance.
    Chance is normal, around 0 for each boot, and boots differ, too, but for a few (`APART`) that may have any capacity.
    It has two sources. A server is faster in some loads than in others, as other work on the machine has its turns: by
    how much is not known. And requests come closer together in some loads than in others, which makes a server look
    slower: the deviation of that is known, `_crowds`.
    How many of a load's requests are beyond is beta-binomial, as requests that meet the same queue are slow together.
    Some loads say nothing, as the machine stood still for a moment: then requests are beyond at any rate, a few of them
    more often than many, and a fifth at the most. And some (`ODD`) say nothing for other reasons.
    Slope, togetherness, how much a server's pace differs, and whether its machine stands still now and then, are not
    known: the posterior is over a grid of them.

Capacity
    The server's pace is taken from the middle load: half of the loads find it faster. At that pace, the capacity is the
    rate at which theory says that the allowed share of requests is beyond the limit. The middle one, as in MLRsearch
    (draft-ietf-bmwg-mlrsearch; FD.io lets half of the trials exceed a limit), because a minute has enough loads to know
    it. The slowest tenth is one load or two.
    Of several limits, the capacity is the lowest of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.measure.capacity import RateTried
from pytest_fileperf.measure.searched import percent_of, share_allowed

__all__ = ("BOOT_SD", "Posterior", "posterior_of", "posteriors_of", "room_above")

ODD = 0.01
"""Share of loads that say nothing about the rate, whatever the reason; any count is as likely in them."""
EXPECTED, EXPECTED_SD, ELSEWHERE = -0.15, 0.5, 0.02
"""Of the capacity's logarithm, from that of the closed loop's rate; and how likely any other rate is beside it."""
BOOT_SD, APART = 0.04, 0.01
"""How much the logarithms of boots' capacities differ: more than those of stabilised boots, as minutes lie between.
And the share of boots that have nothing to do with the others."""

_STEP = 0.006
"""Of the grid of logarithms: a fraction of what a search can tell apart."""
_SLOPES = np.array([5.0, 16, 28, 48, 84, 150, 300])
"""From a server whose latency grows long before its capacity to one that falls behind all at once; M/D/1: about 28."""
_SLOPE_WEIGHTS = np.array([0.05, 0.2, 1, 1, 1, 1, 1])
"""How likely each is before anything is seen. Were low ones as likely, two unlucky loads would send a search to half of
the capacity, and most of a boot's loads would be needed to come back."""
_TOGETHER = np.array([0.001, 0.008, 0.04, 0.008])
"""Correlation of two requests of a load: from nearly none to that of a queue that is long once in a load. The last one
is of a machine that stands still now and then."""
_STALLED = np.array([0.0, 0.0, 0.0, 0.12])
"""Share of loads in which the machine stood still for a moment, for each of these: one grid has both. Downloads by
aiofiles broke a p99 of 100 ms in one load of seven, by some per cent, at rates far below the capacity."""
_LONGEST_STALL = 0.2
"""Of a load's requests. Where a larger share is beyond a limit, the server is taken to be slow, and not the machine."""
_PACE_SDS = (0.01, 0.02, 0.04, 0.08, 0.15)
"""From a machine that does nothing else, as far as there is one, to one on which the pace differs by 15 %."""
_CROWDS, _MOST_CROWDS = 1.2, 0.1
"""The number of requests in a load varies by 1 / √number. When they come within the load varies, too: 1.2 / √number in
all fits M/D/1. Loads of few requests vary by less than that: only some of their requests meet a queue."""
_ROOM = 1.2
"""The pace of a middle load is so many times as far above the capacity as crowds of requests alone would say: fits
searches of M/D/1 with limits of 10 and of 20 times what a request takes."""
_ENDS = 0.85
"""A server that falls behind by a share x reaches a limit only after limit / x. Where x is less than 0.85 times limit /
length, a load is over before that: the server seems faster than it is. Fits M/D/1 with 0.1 to 1 ms a request."""
_SHAPE = (len(_PACE_SDS), len(_TOGETHER), len(_SLOPES))
_MOST_LOGIT, _TINY = 18.0, 1e-290
"""Beyond these, shares and likelihoods are rounded to 0 or 1."""

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
    def median(self) -> float:
        """Of the logarithm. Not the mean, which a boot that may be far from all others would move."""
        return self.quantile(0.5)

    @property
    def sd(self) -> float:
        """Half of what the logarithm is in with 68 %: the standard deviation, but for what may be far off."""
        return (self.quantile(0.84) - self.quantile(0.16)) / 2

    def quantile(self, share: float) -> float:
        """Returns the logarithm that the capacity exceeds with a probability of 1 - share."""
        return float(np.interp(share, np.cumsum(self.shares) - self.shares / 2, self.logs))


def posterior_of(
    loads: Sequence[RateTried], limits: Mapping[str, float], *, start: float, boot: int | None = None
) -> Posterior:
    """Returns how likely capacities are, of a boot, or of a boot like these.

    `limits` are in SI units, by name; `start` is the closed loop's rate. There is one load at least, but a boot need
    not have one.
    """
    return posteriors_of(loads, limits, start=start, boots=(boot,))[boot]


def posteriors_of(
    loads: Sequence[RateTried],
    limits: Mapping[str, float],
    *,
    start: float,
    boots: Sequence[int | None],
) -> dict[int | None, Posterior]:
    """Returns the same for several boots."""
    grid = _grid(start, loads)
    logs = _logs(grid)
    above = {boot: np.ones_like(logs) for boot in boots}
    for name, limit in limits.items():
        for boot, likely in _of_limit(loads, name, limit, grid, boots):
            above[boot] *= 1 - np.cumsum(likely) + likely
    found = {boot: np.clip(-np.diff(one, append=0.0), 0.0, None) for boot, one in above.items()}
    return {boot: Posterior(logs, one / one.sum()) for boot, one in found.items()}


def _of_limit(
    loads: Sequence[RateTried], name: str, limit: float, grid: Grid, boots: Sequence[int | None]
) -> Iterator[tuple[int | None, _Array]]:
    """Yields how likely capacities by one limit are, by boots; shape (capacities,)."""
    logs, allowed = _logs(grid), share_allowed(name, limit)
    seen: dict[int, _Array] = {}
    for load in loads:
        # The rate as it was asked for: the one that came by chance would make the figure too high, and look more
        # certain than it is, as that such a rate comes now and then is part of what the capacity means.
        above = room_above(name, limit, load.made, load.seconds)
        likely = _likelihood(load.rate, load.made, load.beyond[name], allowed, above, grid)
        seen[load.boot] = seen[load.boot] + likely if load.boot in seen else likely
    expected = np.log(_SLOPE_WEIGHTS)[:, None] + np.log(_expected(grid[0], logs)) + np.zeros((*_SHAPE, 1))
    of_all = {number: _of_others(likely) for number, likely in seen.items()}
    for boot in boots:
        known = expected + sum(likely for number, likely in of_all.items() if number != boot)
        if boot is not None:
            known = _of_others(known) + seen.get(boot, 0.0)
        shares = np.exp(known - known.max()).sum(axis=(0, 1, 2))
        yield boot, np.asarray(shares / shares.sum())


def _of_others(logs: _Array) -> _Array:
    """Returns what the likelihoods of a boot's paces say of other boots."""
    likely = np.exp((logs - logs.max()).astype(np.float64))
    far = np.log(np.maximum(likely.mean(axis=-1, keepdims=True), _TINY)) + logs.max()
    return np.asarray(np.logaddexp(math.log(1 - APART) + _blurred(logs, BOOT_SD), math.log(APART) + far))


@lru_cache(maxsize=512)
def _likelihood(rate: float, made: int, beyond: int, allowed: float, above: float, grid: Grid) -> _Array:
    """Returns the logarithm of how likely a load's count is; shape (pace sds, togetherness, slopes, paces)."""
    from scipy.special import expit, gammaln

    share = expit(_logits(allowed, math.log(rate) - above - _logs(grid)))
    weight = (1 / _TOGETHER - 1)[:, None, None]
    slow, fast = share * weight, (1 - share) * weight
    ways = math.lgamma(made + 1) - math.lgamma(beyond + 1) - math.lgamma(made - beyond + 1)
    chance = gammaln(beyond + slow) - gammaln(slow) + gammaln(made - beyond + fast) - gammaln(fast)
    chance += gammaln(weight) - gammaln(made + weight) + ways
    each = np.stack([_blurred(chance, math.hypot(sd, _crowds(made))) for sd in _PACE_SDS])
    stalled = _STALLED[:, None, None]
    none = ODD / (made + 1) + stalled * _in_stall(beyond, made)
    found: _Array = np.logaddexp(np.log(1 - ODD - stalled) + each, np.log(none)).astype(np.float32)
    return found


def _in_stall(beyond: int, made: int) -> float:
    """Returns how likely so many are beyond where the machine stood still: from one on, each order of size alike."""
    most = max(1.0, _LONGEST_STALL * made)
    return 1 / (beyond * (1 + math.log(most))) if 0 < beyond <= most else 0.0


def _crowds(made: int) -> float:
    """Returns how much the logarithm of the pace deviates, as requests come close together in some loads by chance."""
    return min(_CROWDS / math.sqrt(made), _MOST_CROWDS)


def room_above(name: str, limit: float, made: int, seconds: float) -> float:
    """Returns how far the pace in a middle load is above the capacity; of the logarithm.

    Theory counts the requests of all loads, and most of those beyond a percentile's limit are in crowded loads. Where
    one load in ten has a tenth of its requests beyond, that is 1 % of all: then nine of ten loads hold a p99, and the
    middle one has some room. (Of M/D/1 with a p99 of 100 ms, 92 % hold.) Failures need no queue.
    """
    if percent_of(name) is None:
        return 0.0
    held = max(0.5, 1 - math.sqrt(share_allowed(name, limit)))
    return max(_ROOM * _crowds(made) * NormalDist().inv_cdf(held), _ENDS * limit / max(seconds, limit))


def _logits(allowed: float, above: _Array) -> _Array:
    """Returns the logits of the share beyond, so far above the pace; shape (slopes, paces)."""
    logits = math.log(allowed / (1 - allowed)) + _SLOPES[:, None] * above
    return np.asarray(np.clip(logits, -_MOST_LOGIT, _MOST_LOGIT))


def _blurred(logs: _Array, sd: float) -> _Array:
    """Returns logarithms of likelihoods over paces, where the pace is off by chance with this deviation."""
    from scipy.ndimage import gaussian_filter1d

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
