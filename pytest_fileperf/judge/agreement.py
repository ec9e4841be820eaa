"""Makes what is shown of a comparison agree: before, after and the change between them, and after with the run itself.

One rule for every report: *now* is the figure of the run, which its row, its limits and the test's own asserts show
too. *Base* is that figure without the change, and there is none where no change is known. The change itself stays as
the judge has found it: of turns that follow each other, or of typical rounds. It is not the ratio of the levels of two
whole runs, which the noise of each moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from pytest_fileperf.judge.verdict import MetricComparison
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording

__all__ = ("agreeing", "as_the_run_shows")


def as_the_run_shows(comparisons: Iterable[MetricComparison], recording: Recording) -> tuple[MetricComparison, ...]:
    """Returns the comparisons of a run with figures that agree with its own."""
    return tuple(agreeing(item, METRICS[item.metric].of_run(recording)) for item in comparisons)


def agreeing(comparison: MetricComparison, now: float | None) -> MetricComparison:
    """Returns the comparison with `now`, the run's own figure, and the base that it has by the change.

    Both stay as they are where that figure is not known, and of memory: the run's own is that after other numbers of
    requests. The base stays where the change has no ratio.
    """
    if comparison.now is None or now is None or comparison.after_requests is not None:
        return comparison
    base, change = comparison.base, comparison.change
    if change is None:
        base = None
    elif base is not None and now > 0 and 0 < 1 + change < math.inf:
        base = now / (1 + change)
    return replace(comparison, base=base, now=now)
