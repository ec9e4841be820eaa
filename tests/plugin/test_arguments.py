"""What users write in a verb becomes an operation, a list of requests, a stream or a journey, or gets a sentence."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import json
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from pytest_fileperf import Client, payload
from pytest_fileperf.plan.feed import Order, Requests
from pytest_fileperf.plan.network import Network
from pytest_fileperf.plan.payload import Payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.plan.work import Stream
from pytest_fileperf.plugin.invocation import read_network, server_problems
from pytest_fileperf.serve.spec import Url, Uvicorn
from pytest_fileperf.settings.arguments import STREAM_GATE, journey_from, request_from, stream_from
from pytest_fileperf.settings.keywords import part
from pytest_fileperf.settings.targets import many_from


def operation(**arguments: object) -> Operation:
    call = request_from("post", "/upload", arguments)
    assert call.problems == ()
    assert isinstance(call.work, Operation)
    return call.work


def problems(**arguments: object) -> tuple[str, ...]:
    call = request_from("POST", "/upload", arguments)
    assert call.work is None
    return call.problems


def blocks() -> Iterator[bytes]:
    yield b"block"


async def async_blocks() -> AsyncIterator[bytes]:
    yield b"block"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "notes.txt"
    file.write_bytes(b"0123456789")
    return file


# --- one request


def test_httpx_s_arguments_make_the_operation_and_the_marker_s_are_settings() -> None:
    call = request_from("post", "/upload", {"json": [1], "params": None, "connections": 3, "max_p99": "1s"})
    assert call.work == Operation(method="POST", url="/upload", arguments={"json": [1]})
    assert (call.keys, call.problems) == ({"connections": 3, "max_p99": "1s"}, ())
    assert operation(json={"text": "{name}"}).arguments == {"json": {"text": "{name}"}}, "no feed, so no field"
    cookies = httpx.Cookies({"session": "1"})
    for given in (cookies, cookies.jar):
        assert operation(cookies=given).arguments == {"cookies": [("session", "1")]}


def test_unknown_keywords_are_named_with_all_valid_ones() -> None:
    (problem,) = problems(contents=b"", conections=3)
    assert problem.startswith(
        "unknown key 'contents' (did you mean content?), unknown key 'conections' (did you mean connections?). "
    )
    assert "params, headers" in problem
    assert "expect_status, expect_bytes, expect_body, feed, order, seed, per_connection, connections" in problem


def test_what_a_good_answer_is() -> None:
    bodies = (b"abc", "ä".encode())
    abc, umlaut = (Expectation(size_bytes=len(body), sha256=hashlib.sha256(body).hexdigest()) for body in bodies)
    cases: list[tuple[dict[str, object], Expectation]] = [
        ({"expect_status": 404}, Expectation(statuses=(404,))),
        ({"expect_status": (200, 404)}, Expectation(statuses=(200, 404))),
        ({"expect_bytes": "1KiB"}, Expectation(size_bytes=1024)),
        ({"expect_bytes": 0}, Expectation(size_bytes=0)),
        ({"expect_body": b"abc"}, abc),
        ({"expect_body": b"abc", "expect_bytes": 3}, abc),
        ({"expect_body": "ä"}, umlaut),
        ({"expect_body": payload(9)}, Expectation(size_bytes=9, sha256=payload(9).sha256())),
    ]
    assert [operation(**given).expect for given, _ in cases] == [expected for _, expected in cases]


def test_content_is_made_repeatable(path: Path, tmp_path: Path) -> None:
    for content in (b"abc", bytearray(b"abc"), memoryview(b"abc"), [b"a", b"bc"], io.BytesIO(b"abc")):
        assert operation(content=content).arguments == {"content": b"abc"}
    assert operation(content="abc").arguments == {"content": "abc"}
    assert operation(content=payload(3)).arguments == {"content": payload(3)}
    with path.open("rb") as file:
        assert operation(content=file).arguments == {"content": payload(path, content_type="text/plain")}
        file.read(5)
        assert operation(content=file).arguments == {"content": b"56789"}, "httpx sends it from where the file stands"
    with tempfile.TemporaryFile() as file:  # without a name
        file.write(b"abc")
        file.seek(0)
        assert operation(content=file).arguments == {"content": b"abc"}
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"abc"))
    with gzip.open(tmp_path / "a.gz") as unpacked:
        assert operation(content=unpacked).arguments == {"content": b"abc"}


def test_files_of_forms_are_sent_from_their_start(path: Path) -> None:
    content = payload(path, content_type="text/plain")
    source = io.BytesIO(b"abc")
    source.read()
    with path.open("rb") as file:
        file.read(5)
        files = {
            "plain": (file, content),
            "named": (("a.bin", file), ("a.bin", content, "application/octet-stream")),
            "typed": (("a.bin", file, "text/x"), ("a.bin", content, "text/x")),
            "source": (source, ("upload", b"abc", "application/octet-stream")),
            "titled": (("x.txt", io.BytesIO(b"d")), ("x.txt", b"d", "text/plain")),
        }
        repeatable = (b"abc", "abc", payload(3), ("a.bin", b"abc"), (None, "abc"), ("a.bin", payload(3)))
        files |= {str(number): (item, item) for number, item in enumerate(repeatable)}
        given = {name: item for name, (item, _) in files.items()}
        expected = {name: item for name, (_, item) in files.items()}
        assert operation(files=given).arguments == {"files": expected}
        assert operation(files=[("field", file)]).arguments == {"files": [("field", content)]}
    with tempfile.NamedTemporaryFile() as written:
        written.write(b"abc")  # which is not flushed
        sent = operation(files={"field": written}).arguments["files"]
        assert isinstance(sent, dict)
        assert isinstance(sent["field"], Payload)
        assert sent["field"].size_bytes == 3


def test_methods_are_words_and_urls_are_paths() -> None:
    elsewhere = "'http://127.0.0.1/upload' names a server. Write only the path, "
    for method, url, problem in (
        ("", "/", "method '' isn't an HTTP method"),
        ("GET /", "/", "method 'GET /' isn't an HTTP method"),
        (5, "/", "method 5 isn't an HTTP method"),
        ("GET", 5, '5 isn\'t a URL. Write a path on the server, as in "/upload"'),
        ("GET", "http://127.0.0.1/upload", elsewhere),
        ("GET", httpx.URL("http://127.0.0.1/upload"), elsewhere),
    ):
        (found,) = request_from(method, url, {}).problems
        assert found.startswith(problem)
    assert request_from("GET", "/redirect?to=http://127.0.0.1/", {}).problems == ()


ONCE = "can be sent only once"
NO_BODY = "isn't a body. Use bytes, a text, payload(…) or an open file"
NO_PAIRS: tuple[list[object], ...] = ([None], [[]], ["ab"], [("a", "b", "c")])
NO_STATUS = "isn't a status code from 100 to 599, or a tuple of them"


@pytest.mark.parametrize(
    "given,problem",
    [
        ({"expect_status": 99}, f"expect_status: 99 {NO_STATUS}"),
        ({"expect_status": ()}, f"expect_status: () {NO_STATUS}"),
        ({"expect_status": "2xx"}, f"expect_status: '2xx' {NO_STATUS}"),
        ({"expect_bytes": "many"}, "expect_bytes: 'many' isn't a size. "),
        ({"expect_bytes": 1.5}, "expect_bytes: 1.5 isn't a size. "),
        ({"expect_body": 5}, "expect_body: int isn't a body. Use bytes, a text or payload(…)"),
        ({"expect_body": payload(99, unique=True)}, "expect_body: a unique payload differs in every request"),
        ({"expect_body": b"abc", "expect_bytes": 4}, "expect_bytes is 4 bytes, but expect_body has 3"),
        ({"content": blocks()}, f"content: a generator {ONCE}"),
        ({"content": async_blocks()}, f"content: an async_generator {ONCE}"),
        ({"content": iter([b"a"])}, f"content: a list_iterator {ONCE}"),
        ({"content": map(bytes, [b"a"])}, f"content: a map {ONCE}"),
        ({"content": 5}, f"content: int {NO_BODY}"),
        ({"content": io.StringIO("abc")}, 'content: the file is open as text. Open it in binary mode, "rb"'),
        ({"files": {"field": blocks()}}, f"files['field']: a generator {ONCE}"),
        ({"files": {"field": ("name", blocks())}}, f"files['field']: a generator {ONCE}"),
        ({"files": {"field": 5}}, "files['field']: int isn't a file. Use bytes, payload(…) or an open file"),
        ({"files": "abc"}, "files: give a mapping from field names to files, or a list of such tuples"),
        ({"data": b"a=b"}, "data: give a mapping of form fields, or raw bytes as content="),
        *(
            ({name: value}, f"{name}: give a mapping from names to values, or a list of such tuples")
            for name in ("cookies", "headers", "params")
            for value in NO_PAIRS
        ),
    ],
)
def test_what_cannot_be_sent_gets_a_sentence(given: dict[str, object], problem: str) -> None:
    (found,) = problems(**given)
    assert found.startswith(problem)
    if found.startswith("content: ") and ONCE in found:
        assert "Use payload(size or path), or write a journey" in found


def test_a_closed_file_is_told(path: Path) -> None:
    with path.open("rb") as file:
        pass
    assert problems(content=file) == ("content: the file is closed. Give an open one, or payload(path)",)


# --- journeys


async def roundtrip(client: httpx.AsyncClient) -> None: ...


async def without_argument() -> None: ...


def not_async(client: httpx.AsyncClient) -> None: ...


class Calls:
    async def __call__(self, client: httpx.AsyncClient) -> None: ...

    async def method(self, client: httpx.AsyncClient) -> None: ...


def test_journeys_are_async_functions_of_a_client() -> None:
    for function, name in (
        (roundtrip, "roundtrip"),
        (Calls().method, "method"),
        (Calls(), "Calls"),
        (functools.partial(roundtrip), "roundtrip"),
    ):
        call = journey_from(function, {"connections": 20})
        assert isinstance(call.work, Journey)
        assert (call.work.name, call.work.function, call.keys) == (name, function, {"connections": 20})
        assert call.problems == ()
    takes = "run takes an async function with one argument, the httpx.AsyncClient"
    for wrong, problem in (
        (not_async, f"{takes}; not_async isn't async"),
        (async_blocks, f"{takes}; async_blocks isn't async"),
        ("/upload", f"{takes}; '/upload' isn't async"),
        (without_argument, f"{takes}: too many positional arguments"),
        # It is closed, too: nobody will await it.
        (without_argument(), "run takes the function itself. Write run(without_argument), without calling it"),
    ):
        assert journey_from(wrong, {}).problems == (problem,)
    (found,) = journey_from(roundtrip, {"content": b"", "expect_status": 200}).problems
    assert found.startswith(
        "unknown key 'content', unknown key 'expect_status'. Valid keys are steps, http2, connections, "
    )


def test_only_a_journey_speaks_http2(monkeypatch: pytest.MonkeyPatch) -> None:
    async def roundtrip(client: object) -> None:
        """Nobody calls it."""

    (found,) = request_from("GET", "/", {"http2": True}).problems
    assert "'http2' (only journeys can use HTTP/2: write fileperf.run(journey, http2=True)). Valid keys" in found
    assert journey_from(roundtrip, {"http2": 2}).problems == ("http2: 2 is neither True nor False",)
    monkeypatch.setitem(sys.modules, "h2", None)
    (found,) = journey_from(roundtrip, {"http2": True}).problems
    assert found == "http2 needs a package: pip install h2"


@pytest.mark.parametrize(
    "annotation, family",
    [
        (httpx.AsyncClient, "httpx"),
        ("httpx.AsyncClient", "httpx"),
        ("'httpx2.AsyncClient'", "httpx2"),
        ("httpx2.AsyncClient", "httpx2"),  # as it is where only a type checker imports it
        ("httpx.AsyncClient | httpx2.AsyncClient", ""),
        (httpx.AsyncClient | None, ""),
        (Client, ""),
        ("nothing.known", ""),
    ],
)
def test_a_journey_gets_the_client_that_its_annotation_names(annotation: object, family: str) -> None:
    async def roundtrip(client: object) -> None:
        """Nobody calls it."""

    roundtrip.__annotations__["client"] = annotation
    for function in (roundtrip, functools.partial(roundtrip)):
        work = journey_from(function, {}).work
        assert isinstance(work, Journey)
        assert work.family == family


# --- feeds


def test_a_feed_or_what_is_unique_makes_many_requests() -> None:
    call = request_from("GET", "/files/{id}", {"feed": ["a", "b"], "order": "shuffle", "seed": 3})
    assert isinstance(call.work, Requests)
    assert (call.problems, call.keys) == ((), {})
    assert (call.work.name, call.work.count, call.work.columns) == ("GET /files/{id}", 2, {"id": ("a", "b")})
    assert call.work.order == Order(kind="shuffle", seed=3)
    drawn = request_from("GET", "/{id}", {"feed": lambda: (number for number in range(3))}).work
    assert isinstance(drawn, Requests)
    assert drawn.columns == {"id": (0, 1, 2)}
    made = request_from("GET", "/{id}", {"feed": lambda ids: ids, "per_connection": True}).work
    assert isinstance(made, Requests)
    assert made.make is not None, "of what the setup returns"
    assert made.order.each
    unique: tuple[dict[str, object], ...] = (
        {"content": payload("1KiB", unique=True)},
        {"json": {"key": "{unique}"}},
        {"content": "{unique}"},
    )
    for arguments in unique:
        work = request_from("POST", "/", arguments).work
        assert isinstance(work, Requests)
        assert work.count == 1


@pytest.mark.parametrize(
    "url,arguments,problem",
    [
        ("/files/{id}", {}, "'/files/{id}' has a field, {id}, but there is no feed. Give its values"),
        ("/files", {"order": "zipf"}, "order needs the rows of a feed, but there is no feed"),
        ("/files", {"feed": ["a"]}, "has no field for its values. Write one, as in '/files/{id}'"),
        ("/f/{item-id}", {"feed": ["a"]}, "{item-id} isn't a field: a field's name has letters from a to z"),
        (
            httpx.URL("/f/{id}"),
            {"feed": ["a"]},
            "%7Bid%7D isn't a field. Give the URL as a text, because httpx.URL",
        ),
        ("/{id}", {"feed": []}, "feed: it has no rows"),
        ("/{id}", {"feed": [{"name": 1}]}, "feed: row 0 has no 'id', which the request needs. The row has name"),
        ("/{id}", {"feed": lambda one, two: one}, "feed: its function needs too many arguments"),
        ("/{id}", {"feed": ["a"], "order": "random"}, "order: 'random' is not one of cycle, shuffle, zipf"),
        ("/{id}", {"feed": ["a"], "seed": -1}, "seed: -1 isn't a whole number"),
        ("/{id}", {"feed": ["a"], "per_connection": 1}, "per_connection: 1 is neither True nor False"),
    ],
)
def test_a_feed_that_does_not_fit_gets_a_sentence(url: object, arguments: dict[str, object], problem: str) -> None:
    (found,) = request_from("GET", url, arguments).problems
    assert problem in found


# --- lists and files of requests

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


def test_files_of_vegeta_s_targets_and_of_json_lines(tmp_path: Path) -> None:
    (tmp_path / "body.txt").write_text("hello")
    (tmp_path / "targets.txt").write_text(VEGETA)
    a, b, c, d = rows(requests(str(tmp_path / "targets.txt")))
    assert a == get("/a?x=1", headers=[("X-Account", "8675309")])
    assert b.arguments == {"headers": [("Content-Type", "text/plain")], "content": payload(tmp_path / "body.txt")}
    assert (c, d) == (get("/c"), get("/d"))
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
        ([], "it contains no request"),
        (5, "requests takes a list of requests, or the path of a file of them"),
        ({"url": "/"}, "requests takes a list of requests, or the path of a file of them"),
        (["/a"], "request 0 is str: write (method, url)"),
        ([("GET", "/a"), ("GET", "/b", {"jsn": 1})], "request 1: unknown key 'jsn' (did you mean json?)"),
        ([("GET", "/b", {"rate": 1})], "request 0: leave out feed, and give load settings to requests(…)"),
        ([("GET", "/{id}")], "request 0: '/{id}' has a field"),
        ([{"method": "GET"}], "request 0: None isn't a URL"),
        ([part.get("/{id}", feed=["a"])], "request 0: it is more than a plain request"),
        ("/no/such/file", "/no/such/file cannot be read as a file of requests"),
    ],
)
def test_what_is_no_request_gets_a_sentence(given: object, problem: str) -> None:
    found = many_from(given, {}).problems
    assert any(one.startswith(problem) for one in found), found


def test_a_file_with_a_mistake_is_told_by_its_line(tmp_path: Path) -> None:
    base64, header = "line 1: body isn't Base64", "line 1: header isn't an object with a list of values for each name"
    for text, problem in (
        ('{"url": "/a"}\n{"url"', "line 2: this isn't JSON"),
        ('{"url": "/a"}\n[1]', "line 2: this isn't a JSON object with method and url"),
        ('{"url": "/a", "body": "no base64!"}', base64),
        ('{"url": "/a", "body": 5}', base64),
        ('{"url": "/a", "header": ["X"]}', header),
        ('{"url": "/a", "header": {"X": 5}}', header),
        ('{"url": ' + "[" * 100_000, "line 1: this isn't JSON"),
        ("GET http://[::1/a", "line 1: 'http://[::1/a' isn't a URL: Invalid IPv6 URL"),
        ("GET /a\nnonsense", "line 2: this is neither a method with a URL, nor a header, nor @FILE"),
    ):
        (tmp_path / "file").write_text(text)
        (found,) = many_from(tmp_path / "file", {}).problems
        assert problem in found


# --- streams


def test_a_stream_is_a_request_whose_pieces_are_events() -> None:
    plain = Stream(operation=Operation(method="GET", url="/events"))
    assert stream_from("/events", {}).work == plain
    assert stream_from("/events", dict.fromkeys(("each", "events", "listen_for", "method"))).work == plain
    call = stream_from("/events", {"events": 5, "connections": 2})
    assert (call.where, call.keys, call.default_gate) == ("stream GET /events", {"connections": 2}, STREAM_GATE)
    given = {"method": "post", "each": "64KiB", "events": "20", "listen_for": "2s", "json": {"a": 1}}
    made = stream_from("/events", given).work
    assert isinstance(made, Stream)
    assert (made.each, made.events, made.lasts_ns) == (65536, 20, 2_000_000_000)
    assert (made.operation.method, made.operation.arguments) == ("POST", {"json": {"a": 1}})


def test_a_stream_that_makes_no_sense_gets_a_sentence() -> None:
    found = stream_from("/events", {"event": 5, "events": 0, "each": "word", "listen_for": "soon"}).problems
    assert "unknown key 'event' (did you mean events?)" in found[0]
    assert [problem.partition(":")[0] for problem in found[1:]] == ["each", "events", "listen_for"]
    cases: list[tuple[dict[str, object], str]] = [
        ({"events": 5, "expect_bytes": 10}, "expect_bytes needs the whole answer, but events ends the stream earlier"),
        ({"listen_for": 1, "expect_body": b"a"}, "expect_body needs the whole answer, but listen_for ends the stream"),
        ({"content": payload("1KiB", unique=True)}, "but a unique payload changes it each time"),
        ({"headers": {"x": "{id}"}, "feed": ["a"]}, "stream repeats one request, but a feed makes many"),
        ({"method": "HEAD"}, "the answer to a HEAD request has no body"),
    ]
    for arguments, problem in cases:
        assert problem in stream_from("/events", arguments).problems[0]


# --- where servers listen, and where load may go


def read(
    host: str | None = None, allowed: list[str] | None = None, ini_host: object = None, ini_allowed: object = None
) -> tuple[Network, tuple[str, ...]]:
    return read_network(host, allowed, {"host": ini_host, "allow_host": ini_allowed})


def test_addresses_are_taken_as_they_are_and_names_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host != "files.test":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", (address, 0)) for address in ("10.0.0.5", "10.0.0.6")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    five = frozenset({"10.0.0.5"})
    for found, network in (
        (read(), Network()),
        (read("127.0.0.2"), Network(host="127.0.0.2")),
        (read("::1"), Network(host="::1")),
        (read("10.0.0.5", ["10.0.0.5"]), Network(host="10.0.0.5", addresses=five)),
        (read(None, ["10.0.0.5", "fd00::0:1"]), Network(addresses=five | {"fd00::1"})),
        (read(ini_host="10.0.0.5", ini_allowed=["10.0.0.5"]), Network(host="10.0.0.5", addresses=five)),
        (read(allowed=["10.0.0.6"], ini_allowed=["10.0.0.5"]), Network(addresses=frozenset({"10.0.0.6"}))),
        (read(None, ["files.test"]), Network(addresses=five | {"10.0.0.6"})),
    ):
        assert found == (network, ())
    _, (problem,) = read(None, ["other.test"])
    assert problem == "--fileperf-allow-host=other.test: there is no such host (Name or service not known)"


HOST, ALLOW = "--fileperf-host=", "--fileperf-allow-host="
NO_NAME = "Write an address as in 10.0.0.5, or a name, without a port"
NO_HOST = "Write an address of this machine, as in 10.0.0.5"
NOT_ONE = "it is not the address of one machine. Write one, as in 10.0.0.5"
LINK = "a link-local address (fe80::…) can belong to a different machine in each network. Use another one"


@pytest.mark.parametrize(
    "found, problem",
    [
        (read("10.0.0.5"), f"{HOST}10.0.0.5: load would go there. Allow it with {ALLOW}10.0.0.5"),
        (read("::"), f"{HOST}::: it stands for all addresses of this machine. Write one of these, as in 10.0.0.5"),
        (read("files"), f"{HOST}files: {NO_HOST}"),
        (read(ini_host="files"), f"fileperf_host = files: {NO_HOST}"),
        (read("fe80::1"), f"{HOST}fe80::1: {LINK}"),
        (read("224.0.0.1"), f"{HOST}224.0.0.1: {NOT_ONE}"),
        (read("255.255.255.255"), f"{HOST}255.255.255.255: {NOT_ONE}"),
        (read(ini_allowed=["::"]), f"fileperf_allow_host = ::: {NOT_ONE}"),
        (read(None, ["fe80::1%lo"]), f"{ALLOW}fe80::1%lo: {LINK}"),
        *(
            (read(None, [name]), f"{ALLOW}{name}: {NO_NAME}")
            for name in ("10.0.0.0/8", "10.0.0.5:80", "*", "", "010.0.0.1", "127.1", "0x7f.0x1", "a..b", "a" * 64)
        ),
        *((read(None, [name]), f"{ALLOW}{name}: {NOT_ONE}") for name in ("0.0.0.0", "255.255.255.255", "224.0.0.1")),
    ],
)
def test_what_is_no_address_is_told(found: tuple[Network, tuple[str, ...]], problem: str) -> None:
    assert found[1] == (problem,)
    assert found[0].host == "127.0.0.1"


@pytest.mark.parametrize(
    "url, allowed, is_fine",
    [
        ("http://127.0.0.1:8000", (), True),
        ("http://localhost:8000", (), True),
        ("http://[::1]:8000", (), True),
        ("http://10.0.0.5:8000", (), False),
        ("http://10.0.0.5:8000", ("10.0.0.5",), True),
        ("http://10.0.0.6:8000", ("10.0.0.5",), False),
        ("http://files.test", (), False),
        ("http://files.test", ("10.0.0.5",), True),  # where it leads is seen when it is looked up
        ("http://127.0.0.1.example.org", (), False),
    ],
)
def test_a_server_elsewhere_has_to_be_allowed(url: str, allowed: tuple[str, ...], is_fine: bool) -> None:
    found = server_problems(Url(url), Network(addresses=frozenset(allowed)))
    assert (found == ()) is is_fine
    if not is_fine:
        assert "isn't on this machine: load goes only to this machine" in found[0]
        assert "--fileperf-allow-host=" in found[0]
    assert server_problems(Uvicorn(), Network()) == ()
