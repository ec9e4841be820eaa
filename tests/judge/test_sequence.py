from __future__ import annotations

from collections.abc import Sequence

import pytest
from judge.pairs import pair

from pytest_fileperf.judge.evidence import Pair
from pytest_fileperf.judge.paired import Sequential
from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.report.wording import sentence

EVEN = (990.0, 1010.0, 1000.0, 1005.0, 995.0, 1000.0)
LIMIT_S = 60.0


def gates(*metrics: str, to_the_end: bool = False) -> Sequential:
    return Sequential(dict.fromkeys(metrics, 0.015), alpha=0.001, limit_s=LIMIT_S, to_the_end=to_the_end)


def pairs(ratios: Sequence[float], count: int = 9) -> list[Pair]:
    made = [pair(EVEN, [value * ratio for value in EVEN], requests=10) for ratio in ratios]
    return (made * count)[:count]


SAME, SLOWER, FASTER, UNCLEAR, NOISE = ((1.0,), (0.8,), (1.2,), (0.98,), (1.2, 0.83, 1.0))


def look(
    sequential: Sequential, ratios: Sequence[float], elapsed_s: float, *, count: int = 9, next_s: float = 3.0
) -> tuple[MetricComparison, ...] | None:
    return sequential.look(pairs(ratios, count), elapsed_s=elapsed_s, next_s=next_s)


def outcomes(found: tuple[MetricComparison, ...] | None) -> list[str] | None:
    return None if found is None else [comparison.outcome.value for comparison in found]


@pytest.mark.parametrize(
    "ratios, elapsed_s, said",
    [
        (SAME, 13.0, ["PASS"]),
        (SLOWER, 13.0, ["REGRESSED"]),
        (FASTER, 13.0, ["IMPROVED"]),
        (UNCLEAR, 13.0, None),
        (NOISE, 13.0, None),
    ],
)
def test_it_ends_early_where_all_is_decided(ratios: Sequence[float], elapsed_s: float, said: list[str] | None) -> None:
    assert outcomes(look(gates("rps"), ratios, elapsed_s)) == said


def test_two_pairs_are_never_enough() -> None:
    assert look(gates("rps"), SLOWER, 13.0, count=2) is None
    assert look(gates("rps"), SLOWER, 62.0, count=2) is None
    assert outcomes(look(gates("rps"), SLOWER, 500.0, count=2)) == ["INCONCLUSIVE"], "the time is over by far"


def test_three_pairs_are_enough_for_a_regression_and_four_for_anything_else() -> None:
    assert outcomes(look(gates("rps"), SLOWER, 13.0, count=3)) == ["REGRESSED"]
    assert look(gates("rps"), SAME, 13.0, count=3) is None
    assert outcomes(look(gates("rps"), SAME, 13.0, count=4)) == ["PASS"]
    assert outcomes(look(gates("rps"), SAME, 58.0, count=3)) == ["PASS"], "where there is no time for a fourth"


def test_before_the_first_look_is_due_nothing_is_said() -> None:
    assert look(gates("rps"), SLOWER, 5.0) is None


def test_what_a_look_has_spent_is_not_there_for_the_next() -> None:
    """The first look at a quarter of the time has 15 % of the error; a second one, before the next is due, none."""
    sequential = gates("rps")
    assert look(sequential, UNCLEAR, 15.0) is None
    assert look(sequential, SLOWER, 17.0) is None
    assert outcomes(look(sequential, SLOWER, 18.0)) == ["REGRESSED"]


@pytest.mark.parametrize("ratios, said", [(UNCLEAR, "INCONCLUSIVE"), (SAME, "PASS"), (SLOWER, "REGRESSED")])
def test_it_ends_where_there_is_no_time_for_another_pair(ratios: Sequence[float], said: str) -> None:
    sequential = gates("rps")
    assert look(sequential, UNCLEAR, 50.0, next_s=9.0) is None
    found = look(sequential, ratios, 55.0, next_s=9.0)
    assert outcomes(found) == [said]
    assert found is not None
    assert (said == "INCONCLUSIVE") is bool(sentence(found[0].reason))


def test_the_time_may_be_over_at_the_first_look() -> None:
    assert outcomes(look(gates("rps"), SLOWER, 200.0, count=3)) == ["REGRESSED"]
    assert outcomes(look(gates("rps"), UNCLEAR, 200.0, count=3)) == ["INCONCLUSIVE"]


def test_one_regression_ends_it_and_the_others_have_reasons() -> None:
    """p99 has too few requests to say anything."""
    found = look(gates("rps", "p99"), SLOWER, 13.0)
    assert outcomes(found) == ["REGRESSED", "INCONCLUSIVE"]
    assert found is not None
    assert sentence(found[0].reason) == ""
    assert "needs 897 requests a side" in sentence(found[1].reason)


def test_it_goes_on_for_what_is_undecided() -> None:
    assert look(gates("rps", "p99"), SAME, 13.0) is None


@pytest.mark.parametrize("elapsed_s, said", [(25.0, None), (34.0, ["INCONCLUSIVE"])])
def test_what_is_hopeless_is_given_up_after_half_of_the_time(elapsed_s: float, said: list[str] | None) -> None:
    found = look(gates("rps"), NOISE, elapsed_s)
    assert outcomes(found) == said
    assert found is None or "could have been seen" in sentence(found[0].reason)


def test_to_the_end_uses_all_of_the_time() -> None:
    sequential = gates("rps", to_the_end=True)
    for elapsed_s in (13.0, 20.0, 34.0, 50.0):
        assert look(sequential, SLOWER, elapsed_s) is None
    assert outcomes(look(sequential, SLOWER, 58.0)) == ["REGRESSED"]


def test_no_gates_are_decided_at_once() -> None:
    assert look(gates(), SAME, 13.0) == ()
