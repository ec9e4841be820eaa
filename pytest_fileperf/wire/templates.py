"""Compiles many requests once: bytes that all of them share, and the quoted values of each row between them.

httpx builds the request of a recipe with a token in the place of each field, so that all that it does to a request is
done. The bytes are cut at the tokens. What is kept of a row are its values alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias
from uuid import uuid4

from pytest_fileperf.errors import PlanError
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.payload import UNIQUE_BYTES, unique_bytes
from pytest_fileperf.plan.request import UNIQUE, Operation, Place, filled
from pytest_fileperf.wire.payload_files import FileSegment
from pytest_fileperf.wire.request import BytesOfRequest
from pytest_fileperf.wire.values import written

__all__ = ("Build", "Compiled", "Row", "compiled")

Build: TypeAlias = Callable[[Operation], BytesOfRequest]
"""Returns the request of an operation as bytes."""
_LENGTH = re.compile(rb"(?<=\r\ncontent-length: )[0-9]+", re.IGNORECASE)
_EMBEDDED_BYTES = 1024
"""Pieces up to here are joined with the head once. Longer ones may be shared by many recipes."""
_JOINED_BYTES = 64 * 1024
"""Pieces up to here are joined with the head for each request: a copy of them costs less than another `send`."""


class Row:
    """A request that becomes another one each time: what a connection sends. Has the fields of a `WireRequest`."""

    __slots__ = ("body_bytes", "is_head", "is_last", "segments", "whole")

    def __init__(self) -> None:
        self.is_head = self.is_last = False
        self.whole: bytes | memoryview | None = None
        self.segments: tuple[memoryview | FileSegment, ...] = ()
        self.body_bytes = 0


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a field in one kind of place, a row each."""

    of: Sequence[bytes]


class _Unique:
    """A value that no other request has."""


class _Length:
    """The length of the body, where values make it differ."""


_Piece: TypeAlias = bytes | _Values | _Unique | _Length
_Run: TypeAlias = tuple[_Piece, ...]
"""Pieces that are joined for each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The requests of one recipe."""

    is_head: bool
    is_last: bool
    runs: tuple[_Run | memoryview | FileSegment, ...]
    """In the order in which they are sent."""
    fixed_bytes: int
    """Length of the body without `body_values`."""
    body_values: tuple[_Values, ...] = ()
    """Values within the body."""

    def of_kind(self, kind: Callable[..., Compiled], **own: object) -> Compiled:
        """Returns these requests as ones of another kind, with the fields that are its own."""
        return kind(is_head=self.is_head, is_last=self.is_last, runs=self.runs, fixed_bytes=self.fixed_bytes, **own)

    def fill(self, row: Row, place: int) -> None:
        """Makes the row the request of that place."""
        row.is_head, row.is_last = self.is_head, self.is_last
        row.body_bytes = length = self.fixed_bytes + sum([len(values.of[place]) for values in self.body_values])
        if len(self.runs) == 1 and isinstance(self.runs[0], tuple):
            row.whole = _joined(self.runs[0], place, length)
            return
        row.whole = None
        row.segments = tuple(
            [memoryview(_joined(run, place, length)) if isinstance(run, tuple) else run for run in self.runs]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _OneValue(Compiled):
    """Requests that differ in one value of the head, as those of most templates do: the fastest kind."""

    before: bytes
    values: Sequence[bytes]
    after: bytes

    @classmethod
    def of(cls, folded: Compiled) -> Compiled | None:
        """Returns the requests as ones of this kind; None where they are of another."""
        run = folded.runs[0]
        if len(folded.runs) > 1 or folded.body_values or not isinstance(run, tuple) or len(run) != 3:
            return None
        before, values, after = run
        if not (isinstance(before, bytes) and isinstance(values, _Values) and isinstance(after, bytes)):
            return None
        return folded.of_kind(
            cls,
            before=before,
            values=values.of,
            after=after,
        )

    def fill(self, row: Row, place: int) -> None:
        row.is_head, row.is_last, row.body_bytes = self.is_head, self.is_last, self.fixed_bytes
        row.whole = self.before + self.values[place] + self.after


@dataclass(frozen=True, slots=True, kw_only=True)
class _Same(Compiled):
    """One request that is the same each time: a part of a load may be that."""

    row: Row

    @classmethod
    def of(cls, folded: Compiled) -> Compiled | None:
        """Returns the requests as ones of this kind; None where they are of another."""
        pieces = [piece for run in folded.runs if isinstance(run, tuple) for piece in run]
        if folded.body_values or not all(isinstance(piece, bytes) for piece in pieces):
            return None
        row = Row()
        folded.fill(row, 0)
        return folded.of_kind(cls, row=row)

    def fill(self, row: Row, place: int) -> None:
        row.is_head, row.is_last, row.body_bytes = self.is_head, self.is_last, self.fixed_bytes
        row.whole, row.segments = self.row.whole, self.row.segments


@dataclass(frozen=True, slots=True, kw_only=True)
class _UniqueEnd(Compiled):
    """One request with a unique text near its end, as that of a unique payload is."""

    before: memoryview
    after: bytes

    @classmethod
    def of(cls, folded: Compiled) -> Compiled | None:
        """Returns the requests as ones of this kind; None where they are of another."""
        match folded.runs:
            case (memoryview() as before, (_Unique(), *rest)) if not folded.body_values:
                pass
            case _:
                return None
        if not all(isinstance(piece, bytes) for piece in rest):
            return None
        return folded.of_kind(
            cls,
            before=before,
            after=b"".join(piece for piece in rest if isinstance(piece, bytes)),
        )

    def fill(self, row: Row, place: int) -> None:
        row.is_head, row.is_last, row.body_bytes = self.is_head, self.is_last, self.fixed_bytes
        row.whole, row.segments = None, (self.before, memoryview(unique_bytes() + self.after))


def _joined(run: _Run, place: int, length: int) -> bytes:
    return b"".join(
        [
            piece
            if isinstance(piece, bytes)
            else piece.of[place]
            if isinstance(piece, _Values)
            else unique_bytes()
            if isinstance(piece, _Unique)
            else b"%d" % length
            for piece in run
        ]
    )


def compiled(requests: Requests, build: Build) -> tuple[Compiled, ...]:
    """Returns what makes the requests of each recipe.

    Raises PlanError for a value that cannot be written where it stands, and what `build` raises.
    """
    columns = _Columns(requests=requests)
    return tuple(_compiled(recipe, columns, build) for recipe in requests.recipes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Values as they are written, made once for all recipes."""

    requests: Requests
    known: dict[tuple[Place | None, str], _Values] = field(default_factory=dict)

    def values(self, place: Place | None, name: str) -> _Values:
        """Returns the values of a field in a kind of place; for None the URLs."""
        if (place, name) not in self.known:
            column = self.requests.urls if place is None else self.requests.columns[name]
            what = f"feed: {name!r} of row" if name else "the URL of request"
            self.known[place, name] = _Values(written(column, place, what))
        return self.known[place, name]


def _compiled(recipe: Operation, columns: _Columns, build: Build) -> Compiled:
    tokens = _Tokens()

    def fill(place: Place, name: str) -> str:
        if name == UNIQUE:
            return tokens.of(_Unique(), UNIQUE)
        if name not in columns.requests.columns:
            return f"{{{name}}}"
        return tokens.of(columns.values(place, name), name, quoted=place is Place.JSON_VALUE)

    if columns.requests.urls:
        recipe = replace(recipe, url="/" + tokens.of(columns.values(None, ""), ""))
    request = build(filled(recipe, fill))
    head = list(tokens.cut(request.head))
    body = [piece for segment in request.body for piece in _cut(segment, tokens)]
    if lost := tokens.lost:
        raise PlanError(
            f"{recipe.name}: {{{lost}}} is in no request that httpx makes of it: params take the place of a query in "
            "the URL, and what is behind a # is not sent. Write the field where it is sent"
        )
    in_body = tuple(piece for piece in body if isinstance(piece, _Values))
    fixed = request.body_bytes - sum(UNIQUE_BYTES + 2 * tokens.is_quoted(values) for values in in_body)
    if len(columns.requests.recipes) == 1 and len(head) == 1 and body and isinstance(body[0], bytes):
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
) -> Compiled:
    """Returns the pieces as few runs."""
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
    folded = Compiled(
        is_head=request.is_head,
        is_last=request.is_last,
        runs=tuple(tuple(run) if isinstance(run, list) else run for run in runs if run != []),
        fixed_bytes=fixed_bytes,
        body_values=body_values,
    )
    return _Same.of(folded) or _OneValue.of(folded) or _UniqueEnd.of(folded) or folded


def _with_length(part: _Piece) -> Iterator[_Piece]:
    """Yields a part of a head with what fills in the length of the body, if that is in it."""
    found = _LENGTH.search(part) if isinstance(part, bytes) else None
    if found is None or not isinstance(part, bytes):
        yield part
    else:
        yield from (part[: found.start()], _Length(), part[found.end() :])


def _cut(segment: bytes | FileSegment, tokens: _Tokens) -> Iterator[_Piece | FileSegment]:
    if isinstance(segment, FileSegment):
        yield segment
    else:
        yield from tokens.cut(segment)


class _Tokens:
    """Texts that stand for values while httpx builds a request. All are as long as a unique text."""

    def __init__(self) -> None:
        self._mark = uuid4().hex
        self._pattern = re.compile(self._mark.encode() + rb"([0-9]{16})")
        self._pieces: list[tuple[_Values | _Unique, bool]] = []
        self._names: list[str] = []
        self._seen: set[int] = set()

    def of(self, piece: _Values | _Unique, name: str, *, quoted: bool = False) -> str:
        """Returns a token for the piece; a `quoted` one takes the place of the quotation marks around it too."""
        self._pieces.append((piece, quoted))
        self._names.append(name)
        return f"{self._mark}{len(self._pieces) - 1:016}"

    @property
    def lost(self) -> str:
        """The name of a field that no data had which was cut; an empty text where there is none."""
        return next((name for number, name in enumerate(self._names) if number not in self._seen), "")

    def is_quoted(self, values: _Values) -> bool:
        """Returns whether the marks around these values are theirs."""
        return any(piece is values and quoted for piece, quoted in self._pieces)

    def cut(self, data: bytes) -> Iterator[_Piece]:
        """Yields the parts of the data, with the piece of each token in its place."""
        end = 0
        for found in self._pattern.finditer(data):
            number = int(found[1])
            piece, quoted = self._pieces[number]
            self._seen.add(number)
            yield data[end : found.start() - quoted]
            yield piece
            end = found.end() + quoted
        yield data[end:] if end else data
