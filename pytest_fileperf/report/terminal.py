"""The results on the terminal with -v: a row for each measurement, all about it below, and groups as rankings.

    test                              requests/s      p50      p99  errors  outcome
    test_upload                            2,050  15.2 ms  31.0 ms       0  REGRESSED
      rps  2,190/s → 2,050/s  −6.4 % [−8.1, −4.7]  tolerance 5 %  REGRESSED
      latency     min 5.00 ms  mean 18.0 ms  …
      limited by  server CPU, at 97 % of 1 core

Without -v `brief` makes the lines. Returns text; the plugin prints it under a heading.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from pytest_fileperf.judge.baseline import Stale
from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.record import SAME_CODE, WHILE_MEASURED, Result, Standing
from pytest_fileperf.judge.verdict import Outcome, ReasonKind
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.report.details import (
    Why,
    busy_text,
    findings,
    growth_texts,
    is_notable,
    iterations_text,
    left_text,
    notes,
    one_core_text,
    processes_text,
    reasons,
    saturated_text,
    setting,
    traced_text,
)
from pytest_fileperf.report.figures import figure_lines
from pytest_fileperf.report.story import (
    event_lines,
    failure_lines,
    gate_lines,
    hints,
    limit_lines,
    limiting_lines,
    load_lines,
    noise_lines,
    note_lines,
    reason_lines,
    summary_pieces,
    unstored,
    world_lines,
)
from pytest_fileperf.report.table import (
    LEAST_NAME_CELLS,
    Column,
    group_lines,
    limited_by,
    member_names,
    metric_column,
    metric_text,
    outcome_column,
    row_names,
    table_of,
)
from pytest_fileperf.report.text import Style, flow, plain, words
from pytest_fileperf.report.wording import (
    FIGURES_ONLY,
    capacity_text,
    code_text,
    compared,
    failed_lines,
    is_world_notable,
    not_stored_text,
    reconnect_text,
    world_outcome,
)
from pytest_fileperf.serve.running import SERVED_WITH
from pytest_fileperf.units import format_count

__all__ = ("Brief", "brief_report", "session_text", "stale_lines", "terminal_report")


# --- The results on the terminal without -v: a line for each test, and one for each gate that is not PASS
#
#     test_upload    2,050/s  p99 31.0 ms  REGRESSED
#       rps  −6.4 % [−8.1, −4.7]  2,190/s → 2,050/s  tolerance 5 %  REGRESSED
#     test_download  3,011/s  p99 18.0 ms  PASS
#
# What a failed test has told in its own message is not said again. Everything else is said with -v (`terminal`).

_WELL = (Standing.PASS, Standing.IMPROVED, Standing.UNGATED)
_UNSAID = (ReasonKind.NO_BASELINE, ReasonKind.SAME_CODE)
"""Reasons that the outcome, or a hint at the end, says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """What there is to print."""

    lines: tuple[str, ...] = ()
    only_rows: bool = False
    """Whether every line is the row of a test, and nothing else is to be said."""


def brief_report(
    record: SessionRecord,
    *,
    width: int,
    colour: bool = False,
    quiet: bool = False,
    told: Collection[str] = (),
    worlds: bool = True,
) -> Brief:
    """Returns the lines, none wider than `width` cells. With `quiet` only tests that failed have a row.

    `told` has the node ids of tests whose failure has been printed. `worlds` says whether a slower world has lines.
    """
    results, alone, groups = record.results, record.alone, record.groups
    if quiet:
        alone, groups = tuple(result for result in results if result.standing.fails), ()
    under = _Under(
        common=_brief_common(results, told), told=told, worlds=worlds, one_limit=_one_limit(results), colour=colour
    )
    lines, more = _rows(alone, under, width=width)
    for group in groups:
        lines += [""] * bool(lines)
        lines += group_lines(group, partial(under.of, ranked=True), said=None, width=width, colour=colour)
    foot = _unstored(record, width=width, colour=colour) if quiet else _brief_foot(record, under, lines, width=width)
    return Brief(lines=(*lines, *foot), only_rows=bool(lines) and not (groups or more or foot))


def _rows(results: Sequence[Result], under: _Under, *, width: int) -> tuple[list[str], bool]:
    """Returns the rows, and whether there is anything below one."""
    if not results:
        return [], False
    names = Column(heading="", texts=row_names(results))
    rates = Column(heading="", texts=tuple(_figure("rps", "", "/s", result) for result in results), right=True)
    tails = Column(heading="", texts=tuple(_figure("p99", "p99 ", "", result) for result in results), right=True)
    tails = replace(tails, least_name_cells=LEAST_NAME_CELLS)
    failed = tuple(f"{run.errors:,} failed" if (run := result.measurement).errors else "" for result in results)
    columns = [rates, tails]
    columns += [Column(heading="", texts=failed, right=True, least_name_cells=LEAST_NAME_CELLS)] * any(failed)
    outcomes = outcome_column(results)
    columns.append(Column(heading="", texts=outcomes.texts, styles=outcomes.styles))
    table = table_of(names, columns, width=width)
    lines, more = [], False
    for at, result in enumerate(results):
        below = under.of(result, width)
        lines += [table.row(at, colour=under.colour), *below]
        more |= bool(below)
    return lines, more


def _figure(name: str, before: str, after: str, result: Result) -> str:
    text = metric_text(name, result)
    return text if text == "-" else f"{before}{text}{after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Under:
    """The lines below a row."""

    common: frozenset[Why]
    """Reasons that all results have, which are said once at the end."""
    told: Collection[str]
    worlds: bool
    one_limit: LimitKind | None
    """What limited all runs, where it is not the server: it is said once at the end."""
    colour: bool

    def of(self, result: Result, width: int, *, ranked: bool = False) -> list[str]:
        """Returns a line for each gate that is not PASS, and what else there is to know.

        The table of a ranked group has what limited the run.
        """
        colour = self.colour
        gates = [item for item in compared(result) if item.outcome is not Outcome.PASS]
        lines = gate_lines(gates, width=width, colour=colour)
        lines += noise_lines(result, width=width, colour=colour)
        lines += limit_lines(result, width=width, colour=colour)
        in_summary = not self.worlds and world_outcome(result.verdict) is Outcome.REGRESSED
        if is_world_notable(result.verdict) and not in_summary:
            lines += world_lines(result, width=width, colour=colour)
        if not _is_told(result, self.told):
            if result.explanation is not None:
                lines += [f"  {line}" for line in result.explanation.text.splitlines()]
            lines += failure_lines(result, width=width, colour=colour)
            own = [reason for reason in _reasons(result) if reason not in self.common]
            lines += reason_lines(own, indent=2, width=width, colour=colour, above=gates)
        if not result.smoke:
            lines += event_lines(result, width=width, colour=colour)
        if result.measurement.open_loop and not result.smoke and result.capacity is None:
            lines += load_lines(result, width=width, colour=colour)
        for note in _notes(result):
            lines += note_lines(note, indent=2, width=width, colour=colour)
        if not ranked and not self.one_limit and _is_limited_elsewhere(result):
            lines += limiting_lines(result, width=width, colour=colour)
        return lines


def _reasons(result: Result) -> list[Why]:
    """Returns why gates are not PASS; and of a comparison with another version that it is the same code."""
    if result.verdict.against and not result.verdict.code:
        return list(reasons(result, but=_UNSAID[:1]))
    return [said for said in reasons(result, but=_UNSAID) if said.outcome is not Outcome.PASS]


def _notes(result: Result) -> list[str]:
    """Returns the remarks that a reader must not miss; -v has all."""
    found = [*findings(result)]
    if text := capacity_text(result):
        found.append(text)
    if text := saturated_text(result):
        found.append(text)
    if text := iterations_text(result):
        found.append(text)
    if text := processes_text(result):
        found.append(text)
    if text := one_core_text(result):
        found.append(text)
    if text := left_text(result):
        found.append(text)
    found += growth_texts(result)
    found += [text for text in result.server_notes if text.startswith((SERVED_WITH, SAME_CODE))]
    found += [text for text in result.load_notes if text.endswith(WHILE_MEASURED)]
    if result.standing not in _WELL and not left_text(result) and (text := str(result.background or "")):
        found.append(text)
    if _says_stored(code := code_text(result.verdict, with_title=True)):
        found += [text for text in code.split("; ") if "stored" in text]
    if text := not_stored_text(result):
        found.append(text)
    return found


def _says_stored(code: str) -> bool:
    """Returns whether it tells what was stored of a baseline."""
    return "was stored" in code or "were stored" in code


def _is_limited_elsewhere(result: Result) -> bool:
    """Returns whether something else than the server, or the load as it was asked for, set the pace."""
    run = result.measurement
    if result.smoke or result.capacity or result.test.own:
        return False
    return not (run.saturated or not run.requests or not is_notable(run.limit))


def _is_told(result: Result, told: Collection[str]) -> bool:
    return result.test.nodeid.removesuffix(result.test.further) in told


def _one_limit(results: Sequence[Result]) -> LimitKind | None:
    """Returns what limited all of several runs; None where that is the server, or differs."""
    kinds = {result.measurement.limit.kind if _is_limited_elsewhere(result) else None for result in results}
    return kinds.pop() if len(results) > 1 and len(kinds) == 1 else None


def _brief_common(results: Sequence[Result], told: Collection[str]) -> frozenset[Why]:
    """Returns the reasons that all of several results have, unless their failures told them."""
    found = [frozenset(_reasons(result)) for result in results]
    if len(found) < 2 or all(_is_told(result, told) for result in results):
        return frozenset()
    return frozenset.intersection(*found)


def _unstored(record: SessionRecord, *, width: int, colour: bool) -> list[str]:
    """Returns what was not stored although that was asked for, and no failure tells: that is said with -q too."""
    text = unstored([result for result in record.results if not result.standing.fails]) if record.asked.update else ""
    return note_lines(text, indent=0, width=width, colour=colour) if text else []


def _brief_foot(record: SessionRecord, under: _Under, lines: Sequence[str], *, width: int) -> list[str]:
    """Returns what holds for all tests: reasons, a busy machine, how to read the lines, what to do next."""
    results = record.results
    found = reason_lines(sorted(under.common), indent=0, width=width, colour=under.colour)
    limited = [] if under.one_limit is None else [limited_by(under.one_limit)]
    notes = [*limited, *dict.fromkeys(map(traced_text, results)), _busy(results), _reconnects(results)]
    notes += [*_by_figures_only(result for result in results if not _is_told(result, under.told)), *hints(results)]
    if any(" ~" in line for line in lines) and not all(result.smoke for result in results):
        notes.append("~ fewer requests than the percentile needs")
    notes.append(_brackets(record))
    notes += [f"no test has a parameter {plain(name)} to group by" for name in record.unknown_params]
    for note in filter(None, notes):
        found += note_lines(note, indent=0, width=width, colour=under.colour)
    return found


def _busy(results: Sequence[Result]) -> str:
    """Returns the sentence about a busy machine, by the test that it hit most; empty where it was quiet."""
    hit = [result for result in results if busy_text(result) and not result.test.own]
    if not hit:
        return ""
    worst = max(hit, key=lambda result: max(result.measurement.busy.server, result.measurement.busy.generator))
    others = [result for result in hit if result is not worst]
    return f"{busy_text(worst)} in {_first_of([plain(result.test.title) for result in (worst, *others)])}"


def _reconnects(results: Sequence[Result]) -> str:
    """Returns how often a server closed connections, by the first test in which it did; empty if none did."""
    told = {plain(result.test.title): reconnect_text(result.measurement) for result in results if not result.test.own}
    hit = [title for title, text in told.items() if text]
    return f"{told[hit[0]]} in {_first_of(hit)}" if hit else ""


def _by_figures_only(results: Iterable[Result]) -> list[str]:
    """Returns a sentence for each reason why only stored figures compare, with the tests where no other line says it.

    It is a weaker gate than was asked for, also where it is PASS.
    """
    tests: dict[str, list[str]] = {}
    for result in results:
        code = code_text(result.verdict, with_title=True)
        if code.startswith(FIGURES_ONLY) and not _says_stored(code):
            tests.setdefault(code.removeprefix(FIGURES_ONLY), []).append(plain(result.test.title))
    return [f"only stored figures compare in {_first_of(titles)}: {why}" for why, titles in tests.items()]


def _first_of(titles: Sequence[str]) -> str:
    """Returns `test_upload (and in 2 other tests)`."""
    return titles[0] + (f" (and in {format_count(len(titles) - 1, 'other test')})" if titles[1:] else "")


def _brackets(record: SessionRecord) -> str:
    """Returns what the figures in brackets are; empty where there are none."""
    gates = [item for result in record.results for item in compared(result) if item.outcome is not Outcome.PASS]
    levels = {item.confidence for item in gates if item.low is not None}
    texts = []
    if levels:
        level = levels.pop()
        texts.append("change" if levels or level is None else f"change, at {100 * level:.4g} % confidence")
    if record.groups:
        texts.append(f"of best, at {100 * record.groups[0].ranking.confidence:.4g} % for a whole group")
    return f"[in brackets]: the interval of a {'; '.join(texts)}" if texts else ""


# --- terminal

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


# --- All that a session says on the terminal: its results, other failures, and lines about the whole of it


def session_text(record: SessionRecord, *, width: int = 80, colour: bool = False, verbosity: int = 0) -> str:
    """Returns the text, with arguments as those of `terminal_report`; the lines about the session are not wrapped."""
    said = "".join(f"{line}\n" for line in (*failed_lines(record.failed), *record.said))
    return terminal_report(record, width=width, colour=colour, verbosity=verbosity) + said


# --- The lines about baselines whose tests are gone: which ones, why, and what to do or what was done

_SHOWN = 10
"""Entries listed without `-v`: more would push the results off the screen."""


def stale_lines(
    stale: Sequence[Stale], *, entries: int, removed: bool, width: int, colour: bool, verbosity: int = 0
) -> list[str]:
    """Returns a heading and a line for each; with `-q` the heading alone. `entries` counts all machine profiles'."""
    counted = format_count(entries, "stale baseline")
    if removed:
        text, style = f"removed {counted}", Style.NONE
    else:
        text, style = f"{counted}; --fileperf-prune removes {'it' if entries == 1 else 'them'}", Style.WARNING
    lines = flow(words(text, style), width=width, indent=0, hanging=2, gap=1, colour=colour)
    if verbosity < 0:
        return lines
    shown = stale if verbosity > 0 else stale[:_SHOWN]
    texts = [f"{plain(item.key)}: {item.why}" for item in shown]
    if len(shown) < len(stale):
        texts.append(f"and of {len(stale) - len(shown)} more (-v shows all)")
    return [*lines, *(line for text in texts for line in note_lines(text, indent=2, width=width, colour=colour))]
