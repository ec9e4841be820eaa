"""Baselines are stored once the whole test has passed, with its own assertions and its fixtures."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest

from pytest_fileperf.judge.environment import Environment

Run = Callable[..., pytest.RunResult]

QUICK = ("--fileperf-duration=0.1s", "--fileperf-rounds=6", "--fileperf-warmup=0", "--fileperf-boots=1")
TESTS = """
import pytest

LOAD = dict(connections=1, gate="rps")

def test_passes(fileperf):
    fileperf.get("/", **LOAD)

def test_asserts(fileperf):
    assert fileperf.get("/", **LOAD).requests == -1

@pytest.fixture
def broken(fileperf):
    yield
    raise KeyError("left over")

def test_torn_down(broken, fileperf):
    fileperf.get("/", **LOAD)

def test_skips(fileperf):
    fileperf.get("/", **LOAD)
    pytest.skip("enough")

@pytest.mark.xfail
def test_expected(fileperf):
    fileperf.get("/", **LOAD)
    raise OSError
"""


def test_only_what_passed_is_stored(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(test_it=TESTS)
    result = run_load("--fileperf-update=all", "--junitxml=junit.xml", *QUICK)
    result.assert_outcomes(passed=2, failed=1, errors=1, skipped=1, xfailed=1)
    (stored,) = (project.path / ".fileperf").rglob("test_it*.json")
    text = stored.read_text(encoding="utf-8")
    names = ("passes", "asserts", "torn_down", "skips", "expected")
    assert [name for name in names if f"test_it.py::test_{name}" in text] == ["passes"]
    result.stdout.fnmatch_lines(["1 baseline stored*", "4 not stored: the test did not pass*"])
    told = {
        (case.get("name"), each.get("value"))
        for case in ET.parse(project.path / "junit.xml").iter("testcase")
        for each in case.iter("property")
        if each.get("name") == "fileperf_not_stored"
    }
    assert told == {(f"test_{name}", "the test did not pass") for name in names[1:]}


def test_what_cannot_be_stored_is_an_error(project: pytest.Pytester, run_load: Run) -> None:
    baselines = project.mkdir(".fileperf")
    (baselines / Environment.current().profile).symlink_to("/proc/nowhere")  # nobody can make it
    project.makepyfile("def test_passes(fileperf): fileperf.get('/', connections=1, gate='rps')")
    result = run_load("--fileperf-update=all", *QUICK)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*cannot be written*"])
    assert "Traceback" not in result.stdout.str()
