"""How likely each capacity is: more loads say more, odd ones little, and boots are thought to be alike."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from pytest_fileperf.judge.capacity import Posterior, posterior_of
from pytest_fileperf.measure.capacity import RateTried

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
