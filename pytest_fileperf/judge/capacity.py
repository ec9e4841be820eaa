"""Searches for the highest rate at which a server holds its limits; pure: given what was seen, which load is next.

Model
    Of a load's requests, a share is beyond a limit: slower than it, or failed. At the capacity c it is the share that
    the limit allows, 1 % for a p99, and it grows with the rate r:  logit share = logit allowed + slope · log(r / c).
    How many of a load's requests are beyond is beta-binomial, as requests that meet the same queue are slow together;
    and a few loads (`ODD`) say nothing, as the machine stood still in them.
    Slope and togetherness are not known: the posterior of c is over a grid of both. Of several limits, the capacity is
    the lowest of theirs.

Search
    Bayesian, as probabilistic bisection is (Waeber, Frazier and Henderson, "Bisection search with noisy responses",
    SIAM J. Control Optim. 51 (2013) 2261–2279), with counts in place of yes and no. The next rate is a quantile of
    the posterior. Quantiles take turns: one load decides nothing, and rates near the capacity are loaded again, from
    both sides. It never goes beyond twice the highest rate that held, and goes down until one does. Loads get longer
    once the capacity is roughly known: so long that even a server which falls behind by 2.5 % breaks a limit.

Boots
    The figure is that of all boots together. Each boot has its own deviation from it, and how much boots differ is a
    part of the interval; of few boots it is moderated by what is usual (`Rules.boot_sd`), as in `boots`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.difference import standard_errors
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.searched import share_allowed

__all__ = ("CONFIDENCE", "Estimate", "NextLoad", "Search", "estimate", "next_load")

CONFIDENCE = 0.9
SURE = 0.006
"""Deviation of the logarithm that ends a search before its time is over."""
ROUGH = 0.15
"""Deviation of the logarithm from which on loads are long."""
ODD = 0.01
"""Share of loads in which the machine stood still, or something else that says nothing about the rate."""
QUANTILES = (0.5, 0.85)
"""Of the posterior, in turn. Loads above the capacity tell more, as more of their requests are beyond a limit."""
LEAST_LOADS = 4
"""Fewer loads say little about a boot."""
ROUGH_QUANTILE = 0.5
"""As long as it is not roughly known: a load far above the capacity takes long to end."""
EXPECTED, EXPECTED_SD, ELSEWHERE = -0.15, 0.5, 0.02
"""Of the capacity's logarithm, from that of the closed loop's rate; and how likely any other rate is beside it."""
BOOT_REACH = 0.04
"""Deviation of a boot from all of them that is looked for."""
NONE_BELOW = 1 / 8
"""No rate holds where two loads of this part of the first rate, or less, do not."""
FIRST = 0.8
"""Of the closed loop's rate: users who come by chance need some room."""
CLIMB = 1.35
"""A second rate where the first one held: above the closed loop's; and twice as high as long as nothing breaks."""
GENERATOR_NEAR = 0.88
"""A rate that held is as high as the generator can go, where it failed at no more than a little above."""
LEAST_LOAD_S, LATENCIES_A_LOAD, EXPECTED_BEYOND, LOADS_A_SEARCH = 2.5, 45, 3, 8
"""A long load's least seconds, times the slowest limit, and requests beyond a limit at capacity; and the share of the
search's time that it takes at most."""
ROUGH_LOAD = 0.7
"""Length of a load before the capacity is roughly known, as a share of a long one's."""
WARMUP_S, LATENCIES_A_WARMUP, LONGEST_WARMUP = 0.3, 8, 0.3
FITS = 0.6
"""A load may be this much shorter than it should be, to fit into the time that is left."""

_DEVIATIONS_90 = 1.8
"""More than the 1.64 of a normal distribution: of simulated searches 92 to 99 % then hold the truth, and 70 % of those
of a server with a heavy tail."""
_STEP = 0.006
_SLOPES = np.array([4.0, 8, 16, 28, 48, 84, 150, 300, 600])
_SLOPE_WEIGHTS = np.array([0.08, 0.25, 0.7, 1, 1, 1, 1, 1, 1])
_TOGETHER = np.array([0.0005, 0.003, 0.012, 0.04, 0.12, 0.3])
_SHAPES = np.log(_SLOPE_WEIGHTS)[None, :, None]
_MOST_LOGIT = 18.0

Grid: TypeAlias = tuple[float, int, int]
"""The rate to begin with, and by which powers of 2 of it the grid of capacities begins and ends."""
_Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What is searched for, and in which time."""

    limits: Mapping[str, float]
    """By name, in SI units; at least one is of a latency."""
    start: float
    """The rate to begin with, near the closed loop's."""
    total_s: float
    """The time there is for all loads."""

    @property
    def allowed(self) -> tuple[tuple[str, float], ...]:
        """The share of requests that may be beyond each limit."""
        return tuple((name, share_allowed(name, limit)) for name, limit in self.limits.items())

    @property
    def slowest_s(self) -> float:
        """The slowest latency that a limit allows."""
        return max((limit for name, limit in self.limits.items() if name != "max_error_rate"), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLoad:
    """A load to make."""

    rate: float
    warmup_s: float
    seconds: float
    """Without the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What is known of the capacity's logarithm."""

    mean: float
    sd: float
    """Of what loads leave uncertain."""
    boots: Mapping[int, float]
    """That of each boot; their mean is `mean`."""
    broken: str
    """The limit that breaks first; empty where none has broken."""

    def margin(self, stabilised: Iterable[str], rules: Rules = RULES) -> float:
        """Returns half of the interval at `CONFIDENCE`, between-boot deviations with it."""
        df = rules.boot_prior_df + len(self.boots) - 1
        squares = math.fsum((value - self.mean) ** 2 for value in self.boots.values())
        between = (rules.boot_prior_df * rules.boot_sd.given(stabilised) ** 2 + squares) / df
        of_boots = standard_errors((1 - CONFIDENCE) / 2, df) * math.sqrt(between / len(self.boots))
        return math.hypot(_DEVIATIONS_90 * self.sd, of_boots)


def next_load(
    search: Search, seen: Sequence[RateTried], *, left_s: float, on_boot: int = 0
) -> NextLoad | CapacityEnd | None:
    """Returns the next load; why there is none, for any boot; or None where there is none for this one.

    `left_s` is the time left for this boot, and `on_boot` the loads made on it.
    """
    told = _told(seen)
    if (ended := _ended(search, seen)) is not None:
        return ended
    rate, rough = search.start * FIRST, True
    if told:
        grid, share = _capacities(search, told)
        sd = _moments(grid, share)[1]
        if sd <= SURE and on_boot >= LEAST_LOADS:
            return None
        rough = sd > ROUGH
        wanted = ROUGH_QUANTILE if rough else QUANTILES[len(told) % len(QUANTILES)]
        at = int(np.searchsorted(np.cumsum(share), wanted))
        rate = math.exp(grid[min(at, len(grid) - 1)])
    load = _load(search, _within_reach(rate, seen, told), rough=rough)
    took_s = load.warmup_s + load.seconds
    if took_s <= left_s or not seen:
        return load
    if took_s * FITS > left_s:
        return None
    return NextLoad(rate=load.rate, warmup_s=load.warmup_s, seconds=left_s - load.warmup_s)


def estimate(search: Search, seen: Sequence[RateTried]) -> Estimate | None:
    """Returns what all loads show together; None where none says anything."""
    told = _told(seen)
    if not told:
        return None
    grid, share = _capacities(search, told)
    mean, sd = _moments(grid, share)
    found = {}
    for boot in sorted({load.boot for load in told}):
        found[boot] = _moments(grid, _of_boot(search, told, boot, mean, sd))[0]
    centre = fmean(found.values())
    means = {name: _moments(*_capacities(search, told, (name,)))[0] for name in _broken(search, told)}
    has_broken = any(not load.holds for load in told)
    return Estimate(
        mean=mean,
        sd=sd,
        boots={boot: value - centre + mean for boot, value in found.items()},
        broken=min(means, key=means.__getitem__) if has_broken else "",
    )


def _told(seen: Sequence[RateTried]) -> tuple[RateTried, ...]:
    """Returns the loads that say something about the server."""
    return tuple(load for load in seen if load.made and not load.by_generator)


def _ended(search: Search, seen: Sequence[RateTried]) -> CapacityEnd | None:
    told, held = _told(seen), _highest_held(seen)
    if held is None:
        low = [load for load in told if not load.holds and load.rate <= search.start * NONE_BELOW]
        return CapacityEnd.NO_RATE if len(low) > 1 else None
    limited = [load.rate for load in seen if load.by_generator]
    broken = any(not load.holds for load in told)
    if not broken and sum(rate <= held / GENERATOR_NEAR for rate in limited) > 1:
        return CapacityEnd.GENERATOR
    return None


def _highest_held(seen: Sequence[RateTried]) -> float | None:
    return max((load.rate for load in _told(seen) if load.holds), default=None)


def _within_reach(rate: float, seen: Sequence[RateTried], told: Sequence[RateTried]) -> float:
    """Returns the rate, or what of it can be reached from rates that held, and below where the generator failed."""
    held = _highest_held(seen)
    if held is not None and all(load.holds for load in told):
        rate = held * (CLIMB if len(told) == 1 else 2)
    elif held is not None:
        rate = min(rate, 2 * held)
    elif told:
        lower = FIRST if len(told) < 2 else 1 / 2
        rate = min(rate, min(load.rate for load in told) * lower)
    if limited := [load.rate for load in seen if load.by_generator]:
        low = min(limited)
        rate = min(rate, low / 2 if held is None else math.sqrt(held * low) if held < low else low)
    return rate


def _load(search: Search, rate: float, *, rough: bool) -> NextLoad:
    least = min(share for name, share in search.allowed if name != "max_error_rate")
    long_s = max(LEAST_LOAD_S, LATENCIES_A_LOAD * search.slowest_s, EXPECTED_BEYOND / least / rate)
    seconds = min(long_s, search.total_s / LOADS_A_SEARCH) * (ROUGH_LOAD if rough else 1.0)
    warmup_s = min(max(WARMUP_S, 0.0 if rough else LATENCIES_A_WARMUP * search.slowest_s), LONGEST_WARMUP * seconds)
    return NextLoad(rate=rate, warmup_s=warmup_s, seconds=max(seconds, 1 / rate))


# --- posterior


def _capacities(search: Search, told: Sequence[RateTried], names: Sequence[str] = ()) -> tuple[_Array, _Array]:
    """Returns logarithms of capacities and how likely each is: of the lowest among these limits, or among all."""
    grid, names = _grid(search, told), names or _broken(search, told)
    logs = _logs(grid)
    above = np.ones_like(logs)
    for name, allowed in search.allowed:
        if name in names:
            likely = _normed(_SHAPES + sum(_likelihood(*_counted(load, name), allowed, grid) for load in told))
            own = likely.sum(axis=(0, 1)) * _expected(search, logs)
            above *= _survival(own / own.sum())
    return logs, _shares(above)


def _of_boot(search: Search, told: Sequence[RateTried], boot: int, mean: float, sd: float) -> _Array:
    """Returns how likely capacities of a boot are by its own loads, with the slopes that all loads show."""
    grid, names = _grid(search, told), _broken(search, told)
    logs = _logs(grid)
    near = -0.5 * ((logs - mean) / math.hypot(sd, BOOT_REACH)) ** 2
    above = np.ones_like(logs)
    for name, allowed in ((name, allowed) for name, allowed in search.allowed if name in names):
        each = [(load, _likelihood(*_counted(load, name), allowed, grid)) for load in told]
        shapes = _normed(_SHAPES + sum(likelihood for _, likelihood in each)).sum(axis=2)
        own = near + sum(likelihood for load, likelihood in each if load.boot == boot)
        by_shape = np.exp(own - own.max())
        totals = by_shape.sum(axis=2)
        weights = np.divide(shapes, totals, out=np.zeros_like(shapes), where=totals > 0)
        likely = (by_shape * weights[:, :, None]).sum(axis=(0, 1))
        above *= _survival(likely / likely.sum())
    return _shares(above)


def _broken(search: Search, told: Sequence[RateTried]) -> tuple[str, ...]:
    """Returns the limits that some load broke: how far off others are cannot be known. All of them where none did."""
    broken = [name for name, share in search.allowed if any(load.beyond[name] > share * load.made for load in told)]
    return tuple(broken or search.limits)


def _grid(search: Search, told: Sequence[RateTried]) -> Grid:
    """Returns a grid that reaches from half of the lowest rate to twice the highest."""
    rates = [math.log2(load.rate / search.start) for load in told]
    return search.start, math.floor(min(rates)) - 1, math.ceil(max(rates)) + 1


@lru_cache(maxsize=16)
def _logs(grid: Grid) -> _Array:
    start, low, high = grid
    return math.log(start) + np.arange(low * math.log(2), high * math.log(2), _STEP)


def _counted(load: RateTried, name: str) -> tuple[float, int, int]:
    """Returns the rate of a load as it was asked for, its requests, and those that are beyond the limit.

    The rate that came by chance would make the figure too high, and look more certain than it is: that such a rate
    comes now and then is part of what the capacity means.
    """
    return load.rate, load.made, load.beyond[name]


@lru_cache(maxsize=160)
def _likelihood(rate: float, made: int, beyond: int, allowed: float, grid: Grid) -> _Array:
    """Returns the logarithm of how likely a load's count is, by togetherness, slope and capacity."""
    from scipy.special import expit, gammaln

    logit = math.log(allowed / (1 - allowed)) + _SLOPES[:, None] * (math.log(rate) - _logs(grid)[None, :])
    share = expit(np.clip(logit, -_MOST_LOGIT, _MOST_LOGIT))
    weight = (1 / _TOGETHER - 1)[:, None, None]
    slow, fast = share * weight, (1 - share) * weight
    ways = math.lgamma(made + 1) - math.lgamma(beyond + 1) - math.lgamma(made - beyond + 1)
    chance = gammaln(beyond + slow) - gammaln(slow) + gammaln(made - beyond + fast) - gammaln(fast)
    chance += gammaln(weight) - gammaln(made + weight) + ways
    found: _Array = np.logaddexp(math.log(1 - ODD) + chance, math.log(ODD / (made + 1)))
    return found


def _expected(search: Search, logs: _Array) -> _Array:
    off = (logs - math.log(search.start) - EXPECTED) / EXPECTED_SD
    found: _Array = np.exp(-0.5 * off**2) + ELSEWHERE
    return found


def _normed(logs: _Array | int) -> _Array:
    likely = np.exp(logs - np.max(logs))
    found: _Array = likely / likely.sum()
    return found


def _survival(share: _Array) -> _Array:
    """Returns how likely it is that a capacity is at least each value."""
    found: _Array = 1 - np.cumsum(share) + share
    return found


def _shares(survival: _Array) -> _Array:
    found = np.clip(-np.diff(survival, append=0.0), 0.0, None)
    shares: _Array = found / found.sum()
    return shares


def _moments(logs: _Array, share: _Array) -> tuple[float, float]:
    mean = float(logs @ share)
    return mean, math.sqrt(max(0.0, float((logs - mean) ** 2 @ share)))
