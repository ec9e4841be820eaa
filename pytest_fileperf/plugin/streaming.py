"""Reads the arguments of the verb `stream`: a request, what its pieces are, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.plan.stream import EVENT, Stream, parse_each
from pytest_fileperf.plugin.arguments import VerbCall, request_from
from pytest_fileperf.settings.keys import parse_count, parse_positive_duration_ns

__all__ = ("STREAM_ARGUMENTS", "STREAM_GATE", "stream_from")

STREAM_ARGUMENTS = ("method", "each", "events", "listen_for")
"""The keywords of `stream` that no other verb has."""
STREAM_GATE = ("event_rate", "first_event_p50")
"""How many streams end in a second, and how long they take, is what the test asks for: their events tell more."""
_OF_A_FEED = "a stream is of one request, and a feed makes many: read the streams of a feed in a journey"
_UNIQUE = (
    "a stream sends one request again and again, and what is unique makes another one of it each time: leave that out, "
    "or read the stream in a journey"
)
_T = TypeVar("_T")


def stream_from(url: object, arguments: Mapping[str, object]) -> VerbCall:
    """Returns the call of a verb that reads streams."""
    others = {name: value for name, value in arguments.items() if name not in STREAM_ARGUMENTS}
    method = "GET" if arguments.get("method") is None else arguments["method"]
    call = request_from(method, url, others, also=STREAM_ARGUMENTS)
    problems = [*call.problems]
    each = _parsed("each", parse_each, arguments, problems)
    events = _parsed("events", parse_count, arguments, problems)
    lasts_ns = _parsed("listen_for", parse_positive_duration_ns, arguments, problems)
    stream = None
    if isinstance(call.work, Operation):
        stream = Stream(operation=call.work, each=EVENT if each is None else each, events=events, lasts_ns=lasts_ns)
        problems += _problems_of(stream)
    elif call.work is not None:
        problems.append(_OF_A_FEED if arguments.get("feed") is not None else _UNIQUE)
    return replace(
        call,
        work=None if problems else stream,
        problems=tuple(problems),
        where=f"stream {call.where}",
        default_gate=STREAM_GATE,
    )


def _parsed(
    name: str, parse: Callable[[object], _T], arguments: Mapping[str, object], problems: list[str]
) -> _T | None:
    """Returns a keyword's value; None where it is not given, or wrong, which is one more problem."""
    try:
        return None if arguments.get(name) is None else parse(arguments[name])
    except ValueError as error:
        problems.append(f"{name}: {error}")
        return None


def _problems_of(stream: Stream) -> list[str]:
    expect = stream.operation.expect
    if stream.ends_early and expect.size_bytes is not None:
        end = "events" if stream.events is not None else "listen_for"
        name = "expect_bytes" if expect.sha256 is None else "expect_body"
        return [f"{name} is of the whole answer, and {end} ends the stream before: give one of them"]
    if stream.operation.method == "HEAD":
        return ["a HEAD request has an answer without a body: there is nothing to stream"]
    return []
