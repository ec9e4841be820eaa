"""Lists and files of requests."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from pytest_fileperf.plan.feed import Order, Requests
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Expectation, Operation
from pytest_fileperf.settings.keywords import part
from pytest_fileperf.settings.targets import many_from

VEGETA = """
# a comment
GET http://example.org:9090/a?x=1
X-Account: 8675309

POST /b
Content-Type: text/plain
@body.txt

GET /c
GET /d
"""


def requests(given: object, **arguments: object) -> Requests:
    call = many_from(given, arguments)
    assert call.problems == ()
    assert isinstance(call.work, Requests)
    return call.work


def rows(work: Requests) -> list[Operation]:
    return [work.operation(row, "") for row in range(work.count)]


def get(url: str, **arguments: object) -> Operation:
    return Operation(method="GET", url=url, arguments=arguments)


def test_every_form_of_a_request() -> None:
    work = requests(
        [
            ("get", "/a"),
            ("GET", "/b", {"params": {"x": 1}, "expect_status": 404, "name": "b"}),
            {"url": "/c?y=2"},
            part.get("/d", headers={"X": "1"}),
            httpx.Request("POST", "http://example.org/e?z", content=b"body", headers={"X-Own": "1"}),
        ]
    )
    a, b, c, d, e = rows(work)
    assert (a, c, d) == (get("/a"), get("/c?y=2"), get("/d", headers={"X": "1"}))
    expect = Expectation(statuses=(404,))
    assert b == Operation(method="GET", url="/b", arguments={"params": {"x": 1}}, expect=expect)
    assert (e.method, e.url, e.arguments["content"]) == ("POST", "/e?z", b"body")
    assert ("x-own", "1") in e.arguments["headers"]  # type: ignore[operator]
    assert work.names == ("other GET", "b", "other GET", "other POST")


def test_many_plain_requests_share_a_recipe_and_few_have_names() -> None:
    many = requests([("GET", f"/{number}") for number in range(1000)], order="shuffle", seed=3)
    assert (len(many.recipes), many.names, many.uses, many.count) == (1, (), (), 1000)
    assert many.order == Order(kind="shuffle", seed=3)
    few = requests([("GET", "/a"), ("GET", "/b"), ("GET", "/a")])
    assert (few.names, few.uses) == (("GET /a", "GET /b"), (0, 1, 0))


def test_a_file_of_vegeta_s_targets(tmp_path: Path) -> None:
    (tmp_path / "body.txt").write_text("hello")
    (tmp_path / "targets.txt").write_text(VEGETA)
    a, b, c, d = rows(requests(str(tmp_path / "targets.txt")))
    assert a == get("/a?x=1", headers=[("X-Account", "8675309")])
    assert b.arguments == {"headers": [("Content-Type", "text/plain")], "content": payload(tmp_path / "body.txt")}
    assert (c, d) == (get("/c"), get("/d"))


def test_a_file_of_json_lines(tmp_path: Path) -> None:
    lines = [
        {"method": "POST", "url": "/a", "json": {"x": 1}, "name": "a"},
        {"method": "GET", "url": "http://host/b", "header": {"X": ["1", "2"]}, "body": "aGVsbG8="},
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    a, b = rows(requests(tmp_path / "requests.jsonl"))
    assert a == Operation(method="POST", url="/a", arguments={"json": {"x": 1}})
    assert b == get("/b", headers=[("X", "1"), ("X", "2")], content=b"hello")


@pytest.mark.parametrize(
    "given,problem",
    [
        ([], "there is no request in it"),
        (5, "requests takes a list of requests, or the path of a file of them"),
        ({"url": "/"}, "requests takes a list of requests, or the path of a file of them"),
        (["/a"], "request 0 is str: write (method, url)"),
        ([("GET", "/a"), ("GET", "/b", {"jsn": 1})], "request 1: unknown key 'jsn' (did you mean json?)"),
        ([("GET", "/b", {"rate": 1})], "request 0: keys of a load belong to requests(…)"),
        ([("GET", "/{id}")], "request 0: '/{id}' has a field"),
        ([{"method": "GET"}], "request 0: None is not a URL"),
        ([part.get("/{id}", feed=["a"])], "request 0: only one plain request"),
        ("/no/such/file", "/no/such/file cannot be read as a file of requests"),
    ],
)
def test_what_is_no_request_gets_a_sentence(given: object, problem: str) -> None:
    found = many_from(given, {}).problems
    assert any(one.startswith(problem) for one in found), found


@pytest.mark.parametrize(
    "text,problem",
    [
        ('{"url": "/a"}\n{"url"', "line 2: no JSON"),
        ('{"url": "/a"}\n[1]', "line 2: no object with method and url"),
        ('{"url": "/a", "body": "no base64!"}', "line 1: body is no Base64"),
        ('{"url": "/a", "body": 5}', "line 1: body is no Base64"),
        ('{"url": "/a", "header": ["X"]}', "line 1: header is no object with a list of values for each name"),
        ('{"url": "/a", "header": {"X": 5}}', "line 1: header is no object with a list of values for each name"),
        ('{"url": ' + "[" * 100_000, "line 1: no JSON"),
        ("GET http://[::1/a", "line 1: 'http://[::1/a' is no URL: Invalid IPv6 URL"),
        ("GET /a\nnonsense", "line 2: it is no method with a URL, no header and no @FILE"),
    ],
)
def test_a_file_with_a_mistake_is_told_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "file").write_text(text)
    (found,) = many_from(tmp_path / "file", {}).problems
    assert problem in found
