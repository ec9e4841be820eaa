"""The server is the user's: its allocator, limit of open files and access log; and what it holds more and more of."""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from contracts.project import Project, results

if sys.platform != "linux":
    pytest.skip("limits and open files are read from /proc", allow_module_level=True)

FACTS = """
import json, os, resource

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    names = sorted(name for name in os.environ if name.startswith("MALLOC_"))
    body = json.dumps({"files": resource.getrlimit(resource.RLIMIT_NOFILE), "allocator": names}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""
ASKED = """
from pytest_fileperf import Command, Gunicorn, Uvicorn
import pytest

COMMAND = ["{python}", "-m", "uvicorn", "facts:app", "--port", "{port}"]

@pytest.mark.parametrize("server", [Uvicorn(), Gunicorn(), Command(COMMAND)], ids=["uvicorn", "gunicorn", "command"])
def test_facts(fileperf, server):
    few = {"connections": 1, "requests": 3, "boots": 1, "warmup": 0}
    fileperf.get("/", app="facts:app", server=server, expect_body=EXPECTED, **few)
"""
CROWD = """
def test_get(fileperf):
    fileperf.get("/", connections=100, duration="0.5s", boots=1, warmup="0.1s", timeout="3s")
"""
LOGGED = """
import pytest
from pytest_fileperf import Gunicorn, Uvicorn

@pytest.mark.fileperf(server=Uvicorn(access_log=True))
def test_uvicorn(fileperf, fileperf_server):
    fileperf.get("/", connections=1, requests=20, boots=1, warmup=0)
    assert any('"GET / HTTP/1.1" 200' in line for line in fileperf_server.log)

@pytest.mark.fileperf(server=Gunicorn(access_log=True))
def test_gunicorn(fileperf, fileperf_server):
    fileperf.get("/", connections=1, requests=20, boots=1, warmup=0)
    assert any('"GET / HTTP/1.1" 200' in line for line in fileperf_server.log)
"""
GROWING = """
import asyncio

held = []
hold = {
    "/file": lambda: held.append(open(__file__)),
    "/memory": lambda: held.append(b"x" * 100_000),
    "/full": lambda: len(held) < 150 and held.append((open(__file__), b"x" * 200_000)),
    "/nothing": lambda: None,
}

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    hold[scope["path"]]()
    await asyncio.sleep(0.005)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
MANY = """
def test_too_many(fileperf):
    with pytest.raises(Exception, match="ulimit -n 1000000256"):
        fileperf.get("/", connections=10**9, duration="0.3s", boots=1, warmup=0, gate="none")
"""
SLOWLY = """
@pytest.mark.parametrize("what", ["file", "memory", "full"])
def test_grows(fileperf, what):
    # a rate, so that what grows is far from any limit on a fast machine, too
    fileperf.get(f"/{what}", rate=150, connections=2, duration="1.2s", boots=1, warmup="0.2s", gate="none")
"""
COMPARED = """
def test_get(fileperf):
    fileperf.get("/what", connections=2, max_duration="5s", gate=["rps"])
"""


@contextmanager
def files_limited_to(count: int) -> Iterator[tuple[int, int]]:
    """Lets this process, and so the runs of the block, open so many files; gives its limits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield count, hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_is_as_the_shell_would_start_it_and_what_grows_in_it_is_told(project: Project) -> None:
    """It has the shell's allocator and limit of open files. A cache that is full does not grow."""
    with files_limited_to(777) as limits:
        expected = json.dumps({"files": limits, "allocator": []}).encode()
        tests = ASKED.replace("EXPECTED", repr(expected)) + SLOWLY
        ran = project.write({"facts.py": FACTS, "app.py": GROWING, "test_load.py": tests}).run("-v")
    growth = {name.removeprefix("test_grows"): one["growth"] for name, one in results(ran).items()}

    assert ran.status == 0, ran.text
    assert "access log off" in ran.said, ran.text
    assert "open files grew by 1.0 per request" in ran.said, ran.text
    assert growth["[file]"]["open_files"] == pytest.approx(1.0, abs=0.2)
    assert "open_files" in growth["[file]"]["lasting"]
    assert ran.said.count("memory grew by") == 1
    assert growth["[memory]"]["memory_bytes"] == pytest.approx(100_000, rel=0.3)
    assert growth["[full]"]["lasting"] == []


def test_a_server_that_runs_out_of_files_is_told_and_logs_if_asked_to(project: Project) -> None:
    project.write({"app.py": FACTS, "test_load.py": LOGGED + CROWD + MANY})
    with files_limited_to(64):
        ran = project.run("--fileperf-server=uvicorn:loop=uvloop,access_log=yes", "-v")

    found = results(ran)
    assert "3 passed" in ran.said, ran.text
    assert "the server used all 64 open files that its shell allows (`ulimit -n`)" in ran.said, ran.text
    assert found["test_get"]["growth"]["files_limit"] == 64
    assert "access log on" in ran.said, ran.text
    assert {one["identity"]["server"].get("access_log") for one in found.values()} == {True}


def test_growth_is_told_for_each_code_of_a_comparison(project: Project) -> None:
    project.write({"old/app.py": GROWING.replace("/nothing", "/what"), "old/pytest.ini": "[pytest]\npythonpath = .\n"})
    new = Project(top=project.top / "p")
    new.top.mkdir()
    new.write({"app.py": GROWING.replace("/file", "/what"), "test_load.py": COMPARED})
    ran = new.run("--fileperf-against=../old")

    assert "open files grew by 1.0 per request, and did not with the old code" in ran.said, ran.text
    assert results(ran)["test_get"]["base"]["growth"]["lasting"] == []
