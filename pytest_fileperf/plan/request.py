"""Requests as a test describes them: arguments with fields such as `{id}`, and the expected answer."""

from __future__ import annotations

import hashlib
import inspect
import json
import mimetypes
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from itertools import count
from typing import TYPE_CHECKING, Never, Protocol, TypeAlias, cast
from urllib.parse import quote

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.payload import Payload, ending

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    import httpx

# --- Describes a request without its values: names, and a digest for each value
#
# A digest here is `sha256:` and the SHA-256 of the value. It stays within the process, because a short value could be
# guessed from a list. Before a digest is written to a file, `judge.baseline` seals it: a slow, salted digest of it is
# written instead.

PLAIN = "sha256:"
"""The start of a plain SHA-256 digest. Files get a salted digest instead."""
_HIDDEN = "hidden"
"""Stands for a credential's value, which may differ in each run."""
_CREDENTIAL_HEADERS = frozenset(("authorization", "cookie", "proxy-authorization", "x-api-key", "x-auth-token"))
_PAIRS = ("cookies", "files", "headers", "params")
_MOST_VALUES = 50
"""If an argument has more values, they get one joint digest, because salting digests is slow."""
_FIELDS = re.compile(r"(?:\{[A-Za-z_][A-Za-z0-9_]*\})+")
_URL = re.compile(r"https?://[^\s'\"<>]+", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=://)[^/?#]*@")


def digest(value: str | bytes | bool | float | None) -> str:
    """Returns a value's digest. The number 1 and the text `"1"` have different digests."""
    raw = value.encode(errors="surrogatepass") if isinstance(value, str) else value
    if not isinstance(raw, bytes):
        raw = f"json {json.dumps(raw)}".encode()
    return PLAIN + hashlib.sha256(raw).hexdigest()


def shown_url(url: str) -> str:
    """Returns the URL with `…` for query values, as in `/files?token=…`. Fields such as `{id}` stay."""

    def shown(part: str) -> str:
        name, mark, value = part.partition("=")
        if not mark:
            name, value = "", name
        return name + mark + (value if not value or _FIELDS.fullmatch(value) else "…")

    path, mark, query = url.partition("?")
    return path + mark + "&".join(map(shown, query.split("&"))) if query else url


def without_queries(text: str) -> str:
    """Returns a text, such as an error from httpx, with `…` for logins and query values in its URLs."""
    if "://" not in text:
        return text
    return _URL.sub(lambda found: _LOGIN.sub("…@", shown_url(found[0])), text)


def distinct(names: Iterable[str]) -> list[str]:
    """Returns the names, with numbers for repeated ones: `GET /a?id=…`, `GET /a?id=… (2)`."""
    found: dict[str, None] = {}
    for name in names:
        numbered = (f"{name} ({number})" if number > 1 else name for number in count(1))
        found[next(one for one in numbered if one not in found)] = None
    return list(found)


def described_url(url: str) -> dict[str, object]:
    path, _, query = url.partition("?")
    pairs = [part.partition("=") for part in query.split("&")] if query else []
    if not pairs:
        return {"url": path}
    named = [(name, value) if mark else ("", name) for name, mark, value in pairs]
    return {"url": path, "query": _by_name((name, _as_text(value)) for name, value in named)}


def described_argument(key: str, value: object, *, is_stored: bool = False) -> object:
    """Returns a request's argument as JSON values. With `is_stored`, the value is from a baseline of schema 1 or 2."""
    if key == "auth":
        return value if is_stored else type(value).__qualname__
    if key == "follow_redirects":
        return value
    found = _described_pairs(key, value, is_stored) if key in _PAIRS else _described(key, value, is_stored)
    if _count(found) > _MOST_VALUES:
        return digest(json.dumps(found, sort_keys=True))
    return found


def described_recipes(recipes: list[dict[str, object]]) -> object:
    """Returns up to 20 recipes as they are. More recipes get one joint digest, because salting digests is slow."""
    if len(recipes) <= 20:
        return recipes
    return {"count": len(recipes), "digest": digest(json.dumps(recipes, sort_keys=True))}


def _described_pairs(key: str, value: object, is_stored: bool) -> object:
    """Returns the values' digests by name; a text has one digest."""
    if isinstance(value, str | bytes):
        return digest(value)
    multi = getattr(value, "multi_items", None)
    pairs = multi() if multi else value.items() if isinstance(value, Mapping) else value
    if not isinstance(pairs, Iterable):
        return type(value).__qualname__
    found: list[tuple[str, object]] = []
    for raw_name, item in cast("Iterable[tuple[object, object]]", pairs):
        name = raw_name.decode("latin-1") if isinstance(raw_name, bytes) else str(raw_name)
        is_credential = key == "cookies" or (key == "headers" and name.lower() in _CREDENTIAL_HEADERS)
        found.append((name, _HIDDEN if is_credential else _described(key, item, is_stored)))
    return _by_name(found)


def _by_name(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """Returns values by name. A repeated name has a list of values."""
    found: dict[str, list[object]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in found.items()}


def _described(key: str, value: object, is_stored: bool) -> object:
    if isinstance(value, Payload):
        return _of_payload(value.identity())
    if isinstance(value, Mapping):
        if is_stored and set(value) == {"size_bytes", "sha256"}:
            return f"{PLAIN}{value['sha256']}"
        if is_stored and {"size_bytes", "kind", "seed", "sha256"} <= set(value):
            return _of_payload(value)
        return {str(name): _described(key, item, is_stored) for name, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_described(key, item, is_stored) for item in value]
        return items if key == "files" else digest(json.dumps(items, sort_keys=True))
    if isinstance(value, str):
        return _as_text(value)
    return digest(value) if isinstance(value, bytes | bool | int | float | None) else type(value).__qualname__


def _of_payload(known: Mapping[str, object]) -> dict[str, object]:
    # A file may contain a secret, so its digest must be salted.
    return {**known, "sha256": f"{PLAIN}{known['sha256']}"} if known["kind"] == "file" else dict(known)


def _as_text(value: str) -> str:
    return value if _FIELDS.fullmatch(value) else digest(value)


def _count(value: object) -> int:
    if isinstance(value, Mapping):
        return sum(map(_count, value.values()))
    return sum(map(_count, value)) if isinstance(value, list) else 1


# --- A part of a load, or a step of a journey: its gate and its limits


SubjectName: TypeAlias = tuple[str, str]
"""(part of a load, step of a journey). An empty text stands for the whole load or part."""
WHOLE_LOAD: SubjectName = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Gates and limits for a part of a load, a journey's step, or the whole load, which has no name."""

    name: str
    gate: tuple[str, ...] = ()
    """Metrics that fail the test if they got worse than in the baseline."""
    watch: tuple[str, ...] = ()
    """Other metrics that are compared and shown, but never fail the test."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def compared(self) -> tuple[str, ...]:
        return (*self.gate, *self.watch)


class Tolerance(float):
    """How much a metric may get worse: by a share, or by `floor`, whichever allows more."""

    floor: float
    """A worsening that always passes, in the SI unit `unit`."""
    unit: str
    watched: bool
    """Whether every change passes."""

    def __new__(cls, share: float, *, floor: float = 0.0, unit: str = "", watched: bool = False) -> Tolerance:
        self = super().__new__(cls, share)
        self.floor, self.unit, self.watched = floor, unit, watched
        return self


# --- operation

REQUEST_ARGUMENTS = (
    "params", "headers", "cookies", "content", "data", "files", "json", "auth", "follow_redirects", "extensions",
)  # fmt: skip
"""Keyword arguments of httpx's `client.request` that a request may have. `timeout` belongs to the load instead."""
FAMILIES = ("httpx", "httpx2")
"""The packages whose clients, requests and errors a load can use."""
_CLIENT = re.compile(r"""["']?(httpx2?)\.(?:Async)?Client["']?""")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A good answer. Any other answer is a failed request."""

    statuses: tuple[int, ...] = ()
    """Allowed status codes. Empty allows every 2xx."""
    size_bytes: int | None = None
    """The body's length as sent on the wire."""
    sha256: str | None = None
    """The body's hexadecimal digest. Checking it costs the generator CPU time."""

    def allows_status(self, status: int) -> bool:
        return status in self.statuses if self.statuses else 200 <= status < 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    url: str
    """Path and query, relative to the server under test."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Keyword arguments for httpx's `client.request`; names are in `REQUEST_ARGUMENTS`."""
    expect: Expectation = Expectation()

    @property
    def name(self) -> str:
        """Method and path without the query's values, such as `POST /upload?token=…`."""
        return f"{self.method} {shown_url(self.url)}"

    def identity(self) -> dict[str, object]:
        """Returns JSON values that are equal if two measurements send the same request.

        Credentials do not count, because they may differ in each run.
        """
        return {
            "method": self.method,
            **described_url(self.url),
            "arguments": {key: described_argument(key, value) for key, value in sorted(self.arguments.items())},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Journey:
    """A user's function that makes several requests. One call of it counts as one request."""

    name: str
    function: Callable[..., Awaitable[object]]
    """Takes an `httpx.AsyncClient`, and with `takes_value` the setup's result."""
    takes_value: bool = False
    needs_value: bool = False
    """Whether the function cannot be called without the setup's result."""
    arguments: tuple[object, ...] = ()
    """Arguments after the client: the setup's result, once it is known."""
    steps: tuple[Subject, ...] = ()
    """The steps with gates or limits. The journey may have other steps."""
    family: str = ""
    """The package whose client the function needs, `httpx` or `httpx2`. Empty if either will do."""
    http2: bool = False

    def identity(self) -> dict[str, object]:
        return {"journey": self.name} | ({"http2": True} if self.http2 else {})


def family_asked_by(function: Callable[..., object]) -> str:
    """Returns `httpx` or `httpx2` if the first parameter's annotation is a client from there; else empty."""
    for evaluates in (True, False):
        # An annotation's name may be imported for type checkers only: then its text decides.
        with suppress(Exception):
            first = next(iter(inspect.signature(function, eval_str=evaluates).parameters.values())).annotation
            text = f"{first.__module__}.{first.__qualname__}" if isinstance(first, type) else str(first)
            found = _CLIENT.fullmatch(text)
            return "" if found is None else found[1]
    return ""


# --- Fields of a request's recipe, such as `{id}`: their places, and how their values are written

UNIQUE = "unique"
"""The field `{unique}` has another value in every request."""
_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
NAME_RULE = "a field's name has letters from a to z, digits and _, and does not begin with a digit"
_DOTS = re.compile(r"(?<![^/])\.{1,2}(?![^/])")
"""A part of a path (`.` or `..`) that would lead to another path."""
_IN_PATH = "/:@!$&'()*+,;=~"
_IN_QUERY = "/:@!$'()*,;~"
"""`_IN_PATH` and `_IN_QUERY` have the characters that stay unquoted, besides letters, digits and `-._`."""


class Place(Enum):
    """A field's place in a request, which decides how its value is written."""

    PATH_START = auto()
    """At the path's start, where a value with a leading slash would name a host, as in `//host`."""
    PATH_FIRST = auto()
    """At the path's start with more path behind it, as in `{id}/a`. An empty value would name a host."""
    PATH = auto()
    QUERY = auto()
    """In the URL's query, as in `/files?id={id}`."""
    PARAMS = auto()
    PARAMS_TEXT = auto()
    """In `params` that are a text, such as `"id={id}"`."""
    HEADER = auto()
    """In a header, in a cookie, or in a file's content type."""
    FILE_NAME = auto()
    TEXT = auto()
    """In a body or a form's part, unchanged."""
    FORM = auto()
    """In a URL-encoded form's value."""
    JSON_TEXT = auto()
    JSON_VALUE = auto()
    """A whole JSON string, such as `"{id}"`. The value replaces it, so a number stays a number."""


Fill: TypeAlias = Callable[[Place, str], object]
"""Returns a field's value by its place and name: a text, or for `JSON_VALUE` any JSON value."""


def url_text(place: Place, value: object) -> str:
    """Returns a value quoted for its place in a URL. Raises ValueError if the URL would lead to another host."""
    if place in (Place.PATH, Place.PATH_START, Place.PATH_FIRST):
        text = str(value) if place is Place.PATH else str(value).lstrip("/")
        if not text and place is Place.PATH_FIRST:
            raise ValueError(f"{value!r} would make the path begin with two slashes. Leave this row out, or change it")
        return _DOTS.sub(lambda found: "%2E" * len(found[0]), quote(text, safe=_IN_PATH))
    return quote(str(value), safe=_IN_QUERY if place is Place.QUERY else "")


def filled(operation: Operation, fill: Fill, url: str | None = None) -> Operation:
    """Returns the request with values for all fields. `url` replaces its own URL."""
    path, mark, query = (operation.url if url is None else url).partition("?")
    url = _path(path, fill) + mark + _text(query, Place.QUERY, fill)
    is_multipart = "files" in operation.arguments
    arguments = {name: _argument(name, value, fill, is_multipart) for name, value in operation.arguments.items()}
    return replace(operation, url=url, arguments=arguments)


def _path(path: str, fill: Fill) -> str:
    below = path.removeprefix("/")
    start = _FIELD.match(below)
    if start is None:
        return _text(path, Place.PATH, fill)
    rest = below[start.end() :]
    place = Place.PATH_FIRST if rest.startswith(("/", "{")) else Place.PATH_START
    return f"/{fill(place, start[1])}{_text(rest, Place.PATH, fill)}"


def _argument(name: str, value: object, fill: Fill, is_multipart: bool) -> object:
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
    """Returns the names of a request's fields, such as `id` for `{id}`. Raises PlanError for JSON nested too deeply."""
    found: set[str] = set()

    def note(place: Place, name: str) -> str:
        found.add(name)
        return ""

    try:
        filled(operation, note)
    except RecursionError:
        raise PlanError(f"{operation.name}: its json is nested too deeply. Send it as bytes, with content=") from None
    return frozenset(found)


def fields_in_url(operation: Operation) -> frozenset[str]:
    return frozenset(_FIELD.findall(operation.url))


def _pairs(value: object) -> object:
    """Returns httpx's `QueryParams` and `Headers` as pairs, because names can repeat."""
    if isinstance(raw := getattr(value, "raw", None), list):  # keeps capitals
        coding = str(getattr(value, "encoding", "ascii"))
        return [(name.decode(coding), item.decode(coding)) for name, item in raw]
    return value.multi_items() if hasattr(value, "multi_items") else value


def _named(value: object, filled_in: Callable[[object], object]) -> object:
    if isinstance(value, Mapping):
        return {name: filled_in(item) for name, item in value.items()}
    return [(name, filled_in(item)) for name, item in value] if isinstance(value, list | tuple) else value


def _file(item: object, fill: Fill) -> object:
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
        return ending(value, str(fill(Place.TEXT, UNIQUE)).encode()) if value.unique else value
    if isinstance(value, Mapping):
        return {name: _value(item, place, fill) for name, item in value.items()}
    if isinstance(value, list):
        return [_value(item, place, fill) for item in value]
    if isinstance(value, tuple):
        return tuple(_value(item, place, fill) for item in value)
    return value


# --- The types of httpx's request arguments, as the verbs and the server's client take them
#
# Objects of httpx and httpx2 are recognised by their attributes, because a type checker may not find httpx2.


class ReadsBytes(Protocol):
    """A file that is open in binary mode."""

    def read(self) -> bytes: ...


class _AnyAuth(Protocol):
    requires_request_body: bool
    requires_response_body: bool


class _AnyCookies(Protocol):
    jar: CookieJar


class AnyRequest(Protocol):
    method: str

    def read(self) -> bytes: ...


class _AnyTimeout(Protocol):
    def as_dict(self) -> dict[str, float | None]: ...


class _UrlObject(Protocol):
    @property
    def raw_path(self) -> bytes: ...


Timeout: TypeAlias = _AnyTimeout | float | None
AnyUrl: TypeAlias = str | _UrlObject
# Aliases that name httpx are texts: this module must not import it.
_Value: TypeAlias = str | int | float | bool | None
Params: TypeAlias = Mapping[str, _Value | Sequence[_Value]] | Sequence[tuple[str, _Value]] | str | bytes
Headers: TypeAlias = (
    Mapping[str, str] | Mapping[bytes, bytes] | Sequence[tuple[str, str]] | Sequence[tuple[bytes, bytes]]
)
Cookies: TypeAlias = "_AnyCookies | CookieJar | dict[str, str] | list[tuple[str, str]]"
_Signing: TypeAlias = "Callable[[httpx.Request], httpx.Request] | Callable[[Never], AnyRequest]"
Auth: TypeAlias = "_AnyAuth | tuple[str | bytes, str | bytes] | _Signing"
Content: TypeAlias = str | bytes | bytearray | memoryview | list[bytes] | tuple[bytes, ...] | Payload | ReadsBytes
_FileBody: TypeAlias = str | bytes | Payload | ReadsBytes
_File: TypeAlias = (
    _FileBody
    | tuple[str | None, _FileBody]
    | tuple[str | None, _FileBody, str | None]
    | tuple[str | None, _FileBody, str | None, Mapping[str, str]]
)
Files: TypeAlias = Mapping[str, _File] | Sequence[tuple[str, _File]]
