"""A search for the highest rate that holds some limits: which limits, how long, and what each of its loads is like."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_fileperf.plan.arrivals import spread_seed
from pytest_fileperf.plan.load import LoadPlan

__all__ = ("CapacityPlan",)

_ROUNDS = 3
"""Fewer do not show whether a backlog grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """How the highest rate is searched for that holds some limits."""

    limits: Mapping[str, float]
    """Those that a search can go by, by name."""
    total_ns: int
    """The time there is for one side, with boots."""
    connections: int
    """As many may be open as the loads need."""
    timeout_ns: int
    generators: int = 1
    """How many processes make each load together, at most."""

    def load(
        self,
        rate: float,
        *,
        warmup_s: float,
        seconds: float,
        chance: random.Random,
        place: float,
        busy_rate: float,
    ) -> LoadPlan:
        """Returns a load at this rate, whose instants are drawn by chance: at this place among draws by crowding.

        `busy_rate` is about how many requests per second the server can answer.
        """
        warmup_ns, round_ns = round(warmup_s * 1e9), max(1, round(seconds * 1e9 / _ROUNDS))
        duration_ns = warmup_ns + round_ns * _ROUNDS
        seed = spread_seed(chance, place, rate=rate, duration_ns=duration_ns, from_ns=warmup_ns, busy_rate=busy_rate)
        return LoadPlan(
            connections=self.connections,
            warmup_ns=warmup_ns,
            round_ns=round_ns,
            rounds=_ROUNDS,
            timeout_ns=self.timeout_ns,
            rate=rate,
            seed=seed,
            generators=self.generators,
        )
