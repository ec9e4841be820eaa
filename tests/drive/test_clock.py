"""How far another machine's clock is ahead, by questions that take their time."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.drive.group import SAME_CLOCK, ClockOffset, Reading, offset_of, on_this_clock
from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.recording import Boot, Phase, Round
from pytest_fileperf.plan.load import LoadPlan

MS = 1_000_000
HALF_SECOND = Round(
    boot=1,
    index=0,
    phase=Phase.ROUND,
    started_ns=100 * MS,
    ended_ns=600 * MS,
    requests=3,
    latency=Histogram.of([5 * MS, 6 * MS, 7 * MS]),
    ttfb=EMPTY,
    bytes_sent=0,
    bytes_received=30,
)
RESULT = Run(
    plan=LoadPlan(connections=1, warmup_ns=0, round_ns=500 * MS, rounds=1, timeout_ns=MS),
    boot=Boot(index=0),
    rounds=(HALF_SECOND,),
    engine="replay",
    why_engine="",
    attack_ns=10,
    subjects={("a", ""): (HALF_SECOND,), ("a", "login"): (HALF_SECOND,)},
    attack=(10, 20),
    last_end_ns=30,
    ends=((array("q", [1, 2, 3]),),),
)
WAYS = st.tuples(st.integers(0, 60 * MS), st.integers(0, 60 * MS))


def readings(ahead_ns: int, ways: list[tuple[int, int]]) -> list[Reading]:
    """Returns questions whose ways there and back took these times."""
    found, now_ns = [], 1_000 * MS
    for there_ns, back_ns in ways:
        heard_ns = now_ns + there_ns + back_ns
        found.append((now_ns, now_ns + there_ns + ahead_ns, heard_ns))
        now_ns = heard_ns
    return found


@given(st.integers(-(10**15), 10**15), st.lists(WAYS, min_size=1, max_size=20))
def test_the_offset_is_off_by_no_more_than_it_says(ahead_ns: int, ways: list[tuple[int, int]]) -> None:
    each = readings(ahead_ns, ways)
    found = offset_of(each, now_ns=each[-1][-1])
    assert abs(found.ahead_ns - ahead_ns) <= found.error_ns + 1
    assert found.distance_ns == min(there + back for there, back in ways)


def test_the_quickest_answer_tells_most() -> None:
    each = readings(3_000 * MS, [(40 * MS, 10 * MS), (2 * MS, 2 * MS), (10 * MS, 60 * MS)])
    found = offset_of(each, now_ns=each[-1][-1])
    assert found.ahead_ns == 3_000 * MS
    assert found.error_ns == 2 * MS + round(70 * MS * 1e-4)


def test_an_old_answer_tells_less_as_clocks_drift_apart() -> None:
    old, new = readings(0, [(1 * MS, 1 * MS), (3 * MS, 3 * MS)])
    minute_ns = 60_000 * MS
    new = (new[0] + minute_ns, new[1] + minute_ns, new[2] + minute_ns)
    found = offset_of([old, new], now_ns=new[-1])
    assert found.error_ns == 3 * MS  # the old one is worth 1 ms and 6 ms of drift


@given(st.integers(-(10**15), 10**15))
def test_instants_come_back_from_another_clock_as_they_were(ahead_ns: int) -> None:
    there = on_this_clock(RESULT, ClockOffset(ahead_ns=-ahead_ns))
    assert on_this_clock(there, ClockOffset(ahead_ns=ahead_ns)) == RESULT


def test_what_was_measured_stays_as_it_is() -> None:
    shifted = on_this_clock(RESULT, ClockOffset(ahead_ns=7 * MS))
    assert [own.started_ns for own in shifted.rounds] == [own.started_ns - 7 * MS for own in RESULT.rounds]
    assert [own.duration_ns for own in shifted.rounds] == [own.duration_ns for own in RESULT.rounds]
    assert [own.latency for own in shifted.rounds] == [own.latency for own in RESULT.rounds]
    assert on_this_clock(RESULT, SAME_CLOCK) is RESULT
