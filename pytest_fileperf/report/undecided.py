"""Lines for pytest's short test summary: tests that passed without being shown to be as fast as they have to be.

INCONCLUSIVE tests/test_files.py::test_upload
  rps 5,210/s → 5,001/s, −4.0 % (−9.0…+1.0), tolerance 3 %
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.report.details import change_text, sides_text
from pytest_fileperf.report.reasons import sentence
from pytest_fileperf.report.text import Style, flow, plain
from pytest_fileperf.units import format_change, format_share

__all__ = ("WORD", "undecided_lines", "undecided_texts")

WORD = Outcome.INCONCLUSIVE.value


def undecided_lines(nodeid: str, results: Iterable[Result], *, width: int, colour: bool) -> list[str]:
    """Returns the lines of one test, with the figures of its measurements that are undecided."""
    found = [text for result in results for text in undecided_texts(result)]
    pieces = [(WORD, Style.WARNING), (plain(nodeid), Style.BOLD)]
    if found:
        pieces += [("-", Style.NONE), *((f"{text};", Style.NONE) for text in found[:-1]), (found[-1], Style.NONE)]
    return flow(pieces, width=width, indent=0, hanging=2, gap=1, colour=colour)


def undecided_texts(result: Result) -> Sequence[str]:
    """Returns what was not decided, a text for each metric; empty where all was."""
    if not result.standing.is_undecided:
        return ()
    further = f"{result.test.further} " * bool(result.test.further)
    undecided = (item for item in result.verdict.comparisons if item.outcome is Outcome.INCONCLUSIVE)
    if result.verdict.saturated:
        return (f"{further}generator saturated: the figures are its own",)
    return tuple(further + _figures(comparison) for comparison in undecided)


def _figures(comparison: MetricComparison) -> str:
    """Returns `rps 5,210/s → 5,001/s, −4.0 % (−9.0…+1.0), tolerance 3 %`, or why there is no change to show."""
    if comparison.change is None:
        what, _, _ = plain(sentence(comparison.reason)).partition(": ")
        return f"{comparison.metric}: {what or 'nothing to compare'}"
    change = change_text(comparison)
    if comparison.low is not None and comparison.high is not None:
        low, high = (format_change(bound, unit=False) for bound in (comparison.low, comparison.high))
        change += f" ({low}…{high})"
    return f"{comparison.metric} {sides_text(comparison)}, {change}, tolerance {format_share(comparison.tolerance)}"
