from __future__ import annotations

import math

import pytest

from pytest_fileperf.judge.difference import Difference, Threshold, as_share

KNOWN = Difference(worse=0.10, error=0.02, df=10)
LIMIT = math.log1p(0.05)


def test_bounds_are_those_of_student_s_t() -> None:
    """The quantile of 95 % with ten degrees of freedom is 1.8125."""
    assert KNOWN.margin(0.05) == pytest.approx(1.8125 * 0.02, rel=1e-4)
    assert [KNOWN.low(0.05), KNOWN.high(0.05)] == pytest.approx([0.10 - 0.03625, 0.10 + 0.03625], rel=1e-3)
    assert KNOWN.is_above(0.06, 0.05)
    assert not KNOWN.is_above(0.07, 0.05)
    assert KNOWN.is_below(0.14, 0.05)
    assert not KNOWN.is_below(0.13, 0.05)


@pytest.mark.parametrize(
    "threshold, shown",
    [
        (Threshold(limit=LIMIT, alpha=0.01, bound_error=0.05), True),
        (Threshold(limit=LIMIT, alpha=0.0001, bound_error=0.05), False),
        (Threshold(limit=LIMIT, alpha=0.01, bound_error=0.01), False),
    ],
)
def test_a_regression_is_beyond_0_and_beyond_the_tolerance(threshold: Threshold, shown: bool) -> None:
    better = Difference(worse=-KNOWN.worse, error=KNOWN.error, df=KNOWN.df)
    assert KNOWN.is_worse(threshold) is better.is_better(threshold) is shown
    assert (KNOWN.worse > KNOWN.least_shown(threshold)) is shown
    assert not KNOWN.is_better(threshold)


def test_a_part_of_a_threshold_has_that_part_of_both_errors() -> None:
    part = Threshold(limit=LIMIT, alpha=0.01, bound_error=0.05).part(0.2)
    assert [part.limit, part.alpha, part.bound_error] == pytest.approx([LIMIT, 0.002, 0.01])


def test_what_is_detectable_is_the_least_shown_and_what_luck_may_hide() -> None:
    threshold = Threshold(limit=LIMIT, alpha=0.01, bound_error=0.05)
    assert KNOWN.detectable(threshold, 0.8) == pytest.approx(KNOWN.least_shown(threshold) + KNOWN.margin(0.2))


@pytest.mark.parametrize("ratio, share", [(math.log(1.05), 0.05), (-800.0, -1.0), (0.0, 0.0)])
def test_a_log_ratio_as_a_share(ratio: float, share: float) -> None:
    assert as_share(ratio) == pytest.approx(share)
    assert math.isfinite(as_share(1e6))
