"""Loads of many requests: what the server sees of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from dataclasses import replace

import httpx
import pytest
from drive.scripted import GET, MS, answer, counted, failures, loaded, run, scripted, totals

from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, run_load
from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import Order, Requests
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Mix, Part, Work
from pytest_fileperf.wire.payload_files import PayloadFiles

CLIENT = pytest.mark.parametrize("client", [False, True], ids=["replay", "client"])


def load(work: Work, requests: int, connections: int = 1) -> tuple[Run, list[str], list[bytes]]:
    """Loads a server that answers with the path it was asked for, and 404 below /none.

    Returns the run, `GET /path` of each request, and the bodies.
    """
    seen: list[tuple[bytes, bytes]] = []

    async def echo(number: int, writer: asyncio.StreamWriter) -> None:
        method, path, *_ = seen[-1][0].split(b" ")
        status = "404 Not Found" if path.startswith(b"/none") else "200 OK"
        writer.write(answer(b"" if method == b"HEAD" else path, status))

    with scripted(echo, seen) as url:
        (result,) = loaded([url], work, counted(requests, connections))
    return result, [head.split(b" HTTP")[0].decode() for head, _ in seen], [body for _, body in seen]


def get(*ids: object, client: bool = False, **order: object) -> Requests:
    operation = Operation(method="GET", url="/{id}", arguments={"follow_redirects": client})
    return Requests(recipes=(operation,), columns={"id": ids}, order=Order(**order))  # type: ignore[arg-type]


@CLIENT
def test_every_row_is_asked_for_in_order(client: bool) -> None:
    result, lines, _ = load(get("a", "b c", 3, client=client), 7)
    assert lines == [f"GET /{path}" for path in ("a", "b%20c", "3", "a", "b%20c", "3", "a")]
    assert result.engine == ("client" if client else "replay")
    assert [(r.requests, r.bytes_received) for r in result.rounds] == [(7, 22)]


@CLIENT
def test_connections_share_the_rows_or_have_them_each(client: bool) -> None:
    _, lines, _ = load(get(*range(8), client=client), 16, connections=4)
    assert set(Counter(lines).values()) == {2}
    _, lines, _ = load(get(*range(8), each=True, client=client), 4, connections=4)
    assert sorted(lines) == ["GET /0", "GET /2", "GET /4", "GET /6"]


@pytest.mark.parametrize("size, client", [("20KiB", False), ("2MiB", True)], ids=["replay", "client"])
def test_the_server_sees_other_content_in_every_request(size: str, client: bool) -> None:
    arguments = {"content": payload(size, unique=True), "follow_redirects": client}
    recipe = Operation(method="POST", url="/", arguments=arguments)
    result, _, bodies = load(Requests(recipes=(recipe,)), 20, connections=4)
    assert len(bodies) == len(set(bodies)) == 20
    assert sum(r.bytes_sent for r in result.rounds) == 20 * payload(size).size_bytes


def test_each_recipe_has_its_own_good_answer_and_is_counted_by_its_name() -> None:
    recipes = (
        Operation(method="GET", url="/good"),
        Operation(method="GET", url="/none", expect=Expectation(statuses=(404,))),
        Operation(method="HEAD", url="/good"),
        Operation(method="GET", url="/none"),
    )
    result, _, _ = load(Requests(recipes=recipes, names=("a", "b", "a", "c"), uses=(0, 1, 2, 3)), 12)
    assert totals(result) == (9, {"status 404": 3})
    by_name = {name: sum(r.requests for r in rounds) for (name, _), rounds in result.subjects.items()}
    assert by_name == {"a": 6, "b": 3, "c": 0}


async def walk(client: httpx.AsyncClient) -> None:
    (await client.get("/walked")).raise_for_status()


MIX = Mix(
    parts=(
        Part(name="rows", work=get("a", "b"), weight=2),
        Part(name="same", work=Operation(method="GET", url="/same")),
        Part(name="walk", work=Journey(name="walk", function=walk)),
        Part(name="bad", work=Operation(method="GET", url="/none"), weight=1),
    )
)


@pytest.mark.parametrize("connections", [1, 4])
def test_a_mix_is_as_its_weights_say_and_counts_each_part(connections: int) -> None:
    result, lines, _ = load(MIX, 50, connections)
    assert Counter(lines) == {"GET /a": 10, "GET /b": 10, "GET /same": 10, "GET /walked": 10, "GET /none": 10}
    parts = {name: [(r.requests, r.failed) for r in rounds] for (name, _), rounds in result.subjects.items()}
    assert parts == {"rows": [(20, 0)], "same": [(10, 0)], "walk": [(10, 0)], "bad": [(0, 10)]}
    (whole,) = result.rounds
    assert (whole.requests, whole.failed, whole.latency.count) == (40, 10, 40)
    assert whole.statuses == ((200, 40), (404, 10))
    assert (result.engine, result.why_engine) == ("client", "walk: a journey is code, which needs a client")

    replayed = Mix(parts=tuple(part for part in MIX.parts if part.name != "walk"))
    result, lines, _ = load(replayed, 40, connections)
    assert (result.engine, len(lines)) == ("replay", 40)


def test_a_request_that_is_not_sent_is_one_of_a_part() -> None:
    async def silent(number: int, writer: asyncio.StreamWriter) -> None:
        return None

    plan = LoadPlan(connections=1, warmup_ns=0, round_ns=100 * MS, rounds=1, timeout_ns=50 * MS, rate=100.0)
    result = run(silent, Mix(parts=(Part(name="a", work=GET), Part(name="b", work=GET))), plan)
    assert {name: sum(r.failed for r in rounds) for (name, _), rounds in result.subjects.items()} == {"a": 5, "b": 5}
    assert sum(failure.count for failure in failures(result)) == result.due == 10


@pytest.mark.parametrize("replays", [True, False], ids=["client", "in-process"])
@pytest.mark.parametrize(
    "operation, value, problem",
    [
        (
            Operation(method="GET", url="/f?id={id}", arguments={"params": {"a": 1}}),
            "a",
            "is missing from the request that httpx made",
        ),
        (Operation(method="GET", url="/", arguments={"headers": {"X": "{id}"}}), "a\r\nX-B: c", "has '\\\\r'"),
        (Operation(method="POST", url="/", arguments={"json": "{id}"}), [b"a"], "'id' of row 1 cannot be sent"),
        (Operation(method="POST", url="/", arguments={"files": {"f": ("n", b"x", "{id}")}}), "\n", "has '\\\\n'"),
    ],
)
def test_what_cannot_be_sent_is_told_before_a_load_by_any_engine(
    operation: Operation, value: object, problem: str, replays: bool
) -> None:
    recipe = replace(operation, arguments={**operation.arguments, "follow_redirects": True})
    work = Requests(recipes=(recipe,), columns={"id": ("a", value)})
    transport = None if replays else lambda: httpx.MockTransport(lambda _: httpx.Response(200))
    target = Target(boot=0, url="http://127.0.0.1:9", transport=transport)

    async def main() -> None:
        with closing(PayloadFiles()) as files:
            await run_load(
                [work], counted(2), [target], files=files, server_cpu=[lambda: None], progress=lambda _: None
            )

    with pytest.raises(PlanError, match=problem):
        asyncio.run(main())


def test_a_form_with_files_in_memory_is_replayed() -> None:
    operation = Operation(method="POST", url="/{id}", arguments={"files": {"f": ("n{id}", b"x")}})
    result, lines, _ = load(Requests(recipes=(operation,), columns={"id": ("a", "b")}), 2)
    assert (result.engine, lines) == ("replay", ["POST /a", "POST /b"])
