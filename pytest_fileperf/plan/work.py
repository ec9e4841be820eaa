"""A load's content: one request, many of them, a stream, a journey, or a mix of these."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, count, repeat
from math import gcd, lcm
from typing import TypeAlias

from pytest_fileperf.plan.feed import Requests, columns_of
from pytest_fileperf.plan.pacing import WHOLE, Share
from pytest_fileperf.plan.request import UNIQUE, Journey, Operation, Subject, SubjectName, fields_of
from pytest_fileperf.units import format_bytes, format_duration, parse_duration_ns, parse_size_bytes

# --- A load of several parts: each part's work, weight, gate and limits

PartWork: TypeAlias = Operation | Requests | Journey
_NAME = re.compile(r"(?=.*\D)(?=.*\S)[^#\x00-\x1f]+")
"""A name has no `#`, which separates names in node ids. It isn't only digits, because these number a test's
measurements."""
MOST_PATHS = 2000
"""Only this many requests are looked at: enough to show which endpoints a load uses."""
_FINEST = 1000
"""Weights become fractions with at most this denominator, so that the order of parts soon repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part(Subject):
    work: PartWork
    weight: float = 1.0
    """The part's share of the requests, relative to the other parts' weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """`mix of upload, download`."""
        return f"mix of {', '.join(part.name for part in self.parts)}"

    def identity(self) -> dict[str, object]:
        return {"mix": [{"name": part.name, "weight": part.weight, **part.work.identity()} for part in self.parts]}


def turns(weights: Sequence[float], share: Share = WHOLE) -> Iterator[int]:
    """Yields indexes of `weights` without end, evenly spread by weight (nginx's smooth weighted round robin)."""
    exact = [Fraction(weight).limit_denominator(_FINEST) for weight in weights]
    shares = [int(part * lcm(*(other.denominator for other in exact))) for part in exact]
    shares = [max(1, share // gcd(*shares)) for share in shares]
    if sum(shares) > _FINEST * len(shares):
        shares = [max(1, round(_FINEST * share / sum(shares))) for share in shares]
    waited = [0] * len(shares)
    period = []
    for _ in range(sum(shares)):
        waited = [have + share for have, share in zip(waited, shares, strict=True)]
        chosen = max(range(len(shares)), key=waited.__getitem__)
        waited[chosen] -= sum(shares)
        period.append(chosen)
    first = share.first(len(period))
    return chain.from_iterable(repeat(period[first:] + period[:first]))


def why_no_name(name: object) -> str:
    """Returns why a part or a step cannot have this name; empty if it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return f"{name!r} isn't a name. Write a text on one line, without # and not only digits"


# --- A stream: one request whose answer is read piece by piece, and its end. Pure

Each = str | int
"""How an answer is divided: by `EVENT`, by `LINE`, or after a number of bytes."""
EVENT = "event"
"""A server-sent event by the HTML standard: lines with `data`, ended by an empty line."""
LINE = "line"
"""A line that is not blank, as in JSON lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A request whose answer comes in pieces. The whole answer counts as one request."""

    operation: Operation
    each: Each = EVENT
    events: int | None = None
    """The client ends the stream after this many pieces; None for no limit."""
    lasts_ns: int | None = None
    """The client ends the stream this long after it sent the request; None for no limit."""

    @property
    def name(self) -> str:
        """`GET /events`."""
        return self.operation.name

    @property
    def ends_early(self) -> bool:
        """Whether the client ends the stream, not the server."""
        return self.events is not None or self.lasts_ns is not None

    def identity(self) -> dict[str, object]:
        stream: dict[str, object] = {"each": self.each}
        if self.events is not None:
            stream["events"] = self.events
        if self.lasts_ns is not None:
            stream["seconds"] = self.lasts_ns / 1e9
        return {**self.operation.identity(), "stream": stream}


def parse_each(value: object) -> Each:
    """Parses `"event"`, `"line"`, `"64KiB"` or a number of bytes. Raises ValueError for other values."""
    if value in (EVENT, LINE):
        return str(value)
    try:
        size_bytes = parse_size_bytes(value) if isinstance(value, str | int) else 0
    except ValueError:
        size_bytes = 0
    if size_bytes < 1:
        raise ValueError(f'{value!r} isn\'t a piece of an answer. Write "event", "line", or a size as in "64KiB"')
    return size_bytes


def plural(each: Each) -> str:
    """Returns the plural of a kind of pieces: `events`, or `pieces of 64 KiB`."""
    return f"pieces of {format_bytes(each)}" if isinstance(each, int) else f"{each}s"


def counted(each: Each, count: int) -> str:
    """Returns the count with its kind of pieces: `1 event`, or `no piece of 64.0 KiB`."""
    one = f"piece of {format_bytes(each)}" if isinstance(each, int) else each
    return f"{count or 'no'} {one}" if count < 2 else f"{count:,} {plural(each)}"


def why_unfit(each: Each, content_type: str, encoding: str) -> str | None:
    """Returns why an answer with these headers cannot be read in such pieces; None if it can."""
    if isinstance(each, int):
        return None
    if encoding and encoding != "identity":
        return (
            f"the answer is compressed with {encoding}. Ask for it uncompressed, with "
            'headers={"Accept-Encoding": "identity"}'
        )
    kind = content_type.partition(";")[0].strip().lower()
    if each == EVENT and kind != "text/event-stream":
        return (
            f"the answer is {kind or 'of no type'}, but events come as text/event-stream. Read other answers "
            'with each="line" or each="64KiB"'
        )
    return None


def why_ended_early(stream: Stream, count: int, lasted_ns: int) -> str | None:
    """Returns why the server ended the stream too early, after `count` pieces; None if it did not."""
    if stream.events is not None:
        return f"the answer ended after {count} of {stream.events} {plural(stream.each)}"
    if stream.lasts_ns is not None:
        lasted, lasts = format_duration(lasted_ns), format_duration(stream.lasts_ns)
        return f"the answer ended after {lasted}, before the {lasts} of listen_for. If it should end, omit listen_for"
    return None if count else f"the answer ended without any {plural(stream.each)}"


# --- work

Work: TypeAlias = Operation | Requests | Stream | Journey | Mix


def with_value(work: Work, value: object) -> Work:
    """Returns the work for a start-up whose setup returned `value`. Raises PlanError for unusable rows."""
    if isinstance(work, Mix):
        return Mix(parts=tuple(replace(part, work=_of_boot(part.work, value)) for part in work.parts))
    return work if isinstance(work, Stream) else _of_boot(work, value)


def _of_boot(work: PartWork, value: object) -> PartWork:
    if isinstance(work, Requests) and work.make is not None:
        needed = frozenset().union(*map(fields_of, work.recipes)) - {UNIQUE}
        return replace(work, columns=columns_of(work.make(value), needed), make=None)
    if isinstance(work, Journey) and work.takes_value:
        return replace(work, arguments=(value,))
    return work


def in_smoke(work: Work) -> Work:
    """Returns the work for a smoke run, which only shows that requests succeed."""
    if isinstance(work, Mix):
        return Mix(parts=tuple(replace(part, weight=1.0) for part in work.parts))
    if isinstance(work, Stream) and work.lasts_ns is not None and work.events is None:
        return replace(work, events=3)
    return work


def parts_of(work: Work) -> tuple[Part, ...]:
    """Returns the parts of a mix, or a part for each name of several requests; else empty."""
    if isinstance(work, Mix):
        return work.parts
    if isinstance(work, Requests) and work.names:
        first = dict(reversed(list(zip(work.names, work.recipes, strict=True))))
        return tuple(Part(name=name, work=first[name]) for name in dict.fromkeys(work.names))
    return ()


def requests_of(work: Work) -> Iterator[tuple[str, str]]:
    """Yields (method, path) of the load's requests. A journey yields nothing, because only a run shows its requests."""
    match work:
        case Operation():
            yield work.method, work.url.partition("?")[0]
        case Stream():
            yield from requests_of(work.operation)
        case Mix():
            yield from chain.from_iterable(requests_of(part.work) for part in work.parts)
        case Requests():
            for row, url in enumerate(work.urls[:MOST_PATHS]):
                yield work.recipes[work.recipe_of(row)].method, url.partition("?")[0]
            if not work.urls:
                yield from chain.from_iterable(map(requests_of, work.recipes))


def steps_of(work: Work) -> dict[SubjectName, Subject]:
    """Returns the steps with gates or limits, from all journeys of the load, by (part, step)."""
    works: dict[str, Work] = {part.name: part.work for part in parts_of(work)} or {"": work}
    return {(part, step.name): step for part, own in works.items() if isinstance(own, Journey) for step in own.steps}


# --- Think time: how long a user waits between two requests. A seed makes every run alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Think time: constant, random between two times (`uniform`), or random with a mean (`exponential`)."""

    low_ns: int
    high_ns: int
    """Equal to `low_ns` for a constant time. For `exponential`, both are the mean."""
    by_chance: bool = False
    """Whether the pause is exponential: mostly short, and sometimes much longer."""
    seed: int = 0

    def __str__(self) -> str:
        low, high = format_duration(self.low_ns), format_duration(self.high_ns)
        if self.by_chance:
            return f"{low} on average"
        return low if self.low_ns == self.high_ns else f"{low} to {high}"

    @property
    def mean_ns(self) -> int:
        """The average pause, in nanoseconds."""
        return (self.low_ns + self.high_ns) // 2

    def draw(self, chance: random.Random) -> int:
        """Returns the next pause, in nanoseconds."""
        if self.by_chance:
            return round(chance.expovariate(1 / self.low_ns))
        return self.low_ns if self.low_ns == self.high_ns else chance.randint(self.low_ns, self.high_ns)

    def of_users(self, share: Share = WHOLE) -> Iterator[Iterator[int]]:
        """Yields each user's pauses (ns). The first is only the rest of a pause, as if the user had come earlier."""
        for own in count():
            chance = random.Random(f"{self.seed} {share.number(own)}")  # noqa: S311 - no secret
            first_ns = self.draw(chance) if self.by_chance else round(self.draw(chance) * chance.random())
            yield chain((first_ns,), map(self.draw, repeat(chance)))

    def identity(self) -> dict[str, object]:
        """Returns JSON values that are equal if two loads pause alike."""
        times: dict[str, object] = {"low": self.low_ns / 1e9, "high": self.high_ns / 1e9}
        return times | {"exponential": True} if self.by_chance else times


def exponential(mean: float | str, *, seed: int = 0) -> Pause:
    """Returns random pauses with this mean, `exponential("1s")`: most are short, and some are much longer."""
    mean_ns = parse_duration_ns(mean)
    if mean_ns == 0:
        raise ValueError("the mean of a pause must be above 0")
    return Pause(low_ns=mean_ns, high_ns=mean_ns, by_chance=True, seed=seed)


def uniform(low: float | str, high: float | str, *, seed: int = 0) -> Pause:
    """Returns random pauses that are evenly spread between two times: `uniform("0.5s", "2s")`."""
    low_ns, high_ns = parse_duration_ns(low), parse_duration_ns(high)
    if low_ns > high_ns:
        raise ValueError(f"the shortest pause, {low}, is longer than the longest, {high}")
    return Pause(low_ns=low_ns, high_ns=high_ns, seed=seed)


def parse_pause(value: object) -> Pause | None:
    """Parses a time such as `"1s"`, or returns a given pause; None for no pause. Raises ValueError for other values."""
    if isinstance(value, Pause):
        return value if value.high_ns else None
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} isn\'t a pause. Write seconds, "1s", uniform("0.5s", "2s") or exponential("1s")')
    length_ns = parse_duration_ns(value)
    return Pause(low_ns=length_ns, high_ns=length_ns) if length_ns else None
