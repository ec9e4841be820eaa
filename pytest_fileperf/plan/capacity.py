"""A search for the highest rate that holds some limits: which limits, how long, and what each of its loads is like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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

    def load(self, rate: float, *, warmup_s: float, seconds: float, seed: int) -> LoadPlan:
        """Returns a load at this rate, whose instants are drawn by chance with the seed."""
        return LoadPlan(
            connections=self.connections,
            warmup_ns=round(warmup_s * 1e9),
            round_ns=max(1, round(seconds * 1e9 / _ROUNDS)),
            rounds=_ROUNDS,
            timeout_ns=self.timeout_ns,
            rate=rate,
            seed=seed,
        )
