"""The result table after the tests: a row for each measurement, and under it what there is to say.

    test                              requests/s      p50      p99  errors  outcome
    test_upload                            2,050  15.2 ms  31.0 ms       0  REGRESSED
      rps  2,190/s → 2,050/s  −6.4 % [−8.1, −4.7]  tolerance 5 %  REGRESSED

Takes finished results and returns text; who prints it adds the heading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.details import (
    STYLES,
    compared,
    failure_lines,
    figure_lines,
    gate_lines,
    limit_lines,
    notes,
    reason_lines,
    reasons,
    setting,
)
from pytest_fileperf.report.result import Result, Standing
from pytest_fileperf.report.text import Style, amount, cells, flow, pad, paint, plain, words

__all__ = ("summary_line", "terminal_report")

_T = TypeVar("_T")
_FIRST_METRICS = ("rps", "p50", "p99")
_MORE_METRICS = ("throughput", "cpu_per_request", "rss")
"""Shown, in this order, where there is room left."""
_LEAST_NAME_CELLS = 12
_NAME_CELLS_BEFORE_MORE = 48
"""A longer name is shortened rather than another column left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    heading: str
    texts: tuple[str, ...]
    """One for each result."""

    @property
    def width(self) -> int:
        return max(cells(text) for text in (self.heading, *self.texts))


def terminal_report(results: Sequence[Result], *, width: int = 80, colour: bool = False, verbosity: int = 0) -> str:
    """Returns the table with its notes and the summary line, no line wider than `width` cells (40 or more).

    `verbosity` as pytest counts it: below 0 only failures and the summary, from 1 every figure. Empty for no results.
    """
    if not results:
        return ""
    width = max(width, 40)
    shown = [result for result in results if verbosity >= 0 or result.standing.fails]
    lines = _table(shown, width=width, colour=colour, verbosity=verbosity) if shown else []
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
    found_words = [(f"{counts[each]} {_word(each)}", STYLES[each]) for each in Standing if counts[each]]
    pieces = [(f"{len(results)} measured:", Style.BOLD)]
    pieces += [(text + ",", style) for text, style in found_words[:-1]]
    rest = []
    written = sum(result.baseline_written for result in results)
    if written:
        rest.append(f"{written} baseline{'s' * (written != 1)} stored")
    if any(_lacks_baseline(result) for result in results):
        rest.append("store baselines with --fileperf-update=new")
    last, style = found_words[-1] if found_words else ("nothing", Style.NONE)
    pieces.append((last + ";" * bool(rest), style))
    return [*pieces, *words("; ".join(rest))] if rest else pieces


def _word(standing: Standing) -> str:
    return "not gated" if standing is Standing.UNGATED else standing.value


def _lacks_baseline(result: Result) -> bool:
    if result.baseline_written or result.unfit:
        return False
    return any(item.outcome is Outcome.NEW for item in result.verdict.comparisons)


def _table(results: Sequence[Result], *, width: int, colour: bool, verbosity: int) -> list[str]:
    names = _names(results)
    columns = _columns(results, names, width)
    outcomes = _Column(heading="outcome", texts=tuple(result.standing.value for result in results))
    room = width - sum(2 + column.width for column in (*columns, outcomes))
    name_cells = min(room, max(cells(name) for name in ("test", *names)))
    said = _said_once(results)

    def row(name: str, texts: Sequence[str]) -> str:
        figures = (pad(text, column.width, right=True) for text, column in zip(texts, columns, strict=True))
        return "  ".join([pad(name, name_cells), *figures])

    heading = f"{row('test', [column.heading for column in columns])}  {outcomes.heading}"
    lines = []
    if verbosity >= 0:
        lines += flow([(text, Style.DIM) for text in said.setting], width=width, indent=0, hanging=2, colour=colour)
    lines.append(paint(heading, Style.BOLD, colour=colour))
    group: str | None = None
    for place, at in enumerate(sorted(range(len(results)), key=_group_order(results))):
        result = results[at]
        lines += [""] * (verbosity >= 1 and place > 0)
        if (result.test.group or None) != group:
            group = result.test.group
            lines += flow([(plain(group or ""), Style.BOLD)], width=width, indent=0, hanging=2, colour=colour)
        standing = paint(outcomes.texts[at], STYLES[result.standing], colour=colour)
        lines.append(f"{row(names[at], [column.texts[at] for column in columns])}  {standing}")
        lines += _under(result, width=width, colour=colour, verbosity=verbosity, said=said)
    return lines + (_foot(results, said, columns, width=width, colour=colour) if verbosity >= 0 else [])


def _group_order(results: Sequence[Result]) -> Callable[[int], int]:
    """Returns a sort key for positions: without a group first, then the groups by first appearance."""
    order: dict[str | None, int] = {None: -1}
    for result in results:
        order.setdefault(result.test.group or None, len(order))
    return lambda at: order[results[at].test.group or None]


def _names(results: Sequence[Result]) -> list[str]:
    """Returns what to call each row: its title, or its node id where a title is shared; with `#2` for a second run."""
    bearers: dict[str, set[str]] = {}
    for test in (result.test for result in results):
        bearers.setdefault(test.title, set()).add(test.nodeid.removesuffix(test.further))
    names = []
    for test in (result.test for result in results):
        named = plain(test.title) and len(bearers[test.title]) == 1
        name = test.title if named else test.nodeid.removesuffix(test.further)
        names.append(plain(f"{name} {test.further}"))
    return names


def _columns(results: Sequence[Result], names: Sequence[str], width: int) -> list[_Column]:
    """Returns the columns between name and outcome: those that fit while names keep a readable length."""
    columns = [_metric_column(name, results) for name in _FIRST_METRICS]
    errors = _Column(heading="errors", texts=tuple(f"{result.measurement.errors:,}" for result in results))
    outcome_cells = max(len("outcome"), *(len(result.standing.value) for result in results))
    wanted = min(_NAME_CELLS_BEFORE_MORE, max(cells(name) for name in ("test", *names)))
    for name in _MORE_METRICS:
        column = _metric_column(name, results)
        others = sum(2 + other.width for other in (*columns, column, errors)) + 2 + outcome_cells
        if wanted + others <= width and any(text != "-" for text in column.texts):
            columns.append(column)
    columns.append(errors)
    most = width - _LEAST_NAME_CELLS - 2 - outcome_cells
    while len(columns) > 1 and sum(2 + column.width for column in columns) > most:
        columns.pop(-2)
    return columns


def _metric_column(name: str, results: Sequence[Result]) -> _Column:
    metric = METRICS[name]

    def text(result: Result) -> str:
        value = metric.of_run(result.recording) if result.measurement.requests else None
        if value is None:
            return "-"
        few = metric.percentile is not None and result.measurement.requests < metric.least_requests
        return "~" * few + amount(value, metric.unit)

    return _Column(heading=metric.title, texts=tuple(text(result) for result in results))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What holds for every test of the table, and is said once."""

    setting: tuple[str, ...]
    reasons: tuple[tuple[Outcome, str], ...] = ()
    notes: tuple[str, ...] = ()


def _said_once(results: Sequence[Result]) -> _Said:
    if len(results) == 1:
        return _Said(setting=setting(results[0]))
    return _Said(setting=_common(results, setting), reasons=_common(results, reasons), notes=_common(results, notes))


def _common(results: Sequence[Result], pick: Callable[[Result], tuple[_T, ...]]) -> tuple[_T, ...]:
    first, *others = [pick(result) for result in results]
    return tuple(item for item in first if all(item in other for other in others))


def _under(result: Result, *, width: int, colour: bool, verbosity: int, said: _Said) -> list[str]:
    """Returns the lines below a row."""
    comparisons = compared(result)
    if verbosity < 0:
        comparisons = tuple(item for item in comparisons if item.outcome is Outcome.REGRESSED)
    lines = gate_lines(comparisons, width=width, colour=colour)
    lines += limit_lines(result, width=width, colour=colour)
    lines += failure_lines(result, width=width, colour=colour, all_kinds=verbosity >= 1)
    if verbosity >= 0:
        own = [reason for reason in reasons(result) if reason not in said.reasons]
        lines += reason_lines(own, indent=2, width=width, colour=colour)
    for note in notes(result):
        if note not in said.notes:
            lines += _note(note, indent=2, width=width, colour=colour)
    if verbosity >= 1:
        lines += figure_lines(result, width=width, colour=colour, said=said.setting)
    return lines


def _foot(results: Sequence[Result], said: _Said, columns: Sequence[_Column], *, width: int, colour: bool) -> list[str]:
    """Returns what holds for the whole table."""
    lines = reason_lines(said.reasons, indent=0, width=width, colour=colour)
    foot = list(said.notes)
    if any(text.startswith("~") for column in columns for text in column.texts):
        foot.append("~ fewer requests than the percentile needs")
    levels = {item.confidence for result in results for item in compared(result) if item.low is not None}
    if levels:
        level = next(iter(levels))
        at = f" at {level * 100:.4g} % confidence" if len(levels) == 1 and level is not None else ""
        foot.append(f"[in brackets]: interval of the change{at}")
    for note in foot:
        lines += _note(note, indent=0, width=width, colour=colour)
    return lines


def _note(text: str, *, indent: int, width: int, colour: bool) -> list[str]:
    return flow(words(text, Style.DIM), width=width, indent=indent, hanging=indent + 2, gap=1, colour=colour)
