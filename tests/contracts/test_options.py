"""Options, ini settings, markers and verbs: which of them wins, what is refused at once, and what is skipped."""

from __future__ import annotations

import os
import subprocess
import sys

from contracts.answers import answering
from contracts.project import Project, results

INI = """
[pytest]
pythonpath = .
fileperf_app = app:app
fileperf_server = inprocess
fileperf_warmup = 0
fileperf_duration = 300ms
fileperf_connections = 6
fileperf_boots = 1
fileperf_gate = p50
fileperf_tolerance = p50=20%
fileperf_strict = true
"""
TESTS = """
import pytest

pytestmark = pytest.mark.fileperf(rounds=3)

def test_ini(fileperf):
    fileperf.get("/")

class TestClass:
    pytestmark = pytest.mark.fileperf(connections=3, gate=("rps", "p50"), tolerance={"rps": 0.5})

    def test_class(self, fileperf):
        fileperf.get("/")

    @pytest.mark.fileperf(connections=2, gate="none", label="a label", group="these")
    def test_marker(self, fileperf):
        fileperf.get("/", rounds=4)
        fileperf.get("/", connections=1, rounds=None)

@pytest.mark.fileperf(server="uvicorn", workers=2, duration="0.6s", boots=3, rounds=6, warmup="0.1s")
def test_boots(fileperf):
    fileperf.get("/")
"""
WRONG = """
import pytest

@pytest.mark.fileperf(conections=3, timeout="soon")
def test_marker(fileperf):
    fileperf.get("/")

@pytest.mark.fileperf(rate=5, burst=5, server="unknown")
def test_shapes(fileperf):
    fileperf.get("/")
"""
OFF = """
import pytest

def test_plain():
    pass

@pytest.fixture
def costly():
    raise AssertionError("is not to be made")

def test_load(fileperf, costly):
    fileperf.get("/")

@pytest.mark.fileperf
def test_marked():
    raise AssertionError("is not to run")
"""


def test_the_closest_value_wins(project: Project) -> None:
    project.write({"pytest.ini": INI, "app.py": answering(), "test_it.py": TESTS})
    ran = project.run("--fileperf-connections=4", "--fileperf-duration=0.12s", "--tb=line")

    assert (ran.status, "3 failed, 1 passed" in ran.said) == (1, True), (
        ran.text
    )  # NEW fails, as the ini file has strict
    assert list(results(ran)) == ["test_ini", "test_class", "test_marker", "test_boots"]
    found = {
        one["test"]["nodeid"].rpartition(":")[2]: (
            one["identity"]["load"]["connections"],
            sum(each["phase"] == "round" for each in one["rounds"]),
            len(one["boots"]),
            one["summary"]["duration"],
            {each["metric"]: each["tolerance"] for each in one["verdict"]["comparisons"]},
        )
        for one in ran.record["results"]
    }
    assert found == {
        "test_ini": (4, 3, 1, 0.12, {"p50": 0.2}),
        "test_class": (3, 3, 1, 0.12, {"rps": 0.5, "p50": 0.06}),
        "test_marker": (2, 4, 1, 0.12, {}),
        "test_marker#2": (1, 12, 1, 0.12, {}),
        "test_boots": (4, 6, 3, 0.6, {"p50": 0.2}),
    }
    test = results(ran)["test_marker"]["test"]
    assert (test["label"], test["group"], test["line"]) == ("a label", "these", 14)
    assert "a label" in ran.said, ran.text
    assert results(ran)["test_boots"]["identity"]["server"]["workers"] == 2


def test_all_that_is_wrong_is_refused_at_once(project: Project) -> None:
    project.write({"pytest.ini": INI.replace("gate = p50", "gate = p98"), "app.py": answering(), "test_it.py": WRONG})
    contrary = ("--fileperf-smoke", "--fileperf-update", "--fileperf-prune", "--fileperf-aa", "--fileperf-against=HEAD")
    others = ("--fileperf-rounds=many", "--fileperf-reason= ", "--fileperf-confirm=often", "--fileperf-html=pytest.ini")
    ran = project.run(*contrary, *others)
    for problem in (
        "unknown metric 'p98'",
        "--fileperf-rounds: 'many' is not a whole number",
        "a few requests make no baseline",
        "a few requests prune nothing",
        "both say what to compare with",
        "it is empty, say why",
        "--fileperf-confirm=often: it is always or never",
        "that is another file, which it would replace",
    ):
        assert problem in ran.said, ran.text
    assert (ran.status, ran.record) == (4, {}), ran.text
    project.write({"pytest.ini": INI, "test_it.py": WRONG})
    ran = project.run()
    for problem in ("did you mean connections?", "timeout: 'soon'", "burst and rate are different", "'unknown'"):
        assert problem in ran.said, ran.text
    assert (ran.status, ran.record) == (4, {}), ran.text
    ran = project.run("--fileperf-update", env={"CI": "true"})
    assert (ran.status, "CI is set" in ran.said) == (4, True), ran.text


def test_without_the_option_load_tests_are_skipped(project: Project) -> None:
    project.write({"pytest.ini": INI, "test_it.py": OFF})
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-p", "fileperf", "-rs", "--fileperf-connections=3", "--fileperf-strict"]
    done = subprocess.run(command, cwd=project.top, env=env, capture_output=True, check=True, timeout=60)
    assert b"1 passed, 2 skipped" in done.stdout
    assert b"needs --fileperf" in done.stdout
