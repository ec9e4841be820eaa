"""A stream: one request whose answer is read piece by piece, and what ends it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.units import format_bytes, format_duration, parse_size_bytes

__all__ = ("EVENT", "LINE", "Each", "Stream", "counted", "parse_each", "plural", "why_ended_early", "why_unfit")

Each = str | int
"""What a piece is: `EVENT`, `LINE`, or so many bytes."""
EVENT = "event"
"""A server-sent event, as the HTML standard has it: lines with `data`, ended by an empty line."""
LINE = "line"
"""A line that is not blank, as in JSON lines."""
_SMOKE_EVENTS = 3
"""So many show that a stream works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A request whose answer comes in pieces, each of which is an event of its own; the whole of it is one sample."""

    operation: Operation
    each: Each = EVENT
    events: int | None = None
    """The stream ends with this event; None where it does not end by a number."""
    lasts_ns: int | None = None
    """It ends this long after the request was sent; None where it does not end by time."""

    @property
    def name(self) -> str:
        """`GET /events`."""
        return self.operation.name

    @property
    def ends_early(self) -> bool:
        """Whether the client ends it, and not the answer."""
        return self.events is not None or self.lasts_ns is not None

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
        ends: dict[str, object] = {"events": self.events}
        ends["seconds"] = None if self.lasts_ns is None else self.lasts_ns / 1e9
        stream = {"each": self.each} | {name: value for name, value in ends.items() if value is not None}
        return {**self.operation.identity(), "stream": stream}

    def shortened(self) -> Stream:
        """Returns it for a smoke run: a few events are enough where it is only known how long it lasts."""
        return replace(self, events=_SMOKE_EVENTS) if self.lasts_ns is not None and self.events is None else self


def parse_each(value: object) -> Each:
    """Returns what a piece is, for `"event"`, `"line"`, `"64KiB"` or a number of bytes; raises ValueError."""
    if value in (EVENT, LINE):
        return str(value)
    try:
        size_bytes = parse_size_bytes(value) if isinstance(value, str | int) else 0
    except ValueError:
        size_bytes = 0
    if size_bytes < 1:
        raise ValueError(f'{value!r} is no piece of an answer: write "event", "line", or a size as in "64KiB"')
    return size_bytes


def plural(each: Each) -> str:
    """Returns what several pieces are called: `events`, `pieces of 64 KiB`."""
    return f"pieces of {format_bytes(each)}" if isinstance(each, int) else f"{each}s"


def counted(each: Each, count: int) -> str:
    """Returns so many pieces in words: `1 event`, `no piece of 64.0 KiB`."""
    one = f"piece of {format_bytes(each)}" if isinstance(each, int) else each
    return f"{count or 'no'} {one}" if count < 2 else f"{count:,} {plural(each)}"


def why_unfit(each: Each, content_type: str, encoding: str) -> str | None:
    """Returns why an answer with these headers cannot be cut into such pieces; None where it can."""
    if isinstance(each, int):
        return None
    if encoding and encoding != "identity":
        return f'the answer is packed by {encoding}: ask for it as it is, headers={{"Accept-Encoding": "identity"}}'
    kind = content_type.partition(";")[0].strip().lower()
    if each == EVENT and kind != "text/event-stream":
        return (
            f"the answer is {kind or 'of no type'}, and events come as text/event-stream: "
            'read another kind with each="line" or each="64KiB"'
        )
    return None


def why_ended_early(stream: Stream, count: int, lasted_ns: int) -> str | None:
    """Returns what is wrong with a stream whose answer ended by itself; None where that is good."""
    if stream.events is not None:
        return f"the answer ended after {count} of {stream.events} {plural(stream.each)}"
    if stream.lasts_ns is not None:
        lasted, lasts = format_duration(lasted_ns), format_duration(stream.lasts_ns)
        return f"the answer ended after {lasted}, and was to be read for {lasts}: leave listen_for out"
    return None if count else f"the answer ended without any {plural(stream.each)}"
