"""A step of a journey that was asked for: what is compared of it, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ("Step",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What `client.step(name)` has to show."""

    name: str
    gate: tuple[str, ...] = ()
    """The metrics that are compared with its baseline."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
