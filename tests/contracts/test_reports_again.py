"""Reports of a stored run are made again as the run made them; and what pytest-benchmark reads has the same figures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from contracts.answers import answering
from contracts.project import Project, results
from pytest_benchmark.utils import get_machine_id

TESTS = """
import pytest
from pytest_fileperf import part

pytestmark = pytest.mark.fileperf(connections=2, requests=40, boots=1, warmup=0)

@pytest.mark.parametrize("size", [1, 2])
def test_sizes(fileperf, size):
    fileperf.get(f"/{size}", group="sizes")

def test_mix(fileperf):
    fileperf.mix({part.get("/a", name="a"): 1, part.get("/b", name="b"): 1}, gate="none", min_rps=1e9)

def test_rate(fileperf):
    fileperf.get("/", requests=None, rate=100, duration="0.3s", gate="none")

def test_bad(fileperf):
    fileperf.get("/bad")

def test_otherwise(fileperf):
    raise ValueError("not by figures")
"""


def report(project: Project, *arguments: str) -> tuple[int, str]:
    """Runs the command that makes reports again; returns its exit code, and what it wrote."""
    command = [sys.executable, "-m", "pytest_fileperf", *arguments]
    done = subprocess.run(
        command, cwd=project.top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return done.returncode, done.stdout.decode()


def test_reports_are_made_again_of_the_file_of_a_run(project: Project) -> None:
    project.write({"app.py": answering(0.002), "test_it.py": TESTS})
    machine: str = get_machine_id()  # type: ignore[no-untyped-call] # it has no types
    earlier = project.top / ".benchmarks" / machine / "0007_earlier.json"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("{}", encoding="utf-8")
    ran = project.run("--fileperf-markdown=run.md", "--fileperf-html=run.html", "--fileperf-save=mine", "--tb=no", "-v")
    assert ran.status == 1, ran.text
    (project.top / "kept.json").write_text(json.dumps(ran.record), encoding="utf-8")

    code, text = report(project, "report", "kept.json", "--html=again.html", "--markdown=again.md", "--text", "-v")
    assert code == 0, text
    for name in ("md", "html"):
        made, again = ((project.top / f"{stem}.{name}").read_text(encoding="utf-8") for stem in ("run", "again"))
        assert made == again
    shown = [line for line in text.splitlines() if "requests/s" in line or "measured" in line]
    assert shown, text
    assert not [line for line in shown if line not in ran.text.splitlines()], ran.text

    (saved,) = (project.top / ".benchmarks").rglob("*_mine.json")
    assert saved.name == "0008_mine.json"
    benchmarks = {one["name"]: one["stats"] for one in json.loads(saved.read_text())["benchmarks"]}
    assert "test_bad" not in benchmarks
    for name in ("test_sizes[1]", "test_rate"):
        stats, summary = benchmarks[name], results(ran)[name]["summary"]
        found = [stats[key] for key in ("ops", "rounds", "min", "mean", "median", "max")]
        told = [summary["latency"][key] for key in ("min", "mean", "p50", "max")]
        assert found == pytest.approx([summary["rps"], summary["requests"], *told])

    for content, words in (
        ('{"schema"', "is damaged or isn't JSON"),
        ('{"schema": 1}', "has schema 1"),
        ('{"name": "other"}', "was not written by --fileperf-json"),
    ):
        (project.top / "bad.json").write_text(content)
        code, text = report(project, "report", "bad.json")
        assert (code, words in text) == (1, True), text
    assert report(project, "report", "kept.json", "--markdown=bad.json/it.md")[0] == 1
    assert report(project, "report")[0] == 2
