"""Converts a feed's values (test data) to the bytes that httpx would write for them in a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import quote_plus

import httpx

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.request import Place, url_text

_PLAIN_URL = re.compile(r"/(?!/)(?:(?!/\.)[A-Za-z0-9\-_~!$&'()*+,;=:@/?.]|%[0-9A-F]{2})*")
"""Matches URLs that httpx sends unchanged."""
_NO_HEADER = re.compile(r"[^\x01-\x09\x0b\x0c\x0e-\x7f]")
_NO_TEXT = (list, tuple, set, frozenset, Mapping, type(None))
"""Types whose values cannot be sent as texts: `str` would give Python's notation, such as `[1, 2]`."""
_IN_FILE_NAME = {**{code: f"%{code:02X}" for code in range(32) if code != 27}, 34: "%22", 92: "\\\\"}
"""How httpx and browsers escape characters in a form's file names."""


def written(column: Sequence[object], place: Place | None, what: str) -> list[bytes]:
    """Encodes the values for their place in a request, such as a header. If `place` is None, the values are URLs.

    Raises PlanError for a value that cannot be sent. The message begins with `what` and the row's number.
    """
    found: list[bytes] = []
    if place is not Place.JSON_VALUE:
        _require_texts(column, what)
    try:
        found += map(_WRITERS[place], column)
    except (TypeError, ValueError, RecursionError, httpx.InvalidURL) as error:
        raise PlanError(f"{what} {len(found)} cannot be sent: {error}") from error
    return found


def _require_texts(column: Sequence[object], what: str) -> None:
    if any(issubclass(kind, _NO_TEXT) for kind in set(map(type, column))):
        place, value = next((place, value) for place, value in enumerate(column) if isinstance(value, _NO_TEXT))
        kind = "None" if value is None else type(value).__name__
        raise PlanError(
            f"{what} {place} cannot be sent: {kind} isn't a text. Give a text or a number, or make it a whole "
            "json value, as in json={'x': '{id}'}"
        )


def _header(value: object) -> bytes:
    text = str(value)
    if found := _NO_HEADER.search(text):
        raise ValueError(f"it has {found[0]!r}, a character that headers do not allow")
    return text.encode()


def _url(value: object) -> bytes:
    url = str(value)
    if _PLAIN_URL.fullmatch(url):
        return url.encode()[1:]
    below = b"/" + httpx.URL(url).raw_path.lstrip(b"/")
    return httpx.URL("http://any").copy_with(raw_path=below).raw_path[1:]


_WRITERS: Mapping[Place | None, Callable[[object], bytes]] = {
    None: _url,
    Place.PATH_START: lambda value: url_text(Place.PATH_START, value).encode(),
    Place.PATH_FIRST: lambda value: url_text(Place.PATH_FIRST, value).encode(),
    Place.PATH: lambda value: url_text(Place.PATH, value).encode(),
    Place.QUERY: lambda value: url_text(Place.QUERY, value).encode(),
    Place.PARAMS: lambda value: str(httpx.QueryParams({"": str(value)}))[1:].encode(),
    Place.PARAMS_TEXT: lambda value: str(httpx.QueryParams({"": str(value)}))[1:].encode(),
    Place.HEADER: _header,
    Place.FILE_NAME: lambda value: str(value).translate(_IN_FILE_NAME).encode(),
    Place.TEXT: lambda value: str(value).encode(),
    Place.FORM: lambda value: quote_plus(str(value)).encode(),
    Place.JSON_TEXT: lambda value: json.dumps(str(value), ensure_ascii=False)[1:-1].encode(),
    Place.JSON_VALUE: lambda value: json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False
    ).encode(),
}
