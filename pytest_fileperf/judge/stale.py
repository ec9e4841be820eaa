"""Says which stored baselines belong to no test any more, from what a session collected. Reads and removes nothing.

A baseline is stale
    NO_MODULE  when its module is no longer there,
    NO_TEST    when its module was collected whole and its test was not in it,
    FEWER      when its module was collected whole, its test passed, and did not make this measurement: a second one
               (`#2`) that is no longer made, or any of a test that no longer measures.

Every doubt keeps it: a module that was collected in part or with an error, and a test that was skipped, failed or was
not run, tell nothing. Which machine profile an entry is of does not matter: it belongs to the same test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ("Seen", "Stale", "Why", "stale_among")

_FURTHER = re.compile(r"#[0-9]+$")


class Why(StrEnum):
    """Why a baseline is stale, as a report says it."""

    NO_MODULE = "no such file"
    NO_TEST = "no such test"
    FEWER = "its test passed without this measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a session saw of the tests there are, as node ids."""

    whole: frozenset[str] = frozenset()
    """Modules of which every test was collected."""
    tests: frozenset[str] = frozenset()
    """Every test collected, those that were deselected too."""
    passed: frozenset[str] = frozenset()
    measured: frozenset[str] = frozenset()
    """Measurements made, with `#2` and so on for further ones of a test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A baseline that belongs to no test any more."""

    key: str
    why: Why


def stale_among(keys: Iterable[str], seen: Seen, *, is_gone: Callable[[str], bool]) -> tuple[Stale, ...]:
    """Returns the stale ones of the stored keys, sorted; `is_gone` says of a module whether it is no longer there."""
    found = ((key, _why(key, seen, is_gone)) for key in sorted(keys))
    return tuple(Stale(key=key, why=why) for key, why in found if why is not None)


def _why(key: str, seen: Seen, is_gone: Callable[[str], bool]) -> Why | None:
    module = key.partition("::")[0]
    if module not in seen.whole:
        return Why.NO_MODULE if is_gone(module) else None
    test = key if key in seen.tests else _FURTHER.sub("", key)
    if test not in seen.tests:
        return Why.NO_TEST
    return Why.FEWER if test in seen.passed and key not in seen.measured else None
