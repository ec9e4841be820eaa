"""Load tests that fail for another reason than a figure are in every file; a run that measures nothing says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_fileperf.errors import PlanError, RegressionError
from pytest_fileperf.plugin.outcomes import not_by_verdict

Run = Callable[..., pytest.RunResult]

TESTS = """
import pytest

def test_asserts(fileperf):
    assert fileperf.get("/").requests == -1

def test_wrong_key(fileperf):
    fileperf.get("/", conections=2)

def fill(client):
    raise OSError("no such table: items")

def test_setup(fileperf):
    fileperf.get("/", setup=fill)

def test_figures(fileperf):
    fileperf.get("/status/500")

def test_group(fileperf):
    try:
        fileperf.get("/status/500")
    except AssertionError as error:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error])

def test_group_of_others(fileperf):
    fileperf.get("/")
    raise ExceptionGroup("unhandled errors in a TaskGroup", [OSError("gone")])

@pytest.fixture
def broken(fileperf):
    yield
    raise KeyError("left over")

def test_teardown(broken, fileperf):
    fileperf.get("/")

@pytest.mark.xfail
def test_expected(fileperf):
    fileperf.get("/", conections=2)

def test_of_other_things():
    assert False
"""


def failed_in(path: Path) -> dict[str, tuple[str, int, str]]:
    """Returns phase, line and first line of each failed test, by its name."""
    document: Any = json.loads(path.read_text(encoding="utf-8"))
    return {one["name"]: (one["phase"], one["line"], one["message"].split("\n")[0]) for one in document["failed"]}


@pytest.mark.parametrize("plugins", [(), ("xdist",)])
def test_what_failed_otherwise_is_in_every_file(
    project: pytest.Pytester, run_load: Run, plugins: tuple[str, ...]
) -> None:
    project.makepyfile(test_it=TESTS)
    files = ("--fileperf-json=run.json", "--fileperf-markdown=run.md")
    run_load("--fileperf-smoke", *files, *["-n2"][: len(plugins)], plugins=plugins)
    failed = failed_in(project.path / "run.json")
    assert failed == {
        "test_asserts": ("call", 3, failed["test_asserts"][2]),
        "test_wrong_key": ("call", 6, failed["test_wrong_key"][2]),
        "test_setup": ("call", 12, "setup fill failed on in-process (uvloop):"),
        "test_group_of_others": ("call", 24, "OSError: gone"),
        "test_teardown": ("teardown", 33, "KeyError: 'left over'"),
    }
    assert failed["test_asserts"][2].startswith("assert ")
    assert "conections" in failed["test_wrong_key"][2]
    text = (project.path / "run.md").read_text(encoding="utf-8")
    assert text.startswith("## Load tests: 5 measured, 2 FAILED; 5 tests failed for other reasons; smoke: ")
    assert (
        "- `test_it.py::test_setup` failed: setup fill failed on in-process (uvloop): OSError: no such table: items\n"
        in text
    )


def test_a_verdict_in_a_group_is_told_by_its_result_and_others_by_themselves() -> None:
    verdict, other, usage = RegressionError("slower"), OSError("gone"), PlanError("unknown key")
    inner = ExceptionGroup("inner", [verdict, usage])
    assert not_by_verdict(verdict) == not_by_verdict(None) == ()
    assert not_by_verdict(ExceptionGroup("all", [verdict, RegressionError("too")])) == ()
    assert not_by_verdict(ExceptionGroup("some", [other, verdict, inner])) == (other, usage)
    assert not_by_verdict(other) == (other,)


def test_files_are_written_where_all_has_failed(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/')")
    (project.path / "run.json").write_text('{\n  "asked": of an earlier run')
    files = ("--fileperf-json=run.json", "--fileperf-html=run.html", "--fileperf-markdown=run.md")
    result = run_load("--fileperf-smoke", "--fileperf-app=no.such:app", *files)
    result.assert_outcomes(failed=1)
    assert list(failed_in(project.path / "run.json")) == ["test_it"]
    for name in ("run.html", "run.md"):
        assert "nothing was measured; 1 test failed" in (project.path / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("before", [True, False])
def test_a_run_without_load_tests_writes_nothing_and_says_so(project: pytest.Pytester, run: Run, before: bool) -> None:
    project.makepyfile("def test_of_other_things(): assert False")
    path = project.path / "run.json"
    if before:
        path.write_text('{\n  "asked": of an earlier run')
    result = run("--fileperf-json=run.json")
    stays = ": the file there is of an earlier run" if before else ""
    result.stdout.fnmatch_lines([f"fileperf: nothing was measured, so {path} was not written{stays}"])
    assert path.exists() is before
    run("--fileperf-json=run.json", "--collect-only").stdout.no_fnmatch_line("*nothing was measured*")
