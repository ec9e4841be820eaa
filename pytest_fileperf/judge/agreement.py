"""Makes what is shown of a comparison agree: before, after and the change between them, and after with the run itself.

One rule for every report: *now* is the figure of the run, which its row, its limits and the test's own asserts show
too. *Base* is the same figure of the other side, measured alternately with it, or what is stored. The change is that of
these two. The interval is the judge's: that of typical moments, or where the figures lie beyond it that of the counts,
in which the stalls are. The judge's own estimate is kept then, as `typical`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording

__all__ = ("agreeing", "as_the_run_shows")


def as_the_run_shows(
    comparisons: Iterable[MetricComparison], now: Recording, base: Recording | None
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of a run with the figures that were measured; `base` is what was measured with it."""
    found = []
    for item in comparisons:
        metric = METRICS[item.metric]
        measured = metric.of_run(base) if base is not None and item.pairs is not None else None
        found.append(agreeing(item, metric.of_run(now), item.base if measured is None else measured))
    return tuple(found)


def agreeing(comparison: MetricComparison, now: float | None, base: float | None) -> MetricComparison:
    """Returns the comparison with the measured figures of both sides, and their change where one is known.

    It stays as it is where `now` is not known, and for memory: the run's own is that after other numbers of requests.
    """
    if comparison.now is None or now is None or comparison.after_requests is not None:
        return comparison
    shown = replace(comparison, base=base, now=now)
    if comparison.change is None or base is None or base <= 0 or now <= 0:
        return shown
    change = now / base - 1
    low, high = comparison.low, comparison.high
    if low is None or high is None or not math.isfinite(comparison.change) or low <= change <= high:
        return replace(shown, change=change)
    if comparison.total is not None:
        low, high = comparison.total
    return replace(shown, change=change, low=min(low, change), high=max(high, change), typical=comparison.change)
