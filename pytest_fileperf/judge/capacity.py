"""Searches for the highest rate at which a server meets its limits. From the loads so far it chooses the next load.

Search
    After each load, the search knows how likely each capacity is (the posterior). The next load gets the rate at which
    half of such loads would meet the limits, because its result shows most. This rate is the posterior's median, plus
    the room from `room_of`: at the capacity itself, nearly all short loads would meet the limits.
    This resembles probabilistic bisection (Waeber, Frazier and Henderson, "Bisection search with noisy responses", SIAM
    J. Control Optim. 51 (2013) 2261–2279), with counts in place of yes and no.
    One load decides nothing: rates near it are loaded again, from both sides. The search never goes beyond twice the
    highest rate that met the limits, and goes down until a rate meets them. Once the capacity is roughly known, loads
    get longer: 10 times the longest latency limit, if there is time. This has a cost: more
    and shorter loads would show better how the server's speed varies.
    A load may end before a limit breaks, although more and more requests wait. Such a load meets no limit.

Start-ups
    The figure is the mean over all start-ups. Start-ups usually differ little, so each one's capacity is drawn towards
    the others' capacities. The interval includes the spread between start-ups. With few start-ups, the usual spread
    (`Rules.boot_sd`) also counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.difference import moderated, standard_errors
from pytest_fileperf.judge.rules import RULES, SEARCH, usual_sd
from pytest_fileperf.measure.backlog import backlog_growth
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.measurement import SATURATED_CPU_SHARE
from pytest_fileperf.measure.metrics import percent_of, share_allowed
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import busiest_share


def tried_of(rate: float, recording: Recording, limits: Mapping[str, float]) -> RateTried:
    """Returns the result of a load at this rate. `limits` contains at least one latency limit."""
    latency, service = recording.latency(), recording.merged("service")
    failed = sum(round_.failed for round_ in recording.rounds)
    beyond, within = _beyond(latency, failed, limits)
    leads = recording.boots[0].leads
    growth = 0.0 if leads is None else backlog_growth(leads, rate, errors=SEARCH.backlog_errors)
    falls_behind = within and growth > SEARCH.most_backlog(latency.count)
    # Sending was late if a limit is broken, but would be met if latency counted from the moment of sending. The load
    # generator sends late, or an app in this process keeps the event loop busy. Late sending also causes a backlog of
    # unsent requests. But if all connections were in use, requests waited for a connection, and sending was not late.
    some_free = recording.most_open < recording.connections
    unsent = falls_behind and service.mean_ns() < latency.mean_ns() / 2
    late = some_free and (unsent or (not within and _beyond(service, failed, limits)[1]))
    busy = busiest_share(recording.measured()) > SATURATED_CPU_SHARE
    return RateTried(
        rate=rate,
        boot=recording.boots[0].index,
        seconds=sum(round_.duration_ns for round_ in recording.measured()) / 1e9,
        requests=latency.count,
        failed=failed,
        beyond=beyond,
        holds=within and not falls_behind,
        falls_behind=falls_behind,
        by_generator=recording.engine != "in-process" and (late or busy),
        p50=latency.percentile_ns(50) / 1e9 if latency.count else None,
        p99=latency.percentile_ns(99) / 1e9 if latency.count else None,
    )


def _beyond(latency: Histogram, failed: int, limits: Mapping[str, float]) -> tuple[dict[str, int], bool]:
    """Returns how many requests exceed each limit, by the limit's name, and whether all limits are met.

    A failed request exceeds every limit. Without requests no limit is met.
    """
    found, holds = {}, latency.count > 0
    for name, limit in limits.items():
        percent, share = percent_of(name), latency.share_within(0, limit * 1e9)
        found[name] = failed + (0 if percent is None else round(latency.count * (1 - share)))
        allowed = limit if percent is None else 1 - percent / 100
        holds = holds and found[name] <= allowed * (latency.count + failed)
        # The measured percentile must itself meet its limit, as in a verdict.
        holds = holds and (percent is None or latency.percentile_ns(percent) / 1e9 <= limit)
    return found, holds


# --- How likely each capacity of a server is, from its loads
#
# Model
#     In a load, some share of the requests is beyond a limit: slower than it, or failed. The share grows with the rate:
#     logit share = logit allowed + slope · log(rate / pace).
#     Each load has its own pace: log pace = log capacity + room + chance. The room is in `room_of`. Chance is normal,
#     around 0 for each start-up. Other work on the machine makes a server slower in some loads, by an unknown amount.
#     Requests also come closer together in some loads, which makes a server look slower by a known amount (`_crowds`).
#     Start-ups differ, and a few (`apart`) may have any capacity.
#     The count of requests beyond is beta-binomial, because requests in the same queue are slow together.
#     If the machine stood still for a moment, requests are beyond the limit at any rate: more often few than many, and
#     at most a fifth. A few loads (`odd_loads`) say nothing for other reasons.
#     Unknown are the slope, how much requests are slow together, the spread of the pace, and whether the machine stands
#     still. The posterior covers a grid of them.
#
# Short loads
#     A load may be over before its backlog reaches the limit. Then its counts say nothing. If it falls behind, the
#     server's pace is below its rate by an unknown amount. If it does not, the pace is at most as far below the rate as
#     chance can hide (`most_backlog`). If it breaks the limit, the backlog grew fast enough for that. The number of
#     requests beyond then only shows how early that was, not the slope that longer loads show.
#
# Capacity
#     The server's pace comes from the middle load: half of the loads find it faster. The capacity is the rate at which
#     theory puts the allowed share of requests beyond the limit, at that pace. The middle load, as in MLRsearch
#     (draft-ietf-bmwg-mlrsearch; FD.io lets half of the trials exceed a limit), because a minute has enough loads to
#     know it. The slowest tenth would be one or two loads. With several limits, the lowest capacity counts.

_STEP = 0.006
"""Distance between two neighbouring log rates that are possible capacities. A search's result is much less exact."""
_SLOPES, _SLOPE_WEIGHTS = np.array(SEARCH.slopes).T
_TOGETHER, _STALLED = np.array(SEARCH.together).T
_SHAPE = (len(SEARCH.pace_sds), len(SEARCH.together), len(SEARCH.slopes))

Grid: TypeAlias = tuple[float, int, int]
"""(start, low, high): the possible capacities go from start · 2^low to start · 2^high, in requests/s."""
_Array: TypeAlias = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Posterior:
    """How likely each capacity of a server is."""

    logs: _Array
    """Logarithms of the possible capacities, ascending."""
    shares: _Array
    """The probability of each capacity in `logs`, in the same order; sum 1."""

    @property
    def median(self) -> float:
        """The median of the capacity's logarithm. A mean would move if one start-up is far from all others."""
        return self.quantile(0.5)

    @property
    def sd(self) -> float:
        """Half the width of the 68 % interval of the capacity's logarithm. Unlikely values far off don't change it."""
        return (self.quantile(0.84) - self.quantile(0.16)) / 2

    def quantile(self, share: float) -> float:
        """Returns the log rate below which the capacity lies with the probability `share`."""
        return float(np.interp(share, np.cumsum(self.shares) - self.shares / 2, self.logs))


def posterior_of(
    loads: Sequence[RateTried], limits: Mapping[str, float], *, start: float, boot: int | None = None
) -> Posterior:
    """Returns how likely each capacity of a start-up is. There must be at least one load.

    `boot` is the start-up's number, or None for a start-up that has no loads yet. `limits` are in SI units, by name.
    `start` is the rate that a closed loop reached, in requests/s.
    """
    return posteriors_of(loads, limits, start=start, boots=(boot,))[boot]


def posteriors_of(
    loads: Sequence[RateTried], limits: Mapping[str, float], *, start: float, boots: Sequence[int | None]
) -> dict[int | None, Posterior]:
    """Returns the result of `posterior_of` for each number in `boots`."""
    powers = [math.log2(load.rate / start) for load in loads]
    # From half of the lowest rate to twice the highest.
    grid = start, math.floor(min(powers)) - 1, math.ceil(max(powers)) + 1
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
    """Yields each start-up's number and the probability of each capacity, by the limit `name` alone."""
    logs, allowed = _logs(grid), share_allowed(name, limit)
    seen: dict[int, _Array] = {}
    for load in loads:
        # The rate that was asked for, not the one that came by chance. The latter would make the capacity too high and
        # look too certain. That such rates come now and then is part of the capacity's meaning.
        broke = load.beyond[name] > allowed * load.made
        above, crowds, short = room_of(name, limit, load.made, load.seconds, broke=broke)
        far = load.falls_behind or (short and load.beyond[name] > SEARCH.longest_stall * load.made)
        beyond = None if far and percent_of(name) is not None else load.beyond[name]
        likely = _likelihood(math.log(load.rate) - above, load.made, beyond, allowed, crowds, grid)
        seen[load.boot] = seen[load.boot] + likely if load.boot in seen else likely
    off = (logs - math.log(grid[0]) - SEARCH.expected) / SEARCH.expected_sd
    expected = np.log(np.exp(-0.5 * off**2) + SEARCH.elsewhere)
    expected = np.log(_SLOPE_WEIGHTS)[:, None] + expected + np.zeros((*_SHAPE, 1))
    of_all = {number: _of_others(likely) for number, likely in seen.items() if boots != (number,)}
    for boot in boots:
        known = expected + sum(likely for number, likely in of_all.items() if number != boot)
        if boot is not None:
            known = _of_others(known) + seen.get(boot, 0.0)
        shares = np.exp(known - known.max()).sum(axis=(0, 1, 2))
        yield boot, np.asarray(shares / shares.sum())


def _of_others(logs: _Array) -> _Array:
    """Returns one start-up's log likelihoods, made less certain for use with other start-ups."""
    likely, most = _likely(logs)
    (near,) = _blurred(likely, SEARCH.boot_sd)
    return np.asarray(np.log((1 - SEARCH.apart) * near + SEARCH.apart * likely.mean(axis=-1, keepdims=True)) + most)


@lru_cache(maxsize=512)
def _likelihood(at: float, made: int, beyond: int | None, allowed: float, crowds: float, grid: Grid) -> _Array:
    """Returns the log likelihood of one load's result, for each combination of four unknowns.

    The axes are `SEARCH.pace_sds`, `SEARCH.together`, `SEARCH.slopes` and the possible rates. Of `made` requests,
    `beyond` exceeded the limit, and a share `allowed` may. If `beyond` is None, the load only shows that its rate was
    too high. `at` is the load's log rate without the room from `room_of`.
    """
    from scipy.special import expit, gammaln

    above = at - _logs(grid)
    stalled = _STALLED[:, None, None]
    if beyond is None:
        impossible = math.log(1e-290)  # rounded to 0 as a likelihood
        chance = np.where(above > 0, 0.0, impossible) + np.zeros((*_SHAPE[1:], 1))
        none = SEARCH.odd_loads / 2 * np.ones_like(stalled)
    else:
        logits = math.log(allowed / (1 - allowed)) + _SLOPES[:, None] * above
        share = expit(np.clip(logits, -18.0, 18.0))  # neither 0 nor 1
        weight = (1 / _TOGETHER - 1)[:, None, None]
        slow, fast = share * weight, (1 - share) * weight
        ways = math.lgamma(made + 1) - math.lgamma(beyond + 1) - math.lgamma(made - beyond + 1)
        chance = gammaln(beyond + slow) - gammaln(slow) + gammaln(made - beyond + fast) - gammaln(fast)
        chance += gammaln(weight) - gammaln(made + weight) + ways
        # If the machine stood still, each order of magnitude is equally likely, from one request on.
        longest = max(1.0, SEARCH.longest_stall * made)
        in_stall = 1 / (beyond * (1 + math.log(longest))) if 0 < beyond <= longest else 0.0
        none = SEARCH.odd_loads / (made + 1) + stalled * in_stall
    likely, most = _likely(chance)
    each = _blurred(likely, *(math.hypot(sd, crowds) for sd in SEARCH.pace_sds))
    found: _Array = np.log((1 - SEARCH.odd_loads - stalled) * np.exp(most) * each + none).astype(np.float32)
    return found


def _crowds(made: int) -> float:
    """Returns how much the rate that a server keeps up with varies by chance between loads of `made` requests.

    This is a standard deviation, in log rate. The cause is that requests come closer together in some loads.
    """
    return min(SEARCH.crowding / math.sqrt(made), SEARCH.most_crowding)


def room_of(name: str, limit: float, made: int, seconds: float, *, broke: bool = False) -> tuple[float, float, bool]:
    """Returns (room, deviation, whether it is short) for a load of `made` requests that takes `seconds`.

    The rate that a server keeps up with varies between loads. The room is how far this rate lies above the capacity in
    the median load. The deviation is its standard deviation. Both are logarithms. A short load ends before a visible
    backlog reaches the limit. If it `broke` the limit, its rate was far above the capacity.

    The median load has room because a few crowded loads have most of the slow requests. An example is a p99 limit at
    the capacity. In one of ten loads, a tenth of the requests exceeds the limit. This is 1 % of all requests, so the
    limit is just met. But the other nine loads meet it with room. (With M/D/1 and a p99 of 100 ms, 92 % of loads meet
    it.)
    """
    if percent_of(name) is None:
        return 0.0, _crowds(made), False  # failures need no queue
    held = max(0.5, 1 - math.sqrt(share_allowed(name, limit)))
    by_chance = SEARCH.middle_room * _crowds(made) * NormalDist().inv_cdf(held)
    breaks, falls_behind = SEARCH.visible_growth * limit / max(seconds, limit), math.log1p(SEARCH.most_backlog(made))
    if breaks <= falls_behind:
        return max(by_chance, breaks), _crowds(made), False
    if broke:
        return max(by_chance, math.log1p(breaks)), _crowds(made), True
    return max(by_chance, falls_behind), SEARCH.crowding / math.sqrt(made), True


def _likely(logs: _Array) -> tuple[_Array, _Array]:
    """Returns likelihoods, and each row's greatest log likelihood. Rows are scaled to a greatest likelihood of 1."""
    most = logs.max(axis=-1, keepdims=True).astype(np.float64)
    return np.exp(logs - most), most


def _blurred(likely: _Array, *sds: float) -> _Array:
    """Returns copies of `likely`, one for each of `sds`, on a new first axis.

    Each copy is smoothed along the rates, the last axis. `sds` are the standard deviations of this smoothing, in log
    rate.
    """
    reach = math.ceil(4 * max(sds) / _STEP)
    padded = np.pad(likely, [(0, 0)] * (likely.ndim - 1) + [(reach, reach)], mode="edge")
    size = -(-padded.shape[-1] // 64) * 64  # a product of small numbers, for speed
    waves = np.fft.rfft(padded, size)
    bells = [np.exp(-2 * (math.pi * sd / _STEP * np.fft.rfftfreq(size)) ** 2) for sd in sds]
    blurred = [np.fft.irfft(waves * bell, size)[..., reach : reach + likely.shape[-1]] for bell in bells]
    return np.maximum(blurred, 0.0)  # because of rounding


@lru_cache(maxsize=16)
def _logs(grid: Grid) -> _Array:
    start, low, high = grid
    return math.log(start) + np.arange(low * math.log(2), high * math.log(2), _STEP)


# --- The search


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    limits: Mapping[str, float]
    """The limits in SI units, by name such as `max_p99`. At least one of them limits a latency."""
    start: float
    """The rate that a closed loop reached, in requests/s. The first load has a rate near it."""
    total_s: float

    @property
    def slowest_s(self) -> float:
        return max((limit for name, limit in self.limits.items() if name != "max_error_rate"), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLoad:
    rate: float
    warmup_s: float
    seconds: float
    """The load's duration without its warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimated capacity. All values are logarithms of rates."""

    mean: float
    sd: float
    """Standard error of `mean`, without the differences between start-ups."""
    boots: Mapping[int, float]
    """Each start-up's capacity, by its number. `mean` is their mean."""
    broken: str
    """Name of the limit that breaks first as the rate grows; empty if no load broke a limit."""

    def margin(self, stabilised: Iterable[str]) -> float:
        """Returns half the width of the interval around `mean`, at `Rules.confidence`.

        It includes the spread between start-ups. `stabilised` names the sources of chance that were fixed in all
        start-ups, such as `hash seed`.
        """
        df = RULES.boot_prior_df + len(self.boots) - 1
        squares = math.fsum((value - self.mean) ** 2 for value in self.boots.values())
        usual = usual_sd(RULES.boot_sd, stabilised) ** 2
        between = moderated(squares, len(self.boots) - 1, usual=usual, weight=RULES.boot_prior_df)
        of_boots = standard_errors(RULES.bound_error, df) * math.sqrt(between / len(self.boots))
        return math.hypot(SEARCH.deviations * self.sd, of_boots)


def next_load(
    search: Search, seen: Sequence[RateTried], *, left_s: float, boot: int = 0
) -> NextLoad | CapacityEnd | None:
    """Returns the start-up's next load, or why the whole search has ended.

    Returns None if this start-up needs no more loads, or if `left_s` is too short for another load. `seen` contains all
    loads so far.
    """
    told = _told(seen)
    if (ended := _ended(search, seen)) is not None:
        return ended
    rate, rough = search.start * SEARCH.first, True
    if told:
        known = posterior_of(told, _broken(search, told), start=search.start, boot=boot)
        own = sum(load.boot == boot for load in told)
        if known.sd <= SEARCH.sure_sd and own >= SEARCH.least_loads:
            return None
        rough = known.sd > SEARCH.rough_sd
        rate = math.exp(known.median)
        if rough or own % SEARCH.at_capacity:
            rate = _as_likely_as_not(search, told, known, _load(search, rate, rough=rough), boot)
    load = _load(search, _within_reach(rate, seen, told), rough=rough)
    took_s = load.warmup_s + load.seconds
    if took_s <= left_s or not seen:
        return load
    if took_s * SEARCH.fits > left_s:
        return None
    return NextLoad(rate=load.rate, warmup_s=load.warmup_s, seconds=left_s - load.warmup_s)


def estimate(search: Search, seen: Sequence[RateTried]) -> Estimate | None:
    """Returns the estimated capacity. None if no load in `seen` is usable."""
    told = _told(seen)
    if not told:
        return None
    broken, start = _broken(search, told), search.start
    known = posteriors_of(told, broken, start=start, boots=sorted({load.boot for load in told}))
    medians = {name: posterior_of(told, {name: limit}, start=start).median for name, limit in broken.items()}
    has_broken = any(not load.holds for load in told)
    variances = []
    for one in known.values():  # these loads alone; together with the other start-ups they show more
        own = 1 / max(one.sd, 1e-6) ** 2 - 1 / SEARCH.boot_sd**2
        variances.append(min(1 / own if own > 0 else math.inf, SEARCH.most_variance * one.sd**2))
    return Estimate(
        mean=fmean(one.median for one in known.values()),
        sd=math.sqrt(fmean(variances) / len(known)),
        boots={boot: one.median for boot, one in known.items() if boot is not None},
        broken=min(medians, key=medians.__getitem__) if has_broken else "",
    )


def _told(seen: Sequence[RateTried]) -> tuple[RateTried, ...]:
    """Returns the usable loads: they have requests, and the load generator was fast enough."""
    return tuple(load for load in seen if load.made and not load.by_generator)


def _ended(search: Search, seen: Sequence[RateTried]) -> CapacityEnd | None:
    told, held = _told(seen), _highest_held(seen)
    if held is None:
        low = [load for load in told if not load.holds and load.rate <= search.start * SEARCH.none_below]
        return CapacityEnd.NO_RATE if len(low) > 1 else None
    broken = any(not load.holds for load in told)
    if not broken and sum(rate <= held / SEARCH.generator_near for rate in _too_high_to_make(seen)) > 1:
        return CapacityEnd.GENERATOR
    return None


def _too_high_to_make(seen: Sequence[RateTried]) -> list[float]:
    """Returns the rates that were too high for the load generator.

    If it made a higher rate, it failed only by chance.
    """
    made = max((load.rate for load in _told(seen)), default=0.0)
    return [load.rate for load in seen if load.by_generator and load.rate > made]


def _highest_held(seen: Sequence[RateTried]) -> float | None:
    return max((load.rate for load in _told(seen) if load.holds), default=None)


def _as_likely_as_not(search: Search, told: Sequence[RateTried], known: Posterior, load: NextLoad, boot: int) -> float:
    """Returns the rate at which half of the loads like `load` would meet the limit that breaks first."""
    broken, made = _broken(search, told), max(1, round(load.rate * load.seconds))
    logs = [
        (known if len(broken) == 1 else posterior_of(told, {name: limit}, start=search.start, boot=boot)).median
        + min(room_of(name, limit, made, load.seconds)[0], SEARCH.most_room)
        for name, limit in broken.items()
    ]
    return math.exp(min(logs))


def _within_reach(rate: float, seen: Sequence[RateTried], told: Sequence[RateTried]) -> float:
    """Returns the rate to try next: `rate`, or a rate that is nearer to earlier loads."""
    held = _highest_held(seen)
    if held is not None and all(load.holds for load in told):
        rate = held * (SEARCH.climb if len(told) == 1 else 2)
    elif held is not None:
        rate = min(rate, 2 * held)
    elif told:
        lowest = min(told, key=lambda load: load.rate)
        far = any(2 * count > lowest.made for count in lowest.beyond.values())
        rate = min(rate, lowest.rate * (1 / 2 if len(told) > (1 if far else SEARCH.few_broken) else SEARCH.first))
    if limited := _too_high_to_make(seen):
        low = min(limited)
        rate = min(rate, low / 2 if held is None else math.sqrt(held * low) if held < low else low)
    return rate


def _load(search: Search, rate: float, *, rough: bool) -> NextLoad:
    least = min(share_allowed(name, limit) for name, limit in search.limits.items() if name != "max_error_rate")
    long_s = max(SEARCH.least_load_s, SEARCH.latencies_a_load * search.slowest_s, SEARCH.beyond_a_load / least / rate)
    seconds = min(long_s, search.total_s / SEARCH.loads_a_search) * (SEARCH.rough_load if rough else 1.0)
    warmup_s = SEARCH.warmup_s if rough else max(SEARCH.warmup_s, SEARCH.latencies_a_warmup * search.slowest_s)
    warmup_s = min(warmup_s, SEARCH.longest_warmup * seconds)
    return NextLoad(rate=rate, warmup_s=warmup_s, seconds=max(seconds, 1 / rate))


def _broken(search: Search, told: Sequence[RateTried]) -> Mapping[str, float]:
    """Returns the limits that some load broke, or all limits if none was broken.

    Only a broken limit shows how near the capacity is. If a load fell behind, all latency limits count as broken.
    """
    behind = any(load.falls_behind for load in told)
    broken = {
        name: limit
        for name, limit in search.limits.items()
        if (behind and percent_of(name) is not None)
        or any(load.beyond[name] > share_allowed(name, limit) * load.made for load in told)
    }
    return broken or search.limits
