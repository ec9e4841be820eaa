"""Stores the baselines that a test has measured once all of the test has passed, its assertions and fixtures too."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.errors import FilePerfError, PerformanceError
from pytest_fileperf.plugin.measuring import OUTCOME_PROPERTY

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import Result

__all__ = ("ShortSummary", "Storing", "is_shown")


# --- What our verdicts add to pytest's own summary: categories with their counts, and lines with their figures
#
# A test that passed and of which a measurement shows nothing is INCONCLUSIVE. A world that got slower is none of a
# test's outcomes, as the code did not: it is counted beside them.

_SHOWN_PASSED = "passed"
_UNDECIDED = "inconclusive"
_SLOWER_WORLD = "slower world"
_LISTED = {"f": "failed", "E": "error", "x": "xfailed", "X": "xpassed", "s": "skipped", "p": "passed"}
"""The characters of pytest's option -r that make lines in its short test summary, with what they list."""


class ShortSummary:
    """Adds to pytest's summary. It is registered as a plugin."""

    def __init__(self, results: Callable[[], Sequence[Result]]) -> None:
        """`results` returns every measurement of the session, once the session has ended."""
        self._results = results

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        """Returns a category of its own for a test that decides nothing; what others say of all others stays."""
        status = yield
        category, *_ = status
        if category == _SHOWN_PASSED and isinstance(report, pytest.TestReport) and _is_undecided(report):
            return _UNDECIDED, "I", (_UNDECIDED.upper(), {"yellow": True})
        return status

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Lets the one line about a failure begin with figures, not with the name of an exception.

        pytest shows it in its short test summary, in full where `CI` is set, and in JUnit XML. Files of the project are
        named from its root directory, as the line may be cut.
        """
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and isinstance(error, (FilePerfError, PerformanceError)):
            from pytest_fileperf.report.message import headline

            text = headline(str(error)) if isinstance(error, PerformanceError) else str(error).split("\n")[0]
            crash.message = text.replace(f"{item.config.rootpath}{os.sep}", "")
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Prints our lines below pytest's own short test summary, which comes last of all."""
        yield
        config, stats = terminalreporter.config, terminalreporter.stats
        lines = [*self._undecided_lines(config, stats.get(_UNDECIDED, [])), *self._slower_world_lines(config, stats)]
        listed = _listed(terminalreporter)
        if not lines or not listed:
            return
        if not any(stats.get(category) for category in listed):
            terminalreporter.write_sep("=", "short test summary info", cyan=True, bold=True)
        for line in lines:
            terminalreporter.write_line(line)

    def _undecided_lines(self, config: pytest.Config, reports: Iterable[pytest.TestReport]) -> list[str]:
        by_test = self._by_test() if reports else {}
        lines = []
        for report in reports:
            from pytest_fileperf.report.story import undecided_lines

            writer, own = config.get_terminal_writer(), by_test.get(report.nodeid, {}).values()
            nodeid = _from_here(config, report.nodeid)
            lines += undecided_lines(nodeid, own, width=writer.fullwidth, colour=writer.hasmarkup)
        return lines

    def _slower_world_lines(self, config: pytest.Config, stats: dict[str, list[object]]) -> list[str]:
        """Returns a line for each measurement whose baseline's own code got slower, and counts them."""
        results = self._results()
        if not results:
            return []
        from pytest_fileperf.report.story import slower_world_lines, slower_worlds

        lines, slower = [], slower_worlds(results)
        for result in slower:
            writer, nodeid = config.get_terminal_writer(), _from_here(config, result.test.nodeid)
            lines += slower_world_lines(nodeid, result, width=writer.fullwidth, colour=writer.hasmarkup)
        if slower:
            stats.setdefault(_SLOWER_WORLD, []).extend(slower)
        return lines

    def _by_test(self) -> dict[str, dict[str, Result]]:
        """Returns the measurements of each test by their node id: of one that ran again, the last ones."""
        found: dict[str, dict[str, Result]] = {}
        for result in self._results():
            test = result.test
            found.setdefault(test.nodeid.removesuffix(test.further), {})[test.nodeid] = result
        return found


def is_shown(reporter: pytest.TerminalReporter) -> bool:
    """Returns whether there is a short test summary: with -r N or --no-summary pytest lists no failures either."""
    return bool(_listed(reporter))


def _listed(reporter: pytest.TerminalReporter) -> list[str]:
    if reporter.config.getoption("no_summary", default=False):
        return []
    return [_LISTED[char] for char in reporter.reportchars if char in _LISTED]


def _from_here(config: pytest.Config, nodeid: str) -> str:
    """Returns a node id as pytest shows it: relative to the current directory."""
    path, *rest = nodeid.split("::")
    with suppress(ValueError):  # Windows: another drive
        path = Path(os.path.relpath(config.rootpath / path, config.invocation_params.dir)).as_posix()
    return "::".join([path, *rest])


def _is_undecided(report: pytest.TestReport) -> bool:
    # The properties are all that a report brings from another process. A test that ran again has them twice.
    standings = {name: value for name, value in report.user_properties if str(name).startswith(OUTCOME_PROPERTY)}
    if not standings:
        return False
    from pytest_fileperf.judge.record import Standing

    return any(standing.is_undecided for standing in Standing if standing.value in standings.values())


# --- storing

_PASSED = pytest.StashKey[bool]()
"""Whether the test itself has passed; its fixtures are still to be torn down."""
Settle = Callable[[pytest.Item, bool], None]


class Storing:
    """Looks at how each test ends. It is registered as a plugin."""

    def __init__(self, settle: Settle) -> None:
        """`settle` takes a test and whether it passed; it raises FilePerfError."""
        self._settle = settle

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Notes whether the test has passed."""
        report = yield
        if call.when == "call":
            item.stash[_PASSED] = report.passed
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Stores after the fixtures were torn down, where nothing has failed. What cannot be stored is an error."""
        passed = False
        try:
            yield
            passed = item.stash.get(_PASSED, False)
        finally:
            item.stash[_PASSED] = False  # it may run again
            problem = ""
            try:
                self._settle(item, passed)
            except FilePerfError as error:
                problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)
