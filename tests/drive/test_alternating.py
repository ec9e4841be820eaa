"""Two servers loaded in turn: who gets load when, and what becomes of it when one of them does not play along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from time import monotonic_ns

import httpx
import pytest
from drive.scripted import ABORT, GET, HELLO, MS, SILENT, Handler, answer, failures, loaded, saying, scripted, totals

from pytest_fileperf.drive.run import Run, RunProgress, edges_of
from pytest_fileperf.measure.measurement import background_of
from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.plan.work import Work

QUICK = saying(HELLO, after_s=0.002)
"""Leaves the core to others: nothing here depends on how much is answered."""
Pair = tuple[Run, Run]


def plan(
    *firsts: Side, connections: int = 2, warmup_ms: int = 50, turn_ms: int = 80, timeout_ms: int = 5000
) -> Alternation:
    return Alternation(
        connections=connections,
        warmup_ns=warmup_ms * MS,
        turns_ns=(turn_ms * MS,) * len(firsts or (Side.BASE, Side.NOW)),
        handover_ns=10 * MS,
        firsts=firsts or (Side.BASE, Side.NOW),
        timeout_ns=timeout_ms * MS,
    )


def alternated(
    urls: Sequence[str],
    work: Work = GET,
    planned: Alternation | None = None,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Pair:
    base, now = loaded(urls, work, planned or plan(), tell)
    return base, now


def against(handlers: Sequence[Handler], planned: Alternation) -> Pair:
    with scripted(handlers[0]) as base, scripted(handlers[1]) as now:
        return alternated((base, now), planned=planned)


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with scripted(QUICK) as base, scripted(QUICK) as now:
        yield base, now


def turns(result: Run) -> list[Round]:
    return [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]


# --- turns


def test_each_cycle_is_a_round_on_both_sides_at_times_that_are_known_before(urls: tuple[str, str]) -> None:
    planned = plan(Side.BASE, Side.NOW, Side.NOW)
    results = alternated(urls, planned=planned)

    zero_ns = turns(results[Side.BASE])[0].started_ns - planned.rounds(Side.BASE)[0][0]
    for side, result in zip(Side, results, strict=True):
        measured = tuple((round_.started_ns - zero_ns, round_.ended_ns - zero_ns) for round_ in turns(result))
        assert measured == planned.rounds(side)
        assert [end - start for start, end in measured] == [70 * MS] * 3
        assert (result.rounds[0].boot, result.attack_ns) == (3, 210 * MS)
        assert (totals(result)[0] > 0, totals(result)[1]) == (True, {})
        edges = edges_of(planned, side)
        assert {own.started_ns - zero_ns + planned.measured_from_ns for own in result.rounds} <= set(edges)
        assert list(edges) == sorted(set(edges))
    phases = [[phase.value for phase, _ in groupby(own.phase for own in each.rounds)] for each in results]
    turn = ["handover", "round"]
    assert phases == [turn * 3 + ["drain"], turn * 3 + ["handover", "drain"]]  # the last turn is the base's


def test_rounds_of_one_server_are_known_before_too() -> None:
    closed = LoadPlan(connections=1, warmup_ns=50 * MS, round_ns=100 * MS, rounds=2, timeout_ns=MS)
    assert edges_of(closed) == (50 * MS, 150 * MS, 250 * MS)
    assert edges_of(replace(closed, warmup_ns=0, rounds=1, requests=5)) == (0,)


@pytest.mark.parametrize("firsts", [(Side.BASE, Side.NOW, Side.NOW, Side.BASE, Side.BASE), (Side.BASE,), (Side.NOW,)])
def test_what_a_side_does_in_the_other_s_turns_is_read_there(urls: tuple[str, str], firsts: tuple[Side, ...]) -> None:
    """A server that uses a tenth of a core all the time, and one that uses none."""
    results = loaded(urls, GET, plan(*firsts), server_cpu=(lambda: monotonic_ns() // 10, lambda: 0))

    base, now = (Recording(rounds=r.rounds, boots=(), connections=2, engine=r.engine) for r in results)
    found = background_of(base, now)
    assert found.base == pytest.approx(0.1, abs=0.04)
    assert found.now == 0.0


def test_a_side_is_loaded_in_its_turns_only_and_the_warm_up_is_in_no_round(urls: tuple[str, str]) -> None:
    """A request that is due at the end of a turn may be delayed into the other's, one a connection and no more."""
    planned = plan(Side.BASE, Side.NOW, Side.BASE, Side.BASE, turn_ms=100, warmup_ms=100)
    begun: dict[str, list[int]] = {url: [] for url in urls}

    async def journey(client: httpx.AsyncClient) -> None:
        begun[str(client.base_url).rstrip("/")].append(monotonic_ns())
        await client.get("/")

    results = alternated(urls, Journey(name="journey", function=journey), planned)

    zero_ns = turns(results[Side.BASE])[0].started_ns - planned.rounds(Side.BASE)[0][0] - planned.measured_from_ns
    for side, url in zip(Side, urls, strict=True):
        edges_ns = planned.pacing(side).edges
        spans = list(zip(edges_ns[::2], edges_ns[1::2], strict=True))
        outside = [at_ns for at_ns in begun[url] if not any(start <= at_ns - zero_ns < end for start, end in spans)]
        assert len(outside) <= planned.connections * len(spans)
        assert len(begun[url]) > 3 * planned.connections * len(spans)
        assert min(begun[url]) >= zero_ns + edges_ns[0]
        assert 0 < totals(results[side])[0] < len(begun[url])
        assert (results[side].engine, results[side].why_engine) == ("client", "a journey is code on a client")


def test_without_a_warm_up_it_begins_with_the_first_turn(urls: tuple[str, str]) -> None:
    results = alternated(urls, planned=plan(Side.NOW, warmup_ms=0))
    assert [len(turns(result)) for result in results] == [1, 1]
    assert turns(results[Side.NOW])[0].started_ns < turns(results[Side.BASE])[0].started_ns


def test_it_tells_how_far_it_is(urls: tuple[str, str]) -> None:
    told: list[RunProgress] = []
    alternated(urls, planned=plan(Side.BASE, Side.NOW, Side.BASE, warmup_ms=400, turn_ms=150), tell=told.append)

    assert (told[0].phase, told[0].requests) == ("warm-up", 0)
    assert [phase for phase, _ in groupby(moment.phase for moment in told)] in (
        ["warm-up", "round"],
        ["warm-up", "round", "drain"],  # the last turn is the other side's
    )
    assert [moment.elapsed_ns for moment in told] == sorted(moment.elapsed_ns for moment in told)
    assert told[-1].rps > 0


# --- when a server does not play along


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize(
    "handler, kinds",
    [
        (saying(answer(b"no database", "500 Internal Server Error"), after_s=0.002), {"status 500"}),
        (saying(*[HELLO] * 20, *[ABORT] * 10_000), {"disconnected"}),
        (saying(SILENT), {"timeout"}),
    ],
    ids=["broken", "goes away", "silent"],
)
def test_failures_belong_to_the_side_that_failed_and_the_other_one_goes_on(
    handler: Handler, kinds: set[str], side: int
) -> None:
    handlers = [QUICK, QUICK]
    handlers[side] = handler
    planned = plan(Side.BASE, Side.NOW, Side.NOW, connections=1, timeout_ms=500 if kinds == {"timeout"} else 5000)
    results = against(handlers, planned)

    good, failed = totals(results[side])
    assert good <= 20
    assert set(failed) == kinds
    assert kinds != {"status 500"} or "no database" in failures(results[side])[0].example
    answered, failed = totals(results[1 - side])
    assert (answered > 0, failed) == (True, {})
    assert [len(turns(result)) for result in results] == [3, 3]


def test_requests_that_outlast_their_turn_are_waited_for() -> None:
    results = against((QUICK, saying(HELLO, after_s=0.3)), plan(Side.BASE, connections=1, warmup_ms=0))

    assert totals(results[Side.NOW]) == (1, {})
    assert [(round_.phase, round_.requests) for round_ in results[Side.NOW].rounds][-1] == (Phase.DRAIN, 1)
    assert results[Side.NOW].wait_ns > 0


@pytest.mark.parametrize("side", Side)
def test_a_server_that_refuses_connections_is_a_connect_error(side: int, urls: tuple[str, str]) -> None:
    asked = list(urls)
    asked[side] = "http://127.0.0.1:9"
    with pytest.raises(httpx.ConnectError):
        alternated(asked)


def test_a_listener_that_raises_ends_both_sides(urls: tuple[str, str]) -> None:
    class EnoughError(Exception):
        pass

    def enough(_: RunProgress) -> None:
        raise EnoughError

    begun_ns, planned = monotonic_ns(), plan(*[Side.BASE] * 200)
    with pytest.raises(EnoughError):
        alternated(urls, planned=planned, tell=enough)
    assert monotonic_ns() - begun_ns < planned.duration_ns
