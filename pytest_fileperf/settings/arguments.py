"""Reads the arguments of `fileperf.get`, `fileperf.run` and the other methods (verbs): their requests and settings."""

from __future__ import annotations

import inspect
import io
import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plan.feed import ORDERS, Order, Requests, columns_of
from pytest_fileperf.plan.payload import Payload, payload
from pytest_fileperf.plan.request import (
    NAME_RULE,
    REQUEST_ARGUMENTS,
    UNIQUE,
    Expectation,
    Journey,
    Operation,
    Subject,
    family_asked_by,
    fields_in_url,
    fields_of,
    shown_url,
    without_queries,
)
from pytest_fileperf.plan.work import EVENT, Stream, Work, parse_each, why_no_name
from pytest_fileperf.serve.likeness import takes
from pytest_fileperf.settings.keys import KEYS, LIMITS, parse_count, parse_positive_duration_ns, unknown_keys
from pytest_fileperf.settings.settings import DEFAULT_GATE, for_one_load, resolve
from pytest_fileperf.units import parse_size_bytes

# --- Reads a verb's feed: which requests come from its URL and body, and in which order

FEEDING = ("feed", "order", "seed", "per_connection")
"""The keywords for many requests with different values."""
NO_SETUP_FOR_FEED = (
    "the feed's function needs a setup's value, but there is no setup. Give one (setup=… or the fixture "
    "fileperf_setup), or give feed a list of rows"
)


def _fed(operation: Operation, arguments: Mapping[str, object]) -> Operation | Requests:
    feed, used = arguments.get("feed"), fields_of(operation)
    needed = used - {UNIQUE}
    if feed is None:
        if named := sorted(fields_in_url(operation) - {UNIQUE}):
            raise PlanError(
                f"{shown_url(operation.url)!r} has a field, {{{named[0]}}}, but there is no feed. Give its "
                f"values, feed=['a', 'b'], or write %7B{named[0]}%7D to send the braces"
            )
        if given := [name for name in FEEDING[1:] if arguments.get(name) is not None]:
            raise PlanError(f"{given[0]} needs the rows of a feed, but there is no feed. Give feed=…")
        return Requests(recipes=(operation,)) if UNIQUE in used else operation
    if not needed:
        like = re.search(r"\{[^{}/?]*\}|%7B[^{}/?]*?%7D", operation.url, re.IGNORECASE)
        why = f"Write one, as in '{operation.url.partition('?')[0]}/{{id}}'"
        if like is not None:
            is_named = like[0].startswith("{")
            why = f": {NAME_RULE}" if is_named else ". Give the URL as a text, because httpx.URL quotes braces"
            why = f"{like[0]} isn't a field{why}"
        raise PlanError(f"there is a feed, but the request has no field for its values. {why}")
    order = order_from(arguments)
    if callable(feed) and not takes(feed, 0):
        if takes(feed, 1) is False:
            raise PlanError(
                "feed: its function needs too many arguments. Write one that takes nothing, or only the setup's value"
            )
        return Requests(recipes=(operation,), order=order, make=feed)
    columns = columns_of(feed() if callable(feed) else feed, needed)
    return Requests(recipes=(operation,), order=order, columns=columns)


def order_from(arguments: Mapping[str, object]) -> Order:
    kind, seed, each = (
        default if arguments.get(name) is None else arguments[name]
        for name, default in (("order", "cycle"), ("seed", 0), ("per_connection", False))
    )
    problems = []
    if kind not in ORDERS:
        problems.append(f"order: {kind!r} is not one of {', '.join(ORDERS)}")
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        problems.append(f"seed: {seed!r} isn't a whole number of 0 or more")
    if not isinstance(each, bool):
        problems.append(f"per_connection: {each!r} is neither True nor False")
    if problems:
        raise PlanError(*problems)
    assert isinstance(seed, int)
    return Order(kind=str(kind), seed=seed, each=bool(each))


# --- Keys for a journey's steps: `steps={"login": {"max_p99": "50ms"}, "download": {"gate": "p50"}}`

_OF_EVENTS = tuple(name for name, metric in METRICS.items() if metric.events)
_NOT_OF_STEPS = ("cpu_per_request", "rss", "startup", "queries", "capacity", *_OF_EVENTS)
STEP_KEYS = ("gate", "watch", "tolerance", *(name for name in LIMITS if name.partition("_")[2] not in _NOT_OF_STEPS))
"""The keys that a step may have. CPU time, memory and stream events are known only for a whole load."""


def _steps_from(given: object, problems: list[str]) -> tuple[Subject, ...]:
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        form = (
            "Give the limits and gates of each step by its name, as in {'login': {'max_p99': '50ms'}, 'download': {}}"
        )
        problems.append(f"steps: {given!r} isn't a mapping. {form}")
        return ()
    steps: list[Subject] = []
    for name, keys in given.items():
        found = [problem] if (problem := why_no_name(name)) else []
        if not isinstance(keys, Mapping):
            found.append(f"{keys!r} isn't a mapping. Write {{}} for nothing, or {{'max_p99': '50ms'}}")
        else:
            found += unknown_keys(keys, STEP_KEYS)
        if not found:
            try:
                step = judged_by(name, {key: value for key, value in keys.items() if value is not None})
                steps.append(step)
                if others := [metric for metric in step.compared if metric in _NOT_OF_STEPS]:
                    key = "gate" if others[0] in step.gate else "watch"
                    found.append(f"{key}: {', '.join(others)} can be known only for the whole load, not for a step")
            except PlanError as error:
                found += error.problems
        problems += (f"steps: {name}: {problem}" for problem in found)
    return tuple(steps)


def judged_by(name: str, keys: Mapping[str, object], gate: object = "none") -> Subject:
    """Returns how to judge a part or step of a load. Raises PlanError."""
    own = for_one_load(resolve(verb={"gate": gate, **keys}))
    # Without the default limit for failed requests.
    limits = {key: limit for key, limit in own.limits.items() if key in keys}
    return Subject(name=name, gate=own.gate, watch=own.watch, tolerances=own.tolerances, limits=limits)


# --- The arguments of each method

EXPECTATIONS = ("expect_status", "expect_bytes", "expect_body")

NO_APP = (
    'no app to test. Name it in pyproject.toml or pytest.ini (fileperf_app = "package.module:app"), or for '
    "one test (@pytest.mark.fileperf(app=…)). Or let your own fixture fileperf_app return the app or its "
    'factory. A running server needs none: server=Url("http://127.0.0.1:8000")'
)
NO_SETUP = (
    "the journey needs a setup's value, but there is no setup. Give one (setup=… or the fixture "
    "fileperf_setup), or let the journey take only the client"
)
_ONCE_ONLY = (
    "can be sent only once, but a load sends it again and again. Use payload(size or path), or write a "
    "journey for fileperf.run() that makes a new one each time"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VerbCall:
    """A call of a method of `fileperf` or `part`, with its arguments checked."""

    work: Work | None
    """None if the arguments are wrong."""
    keys: Mapping[str, object]
    """The call's keywords that are settings, not yet checked."""
    problems: tuple[str, ...] = ()
    where: str
    """The call, for messages: `POST /upload`."""
    name: str | None = None
    """The name that the user gave to a part of a load."""

    @classmethod
    def of(cls, work: Work | None, arguments: Mapping[str, object], problems: Iterable[str], where: str) -> VerbCall:
        problems = tuple(problems)
        keys = {key: value for key, value in arguments.items() if key in KEYS}
        return cls(work=None if problems else work, keys=keys, problems=problems, where=where)

    @property
    def default_gate(self) -> tuple[str, ...]:
        return STREAM_GATE if isinstance(self.work, Stream) else DEFAULT_GATE


def request_from(method: object, url: object, arguments: Mapping[str, object], *, also: Sequence[str] = ()) -> VerbCall:
    """Returns the call of a method that repeats one request. `also` lists keywords that only this method takes."""
    valid = (*REQUEST_ARGUMENTS, *EXPECTATIONS, *FEEDING, *also, *KEYS)
    problems, path = [*unknown_keys(arguments, valid)], str(url)
    if not isinstance(url, str) and type(url).__name__ != "URL":
        problems.append(f'{url!r} isn\'t a URL. Write a path on the server, as in "/upload"')
    elif "://" in path.partition("?")[0]:
        given = without_queries(path)
        problems.append(f'{given!r} names a server. Write only the path, and give the server as server=Url("http://…")')
    if not isinstance(method, str) or not method.isalpha():
        problems.append(f"method {method!r} isn't an HTTP method. Give one such as GET")
    values = {name: _parsed(name, partial(_repeatable, name), arguments, problems) for name in REQUEST_ARGUMENTS}
    recipe = {name: value for name, value in values.items() if value is not None}
    expect, method = _expectation(arguments, problems), str(method).upper()
    work: Work | None = None
    if not problems:
        try:
            work = _fed(Operation(method=method, url=path, arguments=recipe, expect=expect), arguments)
        except PlanError as error:
            problems += error.problems
    return VerbCall.of(work, arguments, problems, f"{method} {without_queries(shown_url(path))}")


def journey_from(function: object, arguments: Mapping[str, object]) -> VerbCall:
    problems = [*unknown_keys(arguments, ("steps", "http2", *KEYS)), *_journey_problems(function)]
    steps = _steps_from(arguments.get("steps"), problems)
    http2 = False if arguments.get("http2") is None else arguments["http2"]
    if not isinstance(http2, bool):
        problems.append(f"http2: {http2!r} is neither True nor False")
    elif http2 and find_spec("h2") is None:
        problems.append("http2 needs a package: pip install h2")
    named = getattr(function, "func", function)  # a partial has no name
    name = str(getattr(named, "__name__", type(named).__name__))
    work = None
    if not problems:
        assert callable(function)
        assert isinstance(http2, bool)
        value, family = takes(function, 2) is True, family_asked_by(function)
        needed = value and takes(function, 1) is False
        work = Journey(
            name=name, function=function, takes_value=value, needs_value=needed, steps=steps, family=family, http2=http2
        )
    return VerbCall.of(work, arguments, problems, f"run({name})")


def _journey_problems(function: object) -> tuple[str, ...]:
    if inspect.iscoroutine(function):
        function.close()  # nothing will await it, which would be a warning
        return (f"run takes the function itself. Write run({function.__name__}), without calling it",)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - its own
    if not callable(function) or not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)):
        name = getattr(function, "__name__", None) or repr(function)
        return (f"run takes an async function with one argument, the httpx.AsyncClient; {name} isn't async",)
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        if takes(function, 2) is not True:
            return (f"run takes an async function with one argument, the httpx.AsyncClient: {error}",)
    return ()


def _expectation(arguments: Mapping[str, object], problems: list[str]) -> Expectation:
    statuses = _parsed("expect_status", _statuses, arguments, problems) or ()
    size_bytes = _parsed("expect_bytes", _size_bytes, arguments, problems)
    body = _parsed("expect_body", _body_facts, arguments, problems)
    if body is None:
        return Expectation(statuses=statuses, size_bytes=size_bytes)
    body_bytes, digest = body
    if size_bytes not in (None, body_bytes):
        problems.append(f"expect_bytes is {size_bytes} bytes, but expect_body has {body_bytes}. Give only one of them")
    return Expectation(statuses=statuses, size_bytes=body_bytes, sha256=digest)


def _size_bytes(size: object) -> int:
    if not isinstance(size, str | int):
        raise ValueError(f'{size!r} isn\'t a size. Write a number of bytes, or a text as in "256KiB"')
    return parse_size_bytes(size)


def _statuses(status: object) -> tuple[int, ...]:
    given = tuple(status) if isinstance(status, list | tuple | set | frozenset | range) else (status,)
    statuses = tuple(int(one) for one in given if isinstance(one, int) and not isinstance(one, bool))
    if len(statuses) != len(given) or not statuses or not all(100 <= one <= 599 for one in statuses):
        raise ValueError(f"{status!r} isn't a status code from 100 to 599, or a tuple of them")
    return statuses


def _body_facts(body: object) -> tuple[int, str]:
    """Returns an expected body's length in bytes, and its SHA-256."""
    import hashlib

    if isinstance(body, Payload):
        if body.unique:
            raise ValueError(
                "a unique payload differs in every request, so no answer can be compared with it. Give its "
                "size as expect_bytes, or compare one of its contents, .fresh(), in a journey"
            )
        return body.size_bytes, body.sha256()
    if isinstance(body, str):
        try:
            body = body.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"the text cannot be sent ({error.reason}). Give the bytes") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return len(bytes(body)), hashlib.sha256(body).hexdigest()
    raise ValueError(f"{type(body).__name__} isn't a body. Use bytes, a text or payload(…)")


def _repeatable(name: str, value: object) -> object:
    if name == "content":
        return _repeatable_content(value)
    if name == "files":
        if isinstance(value, Mapping):
            return {key: _repeatable_file(f"files[{key!r}]", item) for key, item in value.items()}
        if isinstance(value, list | tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in value):
            return [(key, _repeatable_file(f"files[{key!r}]", item)) for key, item in value]
        raise PlanError("files: give a mapping from field names to files, or a list of such tuples")
    if name == "data" and not isinstance(value, Mapping):
        raise PlanError("data: give a mapping of form fields, or raw bytes as content=")
    if name == "cookies":
        from http.cookiejar import CookieJar

        jar = getattr(value, "jar", value)  # the jar of httpx.Cookies
        if isinstance(jar, CookieJar):  # it cannot be pickled, but its pairs can, whatever their domain
            return [(cookie.name, cookie.value or "") for cookie in jar]
    pairs = value if name in ("cookies", "headers", "params") and isinstance(value, list | tuple) else ()
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise PlanError(f"{name}: give a mapping from names to values, or a list of such tuples")
    return value


def _repeatable_content(value: object) -> object:
    if isinstance(value, str | bytes | Payload):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, list | tuple) and all(isinstance(part, bytes) for part in value):
        return b"".join(value)
    return _read("content", value)


def _repeatable_file(name: str, item: object) -> object:
    """Returns an item of `files`; an open file is replaced by its content."""
    if isinstance(item, tuple) and len(item) >= 2:
        filename, content, *rest = item
        if isinstance(content, str | bytes | Payload):
            return item
        found = _read(name, content)
        content_type = rest or [_type_of(str(filename or ""))]
        return (filename, found, *content_type)
    if isinstance(item, str | bytes | Payload):
        return item
    found = _read(name, item)
    if isinstance(found, Payload):
        return found
    filename = Path(str(getattr(item, "name", "upload"))).name
    return (filename, found, _type_of(filename))


def _read(name: str, source: object) -> Payload | bytes:
    """Returns an open file's content. As in httpx, `content` begins at the file's position, a form's file at its start.

    For a file on disk, returns a Payload, so that a large file never comes into memory.
    """
    from_start, kind = name != "content", type(source).__name__
    if not hasattr(source, "read"):
        if hasattr(source, "__iter__") or hasattr(source, "__aiter__"):
            raise PlanError(f"{name}: {'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind} {_ONCE_ONLY}")
        wanted = "a file. Use bytes" if from_start else "a body. Use bytes, a text"
        raise PlanError(f"{name}: {kind} isn't {wanted}, payload(…) or an open file")
    if getattr(source, "closed", False):
        raise PlanError(f"{name}: the file is closed. Give an open one, or payload(path)")
    if isinstance(source, io.TextIOBase):
        raise PlanError(f'{name}: the file is open as text. Open it in binary mode, "rb"')
    path = _path_of(source)
    if path is not None and (from_start or source.tell() == 0):  # type: ignore[attr-defined]
        return payload(path, content_type=_type_of(path.name))
    if from_start and hasattr(source, "seek"):
        source.seek(0)
    found = source.read()
    if not isinstance(found, bytes):
        kind = f"an async {kind}" if inspect.isawaitable(found) else kind
        if inspect.iscoroutine(found):
            found.close()
        raise PlanError(f"{name}: {kind} does not give bytes. Use bytes, payload(…) or a file opened with 'rb'")
    return found


def _path_of(source: object) -> Path | None:
    """Returns the path of an open file on disk, after flushing the file. Else None."""
    file = getattr(source, "file", source)  # a NamedTemporaryFile wraps the real one
    # Other files, such as a GzipFile, also have a descriptor and a name, but give other bytes.
    if not isinstance(file, io.BufferedReader | io.BufferedRandom | io.FileIO):
        return None
    if not isinstance(file.name, str | os.PathLike):  # an unnamed file's name is its descriptor's number
        return None
    if file.writable():
        file.flush()
    path = Path(file.name)
    try:
        same = os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return None
    return path if same and path.is_file() else None


def _type_of(filename: str) -> str:
    return mimetypes.guess_type(filename)[0] or "application/octet-stream"


# --- The arguments of `stream`: a request, its pieces, and its end

STREAM_ARGUMENTS = ("method", "each", "events", "listen_for")
STREAM_GATE = ("event_rate", "first_event_p50")
"""The default gate of `stream`. It lacks requests/s and latency, because the test decides how long a stream lasts."""
_T = TypeVar("_T")


def stream_from(url: object, arguments: Mapping[str, object]) -> VerbCall:
    method = "GET" if arguments.get("method") is None else arguments["method"]
    call = request_from(method, url, arguments, also=STREAM_ARGUMENTS)
    problems = [*call.problems]
    each = _parsed("each", parse_each, arguments, problems) or EVENT
    events = _parsed("events", parse_count, arguments, problems)
    lasts_ns = _parsed("listen_for", parse_positive_duration_ns, arguments, problems)
    stream = None
    if isinstance(call.work, Operation):
        stream = Stream(operation=call.work, each=each, events=events, lasts_ns=lasts_ns)
        expect = call.work.expect
        if stream.ends_early and expect.size_bytes is not None:
            end = "events" if events is not None else "listen_for"
            name = "expect_bytes" if expect.sha256 is None else "expect_body"
            problems.append(f"{name} needs the whole answer, but {end} ends the stream earlier. Give only one of them")
        elif call.work.method == "HEAD":
            problems.append("the answer to a HEAD request has no body to stream")
    elif call.work is not None and arguments.get("feed") is not None:
        problems.append(
            "stream repeats one request, but a feed makes many. Give the feed to fileperf.run, and stream in a journey"
        )
    elif call.work is not None:
        problems.append(
            "stream repeats one request, but a unique payload changes it each time. Leave unique=True out, "
            "or read the stream in a journey"
        )
    return VerbCall.of(stream, arguments, problems, f"stream {call.where}")


def _parsed(
    name: str, parse: Callable[[object], _T], arguments: Mapping[str, object], problems: list[str]
) -> _T | None:
    """Returns a keyword's value, or None if it is missing or wrong. A wrong value adds a problem."""
    try:
        return None if arguments.get(name) is None else parse(arguments[name])
    except PlanError as error:
        problems += error.problems
        return None
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return None
