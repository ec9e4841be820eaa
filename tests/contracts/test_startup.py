"""Start-ups as a metric: fresh ones, compared with another version's; a longer one is told with the import that is."""

from __future__ import annotations

import pytest
from contracts.project import Project, Ran, results

APP = """
import asyncio
import {}

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    await asyncio.sleep(0.005)
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
TESTS = """
import pytest

pytestmark = pytest.mark.fileperf(gate="startup", connections=2, max_duration="40s")

def test_slow(fileperf):
    fileperf.get("/", tolerance="20%")

def test_same(fileperf):
    found = fileperf.get("/", app="same:app", tolerance="200%")
    assert 0 < found.server.startup < 60
"""
LIMITS = """
import pytest
from pytest_fileperf import Command

LOAD = {"connections": 2, "duration": "200ms", "warmup": 0, "gate": "none", "boots": 1}
SERVE = "import http.server as s, time; time.sleep(0.2); s.test(s.SimpleHTTPRequestHandler, port={port}, bind='{host}')"

SERVERS = {"workers": "uvicorn:workers=2", "command": Command(["{python}", "-c", SERVE])}

@pytest.mark.parametrize("kind,boots", [("workers", 1), ("command", 2)])
def test_holds(fileperf, kind, boots):
    found = fileperf.get("/", server=SERVERS[kind], max_startup="60s", **{**LOAD, "boots": boots})
    assert 0.1 < found.server.startup < 60

def test_too_slow(fileperf):
    fileperf.get("/", app="slow:app", max_startup="300ms", **LOAD)

def test_unasked(fileperf):
    assert fileperf.get("/", app="slow:app", **LOAD).server.startup is None  # though it is the boot that was timed

def test_none(fileperf):
    fileperf.get("/", server="inprocess", max_startup="3s")
"""


@pytest.mark.timeout(300)
def test_a_longer_import_is_a_longer_start_up_and_named(project: Project) -> None:
    project.write({"app.py": APP.format("helper"), "same.py": APP.format("os"), "helper.py": "", "test_it.py": TESTS})
    project.commit().write({"helper.py": "import time\ntime.sleep(0.8)\n"})
    words = {"slow": "REGRESSED", "same": "PASS"}

    def missed(name: str, ran: Ran) -> list[str]:
        outcome = results(ran)[f"test_{name}"]["verdict"]["outcome"]
        return [] if outcome == words[name] else [outcome]

    last = project.each_told(words, missed, "--fileperf-against=HEAD")
    assert [missed(name, ran) for name, ran in last.items()] == [[], []], [ran.text for ran in last.values()]
    ran = last["slow"]
    slow = results(ran)["test_slow"]
    assert ran.status == 1, ran.text
    assert "because of longer imports:" in ran.said, ran.text
    assert "s in helper" in ran.said, ran.text
    (longer,) = slow["profile"]["startup"]["imports"]
    assert longer["name"] == "helper"
    assert 0.7 < longer["now_s"] - longer["base_s"] < 10
    assert all(boot["startup"] > 0.8 for boot in slow["boots"])


def test_the_start_up_of_each_server_has_a_limit(project: Project) -> None:
    project.write({"app.py": APP.format("os"), "slow.py": APP.format("time; time.sleep(0.3)"), "test_it.py": LIMITS})
    ran = project.run()

    assert "2 failed, 3 passed" in ran.said, ran.text
    assert "max_startup 300 ms" in ran.said, ran.text
    assert "max_startup: InProcess() starts no process, so there is no start-up to measure" in ran.said
