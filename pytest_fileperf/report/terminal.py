"""The results on the terminal: a row for each measurement, remarks under it, and groups as rankings.

    test                              requests/s      p50      p99  errors  outcome
    test_upload                            2,050  15.2 ms  31.0 ms       0  REGRESSED
      rps  2,190/s → 2,050/s  −6.4 % [−8.1, −4.7]  tolerance 5 %  REGRESSED
      limited by server CPU, at 97 % of 1 core

Returns text; the plugin prints it under a heading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.result import Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.report.comparisons import NOT_YOUR_CODE, compared, world_outcome
from pytest_fileperf.report.details import STYLES, figure_lines, notes, reasons, setting, word_of
from pytest_fileperf.report.ranking_table import group_lines, limited_by, member_names
from pytest_fileperf.report.remarks import (
    failure_lines,
    gate_lines,
    limit_lines,
    limiting_lines,
    load_lines,
    noise_lines,
    note_lines,
    reason_lines,
    world_lines,
)
from pytest_fileperf.report.short_summary import slower_worlds
from pytest_fileperf.report.table import LEAST_NAME_CELLS, Column, metric_column, outcome_column, row_names, table_of
from pytest_fileperf.report.text import Style, flow, plain, words
from pytest_fileperf.units import format_count

__all__ = ("summary_line", "terminal_report")

_T = TypeVar("_T")
_FIRST_METRICS = ("rps", "p50", "p99")
_MORE_METRICS = ("throughput", "cpu_per_request", "rss")
"""Shown in this order where there is room left."""
_NAME_CELLS_BEFORE_MORE = 48
"""A name longer than this is shortened before another column is left out."""


def terminal_report(record: SessionRecord, *, width: int = 80, colour: bool = False, verbosity: int = 0) -> str:
    """Returns the tables with their notes and the summary line, no line wider than `width` cells (40 or more).

    `verbosity` as pytest counts it: below 0 only failures and the summary, from 1 every figure. Empty for no results.
    """
    results, alone, groups = record.results, record.alone, record.groups
    if not results:
        return ""
    width = max(width, 40)
    if verbosity < 0:
        alone, groups = tuple(result for result in results if result.standing.fails), ()
    said = _said_once(results)
    lines = []
    if verbosity >= 0:
        lines += flow([(text, Style.DIM) for text in said.setting], width=width, indent=0, hanging=2, colour=colour)
    if alone:
        lines += _table(alone, said, width=width, colour=colour, verbosity=verbosity)
    for group in groups:
        lines += [""] * bool(lines)
        lines += _ranked(group, said, width=width, colour=colour, verbosity=verbosity)
    if verbosity >= 0:
        foot = [*said.notes, *_foot(results, groups, lines)]
        if said.limiting is not None and verbosity == 0:
            foot.insert(0, limited_by(said.limiting))
        foot += [f"no test has a parameter {plain(name)} to group by" for name in record.unknown_params]
        lines += [""] * bool(groups)
        lines += reason_lines(said.reasons, indent=0, width=width, colour=colour)
        lines += [line for note in foot for line in note_lines(note, indent=0, width=width, colour=colour)]
    lines += flow(_summary_pieces(results), width=width, indent=0, hanging=2, gap=1, colour=colour)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def summary_line(results: Sequence[Result]) -> str:
    """Returns the counts in a line: `3 measured: 2 PASS, 1 NEW; store baselines with --fileperf-update=new`."""
    return " ".join(text for text, _ in _summary_pieces(results))


def _summary_pieces(results: Sequence[Result]) -> list[tuple[str, Style]]:
    if results and all(result.smoke for result in results):
        failed = sum(result.standing.fails for result in results)
        found = f", {failed} FAILED" if failed else ""
        text = f"{len(results)} measured{found}; smoke: a few requests each, nothing judged"
        return words(text, Style.BAD if failed else Style.NONE)
    counts = Counter(result.standing for result in results)
    found_words = [(f"{counts[each]} {word_of(each)}", STYLES[each]) for each in Standing if counts[each]]
    pieces = [(f"{len(results)} measured:", Style.BOLD)]
    pieces += [(text + ",", style) for text, style in found_words[:-1]]
    rest = []
    written = sum(result.baseline_written for result in results)
    if written:
        rest.append(f"{format_count(written, 'baseline')} stored")
    if unfit := [result.unfit for result in results if result.unfit and _is_new(result)]:
        rest.append(f"{len(unfit)} can be no baseline: {', '.join(dict.fromkeys(unfit))}")
    slower = len(slower_worlds(results))
    if slower:
        rest.append(f"{format_count(slower, 'slower world')}: {NOT_YOUR_CODE}")
    if any(_lacks_baseline(result) for result in results):
        rest.append("store baselines with --fileperf-update=new")
    last, style = found_words[-1] if found_words else ("nothing", Style.NONE)
    pieces.append((last + ";" * bool(rest), style))
    return [*pieces, *words("; ".join(rest))] if rest else pieces


def _lacks_baseline(result: Result) -> bool:
    return _is_new(result) and not result.unfit


def _is_new(result: Result) -> bool:
    """Returns whether it lacks a baseline, and was not stored as one."""
    if result.baseline_written or result.verdict.against:
        return False
    return any(item.outcome is Outcome.NEW for item in result.verdict.comparisons)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What is true of all results, and is said once."""

    setting: tuple[str, ...]
    reasons: tuple[tuple[Outcome, str], ...] = ()
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


def _table(results: Sequence[Result], said: _Said, *, width: int, colour: bool, verbosity: int) -> list[str]:
    """Returns a row for each result, with the remarks under it."""
    names = Column(heading="test", texts=row_names(results))
    table = table_of(names, _columns(results), width=width)
    lines = [table.heading(colour=colour)]
    for at, result in enumerate(results):
        lines += [""] * (verbosity >= 1 and at > 0)
        lines.append(table.row(at, colour=colour))
        lines += _under(result, said, width=width, colour=colour, verbosity=verbosity)
        limit = result.measurement.limit.kind
        if verbosity == 0 and not _needs_no_limit(result) and limit is not said.limiting:
            lines += limiting_lines(result, width=width, colour=colour)
        if verbosity >= 1:
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


def _needs_no_limit(result: Result) -> bool:
    """Returns whether no line says what limited the run: there was no load to limit, or a note says it."""
    return result.smoke or not result.measurement.requests or result.measurement.saturated


def _ranked(group: RankedGroup, said: _Said, *, width: int, colour: bool, verbosity: int) -> list[str]:
    """Returns the table of a group; with verbosity, the figures of each member after it."""

    def under(result: Result, width: int) -> list[str]:
        return _under(result, said, width=width, colour=colour, verbosity=verbosity)

    lines = group_lines(group, under, said=said.limiting, width=width, colour=colour)
    if verbosity >= 1:
        results = [result for result, _ in group.ordered()]
        for name, result in zip(member_names(results), results, strict=True):
            lines += ["", *flow([(name, Style.BOLD)], width=width, indent=0, hanging=2, colour=colour)]
            lines += figure_lines(result, width=width, colour=colour, said=said.setting)
    return lines


def _under(result: Result, said: _Said, *, width: int, colour: bool, verbosity: int) -> list[str]:
    """Returns the lines below a row."""
    comparisons = compared(result)
    if verbosity < 0:
        comparisons = tuple(item for item in comparisons if item.outcome is Outcome.REGRESSED)
    lines = gate_lines(comparisons, width=width, colour=colour)
    if verbosity >= 0 or world_outcome(result.verdict) is Outcome.REGRESSED:
        lines += world_lines(result, width=width, colour=colour)
    lines += noise_lines(result, width=width, colour=colour)
    if result.explanation is not None and verbosity >= 0:
        lines += [f"  {line}" for line in result.explanation.text.splitlines()]
    lines += limit_lines(result, width=width, colour=colour)
    lines += failure_lines(result, width=width, colour=colour, all_kinds=verbosity >= 1)
    if verbosity >= 0:
        own = [reason for reason in reasons(result) if reason not in said.reasons]
        lines += reason_lines(own, indent=2, width=width, colour=colour)
    if verbosity == 0 and not result.smoke:
        lines += load_lines(result, width=width, colour=colour)
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
