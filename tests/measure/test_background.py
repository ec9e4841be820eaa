"""Work that one side of a comparison does in the other side's turns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.measurement import Background, background_of
from pytest_fileperf.measure.recording import Failure, Phase, Recording, Round

MS = 1_000_000
TURN_MS, HANDOVER_MS = 60, 10
CYCLES = 20
TEN_LATE = (Failure(kind="status 500", count=10, example=""),)


def side(
    first: int, *, background: float = 0.0, late: int = 0, late_failures: tuple[Failure, ...] = (), known: bool = True
) -> Recording:
    """Returns a side with every second turn. A request costs 1 ms of CPU; `late` ones end in each of the other's turns.

    Between them is what `run_load` makes: late answers, most of the other's turn, the handover to the next one.
    """
    rounds: list[Round] = []
    failed = sum(failure.count for failure in late_failures)

    def add(phase: Phase, start_ms: int, end_ms: int, requests: int, cpu_ms: float) -> None:
        rounds.append(
            Round(
                boot=0,
                index=len(rounds),
                phase=phase,
                started_ns=start_ms * MS,
                ended_ns=end_ms * MS,
                requests=requests,
                latency=EMPTY,
                ttfb=EMPTY,
                bytes_sent=0,
                bytes_received=0,
                server_cpu_ns=round(cpu_ms * MS) if known else None,
            )
        )

    for cycle in range(CYCLES):
        for turn in range(2):
            start_ms = (2 * cycle + turn) * TURN_MS
            begun_ms, end_ms = start_ms + HANDOVER_MS, start_ms + TURN_MS
            if turn == first:
                add(Phase.HANDOVER, start_ms - 5, begun_ms, 10, 15)
                add(Phase.ROUND, begun_ms, end_ms, 45, 45)
            else:
                add(Phase.HANDOVER, start_ms, begun_ms, 8, 10)
                cpu_ms = background * (end_ms - 5 - begun_ms) + late + failed
                add(Phase.HANDOVER, begun_ms, end_ms - 5, late, cpu_ms)
                rounds[-1] = replace(rounds[-1], failures=late_failures)
    return Recording(rounds=tuple(rounds), boots=(), connections=8, engine="replay")


def test_each_side_s_work_in_the_other_s_turns_is_a_share_of_a_core() -> None:
    found = background_of(side(0, background=0.07), side(1, background=0.01))
    assert (found.base, found.now) == pytest.approx((0.07, 0.01))


def test_late_answers_are_no_background_work() -> None:
    found = background_of(side(0, background=0.07, late=9), side(1, late_failures=TEN_LATE))
    assert (found.base, found.now) == pytest.approx((0.07, 0.0))


def test_it_is_never_below_nothing() -> None:
    cheap = tuple(
        replace(round_, server_cpu_ns=0) if round_.phase is Phase.HANDOVER else round_
        for round_ in side(0, late=5).rounds
    )
    assert background_of(replace(side(0), rounds=cheap), side(1)).base == 0.0


def test_it_is_not_known_where_no_cpu_time_was_read_or_no_turns_alternate() -> None:
    turns_only = side(0).measured()
    assert background_of(side(0, known=False), side(1)) == Background(base=None, now=0.0)
    assert background_of(replace(side(0), rounds=turns_only), side(1)).base is None
    assert background_of(side(0), replace(side(1), rounds=())) == Background(base=None, now=None)


@pytest.mark.parametrize(
    "base, now, text",
    [
        (0.071, 0.0, "the base used 7 % of a core while the other side had its turn"),
        (None, 0.124, "the code here used 12 % of a core while the other side had its turn"),
        (0.03, 0.5, "the base used 3 % and the code here used 50 % of a core while the other side had its turn"),
        (0.02, 0.019, ""),
        (None, None, ""),
    ],
)
def test_more_than_a_fiftieth_of_a_core_is_said(base: float | None, now: float | None, text: str) -> None:
    why = ": background work of one side slows the other" if text else ""
    assert str(Background(base=base, now=now, surely_base=base or 0.0, surely_now=now or 0.0)) == text + why


def test_it_is_said_only_if_most_turns_show_it() -> None:
    """Some late readings on a busy machine show as much as steady work does; so do few turns."""
    quiet, steady = side(0), side(0, background=0.07)
    idle = [place for place, own in enumerate(quiet.rounds) if own.phase is Phase.HANDOVER and own.requests == 0]
    late = [replace(own, server_cpu_ns=20 * MS) if place in idle[:4] else own for place, own in enumerate(quiet.rounds)]
    found = background_of(replace(quiet, rounds=tuple(late)), side(1))

    assert found.base == pytest.approx(0.089, abs=0.01)
    assert str(found) == ""
    assert "the base used 7 % of a core" in str(background_of(steady, side(1)))
    few = tuple(own for own in steady.rounds if own.ended_ns <= 8 * TURN_MS * MS)
    assert str(background_of(replace(steady, rounds=few), side(1))) == ""
