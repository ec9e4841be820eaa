"""Runs undecided (INCONCLUSIVE) tests again if `--fileperf-budget` has time left after the last test."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import pytest
from _pytest.runner import runtestprotocol

from pytest_fileperf.plugin.options import measures
from pytest_fileperf.session.budget import TimeBudget

if TYPE_CHECKING:
    from pytest_fileperf.plugin.active import Active


class Again:
    def __init__(self, active: Active, time: TimeBudget) -> None:
        self._active = active
        self._time = time
        self._to_come: set[str] = set()
        self._held: dict[pytest.Item, Sequence[pytest.TestReport]] = {}
        """By undecided test: the first run's reports, which pytest gets if the test does not run again."""
        self._properties: dict[pytest.Item, list[tuple[str, object]]] = {}
        """By undecided test: its `user_properties` from before its first run."""
        self._running: pytest.Item | None = None
        self._setup: pytest.TestReport | None = None
        self._told = 0
        """How many of the running test's reports pytest already has."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._to_come = {item.nodeid for item in session.items if _measures(item)}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Runs a test that measures. Keeps back an undecided test's reports if the test may run again."""
        if not _measures(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        if not self._time.again:
            self._time.to_come = len(self._to_come)
            self._to_come.discard(item.nodeid)
        properties = list(item.user_properties)
        self._running, self._told = item, 0
        try:
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
        finally:
            self._running = None
        if not self._told and self._may_go_on(item, reports):
            self._held[item], self._properties[item] = reports, properties
        else:
            _report(item, reports[self._told :])
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _may_go_on(self, item: pytest.Item, reports: Sequence[pytest.TestReport]) -> bool:
        failed = {report.when for report in reports if not report.passed}
        is_open = not failed or (failed == {"call"} and self._active.options.strict)
        return not self._time.again and is_open and self._time.needs_s(item.nodeid) > 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "setup":
            self._setup = report
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self, report: object) -> None:
        """Sends a failed test's reports to pytest before the test's fixtures end."""
        # With -x, all fixtures end with this test, so pytest must know the failure before.
        item = self._running
        # pytest has already reported a subtest.
        if item is None or type(report) is not pytest.TestReport or report.when == "teardown":
            return
        reports = [report] if report.when == "setup" or self._setup is None else [self._setup, report]
        if not self._may_go_on(item, reports):
            self._told = len(reports)
            _report(item, reports)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            result = yield
            self._run_held(session)
        finally:
            for item, reports in self._held.items():  # no time is left for them, or the run was interrupted
                _report(item, reports)
        return result

    def _run_held(self, session: pytest.Session) -> None:
        """Runs undecided tests again, first the test that probably needs the least time."""
        items = sorted(self._held, key=lambda item: self._time.needs_s(item.nodeid))
        self._time.again = True
        for place, item in enumerate(items):
            if self._time.is_over or session.shouldfail or session.shouldstop:
                break
            self._time.to_come = len(items) - place
            measuring = self._active.session()
            first = measuring.forget(item.nodeid)
            item.user_properties[:] = self._properties.pop(item)  # the first run is no longer reported
            following = items[place + 1] if place + 1 < len(items) else None
            try:
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            except BaseException:  # interrupted: the first run's results are reported
                measuring.forget(item.nodeid)
                measuring.results += first
                raise
            del self._held[item]
        if session.shouldfail:
            raise session.Failed(session.shouldfail)


def _measures(item: pytest.Item) -> bool:
    return measures(item) and item.get_closest_marker("skip") is None


def _report(item: pytest.Item, reports: Sequence[pytest.TestReport]) -> None:
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
