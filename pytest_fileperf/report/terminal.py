"""The results on the terminal: without -v in short, with -v every figure.

Without -v, each test has a line. Below it, each gate that is not PASS has a line. Messages of failed tests are not
repeated.

    test_upload    2,050/s  p99 31.0 ms  REGRESSED
      rps  2,190/s → 2,050/s  −6.4 % [−8.1, −4.7]  tolerance 5 %  REGRESSED
    test_download  3,011/s  p99 18.0 ms  PASS

With -v, tables have a row for each measurement, with its notes below.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.report import remarks, story, wording
from pytest_fileperf.report.figures import figure_lines, load_texts
from pytest_fileperf.report.table import (
    LEAST_NAME_CELLS,
    RUN_METRICS,
    Column,
    group_lines,
    member_names,
    metric_column,
    metric_text,
    outcome_column,
    row_names,
    table_lines,
    table_of,
)
from pytest_fileperf.report.text import INDENT, Screen, Style, cells, pad, plain
from pytest_fileperf.units import format_count

_FEW_NOTE = "~ too few requests for this percentile"
_LEAST_CELLS = 40
"""The least width of tables with every figure. On a narrower terminal their lines are too long."""


def session_text(record: SessionRecord, screen: Screen, *, verbosity: int = 0) -> str:
    screen = replace(screen, width=max(screen.width, _LEAST_CELLS))
    lines = report_lines(record, screen, verbosity=verbosity)[0] if record.results else []
    return "".join(f"{line}\n" for line in (*lines, *wording.failed_lines(record.failed), *record.said))


def report_lines(
    record: SessionRecord, screen: Screen, *, verbosity: int = 0, told: Collection[str] = ()
) -> tuple[list[str], bool]:
    """Returns the report's lines, and whether all of these lines are tests' rows.

    If pytest's `verbosity` is 1 or more, the report is in full. `told` has the node ids of tests whose failure pytest
    has printed. The short report does not repeat these failures.
    """
    only_rows = False
    if verbosity < 1:
        lines, only_rows = _in_short(record, screen, told, quiet=verbosity < 0)
    else:
        lines = _in_full(record, replace(screen, width=max(screen.width, _LEAST_CELLS))) if record.results else []
    return [line.rstrip() for line in lines], only_rows


# --- The short report


def _in_short(record: SessionRecord, screen: Screen, told: Collection[str], *, quiet: bool) -> tuple[list[str], bool]:
    """Returns (the short report, whether all lines are tests' rows). With `quiet`, only failed tests have a row."""
    results, alone, groups = record.results, record.alone, record.groups
    if quiet:
        alone, groups = tuple(result for result in results if result.standing.fails), ()
    untold = [result for result in results if result.test.item not in told]
    # Facts that all tests share are shown once, at the end.
    common = set(story.shared(results, story.brief_reasons)) if len(results) > 1 and untold else set()
    limits = {result.measurement.limit.kind if story.is_limited_elsewhere(result) else None for result in results}
    one_limit = limits.pop() if len(results) > 1 and len(limits) == 1 else None

    def under(result: Result, screen: Screen, *, ranked: bool = False) -> list[str]:
        own = [reason for reason in story.brief_reasons(result) if reason not in common]
        lines = _briefly(result, screen, None if result.test.item in told else own)
        # The table of a ranked group shows what limited the load.
        if not ranked and not one_limit and story.is_limited_elsewhere(result):
            lines += screen.remarks([wording.limiting_text(result)], indent=INDENT)
        return lines

    lines = _rows(alone, under, screen)
    for group in groups:
        lines += [""] * bool(lines)
        lines += group_lines(group, partial(under, ranked=True), screen, said=None)
    if quiet:
        text = story.unstored([one for one in results if not one.standing.fails]) if record.asked.update else ""
        foot = screen.remarks([text] if text else [])
    else:
        said = [wording.limited_by(one_limit)] if one_limit else []
        said += [*story.of_session(results), *story.by_figures_only(untold), *story.hints(results)]
        if any(" ~" in line for line in lines) and not all(result.smoke for result in results):
            said.append(_FEW_NOTE)
        intervals = [_interval_text(gate for result in results for gate in _notable_gates(result))]
        if groups:
            sure = f"{100 * groups[0].confidence:.4g} %"
            intervals.append(
                f"{sure} intervals of `of best`; with this probability, all intervals of a group are right"
            )
        if any(intervals):
            said.append(f"[in brackets]: {'; '.join(filter(None, intervals))}")
        said += [*_unknown_params(record), *story.endpoint_texts(record)]
        foot = _reason_lines(sorted(common), screen) + screen.remarks(said)
    return [*lines, *foot], 0 < len(lines) == len(alone) and not foot


def _rows(results: Sequence[Result], under: Callable[[Result, Screen], list[str]], screen: Screen) -> list[str]:
    if not results:
        return []
    rates, tails = ([metric_text(name, result) for result in results] for name in ("rps", "p99"))
    p99 = tuple(text if text == "-" else f"p99 {text}" for text in tails)
    failed = tuple(f"{run.errors:,} failed" if (run := result.measurement).errors else "" for result in results)
    figures = [
        Column(texts=tuple(text if text == "-" else f"{text}/s" for text in rates), right=True),
        Column(texts=p99, right=True, least_name_cells=LEAST_NAME_CELLS),
    ]
    outcomes = [outcome_column(results, heading="")]
    if all(result.smoke for result in results):  # so few requests have no rate
        succeeded = tuple(f"{result.measurement.requests:,} succeeded" for result in results)
        figures = [Column(texts=succeeded, right=True)]
        if not any(result.standing.fails for result in results):
            outcomes = []
    if any(failed):
        figures.append(Column(texts=failed, right=True, least_name_cells=LEAST_NAME_CELLS))
    table = table_of(Column(texts=row_names(results)), [*figures, *outcomes], width=screen.width)
    _, *rows = table_lines(table, screen)
    return [line for row, result in zip(rows, results, strict=True) for line in (row, *under(result, screen))]


def _briefly(result: Result, screen: Screen, why: Sequence[story.Why] | None) -> list[str]:
    """Returns the lines below a test's row. `why` has the reasons, or is None if pytest has printed the failure."""
    gates, run = _notable_gates(result), result.measurement
    lines = [*_gate_lines(gates, screen), *_noise_lines(result, screen), *_limit_lines(result, screen)]
    if story.is_world_notable(result.verdict):
        lines += _world_lines(result, screen)
    if why is not None:
        lines += _explanation(result)
        lines += _failure_lines(result, screen)
        lines += _reason_lines(why, screen, indent=INDENT, above=gates)
    if not result.smoke:
        figures = [*remarks.event_texts(run), *remarks.query_texts(run)]
        lines += screen.flow([(text, Style.DIM) for text in figures], indent=INDENT)
        if run.open_loop and result.capacity is None:
            lines += screen.flow([(text, Style.DIM) for text in load_texts(run)], indent=INDENT)
    return lines + screen.remarks(story.brief_notes(result), indent=INDENT)


def _notable_gates(result: Result) -> list[MetricComparison]:
    return [item for item in story.compared(result) if item.outcome is not Outcome.PASS]


def _interval_text(gates: Iterable[MetricComparison]) -> str:
    """Returns `90 % interval of the change`, without the percentage if it varies."""
    levels = {item.confidence for item in gates if item.low is not None}
    if not levels:
        return ""
    level = levels.pop() if len(levels) == 1 else None
    sure = "" if level is None else f"{100 * level:.4g} % "
    return f"{sure}interval of the change"


def _unknown_params(record: SessionRecord) -> list[str]:
    return [f"cannot group by {plain(name)}: no test has this parameter" for name in record.unknown_params]


# --- The report in full


def _in_full(record: SessionRecord, screen: Screen) -> list[str]:
    results, groups = record.results, record.groups
    several = len(results) > 1
    # Facts that all results share are shown once.
    common = story.shared(results, story.setting)
    same_reasons = story.shared(results, story.reasons) if several else ()
    same_notes = story.shared(results, story.notes) if several else ()
    limits = {result.measurement.limit.kind for result in results if result.measurement.requests}
    one_limit = limits.pop() if several and len(limits) == 1 and not results[0].smoke else None

    def under(result: Result, screen: Screen) -> list[str]:
        gates = story.compared(result)
        lines = [*_gate_lines(gates, screen), *_world_lines(result, screen), *_noise_lines(result, screen)]
        lines += [*_explanation(result), *_limit_lines(result, screen)]
        lines += _failure_lines(result, screen, all_kinds=True)
        own = [reason for reason in story.reasons(result) if reason not in same_reasons]
        lines += _reason_lines(own, screen, indent=INDENT, above=gates)
        return lines + screen.remarks((note for note in story.notes(result) if note not in same_notes), indent=INDENT)

    lines = screen.flow([(text, Style.DIM) for text in common])
    if record.alone:
        names = Column(heading="test", texts=row_names(record.alone))
        heading, *rows = table_lines(table_of(names, _columns(record.alone), width=screen.width), screen)
        lines.append(heading)
        for at, (row, result) in enumerate(zip(rows, record.alone, strict=True)):
            lines += [*[""] * (at > 0), row, *under(result, screen), *figure_lines(result, screen, said=common)]
    for group in groups:
        lines += [""] * bool(lines)
        lines += group_lines(group, under, screen, said=one_limit)
        members = [result for result, _ in group.ordered()]
        for name, result in zip(member_names(members), members, strict=True):
            lines += ["", *screen.flow([(name, Style.BOLD)]), *figure_lines(result, screen, said=common)]
    foot = [*same_notes]
    if any(" ~" in line for line in lines):
        foot.append(_FEW_NOTE)
    if interval := _interval_text(gate for result in results for gate in story.compared(result)):
        foot.append(f"[in brackets]: {interval}")
    if groups:
        sure = f"{100 * groups[0].confidence:.4g} % confidence"
        foot.append(f"= means equal rank. With {sure}, all ranks and intervals of a group are right")
    foot += [*_unknown_params(record), *story.endpoint_texts(record, most=sys.maxsize)]
    lines += [""] * bool(groups)
    lines += _reason_lines(same_reasons, screen)
    lines += screen.remarks(foot)
    return lines + screen.flow(story.summary_pieces(record), gap=1)


def _columns(results: Sequence[Result]) -> list[Column]:
    # These are shown in this order, if there is room. A name longer than 48 cells is shortened to make room.
    names = ("throughput", "cpu_per_request", "rss", "startup", "queries")
    more = [metric_column(name, results, 48) for name in names]
    errors = tuple(f"{result.measurement.errors:,}" for result in results)
    return [
        *(metric_column(name, results, LEAST_NAME_CELLS) for name in RUN_METRICS),
        *(column for column in more if set(column.texts) != {"-"}),
        Column(heading="errors", texts=errors, right=True),
        outcome_column(results),
    ]


# --- Lines below a row: gates, the environment, limits, failures and reasons


def _gate_lines(comparisons: Sequence[MetricComparison], screen: Screen) -> list[str]:
    rows = [
        [
            item.metric,
            wording.sides_text(item),
            wording.change_and_interval(item),
            f"tolerance {text}" if (text := wording.tolerance_text(item)) else "",
            item.outcome.value,
        ]
        for item in comparisons
    ]
    sizes = [max((cells(row[column]) for row in rows), default=0) for column in range(5)]
    aligned = INDENT + sum(sizes) + 8 <= screen.width
    lines = []
    for row, comparison in zip(rows, comparisons, strict=True):
        if aligned:
            row = [pad(text, size) for text, size in zip(row[:4], sizes, strict=False)] + row[4:]
        styles = [Style.NONE] * 4 + [story.STYLES[comparison.outcome]]
        lines += screen.flow(zip(row, styles, strict=True), indent=INDENT)
    return [line.rstrip() for line in lines]


def _world_lines(result: Result, screen: Screen) -> list[str]:
    outcome = wording.world_outcome(result.verdict)
    if outcome is None:
        return []
    style = story.STYLES[outcome] if outcome in (Outcome.REGRESSED, Outcome.INCONCLUSIVE) else Style.DIM
    return screen.prose(wording.world_text(result.verdict), lead=[("environment:", style)], indent=INDENT)


def _noise_lines(result: Result, screen: Screen) -> list[str]:
    return [line for floor in result.noise for line in screen.prose(wording.noise_text(floor), indent=INDENT)]


def _explanation(result: Result) -> list[str]:
    return [] if result.explanation is None else [f"  {line}" for line in result.explanation.text.splitlines()]


def _limit_lines(result: Result, screen: Screen) -> list[str]:
    lines = []
    for check in result.verdict.broken:
        reason = f"; {plain(wording.sentence(check.reason))}" if check.reason else ""
        lead = [(Standing.LIMIT.value, story.STYLES[Standing.LIMIT])]
        lines += screen.prose(f"{wording.limit_text(check)}{reason}", lead=lead, indent=INDENT)
    return lines


def _failure_lines(result: Result, screen: Screen, *, all_kinds: bool = False) -> list[str]:
    """Returns the most frequent kinds of failed requests (or `all_kinds`), each with its first example."""
    failures = result.measurement.failures
    if result.measurement.requests == 0 and not failures:
        return screen.prose(wording.NO_REQUEST, lead=[("FAILED", Style.BAD)], indent=INDENT)
    shown, rest = story.first_failures(failures, in_full=all_kinds)
    lines = []
    for failure, example in shown:
        lead = [(f"{failure.count:,}× failed:", Style.BAD)]
        lines += screen.prose(f"{failure.kind}: {example}" if example else failure.kind, lead=lead, indent=INDENT)
    return lines + screen.prose(f"{rest} (-v shows all)", indent=INDENT) if rest else lines


def _reason_lines(
    found: Iterable[story.Why], screen: Screen, *, indent: int = 0, above: Iterable[MetricComparison] = ()
) -> list[str]:
    """Returns reasons as lines, each after its outcome. The gates `above` already show their outcomes."""
    shown = {comparison.metric for comparison in above}
    lines = []
    for outcome, text, metrics in found:
        lead = [] if shown.issuperset(metrics) else [(outcome.value, story.STYLES[outcome])]
        lines += screen.prose(text, lead=lead, indent=indent)
    return lines


# --- Lines for pytest's short test summary: undecided metrics
#
# INCONCLUSIVE tests/test_files.py::test_upload -
#   rps −4.0 % [−9.0, +1.0], tolerance 3 %


def undecided_lines(nodeid: str, results: Iterable[Result], screen: Screen) -> list[str]:
    found = [text for result in results for text in story.undecided_texts(result)]
    pieces = [(Outcome.INCONCLUSIVE.value, Style.WARNING), (plain(nodeid), Style.BOLD)]
    if found:
        pieces += [("-", Style.NONE), *((f"{text};", Style.NONE) for text in found[:-1]), (found[-1], Style.NONE)]
    return screen.flow(pieces, gap=1)


# --- Lines about baselines whose tests are gone: names, reasons, and how to remove them


def stale_lines(
    stale: Mapping[str, str], screen: Screen, *, entries: int, removed: bool, verbosity: int = 0
) -> list[str]:
    """Returns a heading, and a line for each stale baseline: its key, and why it is stale.

    `entries` counts stored entries: a baseline has an entry for each kind of machine.
    """
    counted = format_count(entries, "stale baseline")
    if removed:
        lines = screen.prose(f"removed {counted}")
    else:
        to_do = f"Remove {'it' if entries == 1 else 'them'} with --fileperf-prune"
        lines = screen.prose(f"{counted}. {to_do}", Style.WARNING)
    if verbosity < 0:
        return lines
    texts = [f"{plain(key)}: {why}" for key, why in stale.items()]
    if verbosity == 0 and len(texts) > 10:  # more would push the results off the screen
        texts = [*texts[:10], f"{len(texts) - 10} more (-v shows all)"]
    return lines + screen.remarks(texts, indent=INDENT)
