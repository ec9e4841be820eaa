"""INCONCLUSIVE as pytest's own report category: its letter, its count, and its lines in the short test summary."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.plugin.measuring import OUTCOME_PROPERTY

if TYPE_CHECKING:
    from pytest_fileperf.judge.result import Result

__all__ = ("UndecidedTests",)

CATEGORY = "inconclusive"
_PASSED = "passed"
_LISTED = {"f": "failed", "E": "error", "x": "xfailed", "X": "xpassed", "s": "skipped", "p": "passed"}
"""The characters of pytest's option -r that make lines in its short test summary, with what they list."""


class UndecidedTests:
    """Tests that passed, and of which a measurement shows nothing. It is registered as a plugin."""

    def __init__(self, results: Callable[[], Sequence[Result]]) -> None:
        """`results` returns every measurement of the session, once the session has ended."""
        self._results = results

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        """Returns a category of its own for such a test; what other plugins say of all others stays."""
        status = yield
        category, *_ = status
        if category == _PASSED and isinstance(report, pytest.TestReport) and _is_undecided(report):
            return CATEGORY, "I", (CATEGORY.upper(), {"yellow": True})
        return status

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Prints a line for each such test below pytest's own short test summary, which comes last of all."""
        yield
        config, reports = terminalreporter.config, terminalreporter.stats.get(CATEGORY, [])
        listed = [_LISTED[char] for char in terminalreporter.reportchars if char in _LISTED]
        # With -r N or --no-summary pytest lists no failures either.
        if not reports or not listed or config.getoption("no_summary", default=False):
            return
        from pytest_fileperf.report.undecided import undecided_lines

        if not any(terminalreporter.stats.get(category) for category in listed):
            terminalreporter.write_sep("=", "short test summary info", cyan=True, bold=True)
        writer, by_test = config.get_terminal_writer(), self._by_test()
        for report in reports:
            nodeid = str(config.cwd_relative_nodeid(report.nodeid))
            own = by_test.get(report.nodeid, {}).values()
            for line in undecided_lines(nodeid, own, width=writer.fullwidth, colour=writer.hasmarkup):
                terminalreporter.write_line(line)

    def _by_test(self) -> dict[str, dict[str, Result]]:
        """Returns the measurements of each test by their node id: of one that ran again, the last ones."""
        found: dict[str, dict[str, Result]] = {}
        for result in self._results():
            test = result.test
            found.setdefault(test.nodeid.removesuffix(test.further), {})[test.nodeid] = result
        return found


def _is_undecided(report: pytest.TestReport) -> bool:
    # The properties are all that a report brings from another process. A test that ran again has them twice.
    standings = {name: value for name, value in report.user_properties if str(name).startswith(OUTCOME_PROPERTY)}
    if not standings:
        return False
    from pytest_fileperf.judge.result import Standing

    return any(standing.is_undecided for standing in Standing if standing.value in standings.values())
