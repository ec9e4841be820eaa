"""Requests: what each is known by, and what a good answer is; rows, their order, and what they make of a recipe."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import date
from itertools import count, islice
from pathlib import Path

import httpx
import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import MOST_DRAWN, Order, Requests, columns_of
from pytest_fileperf.plan.payload import UNIQUE_BYTES, payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation, fields_of, without_queries
from pytest_fileperf.plan.work import with_value

# --- one request; texts show no logins and no values of queries


def arguments_of(**arguments: object) -> Mapping[str, object]:
    identity = Operation(method="POST", url="/upload", arguments=arguments).identity()
    assert json.loads(json.dumps(identity)) == identity
    described = identity["arguments"]
    assert isinstance(described, dict)
    return described


def plain(value: str | bytes) -> str:
    return "sha256:" + hashlib.sha256(value.encode() if isinstance(value, str) else value).hexdigest()


def test_an_operation_is_named_by_method_and_url_without_values() -> None:
    assert Operation(method="GET", url="/files?id=3&flag&to={place}&=").name == "GET /files?id=…&…&to={place}&="
    assert Operation(method="GET", url="/files").name == "GET /files"


def test_identity_holds_method_path_and_names_with_digests_in_order() -> None:
    operation = Operation(
        method="POST", url="/upload?token=s3cret&a={id}", arguments={"params": {"b": 1}, "json": {"x": [1, None]}}
    )
    identity = operation.identity()
    assert identity["url"] == "/upload"
    assert identity["query"] == {"token": plain("s3cret"), "a": "{id}"}
    assert arguments_of(params={"b": 1}, json={"x": {"y": "v"}}) == {
        "json": {"x": {"y": plain("v")}},
        "params": {"b": plain("json 1")},
    }
    assert list(arguments_of(params={}, json=[])) == ["json", "params"]


def test_a_number_is_not_its_text_and_lists_tell_their_order() -> None:
    different = [arguments_of(json=value) for value in (1, "1", True, None, [1, 2], [2, 1], ["1", 2], {"a": [1]}, {})]
    assert all(one != other for place, one in enumerate(different) for other in different[:place])


def test_payloads_are_known_by_their_content(tmp_path: Path) -> None:
    body = payload("1KiB")
    assert arguments_of(content=body) == {"content": body.identity()}
    (tmp_path / "a.bin").write_text("s3cret")
    described = arguments_of(files={"file": ("a.bin", payload(tmp_path / "a.bin"))})["files"]
    assert described == {
        "file": [plain("a.bin"), {"size_bytes": 6, "kind": "file", "seed": 0, "sha256": plain("s3cret")}]
    }


@pytest.mark.parametrize("content", ["x" * 201, b"x", "s3cret"])
def test_texts_and_bytes_are_known_by_their_digest(content: str | bytes) -> None:
    assert arguments_of(content=content) == {"content": plain(content)}


def test_many_values_have_one_digest() -> None:
    many = {str(number): number for number in range(51)}
    assert isinstance(arguments_of(json=many)["json"], str)
    assert arguments_of(json=many) == arguments_of(json=dict(reversed(many.items())))
    assert arguments_of(json=many) != arguments_of(json={**many, "1": 0})
    assert arguments_of(extensions={"trace": object()}) == {"extensions": {"trace": "object"}}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer s3cret", "X-Kind": "a"},
        [("Authorization", "Bearer s3cret"), ("X-Kind", "a")],
        [(b"Authorization", b"Bearer s3cret"), (b"X-Kind", b"a")],
    ],
)
def test_credential_headers_are_known_by_name_only(headers: object) -> None:
    """They may be other ones in each run."""
    assert arguments_of(headers=headers) == {"headers": {"Authorization": "hidden", "X-Kind": plain("a")}}


def test_a_name_that_is_there_twice_has_both_values() -> None:
    both = {"X-Kind": [plain("a"), plain("b")]}
    assert arguments_of(headers=[("X-Kind", "a"), ("X-Kind", "b")]) == {"headers": both}
    assert arguments_of(params=httpx.QueryParams("X-Kind=a&X-Kind=b")) == {"params": both}


def test_auth_and_cookies_show_no_secret() -> None:
    assert arguments_of(auth=("me", "s3cret"), cookies={"session": "s3cret"}) == {
        "auth": "tuple",
        "cookies": {"session": "hidden"},
    }
    assert arguments_of(headers=httpx.Headers({"Cookie": "s3cret"})) == {"headers": {"cookie": "hidden"}}
    assert arguments_of(auth=httpx.BasicAuth("me", "s3cret")) == {"auth": "BasicAuth"}


def test_a_journey_is_known_by_its_name() -> None:
    async def roundtrip(client: httpx.AsyncClient) -> None: ...

    assert Journey(name="roundtrip", function=roundtrip).identity() == {"journey": "roundtrip"}


@pytest.mark.parametrize(
    "statuses,status,allowed",
    [((), 200, True), ((), 204, True), ((), 199, False), ((), 302, False), ((404,), 404, True), ((404,), 200, False)],
)
def test_any_2xx_is_good_unless_statuses_are_given(statuses: tuple[int, ...], status: int, allowed: bool) -> None:
    assert Expectation(statuses=statuses).allows_status(status) is allowed


@pytest.mark.parametrize(
    "text,shown",
    [
        pytest.param("no answer of http://bob:pw@localhost/x", "no answer of http://…@localhost/x", id="a login"),
        pytest.param("HTTPS://bob:pw@localhost/x", "HTTPS://…@localhost/x", id="capitals"),
        pytest.param("http://bob:p@w@localhost/x", "http://…@localhost/x", id="an @ in the password"),
        pytest.param("http://localhost/a@b", "http://localhost/a@b", id="an @ in the path"),
    ],
)
def test_logins_are_hidden(text: str, shown: str) -> None:
    assert without_queries(text) == shown


# --- many requests


GET = Operation(method="GET", url="/files/{id}")


class Endless:
    """No iterator, and without an end."""

    def __iter__(self) -> Iterator[int]:
        return count()


def first(order: Order, rows: int, number: int, **own: int) -> list[int]:
    return list(islice(order.places(rows, **own), number))


def test_orders_of_rows() -> None:
    assert first(Order(), 3, 7) == [0, 1, 2, 0, 1, 2, 0]
    assert first(Order(each=True), 4, 6, own=1, first=2) == [2, 3, 0, 1, 2, 3]
    shuffled = first(Order(kind="shuffle", seed=3), 50, 100)
    assert sorted(shuffled[:50]) == list(range(50))
    assert list(range(50)) != shuffled[:50] == shuffled[50:]
    drawn = Counter(first(Order(kind="zipf"), 4, 25_000))
    assert [drawn[place] / 25_000 for place in range(4)] == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=0.02)
    for kind in ("shuffle", "zipf"):
        one, same, other = (first(Order(kind=kind, seed=seed), 100, 50) for seed in (1, 1, 2))
        assert one == same != other
        assert first(Order(kind=kind), 1, 3) == [0, 0, 0]


@pytest.mark.parametrize(
    "feed, fields, columns",
    [
        (["a", "b"], ["id"], {"id": ("a", "b")}),
        (range(2), ["id"], {"id": (0, 1)}),
        (iter(["a"]), ["id"], {"id": ("a",)}),
        ([{"id": 1, "kind": "x", "more": 0}], ["id", "kind"], {"id": (1,), "kind": ("x",)}),
    ],
)
def test_rows_become_columns(feed: object, fields: list[str], columns: object) -> None:
    assert columns_of(feed, fields) == columns


def test_a_generator_without_an_end_is_drawn_as_far_as_memory_allows() -> None:
    assert len(columns_of(count(), ["id"])["id"]) == MOST_DRAWN


@pytest.mark.parametrize(
    "feed, fields, problem",
    [
        ("abc", ["id"], "str isn't a list of rows"),
        (5, ["id"], "int isn't a list of rows"),
        ({"id": 1}, ["id"], "dict isn't a list of rows"),
        ([], ["id"], "it has no row"),
        (iter([]), ["id"], "it has no row"),
        (["a"], ["id", "kind"], r"there are 2 fields \(id, kind\). Make each row a mapping"),
        ([{"id": 1}, {"name": 2}], ["id"], "row 1 has no 'id', which the request needs. The row has name"),
        ([{"id": 1}, 2], ["id"], "row 1 has the type int, but others are mappings"),
        ([b"abc"], ["id"], "feed: 'id' of row 0 has the type bytes, which cannot be written in a request"),
        (
            [{"id": "a"}, {"id": payload(9)}],
            ["id"],
            "'id' of row 1 has the type Payload, which cannot be written",
        ),
        (["a", object()], ["id"], "'id' of row 1 has the type object, which cannot be written"),
        (range(10**9), ["id"], "it has more than 1,000,000 rows. Give fewer, or a generator"),
        (Endless(), ["id"], "it has more than 1,000,000 rows"),
    ],
)
def test_a_feed_that_cannot_be_used_gets_a_sentence(feed: object, fields: list[str], problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        columns_of(feed, fields)


async def rows() -> list[str]:
    return ["a"]


async def rows_one_by_one() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize("feed", [rows, rows_one_by_one])
def test_an_async_feed_gets_a_sentence(feed: Callable[[], object]) -> None:
    with pytest.raises(PlanError, match="its function is async, but fileperf calls it before the load"):
        columns_of(feed(), ["id"])


def test_a_row_fills_every_place() -> None:
    recipe = Operation(
        method="POST",
        url="/{id}/x?q={id}",
        arguments={
            "params": {"p": "{id}"},
            "headers": {"X-Id": "<{id}>"},
            "json": {"text": "n {id}", "value": "{n}", "other": "{none}", "list": ["{n}", 5]},
        },
    )
    requests = Requests(recipes=(recipe,), columns={"id": ("ä/b?",), "n": (7,)})
    assert requests.operation(0, "") == Operation(
        method="POST",
        url="/%C3%A4/b%3F/x?q=%C3%A4/b%3F",
        arguments={
            "params": {"p": "ä/b?"},
            "headers": {"X-Id": "<ä/b?>"},
            "json": {"text": "n ä/b?", "value": 7, "other": "{none}", "list": [7, 5]},
        },
    )


def test_json_that_is_nested_too_deeply_gets_a_sentence() -> None:
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(PlanError, match=r"POST /: its json is nested too deeply. Send it as bytes, with content="):
        fields_of(Operation(method="POST", url="/", arguments={"json": deep}))


def test_a_unique_payload_is_a_field() -> None:
    recipe = Operation(method="POST", url="/", arguments={"content": payload(64, unique=True)})
    assert fields_of(recipe) == {"unique"}
    sent = Requests(recipes=(recipe,)).operation(0, "u" * UNIQUE_BYTES).arguments["content"]
    assert sent == payload(64).__class__(size_bytes=64, kind="random", tail=b"u" * UNIQUE_BYTES)


def test_the_rows_of_a_setup_are_made_on_each_boot() -> None:
    requests = Requests(recipes=(GET,), make=lambda made: [f"{made}-{number}" for number in range(2)])
    of_boot = with_value(requests, "x")
    assert isinstance(of_boot, Requests)
    assert of_boot.columns == {"id": ("x-0", "x-1")}
    assert of_boot.make is None
    assert requests.identity()["rows"] == "of the setup"
    with pytest.raises(PlanError, match="it has no row"):
        with_value(Requests(recipes=(GET,), make=lambda _: ()), "x")


def test_identity_tells_rows_and_orders_apart() -> None:
    def identity(*ids: str, **order: object) -> object:
        return Requests(recipes=(GET,), columns={"id": ids}, order=Order(**order)).identity()  # type: ignore[arg-type]

    assert identity("a", "b") == identity("a", "b")
    different = [identity("a", "b"), identity("a"), identity("a", "c"), identity("a", "b", kind="zipf")]
    different += [identity("a", "b", kind="zipf", seed=1), identity("a", "b", each=True)]
    assert all(one != other for place, one in enumerate(different) for other in different[:place])


@pytest.mark.parametrize("values", [({1: 2, "b": 3},), ({(1,): 2},), (date(2024, 1, 1),), ({1}, None)])
def test_any_row_has_an_identity(values: tuple[object, ...]) -> None:
    def sha256(*values: object) -> object:
        rows = Requests(recipes=(GET,), columns={"id": values}).identity()["rows"]
        assert isinstance(rows, dict)
        return rows["digest"]

    assert sha256(*values) == sha256(*values)
    assert sha256("1") != sha256(1)


@pytest.mark.parametrize("kind,size", [("random", "3KiB"), ("crlf", (1 << 20) + 10)])
def test_unique_content_has_its_size_and_another_end_each_time(kind: str, size: str | int) -> None:
    """An end of 48 bytes, which may lie in two blocks of 1 MiB."""
    content = payload(size, kind=kind, unique=True)
    one, other = content.fresh(), content.fresh()
    first, second = one.read(), other.read()
    assert len(first) == len(second) == content.size_bytes
    assert (first == one.read(), first == second, one.sha256() == other.sha256()) == (True, False, False)
    plain = payload(size, kind=kind)
    assert first[:-UNIQUE_BYTES] == second[:-UNIQUE_BYTES] == plain.read()[:-48]
    assert content.identity() == one.identity()
    assert plain.fresh() is plain, "equal content stays as it is"


def test_a_unique_payload_has_no_digest_of_its_own_and_needs_room() -> None:
    with pytest.raises(PlanError, match=r"Call \.fresh\(\) for one content"):
        payload(64, unique=True).sha256()
    with pytest.raises(PlanError, match="payload of 47 bytes is too small: a unique one needs at least 48 bytes"):
        payload(47, unique=True)
