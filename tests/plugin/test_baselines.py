"""Which baselines are stale, as their tests are gone, and who removes them; what is stored is in contracts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from judge.sides import side
from plugin.conftest import Run

from pytest_fileperf.judge.baseline import BaselineStore, Entry
from pytest_fileperf.judge.environment import Environment

QUICK = ("--fileperf-duration=0.1s", "--fileperf-rounds=4", "--fileperf-boots=1", "--fileperf-warmup=0")


def test_what_cannot_be_stored_is_an_error(project: pytest.Pytester, run_load: Run) -> None:
    (project.path / ".fileperf").symlink_to("/proc/nowhere")  # nobody can make it
    project.makepyfile("def test_passes(fileperf): fileperf.get('/', connections=1, gate='rps')")
    result = run_load("--fileperf-update=all", *QUICK)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*cannot be written*"])
    assert "Traceback" not in result.stdout.str()


# --- what is stale

HERE = Environment(system="Linux", machine="x86_64", cpu="CPU", cores=2, python="CPython 3.11")
ELSEWHERE = Environment(system="Darwin", machine="arm64", cpu="CPU", cores=8, python="CPython 3.12")
ENTRY = Entry(identity={}, evidence=side(2000, 2010), captured="2026-01-02T03:04:05+00:00")
MODULE = """
import pytest

def test_kept(): pass

@pytest.mark.parametrize("size", ["1"])
class TestClass:
    def test_param(self, size): pass

def test_failed(): raise AssertionError

@pytest.mark.skip(reason="today")
def test_skipped(): pass

@pytest.mark.xfail(strict=False, reason="perhaps")
def test_expected_to_fail(): pass
"""
NOT_TOLD = ("test_a.py::test_failed", "test_a.py::test_skipped#2", "test_a.py::test_expected_to_fail")
"""Tests that are there and did not pass."""
STALE = ("test_a.py::TestClass::test_param[2]", "test_a.py::test_kept#2", "test_a.py::test_old", "test_gone.py::test_x")
LISTED = [
    "5 stale baselines. Remove them with --fileperf-prune",
    "  test_a.py::TestClass::test_param?2?: no such test",
    "  test_a.py::test_kept#2: its test no longer makes this measurement",
    "  test_a.py::test_old: no such test",
    "  test_gone.py::test_x: no such file",
]


def store(directory: Path, keys: Iterable[str], environment: Environment = HERE) -> BaselineStore:
    """Stores a baseline for each node id."""
    baselines = BaselineStore(directory)
    for key in keys:
        baselines.write(key.partition("::")[0], key, ENTRY, environment)
    return baselines


@pytest.fixture
def stored(pytester: pytest.Pytester, run: Run) -> BaselineStore:
    """A project whose baselines are stale in part, on two machines."""
    pytester.makepyfile(test_a=MODULE, test_b="import pytest\n@pytest.mark.skip\ndef test_old(): pass")
    baselines = store(pytester.path / ".fileperf", (*NOT_TOLD, *STALE, "test_b.py::test_old"))
    store(baselines.directory, ["test_gone.py::test_x"], ELSEWHERE)
    return baselines


def test_what_is_stale_is_listed_and_removed_if_asked(stored: BaselineStore, run: Run) -> None:
    before = stored.keys()
    listed = run("--fileperf").stdout
    listed.fnmatch_lines(["*= fileperf =*", *LISTED], consecutive=True)
    listed.no_fnmatch_line("*test_b.py::test_old: *")
    counted = run("--fileperf", "-q", "test_a.py").stdout
    counted.fnmatch_lines([LISTED[0]])
    counted.no_fnmatch_line(LISTED[3])
    run("--fileperf-smoke").stdout.no_fnmatch_line("* stale baseline*")
    assert stored.keys() == before

    removed = run("--fileperf", "--fileperf-prune", "test_a.py").stdout
    removed.fnmatch_lines(["fileperf: measuring; removing stale baselines; *"])
    removed.fnmatch_lines(["*= fileperf =*", "removed 5 stale baselines", *LISTED[1:]], consecutive=True)
    assert stored.keys() == dict.fromkeys((*NOT_TOLD, "test_b.py::test_old"), 1)
    assert {path.name for path in stored.directory.iterdir()} - {".local"} == {HERE.profile}
    run("--fileperf-prune").stdout.fnmatch_lines(
        ["*found no stale baselines in modules whose tests were all collected"]
    )


@pytest.mark.parametrize(
    "test_c,arguments,why",
    [
        ("import missing_module", ("--continue-on-collection-errors",), "collection had errors"),
        ("import missing_module", (), "*"),
        ("", ("--collect-only",), "tests were only collected"),
        ("import pytest\ndef test_c(): pytest.exit('enough')", (), "the test run did not finish"),
    ],
    ids=["errors, and on", "errors", "only collected", "interrupted"],
)
def test_nothing_is_removed_where_nobody_knows(
    pytester: pytest.Pytester, stored: BaselineStore, run: Run, test_c: str, arguments: tuple[str, ...], why: str
) -> None:
    before = stored.keys()
    pytester.makepyfile(test_c=test_c)
    result = run("--fileperf", "--fileperf-prune", *arguments)
    result.stdout.fnmatch_lines([f"fileperf: removed no baselines, because {why}"])
    result = run("--fileperf", *arguments)
    result.stdout.no_fnmatch_line("* stale baseline*")
    assert stored.keys() == before


def test_a_damaged_file_is_told_once_and_fails_only_where_something_was_to_be_removed(
    pytester: pytest.Pytester, stored: BaselineStore, run: Run
) -> None:
    path = stored.path_of("test_other.py", ELSEWHERE)
    path.write_text("{", encoding="utf-8")
    told = [f"fileperf: a baseline is damaged: not JSON: * ({path})"]
    listed = run("--fileperf", "test_b.py")
    listed.stdout.fnmatch_lines(told)
    assert listed.ret == pytest.ExitCode.OK
    pruned = run("--fileperf", "--fileperf-prune", "test_b.py")
    pruned.stdout.fnmatch_lines(told)
    assert pruned.ret == pytest.ExitCode.TESTS_FAILED
    pytester.makepyfile(
        test_failing="from pytest_fileperf.judge.baseline import BaselineStore\n"
        f"def test_failing(): BaselineStore(__import__('pathlib').Path({str(path.parents[1])!r})).keys()\n"
    )
    text = run("--fileperf", "test_failing.py").stdout.str()
    assert "BaselineError: a baseline is damaged: not JSON: " in text
    assert "fileperf: a baseline" not in text
    short = next(line for line in text.splitlines() if line.startswith("FAILED "))
    assert short.startswith("FAILED test_failing.py::test_failing - a baseline is damaged: not JSON")
    path.unlink()
    assert stored.keys()["test_gone.py::test_x"] == 2
