"""Loads of many requests: what the server sees of them."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from drive.scripted import answer, loaded, scripted

from pytest_fileperf.drive.preparation import ways_of
from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.plan.feed import Order, Requests
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Mix, Part, Work
from pytest_fileperf.wire.request import LoadClient

MS = 1_000_000
GET = Operation(method="GET", url="/")


class Seen:
    """What a server was sent."""

    def __init__(self, url: str, requests: list[tuple[bytes, bytes]]) -> None:
        self.url = url
        self._requests = requests

    @property
    def lines(self) -> list[str]:
        """`GET /path` of each request."""
        return [head.split(b" HTTP")[0].decode() for head, _ in self._requests]

    @property
    def digests(self) -> list[str]:
        return [hashlib.sha256(body).hexdigest() for _, body in self._requests]


@contextmanager
def listening() -> Iterator[Seen]:
    """Runs a server that answers with the path it was asked for; 404 below /none."""
    requests: list[tuple[bytes, bytes]] = []

    async def echo(number: int, writer: asyncio.StreamWriter) -> None:
        method, path, *_ = requests[-1][0].split(b" ")
        status = "404 Not Found" if path.startswith(b"/none") else "200 OK"
        writer.write(answer(b"" if method == b"HEAD" else path, status))

    with scripted(echo, requests) as url:
        yield Seen(url, requests)


def load(url: str, work: Work, requests: int, connections: int = 1, plan: LoadPlan | None = None) -> Run:
    plan = plan or LoadPlan(
        connections=connections,
        warmup_ns=0,
        round_ns=20_000 * MS,
        rounds=1,
        timeout_ns=5000 * MS,
        requests=requests,
    )
    (result,) = loaded([url], work, plan)
    return result


def get(url: str, *ids: object, through_httpx: bool = False, **order: object) -> Requests:
    arguments = {"follow_redirects": True} if through_httpx else {}
    operation = Operation(method="GET", url=url, arguments=arguments)
    return Requests(recipes=(operation,), columns={"id": ids}, order=Order(**order))  # type: ignore[arg-type]


THROUGH = pytest.mark.parametrize("through_httpx", [False, True], ids=["replay", "client"])


@THROUGH
def test_every_row_is_asked_for_in_order(through_httpx: bool) -> None:
    with listening() as seen:
        result = load(seen.url, get("/{id}", "a", "b c", 3, through_httpx=through_httpx), 7)
    assert seen.lines == [f"GET /{path}" for path in ("a", "b%20c", "3", "a", "b%20c", "3", "a")]
    assert result.engine == ("client" if through_httpx else "replay")
    assert [(r.requests, r.bytes_received) for r in result.rounds] == [(7, 22)]


@THROUGH
def test_connections_share_the_rows_or_have_them_each(through_httpx: bool) -> None:
    ids = tuple(range(8))
    with listening() as seen:
        load(seen.url, get("/{id}", *ids, through_httpx=through_httpx), 16, connections=4)
    assert set(Counter(seen.lines).values()) == {2}
    with listening() as seen:
        load(seen.url, get("/{id}", *ids, each=True, through_httpx=through_httpx), 4, connections=4)
    assert sorted(seen.lines) == ["GET /0", "GET /2", "GET /4", "GET /6"]


@pytest.mark.parametrize("kind", ["shuffle", "zipf"])
def test_a_seed_makes_the_same_requests(kind: str) -> None:
    lines = []
    for _ in range(2):
        with listening() as seen:
            load(seen.url, get("/{id}", *range(50), kind=kind, seed=5), 60)
        lines.append(seen.lines)
    assert lines[0] == lines[1]
    assert lines[0] != sorted(lines[0])


@pytest.mark.parametrize("size", ["20KiB", "300KiB", "2MiB"])
@THROUGH
def test_the_server_sees_other_content_in_every_request(size: str, through_httpx: bool) -> None:
    arguments: dict[str, object] = {"content": payload(size, unique=True)}
    if through_httpx:
        arguments["follow_redirects"] = True
    with listening() as seen:
        result = load(
            seen.url, Requests(recipes=(Operation(method="POST", url="/", arguments=arguments),)), 20, connections=4
        )
    assert len(seen.digests) == len(set(seen.digests)) == 20
    assert sum(r.bytes_sent for r in result.rounds) == 20 * payload(size).size_bytes


def test_each_recipe_has_its_own_good_answer() -> None:
    recipes = (
        Operation(method="GET", url="/good"),
        Operation(method="GET", url="/none", expect=Expectation(statuses=(404,))),
        Operation(method="HEAD", url="/good"),
        Operation(method="GET", url="/none"),
    )
    with listening() as seen:
        result = load(seen.url, Requests(recipes=recipes, uses=(0, 1, 3)), 9)
    failures = [(failure.kind, failure.count) for r in result.rounds for failure in r.failures]
    assert (sum(r.requests for r in result.rounds), failures) == (6, [("status 404", 3)])


def test_a_row_that_fails_does_not_stop_the_others() -> None:
    with listening() as seen:
        result = load(seen.url, get("/{id}", "a", "none"), 10)
    assert len(seen.lines) == 10
    assert sum(r.requests for r in result.rounds) == 5


async def walk(client: httpx.AsyncClient) -> None:
    (await client.get("/walked")).raise_for_status()


MIX = Mix(
    parts=(
        Part(name="rows", work=get("/{id}", "a", "b"), weight=2),
        Part(name="same", work=Operation(method="GET", url="/same")),
        Part(name="walk", work=Journey(name="walk", function=walk)),
        Part(name="bad", work=Operation(method="GET", url="/none"), weight=1),
    )
)


@pytest.mark.parametrize("connections", [1, 4])
def test_a_mix_is_as_its_weights_say_and_counts_each_part(connections: int) -> None:
    with listening() as seen:
        result = load(seen.url, MIX, 50, connections=connections)
    asked = Counter(seen.lines)
    assert asked == {"GET /a": 10, "GET /b": 10, "GET /same": 10, "GET /walked": 10, "GET /none": 10}
    parts = {name: [(r.requests, r.failed) for r in rounds] for (name, _), rounds in result.subjects.items()}
    assert parts == {"rows": [(20, 0)], "same": [(10, 0)], "walk": [(10, 0)], "bad": [(0, 10)]}
    (whole,) = result.rounds
    assert (whole.requests, whole.failed, whole.latency.count) == (40, 10, 40)
    assert whole.statuses == ((200, 40), (404, 10))
    assert (result.engine, result.why_engine) == ("client", "walk: a journey is code on a client")


def test_parts_that_are_all_replayed_share_connections() -> None:
    replayed = Mix(parts=tuple(part for part in MIX.parts if part.name != "walk"))
    with listening() as seen:
        result = load(seen.url, replayed, 40, connections=2)
    assert result.engine == "replay"
    assert len(seen.lines) == 40


def test_named_requests_are_counted_by_name() -> None:
    recipes = tuple(Operation(method="GET", url=f"/{place}") for place in range(3))
    with listening() as seen:
        result = load(seen.url, Requests(recipes=recipes, names=("a", "b", "a"), uses=(0, 1, 2)), 30)
    assert {name: sum(r.requests for r in rounds) for (name, _), rounds in result.subjects.items()} == {
        "a": 20,
        "b": 10,
    }


def test_a_request_that_is_not_sent_is_one_of_a_part() -> None:
    async def silent(number: int, writer: asyncio.StreamWriter) -> None:
        return None

    plan = LoadPlan(connections=1, warmup_ns=0, round_ns=100 * MS, rounds=1, timeout_ns=50 * MS, rate=100.0)
    mix = Mix(parts=(Part(name="a", work=GET), Part(name="b", work=GET)))
    with scripted(silent) as url:
        result = load(url, mix, 0, plan=plan)
    failed = {name: sum(r.failed for r in rounds) for (name, _), rounds in result.subjects.items()}
    assert failed == {"a": 5, "b": 5}
    assert sum(r.failed for r in result.rounds) == result.due == 10


@pytest.mark.parametrize("in_process", [False, True], ids=["client", "in-process"])
@pytest.mark.parametrize(
    "operation, value, problem",
    [
        (Operation(method="GET", url="/f?id={id}", arguments={"params": {"a": 1}}), "a", "is in no request"),
        (Operation(method="GET", url="/", arguments={"headers": {"X": "{id}"}}), "a\r\nX-B: c", "has '\\\\r'"),
        (Operation(method="POST", url="/", arguments={"json": "{id}"}), [b"a"], "'id' of row 1 cannot be sent"),
        (Operation(method="POST", url="/", arguments={"files": {"f": ("n", b"x", "{id}")}}), "\n", "has '\\\\n'"),
    ],
)
def test_what_cannot_be_sent_is_told_before_a_load_by_any_engine(
    operation: Operation, value: object, problem: str, in_process: bool
) -> None:
    def transport() -> httpx.AsyncBaseTransport:
        return httpx.MockTransport(lambda _: httpx.Response(200))

    client = LoadClient(base_url="http://any", transport=transport())
    arguments = {**operation.arguments, "follow_redirects": True}
    work = Requests(recipes=(replace(operation, arguments=arguments),), columns={"id": ("a", value)})
    with pytest.raises(PlanError, match=problem):
        ways_of(
            work, Recorder(boot=0, stretches=(), server_cpu=lambda: None), lambda: client, 1, replays=not in_process
        )


def test_a_form_with_files_in_memory_is_replayed() -> None:
    operation = Operation(method="POST", url="/{id}", arguments={"files": {"f": ("n{id}", b"x")}})
    with listening() as seen:
        result = load(seen.url, Requests(recipes=(operation,), columns={"id": ("a", "b")}), 2)
    assert (result.engine, seen.lines) == ("replay", ["POST /a", "POST /b"])
