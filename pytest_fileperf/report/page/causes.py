"""Causes as markup: which functions made a test slower, what went wrong with requests, and with whole tests."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fileperf.judge.result import FailedTest, Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.report.details import other_kinds
from pytest_fileperf.report.failed import where_failed
from pytest_fileperf.report.page.gates import badge
from pytest_fileperf.report.page.markup import Markup, element
from pytest_fileperf.report.text import plain, shorten

__all__ = ("cause_items", "explanation", "failed_requests", "failed_section")

_MOST_FAILURES = 20
_EXAMPLE_LENGTH = 4_000
_MOST_IN_OVERVIEW = 3
_EXAMPLE_CELLS = 160
"""Of an example in the overview: the section of the test has more of it."""


def cause_items(result: Result) -> list[Markup]:
    """Returns what made a regressed test slower, and a line for each of the first kinds of failures: list items."""
    found = []
    if result.explanation is not None and result.verdict.outcome is Outcome.REGRESSED:
        found.append(element("li", element("b", _profiled(result)), element("pre", result.explanation.text)))
    failures = result.measurement.failures
    for failure in failures[:_MOST_IN_OVERVIEW]:
        example = plain(failure.example)
        said = f": {shorten(example, _EXAMPLE_CELLS, tail=0)}" if example and example != failure.kind else ""
        count = badge(Standing.FAILED, f"{failure.count:,} ×")
        found.append(element("li", count, " ", element("b", plain(failure.kind)), said))
    rest = failures[_MOST_IN_OVERVIEW:]
    return [*found, element("li", other_kinds(rest))] if rest else found


def explanation(result: Result) -> list[Markup]:
    """Returns what the profiler saw, under a heading; nothing where nobody looked."""
    if result.explanation is None:
        return []
    return [element("h4", _profiled(result)), element("pre", result.explanation.text)]


def _profiled(result: Result) -> str:
    """Returns what the profiler was asked: it compares where two versions were measured in turn."""
    return "What costs most CPU" if result.base is None else "What made it slower"


def failed_requests(result: Result) -> list[Markup]:
    """Returns each kind of failure with its first example, under a heading; nothing where every request succeeded."""
    failures = result.measurement.failures
    if not failures:
        return [element("p", badge(Standing.FAILED), " no request was made")] if not result.measurement.requests else []
    shown: list[Markup] = [element("h4", "Failed requests, with the first of each kind")]
    for failure in failures[:_MOST_FAILURES]:
        shown.append(
            element("p", badge(Standing.FAILED, f"{failure.count:,} ×"), " ", element("b", plain(failure.kind)))
        )
        example = failure.example.strip()
        if example and example != failure.kind:
            shown.append(element("pre", example[:_EXAMPLE_LENGTH] + "…" * (len(example) > _EXAMPLE_LENGTH)))
    rest = failures[_MOST_FAILURES:]
    if rest:
        shown.append(element("p", other_kinds(rest)))
    return shown


def failed_section(tests: Sequence[FailedTest]) -> Markup:
    """Returns the tests that failed for another reason than a figure, each with what it said; empty for none."""
    if not tests:
        return Markup("")
    shown = [part for test in tests for part in _failed(test)]
    return element("section", element("h2", "Tests that failed for another reason than a figure"), *shown, id="failed")


def _failed(test: FailedTest) -> list[Markup]:
    place = f"{test.module}:{test.line}" if test.line is not None else test.module
    title = element("p", badge(Standing.FAILED), " ", element("b", plain(test.name), class_="name"), " ")
    about = element("p", f"{plain(place)}: {where_failed(test)}", class_="quiet")
    return [title, about, element("pre", test.message)] if test.message else [title, about]
