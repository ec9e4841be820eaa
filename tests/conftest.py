"""What all tests share. The plugin under test is the installed one: pytest loads it through its entry point."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from families import FAMILIES, module_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serve.processes import Boot, booting, why_no_profile

pytest_plugins = ["pytester", "marking"]

# The same examples in every run, and none judged by its time: a failure is a fault of the code, not of the day.
settings.register_profile("steady", deadline=None, derandomize=True)
# tox takes it where another environment tries all of them.
settings.register_profile("few", settings.get_profile("steady"), max_examples=20)
# By hand: others in every run.
settings.register_profile(
    "many", deadline=None, database=None, max_examples=100_000, suppress_health_check=list(HealthCheck)
)
settings.load_profile("steady")

# The usual ones cost a quarter of the CPU time of collecting, and an eighth of that of tests that start no process.
gc.set_threshold(100_000, 50, 100)

# A shell that starts tests in the background has them ignore Ctrl-C, and all that they start: some send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@given(st.none())
def _one_example(_: None) -> None:
    """Has hypothesis make its random generator, which older ones believe to be lost where its holder is hidden."""


def pytest_collection_finish() -> None:
    """Hides what was imported from the garbage collector: every run that a test makes would look through all of it.

    A load asks whether anything is hidden, and Python then counts all of it: here it is always something.
    """
    _one_example()
    gc.collect()
    gc.freeze()
    gc.get_freeze_count = lambda: 1


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Hides what runs of pytest in this process leave: each imports the plugin anew, and the modules stay."""
    if "pytester" in getattr(item, "fixturenames", ()):
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _on_no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of ours on GitHub or GitLab is none for the runs that tests make: each sets what it is about."""
    for name in [name for name in os.environ if name.startswith(("GITHUB_", "CI_", "GITLAB_"))]:
        monkeypatch.delenv(name)


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Whose clients a test is about."""
    module_of(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def looks() -> None:
    """For tests that need a py-spy that works."""
    if why := why_no_profile():
        pytest.skip(f"no profile: {why}")


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where run directories of this test go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def boot() -> Iterator[Boot]:
    with booting() as boot:
        yield boot
