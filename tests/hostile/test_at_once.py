"""Two whole runs at once in one project: each measures what is its own, and neither takes anything from the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.runs import QUIET, project_in
from serve.processes import linux, posix

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
@pytest.mark.parametrize("owner", ["one", "two"])
def test_it(fileperf, owner):
    Path(owner).touch()
    until = time.monotonic() + 20
    while not (Path("one").exists() and Path("two").exists()) and time.monotonic() < until:
        time.sleep(0.01)
    result = fileperf.get("/", expect_body=os.environ["OWNER"].encode())
    assert result.errors == 0
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a run of one test of the project."""
    (tmp_path / "temporary").mkdir()
    project = project_in(tmp_path / "project", TESTS, app=APP)

    def start(owner: str, *options: str) -> subprocess.Popen[str]:
        given = {"OWNER": owner, "TMPDIR": str(tmp_path / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"}
        env = {name: value for name, value in os.environ.items() if name != "CI"} | given
        command = (sys.executable, "-m", "pytest", *QUIET, "--fileperf", "--fileperf-update=all", "-k", owner, *options)
        return subprocess.Popen(
            command, cwd=project, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    return start


def left(tmp_path: Path) -> list[str]:
    return [path.name for path in (*(tmp_path / "temporary").iterdir(), *tmp_path.rglob(".fileperf-*"))]


def stored(tmp_path: Path, said: str) -> set[str]:
    found = list((tmp_path / "project" / ".fileperf").glob("*-*/*.json"))
    assert len(found) == 1, said
    return {name.partition("[")[2] for name in json.loads(found[0].read_text(encoding="utf-8"))["tests"]}


@posix
def test_two_runs_at_once_measure_and_store_their_own(start: Start, tmp_path: Path) -> None:
    runs = {owner: start(owner, "--fileperf-json=run.json") for owner in ("one", "two")}
    texts = {owner: run.communicate(timeout=60)[0] for owner, run in runs.items()}
    assert [run.returncode for run in runs.values()] == [0, 0], texts
    assert stored(tmp_path, "".join(texts.values())) == {"one]", "two]"}
    (result,) = json.loads((tmp_path / "project" / "run.json").read_text(encoding="utf-8"))["results"]
    assert result["test"]["name"] in ("test_it[one]", "test_it[two]")
    assert left(tmp_path) == []


@linux
def test_a_run_that_is_killed_takes_nothing_from_one_beside_it(start: Start, tmp_path: Path) -> None:
    runs = {owner: start(owner) for owner in ("one", "two")}
    until_s = time.monotonic() + 30
    while not all((tmp_path / "project" / owner).exists() for owner in runs) and time.monotonic() < until_s:
        time.sleep(0.01)
    runs["one"].send_signal(signal.SIGKILL)
    text, _ = runs["two"].communicate(timeout=60)
    runs["one"].communicate(timeout=60)
    assert runs["two"].returncode == 0, text
    assert stored(tmp_path, text) >= {"two]"}
    until_s = time.monotonic() + 5
    while left(tmp_path) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert left(tmp_path) == []
