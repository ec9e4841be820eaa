"""How likely each capacity is: more loads say more, odd ones little, and boots are thought to be alike."""

from __future__ import annotations

import math

import pytest

from pytest_fileperf.judge.posterior import Posterior, posterior_of, share_that_holds
from pytest_fileperf.measure.capacity import RateTried

P99 = (("max_p99", 0.01),)


def load(rate: float, beyond: int, *, boot: int = 0, errors: int = 0, made: int = 1000) -> RateTried:
    counts = {"max_p99": beyond, "max_error_rate": errors}
    return RateTried(
        rate=rate, boot=boot, seconds=3.0, requests=made, failed=0, beyond=counts, holds=beyond <= 0.01 * made
    )


BELOW, ABOVE = load(170, 0), load(190, 600)


def of(*loads: RateTried, allowed: tuple[tuple[str, float], ...] = P99, boot: int | None = None) -> Posterior:
    return posterior_of(loads, allowed, start=200.0, boot=boot)


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


def test_a_load_in_which_the_machine_stood_still_moves_it_by_little() -> None:
    calm = [BELOW, ABOVE] * 4
    assert of(*calm, load(120, 400)).median == pytest.approx(of(*calm).median, abs=0.03)


def test_where_loads_at_one_rate_hold_and_do_not_it_is_below_that_rate() -> None:
    """At a p99, nine of ten loads hold at the capacity."""
    half = [load(rate, beyond) for rate in (178, 180, 182) for beyond in (0, 500)]
    assert 150 < math.exp(of(*half).median) < 178


def test_a_boot_is_thought_to_be_near_the_others_until_its_own_loads_tell() -> None:
    others = [BELOW, ABOVE] * 4
    unseen, slower = (
        of(*others, boot=1),
        of(*others, *[load(140, 0, boot=1), load(160, 600, boot=1)] * 4, boot=1),
    )
    assert unseen.median == pytest.approx(of(*others).median, abs=0.02)
    assert unseen.sd > of(*others, boot=0).sd
    assert 140 < math.exp(slower.median) < 160


def test_of_several_limits_the_lowest_counts() -> None:
    loads = [load(170, 0, errors=200), load(150, 0), load(190, 600, errors=400)] * 3
    both = of(*loads, allowed=(*P99, ("max_error_rate", 0.001)))
    assert both.median < of(*loads).median - 0.05


@pytest.mark.parametrize("allowed,share", [(0.5, 0.5), (0.1, 0.684), (0.01, 0.9), (0.001, 0.968)])
def test_the_stricter_a_limit_the_more_loads_hold_it_at_the_capacity(allowed: float, share: float) -> None:
    assert share_that_holds(allowed) == pytest.approx(share, abs=0.001)
