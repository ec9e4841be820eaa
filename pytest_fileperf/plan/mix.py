"""A load of several parts: what each one is, how often it is its turn, and what judges it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, repeat
from math import gcd, lcm
from typing import TypeAlias

from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.share import WHOLE, Share

__all__ = ("Mix", "Part", "PartWork", "turns", "why_no_name")

PartWork: TypeAlias = Operation | Requests | Journey
_NAME = re.compile(r"(?=.*\D)(?=.*\S)[^#\x00-\x1f]+")
"""`#` parts names in node ids, and further measurements of a test have numbers there."""
_FINEST = 1000
"""Weights are shares of so many parts at the finest: their turns are worked out for one period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a load."""

    name: str
    work: PartWork
    weight: float = 1.0
    """How often it is its turn, beside the weights of the others."""
    gate: tuple[str, ...] = ()
    """The metrics of this part that are compared with its baseline."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Parts that take turns by their weights, in one load."""

    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        """`mix of upload, download`."""
        return f"mix of {', '.join(part.name for part in self.parts)}"

    def turns(self, share: Share = WHOLE) -> Iterator[int]:
        """Returns whose turn it is, without an end: those of one of several generators, which all keep the weights."""
        return turns([part.weight for part in self.parts], share)

    def evened(self) -> Mix:
        """Returns the mix with each part as often as the others."""
        return replace(self, parts=tuple(replace(part, weight=1.0) for part in self.parts))

    def identity(self) -> dict[str, object]:
        """Returns what must be equal for two measurements to be of the same thing, as JSON values."""
        return {"mix": [{"name": part.name, "weight": part.weight, **part.work.identity()} for part in self.parts]}


def turns(weights: Sequence[float], share: Share = WHOLE) -> Iterator[int]:
    """Returns places of the weights in proportion to them, each as evenly spread as can be, without an end.

    It is the smooth weighted round robin of nginx: whoever has waited most is next.
    """
    exact = [Fraction(weight).limit_denominator(_FINEST) for weight in weights]
    shares = [int(part * lcm(*(other.denominator for other in exact))) for part in exact]
    shares = [max(1, share // gcd(*shares)) for share in shares]
    if sum(shares) > _FINEST * len(shares):
        shares = [max(1, round(_FINEST * share / sum(shares))) for share in shares]
    waited = [0] * len(shares)
    period = []
    for _ in range(sum(shares)):
        waited = [have + share for have, share in zip(waited, shares, strict=True)]
        chosen = max(range(len(shares)), key=waited.__getitem__)
        waited[chosen] -= sum(shares)
        period.append(chosen)
    first = share.first(len(period))
    return chain.from_iterable(repeat(period[first:] + period[:first]))


def why_no_name(name: object) -> str:
    """Returns why nothing can be called so, a part or a step; empty where it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return f"{name!r} is not a name: write a text on one line, without # and not only digits"
