"""Why a part of the test's app differs from that of the app that the server imported, and how to say so.

Two imports of the same code, in processes of their own, show what the code alone makes of a part. What the test's app
has in common with them, the test has not set: then the server's environment makes the difference, or chance does.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

from pytest_fileperf.serve.described import is_secret
from pytest_fileperf.serve.likeness import EXACTLY, KIND, Likeness, Part

__all__ = ("Cause", "cause_of", "tell_difference", "told")

_MOST_TOLD = 3
_LONGEST_TOLD = 100
_SAME_TOLD = 40
_PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):((?!…)[^@/\s]+)@")
"""In a URL: the user, and the password, unless there is a digest in its place."""
_DIGITS = 8


class Cause(Enum):
    """What makes a part of the server's app another one than that of the test's."""

    TEST = "the test has set it"
    ENV = "the server's env sets it"
    CHANCE = "it is another one at each import"
    TEST_AND_ENV = "the test has set it, and so does the server's env"


def cause_of(part: Part, mine: Likeness, theirs: Likeness, imports: Sequence[Likeness], *, env: bool) -> Cause:
    """Returns why the app of the test and that of the server differ in a part.

    `imports` are of the same code, in the environment of the test run. `env` says whether the server has another one.
    What differs between imports is compared only as closely as they agree.
    """
    if not imports:
        return Cause.TEST
    samples = (*imports, *(() if env else (theirs,)))
    for view in (EXACTLY, *range(EXACTLY + 1, KIND + 1)):
        if not all(one.agrees(other, part, view) for one, other in pairwise(samples)):
            continue
        if mine.agrees(samples[0], part, view):
            return Cause.ENV if env and view == EXACTLY else Cause.CHANCE
        both = env and view == EXACTLY and not theirs.agrees(samples[0], part)
        return Cause.TEST_AND_ENV if both else Cause.TEST
    return Cause.CHANCE


def tell_difference(
    part: Part, mine: tuple[str, ...], theirs: tuple[str, ...], *, other: str = "the one that the server imports"
) -> str:
    """Returns in words how a part of the test's app differs from that of the other one."""
    where, title = f" at {part[0]}" if part[0] else "", part[1].removeprefix("attribute.").removeprefix("held.")
    # Before they are cut, so that no part of a password is left.
    mine, theirs = (tuple(map(_without_passwords, entries)) for entries in (mine, theirs))
    differing = [
        tuple(entry for entry in one if entry not in another) for one, another in ((mine, theirs), (theirs, mine))
    ]
    only_mine, only_theirs = (told(part, entries) for entries in _from_where_they_differ(*differing))
    if not theirs:
        return f"the test's app{where} has {title} {only_mine}, {other} has none"
    if only_mine and only_theirs:
        return f"the test's app{where} has {title} {only_mine}, {other} has {only_theirs}"
    if only_mine:
        return f"the test's app{where} has {title} {only_mine}, which {other} lacks"
    if only_theirs:
        return f"the test's app{where} lacks {title} {only_theirs}, which {other} has"
    return f"the test's app{where} has its {title} in another order than {other}"


def told(part: Part, entries: tuple[str, ...]) -> str:
    """Returns the entries of a part for a message, without secrets."""
    if entries and is_secret(part[1]):
        return "another one"
    shown = ", ".join(
        entry if len(entry) <= _LONGEST_TOLD else f"{entry[:_LONGEST_TOLD]}…"
        for entry in map(_without_passwords, entries[:_MOST_TOLD])
    )
    return f"{shown} and {len(entries) - _MOST_TOLD} more" if len(entries) > _MOST_TOLD else shown


def _without_passwords(entry: str) -> str:
    """Returns it with digests in the place of passwords, so that another password is seen as another one."""
    return _PASSWORD.sub(
        lambda found: f"{found[1]}:…{hashlib.sha256(found[2].encode(errors='replace')).hexdigest()[:_DIGITS]}@", entry
    )


def _from_where_they_differ(mine: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the entries; two long ones that begin alike without most of what they share."""
    if not len(mine) == len(theirs) == 1:
        return mine, theirs
    same = next((at for at, (one, other) in enumerate(zip(mine[0], theirs[0], strict=False)) if one != other), 0)
    if same < _SAME_TOLD:
        return mine, theirs
    cut = max(mine[0].rfind(mark, 0, same) for mark in ("(", " ", "{")) + 1
    name = mine[0].partition("(")[0]
    return (f"{name}(…{mine[0][cut:]}",), (f"{name}(…{theirs[0][cut:]}",)
