"""What to call the parameters of a test: as its id does, which says `uvicorn-2` for a server and keeps a user's ids."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.judge.result import TestId

__all__ = ("param_id", "param_texts")

_ANY, _ANY_LEAST = "(.+)", "(.+?)"


def param_id(test: TestId) -> str:
    """Returns what the test's name has in brackets; empty for a test without parameters."""
    return test.name.partition("[")[2].removesuffix("]")


def param_texts(test: TestId) -> dict[str, str]:
    """Returns each parameter's value in words: its part of the id, or the value itself where that cannot be told.

    pytest joins the parts with `-`, which may be in them too. Values without much structure are their own part, unless
    the user gave another.
    """
    literal = [str(value) if isinstance(value, str | int | float | None) else None for value in test.params.values()]
    own = [str(value) for value in test.params.values()]
    found = _parts(param_id(test), literal) or _parts(param_id(test), [None] * len(literal)) or own
    return dict(zip(test.params, found, strict=True))


def _parts(whole: str, known: list[str | None]) -> list[str] | None:
    """Returns the parts of an id of which some are known; None where they do not fit, or in more than one way."""
    greedy, lazy = (re.fullmatch(_pattern(known, rest), whole) for rest in (_ANY, _ANY_LEAST))
    if greedy is None or lazy is None or greedy.groups() != lazy.groups():
        return None
    rest = iter(greedy.groups())
    return [next(rest) if text is None else text for text in known]


def _pattern(known: Iterable[str | None], rest: str) -> str:
    return "-".join(rest if text is None else re.escape(text) for text in known)
