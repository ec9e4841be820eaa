"""Finds stored baselines that belong to no test any more, from what a session collected. Reads and removes nothing.

A baseline is stale
    NO_MODULE  when its module is no longer there,
    NO_TEST    when its module was collected whole and its test was not in it,
    FEWER      when its module was collected whole, and its test passed without making this measurement: a second one
               (`#2`) that is no longer made, or any where the test no longer measures.

In doubt a baseline is kept: a module that was collected in part or with an error tells nothing, and neither does a test
that was skipped, failed or not run. The machine profile of an entry does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ("Seen", "Stale", "Why", "stale_among")


class Why(StrEnum):
    """Why a baseline is stale, as a report says it."""

    NO_MODULE = "no such file"
    NO_TEST = "no such test"
    FEWER = "its test passed without this measurement"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a session saw of the tests there are, as node ids."""

    whole: frozenset[str] = frozenset()
    """Modules whose tests were all collected."""
    tests: frozenset[str] = frozenset()
    """Every test collected, deselected ones too."""
    passed: frozenset[str] = frozenset()
    measured: frozenset[str] = frozenset()
    """Measurements made, with `#2` and so on for further ones of a test, and `#upload` for parts of a load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """A baseline that belongs to no test any more."""

    key: str
    why: Why


def stale_among(keys: Iterable[str], seen: Seen, *, is_gone: Callable[[str], bool]) -> tuple[Stale, ...]:
    """Returns the stale ones of the stored keys, sorted; `is_gone` tells whether a module is no longer there."""
    found = ((key, _why(key, seen, is_gone)) for key in sorted(keys))
    return tuple(Stale(key=key, why=why) for key, why in found if why is not None)


def _why(key: str, seen: Seen, is_gone: Callable[[str], bool]) -> Why | None:
    module = key.partition("::")[0]
    if module not in seen.whole:
        return Why.NO_MODULE if is_gone(module) else None
    test = key
    while test not in seen.tests and "#" in test:
        test = test.rpartition("#")[0]
    if test not in seen.tests:
        return Why.NO_TEST
    return Why.FEWER if test in seen.passed and key not in seen.measured else None
