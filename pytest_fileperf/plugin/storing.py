"""Stores the baselines that a test has measured once all of the test has passed, its assertions and fixtures too."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from pytest_fileperf.errors import FilePerfError

__all__ = ("Storing",)

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
