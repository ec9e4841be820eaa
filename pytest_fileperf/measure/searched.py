"""Which limits a search for the capacity can go by, and what they allow; imports nothing large."""

from __future__ import annotations

from pytest_fileperf.measure.metrics import METRICS

__all__ = ("percent_of", "searches_by", "share_allowed")

LEAST_SHARE = 1e-4
"""Some thousands of requests cannot show that a smaller share than this fails."""


def searches_by(name: str) -> bool:
    """Returns whether a search can go by a limit: that of a percentile, or of the share of failed requests."""
    return name == "max_error_rate" or percent_of(name) is not None


def share_allowed(name: str, limit: float) -> float:
    """Returns the share of requests that may be beyond a limit that `searches_by` accepts: 0.01 for `max_p99`."""
    percent = percent_of(name)
    return max(limit, LEAST_SHARE) if percent is None else 1 - percent / 100


def percent_of(name: str) -> float | None:
    """Returns the percentile that a limit is of: 99 for `max_p99`; None for other limits."""
    metric = METRICS.get(name.removeprefix("max_")) if name.startswith("max_") else None
    return None if metric is None else metric.percentile
