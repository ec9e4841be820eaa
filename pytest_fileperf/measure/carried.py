"""What rounds gain and lose by requests that began before the round in which they ended."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("NOTHING_CARRIED", "PARTS", "Carried")


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """What a round gains and loses by requests that began before the round in which they ended (closed loops).

    Such a request counts in each round with the share of its time that lies there. So slow requests, which end in
    bunches, have the right rate wherever rounds begin and end. Each figure is to be added to that of the round itself.
    """

    parts: int = 0
    """Billionths of requests: whole numbers add up to the same, whichever generator has counted them."""
    sent: int = 0
    received: int = 0
    """Billionths of bytes."""
    busy_ns: int = 0
    """To the sum of the latencies: then it is how long requests were under way within the round, all together."""
    early: int = 0
    """How many requests of the round began in the warm-up."""
    early_ns: int = 0
    """How long these took, all together."""

    def __add__(self, other: Carried) -> Carried:
        return Carried(
            parts=self.parts + other.parts,
            sent=self.sent + other.sent,
            received=self.received + other.received,
            busy_ns=self.busy_ns + other.busy_ns,
            early=self.early + other.early,
            early_ns=self.early_ns + other.early_ns,
        )


PARTS = 1_000_000_000
"""Those of a request."""
NOTHING_CARRIED = Carried()
