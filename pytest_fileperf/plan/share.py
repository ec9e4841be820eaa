"""Which part of a load one of several generators makes; pure. A generator alone makes all of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("WHOLE", "Share")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A generator's place among those that make one load together."""

    place: int = 0
    """From 0 on."""
    of: int = 1
    """How many generators make the load."""
    before: int | None = None
    """How many requests the generators before it make, of a fixed number; None where their number is not fixed."""
    connections: int = 0
    """Those of all generators together; 0 where it makes the load alone."""

    def part_of(self, total: int) -> int:
        """Returns how many of so many things are its own: the parts of all generators add up to the total."""
        return total // self.of + (self.place < total % self.of)

    def number(self, own: int) -> int:
        """Returns the number among all connections, or due times, of its own one with this number; both from 0 on."""
        return own * self.of + self.place

    def first(self, period: int) -> int:
        """Returns where it begins in something that repeats after so many requests.

        Generators go through all of it, each at its own pace. They begin at equal distances. Those of a fixed number of
        requests begin where the one before ends, so that all of them together go through it as one generator would.
        """
        return (self.place * period // self.of if self.before is None else self.before) % period


WHOLE = Share()
"""That of a generator which makes a load alone."""
