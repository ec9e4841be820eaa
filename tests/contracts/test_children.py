"""Work in child processes is told as theirs, and never as that of the functions that start them."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from contracts.project import Project, results

pytestmark = pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None, reason="py-spy is not installed"
)
APP = """
import asyncio, hashlib
from concurrent.futures import ProcessPoolExecutor

pools = []
BODY = bytes(1_000_000)


def digest():
    return len([hashlib.sha1(BODY).digest() for _ in range(4)])


async def in_pool():
    if not pools:
        pools.append(ProcessPoolExecutor(1))
    await asyncio.get_running_loop().run_in_executor(pools[0], digest)


async def in_tool():
    tool = await asyncio.create_subprocess_exec("sh", "-c", "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done")
    await tool.wait()


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await (in_pool() if scope["path"] == "/pool" else in_tool())
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})
"""
TESTS = """
import pytest

@pytest.mark.parametrize("path,requests", [("/pool", 100), ("/tool", 30)], ids=["pool", "tool"])
def test_path(fileperf, path, requests):
    fileperf.get(path, connections=2, requests=requests, duration="60s", boots=1, warmup="0.1s", gate="none")
"""
TOOL = "child processes (functions unknown)"


def test_child_processes_are_looked_at_or_told_by_their_size(project: Project) -> None:
    project.write({"app.py": APP, "test_load.py": TESTS})

    ran = project.told(re.escape(TOOL), "--fileperf-profile")

    found = {name: result["profile"]["functions"] for name, result in results(ran).items()}
    pool, tool = (
        {each["function"]: each["cost_s"] for each in found[f"test_path[{path}]"]} for path in ("pool", "tool")
    )
    assert pool["digest"] > 0.5 * max(pool.values())
    assert TOOL not in pool
    assert tool[TOOL] > 0.5 * max(tool.values())
