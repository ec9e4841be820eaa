"""What a verb's arguments become: repeatable requests and journeys, or problems that say what to write instead."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import httpx
import pytest

from pytest_fileperf.plan.feed import Order, Requests
from pytest_fileperf.plan.payload import Payload, payload
from pytest_fileperf.plan.request import Expectation, Journey, Operation
from pytest_fileperf.settings.arguments import journey_from, request_from


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


@pytest.fixture
def file(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as opened:
        yield opened


def test_httpx_s_arguments_make_the_operation_and_the_marker_s_are_settings() -> None:
    call = request_from("post", "/upload", {"json": [1], "params": None, "connections": 3, "max_p99": "1s"})
    assert call.work == Operation(method="POST", url="/upload", arguments={"json": [1]})
    assert call.keys == {"connections": 3, "max_p99": "1s"}
    assert call.problems == ()


def test_cookies_of_a_jar_are_carried_as_pairs() -> None:
    cookies = httpx.Cookies({"session": "1"})
    for given in (cookies, cookies.jar):
        assert operation(cookies=given).arguments == {"cookies": [("session", "1")]}
    assert operation(cookies={"session": "1"}).arguments == {"cookies": {"session": "1"}}


def test_unknown_keywords_are_named_with_all_valid_ones() -> None:
    (problem,) = problems(contents=b"", conections=3)
    assert problem.startswith(
        "unknown key 'contents' (did you mean content?), unknown key 'conections' (did you mean connections?); "
    )
    assert "params, headers" in problem
    assert "expect_status, expect_bytes, expect_body, feed, order, seed, per_connection, connections" in problem


@pytest.mark.parametrize(
    "given,expected",
    [
        ({"expect_status": 404}, Expectation(statuses=(404,))),
        ({"expect_status": (200, 404)}, Expectation(statuses=(200, 404))),
        ({"expect_bytes": "1KiB"}, Expectation(size_bytes=1024)),
        ({"expect_bytes": 0}, Expectation(size_bytes=0)),
        ({"expect_body": b"abc"}, Expectation(size_bytes=3, sha256=hashlib.sha256(b"abc").hexdigest())),
        ({"expect_body": "ä"}, Expectation(size_bytes=2, sha256=hashlib.sha256("ä".encode()).hexdigest())),
        ({"expect_body": payload(9)}, Expectation(size_bytes=9, sha256=payload(9).sha256())),
        (
            {"expect_body": b"abc", "expect_bytes": 3},
            Expectation(size_bytes=3, sha256=hashlib.sha256(b"abc").hexdigest()),
        ),
    ],
)
def test_what_a_good_answer_is(given: dict[str, object], expected: Expectation) -> None:
    assert operation(**given).expect == expected


@pytest.mark.parametrize(
    "given,problem",
    [
        ({"expect_status": 99}, "expect_status: 99 is not a status code from 100 to 599, or a tuple of them"),
        ({"expect_status": ()}, "expect_status: () is not a status code from 100 to 599, or a tuple of them"),
        ({"expect_status": "2xx"}, "expect_status: '2xx' is not a status code from 100 to 599, or a tuple of them"),
        ({"expect_bytes": "many"}, "expect_bytes: 'many' is not a size: *"),
        ({"expect_bytes": 1.5}, "expect_bytes: 1.5 is not a size: *"),
        ({"expect_body": 5}, "expect_body: int is not a body: use bytes, a text or payload(…)"),
        ({"expect_body": payload(99, unique=True)}, "expect_body: a unique payload is different in every request"),
        ({"expect_body": b"abc", "expect_bytes": 4}, "expect_bytes is 4 bytes, but expect_body has 3"),
    ],
)
def test_a_good_answer_that_makes_no_sense(given: dict[str, object], problem: str) -> None:
    (found,) = problems(**given)
    assert found.startswith(problem.removesuffix("*"))


@pytest.mark.parametrize(
    "content,sent",
    [
        (b"abc", b"abc"),
        ("abc", "abc"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abc"), b"abc"),
        ([b"a", b"bc"], b"abc"),
        (io.BytesIO(b"abc"), b"abc"),
        (payload(3), payload(3)),
    ],
)
def test_content_is_made_repeatable(content: object, sent: object) -> None:
    assert operation(content=content).arguments == {"content": sent}


@pytest.mark.parametrize(
    "content,problem",
    [
        (blocks(), "content: a generator can be sent once only"),
        (async_blocks(), "content: an async_generator can be sent once only"),
        (iter([b"a"]), "content: a list_iterator can be sent once only"),
        (map(bytes, [b"a"]), "content: a map can be sent once only"),
        (5, "content: int is not a body: use bytes, a text, payload(…) or an open file"),
        (io.StringIO("abc"), 'content: the file is open as text: open it in binary mode, "rb"'),
    ],
)
def test_content_that_cannot_be_repeated(content: object, problem: str) -> None:
    (found,) = problems(content=content)
    assert found.startswith(problem)
    if "once only" in found:
        assert "use payload(size or path), or write a journey" in found


def test_an_open_file_stays_a_file(file: IO[bytes], path: Path) -> None:
    assert operation(content=file).arguments == {"content": payload(path, content_type="text/plain")}
    file.read(5)
    assert operation(content=file).arguments == {"content": b"56789"}, "httpx sends content from where the file stands"


def test_files_in_forms_stay_files_and_are_sent_from_their_start(file: IO[bytes], path: Path) -> None:
    file.read(5)
    content = payload(path, content_type="text/plain")
    files: dict[str, object] = {"plain": file, "named": ("a.bin", file), "typed": ("a.bin", file, "text/x")}
    assert operation(files=files).arguments == {
        "files": {
            "plain": content,
            "named": ("a.bin", content, "application/octet-stream"),
            "typed": ("a.bin", content, "text/x"),
        }
    }
    assert operation(files=[("field", file)]).arguments == {"files": [("field", content)]}


def test_other_files_in_forms_are_read() -> None:
    source = io.BytesIO(b"abc")
    source.read()
    assert operation(files={"one": source, "two": ("x.txt", io.BytesIO(b"d"))}).arguments == {
        "files": {
            "one": ("upload", b"abc", "application/octet-stream"),
            "two": ("x.txt", b"d", "text/plain"),
        }
    }


@pytest.mark.parametrize("item", [b"abc", "abc", payload(3), ("a.bin", b"abc"), (None, "abc"), ("a.bin", payload(3))])
def test_files_that_are_repeatable_are_left_alone(item: object) -> None:
    assert operation(files={"field": item}).arguments == {"files": {"field": item}}


@pytest.mark.parametrize(
    "files,problem",
    [
        ({"field": blocks()}, "files['field']: a generator can be sent once only"),
        ({"field": ("name", blocks())}, "files['field']: a generator can be sent once only"),
        ({"field": 5}, "files['field']: int is not a file: use bytes, payload(…) or an open file"),
        ("abc", "files: give a mapping of field name to file, or a list of such pairs"),
    ],
)
def test_files_that_cannot_be_repeated(files: object, problem: str) -> None:
    assert problems(files=files)[0].startswith(problem)


def test_what_was_just_written_is_sent() -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"abc")
        content = operation(files={"field": file}).arguments["files"]
        assert isinstance(content, dict)
        assert isinstance(content["field"], Payload)
        assert content["field"].size_bytes == 3


def test_a_file_that_has_no_name_any_more_is_read() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"abc")
        file.seek(0)
        assert operation(content=file).arguments == {"content": b"abc"}


def test_a_file_that_decompresses_is_not_its_compressed_form(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"abc"))
    with gzip.open(path) as file:
        assert operation(content=file).arguments == {"content": b"abc"}


def test_a_closed_file_is_told(file: IO[bytes]) -> None:
    file.close()
    assert problems(content=file) == ("content: the file is closed",)


@pytest.mark.parametrize("name", ["cookies", "headers", "params"])
@pytest.mark.parametrize("value", [[None], [[]], ["ab"], [("a", "b", "c")]], ids=repr)
def test_a_list_of_what_is_no_pair_is_refused(name: str, value: object) -> None:
    assert problems(**{name: value}) == (f"{name}: give a mapping of names to values, or a list of such pairs",)


def test_raw_form_data_is_refused() -> None:
    assert problems(data=b"a=b") == ("data: give a mapping of form fields; raw bytes are content=",)


@pytest.mark.parametrize(
    "url,problem",
    [
        (5, '5 is not a URL: write a path on the server, as in "/upload"'),
        ("http://127.0.0.1/upload", "'http://127.0.0.1/upload' names a server: write only the path, *"),
        (httpx.URL("http://127.0.0.1/upload"), "'http://127.0.0.1/upload' names a server: write only the path, *"),
    ],
)
def test_urls_are_paths(url: object, problem: str) -> None:
    (found,) = request_from("GET", url, {}).problems
    assert found.startswith(problem.removesuffix("*"))


def test_a_url_in_a_query_is_no_server() -> None:
    assert request_from("GET", "/redirect?to=http://127.0.0.1/", {}).problems == ()


@pytest.mark.parametrize("method", ["", "GET /", 5])
def test_methods_are_words(method: object) -> None:
    assert request_from(method, "/", {}).problems == (f"method {method!r} is not an HTTP method",)


async def roundtrip(client: httpx.AsyncClient) -> None: ...


async def without_argument() -> None: ...


def not_async(client: httpx.AsyncClient) -> None: ...


class Calls:
    async def __call__(self, client: httpx.AsyncClient) -> None: ...

    async def method(self, client: httpx.AsyncClient) -> None: ...


@pytest.mark.parametrize(
    "function,name",
    [
        (roundtrip, "roundtrip"),
        (Calls().method, "method"),
        (Calls(), "Calls"),
        (functools.partial(roundtrip), "roundtrip"),
    ],
)
def test_journeys_are_async_functions_of_a_client(function: object, name: str) -> None:
    call = journey_from(function, {"connections": 20})
    assert call.problems == ()
    assert isinstance(call.work, Journey)
    assert call.work.name == name
    assert call.work.function is function
    assert call.keys == {"connections": 20}


@pytest.mark.parametrize(
    "function,problem",
    [
        (not_async, "run takes an async function with one argument, the httpx.AsyncClient; not_async is not async"),
        (
            async_blocks,
            "run takes an async function with one argument, the httpx.AsyncClient; async_blocks is not async",
        ),
        ("/upload", "run takes an async function with one argument, the httpx.AsyncClient; '/upload' is not async"),
        (
            without_argument,
            "run takes an async function with one argument, the httpx.AsyncClient: too many positional arguments",
        ),
    ],
)
def test_what_is_no_journey(function: object, problem: str) -> None:
    assert journey_from(function, {}).problems == (problem,)


def test_a_journey_that_was_already_called_is_told() -> None:
    """And is closed: nobody will await it."""
    assert journey_from(without_argument(), {}).problems == (
        "run takes the function itself: write run(without_argument), without calling it",
    )


def test_a_journey_takes_no_request_arguments() -> None:
    (problem,) = journey_from(roundtrip, {"content": b"", "expect_status": 200}).problems
    assert problem.startswith("unknown key 'content', unknown key 'expect_status'; valid keys are steps, connections, ")


def test_a_feed_makes_many_requests() -> None:
    call = request_from("GET", "/files/{id}", {"feed": ["a", "b"], "order": "shuffle", "seed": 3})
    assert call.problems == ()
    assert isinstance(call.work, Requests)
    assert (call.work.name, call.work.count, call.work.columns) == ("GET /files/{id}", 2, {"id": ("a", "b")})
    assert call.work.order == Order(kind="shuffle", seed=3)
    assert call.keys == {}


def test_a_function_makes_the_rows_now_or_of_what_the_setup_returned() -> None:
    drawn = request_from("GET", "/{id}", {"feed": lambda: (number for number in range(3))}).work
    made = request_from("GET", "/{id}", {"feed": lambda ids: ids, "per_connection": True}).work
    assert isinstance(drawn, Requests)
    assert isinstance(made, Requests)
    assert drawn.columns == {"id": (0, 1, 2)}
    assert made.make is not None
    assert made.order.each


@pytest.mark.parametrize(
    "arguments", [{"content": payload("1KiB", unique=True)}, {"json": {"key": "{unique}"}}, {"content": "{unique}"}]
)
def test_what_is_unique_makes_many_requests_of_one(arguments: dict[str, object]) -> None:
    work = request_from("POST", "/", arguments).work
    assert isinstance(work, Requests)
    assert work.count == 1


def test_braces_in_a_body_are_no_fields_without_a_feed() -> None:
    assert operation(json={"text": "{name}"}).arguments == {"json": {"text": "{name}"}}


@pytest.mark.parametrize(
    "url,arguments,problem",
    [
        ("/files/{id}", {}, "'/files/{id}' has a field, {id}, and there is no feed: give its values"),
        ("/files", {"order": "zipf"}, "order is about the rows of a feed, and there is no feed"),
        ("/files", {"feed": ["a"]}, "has no field for its values: write one, as in '/files/{id}'"),
        ("/f/{item-id}", {"feed": ["a"]}, "{item-id} is none: a name has letters of a to z, digits and _"),
        (httpx.URL("/f/{id}"), {"feed": ["a"]}, "%7Bid%7D is none: give the URL as a text, as httpx.URL quotes"),
        ("/{id}", {"feed": []}, "feed: it has no row"),
        ("/{id}", {"feed": [{"name": 1}]}, "feed: row 0 has no 'id', which the request needs; it has name"),
        ("/{id}", {"feed": lambda one, two: one}, "feed: a function takes what the setup returned, or nothing"),
        ("/{id}", {"feed": ["a"], "order": "random"}, "order: 'random' is not one of cycle, shuffle, zipf"),
        ("/{id}", {"feed": ["a"], "seed": -1}, "seed: -1 is not a whole number"),
        ("/{id}", {"feed": ["a"], "per_connection": 1}, "per_connection: 1 is neither True nor False"),
    ],
)
def test_a_feed_that_does_not_fit_gets_a_sentence(url: object, arguments: dict[str, object], problem: str) -> None:
    (found,) = request_from("GET", url, arguments).problems
    assert problem in found
