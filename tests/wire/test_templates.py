"""Compiled requests have the bytes that httpx makes of the same request."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.wire.payload_files import FileSegment, PayloadFiles
from pytest_fileperf.wire.request import BytesOfRequest, LoadClient, WireRequest, bytes_of, compile_request
from pytest_fileperf.wire.templates import compiled

CLIENT = LoadClient(base_url="http://127.0.0.1:8000/base", payload_files=PayloadFiles())
SAME_BOUNDARY = {"Content-Type": "multipart/form-data; boundary=edge"}


def build(operation: Operation) -> BytesOfRequest:
    found = bytes_of(request(operation))
    assert found is not None
    return found


def request(operation: Operation) -> httpx.Request:
    return CLIENT.build_request(operation.method, operation.url, **operation.arguments)


def sent(row: WireRequest) -> bytes:
    if row.whole is not None:
        return bytes(row.whole)
    return b"".join(
        piece.read(piece.size_bytes) if isinstance(piece, FileSegment) else bytes(piece) for piece in row.segments
    )


def by_httpx(operation: Operation) -> bytes:
    found = compile_request(request(operation))
    assert found is not None
    return sent(found)


def row_of(requests: Requests, place: int) -> WireRequest:
    row = WireRequest()
    compiled(requests, build)[requests.recipe_of(place)](row, place)
    return row


def recipe(method: str = "POST", url: str = "/", **arguments: object) -> Operation:
    return Operation(method=method, url=url, arguments=arguments)


def check(operation: Operation, columns: Mapping[str, tuple[object, ...]], unique: str = "") -> None:
    requests = Requests(recipes=(operation,), columns=columns)
    for place in range(requests.count):
        row, expected = row_of(requests, place), requests.operation(place, unique)
        assert sent(row) == by_httpx(expected)
        assert row.body_bytes == build(expected).body_bytes


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=20)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, st.lists, max_leaves=5)


@settings(max_examples=40, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=3))
def test_texts_in_every_place(values: list[str]) -> None:
    column = {"id": tuple(values)}
    check(recipe("GET", "/files/x{id}/end?q={id}&r=1"), column)
    check(recipe("GET", "/", params={"page": "{id}", "more": "x {id}"}), column)
    check(recipe(content="before {id} after"), column)
    check(recipe(data={"name": "{id}", "other": "b"}), column)
    check(recipe(json={"name": "<{id}>", "list": ["{id} {id}"]}), column)
    check(recipe(files={"file": payload(9)}, data={"name": "{id}"}, headers=SAME_BOUNDARY), column)


@settings(max_examples=25, deadline=None)
@given(st.lists(JSON, min_size=1, max_size=3))
def test_json_values_keep_their_type(values: list[object]) -> None:
    check(recipe(json={"value": "{id}", "list": [1, "{id}"]}), {"id": tuple(values)})


@settings(max_examples=25, deadline=None)
@given(st.lists(PLAIN, min_size=1, max_size=3))
def test_texts_in_headers(values: list[str]) -> None:
    check(recipe("GET", "/", headers={"X-Id": "a{id}", "X-Other": "b"}), {"id": tuple(values)})


def test_the_length_of_the_body_is_that_of_the_row() -> None:
    requests = Requests(recipes=(recipe(content="{id}"),), columns={"id": ("a", "abc")})
    assert b"Content-Length: 3\r\n" in sent(row_of(requests, 1))
    assert row_of(requests, 1).body_bytes == 3


@pytest.mark.parametrize("size", ["1KiB", "20KiB", "256KiB", "3MiB"])
@pytest.mark.parametrize("unique", [False, True])
def test_bodies_of_any_size_go_with_a_field_in_the_head(size: str, unique: bool) -> None:
    requests = Requests(
        recipes=(recipe(url="/{id}", content=payload(size, unique=unique)),), columns={"id": ("a", "bc")}
    )
    row = row_of(requests, 1)
    raw = sent(row)
    end = len(raw) if not unique else -48
    assert raw[:end] == by_httpx(requests.operation(1, "u" * 48))[:end]
    assert row.body_bytes == payload(size).size_bytes


@pytest.mark.parametrize(
    "arguments",
    [
        {"content": payload("64KiB", unique=True)},
        {"content": payload("2MiB", unique=True)},
        {"files": {"file": payload("64KiB", unique=True)}},
        {"files": [("file", ("a.bin", payload("2MiB", unique=True)))], "data": {"name": "x"}},
        {"json": {"key": "{unique}"}},
        {"data": {"key": "{unique}"}},
        {"content": "key={unique}"},
        {"headers": {"X-Key": "{unique}"}},
        {"params": {"key": "{unique}"}},
    ],
    ids=lambda arguments: str(arguments)[:40],
)
def test_every_request_is_unique_and_of_one_length(arguments: Mapping[str, object]) -> None:
    requests = Requests(recipes=(Operation(method="POST", url="/", arguments=arguments),))
    (fill,) = compiled(requests, build)
    row, raws = WireRequest(), []
    for _ in range(3):
        fill(row, 0)
        raws.append(sent(row))
    assert len(set(raws)) == 3
    assert len({len(raw) for raw in raws}) == 1


def test_a_unique_file_is_read_from_its_own_place(tmp_path: Path) -> None:
    file = tmp_path / "large.bin"
    file.write_bytes(bytes(range(256)) * 8192)
    requests = Requests(recipes=(recipe(content=payload(file, unique=True)),))
    assert sent(row_of(requests, 0))[-(2 << 20) : -48] == file.read_bytes()[:-48]


def test_whole_urls_are_written_as_httpx_does() -> None:
    urls = ("/a", "/a%20b?x=1&y=%2F", "/ä b", "/a/../b", "//double", "/q?x=a b", "plain", "/x;y=1/~z")
    requests = Requests(recipes=(recipe("GET", ""),), urls=urls)
    for place, url in enumerate(urls):
        assert sent(row_of(requests, place)) == by_httpx(recipe("GET", url)), url


def test_recipes_take_turns_and_share_their_bodies() -> None:
    body = payload("256KiB")
    recipes = tuple(recipe("POST", f"/{number}", content=body) for number in range(3))
    requests = Requests(recipes=recipes, uses=(2, 0, 1))
    made = [WireRequest() for _ in recipes]
    for row, fill in zip(made, compiled(requests, build), strict=True):
        fill(row, 0)
    shared = {id(piece.obj) for row in made for piece in row.segments[1:] if isinstance(piece, memoryview)}
    assert len(shared) == 1
    assert sent(row_of(requests, 0)) == by_httpx(recipes[2])


@pytest.mark.parametrize(
    "operation, value, problem",
    [
        (recipe(headers={"X": "{id}"}), "ä", r"feed: 'id' of row 1 cannot be sent: it has 'ä', a character that"),
        (recipe(headers={"X": "{id}"}), "a\r\nb", r"it has '\\r', a character that headers do not allow"),
        (recipe(headers={"X": "{id}"}), "\x00", r"has '\\x00', a character"),
        (recipe(files={"f": ("n", payload(9), "a{id}")}), "\n", r"has '\\n', a character"),
        (recipe(json={"x": "{id}"}), float("nan"), "'id' of row 1 cannot be sent"),
        (recipe(json={"x": "{id}"}), object(), "'id' of row 1 cannot be sent"),
        (recipe(json={"x": "a{id}"}), ["b"], "'id' of row 1 cannot be sent: list isn't a text"),
        (recipe("GET", "/{id}"), {"b": 1}, "'id' of row 1 cannot be sent: dict isn't a text"),
        (recipe("GET", "/", params={"a": "{id}"}), None, "'id' of row 1 cannot be sent: None isn't a text"),
        (recipe("GET", "/{id}/x"), "", "'id' of row 1 cannot be sent: '' would make the path begin with two slashes"),
        (recipe("GET", "{id}{id}"), "//", "'id' of row 1 cannot be sent: '//' would make the path begin"),
    ],
)
def test_a_value_that_cannot_be_sent_gets_a_sentence(operation: Operation, value: object, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        compiled(Requests(recipes=(operation,), columns={"id": ("a", value)}), build)


@pytest.mark.parametrize(
    "operation",
    [
        recipe("GET", "/f?id={id}", params={"a": 1}),
        recipe("GET", "/f#{id}"),
        recipe("GET", "/{id}#{id}"),
        recipe("GET", "/f?id={unique}", params={"a": 1}),
    ],
)
def test_a_field_that_is_in_no_request_is_an_error(operation: Operation) -> None:
    with pytest.raises(PlanError, match="is missing from the request that httpx made"):
        compiled(Requests(recipes=(operation,), columns={"id": ("a", "b")}), build)


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=3))
def test_repeated_parameters_are_sent_again_and_again(values: list[str]) -> None:
    column = {"id": tuple(values)}
    check(recipe("GET", "/", params=httpx.QueryParams("a={id}&a=2&b=%20")), column)
    check(recipe("GET", "/", params={"a": ["{id}", "x"]}), column)
    check(recipe("GET", "/", params=[("a", "{id}"), ("a", 5)]), column)
    check(recipe("GET", "/", params="a={id}&a=x%20y"), column)


def test_repeated_headers_are_sent_each_with_its_name() -> None:
    headers = httpx.Headers([("X-One", "{id}"), ("X-One", "2")])
    raw = sent(row_of(Requests(recipes=(recipe(headers=headers),), columns={"id": ("a",)}), 0))
    assert b"X-One: a\r\nX-One: 2\r\n" in raw
    check(recipe(headers=headers), {"id": ("a", "b")})


@settings(max_examples=25, deadline=None)
@given(st.lists(PLAIN.filter(lambda text: ";" not in text), min_size=1, max_size=3))
def test_texts_in_cookies(values: list[str]) -> None:
    check(recipe("GET", "/", cookies={"one": "a{id}", "other": "b"}), {"id": tuple(values)})
    check(recipe("GET", "/", cookies=[("one", "a{id}")]), {"id": tuple(values)})


@settings(max_examples=25, deadline=None)
@given(st.lists(TEXT | st.sampled_from(['q"q', "a\r\nX: y", "\\", "a.txt"]), min_size=1, max_size=3))
def test_names_of_files_are_quoted(values: list[str]) -> None:
    column = {"id": tuple(values)}
    check(recipe(files={"f": ("n{id}.txt", payload(9))}, headers=SAME_BOUNDARY), column)
    check(
        recipe(files=[("f", ("n{id}", payload(9), "text/{n}"))], headers=SAME_BOUNDARY),
        {**column, "n": ("x",) * len(values)},
    )


def test_a_file_has_the_same_type_whatever_its_name() -> None:
    requests = Requests(recipes=(recipe(files={"f": ("{id}", b"x")}),), columns={"id": ("a.txt", "b.png")})
    types = [request(requests.operation(place, "")).read().partition(b"Content-Type: ")[2][:24] for place in (0, 1)]
    assert types == [b"application/octet-stream"] * 2


def test_an_empty_value_may_be_the_whole_path() -> None:
    check(recipe("GET", "/{id}"), {"id": ("", "a")})
    check(recipe("GET", "/{id}.html?q={id}"), {"id": ("", "a")})


@pytest.mark.parametrize("value", ["/a", "//a", "a/b", "http://there/a", "a:b", "?a", ".."])
@pytest.mark.parametrize("url", ["{id}", "/{id}", "{id}/x?q={id}"])
def test_a_value_at_the_start_of_the_path_names_no_host(url: str, value: str) -> None:
    check(recipe("GET", url), {"id": (value,)})
    assert request(Requests(recipes=(recipe("GET", url),), columns={"id": (value,)}).operation(0, "")).url.port == 8000


@pytest.mark.parametrize("value", [".", "..", "../x", "a/../b", "a/.", "/..", "..a", "a..", "a.b", "...", ""])
def test_dots_in_a_path_lead_nowhere_else(value: str) -> None:
    column = {"id": (value,)}
    check(recipe("GET", "/f/{id}"), column)
    check(recipe("GET", "/f/{id}/x?q={id}"), column)
    assert b" /base/f/" in sent(row_of(Requests(recipes=(recipe("GET", "/f/{id}"),), columns=column), 0))
