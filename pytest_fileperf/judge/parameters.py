"""The parts of a test's id: its parameters in words, and its number where a test measures several times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.judge.result import TestId

__all__ = ("FURTHER", "param_id", "param_texts", "told_params")

FURTHER = re.compile(r"#[0-9]+$")
"""Ends the id of the second and later measurements of one test."""
_ANY, _ANY_LEAST = "(.+)", "(.+?)"


def param_id(test: TestId) -> str:
    """Returns what the test's name has in brackets; empty for a test without parameters."""
    return test.name.partition("[")[2].removesuffix("]")


def param_texts(test: TestId) -> dict[str, str]:
    """Returns each parameter's value in words: its part of the id, or the value itself where the part cannot be told.

    The id says `uvicorn-2` for a server, and has the ids that a user chose. pytest joins the parts with `-`, which may
    be in them too; a text or a number is its own part unless the user gave another.
    """
    literal = [str(value) if isinstance(value, str | int | float | None) else None for value in test.params.values()]
    own = [str(value) for value in test.params.values()]
    found = _parts(param_id(test), literal) or _parts(param_id(test), [None] * len(literal)) or own
    return dict(zip(test.params, found, strict=True))


def told_params(params: Mapping[str, object], name: str) -> dict[str, object]:
    """Returns what reports have of the parameters of a test with this name: what its id tells anyway.

    A text, a number or a flag that is in the id is itself; another value is its part of the id, or its type's name.
    """
    id_ = name.partition("[")[2].removesuffix("]")
    known = [str(value) if _is_in(value, id_) else None for value in params.values()]
    parts = _parts(id_, known) or [type(value).__name__ for value in params.values()]
    return {
        key: value if _is_in(value, id_) else part for (key, value), part in zip(params.items(), parts, strict=True)
    }


def _is_in(value: object, id_: str) -> bool:
    """Returns whether an id shows a value, between its ends or the `-` that joins parts."""
    return isinstance(value, str | int | float | None) and f"-{value}-" in f"-{id_}-"


def _parts(whole: str, known: list[str | None]) -> list[str] | None:
    """Returns all parts of an id when some are known; None where they do not fit, or fit in more than one way."""
    greedy, lazy = (re.fullmatch(_pattern(known, rest), whole) for rest in (_ANY, _ANY_LEAST))
    if greedy is None or lazy is None or greedy.groups() != lazy.groups():
        return None
    rest = iter(greedy.groups())
    return [next(rest) if text is None else text for text in known]


def _pattern(known: Iterable[str | None], rest: str) -> str:
    return "-".join(rest if text is None else re.escape(text) for text in known)
