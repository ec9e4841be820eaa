"""What a load is made of: one request, many of them, or a journey."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from pytest_fileperf.plan.operation import Journey, Operation
from pytest_fileperf.plan.requests import Requests

__all__ = ("Work", "with_value")

Work: TypeAlias = Operation | Requests | Journey
"""What one sample is made of."""


def with_value(work: Work, value: object) -> Work:
    """Returns the work for a boot whose setup has returned this value. Raises PlanError for a feed that has no rows."""
    if isinstance(work, Requests):
        return work.with_value(value)
    if isinstance(work, Journey) and work.takes_value:
        return replace(work, value=value, has_value=True)
    return work
