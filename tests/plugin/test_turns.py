"""The line of measurements: one that is given up leaves it."""

from __future__ import annotations

import pytest

from pytest_fileperf.plugin.measuring import GivenUpError, Turn, Turns


def turn(number: int = 0) -> Turn:
    return Turn(test="test_it", where=f"GET /{number}")


def test_one_that_is_given_up_waits_no_more_and_is_gone() -> None:
    turns = Turns()
    first, second = turns.enter(turn(1)), turns.enter(turn(2))
    second.given_up.set()
    with turns.taken(first):
        with pytest.raises(GivenUpError), turns.taken(second):
            pass
        turns.leave(second)
    with turns.taken(turns.enter(turn(3))):
        pass
