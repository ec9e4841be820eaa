"""Gathers the load tests that fail for another reason than a figure: results do not tell of them."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.errors import FilePerfError, PerformanceError
from pytest_fileperf.plugin.options import is_load_test

if TYPE_CHECKING:
    from pytest_fileperf.judge.result import FailedTest

__all__ = ("Failures", "line_of")

_ATTRIBUTE = "fileperf_failed"
"""Of a report, which takes it to another process. Its value is of plain types."""
_MOST_LINES = 40
_MOST_CHARS = 4_000


class Failures:
    """Every load test whose server, setup, usage or own assertion failed. It is registered as a plugin."""

    def __init__(self) -> None:
        self.found: list[FailedTest] = []
        """In the order they failed; not those that ran again and passed."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Notes what a report does not tell of its test."""
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        # What a verdict fails has a result, which says it.
        if report.failed and is_load_test(item) and not isinstance(error, PerformanceError):
            noted = {"name": item.name, "line": line_of(item), "message": _message(error, report)}
            setattr(report, _ATTRIBUTE, noted)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gathers a failed test; a plugin may have made something else of its report."""
        noted = getattr(report, _ATTRIBUTE, None)
        if noted is None or not report.failed:
            return
        from pytest_fileperf.judge.result import FailedTest

        module = report.nodeid.partition("::")[0]
        self.found.append(FailedTest(nodeid=report.nodeid, module=module, phase=report.when, **noted))


def line_of(item: pytest.Item) -> int | None:
    """Returns where the function begins in the test's module, from 1 on; None where it comes from elsewhere."""
    file, line, _ = item.location
    return None if line is None or Path(file).as_posix() != item.nodeid.partition("::")[0] else line + 1


def _message(error: BaseException | None, report: pytest.TestReport) -> str:
    """Returns what it said, at most some lines of it: errors of ours in full, others as pytest's summary has them."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext
    if isinstance(error, FilePerfError):
        text = str(error)
    elif crash is not None:
        text = crash.message.removeprefix("AssertionError: ")
    lines = text.strip().splitlines()
    cut = "\n".join(lines[:_MOST_LINES])[:_MOST_CHARS]
    return cut if cut == "\n".join(lines) else f"{cut}\n…"
