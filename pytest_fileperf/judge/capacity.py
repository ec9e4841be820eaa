"""Searches for the highest rate at which a server holds its limits; pure: given what was seen, which load is next.

Search
    Bayesian, as probabilistic bisection is (Waeber, Frazier and Henderson, "Bisection search with noisy responses",
    SIAM J. Control Optim. 51 (2013) 2261–2279), with counts in place of yes and no. The next rate is the one that a
    load holds as likely as not: the median of the posterior of the boot's capacity, and above it the room that such a
    load has. At the capacity itself nearly all short loads would hold, and show little. One load decides nothing:
    rates near that one are loaded again, from both sides. It never goes beyond twice the highest rate that held, and
    goes down until one does. Loads get longer once the capacity is roughly known: 10 times as long as the slowest
    limit, if there is time. More and shorter loads tell more of how pace differs. What a load ends too soon to show,
    the posterior takes off.

Boots
    The figure is the mean of all boots. Each boot's own capacity is drawn to that of the others by what is usual, and
    how much boots differ is a part of the interval; of few boots it is moderated by `Rules.boot_sd`, as in `boots`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from pytest_fileperf.judge.difference import standard_errors
from pytest_fileperf.judge.posterior import BOOT_SD, Posterior, posterior_of, posteriors_of, room_above
from pytest_fileperf.judge.rules import RULES, Rules
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.searched import share_allowed

__all__ = ("CONFIDENCE", "Estimate", "NextLoad", "Search", "estimate", "next_load")

CONFIDENCE = 0.9
SURE = 0.01
"""Deviation of the logarithm of a boot's capacity that ends its search before its time is over."""
AT_CAPACITY = 4
"""One load in four of a boot is at its capacity, for the figures there, once that is roughly known."""
MOST_ROOM = 0.15
"""Of the logarithm. A load far above the capacity takes long to end, as what waits has to be served."""
ROUGH = 0.15
"""Deviation of the logarithm from which on loads are long."""
LEAST_LOADS = 4
"""Fewer loads say little about a boot."""
FEW_BROKEN = 3
"""So many loads may break by a little, one after the other, before the rate is halved."""
NONE_BELOW = 1 / 8
"""No rate holds where two loads of this part of the first rate, or less, do not."""
FIRST = 0.8
"""Of the closed loop's rate: users who come by chance need some room."""
CLIMB = 1.35
"""A second rate where the first one held: above the closed loop's; and twice as high as long as nothing breaks."""
GENERATOR_NEAR = 0.88
"""A rate that held is as high as the generator can go, where it failed at no more than a little above."""
LEAST_LOAD_S, LATENCIES_A_LOAD, EXPECTED_BEYOND, LOADS_A_SEARCH = 1.0, 10, 3, 8
"""A long load's least seconds, times the slowest limit, and requests beyond a limit at capacity; and the share of the
search's time that it takes at most."""
ROUGH_LOAD = 0.7
"""Length of a load before the capacity is roughly known, as a share of a long one's."""
WARMUP_S, LATENCIES_A_WARMUP, LONGEST_WARMUP = 0.3, 4, 0.3
FITS = 0.6
"""A load may be this much shorter than it should be, to fit into the time that is left."""

MOST_MORE = 1.5
"""A boot's own loads show so much less at the most, as a factor of the variance: of few loads nothing can be said."""
_DEVIATIONS_90 = 2.0
"""More than the 1.64 of a normal distribution: of simulated searches 89 to 100 % then hold the truth, but for those
of a server with a heavy tail."""


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
    """That of each boot, by what all of them show; their mean is `mean`."""
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
    search: Search, seen: Sequence[RateTried], *, left_s: float, boot: int = 0
) -> NextLoad | CapacityEnd | None:
    """Returns the next load; why there is none, for any boot; or None where there is none for this one.

    `left_s` is the time left for this boot.
    """
    told = _told(seen)
    if (ended := _ended(search, seen)) is not None:
        return ended
    rate, rough = search.start * FIRST, True
    if told:
        known = posterior_of(told, _broken(search, told), start=search.start, boot=boot)
        own = sum(load.boot == boot for load in told)
        if known.sd <= SURE and own >= LEAST_LOADS:
            return None
        rough = known.sd > ROUGH
        rate = math.exp(known.median)
        if rough or own % AT_CAPACITY:
            rate = _as_likely_as_not(search, told, known, _load(search, rate, rough=rough), boot)
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
    broken, start = _broken(search, told), search.start
    known = posteriors_of(told, broken, start=start, boots=sorted({load.boot for load in told}))
    medians = {name: posterior_of(told, {name: limit}, start=start).median for name, limit in broken.items()}
    has_broken = any(not load.holds for load in told)
    return Estimate(
        mean=fmean(one.median for one in known.values()),
        sd=math.sqrt(fmean(_own_variance(one) for one in known.values()) / len(known)),
        boots={boot: one.median for boot, one in known.items() if boot is not None},
        broken=min(medians, key=medians.__getitem__) if has_broken else "",
    )


def _own_variance(known: Posterior) -> float:
    """Returns the variance of what a boot's own loads show: they and the other boots together show more."""
    own = 1 / max(known.sd, 1e-6) ** 2 - 1 / BOOT_SD**2
    return min(1 / own if own > 0 else math.inf, MOST_MORE * known.sd**2)


def _told(seen: Sequence[RateTried]) -> tuple[RateTried, ...]:
    """Returns the loads that say something about the server."""
    return tuple(load for load in seen if load.made and not load.by_generator)


def _ended(search: Search, seen: Sequence[RateTried]) -> CapacityEnd | None:
    told, held = _told(seen), _highest_held(seen)
    if held is None:
        low = [load for load in told if not load.holds and load.rate <= search.start * NONE_BELOW]
        return CapacityEnd.NO_RATE if len(low) > 1 else None
    broken = any(not load.holds for load in told)
    if not broken and sum(rate <= held / GENERATOR_NEAR for rate in _too_high_to_make(seen)) > 1:
        return CapacityEnd.GENERATOR
    return None


def _too_high_to_make(seen: Sequence[RateTried]) -> list[float]:
    """Returns the rates that the generator missed, above all that it made. Lower ones it missed by chance."""
    made = max((load.rate for load in _told(seen)), default=0.0)
    return [load.rate for load in seen if load.by_generator and load.rate > made]


def _highest_held(seen: Sequence[RateTried]) -> float | None:
    return max((load.rate for load in _told(seen) if load.holds), default=None)


def _as_likely_as_not(search: Search, told: Sequence[RateTried], known: Posterior, load: NextLoad, boot: int) -> float:
    """Returns the rate at which half of such loads hold all limits: that of the limit which breaks first."""
    broken, made = _broken(search, told), max(1, round(load.rate * load.seconds))
    logs = [
        (known if len(broken) == 1 else posterior_of(told, {name: limit}, start=search.start, boot=boot)).median
        + min(room_above(name, limit, made, load.seconds), MOST_ROOM)
        for name, limit in broken.items()
    ]
    return math.exp(min(logs))


def _within_reach(rate: float, seen: Sequence[RateTried], told: Sequence[RateTried]) -> float:
    """Returns the rate, or what of it can be reached from rates that held, and below where the generator failed."""
    held = _highest_held(seen)
    if held is not None and all(load.holds for load in told):
        rate = held * (CLIMB if len(told) == 1 else 2)
    elif held is not None:
        rate = min(rate, 2 * held)
    elif told:
        lowest = min(told, key=lambda load: load.rate)
        far = any(2 * count > lowest.made for count in lowest.beyond.values())
        rate = min(rate, lowest.rate * (1 / 2 if len(told) > (1 if far else FEW_BROKEN) else FIRST))
    if limited := _too_high_to_make(seen):
        low = min(limited)
        rate = min(rate, low / 2 if held is None else math.sqrt(held * low) if held < low else low)
    return rate


def _load(search: Search, rate: float, *, rough: bool) -> NextLoad:
    least = min(share_allowed(name, limit) for name, limit in search.limits.items() if name != "max_error_rate")
    long_s = max(LEAST_LOAD_S, LATENCIES_A_LOAD * search.slowest_s, EXPECTED_BEYOND / least / rate)
    seconds = min(long_s, search.total_s / LOADS_A_SEARCH) * (ROUGH_LOAD if rough else 1.0)
    warmup_s = min(max(WARMUP_S, 0.0 if rough else LATENCIES_A_WARMUP * search.slowest_s), LONGEST_WARMUP * seconds)
    return NextLoad(rate=rate, warmup_s=warmup_s, seconds=max(seconds, 1 / rate))


def _broken(search: Search, told: Sequence[RateTried]) -> Mapping[str, float]:
    """Returns the limits that some load broke: how far off others are cannot be known. All of them where none did."""
    broken = {
        name: limit
        for name, limit in search.limits.items()
        if any(load.beyond[name] > share_allowed(name, limit) * load.made for load in told)
    }
    return broken or search.limits
