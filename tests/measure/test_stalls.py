"""When an event loop was blocked, by looks at it and the ends of answers; and which functions held it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_fileperf.host.sample import MainThread, ProcessUse, Sample
from pytest_fileperf.measure.limiting import Stalls, held_by, stalls_of

MS = 1_000_000
STATES = {"i": MainThread.IDLE, "r": MainThread.RUNNING, "b": MainThread.BLOCKED}
ROOT = "thread (7): MainThread;<module> (/p/m.py:1);run (/v/lib/python3.11/asyncio/runners.py:86)"


def found(looks: str, ends_ms: Sequence[int], connections: int | None = 4) -> Stalls | None:
    """Returns the stalls by looks every 4 ms from 0 on, one letter each."""
    samples = tuple(Sample(at_ns=at * 4 * MS, server=(use(letter),)) for at, letter in enumerate(looks))
    ends_ns = [at * MS for at in ends_ms]
    return stalls_of(samples, ends_ns, worker=1, connections=connections, span_ns=(0, 4 * len(looks) * MS))


def use(letter: str) -> ProcessUse:
    return ProcessUse(
        pid=1,
        cpu_ns=0,
        main_cpu_ns=0,
        waiting_ns=0,
        rss_bytes=0,
        threads=1,
        files=None,
        written_bytes=None,
        read_bytes=None,
        main=STATES[letter],
    )


@pytest.mark.parametrize(
    "looks,ends_ms",
    [
        ("i" * 50, range(0, 200, 20)),
        ("r" * 50, range(0, 200, 2)),
        ("b" * 50, range(0, 200, 4)),
        ("irib" * 12, (0, 190)),
        ("r" * 50, ()),
    ],
    ids=["a wait together", "much to do", "short waits", "now and then", "no answers"],
)
def test_a_loop_that_is_not_blocked(looks: str, ends_ms: Sequence[int]) -> None:
    assert found(looks, ends_ms) is None


def test_every_request_blocks_it() -> None:
    stalls = found("b" * 50, range(20, 201, 20))

    assert stalls is not None
    assert stalls.typical_s == pytest.approx(0.02)
    assert stalls.lost_s == pytest.approx(4 * 0.02)
    assert stalls.waits


def test_one_request_of_many_blocks_it_by_computing() -> None:
    stalls = found("i" * 10 + "r" * 50 + "i" * 190, (*range(2, 40, 4), *range(244, 1000, 4)), connections=None)

    assert stalls is not None
    assert stalls.typical_s == pytest.approx(0.2, abs=0.006)
    assert stalls.lost_s == pytest.approx(0.02, abs=0.002)  # 0.2 s in each second, of which half is left on average
    assert not stalls.waits


def test_the_functions_that_hold_it() -> None:
    text = f"""
{ROOT} 600
{ROOT};call (/p/app.py:3);export (/p/app.py:9) 70
{ROOT};call (/p/app.py:3);small (/p/app.py:20) 30
thread (8): worker;work (/p/app.py:1) 999
"""
    held = held_by([text])

    assert held is not None
    assert [frame.function for frame in held][-2:] == ["call", "export"]
    assert held_by([f"{ROOT} 600"]) is None
    assert held_by([]) is None
