"""The results on the terminal without -v: a line for each test, and one for each gate that is not PASS.

    test_upload    2,050/s  p99 31.0 ms  REGRESSED
      rps  −6.4 % [−8.1, −4.7]  2,190/s → 2,050/s  tolerance 5 %  REGRESSED
    test_download  3,011/s  p99 18.0 ms  PASS

What a failed test has told in its own message is not said again. Everything else is said with -v (`terminal`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.result import SAME_CODE, WHILE_MEASURED, Result, Standing
from pytest_fileperf.judge.verdict import Outcome, ReasonKind
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.report.breaches import reconnect_text
from pytest_fileperf.report.capacity import capacity_text
from pytest_fileperf.report.comparisons import (
    FIGURES_ONLY,
    code_text,
    compared,
    is_world_notable,
    not_stored_text,
    world_outcome,
)
from pytest_fileperf.report.counts import hints, unstored
from pytest_fileperf.report.details import (
    Why,
    busy_text,
    growth_texts,
    is_notable,
    iterations_text,
    left_text,
    one_core_text,
    processes_text,
    reasons,
    saturated_text,
    traced_text,
)
from pytest_fileperf.report.findings import findings
from pytest_fileperf.report.ranking_table import group_lines, limited_by
from pytest_fileperf.report.remarks import (
    event_lines,
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
from pytest_fileperf.report.table import LEAST_NAME_CELLS, Column, metric_text, outcome_column, row_names, table_of
from pytest_fileperf.report.text import plain
from pytest_fileperf.serve.running import SERVED_WITH
from pytest_fileperf.units import format_count

__all__ = ("Brief", "brief_report")

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
        common=_common(results, told), told=told, worlds=worlds, one_limit=_one_limit(results), colour=colour
    )
    lines, more = _rows(alone, under, width=width)
    for group in groups:
        lines += [""] * bool(lines)
        lines += group_lines(group, partial(under.of, ranked=True), said=None, width=width, colour=colour)
    foot = _unstored(record, width=width, colour=colour) if quiet else _foot(record, under, lines, width=width)
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


def _common(results: Sequence[Result], told: Collection[str]) -> frozenset[Why]:
    """Returns the reasons that all of several results have, unless their failures told them."""
    found = [frozenset(_reasons(result)) for result in results]
    if len(found) < 2 or all(_is_told(result, told) for result in results):
        return frozenset()
    return frozenset.intersection(*found)


def _unstored(record: SessionRecord, *, width: int, colour: bool) -> list[str]:
    """Returns what was not stored although that was asked for, and no failure tells: that is said with -q too."""
    text = unstored([result for result in record.results if not result.standing.fails]) if record.asked.update else ""
    return note_lines(text, indent=0, width=width, colour=colour) if text else []


def _foot(record: SessionRecord, under: _Under, lines: Sequence[str], *, width: int) -> list[str]:
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
