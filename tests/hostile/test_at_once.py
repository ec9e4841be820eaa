"""Whole runs at once in one project: each measures what is its own, also beside one that is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hostile.runs import QUIET, project_in
from serve.processes import linux

APP = """
import asyncio, os

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown":
                return
    await asyncio.sleep(0.001)  # what a generator at its limit measures is not stored
    body = os.environ["OWNER"].encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})
"""
TESTS = """
import os, time
from pathlib import Path
import pytest

@pytest.mark.fileperf(connections=2, requests=300, boots=1, warmup=0, rounds=1)
@pytest.mark.parametrize("owner", ["one", "two", "killed"])
def test_it(fileperf, owner):
    Path(owner).touch()
    until = time.monotonic() + 20
    while not all(Path(name).exists() for name in ("one", "two", "killed")) and time.monotonic() < until:
        time.sleep(0.01)
    result = fileperf.get("/", expect_body=os.environ["OWNER"].encode())
    assert result.errors == 0
"""
SAVED = {"one": "run.json", "two": "run.json", "killed": "killed.json"}


def started(project: Path, owner: str) -> subprocess.Popen[str]:
    """Starts a run of one test of the project."""
    own = {"OWNER": owner, "TMPDIR": str(project.parent / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("--fileperf", "--fileperf-update=all", f"--fileperf-json={SAVED[owner]}", "-k", owner)
    return subprocess.Popen(
        (sys.executable, "-m", "pytest", *QUIET, *options),
        cwd=project,
        env={name: value for name, value in os.environ.items() if name != "CI"} | own,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (*(tmp_path / "temporary").iterdir(), *tmp_path.rglob(".fileperf-*"))]


@linux
def test_runs_at_once_measure_and_store_their_own_and_one_that_is_killed_takes_nothing_from_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "temporary").mkdir()
    project = project_in(tmp_path / "project", TESTS, app=APP)
    runs = {owner: started(project, owner) for owner in ("one", "two", "killed")}
    until_s = time.monotonic() + 30
    while not all((project / owner).exists() for owner in runs) and time.monotonic() < until_s:
        time.sleep(0.01)
    runs["killed"].send_signal(signal.SIGKILL)
    texts = {owner: run.communicate(timeout=60)[0] for owner, run in runs.items()}

    assert [runs[owner].returncode for owner in ("one", "two")] == [0, 0], texts
    (path,) = (project / ".fileperf").glob("*-*/*.json")
    assert {"test_it.py::test_it[one]", "test_it.py::test_it[two]"} <= set(json.loads(path.read_text())["tests"]), texts
    (result,) = json.loads((project / "run.json").read_text(encoding="utf-8"))["results"]
    assert result["test"]["name"] in ("test_it[one]", "test_it[two]")
    until_s = time.monotonic() + 5
    while left(tmp_path) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert left(tmp_path) == []
