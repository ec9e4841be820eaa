"""Think time: how long a user waits between two things that it does. Drawn by a seed, so that every run is alike."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from pytest_fileperf.plan.share import WHOLE, Share
from pytest_fileperf.units import format_duration, parse_duration_ns

__all__ = ("Pause", "exponential", "parse_pause", "uniform")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Think time: always the same, evenly between two times (`uniform`), or by chance with a mean (`exponential`)."""

    low_ns: int
    high_ns: int
    """The same as `low_ns` where the time is always the same. For `exponential` both are the mean."""
    by_chance: bool = False
    """Whether it is exponential: as long as it takes until a user who may come at any moment comes."""
    seed: int = 0

    def __str__(self) -> str:
        low, high = format_duration(self.low_ns), format_duration(self.high_ns)
        if self.by_chance:
            return f"{low} on average"
        return low if self.low_ns == self.high_ns else f"{low} to {high}"

    @property
    def mean_ns(self) -> int:
        """What it is on average."""
        return (self.low_ns + self.high_ns) // 2

    def draw(self, chance: random.Random) -> int:
        """Returns the next pause, in nanoseconds."""
        if self.by_chance:
            return round(chance.expovariate(1 / self.low_ns))
        return self.low_ns if self.low_ns == self.high_ns else chance.randint(self.low_ns, self.high_ns)

    def of_users(self, share: Share = WHOLE) -> Iterator[Iterator[int]]:
        """Yields the pauses of one user of this share after the other; the first one of each is a part of a pause.

        So users do not begin together, but as if they had been there before.
        """
        for own in count():
            yield self._of_user(random.Random(f"{self.seed} {share.number(own)}"))  # noqa: S311 - no secret

    def _of_user(self, chance: random.Random) -> Iterator[int]:
        yield self.draw(chance) if self.by_chance else round(self.draw(chance) * chance.random())
        while True:
            yield self.draw(chance)

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two loads to compare, as JSON values."""
        times: dict[str, object] = {"low": self.low_ns / 1e9, "high": self.high_ns / 1e9}
        return times | {"exponential": True} if self.by_chance else times


def exponential(mean: float | str, *, seed: int = 0) -> Pause:
    """Returns pauses by chance with this mean, `exponential("1s")`: most are short, and some are much longer."""
    mean_ns = parse_duration_ns(mean)
    if mean_ns == 0:
        raise ValueError("the mean of a pause must be above 0")
    return Pause(low_ns=mean_ns, high_ns=mean_ns, by_chance=True, seed=seed)


def uniform(low: float | str, high: float | str, *, seed: int = 0) -> Pause:
    """Returns pauses that are evenly between two times: `uniform("0.5s", "2s")`."""
    low_ns, high_ns = parse_duration_ns(low), parse_duration_ns(high)
    if low_ns > high_ns:
        raise ValueError(f"a pause from {low} to {high} ends before it begins")
    return Pause(low_ns=low_ns, high_ns=high_ns, seed=seed)


def parse_pause(value: object) -> Pause | None:
    """Returns the pause that is always so long, or the one that was made already; None for 0. Raises ValueError."""
    if isinstance(value, Pause):
        return value if value.high_ns else None
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} is no pause: write seconds, "1s", uniform("0.5s", "2s") or exponential("1s")')
    length_ns = parse_duration_ns(value)
    return Pause(low_ns=length_ns, high_ns=length_ns) if length_ns else None
