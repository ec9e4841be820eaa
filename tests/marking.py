"""Which tests run on one Python only, and a check that none of the others starts a process.

tox runs every test on one Python. On the others it leaves out what is marked `once`: that takes long and is the same
everywhere. The table below marks whole files. Tests that make a whole pytest run in their own process are marked
`inner`: they run on one Python, and with the oldest pytest. A test marked `everywhere` runs on every Python, whatever
it does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ("HOSTILE", "ONCE", "TESTS")

TESTS = Path(__file__).parent
ONCE = (
    # Whole pytest runs, servers, other processes, and loads of seconds.
    "contracts",
    "drive/test_alternating.py",
    "drive/test_cluster.py",
    "drive/test_process.py",
    "drive/test_run.py",
    "drive/test_streams.py",
    "hostile",
    "plugin/test_against.py",
    "plugin/test_app_as_made.py",
    "plugin/test_async.py",
    "plugin/test_cluster.py",
    "plugin/test_coverage.py",
    "plugin/test_load.py",
    "plugin/test_mix.py",
    "plugin/test_steps.py",
    "plugin/test_stored.py",
    "plugin/test_streaming.py",
    "serve/test_command.py",
    "serve/test_orphans.py",
    "serve/test_pool.py",
    "serve/test_stability.py",
    "serve/test_versions.py",
    "serve/test_workers.py",
    "session/test_comparison_servers.py",
    "session/test_profiling.py",
    "session/test_session_servers.py",
    "versions/test_checkout.py",
    "versions/test_predecessor.py",
    "versions/test_source.py",
    "versions/test_installing.py",
    "watch",
    # Simulations of many comparisons, or searches.
    "judge/test_capacity.py",
    "judge/test_error_budget.py",
    "judge/test_error_rates.py",
    "judge/test_paired_error_rates.py",
    "session/test_capacity.py",
    # The source as text.
    "test_structure.py",
)
"""Files and directories below `tests`."""
HOSTILE = (
    "hostile",
    "judge/test_storing_at_once.py",
    "serve/test_orphans.py",
    "test_files.py",
    "wire/test_fuzz.py",
)
"""What is marked `hostile` as a whole; single tests elsewhere have the mark themselves."""
_FIXTURES = frozenset({"boot", "help_text", "looks", "run_apart", "run_load", "shared"})
"""Fixtures that start processes."""
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty"})
"""What Python tells its audit hooks when a process starts."""

_started: list[str] = []


def _hook(event: str, arguments: tuple[object, ...], starts: frozenset[str] = _STARTS) -> None:
    if event in starts and arguments[:1] != ("lscpu",):  # numpy runs it when its `testing` is imported
        _started.append(event)


def pytest_configure() -> None:
    sys.addaudithook(_hook)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / place for place in ONCE}
    hostile = {TESTS / place for place in HOSTILE}
    for item in items:
        once = not _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) or not places.isdisjoint(
            (item.path, *item.path.parents)
        )
        if not hostile.isdisjoint((item.path, *item.path.parents)):
            item.add_marker("hostile")
        if item.get_closest_marker("everywhere") is not None:
            continue
        if once:
            item.add_marker("once")
        if "run" in getattr(item, "fixturenames", ()):
            item.add_marker("inner")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test that starts a process and is not marked."""
    _started.clear()
    yield
    marks = (item.get_closest_marker("once"), item.get_closest_marker("everywhere"))
    if _started and marks == (None, None):
        pytest.fail("it starts a process: add it to `ONCE` in tests/marking.py, or mark it `once` or `everywhere`")
