"""Baselines whose tests are gone: notes what a session collects, and lists or removes the others at its end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fileperf.settings.settings import Options

if TYPE_CHECKING:
    from pytest_fileperf.judge.baseline import Seen
    from pytest_fileperf.judge.record import Result

__all__ = ("Census", "settle_stale")

_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Census:
    """Which tests there are, as far as this session's collection tells. It is registered as a plugin."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._whole: set[str] = set()
        """Collectors without a failure or skip, those of modules among them."""
        self._partial: set[str] = set()
        """Modules with tests that were not collected or not run."""
        self._tests: set[str] = set()
        self._passed: set[str] = set()
        self._not_passed: set[str] = set()
        self._failures: list[str] = []
        """What failed tests told."""
        self._errors = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a collector; a module with a skipped class is not known in full."""
        self._errors |= report.failed
        if report.passed:
            self._whole.add(report.nodeid)
        else:
            self._partial.add(_module_of(report.nodeid))

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Notes a test; tests may be deselected after this."""
        self._tests.add(item.nodeid)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Notes the modules that are run in part."""
        self._partial.update(_module_of(item.nodeid) for item in items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes how a test went."""
        if not report.passed or hasattr(report, "wasxfail"):
            self._not_passed.add(report.nodeid)
        elif report.when == "call":
            self._passed.add(report.nodeid)
        if report.failed:
            self._failures.append(report.longreprtext)

    def has_told(self, message: str) -> bool:
        """Returns whether a failed test has told this already, by the first line."""
        head = message.partition("\n")[0]
        return any(head in failure for failure in self._failures)

    def why_unknown(self, session: pytest.Session) -> str:
        """Returns why nothing is known about any baseline; empty where something is."""
        if self._config.getoption("collectonly", default=False):
            return "tests were only collected"
        if self._errors:
            return "collection had errors"
        return "" if session.exitstatus in _ENDED else "the session was not finished"

    def seen(self, results: Sequence[Result]) -> Seen:
        """Returns what the session saw, with the measurements made."""
        from pytest_fileperf.judge.baseline import Seen

        return Seen(
            whole=frozenset() if self._is_selection() else frozenset(self._whole - self._partial),
            tests=frozenset(self._tests),
            passed=frozenset(self._passed - self._not_passed),
            measured=frozenset(result.test.nodeid for result in results),
        )

    def _is_selection(self) -> bool:
        """Returns whether modules may have been collected in part unseen, as by `file.py::test` and `--lf`."""
        return any("::" in argument for argument in self._config.args) or self._config.getoption("lf", default=False)


def _module_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def settle_stale(
    config: pytest.Config, options: Options, census: Census, session: pytest.Session, results: Sequence[Result]
) -> tuple[list[str], bool]:
    """Lists stale baselines, or removes them with `--fileperf-prune`; returns lines to show, and whether it failed.

    A damaged file is reported where no test has failed for it; it fails the session only with `--fileperf-prune`.
    """
    if not options.prune and not options.baselines.is_dir():
        return [], False
    from pytest_fileperf.errors import BaselineError
    from pytest_fileperf.judge.baseline import BaselineStore, stale_among
    from pytest_fileperf.report.terminal import stale_lines
    from pytest_fileperf.versions.source import Source

    why_unknown = census.why_unknown(session)
    if why_unknown:
        return [f"fileperf: no baselines removed, {why_unknown}"] * options.prune, False
    store = BaselineStore(options.baselines)
    try:
        stored = store.keys()
        stale = stale_among(stored, census.seen(results), is_gone=_gone_from(config.rootpath, options.baselines))
        if options.prune:
            with_code = store.trees()
            store.remove({item.key for item in stale})
            with Source(config.rootpath, options.baselines) as source:
                source.forget(with_code - store.trees())
    except BaselineError as error:
        is_known = not options.prune and census.has_told(str(error))
        return [] if is_known else [f"fileperf: {error}"], options.prune
    if not stale:
        return ["fileperf: no stale baselines in the modules that were collected whole"] * options.prune, False
    writer = config.get_terminal_writer()
    lines = stale_lines(
        stale,
        entries=sum(stored[item.key] for item in stale),
        removed=options.prune,
        width=writer.fullwidth,
        colour=writer.hasmarkup,
        verbosity=config.get_verbosity(),
    )
    return lines, False


def _gone_from(root: Path, baselines: Path) -> Callable[[str], bool]:
    """Returns a function that tells whether a module is gone.

    Baselines outside the root directory may belong to other projects with modules elsewhere: none of these is gone.
    """
    if not baselines.resolve().is_relative_to(root.resolve()):
        return lambda _: False
    return lambda module: not (root / module).exists()
