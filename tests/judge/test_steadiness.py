"""How steady a machine is, learned from what unchanged code did."""

from __future__ import annotations

import math

import pytest

from pytest_fileperf.judge.gate import Steadiness, changes_in
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.measure.metrics import METRICS

RPS, P99 = METRICS["rps"], METRICS["p99"]
TOLERANCES = {"rps": 0.03, "p99": 0.15}


def sessions(count: int, **changes: float) -> Steadiness:
    return Steadiness(changes=(changes,) * count)


def test_nothing_known_is_the_usual_spread_which_says_little() -> None:
    spread = Steadiness().spread(RPS)
    assert (spread.sd, spread.df, spread.sessions) == (RULES.spread_sd, RULES.spread_prior_df, 0)
    assert Steadiness().spread(P99).sd == pytest.approx(4 * RULES.spread_sd)


def test_sessions_outweigh_what_is_usual() -> None:
    spread = sessions(5, rps=0.01).spread(RPS)
    assert spread.sd == pytest.approx(math.sqrt((RULES.spread_sd**2 + 5 * 0.01**2) / 6))
    assert (spread.df, spread.sessions) == (6, 5)
    known = sessions(20, rps=0.15).spread(RPS)
    assert known.sd == pytest.approx(0.15)
    assert known.df == 20


def test_a_metric_counts_the_sessions_that_have_it() -> None:
    both = Steadiness(changes=({"rps": 0.1}, {"p99": 0.2}, {"rps": 0.1, "p99": 0.2}))
    assert (both.spread(RPS).sessions, both.spread(P99).sessions, both.spread(METRICS["p50"]).sessions) == (2, 2, 0)


def test_a_machine_of_which_nothing_is_known_is_not_steady() -> None:
    assert not Steadiness().is_steady({"rps": 0.03})
    assert not Steadiness().is_steady({"rps": 5.0})


def test_few_sessions_do_not_show_that_a_machine_is_steady() -> None:
    few, enough = RULES.least_sessions - 1, RULES.least_sessions
    assert not sessions(few, rps=0.0, p99=0.0).is_steady({"rps": 5.0, "p99": 5.0})
    assert sessions(enough, rps=0.0, p99=0.0).is_steady(TOLERANCES)
    more_of_one = Steadiness(changes=({"rps": 0.0},) + ({"rps": 0.0, "p99": 0.0},) * few)
    assert more_of_one.is_steady({"rps": 0.03})
    assert not more_of_one.is_steady(TOLERANCES)


@pytest.mark.parametrize(
    "count, rps, p99, steady",
    [
        (20, 0.01, 0.01, True),
        (20, 0.01, 0.04, True),
        (20, 0.02, 0.05, True),
        (20, 0.03, 0.04, False),
        (20, 0.01, 0.15, False),
        (20, 0.15, 0.15, False),
        (4, 0.0, 0.0, False),
        (12, 0.01, 0.04, True),
    ],
)
def test_a_machine_is_steady_where_stored_figures_can_decide(count: int, rps: float, p99: float, steady: bool) -> None:
    known = sessions(count, rps=rps, p99=p99)
    assert known.is_steady(TOLERANCES) is steady


def test_a_wide_tolerance_needs_a_less_steady_machine() -> None:
    known = sessions(20, rps=0.05)
    assert not known.is_steady({"rps": 0.03})
    assert known.is_steady({"rps": 0.10})


def test_metrics_that_are_not_gated_do_not_matter() -> None:
    assert sessions(20, rps=0.01).is_steady({"rps": 0.03})
    assert not sessions(20, rps=0.01).is_steady(TOLERANCES)


def world(metric: str, change: float | None) -> MetricComparison:
    return MetricComparison(metric=metric, outcome=Outcome.PASS, tolerance=0.05, change=change)


def test_a_session_adds_the_root_mean_square_of_its_tests() -> None:
    shown = changes_in([world("rps", -0.03), world("p99", 0.2), world("rps", 0.04), world("p50", None)])
    assert shown == {
        "p99": pytest.approx(math.log(1.2)),
        "rps": pytest.approx(math.sqrt((math.log(0.97) ** 2 + math.log(1.04) ** 2) / 2)),
    }
    assert changes_in([]) == {}
