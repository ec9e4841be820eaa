"""The capacity of a result in words and as JSON values."""

from __future__ import annotations

import math

from pytest_fileperf.judge.result import Result
from pytest_fileperf.measure.capacity import Capacity, CapacityEnd
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.report.text import quantity
from pytest_fileperf.report.values import named
from pytest_fileperf.units import format_rate

__all__ = ("capacity_json", "capacity_text")


def capacity_text(result: Result) -> str:
    """Returns the capacity in one line: its interval, the limits, and what sets it; empty where none was sought."""
    found = result.capacity
    if found is None or found.ended is CapacityEnd.SMOKE:
        return ""
    limits = ", ".join(
        f"{name} {quantity(limit, METRICS[name.partition('_')[2]].unit)}"
        for name, limit in found.limits.items()
        if limit > 0
    )
    if found.ended is CapacityEnd.NO_RATE:
        return f"capacity: no rate that was tried holds {limits}; the lowest was {_rate(found.high)}"
    said = [f"capacity {_rate_with_interval(found)} with {limits}"]
    if found.ended is CapacityEnd.GENERATOR:
        said.append("the load generator could not send faster, so the server's own capacity is not known")
    elif not found.broken:
        said.append("no load broke a limit in the time there was: give it a longer max_duration")
    else:
        said.append(f"{found.broken} breaks first")
    if found.closed_rps:
        said.append(f"closed loop {_rate(found.closed_rps)}")
    if found.ended is CapacityEnd.FOUND and found.broken:
        unclear = found.limit.kind is LimitKind.UNCLEAR
        evidence = f": {found.limit.evidence}" if found.limit.evidence else ""
        said.append(f"not clear what limits it beyond{evidence}" if unclear else f"limited beyond by {found.limit}")
    return "; ".join(said)


def _rate_with_interval(found: Capacity) -> str:
    if math.isinf(found.high):
        return f"at least {_rate(found.rate)}"
    return f"{_rate(found.rate)} [{format_rate(found.low)}, {format_rate(found.high)}]"


def _rate(rate: float) -> str:
    return quantity(rate, Unit.PER_SECOND)


def capacity_json(found: Capacity | None) -> dict[str, object] | None:
    """Returns the capacity as JSON values; None where none was sought. What is infinite or not known is null."""
    if found is None:
        return None
    columns = ("rate", "boot", "seconds", "requests", "failed", "beyond", "holds", "by_generator", "p50", "p99")
    return {
        **named(found, "rate", "low", "high", "confidence", "limits", "broken", "closed_rps", "ended"),
        "limit": named(found.limit, "kind", "evidence"),
        "tried": {name: [getattr(load, name) for load in found.tried] for name in columns},
    }
