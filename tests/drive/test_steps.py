"""Journeys and users that pause: which requests, failures and times are in which step, and what is in no figure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import replace
from time import monotonic_ns

import httpx
import pytest
from drive.scripted import HELLO, MS, Handler, answer, counted, failures, hello, run, saying, totals
from drive.test_loop import FakeSlot
from families import module_of

from pytest_fileperf.drive.journey import Client
from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Phase, merge_failures
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.pacing import ClosedLoop
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.plan.work import Mix, Part, Pause, parse_pause
from pytest_fileperf.wire.connection import Connection

Visit = Callable[[Client], Awaitable[None]]
Figures = tuple[int, dict[str, int], int]
"""How often something went well, its failures by kind, and its HTTP requests."""


def walked(visit: Visit, plan: LoadPlan | None = None, *, server: Handler = hello) -> Run:
    return run(server, Journey(name="visit", function=visit), plan or counted(3))


def step(result: Run, name: str, part: str = "") -> Figures:
    rounds = result.subjects[part, name]
    failed = merge_failures(failure for round_ in rounds for failure in round_.failures)
    good, http = sum(round_.requests for round_ in rounds), sum(round_.http_requests for round_ in rounds)
    return good, {failure.kind: failure.count for failure in failed}, http


def latency(result: Run, name: str = "") -> Histogram:
    """Returns that of a step, or of the whole."""
    return Histogram.merged(round_.latency for round_ in (result.subjects["", name] if name else result.rounds))


async def in_some_steps(client: Client) -> None:
    await client.get("/")
    async with client.step("login"):
        await client.get("/", params={"a": 1})
    for _ in range(2):
        async with client.step("download"):
            await client.get("/")
            await client.get("/")
    async with client.step("nothing"):
        pass


async def in_tasks(client: Client) -> None:
    async def go(name: str, requests: int) -> None:
        async with client.step(name):
            for _ in range(requests):
                await client.get("/")

    async with asyncio.TaskGroup() as tasks, client.step("all"):
        await asyncio.wait([tasks.create_task(go("one", 1)), tasks.create_task(go("three", 3))])


async def after_its_step(client: Client) -> None:
    async with client.step("begin"):
        task = asyncio.create_task(client.get("/"))
    await task


async def with_expected_failures(client: Client) -> None:
    with suppress(KeyError):
        async with client.step("outer"), client.step("inner"):
            raise KeyError
    with suppress(TimeoutError):
        async with asyncio.timeout(0.01), client.step("slow"):
            await asyncio.sleep(3600)


async def that_fails(client: Client) -> None:
    async with client.step("good"):
        (await client.get("/")).raise_for_status()
    async with client.step("unchecked"):
        await client.get("/")
    async with client.step("checked"):
        raise AssertionError("wrong")


async def that_does_not_end(client: Client) -> None:
    async with client.step("quick"):
        await client.get("/")
    async with client.step("endless"):
        await asyncio.sleep(3600)


async def again(client: Client) -> None:
    own = client.step("again")
    for _ in range(2):
        async with own:
            pass


@pytest.mark.parametrize(
    "visit, whole, steps",
    [
        (in_some_steps, (3, {}, 18), {"login": (3, {}, 3), "download": (6, {}, 12), "nothing": (3, {}, 0)}),
        (in_tasks, (3, {}, 12), {"one": (3, {}, 3), "three": (3, {}, 9), "all": (3, {}, 12)}),
        (after_its_step, (3, {}, 3), {"begin": (3, {}, 0)}),
        (
            with_expected_failures,
            (3, {}, 0),
            {
                name: (0, {kind: 3}, 0)
                for name, kind in (("outer", "KeyError"), ("inner", "KeyError"), ("slow", "cancelled"))
            },
        ),
        (
            that_fails,
            (0, {"assertion": 3}, 6),
            {"good": (3, {}, 3), "unchecked": (0, {"status 500": 3}, 3), "checked": (0, {"assertion": 3}, 0)},
        ),
        (that_does_not_end, (0, {"timeout": 3}, 3), {"quick": (3, {}, 3), "endless": (0, {"timeout": 3}, 0)}),
        (again, (0, {"RuntimeError": 3}, 0), {"again": (3, {}, 0)}),
    ],
)
@pytest.mark.usefixtures("of_family")
def test_requests_and_failures_belong_to_the_steps_that_they_are_made_in(
    visit: Visit, whole: Figures, steps: dict[str, Figures]
) -> None:
    server = saying(HELLO, answer(b"", "500 Internal Server Error")) if visit is that_fails else hello
    result = walked(visit, counted(3, timeout_ms=300 if visit is that_does_not_end else 5000), server=server)

    assert totals(result) == whole[:2]
    assert sum(round_.http_requests for round_ in result.rounds) == whole[2]
    assert {name: step(result, name) for name in steps} == steps
    if visit is in_some_steps:
        (round_,) = result.subjects["", "download"]
        assert (round_.bytes_received, round_.statuses) == (60, ((200, 6),))
    if visit is that_fails:
        assert "test_steps.py" in result.subjects["", "checked"][0].failures[0].example


def test_a_step_in_a_step_counts_in_both() -> None:
    async def nested(client: Client) -> None:
        async with client.step("outer"):
            async with client.step("inner"):
                await client.get("/")
            await client.get("/")
        await client.get("/")

    result = walked(nested)

    assert (step(result, "inner"), step(result, "outer")) == ((3, {}, 3), (3, {}, 6))
    assert latency(result, "inner").max_ns < latency(result, "outer").max_ns
    assert latency(result, "outer").sum_ns < latency(result).sum_ns


def test_steps_of_the_parts_of_a_mix_are_kept_apart() -> None:
    async def visit(client: Client) -> None:
        async with client.step("login"):
            await client.get("/")

    work = Mix(parts=tuple(Part(name=name, work=Journey(name="visit", function=visit)) for name in ("one", "two")))
    result = run(hello, work, counted(6, connections=2))

    assert (step(result, "login", "one"), step(result, "login", "two")) == ((3, {}, 3), (3, {}, 3))
    assert sum(round_.requests for round_ in result.rounds) == 6


@pytest.mark.parametrize("rate", [None, 40])
def test_what_is_done_in_the_warm_up_counts_in_no_step(rate: float | None) -> None:
    seen: list[None] = []

    async def visit(client: Client) -> None:
        if not seen:
            async with client.step("first"):
                await client.get("/")
        seen.append(None)
        async with client.step("each"):
            await client.get("/")
            await asyncio.sleep(0.02)

    plan = replace(counted(1), connections=2, requests=None, warmup_ns=200 * MS, round_ns=100 * MS, rounds=2, rate=rate)
    result = walked(visit, plan)

    assert step(result, "first") == (0, {}, 0)
    assert 0 < step(result, "each")[0] < len(seen)
    assert abs(step(result, "each")[0] - totals(result)[0]) <= plan.connections  # journeys end a little later


def test_a_step_that_is_found_late_has_the_rounds_before_too() -> None:
    recorder = Recorder(boot=3, stretches=[(at * MS, Phase.ROUND) for at in (10, 20, 30)], server_cpu=lambda: None)
    recorder.begin(100 * MS)
    recorder.advance(115 * MS)
    recorder.step("", "late").success(115 * MS, 116 * MS, 117 * MS, 200, 1, 2)
    rounds = recorder.finish(135 * MS)

    ((subject, of_step),) = recorder.subjects().items()
    assert subject == ("", "late")
    assert [r.requests for r in of_step] == [0, 1, 0, 0]
    times = [[(r.boot, r.index, r.phase, r.started_ns, r.ended_ns) for r in own] for own in (of_step, rounds)]
    assert times[0] == times[1]
    assert [r.requests for r in rounds] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", ["", " ", "a#b", "two\nlines", "2", 2])
def test_what_is_no_name_of_a_step_is_a_failure_that_says_so(name: str) -> None:
    async def visit(client: Client) -> None:
        async with client.step(name):
            pass

    result = walked(visit)
    assert totals(result) == (0, {"ValueError": 3})
    assert "isn't a name" in failures(result)[0].example


def test_a_step_is_named_by_what_is_done_and_not_by_what_it_is_done_with() -> None:
    numbers = iter(range(1000))

    async def visit(client: Client) -> None:
        async with client.step(f"download {next(numbers)}"):
            pass

    result = walked(visit, counted(105))
    assert totals(result) == (100, {"ValueError": 5})
    assert "at most 100 steps" in failures(result)[0].example


def test_without_a_load_a_step_measures_nothing(family: str) -> None:
    async def main() -> None:
        async with Client(family=family) as client:
            assert isinstance(client, module_of(family).AsyncClient)
            async with client.step("login"):
                await client.pause("1ms")
            with pytest.raises(ValueError, match="isn't a name"):
                client.step("a#b")

    asyncio.run(main())


# --- pauses between requests


def paused(pacing: ClosedLoop, pause: Pause | None, slots: int) -> tuple[int, int]:
    """Returns how many pieces of work were begun, and how long that took."""

    async def main() -> tuple[int, int]:
        recorder = Recorder(boot=0, stretches=(), server_cpu=lambda: None)
        loop = LoadLoop(
            pacing=pacing, recorder=recorder, timeout_ns=1000 * MS, pauses=pause.of_users() if pause else None
        )
        begun_ns = monotonic_ns()
        await asyncio.wait_for(loop.run([FakeSlot(loop, lambda: None) for _ in range(slots)], origin_ns=begun_ns), 20)
        return loop.started, monotonic_ns() - begun_ns

    return asyncio.run(main())


def test_slots_pause_before_each_piece_of_work_and_end_with_the_load() -> None:
    started, took_ns = paused(ClosedLoop(duration_ns=10_000 * MS, requests=4), parse_pause("50ms"), slots=1)
    assert started == 4
    assert took_ns >= 3 * 45 * MS
    assert paused(ClosedLoop(duration_ns=50 * MS), parse_pause(3600), slots=5)[0] <= 1
    # Each has paused for a part of an hour when another one begins the last request.
    assert paused(ClosedLoop(duration_ns=10**15, requests=3), Pause(low_ns=0, high_ns=20 * MS), slots=8)[0] == 3
    assert totals(run(hello, plan=replace(counted(6, connections=2), pause=parse_pause("20ms")))) == (6, {})


def test_what_a_user_keeps_stays_with_that_user() -> None:
    """Cookies that an answer sets come back from the same client only."""

    async def shop(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", extra=f"Set-Cookie: user={number}; Path=/\r\n"))

    async def visit(client: httpx.AsyncClient) -> None:
        before = client.cookies.get("user")
        await client.get("/")
        assert before is None or client.cookies.get("user") != before

    assert totals(run(shop, Journey(name="visit", function=visit), counted(6, connections=2))) == (6, {})


# --- what of a journey's time is in its latency and in those of its steps


def test_pauses_are_in_no_latency_and_other_waiting_is() -> None:
    async def visit(client: Client) -> None:
        async with client.step("reads"):
            await client.pause("60ms")
            await client.get("/")
            await asyncio.gather(client.pause("60ms"), client.pause("50ms"))  # counts once
        async with client.step("waits"):
            await asyncio.sleep(0.04)
        await client.pause("30ms")

    begun_ns = monotonic_ns()
    result = walked(visit)
    took_ns = monotonic_ns() - begun_ns

    assert result.uncounted_ns >= 3 * 148 * MS
    assert latency(result).sum_ns + result.uncounted_ns <= took_ns
    waits, reads = latency(result, "waits"), latency(result, "reads")
    assert waits.min_ns >= 39 * MS
    assert reads.sum_ns + waits.sum_ns <= latency(result).sum_ns
    for rounds in (result.rounds, result.subjects["", "reads"]):
        assert all(0 < r.ttfb.max_ns <= r.latency.max_ns for r in rounds)


def test_what_another_task_pauses_is_no_pause_of_a_step() -> None:
    async def visit(client: Client) -> None:
        async def work() -> None:
            async with client.step("work"):
                await asyncio.sleep(0.05)

        await asyncio.gather(work(), client.pause("40ms"))

    assert latency(walked(visit), "work").min_ns >= 49 * MS


def test_a_pause_before_the_first_answer_is_not_in_the_time_to_it() -> None:
    async def thinker(client: Client) -> None:
        await client.pause(Pause(low_ns=30 * MS, high_ns=31 * MS))
        (await client.get("/")).raise_for_status()

    plan = LoadPlan(connections=2, warmup_ns=0, round_ns=200 * MS, rounds=1, timeout_ns=5000 * MS, rate=20)
    for own in (plan, counted(3)):
        begun_ns = monotonic_ns()
        result = walked(thinker, own)
        took_ns = monotonic_ns() - begun_ns
        good, kinds = totals(result)
        assert (good > 1, kinds) == (True, {})
        first_ns = [round_.ttfb.max_ns for round_ in result.rounds]
        assert max(first_ns) + result.uncounted_ns // good <= took_ns
        assert all(round_.ttfb.max_ns <= round_.latency.max_ns for round_ in result.rounds)


@pytest.mark.parametrize(
    "pause, timeout_ms, expected",
    [("300ms", 250, (1, {})), (3600, 100, (0, {"timeout": 1})), ("soon", 5000, (0, {"ValueError": 1}))],
)
def test_a_pause_is_no_slow_answer_and_ends_with_the_time_limit(
    pause: str | float, timeout_ms: int, expected: tuple[int, dict[str, int]]
) -> None:
    async def patient(client: Client) -> None:
        await client.pause(pause)
        await client.get("/")

    assert totals(walked(patient, counted(1, timeout_ms=timeout_ms))) == expected


SERVER_S, CLIENT_S = 0.03, 0.1
slow = saying(HELLO, after_s=SERVER_S)


class Working(httpx.Auth):
    """Keeps the client busy before each request is sent, and after its answer came."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        time.sleep(CLIENT_S)
        yield request
        time.sleep(CLIENT_S)


@pytest.mark.usefixtures("of_family")
def test_what_the_client_does_is_in_no_latency_and_neither_is_a_look_for_a_free_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def visit(client: Client) -> None:
        async with client.step("login"):
            await client.get("/", auth=Working())
            async with client.stream("GET", "/", auth=Working()) as response:
                await response.aread()

    stale = Connection.stale

    def slowly_stale(connection: Connection) -> bool:
        time.sleep(4 * CLIENT_S)
        return stale(connection)

    monkeypatch.setattr(Connection, "stale", slowly_stale)
    result = walked(visit, counted(2), server=slow)
    assert totals(result) == (2, {})
    assert result.uncounted_ns >= 2 * 8 * CLIENT_S * 1e9
    for seen in (latency(result), latency(result, "login")):
        assert 2 * SERVER_S * 0.98e9 <= seen.min_ns <= seen.max_ns < 4 * CLIENT_S * 1e9
    assert all(round_.ttfb.max_ns <= round_.latency.max_ns for round_ in result.rounds)


async def side_by_side(client: Client) -> None:
    async with client.step("login"):
        await asyncio.gather(client.get("/"), client.get("/", auth=Working()))


async def own_work(client: Client) -> None:
    async with client.step("login"):
        await client.get("/")
        time.sleep(CLIENT_S)  # noqa: ASYNC251 - work, not waiting


@pytest.mark.usefixtures("of_family")
@pytest.mark.parametrize("visit, least_s", [(side_by_side, CLIENT_S), (own_work, SERVER_S + CLIENT_S)])
def test_what_is_done_while_a_request_is_on_its_way_or_by_the_journey_is_in_the_latency(
    visit: Visit, least_s: float
) -> None:
    result = walked(visit, counted(2), server=slow)
    assert totals(result) == (2, {})
    for seen in (latency(result), latency(result, "login")):
        assert seen.min_ns >= least_s * 0.98e9


def test_no_time_is_less_than_nothing_where_a_pause_outlives_all_of_a_call_and_of_its_step() -> None:
    pausing: list[asyncio.Task[None]] = []

    async def idle(client: Client) -> None:
        if not pausing:
            pausing.append(asyncio.create_task(client.pause("30s")))
            await asyncio.sleep(0)
        async with client.step("rest"):
            begun = client.pause("30s")
            begun.send(None)
        begun.close()

    result = walked(idle, counted(300), server=slow)
    assert totals(result) == (300, {})
    for seen in (latency(result), latency(result, "rest")):
        assert 0 <= seen.min_ns <= seen.max_ns < CLIENT_S * 1e9


@pytest.mark.parametrize("fails", ["connect", "read", "cancelled"])
def test_a_request_that_fails_is_on_its_way_no_longer(fails: str, of_family: str) -> None:
    errors = module_of(of_family)

    async def refusing(number: int, writer: asyncio.StreamWriter) -> None:
        if fails == "cancelled":
            await asyncio.sleep(10)
        writer.close()

    async def broken(client: Client) -> None:
        with pytest.raises((errors.TransportError, TimeoutError)):
            async with asyncio.timeout(0.05):
                await client.get("http://127.0.0.1:1/" if fails == "connect" else "/")
        async with client.step("after"):
            with pytest.raises(errors.UnsupportedProtocol):
                await client.get("ftp://127.0.0.1/", auth=Working())

    result = walked(broken, counted(1), server=refusing)
    assert totals(result) == (1, {})
    assert result.uncounted_ns >= CLIENT_S * 0.98e9


@pytest.mark.parametrize("blocks", [True, False], ids=["time.sleep", "asyncio.sleep"])
def test_code_that_blocks_the_event_loop_is_told_from_code_that_waits(blocks: bool) -> None:
    async def slow_user(client: Client) -> None:
        await client.get("/")
        if blocks:
            time.sleep(CLIENT_S)  # noqa: ASYNC251 - what such a journey does
        else:
            await asyncio.sleep(CLIENT_S)

    (round_,) = walked(slow_user, counted(2), server=slow).rounds
    assert round_.duration_ns >= 2 * (SERVER_S + CLIENT_S) * 1e9
    assert (round_.code_ns - round_.client_cpu_ns > 1.5 * CLIENT_S * 1e9) is blocks
