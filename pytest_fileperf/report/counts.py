"""How many measurements have which outcome, and what is to be done next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_fileperf.judge.result import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.report.comparisons import NOT_YOUR_CODE
from pytest_fileperf.report.details import STYLES, word_of
from pytest_fileperf.report.failed import failed_count
from pytest_fileperf.report.short_summary import slower_worlds
from pytest_fileperf.report.text import Style, words
from pytest_fileperf.units import format_count

__all__ = ("hints", "summary_line", "summary_pieces", "unstored")


def summary_line(results: Sequence[Result], failed: Sequence[FailedTest] = ()) -> str:
    """Returns the counts in a line: `3 measured: 2 PASS, 1 NEW; store baselines with --fileperf-update=new`."""
    return " ".join(text for text, _ in summary_pieces(results, failed))


def summary_pieces(results: Sequence[Result], failed: Sequence[FailedTest] = ()) -> list[tuple[str, Style]]:
    """Returns the pieces of that line, for `flow`."""
    otherwise = failed_count(failed, measured=bool(results))
    if not results:
        return words("; ".join(filter(None, ("nothing was measured", otherwise))), Style.BAD if failed else Style.NONE)
    if all(result.smoke for result in results):
        bad = sum(result.standing.fails for result in results)
        found = f", {bad} FAILED" if bad else ""
        said = (f"{len(results)} measured{found}", otherwise, "smoke: a few requests each, nothing judged")
        return words("; ".join(filter(None, said)), Style.BAD if bad or failed else Style.NONE)
    counts = Counter(result.standing for result in results)
    found_words = [(f"{counts[each]} {word_of(each)}", STYLES[each]) for each in Standing if counts[each]]
    pieces = [(f"{len(results)} measured:", Style.BOLD)]
    pieces += [(text + ",", style) for text, style in found_words[:-1]]
    slower = len(slower_worlds(results))
    world = f"{format_count(slower, 'slower world')}: {NOT_YOUR_CODE}" if slower else ""
    rest = list(filter(None, (otherwise, *_stored(results), world, _to_do(results))))
    last, style = found_words[-1]
    pieces.append((last + ";" * bool(rest), style))
    return [*pieces, *words("; ".join(rest))] if rest else pieces


def hints(results: Sequence[Result]) -> list[str]:
    """Returns what became of baselines, and how to store those that are missing."""
    return list(filter(None, (*_stored(results), _to_do(results))))


def _stored(results: Sequence[Result]) -> list[str]:
    found = []
    written = sum(result.baseline_written for result in results)
    if written:
        found.append(f"{format_count(written, 'baseline')} stored")
    return [*found, unstored(results)]


def unstored(results: Sequence[Result]) -> str:
    """Returns how many measurements did not become a baseline, or cannot, and why; empty where there are none."""
    why = [result.not_stored for result in results if result.not_stored]
    unfit = [result.unfit for result in results if result.unfit and not result.not_stored and _is_new(result)]
    found = [f"{len(why)} not stored: {'; '.join(dict.fromkeys(why))}"] * bool(why)
    found += [f"{len(unfit)} can be no baseline: {', '.join(dict.fromkeys(unfit))}"] * bool(unfit)
    return "; ".join(found)


def _to_do(results: Sequence[Result]) -> str:
    # Parts are stored with their whole.
    unfit = {result.test.nodeid for result in results if result.unfit and not result.test.part}
    missing = any(
        _is_new(result)
        and not (result.unfit or result.not_stored)
        and result.test.nodeid.removesuffix(f"#{result.test.part}") not in unfit
        for result in results
    )
    return "store baselines with --fileperf-update=new" if missing else ""


def _is_new(result: Result) -> bool:
    """Returns whether it lacks a baseline, and was not stored as one."""
    if result.baseline_written or result.verdict.against:
        return False
    return any(item.outcome is Outcome.NEW for item in result.verdict.comparisons)
