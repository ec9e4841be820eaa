"""How the error of a session is shared out among its comparisons."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.judge.gate import ErrorBudget
from pytest_fileperf.judge.rules import RULES


@pytest.mark.parametrize("gates", [1, 2, 10])
def test_each_gate_has_an_equal_part(gates: int) -> None:
    budget = ErrorBudget(gates)
    for _ in range(3):
        level = budget.level(2)
        assert level == pytest.approx(RULES.session_alpha / gates)
        budget.used(level, regressed=0)


def test_what_a_regression_did_not_need_goes_to_the_next_test() -> None:
    budget = ErrorBudget(10)
    budget.used(budget.level(2), regressed=1)
    assert budget.level(2) == pytest.approx(0.0015)
    assert budget.level(1) == pytest.approx(0.002)


def test_it_goes_on_as_long_as_every_test_regresses_and_no_longer() -> None:
    budget = ErrorBudget(10)
    levels = []
    for regressed in (2, 2, 1, 0, 0):
        levels.append(budget.level(2))
        budget.used(levels[-1], regressed)
    assert levels == pytest.approx([0.001, 0.002, 0.003, 0.0025, 0.001])


def test_a_test_that_was_not_compared_leaves_it_to_the_next() -> None:
    budget = ErrorBudget(4)
    budget.used(budget.level(1), regressed=1)
    assert budget.level(1) == budget.level(1) == pytest.approx(0.005)


def test_no_gates_have_a_level_all_the_same() -> None:
    assert ErrorBudget(0).level(0) == RULES.session_alpha


@given(st.lists(st.integers(0, 2), min_size=1, max_size=20))
def test_levels_of_gates_that_did_not_regress_never_exceed_the_whole(regressed: list[int]) -> None:
    """The promise: identical code regresses anywhere with at most so much, whatever truly regressed before it."""
    budget = ErrorBudget(2 * len(regressed))
    spent = 0.0
    for count in regressed:
        level = budget.level(2)
        spent += level * (2 - count)
        budget.used(level, count)
    assert spent <= RULES.session_alpha * (1 + 1e-9)


def test_so_it_is_in_simulated_sessions() -> None:
    """Gates whose p values are as unlucky as they may be; a third of the tests truly regressed."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(20_000):
        budget, any_wrong = ErrorBudget(10), False
        for number in range(5):
            level = budget.level(2)
            found = rng.random(2) < level
            if number % 3 == 0:
                found[:] = True
            else:
                any_wrong |= bool(found.any())
            budget.used(level, int(found.sum()))
        wrong += any_wrong
    assert wrong / 20_000 <= RULES.session_alpha * 1.1
