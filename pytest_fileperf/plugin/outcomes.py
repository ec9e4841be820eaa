"""Follows each test's collection and outcome. Then finds stale baselines, whose tests are gone."""

from __future__ import annotations

import inspect
import os
from collections.abc import Coroutine, Generator, Sequence
from contextlib import suppress
from glob import glob
from pathlib import Path
from traceback import format_exception_only
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.errors import BaselineError, FilePerfError, PerformanceError
from pytest_fileperf.plugin.measuring import EXPECTED, OUTCOME_PROPERTY, Measuring, line_of
from pytest_fileperf.plugin.options import is_load_test
from pytest_fileperf.report.text import Screen

if TYPE_CHECKING:
    from pytest_fileperf.judge.record import FailedTest, Result
    from pytest_fileperf.plugin.active import Active

_PASSED = pytest.StashKey[bool]()
"""Whether the test function has passed. The teardown of fixtures may still fail."""
_FAILED = "fileperf_failed"
"""A report's attribute with facts about a failure. xdist can send these plain values between processes."""
_ENDS_EARLY = "fileperf_ends_early"
"""A report's attribute if a load test did not pass, so that some requests may not have been sent."""
_UNDECIDED = "inconclusive"
_LISTED = {"f": "failed", "E": "error", "x": "xfailed", "X": "xpassed", "s": "skipped", "p": "passed"}
"""The characters of pytest's option `-r`, and the category of tests that each character lists."""


class Outcomes:
    def __init__(self, active: Active) -> None:
        self._active = active
        self.failed: list[FailedTest] = []
        """Load tests that failed for another reason than a verdict, in order."""
        self._whole: set[str] = set()
        """Node ids of modules and classes that were collected without a failure or skip."""
        self._partial: set[str] = set()
        """Modules in which some tests were not collected, or not run."""
        self.left_out = False
        """Whether a load test was deselected."""
        self.lacks_some = False
        """Whether a load test did not pass, or may be in a module that was skipped."""
        self._tests: set[str] = set()
        self._passed: set[str] = set()
        self._not_passed: set[str] = set()
        self._told: list[str] = []
        """The texts that pytest prints about failed tests."""
        self._had_errors = False

    # --- collection

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._had_errors |= report.failed
        self.lacks_some |= not report.passed
        if report.passed:
            self._whole.add(report.nodeid)
        else:  # a module with a skipped class is not known in full
            self._partial.add(_module_of(report.nodeid))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self._tests.add(item.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self.left_out |= any(map(is_load_test, items))
        self._partial.update(_module_of(item.nodeid) for item in items)

    @property
    def has_all(self) -> bool:
        """Whether all load tests so far were selected and have passed."""
        return not (self.left_out or self.lacks_some)

    # --- while a test runs

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        """Fails a test that passed without a measurement although a fixture requires one."""
        try:
            yield
        finally:
            measuring, unawaited = item.stash.get(EXPECTED, None), []
            if measuring is not None:
                del item.stash[EXPECTED]
                # Each coroutine is closed, because Python would warn about it.
                unawaited = [call for call, coroutine, _ in measuring.async_verbs if _is_unawaited(coroutine)]
        if measuring is not None and (problem := _unmeasured(measuring, unawaited)):
            pytest.fail(problem, pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Notes the test's outcome, and shortens a failure's line in pytest's short test summary."""
        report = yield
        if call.when == "call":
            item.stash[_PASSED] = report.passed
        error = None if call.excinfo is None else call.excinfo.value
        others = not_by_verdict(error)
        if report.failed and is_load_test(item) and (error is None or others):
            noted = {"name": item.name, "line": line_of(item), "message": _message(error, others, report)}
            setattr(report, _FAILED, noted)
        # A test with the marker skip never loads anything, so its endpoint isn't covered.
        if not report.passed and is_load_test(item) and item.get_closest_marker("skip") is None:
            setattr(report, _ENDS_EARLY, True)
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None and isinstance(error, (FilePerfError, PerformanceError)):
            from pytest_fileperf.report.message import headline

            text = headline(str(error)) if isinstance(error, PerformanceError) else str(error).split("\n")[0]
            # pytest may cut this line, so it has figures instead of the exception's name, and only relative paths.
            crash.message = text.replace(f"{item.config.rootpath}{os.sep}", "")
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        """Stores the test's baselines if test and fixtures have passed. If storing fails, the test fails."""
        passed = False
        try:
            yield
            passed = item.stash.get(_PASSED, False)
        finally:
            item.stash[_PASSED] = False  # it may run again
            problem = ""
            try:
                self._active.settle(item, passed)
            except FilePerfError as error:
                problem = str(error)
        if problem:
            pytest.fail(problem, pytrace=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed or hasattr(report, "wasxfail"):
            self._not_passed.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)
        self.lacks_some |= hasattr(report, _ENDS_EARLY)
        if not report.failed:
            return
        self._told.append(report.longreprtext)
        if (noted := getattr(report, _FAILED, None)) is not None:
            from pytest_fileperf.judge.record import FailedTest

            module = _module_of(report.nodeid)
            self.failed.append(FailedTest(nodeid=report.nodeid, module=module, phase=report.when, **noted))

    # --- pytest's own summary: a category for tests that passed with an INCONCLUSIVE measurement

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, tuple[str, str, object], tuple[str, str, object]]:
        status = yield
        category, *_ = status
        if category == "passed" and isinstance(report, pytest.TestReport) and _is_undecided(report):
            return _UNDECIDED, "I", (_UNDECIDED.upper(), {"yellow": True})
        return status

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> Generator[None]:
        """Adds tests with an INCONCLUSIVE measurement to pytest's short test summary."""
        yield
        config, stats = terminalreporter.config, terminalreporter.stats
        listed = [_LISTED[char] for char in terminalreporter.reportchars if char in _LISTED]
        if not listed or config.getoption("no_summary", default=False) or not stats.get(_UNDECIDED):
            return
        from pytest_fileperf.report.terminal import undecided_lines

        if not any(stats.get(category) for category in listed):
            terminalreporter.write_sep("=", "short test summary info", cyan=True, bold=True)
        by_test: dict[str, dict[str, Result]] = {}
        for result in self._active.results:  # if a test ran again, its last results count
            by_test.setdefault(result.test.item, {})[result.test.nodeid] = result
        for report in stats[_UNDECIDED]:
            own = by_test.get(report.nodeid, {}).values()
            for line in undecided_lines(_from_here(config, report.nodeid), own, screen_of(config)):
                terminalreporter.write_line(line)

    # --- baselines whose tests are gone

    def settle_stale(self, session: pytest.Session) -> tuple[list[str], bool]:
        """Lists stale baselines, or removes them (`--fileperf-prune`). Returns (lines to show, whether it failed).

        A damaged baseline is a failure only with `--fileperf-prune`.
        """
        config, options = session.config, self._active.options
        prune, baselines, root = options.prune, options.baselines, config.rootpath
        if not prune and not baselines.is_dir():
            return [], False
        from pytest_fileperf.judge.baseline import BaselineStore, stale_among
        from pytest_fileperf.report.terminal import stale_lines
        from pytest_fileperf.versions.source import Source

        if why_unknown := self._why_unknown(session):
            return [f"fileperf: removed no baselines, because {why_unknown}"] * prune, False
        store = BaselineStore(baselines)
        # Baselines outside the root directory may belong to other projects, whose modules are elsewhere.
        is_ours = baselines.resolve().is_relative_to(root.resolve())
        try:
            stored = store.keys()
            # `file.py::test` and `--lf` may have collected only parts of modules.
            is_selection = any("::" in argument for argument in config.args) or config.getoption("lf", default=False)
            stale = stale_among(
                stored,
                whole=() if is_selection else self._whole - self._partial,
                tests=self._tests,
                passed=self._passed - self._not_passed,
                measured={result.test.nodeid for result in self._active.results},
                is_gone=lambda module: is_ours and not (root / module).exists(),
            )
            if prune:
                with_code = store.trees()
                store.remove(stale.keys())
                with Source(root, baselines) as source:
                    source.forget(with_code - store.trees())
        except BaselineError as error:
            head = str(error).partition("\n")[0]
            # A test may have failed already because of the damaged file.
            is_known = not prune and any(head in told for told in self._told)
            return [] if is_known else [f"fileperf: {error}"], prune
        if not stale:
            return ["fileperf: found no stale baselines in modules whose tests were all collected"] * prune, False
        entries, verbosity = sum(stored[key] for key in stale), config.get_verbosity()
        return stale_lines(stale, screen_of(config), entries=entries, removed=prune, verbosity=verbosity), False

    def _why_unknown(self, session: pytest.Session) -> str:
        """Returns why this run cannot find stale baselines. Empty if it can."""
        if session.config.getoption("collectonly", default=False):
            return "tests were only collected"
        if self._had_errors:
            return "collection had errors"
        ended = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)
        return "" if session.exitstatus in ended else "the test run did not finish"


def collects_all(config: pytest.Config) -> bool:
    """Returns whether pytest collects the root directory, or all `testpaths`, and leaves out no files."""
    root, here = config.rootpath.resolve(), config.invocation_params.dir
    given = {(here / argument).resolve() for argument in config.args}
    patterns = config.getini("testpaths")
    named = (path for one in patterns for path in glob(one, root_dir=root, recursive=True))  # noqa: PTH207 - or absolute
    usual = {(root / path).resolve() for path in named}
    chosen = any(config.getoption(name, default=None) for name in ("lf", "ignore", "ignore_glob"))
    return not chosen and (root in given or (bool(usual) and usual <= given))


def screen_of(config: pytest.Config) -> Screen:
    writer = config.get_terminal_writer()
    return Screen(width=writer.fullwidth, colour=writer.hasmarkup)


def _module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _is_unawaited(verb: Coroutine[object, None, object]) -> bool:
    """Returns whether the coroutine has not ended. Closes a coroutine that has not begun."""
    state = inspect.getcoroutinestate(verb)
    if state == inspect.CORO_CREATED:
        verb.close()
    return state != inspect.CORO_CLOSED


def _unmeasured(measuring: Measuring, unawaited: Sequence[str]) -> str:
    """Returns the error if a test measured nothing, or did not await a call. Otherwise empty."""
    if unawaited:
        calls = "\n".join(f"{call} was called and not awaited" for call in unawaited)
        return f"{calls}\nSo nothing was measured. Write `await` before the call, in an async test"
    if measuring.has_measured:
        return ""
    fixtures = measuring.expected_by
    skip = "or skip the test with pytest.skip(…) if there is nothing to measure"
    if cancelled := [call for call, _, given_up in measuring.async_verbs if given_up.is_set()]:
        calls = "\n".join(f"{call} was cancelled before it was measured" for call in cancelled)
        return (
            f"{calls}\nSo this test measured nothing. Let the call end, shorten it with duration= or requests=, {skip}"
        )
    call = f"{'await ' if fixtures[0] == 'afileperf' else ''}{fixtures[0]}.get(…)"
    return (
        f"this test uses {' and '.join(fixtures)} but measured nothing. Call it, as in {call}, leave the "
        f"fixture out (the marker fileperf alone makes a load test), {skip}"
    )


def not_by_verdict(error: BaseException | None) -> tuple[BaseException, ...]:
    """Returns the error, or a group's errors. Leaves out PerformanceErrors, because results show them."""
    if isinstance(error, BaseExceptionGroup):
        return tuple(each for inner in error.exceptions for each in not_by_verdict(inner))
    return () if error is None or isinstance(error, PerformanceError) else (error,)


def _message(error: BaseException | None, others: Sequence[BaseException], report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = report.longreprtext
    if isinstance(error, BaseExceptionGroup):
        text = "\n".join(
            str(each) if isinstance(each, FilePerfError) else "".join(format_exception_only(each)).rstrip()
            for each in others
        )
    elif isinstance(error, FilePerfError):
        text = str(error)
    elif crash is not None:
        text = crash.message.removeprefix("AssertionError: ")
    lines = text.strip().splitlines()
    cut = "\n".join(lines[:48])[:8_000]  # a log's end has 40 lines, and a few are before it
    return cut if cut == "\n".join(lines) else f"{cut}\n…"


def _is_undecided(report: pytest.TestReport) -> bool:
    # Properties also come from other processes. A test that ran again has each one twice.
    standings = {name: value for name, value in report.user_properties if str(name).startswith(OUTCOME_PROPERTY)}
    if not standings:
        return False
    from pytest_fileperf.judge.record import Standing

    return any(standing.is_undecided for standing in Standing if standing.value in standings.values())


def _from_here(config: pytest.Config, nodeid: str) -> str:
    """Returns the node id as pytest shows it, with its path relative to the current directory."""
    path, *rest = nodeid.split("::")
    with suppress(ValueError):  # Windows: another drive
        path = Path(os.path.relpath(config.rootpath / path, config.invocation_params.dir)).as_posix()
    return "::".join([path, *rest])
