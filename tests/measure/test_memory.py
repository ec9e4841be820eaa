from __future__ import annotations

from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.recording import Phase, Round
from pytest_fileperf.measure.usage import course_after, course_of, memory_after, thinned


def round_of(start_ns: int, end_ns: int, requests: int) -> Round:
    return Round(
        boot=0,
        index=0,
        phase=Phase.ROUND,
        started_ns=start_ns,
        ended_ns=end_ns,
        requests=requests,
        latency=EMPTY,
        ttfb=EMPTY,
        bytes_sent=0,
        bytes_received=0,
    )


def test_readings_are_told_by_requests_those_of_the_warm_up_too() -> None:
    rounds = [round_of(100, 200, 40), round_of(200, 300, 0), round_of(300, 400, 60)]
    readings = [(0, 10), (50, 11), (150, 12), (250, 13), (400, 20)]
    course = ((0, 10), (10, 11), (40, 12), (60, 13), (120, 20))
    assert course_of(readings, rounds, warm=[(100, 0)], warmed=20) == course
    # In a comparison a side has turns in the warm-up, too: here the second half of it.
    assert course_of(readings, rounds, warm=[(50, 0)], warmed=20) == ((0, 10), (0, 11), *course[2:])
    assert course_of([], rounds, warm=[(100, 0)], warmed=0) == ()


def test_memory_after_so_many_requests_is_between_readings_and_never_beyond_them() -> None:
    course = ((10, 100), (20, 200), (20, 300))
    assert [memory_after(course, place) for place in (0, 10, 15, 20, 99)] == [100, 100, 150, 300, 300]


def test_a_run_after_another_one_goes_on_with_its_requests_and_its_peak() -> None:
    assert course_after(((0, 10), (5, 50)), ((0, 40), (5, 60))) == ((0, 10), (5, 50), (5, 50), (10, 60))
    assert course_after((), ((0, 40),)) == ((0, 40),)


def test_a_course_is_kept_small_with_the_ends_of_what_did_not_grow() -> None:
    flat = [(place, 7) for place in range(100)]
    assert thinned(flat, 64) == ((0, 7), (99, 7))
    many = thinned(((place, place) for place in range(1000)), 12)
    assert (len(many), many[0], many[-1]) == (12, (0, 0), (999, 999))
