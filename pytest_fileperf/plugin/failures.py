"""Gathers the load tests that fail for another reason than a figure: results do not tell of them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from traceback import format_exception_only
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.errors import FilePerfError, PerformanceError
from pytest_fileperf.plugin.options import is_load_test

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import FailedTest

__all__ = ("Failures", "line_of", "not_by_verdict")

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
        others = not_by_verdict(error)
        if report.failed and is_load_test(item) and (error is None or others):
            noted = {"name": item.name, "line": line_of(item), "message": _message(error, others, report)}
            setattr(report, _ATTRIBUTE, noted)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gathers a failed test; a plugin may have made something else of its report."""
        noted = getattr(report, _ATTRIBUTE, None)
        if noted is None or not report.failed:
            return
        from pytest_fileperf.judge.record import FailedTest

        module = report.nodeid.partition("::")[0]
        self.found.append(FailedTest(nodeid=report.nodeid, module=module, phase=report.when, **noted))


def not_by_verdict(error: BaseException | None) -> tuple[BaseException, ...]:
    """Returns the errors, also of a group such as that of a TaskGroup, that no result tells: those of verdicts do."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(each for inner in error.exceptions for each in not_by_verdict(inner))
    return () if error is None or isinstance(error, PerformanceError) else (error,)


def line_of(item: pytest.Item) -> int | None:
    """Returns where the function begins in the test's module, from 1 on; None where it comes from elsewhere."""
    file, line, _ = item.location
    return None if line is None or Path(file).as_posix() != item.nodeid.partition("::")[0] else line + 1


def _message(error: BaseException | None, others: Sequence[BaseException], report: pytest.TestReport) -> str:
    """Returns what it said, at most some lines of it: errors of ours in full, others as pytest's summary has them.

    Of a group of errors, such as that of a TaskGroup, each is told.
    """
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext
    if isinstance(error, BaseExceptionGroup):
        text = "\n".join(_told(each) for each in others)
    elif isinstance(error, FilePerfError):
        text = str(error)
    elif crash is not None:
        text = crash.message.removeprefix("AssertionError: ")
    lines = text.strip().splitlines()
    cut = "\n".join(lines[:_MOST_LINES])[:_MOST_CHARS]
    return cut if cut == "\n".join(lines) else f"{cut}\n…"


def _told(error: BaseException) -> str:
    return str(error) if isinstance(error, FilePerfError) else "".join(format_exception_only(error)).rstrip()
