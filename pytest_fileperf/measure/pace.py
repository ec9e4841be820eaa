"""The typical rate of a turn: by the median time that a fixed number of answers took. Stalls do not change it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

import numpy as np

__all__ = ("typical_rps",)

_PACES = 2
"""A typical rate needs this many times the answers whose time it is measured by."""


def typical_rps(ends: Sequence[array[int]], *, over: int, together: int) -> float | None:
    """Returns requests per second by when answers ended, in nanoseconds; None where there are too few of them.

    It goes by the time of `over` answers. Where there are fewer than twice as many, it goes by the time of their whole
    bunches of `together` answers after the first. `ends` are in ascending order in each sequence.
    """
    count = sum(map(len, ends))
    answers = over if count >= _PACES * over else _bunched(count, over=over, together=together)
    if answers <= 0:
        return None
    found = np.fromiter(chain.from_iterable(ends), dtype=np.int64, count=count)
    if len(ends) > 1:
        found.sort()
    taken_ns = float(np.median(found[answers:] - found[:-answers]))
    return answers / taken_ns * 1e9 if taken_ns > 0 else None


def _bunched(count: int, *, over: int, together: int) -> int:
    """Returns the number of answers in the whole bunches after the first; 0 where they do not come in bunches.

    Chance decides whether one bunch more or less ends in a turn, but not how long whole bunches take.
    """
    return (count // together - 1) * together if 0 < together < over else 0
