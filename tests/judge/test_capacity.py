"""The search for the capacity finds what is known: on simulated queues, with their noise, in the time there is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from judge.sides import known
from measure.recordings import SECOND, alike
from numpy.typing import NDArray

from pytest_fileperf.judge.capacity import (
    Estimate,
    NextLoad,
    Posterior,
    Search,
    estimate,
    next_load,
    posterior_of,
    tried_of,
)
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, Failure, LeadTimes, Phase, Recording, Round
from pytest_fileperf.measure.tally import Leads
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import instants, place_of
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.settings.plans import Plan
from pytest_fileperf.settings.settings import Settings

Array: TypeAlias = NDArray[np.float64]
Server: TypeAlias = Callable[[Array, np.random.Generator], Array]
"""Returns how long requests take that are due at these seconds; infinite for one that fails."""

STABILISED = ("hash seed", "addresses")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


def one_after_the_other(service_s: Array, due: Array) -> Array:
    """Returns the latencies of a queue with one server (Lindley's recursion, as running maximum)."""
    work = np.cumsum(service_s)
    return np.maximum.accumulate(due - (work - service_s)) + work - due


def fixed(service_s: float) -> Server:
    """M/D/1 where requests come by chance: every request takes as long, one after the other."""
    return lambda due, rng: one_after_the_other(np.full(due.size, service_s), due)


def exponential(service_s: float) -> Server:
    """M/M/1: requests take times that have nothing to do with each other, one after the other."""
    return lambda due, rng: one_after_the_other(rng.exponential(service_s, due.size), due)


def at_once(mean_s: float) -> Server:
    """Requests take such times, all at the same time: no rate is too high."""
    return lambda due, rng: rng.exponential(mean_s, due.size)


def varying(service_s: float, sigma: float) -> Server:
    """M/G/1: requests take different times, one after the other."""
    return lambda due, rng: one_after_the_other(service_s * rng.lognormal(-(sigma**2) / 2, sigma, due.size), due)


def uneven(server: Server, sd: float) -> Server:
    """A server that is slower or faster in each load by chance; `sd` is that of the logarithm."""

    def latencies(due: Array, rng: np.random.Generator) -> Array:
        slower = math.exp(rng.normal(0, sd))
        return server(due / slower, rng) * slower

    return latencies


def refusing(service_s: float, most_waiting: int) -> Server:
    """A queue that refuses what finds so many requests before it."""

    def latencies(due: Array, rng: np.random.Generator) -> Array:
        free, taken = 0.0, []
        for at in due:
            if free - at > most_waiting * service_s:
                taken.append(math.inf)
                continue
            free = max(free, at) + service_s
            taken.append(free - at)
        return np.array(taken)

    return latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What a search found."""

    rate: float
    low: float
    high: float
    tried: Sequence[RateTried]
    ended: CapacityEnd | None
    broken: str


def searched(
    server: Server,
    limits: Mapping[str, float],
    rng: np.random.Generator,
    *,
    start: float,
    total_s: float = 54.0,
    boots_off: Sequence[float] = (1.0, 1.0, 1.0),
    generator_most: float = math.inf,
    stalled: Sequence[int] = (),
) -> Searched:
    """Searches as a session does; `boots_off` is how much slower each boot is, `stalled` the loads that stand still."""
    chance, first_place = random.Random(int(rng.integers(1 << 31))), float(rng.random())
    settings = Settings(capacity=True, limits=limits, search_connections=1, timeout_ns=1)
    plan = Plan(test=TEST, work=Operation(method="GET", url="/"), settings=settings, app=None)
    search, seen, used_s = Search(limits=limits, start=start, total_s=total_s), list[RateTried](), 0.9
    ended: CapacityEnd | None = None
    for boot, off in enumerate(boots_off):
        while ended is None:
            left_s = total_s * (boot + 1) / len(boots_off) - used_s
            following = next_load(search, seen, left_s=left_s, boot=boot)
            if isinstance(following, CapacityEnd):
                ended = following
            if not isinstance(following, NextLoad):
                break
            place = place_of(len(seen), first_place)
            made = plan.search_load(following, chance=chance, place=place, busy_rate=start)
            load, took_s = loaded(server, made, rng, boot=boot, off=off, stall=len(seen) in stalled)
            tried = tried_of(following.rate, load, limits)
            seen.append(replace(tried, by_generator=following.rate > generator_most))
            used_s += took_s
    found = None if ended is CapacityEnd.NO_RATE else estimate(search, seen)
    if found is None:
        return Searched(rate=0.0, low=0.0, high=0.0, tried=seen, ended=ended, broken="")
    rate, margin = math.exp(found.mean), math.exp(found.margin(STABILISED))
    return Searched(rate=rate, low=rate / margin, high=rate * margin, tried=seen, ended=ended, broken=found.broken)


def loaded(
    server: Server, load: LoadPlan, rng: np.random.Generator, *, boot: int = 0, off: float = 1.0, stall: bool = False
) -> tuple[Recording, float]:
    """Returns what a load shows, and how many seconds it takes."""
    assert load.rate is not None
    assert load.seed is not None
    due = instants(load.rate, load.duration_ns, load.seed) / 1e9
    due = due if due.size else np.zeros(1)
    latency = server(due / off, rng) * off
    ends_s = float((due + np.where(np.isinf(latency), 0, latency)).max())
    measured = due >= load.warmup_ns / 1e9
    due, latency = due[measured] - load.warmup_ns / 1e9, latency[measured]
    if stall:
        latency[: latency.size // 5] += 1.0
    good = np.isfinite(latency)
    taken = Histogram.of((latency[good] * 1e9).astype(np.int64))
    failed = latency.size - taken.count
    whole = Round(
        boot=boot,
        index=0,
        phase=Phase.ROUND,
        started_ns=load.warmup_ns,
        ended_ns=load.duration_ns,
        requests=taken.count,
        latency=taken,
        service=taken,
        ttfb=taken,
        bytes_sent=0,
        bytes_received=0,
        failures=(Failure(kind="status 503", count=failed, example=""),) if failed else (),
    )
    leads = _leads(due[good], latency[good], load.duration_ns - load.warmup_ns)
    recording = Recording(
        rounds=(whole,), boots=(Boot(index=boot, leads=leads),), connections=1, engine="replay", open_loop=True
    )
    return recording, 0.06 + max(load.duration_ns / 1e9, ends_s)


def _leads(due: Array, latency: Array, span_ns: int) -> LeadTimes | None:
    due_ns, latency_ns = (tuple((column * 1e9).astype(np.int64).tolist()) for column in (due, latency))
    leads = Leads(0, span_ns)
    leads.add(LeadTimes(due_ns=due_ns, counts=(1,) * len(due_ns), mean_ns=latency_ns, max_ns=latency_ns))
    return leads.taken()


LIMITS = {"max_p99": 0.1, "max_error_rate": 0.001}
SEARCHES = 2
SHARP = varying(0.0008, 0.2)
"""A server that is well up to its capacity, and falls behind right above it."""


OF_FIXED, OF_SHARP = 178.2, 1226.0
"""The rates at which 1 % of 300,000 requests take more than 0.1 s: for M/D/1 to 0.5 % of what theory says."""


@pytest.mark.parametrize(
    "server, capacity, start, boots_sd, stalled, near",
    [
        (fixed(0.005), OF_FIXED, 200.0, 0.0, (4,), 0.08),
        (uneven(SHARP, 0.03), OF_SHARP, 1250.0, 0.02, (), 0.05),
    ],
    ids=["the machine stands still in one load", "loads and boots differ"],
)
def test_the_capacity_is_found_and_its_interval_holds_it(
    server: Server, capacity: float, start: float, boots_sd: float, stalled: tuple[int, ...], near: float
) -> None:
    """So it was in all of 100 searches of both kinds."""
    found = []
    for seed in range(SEARCHES):
        rng = np.random.default_rng(seed)
        boots_off = rng.lognormal(0, boots_sd, 3).tolist()
        first = start * rng.lognormal(0, 0.1)
        found.append(searched(server, LIMITS, rng, start=first, boots_off=boots_off, stalled=stalled))
    assert all(abs(one.rate / capacity - 1) < near for one in found)
    assert all(one.low <= capacity <= one.high for one in found)
    assert np.median([one.rate for one in found]) == pytest.approx(capacity, rel=near / 2)
    assert {one.broken for one in found} == {"max_p99"}


def search(server: Server, *, start: float, **how: Any) -> Searched:
    return searched(server, LIMITS, np.random.default_rng(1), start=start, **{"total_s": 27.0, **how})


@pytest.mark.parametrize(
    "server, start, low, high, broken",
    [
        pytest.param(fixed(0.002), 25.0, 440, 520, "max_p99", id="the closed loop said far too little"),
        pytest.param(refusing(0.005, 4), 200.0, 0, 160, "max_error_rate", id="failed requests limit it"),
        # Loads are over before a backlog of 4 % reaches the limit.
        pytest.param(fixed(0.0002), 4500.0, 4750, 5100, "max_p99", id="a fast server falls behind"),
    ],
)
def test_a_search_ends_at_the_rate(server: Server, start: float, low: float, high: float, broken: str) -> None:
    found = search(server, start=start)
    assert low < found.rate < high
    assert found.broken == broken


def test_a_boot_that_is_far_from_the_others_is_found_for_itself() -> None:
    found = search(SHARP, start=1250.0, boots_off=(1, 1.8, 1))
    assert found.rate == pytest.approx(OF_SHARP * (1 + 1 / 1.8 + 1) / 3, rel=0.08)


def test_a_search_ends_soon_where_no_rate_holds_and_where_it_is_sure() -> None:
    none = search(fixed(0.2), start=5.0)
    assert (none.ended, len(none.tried) < 8) == (CapacityEnd.NO_RATE, True)
    sure = search(SHARP, start=1250.0, total_s=200.0, boots_off=(1.0,))
    assert sum(load.seconds for load in sure.tried) < 100


def test_a_rate_that_the_generator_cannot_make_says_nothing_about_the_server() -> None:
    found = search(fixed(0.0001), start=3000.0, generator_most=4000.0)
    assert (found.ended, found.broken) == (CapacityEnd.GENERATOR, "")
    held = max(load.rate for load in found.tried if load.holds and not load.by_generator)
    assert 3400 < held <= 4000


# --- Loads that are over before a growing backlog reaches the limit

LONG = {"max_p90": 0.5, "max_error_rate": 0.001}


@pytest.mark.parametrize("total_s", [4.0, 10.0, 54.0])
def test_a_limit_that_is_longer_than_the_loads_hides_no_backlog(total_s: float) -> None:
    """Theory says 98/s of 100/s."""
    server, found = fixed(0.01), []
    for seed in range(SEARCHES):
        rng = np.random.default_rng(seed)
        found.append(searched(server, LONG, rng, start=100 * rng.lognormal(0, 0.05), total_s=total_s, boots_off=(1.0,)))
    assert all(one.low <= 98 <= one.high for one in found)
    assert np.median([one.rate for one in found]) == pytest.approx(98, rel=0.1)
    assert {one.broken for one in found} == {"max_p90"}


def load_of(server: Server, rate: float, *, requests: int, seed: int) -> Recording:
    """Returns a load with about so many requests, after a warm-up of a quarter of them."""
    round_ns = round(requests / rate * SECOND / 3)
    plan = LoadPlan(
        connections=1, warmup_ns=round_ns * 3 // 4, round_ns=round_ns, rounds=3, timeout_ns=SECOND, rate=rate, seed=seed
    )
    return loaded(server, plan, np.random.default_rng(seed))[0]


def behind(server: Server, rate: float, *, requests: int, loads: int = 300) -> float:
    """Returns the share of loads that fall behind, whose limits all of them hold."""
    seen = [
        tried_of(rate, load_of(server, rate, requests=requests, seed=seed), {"max_p90": 60.0}) for seed in range(loads)
    ]
    assert all(load.holds != load.falls_behind for load in seen)
    return sum(load.falls_behind for load in seen) / loads


@pytest.mark.parametrize("requests", [14, 28, 90])
@pytest.mark.parametrize("server", [fixed(0.01), exponential(0.01), at_once(0.3)], ids=["M/D/1", "M/M/1", "at once"])
def test_a_crowd_that_chance_makes_is_no_backlog(server: Server, requests: int) -> None:
    """The first two can serve 100/s."""
    assert behind(server, 80.0, requests=requests) <= 0.01


@pytest.mark.parametrize("server", [fixed(0.01), exponential(0.01)], ids=["M/D/1", "M/M/1"])
@pytest.mark.parametrize("rate, requests", [(300.0, 28), (200.0, 90), (135.0, 900)])
def test_a_server_that_falls_behind_is_seen_by_few_requests_if_it_lacks_much(
    server: Server, rate: float, requests: int
) -> None:
    assert behind(server, rate, requests=requests, loads=50) >= 0.9


def test_requests_that_were_sent_late_are_no_backlog_of_the_server() -> None:
    sent = load_of(fixed(0.01), 200.0, requests=90, seed=1)
    (whole,) = sent.rounds
    late = replace(sent, rounds=(replace(whole, service=alike(10, whole.requests)),))
    shown = [tried_of(200.0, load, {"max_p90": 60.0}) for load in (sent, late)]
    assert [load.by_generator for load in shown] == [False, True]


# --- The next load


def tried(rate: float, beyond: int, *, boot: int = 0, made: int = 1000, by_generator: bool = False) -> RateTried:
    return RateTried(
        rate=rate,
        boot=boot,
        seconds=5.0,
        requests=made,
        failed=0,
        beyond={"max_p99": beyond, "max_error_rate": 0},
        holds=beyond <= 0.01 * made,
        by_generator=by_generator,
    )


SEARCH = Search(limits=LIMITS, start=200.0, total_s=60.0)


def following(*seen: RateTried, search: Search = SEARCH, left_s: float = 60.0) -> NextLoad:
    found = next_load(search, seen, left_s=left_s)
    assert isinstance(found, NextLoad)
    return found


def test_a_load_is_made_in_the_time_there_is_if_it_is_the_first_or_fits() -> None:
    assert 100 < following(left_s=0.1).rate < 200
    assert next_load(SEARCH, [tried(200, 500), tried(100, 0)], left_s=0.5) is None
    seen = [tried(200, 500), tried(170, 0), tried(185, 9), tried(190, 60), tried(180, 2)]
    whole, cut = following(*seen), following(*seen, left_s=1.5)
    assert whole.seconds > cut.seconds
    assert cut.warmup_s + cut.seconds == pytest.approx(1.5)


def test_a_load_that_the_generator_once_missed_does_not_stop_the_search_below_rates_that_it_made() -> None:
    made = [tried(200, 500), tried(170, 0), tried(185, 3)]
    assert following(*made).rate > 160
    assert following(*made) == following(*made, tried(150, 0, by_generator=True))


@pytest.mark.parametrize("beyond,low,high", [(20, 95, 110), (900, 60, 64)])
def test_as_long_as_nothing_held_a_rate_is_halved_that_broke_by_far_but_not_one_that_broke_by_a_little(
    beyond: int, low: float, high: float
) -> None:
    assert low <= following(tried(160, 900), tried(128, beyond)).rate <= high


FAST = replace(SEARCH, start=2000.0)
CLIMBED = [tried(1000, 0), tried(2000, 900), tried(1500, 0), tried(1900, 500)]


def test_of_four_loads_three_are_above_the_capacity_and_one_is_at_it() -> None:
    """Most loads of a second hold at the capacity: it is over before a small backlog reaches the limit."""
    seen, shares = list(CLIMBED), []
    for _ in range(4):
        capacity = math.exp(known(estimate(FAST, seen)).boots[0])
        shares.append(following(*seen, search=FAST).rate / capacity)
        seen.append(tried(1700, 3))
    assert shares == pytest.approx([1, *[math.exp(0.085)] * 3], abs=0.01)


def test_a_load_with_a_few_failures_does_not_bring_the_next_ones_down_to_the_capacity() -> None:
    """Failures that the capacity is far from do not say where loads tell most."""
    seen = [*CLIMBED, tried(1700, 3)]
    failing = [*seen[:1], replace(seen[1], beyond={"max_p99": 900, "max_error_rate": 2}), *seen[2:]]
    plain, after = (following(*loads, search=FAST) for loads in (seen, failing))
    assert after.rate == pytest.approx(plain.rate, rel=0.03)


def test_where_every_load_breaks_by_a_little_a_search_ends_soon() -> None:
    seen: list[RateTried] = []
    while isinstance(found := next_load(SEARCH, seen, left_s=60.0), NextLoad) and len(seen) < 20:
        seen.append(tried(found.rate, 50))
    assert (found, len(seen) < 9) == (CapacityEnd.NO_RATE, True)


def estimated(*seen: RateTried) -> Estimate:
    return known(estimate(SEARCH, seen))


def test_what_loads_say_of_the_capacity() -> None:
    """A single load that held says little: the rate is loaded again, or rates near it."""
    once = estimated(tried(200, 500), tried(170, 0))
    often = estimated(tried(200, 500), *[tried(170, 0)] * 3, *[tried(180, 40)] * 3)
    assert once.sd > 1.5 * often.sd
    few, more = (estimated(tried(170, 0), *[tried(185, count)] * 3) for count in (5, 200))
    assert more.mean < few.mean
    second = [tried(170, 5, boot=1), tried(180, 100, boot=1), tried(190, 600, boot=1)]
    boots = estimated(tried(180, 0), tried(190, 5), tried(200, 100), *second)
    assert boots.boots[0] > boots.mean > boots.boots[1]
    assert boots.margin(()) > boots.margin(("hash seed", "addresses"))
    assert estimate(SEARCH, ()) is None


# --- How likely each capacity is: more loads say more, odd ones little, and boots are thought to be alike


P99 = {"max_p99": 0.1}


def load(
    rate: float, beyond: float, *, boot: int = 0, errors: float = 0.0, made: int = 100_000, seconds: float = 30.0
) -> RateTried:
    """Returns a load of which these shares are beyond the limits."""
    counts = dict.fromkeys(("max_p50", "max_p99"), round(beyond * made)) | {"max_error_rate": round(errors * made)}
    return RateTried(
        rate=rate, boot=boot, seconds=seconds, requests=made, failed=0, beyond=counts, holds=beyond <= 0.01
    )


BELOW, ABOVE = load(170, 0.0), load(190, 0.6)


def of(*loads: RateTried, limits: Mapping[str, float] = P99, boot: int | None = None) -> Posterior:
    return posterior_of(loads, limits, start=200.0, boot=boot)


@pytest.mark.parametrize("boot,low,high", [(0, 171, 190), (None, 155, 205), (7, 150, 210)])
def test_capacities_are_likely_between_loads_that_held_and_loads_that_did_not(
    boot: int | None, low: float, high: float
) -> None:
    """That of another boot, or of all boots, is known less."""
    known = of(*[BELOW, ABOVE] * 4, boot=boot)
    assert known.shares.sum() == pytest.approx(1)
    assert all(low < math.exp(log) < high for log in (known.quantile(0.05), known.median, known.quantile(0.95)))


CALM = [BELOW, ABOVE] * 4
SHORT = [load(rate, share, made=1800, seconds=1.0) for rate, share in ((170, 0.0), (190, 0.3))] * 6


@pytest.mark.parametrize(
    "calm, more",
    [
        pytest.param(CALM, [load(120, 0.1)], id="the machine stood still"),
        pytest.param(CALM, [load(120, 0.4)], id="an odd load"),
        pytest.param(
            SHORT, [load(140, at, made=1800, seconds=1.0) for at in (0.02, 0.03, 0.05, 0.08)], id="stalls in many loads"
        ),
    ],
)
def test_loads_that_say_nothing_of_the_server_move_it_by_little(calm: list[RateTried], more: list[RateTried]) -> None:
    assert of(*calm, *more).median == pytest.approx(of(*calm).median, abs=0.03)


def test_more_loads_say_more_and_those_of_few_requests_little() -> None:
    assert of(*[BELOW, ABOVE] * 6).sd < 0.8 * of(BELOW, ABOVE).sd
    for made in (1, 10):
        found = of(load(170, 0.0, made=made), load(190, 1.0, made=made))
        assert found.shares.sum() == pytest.approx(1)
        assert found.sd > 0.05


def test_a_boot_in_which_half_of_the_requests_are_slow_has_no_stalls_but_is_slower() -> None:
    own = [load(rate, share, boot=1, made=1800, seconds=1.0) for rate, share in ((150, 0.6), (135, 0.5), (125, 0.4))]
    assert math.exp(of(*SHORT, *own, boot=1).median) < 125


def test_two_unlucky_loads_do_not_halve_it() -> None:
    """Of a real server: 44 % of requests were beyond, and it bore this rate in all loads that came after."""
    unlucky = [load(276, 0.41, made=3868, seconds=1.4), load(221, 0.446, made=3095, seconds=1.4)]
    assert math.exp(of(*unlucky).median) > 0.8 * 221


@pytest.mark.parametrize("broken,low,high", [(1, 182, 230), (2, 174, 184), (3, 140, 174)])
def test_the_capacity_is_where_half_of_the_loads_hold(broken: int, low: float, high: float) -> None:
    """Of four loads at each rate, so many do not."""
    shares = [0.5] * broken + [0.0] * (4 - broken)
    assert low < math.exp(of(*[load(rate, share) for rate in (178, 180, 182) for share in shares]).median) < high


@pytest.mark.parametrize(
    "limit,beyond,errors,crowds",
    [("max_p99", 0.5, 0.0, True), ("max_p50", 1.0, 0.0, False), ("max_error_rate", 1.0, 0.5, False)],
)
def test_with_few_requests_crowded_loads_count_more_but_not_for_a_median_or_failures(
    limit: str, beyond: float, errors: float, crowds: bool
) -> None:
    """Theory counts the requests of all loads, and most of those beyond a p99 are in crowds."""
    few, many = (
        of(*[load(180, 0.0, made=made), load(180, beyond, errors=errors, made=made)] * 6, limits={limit: 0.05}).median
        for made in (400, 100_000)
    )
    assert few < many - 0.05 if crowds else few == pytest.approx(many, abs=0.02)


def test_of_loads_that_end_before_a_backlog_can_show_capacities_are_lower() -> None:
    short, long = (of(*[load(170, 0.0, seconds=one), load(190, 0.6, seconds=one)] * 6) for one in (1.0, 30.0))
    assert short.median < long.median - 0.05
    # One that ended at once, as of a server that died, counts like one as long as the limit.
    at_once, as_limit = (of(BELOW, load(190, 1.0, seconds=seconds)) for seconds in (0.0, 0.1))
    assert at_once.median == as_limit.median


def test_a_boot_is_thought_to_be_near_the_others_until_its_own_loads_tell() -> None:
    unseen = of(*CALM, boot=1)
    slower = of(*CALM, *[load(140, 0.0, boot=1), load(160, 0.6, boot=1)] * 4, boot=1)
    assert unseen.median == pytest.approx(of(*CALM).median, abs=0.02)
    assert unseen.sd > of(*CALM, boot=0).sd
    assert 140 < math.exp(slower.median) < 160


def test_of_several_limits_the_lowest_counts() -> None:
    loads = [load(170, 0.0, errors=0.2), load(150, 0.0), load(190, 0.6, errors=0.4)] * 3
    both = of(*loads, limits=P99 | {"max_error_rate": 0.001})
    assert both.median < of(*loads).median - 0.05
