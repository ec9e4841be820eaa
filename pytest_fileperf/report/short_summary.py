"""Lines for pytest's short test summary: what is not decided, and what got slower without a change of the code.

INCONCLUSIVE tests/test_files.py::test_upload -
  rps −4.0 % [−9.0, +1.0], tolerance 3 %
SLOWER WORLD tests/test_files.py::test_form - your baseline's own code runs at
  0.83 of what was stored (rps −17.0 % from 5,210/s): …
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.report.comparisons import change_text, interval_text, sides_text, world_outcome, world_text
from pytest_fileperf.report.reasons import sentence
from pytest_fileperf.report.text import Style, flow, plain, words
from pytest_fileperf.units import format_share

__all__ = ("SLOWER_WORLD", "figures_text", "slower_world_lines", "slower_worlds", "undecided_lines", "undecided_texts")

SLOWER_WORLD = "SLOWER WORLD"


def undecided_lines(nodeid: str, results: Iterable[Result], *, width: int, colour: bool) -> list[str]:
    """Returns the lines of one test, with the figures of its measurements that are undecided."""
    found = [text for result in results for text in undecided_texts(result)]
    pieces = [(Outcome.INCONCLUSIVE.value, Style.WARNING), (plain(nodeid), Style.BOLD)]
    if found:
        pieces += [("-", Style.NONE), *((f"{text};", Style.NONE) for text in found[:-1]), (found[-1], Style.NONE)]
    return flow(pieces, width=width, indent=0, hanging=2, gap=1, colour=colour)


def undecided_texts(result: Result) -> Sequence[str]:
    """Returns what was not decided, a text for each metric; empty where all was."""
    if not result.standing.is_undecided:
        return ()
    further = f" ({result.test.further})" * bool(result.test.further)
    if result.lost:
        return (f"{result.lost}: a part of the load is missing{further}",)
    if result.verdict.saturated:
        return (f"generator saturated: the figures are its own{further}",)
    undecided = [item for item in result.verdict.comparisons if item.outcome is Outcome.INCONCLUSIVE]
    unknown: dict[str, list[str]] = {}
    for item in undecided:
        if item.change is None:
            unknown.setdefault(_why_unknown(item), []).append(item.metric)
    return (
        *(figures_text(item, sides=False) + further for item in undecided if item.change is not None),
        *(f"{', '.join(metrics)}: {why}{further}" for why, metrics in unknown.items()),
    )


def _why_unknown(comparison: MetricComparison) -> str:
    """Returns why there is no change to show, without its details and what to do about it: the table has them."""
    return re.split(r": | \(", plain(sentence(comparison.reason)))[0] or "nothing to compare"


def figures_text(comparison: MetricComparison, *, sides: bool = True) -> str:
    """Returns `rps −4.0 % [−9.0, +1.0], 5,210/s → 5,001/s, tolerance 3 %`, or that without both sides."""
    change = f"{comparison.metric} {change_text(comparison)} {interval_text(comparison)}".rstrip()
    both = f"{sides_text(comparison)}, " * sides
    return f"{change}, {both}tolerance {format_share(comparison.tolerance)}"


def slower_worlds(results: Iterable[Result]) -> tuple[Result, ...]:
    """Returns the results whose baseline's own code got slower."""
    return tuple(result for result in results if world_outcome(result.verdict) is Outcome.REGRESSED)


def slower_world_lines(nodeid: str, result: Result, *, width: int, colour: bool) -> list[str]:
    """Returns the lines of one measurement whose baseline's own code got slower."""
    pieces = [(SLOWER_WORLD, Style.BAD), (plain(nodeid), Style.BOLD), ("-", Style.NONE)]
    return flow([*pieces, *words(world_text(result.verdict))], width=width, indent=0, hanging=2, gap=1, colour=colour)
