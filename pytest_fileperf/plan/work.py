"""What a load is made of: one request, many of them, a stream, a journey, or a mix of these. What parts it has."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from pytest_fileperf.plan.mix import Mix, Part, PartWork
from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.step import Step
from pytest_fileperf.plan.stream import Stream

__all__ = ("Work", "in_smoke", "parts_of", "steps_of", "with_value")

Work: TypeAlias = Operation | Requests | Stream | Journey | Mix
"""What one sample is made of."""


def with_value(work: Work, value: object) -> Work:
    """Returns the work for a boot whose setup has returned this value. Raises PlanError for a feed that has no rows."""
    if isinstance(work, Mix):
        return replace(work, parts=tuple(replace(part, work=_of_boot(part.work, value)) for part in work.parts))
    return work if isinstance(work, Stream) else _of_boot(work, value)


def _of_boot(work: PartWork, value: object) -> PartWork:
    if isinstance(work, Requests):
        return work.with_value(value)
    if isinstance(work, Journey) and work.takes_value:
        return replace(work, value=value, has_value=True)
    return work


def in_smoke(work: Work) -> Work:
    """Returns the work for a smoke run, which only shows that it succeeds: a few of each part, and a short stream."""
    if isinstance(work, Mix):
        return work.evened()
    return work.shortened() if isinstance(work, Stream) else work


def parts_of(work: Work) -> tuple[Part, ...]:
    """Returns the parts that have figures of their own; none for a load that has no parts."""
    if isinstance(work, Mix):
        return work.parts
    if isinstance(work, Requests) and work.names:
        first = dict(reversed(list(zip(work.names, work.recipes, strict=True))))
        return tuple(Part(name=name, work=first[name]) for name in dict.fromkeys(work.names))
    return ()


def steps_of(work: Work) -> tuple[tuple[str, Journey, Step], ...]:
    """Returns the steps that were asked for, each with its journey, and the part that this is or an empty name."""
    parts: list[tuple[str, Work]] = [("", work)] if not parts_of(work) else []
    parts += ((part.name, part.work) for part in parts_of(work))
    return tuple((name, own, step) for name, own in parts if isinstance(own, Journey) for step in own.steps)
