"""The line of measurements: in order, one at a time, and nobody waits for one that never begins."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from pytest_fileperf.plugin.measuring import GivenUpError, Turn, Turns


def turn(number: int = 0) -> Turn:
    return Turn(test="test_it", where=f"GET /{number}")


def test_one_runs_at_a_time_in_the_order_in_which_they_were_drawn() -> None:
    turns, done, running = Turns(patience_s=60), list[int](), Event()
    drawn = [turns.enter(turn(number)) for number in range(5)]

    def measure(number: int) -> None:
        with turns.taken(drawn[number]):
            assert not running.is_set()
            running.set()
            done.append(number)
            while number == 0 and not turns.notes:
                time.sleep(0.001)  # until another one has looked, and waits
            running.clear()

    with ThreadPoolExecutor(5) as pool:
        [*pool.map(measure, reversed(range(5)))]
    assert done == [0, 1, 2, 3, 4]
    assert len(turns.notes) == 1
    assert turns.notes[0].endswith(" waited for an earlier measurement, because only one runs at a time")


def test_one_alone_waits_for_nobody() -> None:
    turns = Turns()
    for _ in range(2):
        with turns.taken(turns.enter(turn())):
            pass
    assert turns.notes == ()


def test_one_whose_thread_never_begins_is_overtaken() -> None:
    turns = Turns(patience_s=0.05)
    turns.enter(turn())
    with turns.taken(turns.enter(turn())):
        pass
    assert turns.notes == ()


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
