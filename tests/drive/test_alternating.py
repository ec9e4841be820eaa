"""Two servers loaded in turn: who gets load when, and what becomes of it when one of them does not play along."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import groupby
from time import monotonic_ns

import httpx
import psutil
import pytest
from drive.scripted import Handler, answer, hello, loaded, scripted

from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress, edges_of
from pytest_fileperf.measure.measurement import background_of
from pytest_fileperf.measure.recording import Failure, Phase, Recording, Round, merge_failures
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work

MS = 1_000_000
GET = Operation(method="GET", url="/")
REFUSED = "http://127.0.0.1:9"
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


async def broken(number: int, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"no database", "500 Internal Server Error"))


async def dying(number: int, writer: asyncio.StreamWriter) -> None:
    if number < 20:
        writer.write(answer(b"hello"))
    else:
        writer.transport.abort()


def alternated(
    urls: Sequence[str],
    work: Work = GET,
    planned: Alternation | None = None,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Pair:
    """Loads two servers from this process."""
    base, now = loaded(urls, work, planned or plan(), tell)
    return base, now


@pytest.fixture(scope="module")
def urls() -> Iterator[tuple[str, str]]:
    with scripted(hello) as base, scripted(hello) as now:
        yield base, now


@pytest.fixture(scope="module")
def shared() -> Iterator[Generators]:
    with closing(Generators()) as generators:
        yield generators


def generated(
    generators: Generators,
    urls: Sequence[str],
    planned: Alternation | None = None,
    pids: tuple[tuple[int, ...], ...] = ((), ()),
) -> Pair:
    """Loads two servers from a generator's process."""
    base, now = generators.run(
        (GET, GET),
        planned or plan(),
        tuple(Target(boot=3, url=url) for url in urls),
        pids=pids,
        cores=None,
        progress=lambda _: None,
        check=lambda: None,
    )
    return base, now


def turns(result: Run) -> list[Round]:
    return [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]


def good(result: Run) -> int:
    return sum(round_.requests for round_ in result.rounds)


def failures(result: Run) -> tuple[Failure, ...]:
    return merge_failures(failure for round_ in result.rounds for failure in round_.failures)


# --- turns


def test_each_cycle_is_a_round_on_both_sides(urls: tuple[str, str]) -> None:
    planned = plan(Side.BASE, Side.NOW, Side.NOW)
    results = alternated(urls, planned=planned)

    for side in Side:
        lengths = [(round_.ended_ns - round_.started_ns) // MS for round_ in turns(results[side])]
        assert lengths == [70, 70, 70]
        assert results[side].rounds[0].boot == 3
        assert results[side].attack_ns == 210 * MS
        assert good(results[side]) > 0
        assert failures(results[side]) == ()
    zero_ns = turns(results[Side.BASE])[0].started_ns - planned.rounds(Side.BASE)[0][0]
    for side in Side:
        measured = tuple((round_.started_ns - zero_ns, round_.ended_ns - zero_ns) for round_ in turns(results[side]))
        assert measured == planned.rounds(side)


def test_it_is_known_before_a_load_when_its_rounds_begin_and_end(urls: tuple[str, str]) -> None:
    planned = plan(Side.BASE, Side.NOW, Side.NOW)
    for side, result in zip(Side, alternated(urls, planned=planned), strict=True):
        edges = edges_of(planned, side)
        zero_ns = result.rounds[0].started_ns - planned.measured_from_ns
        assert {own.started_ns - zero_ns for own in result.rounds} <= set(edges)
        assert list(edges) == sorted(set(edges))
    closed = LoadPlan(connections=1, warmup_ns=50 * MS, round_ns=100 * MS, rounds=2, timeout_ns=MS)
    assert edges_of(closed) == (50 * MS, 150 * MS, 250 * MS)
    assert edges_of(replace(closed, warmup_ns=0, rounds=1, requests=5)) == (0,)


def test_between_the_turns_is_handover_and_at_the_end_the_drain(urls: tuple[str, str]) -> None:
    phases = [
        [phase.value for phase, _ in groupby(round_.phase for round_ in each.rounds)] for each in alternated(urls)
    ]
    base, now = phases
    assert base == ["handover", "round", "handover", "round", "drain"]
    assert now == ["handover", "round", "handover", "round", "handover", "drain"]  # the last turn is the other side's


@pytest.mark.parametrize("firsts", [(Side.BASE, Side.NOW, Side.NOW, Side.BASE, Side.BASE), (Side.BASE,), (Side.NOW,)])
def test_what_a_side_does_in_the_other_s_turns_is_read_there(urls: tuple[str, str], firsts: tuple[Side, ...]) -> None:
    """A server that uses a tenth of a core all the time, and one that uses none."""
    results = loaded(urls, GET, plan(*firsts), server_cpu=(lambda: monotonic_ns() // 10, lambda: 0))

    base, now = (Recording(rounds=r.rounds, boots=(), connections=2, engine=r.engine) for r in results)
    found = background_of(base, now)
    assert found.base == pytest.approx(0.1, abs=0.04)
    assert found.now == 0.0


def test_a_side_is_loaded_in_its_turns_only(urls: tuple[str, str]) -> None:
    """A request that is due at the end of a turn may be delayed into the other's, one a connection and no more."""
    planned = plan(Side.BASE, Side.NOW, Side.BASE, Side.BASE, connections=2, turn_ms=100)
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


def test_the_warm_up_is_in_no_round(urls: tuple[str, str]) -> None:
    counts = dict.fromkeys(urls, 0)

    async def journey(client: httpx.AsyncClient) -> None:
        await client.get("/")
        counts[str(client.base_url).rstrip("/")] += 1

    results = alternated(urls, Journey(name="journey", function=journey), plan(warmup_ms=150))

    for side, url in zip(Side, urls, strict=True):
        assert 0 < good(results[side]) < counts[url]


def test_without_a_warm_up_it_begins_with_the_first_turn(urls: tuple[str, str]) -> None:
    results = alternated(urls, planned=plan(Side.NOW, warmup_ms=0))
    assert [len(turns(result)) for result in results] == [1, 1]
    assert turns(results[Side.NOW])[0].started_ns < turns(results[Side.BASE])[0].started_ns


def test_both_sides_go_the_same_way(urls: tuple[str, str]) -> None:
    redirected = Operation(method="GET", url="/", arguments={"follow_redirects": True})
    engines = [(result.engine, result.why_engine) for result in (*alternated(urls), *alternated(urls, redirected))]
    assert engines == [("replay", "")] * 2 + [("client", "redirects are followed")] * 2


def test_it_tells_how_far_it_is(urls: tuple[str, str]) -> None:
    told: list[RunProgress] = []
    alternated(urls, planned=plan(Side.BASE, Side.NOW, Side.BASE, warmup_ms=800, turn_ms=150), tell=told.append)

    assert (told[0].phase, told[0].requests) == ("warm-up", 0)
    assert [phase for phase, _ in groupby(moment.phase for moment in told)] in (
        ["warm-up", "round"],
        ["warm-up", "round", "drain"],  # the last turn is the other side's
    )
    assert [moment.elapsed_ns for moment in told] == sorted(moment.elapsed_ns for moment in told)
    assert told[-1].rps > 0


# --- when a server does not play along


@pytest.mark.parametrize("side", Side)
def test_failures_belong_to_the_side_that_failed(side: int) -> None:
    handlers: list[Handler] = [hello, hello]
    handlers[side] = broken
    with ExitStack() as stack:
        results = alternated([stack.enter_context(scripted(handler)) for handler in handlers])

    assert (good(results[side]), [failure.kind for failure in failures(results[side])]) == (0, ["status 500"])
    assert "no database" in failures(results[side])[0].example
    assert good(results[1 - side]) > 0
    assert failures(results[1 - side]) == ()
    assert [len(turns(result)) for result in results] == [2, 2]


def test_a_server_that_goes_away_has_failed_and_the_other_one_goes_on() -> None:
    with scripted(hello) as base, scripted(dying) as now:
        results = alternated((base, now), planned=plan(Side.BASE, Side.NOW, Side.NOW, connections=1))

    assert good(results[Side.NOW]) <= 20
    assert [failure.kind for failure in failures(results[Side.NOW])] == ["disconnected"]
    assert all(round_.requests and not round_.failed for round_ in turns(results[Side.BASE]))
    assert len(turns(results[Side.NOW])) == 3


def test_requests_that_outlast_their_turn_are_waited_for() -> None:
    async def slow(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(answer(b"late"))

    with scripted(hello) as base, scripted(slow) as now:
        results = alternated((base, now), planned=plan(Side.BASE, connections=1, warmup_ms=0))

    assert (good(results[Side.NOW]), failures(results[Side.NOW])) == (1, ())
    assert [(round_.phase, round_.requests) for round_ in results[Side.NOW].rounds][-1] == (Phase.DRAIN, 1)
    assert results[Side.NOW].wait_ns > 0


def test_a_silent_server_is_a_timeout_and_ends() -> None:
    async def silent(number: int, writer: asyncio.StreamWriter) -> None:
        pass

    with scripted(silent) as base, scripted(hello) as now:
        results = alternated((base, now), planned=plan(connections=1, timeout_ms=300))

    assert good(results[Side.BASE]) == 0
    assert {failure.kind for failure in failures(results[Side.BASE])} <= {"timeout"}
    assert good(results[Side.NOW]) > 0


@pytest.mark.parametrize("side", Side)
def test_a_server_that_refuses_connections_is_a_connect_error(side: int, urls: tuple[str, str]) -> None:
    asked = list(urls)
    asked[side] = REFUSED
    with pytest.raises(httpx.ConnectError):
        alternated(asked)


def test_a_listener_that_raises_ends_both_sides(urls: tuple[str, str]) -> None:
    class EnoughError(Exception):
        pass

    def enough(_: RunProgress) -> None:
        raise EnoughError

    begun_ns = monotonic_ns()
    with pytest.raises(EnoughError):
        alternated(urls, planned=plan(*[Side.BASE] * 200), tell=enough)
    assert monotonic_ns() - begun_ns < plan(*[Side.BASE] * 200).duration_ns


# --- in a process of its own


def test_a_generator_alternates_and_makes_other_runs_too(shared: Generators, urls: tuple[str, str]) -> None:
    first, second = generated(shared, urls), generated(shared, urls, planned=plan(Side.NOW))
    assert [[len(turns(result)) for result in pair] for pair in (first, second)] == [[2, 2], [1, 1]]
    assert all(good(result) and not failures(result) for pair in (first, second) for result in pair)


def test_it_reads_the_cpu_time_of_both_servers(shared: Generators, urls: tuple[str, str]) -> None:
    own = psutil.Process().pid  # both servers are threads of this process
    results = generated(shared, urls, pids=((own,), ()))
    base, now = ([round_.server_cpu_ns for round_ in turns(result)] for result in results)
    assert all(spent is not None and spent > 0 for spent in base)
    assert not any(now)
