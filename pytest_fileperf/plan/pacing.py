"""Decides when the next request is due, by time and counts. Only `drive` waits.

*Closed loop*: a connection sends its next request as soon as its last one ended. So a slow server gets fewer requests.
*Open loop*: requests are due at given instants, however slow the server is (as in vegeta and wrk2).
"""

from __future__ import annotations

import math
import random
import sys
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# --- Draws random due times, so that several draws together are typical
#
# A draw has the due times of one load. In some draws, more requests come close together, which slows a server that is
# nearly busy. By chance, all of a few draws may be such crowded ones. So `spread_seed` sorts possible draws by
# crowding, and takes each draw from another part of this order (stratified sampling). Each possible draw remains
# equally likely. All draws together are as crowded as the average.

_SECOND_NS = 1_000_000_000
_CANDIDATES = 40
_MOST_INSTANTS = 1_000_000
"""All candidate draws together have at most this many instants. To draw them takes about 0.1 s. Draws with more
requests differ less, so fewer candidates are enough."""


def instants(rate: float, duration_ns: int, seed: int) -> NDArray[np.int64]:
    """Returns the instants of a Poisson process, ascending, in ns. `rate` is the mean number per second."""
    import numpy as np

    chance = np.random.default_rng(seed)
    count = chance.poisson(rate * duration_ns / _SECOND_NS)
    # For a given number, each instant is anywhere, independent of the others.
    return np.sort(chance.integers(duration_ns, size=count))


def crowding(due_ns: NDArray[np.int64], service_ns: float, *, from_ns: int = 0) -> float:
    """Returns how long requests wait on average (ns) in a queue that needs `service_ns` for each request.

    Requests that are due before `from_ns` do not count.
    """
    import numpy as np

    before_ns = service_ns * np.arange(due_ns.size)
    waits_ns = (np.maximum.accumulate(due_ns - before_ns) + before_ns - due_ns)[due_ns >= from_ns]
    return float(waits_ns.mean()) if waits_ns.size else 0.0


def place_of(number: int, begin: float) -> float:
    """Returns the quantile of crowding, from 0 to 1, for a draw. Draw 0 has the quantile `begin`."""
    # Places at the distance of the golden ratio fill a range evenly, however many there are.
    return (begin + number * (math.sqrt(5) - 1) / 2) % 1.0


def spread_seed(
    chance: random.Random, place: float, *, rate: float, duration_ns: int, from_ns: int, busy_rate: float
) -> int:
    """Draws some seeds, sorts them by `crowding`, and returns the seed at the quantile `place` (0 to 1).

    The server answers `busy_rate` requests a second.
    """
    expected = max(1.0, rate * duration_ns / _SECOND_NS)
    seeds = [chance.randrange(1 << 31) for _ in range(max(1, min(_CANDIDATES, int(_MOST_INSTANTS / expected))))]
    # A queue clears crowds only if it is faster than the requests come.
    service_ns = _SECOND_NS / max(busy_rate, 1.05 * rate)
    seeds.sort(key=lambda seed: crowding(instants(rate, duration_ns, seed), service_ns, from_ns=from_ns))
    return seeds[min(int(place * len(seeds)), len(seeds) - 1)]


# --- Each generator's part of a load; pure. A single generator makes all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A generator's place among the generators that make one load together."""

    place: int = 0
    of: int = 1
    """How many generators make the load."""
    before: int | None = None
    """How many requests the generators before this one make. None if the load ends by time."""
    connections: int = 0
    """The number of all generators' connections together; 0 if one generator makes the load alone."""

    def part_of(self, total: int) -> int:
        """Returns this generator's part of a total. All generators' parts add up to the total."""
        return total // self.of + (self.place < total % self.of)

    def number(self, own: int) -> int:
        """Converts this generator's index of a request or connection to its index in the whole load, from 0 on."""
        return own * self.of + self.place

    def first(self, period: int) -> int:
        """Returns the generator's first place in a sequence that repeats after `period` requests.

        Generators begin at places that are equally far apart. If the number of requests is fixed, each generator begins
        where the previous generator ends.
        """
        return (self.place * period // self.of if self.before is None else self.before) % period


WHOLE = Share()


# --- pacing


class Pacing(Protocol):
    @property
    def open_loop(self) -> bool:
        """Whether a request's latency counts from when it was due, not from when it was sent."""

    @property
    def slots_rest(self) -> bool:
        """Whether connections may rest, without a request under way."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns when the next request is due, in nanoseconds since the load began; None after the last request.

        `elapsed_ns` is the time now. So far `started` requests have begun, and `busy` of these are under way. If the
        due time is past, send at once. Otherwise ask again at that time, or when a request ends.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Each connection sends its next request as soon as the last one is answered."""

    open_loop = slots_rest = False
    duration_ns: int
    """The loop ends after this time (warm-up and rounds), even if it has not started all `requests`."""
    requests: int = sys.maxsize
    """The loop ends when it has started this many requests."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        return elapsed_ns if elapsed_ns < self.duration_ns and started < self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantRate:
    """A request is due every 1/`rate` seconds, the first one at once."""

    open_loop = slots_rest = True
    rate: float
    duration_ns: int

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        due_ns = round(started * _SECOND_NS / self.rate)  # by the count alone, so that errors never add up
        if due_ns < self.duration_ns:
            return due_ns
        return self.duration_ns if elapsed_ns < self.duration_ns else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests are due at fixed instants, as in a burst."""

    open_loop = slots_rest = True
    requests: int
    due_ns: tuple[int, ...] = ()
    """The due time of each request, ascending; empty if all are due at 0."""
    duration_ns: int = 0
    """The load lasts for at least this time, even if its last request is due earlier."""

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        if started < self.requests:
            return self.due_ns[started] if self.due_ns else 0
        return self.duration_ns if elapsed_ns < self.duration_ns else None


@lru_cache(maxsize=2)  # a load asks for its pacing several times
def random_arrivals(rate: float, duration_ns: int, seed: int) -> Arrivals:
    """Returns the arrivals of independent users, on average `rate` a second (a Poisson process)."""
    due_ns = tuple(instants(rate, duration_ns, seed).tolist())
    return Arrivals(requests=len(due_ns), due_ns=due_ns, duration_ns=duration_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stretch of a ramp: an even change from the previous stage's target (or from 0) to `target`."""

    duration_ns: int
    """The stage's length; 0 for a jump."""
    target: float
    """Requests per second, or connections."""


@dataclass(frozen=True, kw_only=True)
class _Ramp:
    slots_rest = True
    stages: tuple[Stage, ...]

    @property
    def duration_ns(self) -> int:
        return sum(stage.duration_ns for stage in self.stages)

    @property
    def highest(self) -> float:
        return max(stage.target for stage in self.stages)


@dataclass(frozen=True, kw_only=True)
class RateRamp(_Ramp):
    r"""An open loop whose rate goes from target to target.

    rate 80 |      ________
            |     /         \
          0 |____/___________\____ time
    """

    open_loop = True

    @cached_property
    def _starts(self) -> tuple[tuple[int, float, float], ...]:
        """For each stage: (its start in ns, the rate then, requests due before). The last item is the ramp's end."""
        begins = accumulate((stage.duration_ns for stage in self.stages), initial=0)
        rates = (0.0, *(stage.target for stage in self.stages))
        seconds = (stage.duration_ns / _SECOND_NS for stage in self.stages)
        counts = accumulate(
            (length * (low + high) / 2 for length, (low, high) in zip(seconds, pairwise(rates), strict=True)),
            initial=0.0,
        )
        return tuple(zip(begins, rates, counts, strict=True))

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        """Returns when the rate's integral reaches `started`. If it never does, returns the ramp's end."""
        end_ns, _, total = self._starts[-1]
        if started >= total:
            return end_ns if elapsed_ns < end_ns else None
        at = bisect_right(self._starts, float(started), key=lambda start: start[2]) - 1
        begin_ns, rate, before = self._starts[at]
        stage = self.stages[at]
        missing = started - before
        slope = (stage.target - rate) / (stage.duration_ns / _SECOND_NS)  # a jump has no requests, so is never `at`
        # missing = rate·t + slope·t²/2, solved without cancellation if the slope is small.
        root = math.sqrt(max(0.0, rate * rate + 2 * slope * missing))
        seconds = 2 * missing / (rate + root) if missing else 0.0
        return begin_ns + round(seconds * _SECOND_NS)


@dataclass(frozen=True, kw_only=True)
class ConnectionRamp(_Ramp):
    """A closed loop in which the number of connections at work goes from target to target."""

    open_loop = False

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        begin_ns, level = 0, 0.0
        for stage in self.stages:
            end_ns = begin_ns + stage.duration_ns
            if elapsed_ns < end_ns:
                found_ns = _reaches(busy + 1, level, stage, begin_ns, max(elapsed_ns, begin_ns))
                if found_ns is not None:
                    return found_ns
            begin_ns, level = end_ns, stage.target
        return None if elapsed_ns >= begin_ns else begin_ns


Ramp: TypeAlias = RateRamp | ConnectionRamp


def _reaches(wanted: int, level: float, stage: Stage, begin_ns: int, from_ns: int) -> int | None:
    """Returns the first instant from `from_ns` on at which the stage wants `wanted` connections; None if never.

    The stage begins with `level` connections.
    """
    if stage.duration_ns == 0:
        return None
    slope = (stage.target - level) / stage.duration_ns
    if level + slope * (from_ns - begin_ns) >= wanted:
        return from_ns
    if stage.target < wanted:
        return None
    return begin_ns + math.ceil((wanted - level) / slope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaved:
    """One generator's part of a load. Each of n generators has every n-th due time or connection.

    all          | | | | | | | |
    generator 1  |     |     |
    generator 2    |     |     |
    generator 3      |     |
    """

    whole: Pacing
    share: Share

    @property
    def open_loop(self) -> bool:
        return self.whole.open_loop

    @property
    def slots_rest(self) -> bool:
        return self.whole.slots_rest

    def due(self, elapsed_ns: int, started: int, busy: int) -> int | None:
        return self.whole.due(elapsed_ns, self.share.number(started), self.share.number(busy))
