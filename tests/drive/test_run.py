"""Loads from this process: what is counted as good, and what is said of the rest, by each engine."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from time import monotonic_ns

import httpx
import pytest
from drive.scripted import (
    ABORT,
    CLOSING,
    GET,
    HELLO,
    MS,
    SILENT,
    Handler,
    answer,
    counted,
    failures,
    hello,
    loaded,
    run,
    saying,
    scripted,
    totals,
)
from families import module_of
from wire.conformance import http
from wire.scripted import Fin, Pause, Request, RequestHead, Script, ScriptedServer, Send

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress, edges_of, quiet_memory, run_load
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.measurement import background_of
from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.wire.eventloop import new_event_loop
from pytest_fileperf.wire.payload_files import PayloadFiles

HERE = Path(__file__).relative_to(Path.cwd()) if Path(__file__).is_relative_to(Path.cwd()) else Path(__file__)
"""This file, as failures name it."""
CLIENT = pytest.mark.parametrize("client", [False, True], ids=["replay", "client"])


def through(client: bool, expect: Expectation | None = None) -> Operation:
    """Returns a request that is replayed, or one that goes through httpx's client."""
    return replace(GET, arguments={"follow_redirects": client}, expect=expect or Expectation())


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CUT_OFF = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"
NONSENSE = b"SSH-2.0 Server disconnected\r\n\r\n"
BROKEN = answer(b"database is down", "500 Internal Server Error")
PACKED = answer(b"\x1f\x8b\x08\x00\x00", extra="Content-Encoding: gzip\r\n")
DIGEST = hashlib.sha256(b"hello").hexdigest()
Kinds = dict[str, int]
ANSWERS: dict[str, tuple[tuple[bytes, ...], Expectation, tuple[int, Kinds], tuple[str | tuple[str, ...], str]]] = {
    "good": ((HELLO,), Expectation(), (6, {}), ("", "")),
    "bad status": ((BROKEN,), Expectation(), (0, {"status 500": 6}), ("answer 500", "database is down")),
    "expected status": ((answer(b"", "404 Not Found"),), Expectation(statuses=(404,)), (6, {}), ("", "")),
    "now and then": ((HELLO, HELLO, BROKEN), Expectation(), (4, {"status 500": 2}), ("answer 500", "")),
    "size": ((HELLO,), Expectation(size_bytes=9), (0, {"size": 6}), ("5 bytes instead of 9", "hello")),
    "chunked": ((CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",), Expectation(size_bytes=5), (6, {}), ("", "")),
    "size of chunks": (
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",), Expectation(size_bytes=6), (0, {"size": 6}), ("5 bytes", ""),
    ),
    "digest": (
        (HELLO, answer(b"jello")), Expectation(sha256=DIGEST, size_bytes=5), (3, {"digest": 3}), ("5 bytes whose", ""),
    ),
    "packed size": (
        (PACKED,), Expectation(size_bytes=9), (0, {"size": 6}),
        ("5 bytes instead of 9, with a body compressed by gzip. To compare it uncompressed, give headers=", ""),
    ),
    "packed status": (
        (PACKED,), Expectation(statuses=(404,)), (0, {"status 200": 6}),
        ("answer 200, with a body compressed by gzip", ""),
    ),
    "silent": (
        (SILENT, *[HELLO] * 5), Expectation(), (5, {"timeout": 1}),
        # Whichever limit is seen first: that of the request, or that of the client.
        (("no complete answer within the time limit of 200 ms", "the server sent nothing for 0.2 s"), ""),
    ),
    "dropped": ((HELLO, ABORT, *[HELLO] * 4), Expectation(), (5, {"disconnected": 1}), ("", "")),
    "closing": ((CLOSING,), Expectation(), (6, {}), ("", "")),
    "nonsense": ((NONSENSE,), Expectation(), (0, {"protocol": 6}), ("", "")),
}  # fmt: skip
"""What a server answers, what is expected of it, what is counted, and how the example begins and ends."""


@CLIENT
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_judged_and_counted(name: str, client: bool) -> None:
    answers, expect, counts, (begins, ends) = ANSWERS[name]
    result = run(saying(*answers), through(client, expect), counted(6, timeout_ms=200 if SILENT in answers else 5000))

    assert totals(result) == counts
    for failure in failures(result):
        assert failure.example.startswith(begins)
        assert failure.example.endswith(ends)
        assert "packed" not in begins or "body begins" not in failure.example
    assert name != "good" or [(r.bytes_received, r.statuses) for r in result.rounds] == [(30, ((200, 6),))]


@pytest.mark.parametrize("sent, kind", [(ABORT, "disconnected"), (CUT_OFF, "disconnected"), (NONSENSE, "protocol")])
@pytest.mark.parametrize("own", [False, True], ids=["our transport", "its own"])
def test_a_journey_s_answer_that_ends_early_is_told_from_nonsense(
    sent: bytes, kind: str, own: bool, of_family: str
) -> None:
    package = module_of(of_family)

    async def ends(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"" if sent == ABORT else sent)
        await writer.drain()
        writer.close()

    async def journey(client: httpx.AsyncClient) -> None:
        if not own:
            await client.get("/")
            return
        async with package.AsyncClient(transport=package.AsyncHTTPTransport(), base_url=client.base_url) as other:
            await other.get("/")

    assert totals(run(ends, Journey(name="journey", function=journey), counted(2))) == (0, {kind: 2})


@CLIENT
def test_an_answer_after_the_time_limit_is_a_timeout_however_late_that_is_looked_at(client: bool) -> None:
    async def slow_twice(number: int, writer: asyncio.StreamWriter) -> None:
        for piece in (HELLO[:20], HELLO[20:]):  # so that no single wait for data is too long
            await asyncio.sleep(0.03 if number in (1, 2) else 0)
            writer.write(piece)

    result = run(slow_twice, through(client), counted(6, timeout_ms=50))

    assert totals(result) == (4, {"timeout": 2})
    assert failures(result)[0].example == "no complete answer within the time limit of 50.0 ms"


def test_requests_for_which_there_was_no_time_are_failures() -> None:
    result = run(saying(HELLO, after_s=0.02), plan=replace(counted(1000, connections=2), round_ns=100 * MS))

    good, kinds = totals(result)
    assert 0 < good < 1000
    assert kinds == {"not sent": 1000 - good}
    assert failures(result)[0].example.endswith("Use a longer duration")


def test_uploads_arrive_whole_from_memory_and_from_files(tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(b"z" * 3_000_000)
    for content in (payload("10KiB"), payload("3MiB"), payload(source)):
        result = run(hello, Operation(method="POST", url="/", arguments={"content": content}), counted(4))

        assert totals(result) == (4, {})
        assert sum(r.bytes_sent for r in result.rounds) == 4 * content.size_bytes


def test_no_progress_is_told_while_a_burst_is_sent() -> None:
    """A message would delay requests that are due at once."""
    told: list[RunProgress] = []
    run(saying(HELLO, after_s=0.4), plan=counted(4, connections=4), tell=told.append)
    assert told[0].elapsed_ns > 200 * MS


# --- journeys


async def careless(client: httpx.AsyncClient) -> None:
    await client.get("/")


async def strict(client: httpx.AsyncClient) -> None:
    (await client.get("/")).raise_for_status()


async def wrong(client: httpx.AsyncClient) -> None:
    assert (await client.get("/")).text == "goodbye", "not what we wanted"


async def inner() -> None:
    raise KeyError("id")


async def raises(_: httpx.AsyncClient) -> None:
    await inner()


async def cancels(client: httpx.AsyncClient) -> None:
    part = asyncio.ensure_future(client.get("/"))
    part.cancel()
    await part


def not_awaited(_: httpx.AsyncClient) -> Awaitable[None]:  # may be marked as a coroutine function
    raise ValueError("made wrongly")


async def stuck(_: httpx.AsyncClient) -> None:
    await asyncio.sleep(30)


async def away(client: httpx.AsyncClient) -> None:
    await client.get("http://example.invalid/")


async def follow(client: httpx.AsyncClient) -> None:
    await client.get("/", follow_redirects=True)


ELSEWHERE = answer(b"", "302 Found", "Location: http://192.0.2.1/\r\n")


@pytest.mark.parametrize(
    "journey, said, kind, line_of, words",
    [
        (careless, BROKEN, "status 500", None, "answer 500"),
        (strict, answer(b"", "404 Not Found"), "status 404", strict, ""),
        (wrong, HELLO, "assertion", wrong, "not what we wanted"),
        (raises, HELLO, "KeyError", inner, "'id'"),
        (cancels, HELLO, "cancelled", None, ""),
        (not_awaited, HELLO, "ValueError", not_awaited, "made wrongly"),
        (stuck, HELLO, "timeout", None, "150 ms"),
        (away, HELLO, "connect", None, "example.invalid isn't this machine"),
        (follow, ELSEWHERE, "connect", None, "192.0.2.1 isn't this machine"),
    ],
)
@pytest.mark.usefixtures("of_family")
def test_what_goes_wrong_in_a_journey_is_a_failure_of_its_kind_at_its_innermost_line(
    journey: Callable[[httpx.AsyncClient], Awaitable[None]],
    said: bytes,
    kind: str,
    line_of: Callable[..., object] | None,
    words: str,
) -> None:
    plan = counted(3, timeout_ms=150 if journey is stuck else 5000)
    result = run(saying(said), Journey(name="journey", function=journey), plan)

    assert totals(result) == (0, {kind: 3})
    (failure,) = failures(result)
    assert words in failure.example
    if line_of is not None:
        assert failure.example.startswith(f"{HERE}:{line_of.__code__.co_firstlineno + 1}: ")


@pytest.mark.usefixtures("of_family")
def test_a_refused_connection_is_tried_again_after_a_pause() -> None:
    async def refused(client: httpx.AsyncClient) -> None:
        await client.get("http://127.0.0.1:9/")

    plan = LoadPlan(connections=1, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS)
    good, kinds = totals(run(hello, Journey(name="refused", function=refused), plan))

    assert (good, set(kinds)) == (0, {"connect"})
    assert kinds["connect"] <= 5


# --- engines


class Reading(httpx.Auth):
    """A flow that may read the answer."""

    requires_response_body = True


@pytest.mark.parametrize(
    "arguments, why",
    [
        ({}, ""),
        ({"json": {"a": 1}}, ""),
        ({"data": {"a": "1"}, "files": {"f": payload("1KiB")}}, ""),
        ({"auth": ("user", "password")}, ""),
        ({"follow_redirects": True}, "redirects are followed"),
        ({"auth": httpx.DigestAuth("user", "password")}, "the authentication may need several requests"),
        ({"auth": Reading()}, "the authentication may need several requests"),
    ],
)
def test_replay_is_used_where_it_is_equivalent(arguments: dict[str, object], why: str) -> None:
    expect = Expectation(size_bytes=5, sha256=DIGEST)
    result = run(hello, Operation(method="POST", url="/", arguments=arguments, expect=expect), counted(2))

    assert (result.engine, result.why_engine) == ("client" if why else "replay", why)
    assert totals(result) == (2, {})
    assert sum(round_.bytes_received for round_ in result.rounds) == 10


def test_what_can_never_work_is_raised_at_once() -> None:
    with pytest.raises(PlanError, match="httpx cannot build GET /: keys must be"):
        run(hello, replace(GET, arguments={"json": {1j: object()}}))
    with pytest.raises(PlanError, match="httpx cannot build GET /: Illegal header value"):
        run(hello, replace(GET, arguments={"headers": {"x": "a\nb"}}))
    with pytest.raises(httpx.ConnectError):
        loaded(["http://127.0.0.1:9"], GET, counted(5))


FREEZE_COUNT = gc.get_freeze_count
"""That of Python, which other tests do without."""


@pytest.mark.parametrize("before", [False, True])
def test_what_the_process_has_frozen_stays_frozen_and_nothing_else(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", FREEZE_COUNT)
    gc.unfreeze()
    try:
        if before:
            gc.freeze()
        with quiet_memory(collect=True):
            assert gc.get_freeze_count() > 0
        assert (gc.get_freeze_count() > 0) == before
    finally:
        gc.freeze()  # as the tests have it


# --- open loops


def open_loop(**shape: object) -> LoadPlan:
    base = LoadPlan(connections=10, warmup_ns=0, round_ns=100 * MS, rounds=3, timeout_ns=5000 * MS)
    return replace(base, **shape)  # type: ignore[arg-type]


@CLIENT
def test_an_open_loop_sends_what_is_due_and_counts_from_then(client: bool) -> None:
    """The second of ten requests, 30 ms apart, is answered late; those after it do not wait for it."""

    async def late_once(number: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.15 if number == 1 else 0)
        writer.write(HELLO)

    result = run(late_once, through(client), open_loop(rate=1000 / 30))

    assert totals(result) == (10, {})
    assert (result.due, result.attack_ns) == (10, 270 * MS)
    assert sum(round_.service.count for round_ in result.rounds) == 10
    assert result.boot.leads is not None
    assert len(result.boot.leads.due_ns) == 10
    assert result.boot.leads.max_ns[1] >= 150 * MS


def test_with_too_few_connections_latencies_show_the_wait_for_one() -> None:
    result = run(saying(HELLO, after_s=0.05), plan=open_loop(rate=100, connections=1, rounds=1))

    assert totals(result) == (10, {})
    assert result.wait_ns > 300 * MS
    recorded = [histogram for round_ in result.rounds for histogram in (round_.latency, round_.service)]
    assert max(histogram.max_ns for histogram in recorded[::2]) > 400 * MS
    # The service time is the server's alone.
    assert min(histogram.min_ns for histogram in recorded[1::2] if histogram.count) >= 50 * MS


@pytest.mark.parametrize("kept_ns, said, connections", [(0, HELLO, 5), (1000 * MS, HELLO, 1), (1000 * MS, CLOSING, 5)])
def test_an_open_loop_connects_anew_if_the_server_has_closed_or_the_connection_has_rested(
    kept_ns: int, said: bytes, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers close idle connections, and may do so in the moment in which the next request comes."""
    callers: list[object] = []
    answering = saying(said)

    async def note(number: int, writer: asyncio.StreamWriter) -> None:
        callers.append(writer.get_extra_info("peername"))
        await answering(number, writer)

    monkeypatch.setattr("pytest_fileperf.drive.slots.KEPT_IDLE_NS", kept_ns)
    result = run(note, plan=open_loop(rate=50, rounds=1, connections=1))

    assert (totals(result), result.due) == ((5, {}), 5)
    assert len(set(callers)) == connections


# --- what servers do to connections without saying so is counted beside good answers, and what was not sent is not

ANSWER = Send(http("Content-Length: 5", body=b"hello"))
LAST = Send(http("Content-Length: 5", "Connection: close", body=b"hello"))
LARGE = bytes(16 << 20)
"""More than socket buffers on both sides take."""
UNHURRIED = LoadPlan(connections=1, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS, rate=20)


def play(script: Script, plan: LoadPlan, client: bool, content: bytes = b"") -> Round:
    """Returns all that a load saw of a server that follows the script on each connection."""
    arguments = {"content": content, "follow_redirects": client}
    operation = Operation(method="POST", url="/", arguments=arguments)

    async def load() -> Run:
        async with ScriptedServer((script,), tls=None) as server:
            with closing(PayloadFiles()) as files:
                (result,) = await run_load(
                    (operation,),
                    plan,
                    (Target(boot=0, url=server.url),),
                    files=files,
                    server_cpu=(lambda: None,),
                    progress=lambda _: None,
                )
        return result

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        result = runner.run(load())
    assert result.engine == ("client" if client else "replay")
    return Round.summed([replace(round_, index=0) for round_ in result.rounds])


@CLIENT
def test_what_becomes_of_three_requests_is_counted(client: bool) -> None:
    early = play((RequestHead(), ANSWER), counted(3), client, LARGE)
    assert (early.requests, early.failed, early.cut_off) == (3, 0, 3)
    assert early.bytes_sent < 3 * len(LARGE)
    whole = play((Request(), ANSWER) * 3, counted(3), client, LARGE)
    assert (whole.requests, whole.cut_off, whole.bytes_sent) == (3, 0, 3 * len(LARGE))
    given_up = play((Request(), Send(ANSWER.data + b"x")), counted(3), client)
    assert (given_up.requests, given_up.failed, given_up.out_of_step) == (3, 0, 3)


@CLIENT
@pytest.mark.parametrize(
    "script, counter",
    [
        ((Request(), ANSWER, Pause(0.005), ANSWER), "out_of_step"),
        ((Request(), ANSWER, Fin()), "closed_unsaid"),
        ((Request(), LAST, Fin()), ""),
    ],
    ids=["bytes long after an answer", "closed without announcement", "closed as announced"],
)
def test_what_a_server_does_between_requests_is_counted(script: Script, counter: str, client: bool) -> None:
    seen = play(script, UNHURRIED, client)
    assert seen.failed == 0
    assert seen.requests > 1
    for name in ("out_of_step", "closed_unsaid", "cut_off"):
        assert getattr(seen, name) >= seen.requests - 1 if name == counter else getattr(seen, name) == 0


# --- Two servers loaded in turn: who gets load when, and what becomes of it when one of them does not play along

QUICK = saying(HELLO, after_s=0.002)
"""Leaves the core to others: nothing here depends on how much is answered."""
Pair = tuple[Run, Run]


def alternation(
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
    base, now = loaded(urls, work, planned or alternation(), tell)
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
    planned = alternation(Side.BASE, Side.NOW, Side.NOW)
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


@pytest.mark.parametrize("firsts", [(Side.BASE, Side.NOW, Side.NOW, Side.BASE, Side.BASE), (Side.BASE,), (Side.NOW,)])
def test_what_a_side_does_in_the_other_s_turns_is_read_there(urls: tuple[str, str], firsts: tuple[Side, ...]) -> None:
    """A server that uses a tenth of a core all the time, and one that uses none."""
    results = loaded(urls, GET, alternation(*firsts), server_cpu=(lambda: monotonic_ns() // 10, lambda: 0))

    base, now = (Recording(rounds=r.rounds, boots=(), connections=2, engine=r.engine) for r in results)
    found = background_of(base, now)
    assert found.base == pytest.approx(0.1, abs=0.04)
    assert found.now == 0.0


def test_a_side_is_loaded_in_its_turns_only_and_the_warm_up_is_in_no_round(urls: tuple[str, str]) -> None:
    """A request that is due at the end of a turn may be delayed into the other's, one a connection and no more."""
    planned = alternation(Side.BASE, Side.NOW, Side.BASE, Side.BASE, turn_ms=100, warmup_ms=100)
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
        assert results[side].engine == "client"
        assert results[side].why_engine == "a journey is code, which needs a client"


def test_it_tells_how_far_it_is(urls: tuple[str, str]) -> None:
    told: list[RunProgress] = []
    alternated(urls, planned=alternation(Side.BASE, Side.NOW, Side.BASE, warmup_ms=400, turn_ms=150), tell=told.append)

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
    planned = alternation(
        Side.BASE, Side.NOW, Side.NOW, connections=1, timeout_ms=300 if kinds == {"timeout"} else 5000
    )
    results = against(handlers, planned)

    good, failed = totals(results[side])
    assert good <= 20
    assert set(failed) == kinds
    assert kinds != {"status 500"} or "no database" in failures(results[side])[0].example
    answered, failed = totals(results[1 - side])
    assert (answered > 0, failed) == (True, {})
    assert [len(turns(result)) for result in results] == [3, 3]


def test_requests_that_outlast_their_turn_are_waited_for() -> None:
    results = against((QUICK, saying(HELLO, after_s=0.3)), alternation(Side.BASE, connections=1, warmup_ms=0))

    assert totals(results[Side.NOW]) == (1, {})
    assert [(round_.phase, round_.requests) for round_ in results[Side.NOW].rounds][-1] == (Phase.DRAIN, 1)
    assert results[Side.NOW].wait_ns > 0


def test_a_listener_that_raises_ends_both_sides(urls: tuple[str, str]) -> None:
    class EnoughError(Exception):
        pass

    def enough(_: RunProgress) -> None:
        raise EnoughError

    begun_ns, planned = monotonic_ns(), alternation(*[Side.BASE] * 200)
    with pytest.raises(EnoughError):
        alternated(urls, planned=planned, tell=enough)
    assert monotonic_ns() - begun_ns < planned.duration_ns
