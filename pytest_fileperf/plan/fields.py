"""Fields of a request's recipe, `{id}`: where they stand, and what is put in for them."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import TypeAlias
from urllib.parse import quote

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import Payload

__all__ = ("NAME_RULE", "UNIQUE", "Fill", "Place", "fields_in_url", "fields_of", "filled", "url_text")

UNIQUE = "unique"
"""The field that is different in every request."""
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
NAME_RULE = "a name has letters of a to z, digits and _, and begins with no digit"
_DOTS = re.compile(r"(?<![^/])\.{1,2}(?![^/])")
"""A part of a path that would lead to another one."""
_IN_PATH = "/:@!$&'()*+,;=~"
_IN_QUERY = "/:@!$'()*,;~"
"""What stays as it is in a path and in the value of a query, beside letters, digits and `-._`."""


class Place(Enum):
    """Where a field stands, and so how its value is written there."""

    PATH_START = auto()
    """At the beginning of the path, where a slash of its own would make the value a host."""
    PATH_FIRST = auto()
    """The same, with more of the path behind it: it cannot be empty, as two slashes begin a host too."""
    PATH = auto()
    QUERY = auto()
    """In the text of the URL."""
    PARAMS = auto()
    """In a value of `params`."""
    PARAMS_TEXT = auto()
    """In `params` that are a text, which httpx reads and writes anew."""
    HEADER = auto()
    """In a header or a cookie, or in the content type of a file."""
    FILE_NAME = auto()
    """In the name of a file in a form."""
    TEXT = auto()
    """In a body or a part of a form as it is."""
    FORM = auto()
    """In the value of a form that is sent like a query."""
    JSON_TEXT = auto()
    JSON_VALUE = auto()
    """In place of a whole text: a number stays a number."""


Fill: TypeAlias = Callable[[Place, str], object]
"""Returns what to put in for a field: a text, or for `JSON_VALUE` any JSON value."""


def url_text(place: Place, value: object) -> str:
    """Returns a value as it is written in the path, the query or the `params` of a URL.

    Raises ValueError for one that would make the path another URL.
    """
    if place in (Place.PATH, Place.PATH_START, Place.PATH_FIRST):
        text = str(value) if place is Place.PATH else str(value).lstrip("/")
        if not text and place is Place.PATH_FIRST:
            raise ValueError(f"{value!r} would make the path begin with two slashes: leave this row out, or name it")
        return _DOTS.sub(lambda found: "%2E" * len(found[0]), quote(text, safe=_IN_PATH))
    return quote(str(value), safe=_IN_QUERY if place is Place.QUERY else "")


def filled(operation: Operation, fill: Fill) -> Operation:
    """Returns the request with all of its fields filled in."""
    path, mark, query = operation.url.partition("?")
    url = _path(path, fill) + mark + _text(query, Place.QUERY, fill)
    is_multipart = "files" in operation.arguments
    arguments = {name: _argument(name, value, fill, is_multipart) for name, value in operation.arguments.items()}
    return replace(operation, url=url, arguments=arguments)


def _path(path: str, fill: Fill) -> str:
    """Returns the path with its fields filled in; it begins with a slash where it begins with a field."""
    below = path.removeprefix("/")
    start = _FIELD.match(below)
    if start is None:
        return _text(path, Place.PATH, fill)
    rest = below[start.end() :]
    place = Place.PATH_FIRST if rest.startswith(("/", "{")) else Place.PATH_START
    return f"/{fill(place, start[1])}{_text(rest, Place.PATH, fill)}"


def _argument(name: str, value: object, fill: Fill, is_multipart: bool) -> object:
    """Returns an argument of the request with its fields filled in."""
    if name == "params" and isinstance(value, str):
        return _text(value, Place.PARAMS_TEXT, fill)
    if name in ("params", "headers", "cookies"):
        place = Place.PARAMS if name == "params" else Place.HEADER
        return _named(_pairs(value), lambda item: _value(item, place, fill))
    if name == "files":
        return _named(value, lambda item: _file(item, fill))
    if name == "data":
        return _value(value, Place.TEXT if is_multipart else Place.FORM, fill)
    if name in ("content", "json"):
        return _value(value, Place.TEXT if name == "content" else Place.JSON_TEXT, fill)
    return value


def fields_of(operation: Operation) -> frozenset[str]:
    """Returns the names of everything in it that looks like a field; `UNIQUE` also for a unique payload.

    Raises PlanError for JSON that is nested too deeply.
    """
    found: set[str] = set()

    def note(place: Place, name: str) -> str:
        found.add(name)
        return ""

    try:
        filled(operation, note)
    except RecursionError:
        raise PlanError(
            f"{operation.name}: its json is nested too deeply to be looked at: send it as content=, as bytes"
        ) from None
    return frozenset(found)


def fields_in_url(operation: Operation) -> frozenset[str]:
    """Returns the names of the fields in its URL."""
    return frozenset(_FIELD.findall(operation.url))


def _pairs(value: object) -> object:
    """Returns httpx's own parameters and headers as pairs: as a mapping they would have each name once."""
    if isinstance(raw := getattr(value, "raw", None), list):  # keeps capitals
        coding = str(getattr(value, "encoding", "ascii"))
        return [(name.decode(coding), item.decode(coding)) for name, item in raw]
    return value.multi_items() if hasattr(value, "multi_items") else value


def _named(value: object, filled_in: Callable[[object], object]) -> object:
    """Returns a mapping or pairs with each item filled in; names stay as they are."""
    if isinstance(value, Mapping):
        return {name: filled_in(item) for name, item in value.items()}
    return [(name, filled_in(item)) for name, item in value] if isinstance(value, list | tuple) else value


def _file(item: object, fill: Fill) -> object:
    """Returns an entry of `files` with its fields filled in."""
    if not isinstance(item, tuple) or len(item) < 2:
        return _value(item, Place.TEXT, fill)
    name, content, *more = item
    if not more and isinstance(name, str) and _FIELD.search(name) and not isinstance(content, Payload):
        more = [mimetypes.guess_type(name)[0] or "application/octet-stream"]  # the same one for every row
    return (
        _value(name, Place.FILE_NAME, fill),
        _value(content, Place.TEXT, fill),
        *(_value(other, Place.HEADER, fill) for other in more),
    )


def _text(text: str, place: Place, fill: Fill) -> str:
    return _FIELD.sub(lambda found: str(fill(place, found[1])), text)


def _value(value: object, place: Place, fill: Fill) -> object:
    if isinstance(value, str):
        whole = _FIELD.fullmatch(value) if place is Place.JSON_TEXT else None
        return _text(value, place, fill) if whole is None else fill(Place.JSON_VALUE, whole[1])
    if isinstance(value, Payload):
        return replace(value, unique=False, tail=str(fill(Place.TEXT, UNIQUE)).encode()) if value.unique else value
    if isinstance(value, Mapping):
        return {name: _value(item, place, fill) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(item, place, fill) for item in value]
    if isinstance(value, tuple):
        return tuple(_value(item, place, fill) for item in value)
    return value
