"""A history: what of an interrupted run is in it, and how the commit is found that began a step in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from contracts.answers import answering
from contracts.project import Project

TESTS = """
def test_get(fileperf):
    fileperf.get("/", connections=4, gate="rps", duration="0.2s", warmup="0.1s")
"""
ENDED = """
def test_get(fileperf):
    fileperf.get("/", server="inprocess", requests=20, boots=1)

def test_ended():
    raise KeyboardInterrupt
"""


def git(project: Project, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=project.top, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.timeout(300)
def test_a_step_is_measured_again_and_bisected(project: Project) -> None:
    """Of three commits, the second made the app slower; the history has runs of the first and of the last."""
    ignored = ".run.json\n.fileperf/\n__pycache__/\n"
    for number in range(3):
        app = answering(0.02 if number else 0.002) + f"# {number}\n"
        project.write({".gitignore": ignored, "app.py": app, "test_it.py": TESTS}).commit()
    commits = git(project, "rev-list", "--reverse", "HEAD").split()
    lines = [
        {
            "v": 1,
            "id": str(run),
            "at": f"2026-11-25T09:41:{run}+00:00",
            "tree": f"{run:012d}",
            "machine": "any",
            "packages": "p",
            "tests": {"test_it.py::test_get": {"old": "0" * 12, "work": "w", "ratios": {"rps": [ratio, 0.01, 6]}}},
            "commit": commit,
        }
        for commit, ratio, runs in ((commits[0], 0.0, range(10, 16)), (commits[2], -2.0, range(16, 22)))
        for run in runs
    ]
    project.write({".fileperf/history.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines)})
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def run(*command: str, shell: bool = False) -> str:
        done = subprocess.run(
            command[0] if shell else command,
            cwd=project.top,
            env=env,
            shell=shell,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    said = run(sys.executable, "-m", "pytest_fileperf", "trend", "--check")
    assert "test_it.py::test_get rps: yes, −" in said, said
    assert "the commit is one of 2; these commands find it:" in said, said
    start, bisect = (line.strip() for line in said.splitlines()[-2:])
    run(start, shell=True)
    assert f"{commits[1]} is the first bad commit" in run(bisect, shell=True)


def test_an_interrupted_run_adds_no_line_and_says_so(project: Project) -> None:
    project.write({"app.py": answering(), "test_it.py": ENDED})
    ran = project.run("--fileperf-history")
    assert ran.status == 2, ran.text
    assert "history.jsonl: the run was interrupted" in ran.said, ran.text
    assert not (project.top / ".fileperf" / "history.jsonl").exists()


def test_a_run_without_baselines_says_how_to_get_them(project: Project) -> None:
    project.write({"app.py": answering(), "test_it.py": TESTS}).commit()
    ran = project.run("--fileperf-history")
    assert "history.jsonl: no test has a baseline. Store them with --fileperf-update=new" in ran.said, ran.text
