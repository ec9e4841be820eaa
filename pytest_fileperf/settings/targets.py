"""Reads the many different requests of `fileperf.requests`, from a list or a file."""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Operation, distinct, shown_url, without_queries
from pytest_fileperf.settings.arguments import FEEDING, VerbCall, order_from, request_from
from pytest_fileperf.settings.keys import KEYS, unknown_keys
from pytest_fileperf.settings.keywords import PartOfLoad

if TYPE_CHECKING:
    import httpx

_NAMED_BY_URL = 20
"""Up to this many different requests get their method and URL as a name. So each has its own figures."""
_METHOD_LINE = re.compile(r"([A-Z]+) (\S+)")
_HEADER_LINE = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+): *(.*)")
_One: TypeAlias = tuple[Operation, str, str]
"""A request: its recipe, which other requests may share, its own URL, and its name or `""`."""


def many_from(given: object, arguments: Mapping[str, object]) -> VerbCall:
    problems = [*unknown_keys(arguments, (*FEEDING[1:], *KEYS))]
    work = None
    try:
        work = _requests(list(_ones(given)), arguments)
    except PlanError as error:
        problems += error.problems
    return VerbCall.of(work, arguments, problems, "requests")


def _requests(ones: Sequence[_One], arguments: Mapping[str, object]) -> Requests:
    """Returns the requests as a load's work. Equal requests share a recipe, because each recipe is compiled."""
    if not ones:
        raise PlanError("it contains no request")
    named = any(name for _, _, name in ones)
    asked = {} if named else dict.fromkeys((recipe.method, url) for recipe, url, _ in ones)
    if not named and len(asked) <= _NAMED_BY_URL:
        name_of = dict(zip(asked, distinct(f"{method} {shown_url(url)}" for method, url in asked), strict=True))
        named, ones = True, [(recipe, url, name_of[recipe.method, url]) for recipe, url, _ in ones]
    places: dict[object, int] = {}
    recipes: list[Operation] = []
    names: list[str] = []
    uses = []
    for recipe, _, name in ones:
        own = (id(recipe), name)  # most of 100,000 requests share a recipe, and hashing it takes long
        if own not in places:
            key = own if recipe.arguments else (recipe.method, recipe.expect, name)
            if key not in places:
                places[key] = len(recipes)
                recipes.append(recipe)
                names.append(name or f"other {recipe.method}")
            places[own] = places[key]
        uses.append(places[own])
    return Requests(
        recipes=tuple(recipes),
        names=tuple(names) if named else (),
        order=order_from(arguments),
        urls=tuple(url for _, url, _ in ones),
        uses=tuple(uses) if len(recipes) > 1 else (),
    )


@cache
def _plain(method: str) -> Operation:
    return Operation(method=method.upper(), url="")


# --- forms of a request


def _ones(given: object) -> Iterator[_One]:
    """Raises PlanError with the place of an item that isn't a request."""
    if isinstance(given, str | os.PathLike):
        yield from _of_file(Path(given))
        return
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise PlanError("requests takes a list of requests, or the path of a file of them")
    for place, item in enumerate(given):
        yield _one(item, f"request {place}")


def _one(item: object, where: str) -> _One:
    if isinstance(item, PartOfLoad):
        only = "it is more than a plain request. In a list, leave out feed, gate, limits and other settings"
        return _plain_request(item, item.name or "", where, only)
    if isinstance(item, tuple) and len(item) in (2, 3) and isinstance(item[-1], str | Mapping):
        method, url, *rest = item
        return _called(method, url, rest[0] if rest else {}, where)
    if isinstance(item, Mapping):
        others = {key: value for key, value in item.items() if key not in ("method", "url")}
        return _called(item.get("method", "GET"), item.get("url"), others, where)
    if type(item).__name__ == "Request" and hasattr(item, "method"):
        return _of_httpx(item, where)  # type: ignore[arg-type]  # httpx is not imported for it
    raise PlanError(
        f"{where} is {type(item).__name__}: write (method, url), (method, url, {{keywords}}), part.get(…), "
        "a mapping with url, or an httpx.Request"
    )


def _called(method: object, url: object, keywords: object, where: str) -> _One:
    """`keywords`, such as `headers`, may contain a `name` for the request."""
    if not isinstance(keywords, Mapping):
        raise PlanError(f"{where}: {keywords!r} isn't a mapping of keywords, as in {{'headers': {{…}}}}")
    given = dict(keywords)
    name = str(given.pop("name", "") or "").replace("#", "")
    if not given and isinstance(method, str) and method.isalpha() and isinstance(url, str) and "{" not in url:
        return _plain(method), _path(url, where), name
    call = request_from(method, _path(url, where) if isinstance(url, str) else url, given)
    return _plain_request(call, name, where, "leave out feed, and give load settings to requests(…) itself")


def _plain_request(call: VerbCall, name: str, where: str, only: str) -> _One:
    """Raises PlanError with the text `only` if the call has settings or a feed."""
    if call.problems or call.keys or not isinstance(call.work, Operation):
        raise PlanError(*(f"{where}: {problem}" for problem in call.problems or (only,)))
    return replace(call.work, url=""), call.work.url, name


def _of_httpx(request: httpx.Request, where: str) -> _One:
    # httpx makes these headers again, from the host and the body.
    made = ("host", "content-length", "transfer-encoding")
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in made]
    arguments: dict[str, object] = {"headers": headers} if headers else {}
    try:
        if content := request.read():
            arguments["content"] = content
    except RuntimeError as error:
        raise PlanError(f"{where}: its body is a stream, which can be sent only once. Use bytes") from error
    operation = Operation(method=request.method, url="", arguments=arguments)
    return operation, request.url.raw_path.decode("ascii"), ""


def _path(url: str, where: str) -> str:
    """Returns a URL's path and query. Its host isn't the server under test."""
    if "://" not in url.partition("?")[0]:
        return url
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise PlanError(f"{where}: {without_queries(url)!r} isn't a URL: {error}") from error
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


# --- files


def _of_file(path: Path) -> Iterator[_One]:
    """Yields the requests of a file for the load generator vegeta: one JSON object per line, or text."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read as a file of requests: {error}") from error
    read = _of_json if text.lstrip().startswith("{") else _of_text
    shared: dict[object, Operation] = {}
    for recipe, url, name in read(text, path):
        # Equal recipes become one, so that a body is in memory once.
        yield shared.setdefault(repr(recipe), recipe) if recipe.arguments else recipe, url, name


def _of_json(text: str, path: Path) -> Iterator[_One]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            item = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"{where}: this isn't JSON: {error}") from error
        if not isinstance(item, dict):
            raise PlanError(f"{where}: this isn't a JSON object with method and url")
        if "header" in item:  # vegeta's name; it has a list of values for each
            given = item.pop("header")
            if not isinstance(given, dict) or not all(isinstance(values, list) for values in given.values()):
                raise PlanError(
                    f"{where}: header isn't an object with a list of values for each name, as vegeta writes it"
                )
            item["headers"] = [(name, value) for name, values in given.items() for value in values]
        if "body" in item:
            try:
                item["content"] = base64.b64decode(item.pop("body"), validate=True)
            except (TypeError, ValueError) as error:
                raise PlanError(f"{where}: body isn't Base64, as vegeta writes it. Give text as content") from error
        yield _one(item, where)


def _of_text(text: str, path: Path) -> Iterator[_One]:
    """Yields requests of vegeta's text format: lines for `METHOD URL`, headers, `@FILE` (body), and an empty line."""
    current: tuple[str, str, dict[str, object], str] | None = None
    for number, line in enumerate([*text.splitlines(), ""], 1):
        where, stripped = f"{path}, line {number}", line.strip()
        if stripped.startswith("#"):
            continue
        start = _METHOD_LINE.fullmatch(stripped)
        if start or not stripped:
            if current is not None:
                yield _called(*current)
            current = (start[1], start[2], {}, where) if start else None
        elif current is not None and stripped.startswith("@"):
            current[2]["content"] = payload(path.parent / stripped[1:])
        elif current is not None and (header := _HEADER_LINE.fullmatch(stripped)):
            headers = current[2].setdefault("headers", [])
            assert isinstance(headers, list)
            headers.append((header[1], header[2]))
        else:
            raise PlanError(f"{where}: this is neither a method with a URL, nor a header, nor @FILE")
