"""Chooses the facts that reports show, their order and their urgency. Each report only decides how the facts look.

`wording` has sentences about verdicts, and `remarks` has sentences about how figures came to be.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import MetricComparison, Note, NoteKind, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report import remarks, wording
from pytest_fileperf.report.text import Style, plain, shorten, words
from pytest_fileperf.units import format_count, format_names, format_share

STYLES: Mapping[str, Style] = {
    Standing.PASS: Style.GOOD,
    Standing.IMPROVED: Style.GOOD,
    Standing.REGRESSED: Style.BAD,
    Standing.LIMIT: Style.BAD,
    Standing.FAILED: Style.BAD,
    Standing.ACCEPTED: Style.NEWS,
    Standing.INCONCLUSIVE: Style.WARNING,
    Standing.SATURATED: Style.WARNING,
    Standing.NEW: Style.NEWS,
    Standing.UNGATED: Style.NONE,
    Outcome.WATCHED: Style.NONE,
}
"""The style for each standing (a test's result in one word). Outcomes with the same name have the same style."""
_WORST_FIRST = (Standing.REGRESSED, Standing.LIMIT, Standing.FAILED)
_UNSAID = (ReasonKind.NO_BASELINE, ReasonKind.SAME_CODE)
"""Short reports omit these reasons, because the outcome, or a hint at the end, already says them."""
_ALWAYS_TOLD = (NoteKind.SET_BY_TEST, NoteKind.ELSEWHERE, NoteKind.CHANGED_MEANWHILE)
_OF_FIGURES = (
    NoteKind.NEVER_CONFIRMED,
    NoteKind.FIGURES_ONLY,
    NoteKind.FILES_CHANGED,
    NoteKind.ROUGHLY_KNOWN,
    NoteKind.PROVISIONAL,
    NoteKind.NO_CODE_STORED,
)
_T = TypeVar("_T")


# --- Which results somebody should look at first


def urgency(result: Result) -> int:
    """Returns a number to sort results by: smaller is more urgent."""
    standing = result.standing
    if standing.fails:
        return _WORST_FIRST.index(standing)
    return len(_WORST_FIRST) + (not standing.is_undecided)


def is_pressing(result: Result) -> bool:
    """Whether somebody must look at the result: it fails, is undecided, was accepted, or is new."""
    standing = result.standing
    is_new = standing is Standing.NEW and not result.baseline_written
    return standing.fails or standing.is_undecided or standing is Standing.ACCEPTED or is_new


def pressing(results: Iterable[Result]) -> list[Result]:
    """Returns the results that somebody must look at: failed ones, then undecided, then accepted and new ones."""
    found = filter(is_pressing, results)
    return sorted(found, key=lambda result: (not result.standing.fails, not result.standing.is_undecided))


def is_notable(limit: Limit) -> bool:
    """Whether reports mention what limited the load. The server's CPU and the rate asked for are expected."""
    return limit.kind not in (LimitKind.SERVER_CPU, LimitKind.RATE, LimitKind.UNCLEAR)


def is_limited_elsewhere(result: Result) -> bool:
    """Whether a test's load has a notable limit. False if the test's figures cannot show its limit."""
    run = result.measurement
    is_other = result.smoke or result.capacity or result.test.own or run.saturated or not run.requests
    return not is_other and is_notable(run.limit)


# --- The gates and the environment


def compared(result: Result) -> tuple[MetricComparison, ...]:
    return tuple(
        item
        for item in result.verdict.comparisons
        if item.base is not None and item.now is not None and not wording.is_same_code(item)
    )


def is_world_to_blame(verdict: Verdict) -> bool:
    """Whether the environment got slower, and no gate's reason already says so."""
    is_slower = wording.world_outcome(verdict) is Outcome.REGRESSED
    return is_slower and not any(map(wording.is_by_environment, verdict.comparisons))


def is_world_notable(verdict: Verdict) -> bool:
    """Whether short reports mention that the environment got slower, or may have."""
    outcome = wording.world_outcome(verdict)
    if any(map(wording.is_by_environment, verdict.comparisons)):
        return False
    changed = any(item.outcome is outcome and wording.changes_of(item) for item in verdict.world)
    return outcome is Outcome.REGRESSED or (outcome is Outcome.INCONCLUSIVE and changed)


def untold_code(verdict: Verdict) -> tuple[Note, ...]:
    """Returns the notes about a baseline's code, unless a gate's reason already says the same."""
    told = {comparison.reason.text for comparison in verdict.comparisons if comparison.reason is not None}
    return () if any(note.why_no_code in told - {""} for note in verdict.code_notes) else verdict.code_notes


# --- Texts about one result


Why: TypeAlias = tuple[Outcome, str, tuple[str, ...]]
"""(outcome, text, metrics). The text has these metrics and the reason that they share."""


def reasons(result: Result, *, but: Collection[ReasonKind] = ()) -> tuple[Why, ...]:
    """Returns the reasons for outcomes, except the kinds in `but`. Metrics with equal reasons share one text."""
    groups: dict[tuple[Outcome, str], list[MetricComparison]] = {}
    for comparison in result.verdict.comparisons:
        why, remedied = comparison.reason, comparison.outcome is Outcome.NEW and result.baseline_written
        if why is not None and why.kind not in but and not remedied:
            unfit = _unfit_reason(result) if why.kind in wording.NO_BASELINE else ""
            groups.setdefault((comparison.outcome, unfit or plain(wording.sentence(why))), []).append(comparison)
    found: list[Why] = []
    for (outcome, reason), members in groups.items():
        metrics = tuple(member.metric for member in members)
        # Metrics with a smallest visible change that the reason does not state.
        unsaid = [
            item
            for item in members
            if outcome is Outcome.INCONCLUSIVE
            and item.reason is not None
            and item.change is not None
            and item.detectable is not None
            and format_share(item.detectable) != format_share(item.reason.share)
        ]
        if unsaid:
            reason = plain(wording.sentence(unsaid[0].reason, seen=wording.would_show(unsaid)))
        found.append((outcome, f"{', '.join(metrics)}: {reason}", metrics))
    return tuple(found)


def _unfit_reason(result: Result) -> str:
    """Returns why a result did not become a baseline, or cannot."""
    if result.not_stored:
        return f"no baseline yet, and nothing was stored: {plain(result.not_stored)}"
    if not (unfit := _unfit(result)):
        return ""
    anyway = "" if result.never_fit else ". To store it anyway, use --fileperf-update=all"
    return f"no baseline yet, and {unfit} cannot become one{anyway}"


def _unfit(result: Result) -> str:
    return "" if result.is_provisional else result.unfit


def brief_reasons(result: Result) -> list[Why]:
    # If another version is compared, even a PASS may need its reason: the code is the same.
    if result.verdict.against and not result.verdict.code_notes:
        return list(reasons(result, but=_UNSAID[:1]))
    return [why for why in reasons(result, but=_UNSAID) if why[0] is not Outcome.PASS]


def undecided_texts(result: Result) -> Sequence[str]:
    if not result.standing.is_undecided:
        return ()
    further = f" ({result.test.further})" * bool(result.test.further)
    if result.lost:
        return (f"{wording.lost_text(result)}{further}",)
    if result.measurement.saturated:
        return (f"the load generator was saturated, so the figures show its speed{further}",)
    undecided = [item for item in result.verdict.comparisons if item.outcome is Outcome.INCONCLUSIVE]
    unknown: dict[str, list[str]] = {}
    for item in undecided:
        if item.change is None:
            # The table has the details and the remedy.
            why = wording.brief_sentence(item.reason) or "nothing to compare"
            unknown.setdefault(why, []).append(item.metric)
    return (
        *(wording.figures_text(item, sides=False) + further for item in undecided if item.change is not None),
        *(f"{', '.join(metrics)}: {why}{further}" for why, metrics in unknown.items()),
    )


def pressing_texts(result: Result) -> Sequence[str]:
    """Returns why somebody must look at a result: losses, failures, undecided metrics, or no baseline."""
    if result.standing.is_undecided:
        return undecided_texts(result)
    if result.standing is Standing.NEW:
        return [text for _, text, _ in reasons(result)]
    worse = [item for item in result.verdict.comparisons if item.outcome is Outcome.REGRESSED]
    texts = [*map(wording.figures_text, worse), *map(wording.limit_text, result.verdict.broken)]
    if kinds := result.measurement.error_kinds:
        texts.append(f"failed requests: {', '.join(f'{count:,} × {kind}' for kind, count in kinds.items())}")
    return texts if result.explanation is None else [*texts, *result.explanation.text.splitlines()]


def telling(result: Result) -> list[str]:
    """Returns everything to know about a result besides its figures. The most important text is first."""
    world = wording.world_text(result.verdict)
    said = [f"environment: {world}"] if world else []
    said += map(wording.noise_text, result.noise)
    said += (f"{outcome.value} {text}" for outcome, text, _ in reasons(result))
    unsure = (check for check in result.verdict.broken if check.reason)
    said += (f"{check.name}: {plain(wording.sentence(check.reason))}" for check in unsure)
    run = result.measurement
    if run.events.count and not result.smoke:
        said.append("; ".join(remarks.event_texts(run)))
    said += remarks.query_texts(run)
    if run.requests and not result.smoke:
        said.append(wording.limiting_text(result))
    return [*said, *notes(result)]


def setting(result: Result) -> tuple[str, ...]:
    """Returns the texts about a test's server and load. A session's tests often share these texts."""
    verdict = result.verdict
    # For a stored baseline, the notes say which code was measured.
    against = f"against {verdict.against}" if verdict.against and not verdict.code_notes else ""
    found = (against, result.server, result.load, remarks.stabilised_text(result.recording))
    return tuple(plain(text) for text in found if text)


def findings(result: Result) -> tuple[str, ...]:
    """Returns the most important notes, which are also in the message of a failed test."""
    if result.smoke:
        return ()
    told = (
        *map(remarks.other_answers_text, result.other_answers),
        *remarks.warm_up_texts(result),
        *remarks.restart_texts(result),
        remarks.drift_text(result),
        *remarks.memory_texts(result),
    )
    return tuple(filter(None, told))


def notes(result: Result) -> tuple[str, ...]:
    """Returns all notes on how the figures were made, as sentences without a full stop."""
    recording = result.recording
    shared_cores = recording.engine != "in-process" and not recording.pinned and not result.smoke
    told = (
        *findings(result),
        *remarks.breach_texts(result.measurement),
        remarks.capacity_text(result),
        remarks.saturated_text(result),
        remarks.law_text(result),
        *map(wording.typical_text, result.verdict.comparisons),
        remarks.iterations_text(result),
        remarks.slow_text(result),
        wording.lost_text(result) if result.lost else "",
        *map(wording.note_text, result.notes),
        remarks.engine_text(recording),
        wording.COUNTING if result.measurement.server.queries is not None else "",
        "server and load generator shared cores" * shared_cores,
        remarks.unstabilised_text(recording),
        remarks.processes_text(result),
        remarks.one_core_text(result),
        *remarks.growth_texts(result),
        *remarks.release_texts(result),
        remarks.traced_text(result),
        remarks.busy_text(result),
        remarks.left_text(result),
        remarks.background_text(result),
        plain(wording.notes_text(untold_code(result.verdict))),
        "stored as the new baseline" * result.baseline_written,
        _not_stored_text(result),
    )
    return tuple(text for text in dict.fromkeys(told) if text)


def brief_notes(result: Result) -> list[str]:
    code = untold_code(result.verdict)
    # If a test's code or files are not in Git, only stored figures are compared. This may concern only this test.
    is_told = any(note.kind in (NoteKind.NO_CODE_STORED, NoteKind.FILES_CHANGED) for note in code)
    is_well = result.standing in (Standing.PASS, Standing.IMPROVED, Standing.UNGATED)
    told = (
        *findings(result),
        plain(result.recording.why_engine) if result.recording.engine == "http2" and not result.test.own else "",
        remarks.capacity_text(result),
        remarks.saturated_text(result),
        remarks.iterations_text(result),
        remarks.slow_text(result),
        remarks.processes_text(result),
        remarks.one_core_text(result),
        remarks.left_text(result),
        *remarks.growth_texts(result),
        *remarks.release_texts(result, only_losses=True),
        *(wording.note_text(note) for note in result.notes if note.kind in _ALWAYS_TOLD),
        "" if is_well else remarks.background_text(result),
        *(plain(wording.note_text(note)) for note in code if is_told and note.kind in _OF_FIGURES),
        _not_stored_text(result),
    )
    return [text for text in told if text]


def _not_stored_text(result: Result) -> str:
    said = any(item.reason and item.reason.kind in wording.NO_BASELINE for item in result.verdict.comparisons)
    return f"nothing was stored: {plain(result.not_stored)}" if result.not_stored and not said else ""


def surest_cause(result: Result) -> str:
    """Returns a cause that was counted, not sampled; else an empty text."""
    return remarks.new_reconnect_text(result)


def why_failed(result: Result) -> list[str]:
    """Returns the lines below the table in a failed test's message. The most important line is first."""
    verdict, run = result.verdict, result.measurement
    explained = None if result.explanation is None else result.explanation.limit
    told = [
        *(text for outcome, text, _ in reasons(result) if outcome not in (Outcome.PASS, Outcome.IMPROVED)),
        *_by_sentence((check.name, check.reason) for check in verdict.limits),
        f"environment: {wording.world_text(verdict)}" if is_world_to_blame(verdict) else "",
        "" if run.limit.kind is explained else wording.limiting_text(result) if is_notable(run.limit) else "",
        *map(wording.typical_text, verdict.comparisons),
        # Against another version, the first note is left out: the message already begins with this title.
        plain(wording.notes_text(untold_code(verdict)[bool(verdict.against) :])),
        result.lost,
        remarks.capacity_text(result),
        wording.sentence(Reason(kind=ReasonKind.SATURATED)) if run.saturated and not verdict.comparisons else "",
        str(result.background or ""),
        *findings(result),
    ]
    return [text for text in dict.fromkeys(told) if text]


def next_step(result: Result) -> str:
    """Returns what to do if the code is slower than its baseline; else an empty text."""
    verdict = result.verdict
    worse = (item for item in verdict.comparisons if item.outcome is Outcome.REGRESSED)
    is_worse = not all(map(wording.is_by_environment, worse))
    is_stored = bool(verdict.code_notes or not verdict.against)
    return "If this is intended, accept it with --fileperf-update=all" if is_worse and is_stored else ""


def _by_sentence(found: Iterable[tuple[str, Reason | None]]) -> list[str]:
    """Returns a line for each reason, which begins with the names that share it: `rps, p99: too noisy`."""
    names: dict[str, list[str]] = {}
    for name, reason in found:
        names.setdefault(wording.sentence(reason), []).append(name)
    return [f"{', '.join(dict.fromkeys(sharing))}: {text}" for text, sharing in names.items() if text]


def first_failures(failures: Sequence[Failure], *, in_full: bool = False) -> tuple[list[tuple[Failure, str]], str]:
    """Returns the three most frequent kinds of failures, each with an example, and a text that counts the others.

    An example is empty if it only repeats the kind. With `in_full`, returns all kinds and whole examples.
    """
    most, cells = (len(failures), sys.maxsize) if in_full else (3, 160)
    examples = (plain(failure.example) for failure in failures[:most])
    shown = [
        (failure, "" if example == failure.kind else shorten(example, cells))
        for failure, example in zip(failures, examples, strict=False)
    ]
    return shown, wording.other_kinds(failures[most:]) if failures[most:] else ""


def shared(results: Sequence[Result], pick: Callable[[Result], Sequence[_T]]) -> tuple[_T, ...]:
    first, *others = [pick(result) for result in results]
    return tuple(item for item in first if all(item in other for other in others))


# --- Texts that several tests share


def of_session(results: Sequence[Result]) -> Iterator[str]:
    """Yields facts about the whole session, such as a busy machine."""
    yield from filter(None, dict.fromkeys(map(remarks.traced_text, results)))
    whole = [result for result in results if not result.test.own]
    if any(remarks.query_texts(result.measurement) for result in whole):
        yield wording.COUNTING
    if busy := [result for result in whole if remarks.busy_text(result)]:
        busy.sort(key=lambda result: -max(result.measurement.busy.server, result.measurement.busy.generator))
        yield f"{remarks.busy_text(busy[0])}, in {_first_of([plain(result.test.title) for result in busy])}"
    told = {plain(result.test.title): remarks.reconnect_text(result.measurement) for result in whole}
    if closed := [title for title, text in told.items() if text]:
        yield f"{told[closed[0]]}, in {_first_of(closed)}"


def by_figures_only(results: Iterable[Result]) -> list[str]:
    """Returns why tests were compared only with stored figures: a weaker comparison than the user wanted."""
    tests: dict[str, list[str]] = {}
    for result in results:
        code = untold_code(result.verdict)
        kinds = [note.kind for note in code]
        if kinds[:1] == [NoteKind.FIGURES_ONLY] and NoteKind.NO_CODE_STORED not in kinds:
            why = "; ".join((code[0].why_no_code, *map(wording.note_text, code[1:])))
            tests.setdefault(plain(why), []).append(plain(result.test.title))
    return [f"compared with stored figures only, in {_first_of(titles)}: {why}" for why, titles in tests.items()]


def _first_of(titles: Sequence[str]) -> str:
    """Returns the first title and the number of others: `test_upload (and in 2 other tests)`."""
    return titles[0] + (f" (and in {format_count(len(titles) - 1, 'other test')})" if titles[1:] else "")


# --- A ranked group: how much its order says

OUTSIDE = (LimitKind.GENERATOR, LimitKind.JOURNEY, LimitKind.NETWORK)
"""Kinds of limits outside the server."""


def rank_notes(group: RankedGroup, said: LimitKind | None, *, in_table: bool) -> list[str]:
    """Returns why a group's order may say little, and its tests' limits.

    Leaves out the limit `said`. With `in_table`, also leaves out limits in the server, because the table shows them.
    """
    if group.metric == "p50":
        return ["ranked by p50, because all reached the rate that was asked for"]
    found = []
    kinds = [result.measurement.limit.kind for result, _ in group.ordered() if result.measurement.requests]
    for kind, count in Counter(kinds).items():
        which = "all" if count == len(kinds) else f"{count} of {len(kinds)}"
        if kind in OUTSIDE:
            found.append(f"{which} limited by {kind}: the server could do more")
        elif kind is LimitKind.RATE:
            found.append(f"{which} reached the rate that was asked for: the server could do more")
        elif kind is not said and not in_table:
            found.append(wording.limited_by(kind, which))
    return found


# --- How many measurements have which outcome, and what to do next


def summary_line(record: SessionRecord) -> str:
    """Returns `3 measured: 2 PASS, 1 NEW; store new baselines with --fileperf-update=new`."""
    return " ".join(text for text, _ in summary_pieces(record))


def summary_pieces(record: SessionRecord) -> list[tuple[str, Style]]:
    """Returns the text of `summary_line` in pieces, each with its style."""
    results, otherwise = record.results, wording.failed_count(record)
    if all(result.smoke for result in results):
        bad = sum(result.standing.fails for result in results)
        head = f"{len(results)} measured{f', {bad} FAILED' * bool(bad)}" if results else "no measurement"
        said = (head, otherwise, "smoke run: a few requests each, no verdicts" * bool(results))
        return words("; ".join(filter(None, said)), Style.BAD if bad or record.failed else Style.NONE)
    *others, (last, style) = [(counted, STYLES[standing]) for standing, counted in counts(results)]
    rest = "; ".join(filter(None, (otherwise, *hints(results))))
    pieces = [(f"{len(results)} measured:", Style.BOLD), *((text + ",", each) for text, each in others)]
    return [*pieces, (last + ";", style), *words(rest)] if rest else [*pieces, (last, style)]


def outcome_sentence(record: SessionRecord) -> str:
    """Returns how many tests have each outcome: `1 test got worse, 2 passed.`."""
    found = Counter(result.standing for result in record.results)
    noun = "measurement" if any(result.test.further for result in record.results) else "test"
    order = sorted(found, key=list(wording.DONE).index)
    texts = [
        f"{found[each] if at else format_count(found[each], noun)} {wording.DONE[each]}"
        for at, each in enumerate(order)
    ]
    others = wording.failed_count(record)
    return f"{', '.join(texts) or 'Nothing was measured'}{f'; {others}' * bool(others)}."


def counts(results: Iterable[Result]) -> list[tuple[Standing, str]]:
    found = Counter(result.standing for result in results)
    return [(each, f"{found[each]} {wording.word_of(each)}") for each in Standing if found[each]]


def hints(results: Sequence[Result]) -> list[str]:
    """Returns how many baselines were stored, how many were not, and how to store missing baselines."""
    written = sum(result.baseline_written for result in results)
    # The parts and steps of a load are stored with the whole load.
    unfit = {result.test.nodeid for result in results if _unfit(result) and not result.test.own}
    missing = any(
        _is_new(result)
        and not (_unfit(result) or result.not_stored)
        and result.test.nodeid.removesuffix(f"#{result.test.own}") not in unfit
        for result in results
    )
    told = (
        f"{format_count(written, 'baseline')} stored" if written else "",
        unstored(results),
        "store new baselines with --fileperf-update=new" if missing else "",
    )
    return [text for text in told if text]


def endpoint_texts(record: SessionRecord, *, most: int = 5) -> list[str]:
    """Returns a text for each app: how many endpoints have a load test. Names up to `most` other endpoints."""
    texts = []
    for app, found in record.endpoints.items():
        left = sorted((name for name in found if not found[name]), key=lambda name: name.partition(" ")[::-1])
        have = "has" if len(found) == 1 else "have"
        text = f"{sum(found.values())} of {format_count(len(found), 'endpoint')} {have} a load test"
        text += f"; not covered: {format_names(left, most=most)}" * bool(left)
        texts.append(plain(f"{app}: {text}" if len(record.endpoints) > 1 else text))
    return texts


def unstored(results: Sequence[Result]) -> str:
    """Returns how many measurements did not or cannot become a baseline, and why."""
    why = [result.not_stored for result in results if result.not_stored]
    unfit = [_unfit(result) for result in results if not result.not_stored and _is_new(result) and _unfit(result)]
    found = [f"{format_count(len(why), 'measurement')} not stored: {'; '.join(dict.fromkeys(why))}"] * bool(why)
    count = format_count(len(unfit), "measurement")
    found += [f"{count} cannot become a baseline: {', '.join(dict.fromkeys(unfit))}"] * bool(unfit)
    return "; ".join(found)


def _is_new(result: Result) -> bool:
    is_stored = result.baseline_written or result.verdict.against
    return not is_stored and any(item.outcome is Outcome.NEW for item in result.verdict.comparisons)
