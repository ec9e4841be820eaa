"""The results on the terminal with -v: a row for each measurement, all about it below, and groups as rankings.

    test                              requests/s      p50      p99  errors  outcome
    test_upload                            2,050  15.2 ms  31.0 ms       0  REGRESSED
      rps  2,190/s → 2,050/s  −6.4 % [−8.1, −4.7]  tolerance 5 %  REGRESSED
      latency     min 5.00 ms  mean 18.0 ms  …
      limited by  server CPU, at 97 % of 1 core

Without -v `brief` makes the lines. Returns text; the plugin prints it under a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.result import Result
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.report.brief import brief_report
from pytest_fileperf.report.comparisons import compared
from pytest_fileperf.report.counts import summary_pieces
from pytest_fileperf.report.details import Why, notes, reasons, setting
from pytest_fileperf.report.figures import figure_lines
from pytest_fileperf.report.ranking_table import group_lines, member_names
from pytest_fileperf.report.remarks import (
    failure_lines,
    gate_lines,
    limit_lines,
    noise_lines,
    note_lines,
    reason_lines,
    world_lines,
)
from pytest_fileperf.report.table import LEAST_NAME_CELLS, Column, metric_column, outcome_column, row_names, table_of
from pytest_fileperf.report.text import Style, flow, plain

__all__ = ("terminal_report",)

_T = TypeVar("_T")
_FIRST_METRICS = ("rps", "p50", "p99")
_MORE_METRICS = ("throughput", "cpu_per_request", "rss")
"""Shown in this order where there is room left."""
_NAME_CELLS_BEFORE_MORE = 48
"""A name longer than this is shortened before another column is left out."""


def terminal_report(record: SessionRecord, *, width: int = 80, colour: bool = False, verbosity: int = 0) -> str:
    """Returns the report, no line wider than `width` cells (40 or more). Empty for no results.

    `verbosity` as pytest counts it: from 1 on tables with every figure, notes and counts, below it what `brief` says.
    """
    if not record.results:
        return ""
    width = max(width, 40)
    if verbosity < 1:
        lines = list(brief_report(record, width=width, colour=colour, quiet=verbosity < 0).lines)
    else:
        lines = _in_full(record, width=width, colour=colour)
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _in_full(record: SessionRecord, *, width: int, colour: bool) -> list[str]:
    """Returns the tables with their notes and the summary line."""
    results, groups = record.results, record.groups
    said = _said_once(results)
    lines = flow([(text, Style.DIM) for text in said.setting], width=width, indent=0, hanging=2, colour=colour)
    if record.alone:
        lines += _table(record.alone, said, width=width, colour=colour)
    for group in groups:
        lines += [""] * bool(lines)
        lines += _ranked(group, said, width=width, colour=colour)
    foot = [*said.notes, *_foot(results, groups, lines)]
    foot += [f"no test has a parameter {plain(name)} to group by" for name in record.unknown_params]
    lines += [""] * bool(groups)
    lines += reason_lines(said.reasons, indent=0, width=width, colour=colour)
    lines += [line for note in foot for line in note_lines(note, indent=0, width=width, colour=colour)]
    lines += flow(summary_pieces(results, record.failed), width=width, indent=0, hanging=2, gap=1, colour=colour)
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What is true of all results, and is said once."""

    setting: tuple[str, ...]
    reasons: tuple[Why, ...] = ()
    notes: tuple[str, ...] = ()
    limiting: LimitKind | None = None


def _said_once(results: Sequence[Result]) -> _Said:
    if len(results) == 1:
        return _Said(setting=setting(results[0]))
    limiting = {result.measurement.limit.kind for result in results if result.measurement.requests}
    return _Said(
        setting=_common(results, setting),
        reasons=_common(results, reasons),
        notes=_common(results, notes),
        limiting=limiting.pop() if len(limiting) == 1 and not results[0].smoke else None,
    )


def _common(results: Sequence[Result], pick: Callable[[Result], tuple[_T, ...]]) -> tuple[_T, ...]:
    first, *others = [pick(result) for result in results]
    return tuple(item for item in first if all(item in other for other in others))


def _table(results: Sequence[Result], said: _Said, *, width: int, colour: bool) -> list[str]:
    """Returns a row for each result, with the remarks under it."""
    names = Column(heading="test", texts=row_names(results))
    table = table_of(names, _columns(results), width=width)
    lines = [table.heading(colour=colour)]
    for at, result in enumerate(results):
        lines += [""] * (at > 0)
        lines.append(table.row(at, colour=colour))
        lines += _under(result, said, width=width, colour=colour)
        lines += figure_lines(result, width=width, colour=colour, said=said.setting)
    return lines


def _columns(results: Sequence[Result]) -> list[Column]:
    """Returns the columns of a row; errors and outcome are always shown."""
    more = [metric_column(name, results, _NAME_CELLS_BEFORE_MORE) for name in _MORE_METRICS]
    errors = tuple(f"{result.measurement.errors:,}" for result in results)
    return [
        *(metric_column(name, results, LEAST_NAME_CELLS) for name in _FIRST_METRICS),
        *(column for column in more if set(column.texts) != {"-"}),
        Column(heading="errors", texts=errors, right=True),
        outcome_column(results),
    ]


def _ranked(group: RankedGroup, said: _Said, *, width: int, colour: bool) -> list[str]:
    """Returns the table of a group, and the figures of each member after it."""

    def under(result: Result, width: int) -> list[str]:
        return _under(result, said, width=width, colour=colour)

    lines = group_lines(group, under, said=said.limiting, width=width, colour=colour)
    results = [result for result, _ in group.ordered()]
    for name, result in zip(member_names(results), results, strict=True):
        lines += ["", *flow([(name, Style.BOLD)], width=width, indent=0, hanging=2, colour=colour)]
        lines += figure_lines(result, width=width, colour=colour, said=said.setting)
    return lines


def _under(result: Result, said: _Said, *, width: int, colour: bool) -> list[str]:
    """Returns the lines below a row."""
    lines = gate_lines(compared(result), width=width, colour=colour)
    lines += world_lines(result, width=width, colour=colour)
    lines += noise_lines(result, width=width, colour=colour)
    if result.explanation is not None:
        lines += [f"  {line}" for line in result.explanation.text.splitlines()]
    lines += limit_lines(result, width=width, colour=colour)
    lines += failure_lines(result, width=width, colour=colour, all_kinds=True)
    own = [reason for reason in reasons(result) if reason not in said.reasons]
    lines += reason_lines(own, indent=2, width=width, colour=colour, above=compared(result))
    for note in notes(result):
        if note not in said.notes:
            lines += note_lines(note, indent=2, width=width, colour=colour)
    return lines


def _foot(results: Sequence[Result], groups: Sequence[RankedGroup], lines: Iterable[str]) -> list[str]:
    """Returns how to read the lines of the tables."""
    found = []
    if any(" ~" in line for line in lines):
        found.append("~ fewer requests than the percentile needs")
    levels = {item.confidence for result in results for item in compared(result) if item.low is not None}
    if levels:
        level = next(iter(levels))
        at = f" at {level * 100:.4g} % confidence" if len(levels) == 1 and level is not None else ""
        found.append(f"change [in brackets]: its interval{at}")
    if groups:
        level = groups[0].ranking.confidence
        found.append(
            "= cannot be told apart at this rank; of best [in brackets]: its interval; both hold for a whole group at"
            f" {level * 100:.4g} % confidence"
        )
    return found
