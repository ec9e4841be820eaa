"""Options, ini settings, markers and verbs: which of them wins."""

from __future__ import annotations

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

@pytest.mark.fileperf(server="uvicorn", workers=2, duration="0.6s", boots=2, rounds=6, warmup="0.1s")
def test_boots(fileperf):
    fileperf.get("/")
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
        "test_boots": (4, 6, 2, 0.6, {"p50": 0.2}),
    }
    test = results(ran)["test_marker"]["test"]
    assert (test["label"], test["group"], test["line"]) == ("a label", "these", 14)
    assert "a label" in ran.said, ran.text
    assert results(ran)["test_boots"]["identity"]["server"]["workers"] == 2
