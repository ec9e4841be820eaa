"""Fields of a request's recipe, `{id}`: where they stand, and what is put in for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import TypeAlias
from urllib.parse import quote

from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.payload import Payload

__all__ = ("UNIQUE", "Fill", "Place", "fields_in_url", "fields_of", "filled", "url_text")

UNIQUE = "unique"
"""The field that is different in every request."""
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_IN_PATH = "/:@!$&'()*+,;=~"
_IN_QUERY = "/:@!$'()*,;~"
"""What stays as it is in a path and in the value of a query, beside letters, digits and `-._`."""


class Place(Enum):
    """Where a field stands, and so how its value is written there."""

    PATH = auto()
    QUERY = auto()
    """In the text of the URL."""
    PARAMS = auto()
    HEADER = auto()
    """In a header or a cookie."""
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
    """Returns a value as it is written in the path or the query of a URL."""
    return quote(str(value), safe=_IN_PATH if place is Place.PATH else _IN_QUERY)


def filled(operation: Operation, fill: Fill) -> Operation:
    """Returns the request with all of its fields filled in."""
    path, mark, query = operation.url.partition("?")
    url = _text(path, Place.PATH, fill) + mark + _text(query, Place.QUERY, fill)
    form = Place.TEXT if "files" in operation.arguments else Place.FORM
    places = {
        "params": Place.PARAMS,
        "headers": Place.HEADER,
        "cookies": Place.HEADER,
        "content": Place.TEXT,
        "files": Place.TEXT,
        "data": form,
        "json": Place.JSON_TEXT,
    }
    arguments = {
        name: _value(value, places[name], fill) if name in places else value
        for name, value in operation.arguments.items()
    }
    return replace(operation, url=url, arguments=arguments)


def fields_of(operation: Operation) -> frozenset[str]:
    """Returns the names of everything in it that looks like a field; `UNIQUE` also for a unique payload."""
    found: set[str] = set()

    def note(place: Place, name: str) -> str:
        found.add(name)
        return ""

    filled(operation, note)
    return frozenset(found)


def fields_in_url(operation: Operation) -> frozenset[str]:
    """Returns the names of the fields in its URL."""
    return frozenset(_FIELD.findall(operation.url))


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
