"""Steps of journeys: which requests and failures are in which, and how long each takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from drive.scripted import MS, answer, counted, hello, run, totals

from pytest_fileperf.drive.journey import Client
from pytest_fileperf.drive.run import Run
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Phase, Round, merge_failures
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Journey
from pytest_fileperf.plan.work import Mix, Part


def walked(journey: Callable[[Client], Awaitable[None]], plan: LoadPlan | None = None) -> Run:
    return run(hello, Journey(name="walk", function=journey), plan or counted(3))


def rounds_of(result: Run, step: str, part: str = "") -> tuple[Round, ...]:
    return result.subjects[part, step]


def step(result: Run, name: str, part: str = "") -> tuple[int, dict[str, int], int]:
    """Returns how often a step went well, its failures by kind, and its HTTP requests."""
    rounds = rounds_of(result, name, part)
    failures = merge_failures(failure for round_ in rounds for failure in round_.failures)
    good, http = sum(round_.requests for round_ in rounds), sum(round_.http_requests for round_ in rounds)
    return good, {failure.kind: failure.count for failure in failures}, http


def latency(result: Run, name: str) -> Histogram:
    return Histogram.merged(round_.latency for round_ in rounds_of(result, name))


def test_a_step_has_the_requests_that_are_made_in_it() -> None:
    async def visit(client: Client) -> None:
        await client.get("/")
        async with client.step("login"):
            await client.get("/", params={"a": 1})
        for _ in range(2):
            async with client.step("download"):
                await client.get("/")
                await client.get("/")
        async with client.step("nothing"):
            pass

    result = walked(visit)

    assert totals(result) == (3, {})
    assert sum(round_.http_requests for round_ in result.rounds) == 18
    assert step(result, "login") == (3, {}, 3)
    assert step(result, "download") == (6, {}, 12)
    assert step(result, "nothing") == (3, {}, 0)
    assert [r.bytes_received for r in rounds_of(result, "download")] == [60]
    assert rounds_of(result, "download")[0].statuses == ((200, 6),)


def test_a_step_in_a_step_counts_in_both() -> None:
    async def visit(client: Client) -> None:
        async with client.step("outer"):
            async with client.step("inner"):
                await client.get("/")
            await client.get("/")
        await client.get("/")

    result = walked(visit)

    assert (step(result, "inner"), step(result, "outer")) == ((3, {}, 3), (3, {}, 6))
    assert latency(result, "inner").max_ns < latency(result, "outer").max_ns
    assert latency(result, "outer").sum_ns < sum(round_.latency.sum_ns for round_ in result.rounds)


def test_steps_of_several_tasks_are_kept_apart() -> None:
    async def visit(client: Client) -> None:
        async def go(name: str, requests: int) -> None:
            async with client.step(name):
                for _ in range(requests):
                    await client.get("/")

        async with asyncio.TaskGroup() as tasks, client.step("all"):
            tasks.create_task(go("one", 1))
            tasks.create_task(go("three", 3))
            await asyncio.sleep(0.05)

    result = walked(visit)

    assert (step(result, "one"), step(result, "three"), step(result, "all")) == (
        (3, {}, 3),
        (3, {}, 9),
        (3, {}, 12),
    )


def test_what_goes_on_after_a_step_is_not_in_it() -> None:
    async def visit(client: Client) -> None:
        async with client.step("begin"):
            task = asyncio.create_task(client.get("/"))
        await task

    assert step(walked(visit), "begin") == (3, {}, 0)


def test_pauses_are_in_no_step_and_other_waiting_is() -> None:
    async def visit(client: Client) -> None:
        async with client.step("reads"):
            await client.pause("60ms")
            await client.get("/")
            await asyncio.gather(client.pause("60ms"), client.pause("50ms"))
        async with client.step("waits"):
            await asyncio.sleep(0.04)
        await client.pause("30ms")

    result = walked(visit)

    assert result.uncounted_ns >= 3 * 148 * MS
    waits, reads = latency(result, "waits"), latency(result, "reads")
    assert waits.min_ns >= 39 * MS
    assert reads.sum_ns + waits.sum_ns <= sum(round_.latency.sum_ns for round_ in result.rounds)
    assert all(r.ttfb.max_ns <= r.latency.max_ns for r in rounds_of(result, "reads"))


def test_what_another_task_pauses_is_no_pause_of_a_step() -> None:
    async def visit(client: Client) -> None:
        async def work() -> None:
            async with client.step("work"):
                await asyncio.sleep(0.05)

        await asyncio.gather(work(), client.pause("40ms"))

    assert latency(walked(visit), "work").min_ns >= 49 * MS


def test_a_failure_in_a_step_is_one_of_the_step_too() -> None:
    async def broken(number: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"", "500 Internal Server Error" if number % 2 else "200 OK"))

    async def visit(client: Client) -> None:
        async with client.step("good"):
            (await client.get("/")).raise_for_status()
        async with client.step("unchecked"):
            await client.get("/")
        async with client.step("checked"):
            raise AssertionError("wrong")

    result = run(broken, Journey(name="visit", function=visit), counted(3))

    assert totals(result) == (0, {"assertion": 3})
    assert step(result, "good") == (3, {}, 3)
    assert step(result, "unchecked") == (0, {"status 500": 3}, 3)
    assert step(result, "checked") == (0, {"assertion": 3}, 0)
    (failure,) = rounds_of(result, "checked")[0].failures
    assert "test_steps.py" in failure.example


def test_a_failure_that_a_journey_expects_is_one_of_the_step_only() -> None:
    async def visit(client: Client) -> None:
        with suppress(KeyError):
            async with client.step("outer"), client.step("inner"):
                raise KeyError

    result = walked(visit)

    assert totals(result) == (3, {})
    assert (step(result, "inner"), step(result, "outer")) == ((0, {"KeyError": 3}, 0),) * 2


def test_the_step_that_takes_too_long_has_failed_by_the_time_limit() -> None:
    async def visit(client: Client) -> None:
        async with client.step("quick"):
            await client.get("/")
        async with client.step("endless"):
            await asyncio.sleep(3600)

    result = walked(visit, counted(1, timeout_ms=100))

    assert totals(result) == (0, {"timeout": 1})
    assert (step(result, "quick"), step(result, "endless")) == ((1, {}, 1), (0, {"timeout": 1}, 0))


def test_a_step_that_is_cancelled_has_failed() -> None:
    async def visit(client: Client) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01), client.step("slow"):
                await asyncio.sleep(3600)

    result = walked(visit)
    assert (totals(result), step(result, "slow")) == ((3, {}), (0, {"cancelled": 3}, 0))


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

    plan = replace(counted(1), connections=2, requests=None, warmup_ns=400 * MS, round_ns=100 * MS, rounds=2, rate=rate)
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
    assert "is not a name" in result.rounds[0].failures[0].example


def test_a_step_is_named_by_what_is_done_and_not_by_what_it_is_done_with() -> None:
    numbers = iter(range(1000))

    async def visit(client: Client) -> None:
        async with client.step(f"download {next(numbers)}"):
            pass

    result = walked(visit, counted(105))
    assert totals(result) == (100, {"ValueError": 5})
    assert "100 steps at the most" in result.rounds[0].failures[0].example


def test_a_step_is_gone_through_once() -> None:
    async def visit(client: Client) -> None:
        again = client.step("again")
        for _ in range(2):
            async with again:
                pass

    assert totals(walked(visit)) == (0, {"RuntimeError": 3})


def test_without_a_load_a_step_measures_nothing() -> None:
    async def main() -> None:
        async with Client() as client:
            async with client.step("login"):
                await client.pause("1ms")
            with pytest.raises(ValueError, match="is not a name"):
                client.step("a#b")

    asyncio.run(main())
