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

COMMAND = ["{python}", "-m", "uvicorn", "app:app", "--port", "{port}"]

@pytest.mark.parametrize("server", [Uvicorn(), Gunicorn(), Command(COMMAND)], ids=["uvicorn", "gunicorn", "command"])
def test_facts(fileperf, server):
    fileperf.get("/", server=server, connections=1, requests=3, boots=1, warmup=0, expect_body=EXPECTED)
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
SLOWLY = """
import pytest

@pytest.mark.parametrize("what", ["file", "memory", "full"])
def test_get(fileperf, what):
    # a rate, so that what grows is far from any limit on a fast machine, too
    fileperf.get(f"/{what}", app="app:app", rate=150, connections=2, duration="2s", boots=1, warmup="0.2s", gate="none")
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


def test_a_server_has_the_allocator_and_the_limit_of_open_files_that_the_shell_gives(project: Project) -> None:
    with files_limited_to(777) as limits:
        expected = json.dumps({"files": limits, "allocator": []}).encode()
        ran = project.write({"app.py": FACTS, "test_load.py": ASKED.replace("EXPECTED", repr(expected))}).run("-v")

    assert ran.status == 0, ran.text
    assert "access log off" in ran.said, ran.text


def test_a_server_that_runs_out_of_files_is_told(project: Project) -> None:
    project.write({"app.py": FACTS, "test_load.py": CROWD})
    with files_limited_to(64):
        ran = project.run("--fileperf-server=uvicorn:loop=uvloop")

    assert "the server had 64 open files, all that its shell allows (`ulimit -n`)" in ran.said, ran.text
    assert results(ran)["test_get"]["growth"]["files_limit"] == 64


def test_the_access_log_is_measured_with_if_asked_for(project: Project) -> None:
    ran = project.write({"app.py": FACTS, "test_load.py": LOGGED}).run("--fileperf-server=uvicorn:access_log=yes", "-v")

    assert ran.status == 0, ran.text
    assert "access log on" in ran.said, ran.text
    assert [one["identity"]["server"].get("access_log") for one in results(ran).values()] == [True, True]


def test_what_grows_with_each_request_is_told_and_a_cache_that_is_full_is_not(project: Project) -> None:
    ran = project.write({"app.py": GROWING, "test_load.py": SLOWLY}).run()
    growth = {name: one["growth"] for name, one in results(ran).items()}

    assert ran.status == 0, ran.text
    assert "open files grew by 1.0 a request" in ran.said, ran.text
    assert growth["test_get[file]"]["open_files"] == pytest.approx(1.0, abs=0.2)
    assert "open_files" in growth["test_get[file]"]["lasting"]
    assert ran.said.count("memory grew by") == 1
    assert growth["test_get[memory]"]["memory_bytes"] == pytest.approx(100_000, rel=0.3)
    assert growth["test_get[full]"]["lasting"] == []


def test_growth_is_told_for_each_code_of_a_comparison(project: Project) -> None:
    project.write({"old/app.py": GROWING.replace("/nothing", "/what"), "old/pytest.ini": "[pytest]\npythonpath = .\n"})
    new = Project(top=project.top / "p")
    new.top.mkdir()
    new.write({"app.py": GROWING.replace("/file", "/what"), "test_load.py": COMPARED})
    ran = new.run("--fileperf-against=../old")

    assert "open files grew by 1.0 a request, and did not with the old code" in ran.said, ran.text
    assert results(ran)["test_get"]["base"]["growth"]["lasting"] == []
