"""The search for the capacity finds what is known: on simulated queues, with their noise, in the time there is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from judge.queues import Searched, Server, fixed, refusing, searched, uneven, varying
from judge.sides import known

from pytest_fileperf.judge.capacity import NextLoad, Posterior, Search, estimate, next_load, posterior_of
from pytest_fileperf.measure.capacity import CapacityEnd, RateTried
from pytest_fileperf.measure.metrics import share_allowed

LIMITS = {"max_p99": 0.1, "max_error_rate": 0.001}
SEARCHES = 6
SHARP = varying(0.0008, 0.2)
"""A server that is well up to its capacity, and falls behind right above it."""


def truth_of(server: Server, latency_s: float, share: float, *, high: float) -> float:
    """Returns the rate at which this share of many requests takes longer: for M/D/1 to 0.3 % of what theory says."""
    low, high = high / 10, high
    for _ in range(12):
        rate = (low + high) / 2
        rng = np.random.default_rng(7)
        due = np.sort(rng.uniform(0, 1_000_000 / rate, 1_000_000))
        beyond = (server(due, rng) > latency_s).mean()
        low, high = (low, rate) if beyond > share else (rate, high)
    return (low + high) / 2


def many(server: Server, limits: dict[str, float], *, start: float, **how: object) -> list[Searched]:
    found = []
    for seed in range(SEARCHES):
        rng = np.random.default_rng(seed)
        found.append(searched(server, limits, rng, start=start * rng.lognormal(0, 0.1), **how))  # type: ignore[arg-type]
    return found


@pytest.fixture(scope="module")
def knee() -> float:
    """The capacity of the sharp one."""
    return truth_of(SHARP, 0.1, 0.01, high=1250.0)


def test_the_capacity_is_found_within_5_per_cent_in_most_searches() -> None:
    truth = truth_of(fixed(0.005), 0.1, share_allowed("max_p99", 0.1), high=200.0)
    found = many(fixed(0.005), LIMITS, start=200.0)
    # In 240 searches M/D/1 is always found so, and its interval always holds the truth; with 50 ms, in 100 and 99 %.
    assert sum(abs(one.rate / truth - 1) < 0.05 for one in found) >= 0.7 * SEARCHES
    assert sum(one.holds(truth) for one in found) >= 0.8 * SEARCHES
    assert {one.broken for one in found} == {"max_p99"}


def test_the_interval_holds_what_boots_differ_by(knee: float) -> None:
    server, found = SHARP, []
    for seed in range(SEARCHES):
        rng = np.random.default_rng(seed)
        found.append(searched(server, LIMITS, rng, start=1250.0, boots_off=rng.lognormal(0, 0.02, 3).tolist()))
    assert sum(one.holds(knee) for one in found) >= 0.8 * SEARCHES
    assert np.median([one.rate for one in found]) == pytest.approx(knee, rel=0.05)


def test_where_the_pace_differs_from_load_to_load_it_is_that_of_the_middle_one(knee: float) -> None:
    found = many(uneven(SHARP, 0.03), LIMITS, start=1250.0)
    # All of 100 searches come so near.
    assert sum(abs(one.rate / knee - 1) < 0.05 for one in found) >= 0.8 * SEARCHES
    assert np.median([one.rate for one in found]) == pytest.approx(knee, rel=0.02)
    assert sum(one.holds(knee) for one in found) >= 0.8 * SEARCHES


def test_a_boot_that_is_far_from_the_others_is_found_for_itself(knee: float) -> None:
    found = searched(SHARP, LIMITS, np.random.default_rng(1), start=1250.0, boots_off=(1, 1.8, 1))
    assert found.rate == pytest.approx(knee * (1 + 1 / 1.8 + 1) / 3, rel=0.08)


def test_loads_in_which_the_machine_stood_still_hardly_move_it() -> None:
    server = fixed(0.005)
    truth = truth_of(server, 0.1, 0.01, high=200.0)
    found = many(server, LIMITS, start=200.0, stalled=(4,))
    # All of 100 searches do.
    assert sum(abs(one.rate / truth - 1) < 0.08 for one in found) >= 0.8 * SEARCHES


def test_a_search_climbs_where_the_closed_loop_says_far_too_little() -> None:
    found = searched(fixed(0.0005), LIMITS, np.random.default_rng(1), start=100.0)
    assert 1600 < found.rate < 2100


def test_failed_requests_limit_the_rate_too() -> None:
    found = searched(refusing(0.005, 4), LIMITS, np.random.default_rng(1), start=200.0)
    assert found.broken == "max_error_rate"
    assert found.rate < 160


def test_a_fast_server_that_falls_behind_is_not_found_to_bear_it() -> None:
    """Loads are over before a backlog of 4 % reaches the limit."""
    found = [searched(fixed(0.0002), LIMITS, np.random.default_rng(seed), start=4500.0) for seed in range(3)]
    assert all(4750 < one.rate < 5100 for one in found)


def test_where_no_rate_holds_a_search_ends_soon() -> None:
    found = searched(fixed(0.2), LIMITS, np.random.default_rng(1), start=5.0)
    assert found.ended is CapacityEnd.NO_RATE
    assert len(found.tried) < 8


def test_a_rate_that_the_generator_cannot_make_says_nothing_about_the_server() -> None:
    found = searched(fixed(0.0001), LIMITS, np.random.default_rng(1), start=3000.0, generator_most=4000.0)
    assert found.ended is CapacityEnd.GENERATOR
    held = max(load.rate for load in found.tried if load.holds and not load.by_generator)
    assert 3400 < held <= 4000
    assert found.broken == ""


def test_a_search_stops_when_it_is_sure() -> None:
    found = searched(varying(0.0008, 0.2), LIMITS, np.random.default_rng(1), start=1250.0, total_s=600.0)
    assert sum(load.seconds for load in found.tried) < 500


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


def test_the_first_load_is_made_however_little_time_there_is() -> None:
    following = next_load(SEARCH, (), left_s=0.1)
    assert isinstance(following, NextLoad)
    assert 100 < following.rate < 200


def test_a_load_that_the_generator_once_missed_does_not_stop_the_search_below_rates_that_it_made() -> None:
    made, missed = [tried(200, 500), tried(170, 0), tried(185, 3)], tried(150, 0, by_generator=True)
    following = [next_load(SEARCH, seen, left_s=60.0) for seen in (made, [*made, missed])]
    assert isinstance(following[0], NextLoad)
    assert following[0].rate > 160
    assert following[0] == following[1]


@pytest.mark.parametrize("beyond,low,high", [(20, 95, 110), (900, 60, 64)])
def test_as_long_as_nothing_held_a_rate_is_halved_that_broke_by_far_but_not_one_that_broke_by_a_little(
    beyond: int, low: float, high: float
) -> None:
    following = next_load(SEARCH, [tried(160, 900), tried(128, beyond)], left_s=60.0)
    assert isinstance(following, NextLoad)
    assert low <= following.rate <= high


def test_of_four_loads_three_are_above_the_capacity_and_one_is_at_it() -> None:
    """Most loads of a second hold at the capacity: it is over before a small backlog reaches the limit."""
    fast = replace(SEARCH, start=2000.0)
    seen = [tried(1000, 0), tried(2000, 900), tried(1500, 0), tried(1900, 500)]
    shares = []
    for _ in range(4):
        following, known = next_load(fast, seen, left_s=60.0), estimate(fast, seen)
        assert isinstance(following, NextLoad)
        assert known is not None
        shares.append(following.rate / math.exp(known.boots[0]))
        seen.append(tried(1700, 3))
    assert shares == pytest.approx([1, *[math.exp(0.085)] * 3], abs=0.01)


def test_a_load_with_a_few_failures_does_not_bring_the_next_ones_down_to_the_capacity() -> None:
    """Failures that the capacity is far from do not say where loads tell most."""
    fast = replace(SEARCH, start=2000.0)
    seen = [tried(1000, 0), tried(2000, 900), tried(1500, 0), tried(1900, 500), tried(1700, 3)]
    failing = [*seen[:1], replace(seen[1], beyond={"max_p99": 900, "max_error_rate": 2}), *seen[2:]]
    plain, after = (next_load(fast, loads, left_s=60.0) for loads in (seen, failing))
    assert isinstance(plain, NextLoad)
    assert isinstance(after, NextLoad)
    assert after.rate == pytest.approx(plain.rate, rel=0.03)


def test_where_every_load_breaks_by_a_little_a_search_ends_soon() -> None:
    seen: list[RateTried] = []
    while isinstance(following := next_load(SEARCH, seen, left_s=60.0), NextLoad) and len(seen) < 20:
        seen.append(tried(following.rate, 50))
    assert following is CapacityEnd.NO_RATE
    assert len(seen) < 9


def test_no_load_begins_that_does_not_fit() -> None:
    assert next_load(SEARCH, [tried(200, 500), tried(100, 0)], left_s=0.5) is None


def test_the_last_load_is_as_long_as_there_is_time() -> None:
    seen = [tried(200, 500), tried(170, 0), tried(185, 9), tried(190, 60), tried(180, 2)]
    whole, cut = next_load(SEARCH, seen, left_s=60.0), next_load(SEARCH, seen, left_s=1.5)
    assert isinstance(whole, NextLoad)
    assert isinstance(cut, NextLoad)
    assert whole.seconds > cut.seconds
    assert cut.warmup_s + cut.seconds == pytest.approx(1.5)


def test_one_load_decides_nothing() -> None:
    """A single load that held says little: the rate is loaded again, or rates near it."""
    once, often = (
        estimate(SEARCH, [tried(200, 500), tried(170, 0)]),
        estimate(SEARCH, [tried(200, 500), *[tried(170, 0)] * 3, *[tried(180, 40)] * 3]),
    )
    assert once is not None
    assert often is not None
    assert once.sd > 1.5 * often.sd


def test_more_failed_loads_mean_less_capacity() -> None:
    few, more = (estimate(SEARCH, [tried(170, 0), *[tried(185, count)] * 3]) for count in (5, 200))
    assert few is not None
    assert more is not None
    assert more.mean < few.mean


def test_boots_have_their_own_deviation_from_what_all_show() -> None:
    first = [tried(180, 0), tried(190, 5), tried(200, 100)]
    second = [tried(170, 5, boot=1), tried(180, 100, boot=1), tried(190, 600, boot=1)]
    found = known(estimate(SEARCH, [*first, *second]))
    assert found.boots[0] > found.mean > found.boots[1]
    assert found.margin(()) > found.margin(("hash seed", "addresses"))


def test_nothing_is_estimated_of_loads_that_the_generator_limited() -> None:
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


def test_more_loads_say_more() -> None:
    assert of(*[BELOW, ABOVE] * 6).sd < 0.8 * of(BELOW, ABOVE).sd


@pytest.mark.parametrize("share", [0.1, 0.4], ids=["the machine stood still", "odd"])
def test_a_load_that_says_nothing_of_the_server_moves_it_by_little(share: float) -> None:
    calm = [BELOW, ABOVE] * 4
    assert of(*calm, load(120, share)).median == pytest.approx(of(*calm).median, abs=0.03)


def test_stalls_in_many_loads_move_it_by_little() -> None:
    """A few per cent of requests are beyond in one load of four, far below the capacity."""
    calm = [load(rate, share, made=1800, seconds=1.0) for rate, share in ((170, 0.0), (190, 0.3))] * 6
    stalls = [load(140, share, made=1800, seconds=1.0) for share in (0.02, 0.03, 0.05, 0.08)]
    assert of(*calm, *stalls).median == pytest.approx(of(*calm).median, abs=0.03)


def test_a_boot_in_which_half_of_the_requests_are_slow_has_no_stalls_but_is_slower() -> None:
    others = [load(rate, share, made=1800, seconds=1.0) for rate, share in ((170, 0.0), (190, 0.3))] * 6
    own = [load(rate, share, boot=1, made=1800, seconds=1.0) for rate, share in ((150, 0.6), (135, 0.5), (125, 0.4))]
    assert math.exp(of(*others, *own, boot=1).median) < 125


def test_two_unlucky_loads_do_not_halve_it() -> None:
    """Of a real server: 44 % of requests were beyond, and it bore this rate in all loads that came after."""
    unlucky = [load(276, 0.41, made=3868, seconds=1.4), load(221, 0.446, made=3095, seconds=1.4)]
    assert math.exp(of(*unlucky).median) > 0.8 * 221


@pytest.mark.parametrize("broken,low,high", [(1, 182, 230), (2, 174, 184), (3, 140, 174)])
def test_the_capacity_is_where_half_of_the_loads_hold(broken: int, low: float, high: float) -> None:
    """Of four loads at each rate, so many do not."""
    shares = [0.5] * broken + [0.0] * (4 - broken)
    assert low < math.exp(of(*[load(rate, share) for rate in (178, 180, 182) for share in shares]).median) < high


def test_with_few_requests_the_crowded_loads_count_more() -> None:
    """Theory counts the requests of all loads, and most of those beyond a p99 are in crowds."""
    few, many = (of(*[load(180, 0.0, made=made), load(180, 0.5, made=made)] * 6) for made in (400, 100_000))
    assert few.median < many.median - 0.05


@pytest.mark.parametrize("limit,errors", [("max_p50", 0.0), ("max_error_rate", 0.5)])
def test_crowds_say_nothing_of_a_median_and_of_failures(limit: str, errors: float) -> None:
    few, many = (
        of(*[load(180, 0.0, made=made), load(180, 1.0, errors=errors, made=made)] * 6, limits={limit: 0.05})
        for made in (400, 100_000)
    )
    assert few.median == pytest.approx(many.median, abs=0.02)


def test_of_loads_that_end_before_a_backlog_can_show_capacities_are_lower() -> None:
    short, long = (of(*[load(170, 0.0, seconds=one), load(190, 0.6, seconds=one)] * 6) for one in (1.0, 30.0))
    assert short.median < long.median - 0.05


def test_a_load_that_ended_at_once_counts_like_one_as_long_as_the_limit() -> None:
    """As of a server that died."""
    at_once, short = (of(BELOW, load(190, 1.0, seconds=seconds)) for seconds in (0.0, 0.1))
    assert at_once.median == short.median


@pytest.mark.parametrize("made", [1, 10])
def test_loads_of_few_requests_say_little(made: int) -> None:
    known = of(*[load(170, 0.0, made=made), load(190, 1.0, made=made)])
    assert known.shares.sum() == pytest.approx(1)
    assert known.sd > 0.05


def test_a_boot_is_thought_to_be_near_the_others_until_its_own_loads_tell() -> None:
    others = [BELOW, ABOVE] * 4
    unseen, slower = (
        of(*others, boot=1),
        of(*others, *[load(140, 0.0, boot=1), load(160, 0.6, boot=1)] * 4, boot=1),
    )
    assert unseen.median == pytest.approx(of(*others).median, abs=0.02)
    assert unseen.sd > of(*others, boot=0).sd
    assert 140 < math.exp(slower.median) < 160


def test_of_several_limits_the_lowest_counts() -> None:
    loads = [load(170, 0.0, errors=0.2), load(150, 0.0), load(190, 0.6, errors=0.4)] * 3
    both = of(*loads, limits=P99 | {"max_error_rate": 0.001})
    assert both.median < of(*loads).median - 0.05
