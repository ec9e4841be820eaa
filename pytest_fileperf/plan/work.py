"""What a load is made of: one request, many of them, a stream, or a journey."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.requests import Requests
from pytest_fileperf.plan.stream import Stream

__all__ = ("Work", "in_smoke", "with_value")

Work: TypeAlias = Operation | Requests | Stream | Journey
"""What one sample is made of."""


def with_value(work: Work, value: object) -> Work:
    """Returns the work for a boot whose setup has returned this value. Raises PlanError for a feed that has no rows."""
    if isinstance(work, Requests):
        return work.with_value(value)
    if isinstance(work, Journey) and work.takes_value:
        return replace(work, value=value, has_value=True)
    return work


def in_smoke(work: Work) -> Work:
    """Returns the work for a smoke run, which only shows that it succeeds: a stream need not be long."""
    return work.shortened() if isinstance(work, Stream) else work
