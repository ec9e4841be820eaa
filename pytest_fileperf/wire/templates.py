"""Compiles requests with fields, such as `{id}`, for which each row of a feed (test data) has values.

httpx builds each request once, with a random token in place of each field. The bytes are cut at the tokens, and the
values are put in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import cache
from typing import TypeAlias
from uuid import uuid4

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import UNIQUE_BYTES, unique_bytes
from pytest_fileperf.plan.request import UNIQUE, Operation, Place, filled
from pytest_fileperf.wire.payload_files import FileSegment
from pytest_fileperf.wire.request import BytesOfRequest, WireRequest
from pytest_fileperf.wire.values import written

Build: TypeAlias = Callable[[Operation], BytesOfRequest]
_LENGTH = re.compile(rb"(?<=\r\ncontent-length: )[0-9]+", re.IGNORECASE)
_EMBEDDED_BYTES = 1024
"""Shorter pieces are added to the piece before them, once for all requests. Longer pieces stay apart, because several
requests may share them."""
_JOINED_BYTES = 64 * 1024
"""Shorter pieces are joined with their neighbours for each request, because a copy costs less than another `send`."""


class _Filled(Enum):
    """A piece that changes with each request, but isn't a value of the feed (test data)."""

    UNIQUE = auto()
    """A text that no other request has."""
    LENGTH = auto()
    """The length of the request's body, if it depends on the row."""


_Values: TypeAlias = list[bytes]
"""A field's values as bytes, one for each row of the feed. `{id}` is a field."""
_Piece: TypeAlias = bytes | _Values | _Filled
_Run: TypeAlias = tuple[_Piece, ...]
"""Neighbouring pieces, which are joined anew for each request."""
_Runs: TypeAlias = tuple[_Run | memoryview | FileSegment, ...]
Fill: TypeAlias = Callable[[WireRequest, int], None]
"""A function that writes the request for a row of the feed into its first argument. It also gets the row's number."""


def _filling(request: BytesOfRequest, runs: _Runs, *, fixed_bytes: int, body_values: tuple[_Values, ...]) -> Fill:
    """Returns a `Fill` for any kind of request. `fixed_bytes` is the body's length without values."""
    is_head, is_last = request.is_head, request.is_last
    only = runs[0] if len(runs) == 1 and isinstance(runs[0], tuple) else None

    def fill(row: WireRequest, place: int) -> None:
        row.is_head, row.is_last = is_head, is_last
        row.body_bytes = length = fixed_bytes + sum([len(values[place]) for values in body_values])
        if only is not None:
            row.whole = _joined(only, place, length)
            return
        row.whole = None
        row.segments = tuple(
            [memoryview(_joined(run, place, length)) if isinstance(run, tuple) else run for run in runs]
        )

    return fill


def _with_one_value(request: BytesOfRequest, before: bytes, values: _Values, after: bytes) -> Fill:
    """Returns a faster `Fill` for requests that differ in only one value, as most do."""
    is_head, is_last, body_bytes = request.is_head, request.is_last, request.body_bytes

    def fill(row: WireRequest, place: int) -> None:
        row.is_head, row.is_last, row.body_bytes = is_head, is_last, body_bytes
        row.whole = before + values[place] + after

    return fill


def _always_the_same(request: BytesOfRequest, runs: _Runs) -> Fill:
    made = WireRequest()
    _filling(request, runs, fixed_bytes=request.body_bytes, body_values=())(made, 0)
    is_head, is_last, body_bytes = made.is_head, made.is_last, made.body_bytes
    whole, segments = made.whole, made.segments

    def fill(row: WireRequest, _: int) -> None:
        row.is_head, row.is_last, row.body_bytes = is_head, is_last, body_bytes
        row.whole, row.segments = whole, segments

    return fill


def _with_unique_end(request: BytesOfRequest, before: memoryview, after: bytes) -> Fill:
    """Returns a faster `Fill` for requests that differ only in a unique text near the end."""
    is_head, is_last, body_bytes = request.is_head, request.is_last, request.body_bytes

    def fill(row: WireRequest, _: int) -> None:
        row.is_head, row.is_last, row.body_bytes = is_head, is_last, body_bytes
        row.whole, row.segments = None, (before, memoryview(unique_bytes() + after))

    return fill


def _joined(run: _Run, place: int, length: int) -> bytes:
    return b"".join(
        [
            piece
            if isinstance(piece, bytes)
            else piece[place]
            if isinstance(piece, list)
            else unique_bytes()
            if piece is _Filled.UNIQUE
            else b"%d" % length
            for piece in run
        ]
    )


def compiled(requests: Requests, build: Build) -> tuple[Fill, ...]:
    """Returns a `Fill` for each of the recipes, which are requests with fields.

    Raises PlanError for an unusable value, and any error from `build`.
    """

    @cache
    def values(place: Place | None, name: str) -> _Values:
        column = requests.urls if place is None else requests.columns[name]
        return written(column, place, f"feed: {name!r} of row" if name else "the URL of request")

    return tuple(_compiled(recipe, requests, values, build) for recipe in requests.recipes)


def _compiled(
    recipe: Operation, requests: Requests, values: Callable[[Place | None, str], _Values], build: Build
) -> Fill:
    tokens = _Tokens()

    def fill(place: Place, name: str) -> str:
        if name == UNIQUE:
            return tokens.of(_Filled.UNIQUE, UNIQUE)
        if name not in requests.columns:
            return f"{{{name}}}"
        return tokens.of(values(place, name), name, quoted=place is Place.JSON_VALUE)

    if requests.urls:
        recipe = replace(recipe, url="/" + tokens.of(values(None, ""), ""))
    request = build(filled(recipe, fill))
    head = list(tokens.cut(request.head))
    body: list[_Piece | FileSegment] = []
    for segment in request.body:
        body += [segment] if isinstance(segment, FileSegment) else tokens.cut(segment)
    if lost := tokens.lost:
        raise PlanError(
            f"{recipe.name}: {{{lost}}} is missing from the request that httpx made. Params replace a query in "
            "the URL, and a text behind a # is not sent. Write the field elsewhere"
        )
    in_body = tuple(piece for piece in body if isinstance(piece, list))
    fixed = request.body_bytes - sum(UNIQUE_BYTES + 2 * tokens.is_quoted(own) for own in in_body)
    if len(requests.recipes) == 1 and len(head) == 1 and body and isinstance(body[0], bytes):
        head, body = [request.head + body[0]], body[1:]  # nobody else sends this piece
    if in_body:
        head = [piece for part in head for piece in _with_length(part)]
    return _folded(request, head, body, fixed_bytes=fixed, body_values=in_body)


def _folded(
    request: BytesOfRequest,
    head: Sequence[_Piece],
    body: Sequence[_Piece | FileSegment],
    *,
    fixed_bytes: int,
    body_values: tuple[_Values, ...],
) -> Fill:
    """Joins neighbouring pieces, and returns the fastest `Fill` for the result."""
    runs: list[list[_Piece] | memoryview | FileSegment] = [[]]
    for piece in (*head, *body):
        last = runs[-1]
        if isinstance(piece, FileSegment) or (isinstance(piece, bytes) and len(piece) > _JOINED_BYTES):
            runs.append(memoryview(piece) if isinstance(piece, bytes) else piece)
        elif not isinstance(last, list):
            runs.append([piece])
        elif last and isinstance(piece, bytes) and isinstance(last[-1], bytes) and len(piece) <= _EMBEDDED_BYTES:
            last[-1] += piece
        elif piece != b"":
            last.append(piece)
    folded = tuple(tuple(run) if isinstance(run, list) else run for run in runs if run != [])
    if not body_values:
        if all(isinstance(piece, bytes) for run in folded if isinstance(run, tuple) for piece in run):
            return _always_the_same(request, folded)
        match folded:
            case (tuple((bytes() as before, list() as values, bytes() as after)),):
                return _with_one_value(request, before, values, after)
            case (memoryview() as start, (_Filled.UNIQUE, *rest)) if all(isinstance(piece, bytes) for piece in rest):
                return _with_unique_end(request, start, b"".join(piece for piece in rest if isinstance(piece, bytes)))
    return _filling(request, folded, fixed_bytes=fixed_bytes, body_values=body_values)


def _with_length(part: _Piece) -> Iterator[_Piece]:
    """Yields the piece, with the number of a content-length replaced by `_Filled.LENGTH`."""
    found = _LENGTH.search(part) if isinstance(part, bytes) else None
    if found is None or not isinstance(part, bytes):
        yield part
    else:
        yield from (part[: found.start()], _Filled.LENGTH, part[found.end() :])


class _Tokens:
    """Random texts that stand for values while httpx builds a request. Each is as long as a unique text."""

    def __init__(self) -> None:
        self._mark = uuid4().hex
        self._pattern = re.compile(self._mark.encode() + rb"([0-9]{16})")
        self._pieces: list[tuple[_Values | _Filled, bool]] = []
        self._names: list[str] = []
        self._seen: set[int] = set()

    def of(self, piece: _Values | _Filled, name: str, *, quoted: bool = False) -> str:
        """Returns a token for the piece. If `quoted`, the piece also replaces the quotation marks around the token."""
        self._pieces.append((piece, quoted))
        self._names.append(name)
        return f"{self._mark}{len(self._pieces) - 1:016}"

    @property
    def lost(self) -> str:
        """The name of a field that is missing from the request; empty if none is missing."""
        return next((name for number, name in enumerate(self._names) if number not in self._seen), "")

    def is_quoted(self, values: _Values) -> bool:
        """Returns whether these values also replace the quotation marks around their token."""
        return any(piece is values and quoted for piece, quoted in self._pieces)

    def cut(self, data: bytes) -> Iterator[_Piece]:
        """Yields the data, with each token replaced by its piece."""
        end = 0
        for found in self._pattern.finditer(data):
            number = int(found[1])
            piece, quoted = self._pieces[number]
            self._seen.add(number)
            yield data[end : found.start() - quoted]
            yield piece
            end = found.end() + quoted
        yield data[end:] if end else data
