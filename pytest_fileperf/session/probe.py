"""Tells from the first requests of a comparison what one side says to them, where none is answered well.

it says                              that is                           the gates
400 404 405 410 415 422 501          no such endpoint, or not so       NEW
another status, size or content      another answer than is expected   INCONCLUSIVE
500 …, nothing in time, a reset      broken                            none: it is tried again, then an error
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from pytest_fileperf.measure.recording import Failure, Round, merge_failures

__all__ = ("Answer", "answer_of", "described", "kinds_of")

_MISSING = frozenset({400, 404, 405, 410, 415, 422, 501})
"""What servers answer where there is no such endpoint, or it takes other methods, parameters or bodies. The endpoint of
a change has those that the other side does not know, and frameworks differ in which of 400 and 422 says that."""
_UNANSWERED = frozenset({"connect", "timeout", "disconnected", "protocol"})
"""Kinds of failures without an answer."""
_SHOWN = 3


class Answer(Enum):
    """What a server says to a request."""

    GOOD = auto()
    """To some of them at least."""
    MISSING = auto()
    OTHER = auto()
    BROKEN = auto()


def answer_of(rounds: Sequence[Round]) -> Answer:
    """Returns what the server said; GOOD where nothing was asked."""
    kinds = {failure.kind for round_ in rounds for failure in round_.failures}
    if not kinds or any(round_.requests for round_ in rounds):
        return Answer.GOOD
    # The failures of journeys have a status too: that of their last answer, as of the one that an assertion is about.
    statuses = {status for round_ in rounds for status, _ in round_.statuses}
    if not statuses or kinds & _UNANSWERED or any(status >= 500 for status in statuses - _MISSING):
        return Answer.BROKEN
    return Answer.MISSING if statuses <= _MISSING else Answer.OTHER


def kinds_of(rounds: Sequence[Round]) -> str:
    """Returns the kinds of failures, the most frequent first."""
    return ", ".join(failure.kind for failure in _failures(rounds))


def described(rounds: Sequence[Round]) -> str:
    """Returns the kinds of failures, the most frequent first, each with its first example."""
    return "; ".join(_described(failure) for failure in _failures(rounds)[:_SHOWN])


def _failures(rounds: Sequence[Round]) -> tuple[Failure, ...]:
    return merge_failures(failure for round_ in rounds for failure in round_.failures)


def _described(failure: Failure) -> str:
    example = " ".join(failure.example.split())
    return f"{failure.kind} ({example})" if example and example != failure.kind else failure.kind
