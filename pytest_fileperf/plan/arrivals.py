"""Draws the instants of requests that come by chance, and sees to it that several draws are no odd lot together.

In one draw requests come in more crowds than in another, and a server that is nearly busy is slow in crowds. A few
draws can all be crowded ones by chance. `spread_seed` takes each from another part of what chance does, as stratified
sampling does: every draw alone is as likely as any, and all together are as crowded as draws are on average.
"""

from __future__ import annotations

import random
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ("crowding", "instants", "place_of", "spread_seed")

_SECOND_NS = 1_000_000_000
_SEEDS = 1 << 31
_CANDIDATES = 40
_MOST_INSTANTS = 1_000_000
"""Of all candidates together, which takes about 0.1 s; the more requests a load has, the less draws differ."""
_GOLDEN = (sqrt(5) - 1) / 2
"""Places that are so far apart fill a range evenly, however many there are."""
_NEARLY_BUSY = 1.05
"""A queue can clear crowds only if it is faster than requests come."""


def instants(rate: float, duration_ns: int, seed: int) -> NDArray[np.int64]:
    """Returns the instants of a Poisson process, in order, in nanoseconds; `rate` is requests per second."""
    import numpy as np

    chance = np.random.default_rng(seed)
    count = chance.poisson(rate * duration_ns / _SECOND_NS)
    # Given how many there are, they are anywhere, each for itself.
    return np.sort(chance.integers(duration_ns, size=count))


def crowding(due_ns: NDArray[np.int64], service_ns: float, *, from_ns: int = 0) -> float:
    """Returns the mean wait, in nanoseconds, in a queue that takes requests one after the other, equally long each.

    Requests that are due before `from_ns` are in the queue, but not in the mean. 0.0 where there are none.
    """
    import numpy as np

    before_ns = service_ns * np.arange(due_ns.size)
    waits_ns = (np.maximum.accumulate(due_ns - before_ns) + before_ns - due_ns)[due_ns >= from_ns]
    return float(waits_ns.mean()) if waits_ns.size else 0.0


def place_of(number: int, begin: float) -> float:
    """Returns where in all that chance does the draw with this number is, from 0 to 1; `begin` is that of the first."""
    return (begin + number * _GOLDEN) % 1.0


def spread_seed(
    chance: random.Random, place: float, *, rate: float, duration_ns: int, from_ns: int, busy_rate: float
) -> int:
    """Returns the seed of a draw that is at this place among draws in the order of their crowding.

    `busy_rate` is about how many requests per second the server can answer; `from_ns` is when the warm-up ends.
    """
    expected = max(1.0, rate * duration_ns / _SECOND_NS)
    seeds = [chance.randrange(_SEEDS) for _ in range(max(1, min(_CANDIDATES, int(_MOST_INSTANTS / expected))))]
    service_ns = _SECOND_NS / max(busy_rate, _NEARLY_BUSY * rate)
    seeds.sort(key=lambda seed: crowding(instants(rate, duration_ns, seed), service_ns, from_ns=from_ns))
    return seeds[min(int(place * len(seeds)), len(seeds) - 1)]
