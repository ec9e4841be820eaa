"""What a server's processes use: children that work for it, and work that goes on after its last answer."""

from __future__ import annotations

import os
import re

import pytest
from contracts.project import Project, Ran, results

pytestmark = pytest.mark.timeout(300)
TWO_CORES = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) >= 2

ASGI = """
import asyncio, json, os, sys, threading, time
from concurrent.futures import ProcessPoolExecutor

def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        await begin()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    body = json.dumps(await answer(scope["path"])).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
"""
IN_POOL = """
pool = None

def cores(seconds):
    burn(seconds)
    return len(os.sched_getaffinity(0))

async def begin():
    global pool
    pool = ProcessPoolExecutor(2)
    if EARLY:
        list(pool.map(cores, [0.0] * 16))

async def answer(path):
    child = await asyncio.get_running_loop().run_in_executor(pool, cores, 0.01)
    return {"child": child, "worker": len(os.sched_getaffinity(0))}
"""
PASSING = """
CODE = '''
import os, time
while time.process_time() < 0.05:
    pass
print(len(os.sched_getaffinity(0)))
'''

async def begin():
    pass

async def answer(path):
    child = await asyncio.create_subprocess_exec(sys.executable, "-S", "-c", CODE, stdout=asyncio.subprocess.PIPE)
    printed, _ = await child.communicate()
    return {"child": int(printed)}
"""
IN_LOOP = """
async def begin():
    pass

async def answer(path):
    burn(0.01)
    return {}
"""
LATER = """
tasks = None

async def work():
    while True:
        await asyncio.to_thread(burn, await tasks.get())

async def begin():
    global tasks
    tasks = asyncio.Queue()
    begin.task = asyncio.create_task(work())

async def answer(path):
    tasks.put_nowait(0.01)
    await asyncio.sleep(0.002)
    return {}
"""
ALWAYS = """
def ticking():
    while True:
        burn(0.006)
        time.sleep(0.006)

async def begin():
    threading.Thread(target=ticking, daemon=True).start()

async def answer(path):
    await asyncio.sleep(0.002)
    return {}
"""
ALONE = """
import os
import httpx
import pytest

APPS = {name: pytest.mark.fileperf(app=f"app_{name}:app") for name in ("early", "late", "passing")}

@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [])(0)) < 2, reason="needs two cores, and affinity")
@pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in APPS.items()])
def test_get(fileperf, fileperf_server, name):
    fileperf.get("/", connections=4, requests=40, duration="60s", boots=1, gate="none")
    cores = httpx.get(fileperf_server.url + "/", timeout=30).json()
    assert cores["child"] == len(os.sched_getaffinity(0))
    assert cores.get("worker", 1) == 1

@pytest.mark.parametrize("name,gate", [("later", "rps"), ("always", "none")], ids=["later", "always"])
def test_work(fileperf, name, gate):
    load = dict(connections=4, duration="0.8s", max_duration="3s", boots=1, warmup="0.2s")
    fileperf.get("/", app=f"app_{name}:app", gate=gate, **load)
"""
NAMES = ["test_get[early]", "test_get[late]", "test_get[passing]", "test_work[always]", "test_work[later]"]
COMPARED = """
LOAD = dict(connections=4, max_duration="3s", gate="rps")

def test_pool(fileperf):
    fileperf.get("/", app="app_late:app", **LOAD)

def test_left(fileperf):
    fileperf.get("/", app="app_later:app", **LOAD)
"""
APPS = {
    "app_early.py": f"{ASGI}\nEARLY = True\n{IN_POOL}",
    "app_late.py": f"{ASGI}\nEARLY = False\n{IN_POOL}",
    "app_passing.py": ASGI + PASSING,
    "app_later.py": ASGI + LATER,
    "app_always.py": ASGI + ALWAYS,
}


def require_cpu_that_was_there(ran: Ran, name: str = "") -> None:
    """A rate times the CPU time of a request is at most the cores that the server had."""
    for result in (one for each, one in results(ran).items() if name in each):
        use = result["summary"]["server"]
        assert use["cpu_per_request"] is not None
        assert result["summary"]["rps"] * use["cpu_per_request"] <= use["cores"] * 1.02


def told(ran: Ran, name: str) -> str:
    """Returns what `-v` shows of a test."""
    found = re.search(rf"^{re.escape(name)}  .*?(?=^\S|\Z)", ran.text, re.DOTALL | re.MULTILINE)
    return " ".join(found[0].split()) if found else ""


def test_processes_of_an_app_have_all_cores_and_count_and_work_left_behind_is_not_stored(project: Project) -> None:
    """A pool that is made with the app or by the first request, a child for each request; what a server always does."""
    left = "of a core after its last answer. It cannot sustain these requests/s"

    def missed(name: str, ran: Ran) -> list[str]:
        return [left] * (name == "work" and left not in told(ran, "test_work[later]"))

    project.write({**APPS, "test_load.py": ALONE}).commit()
    last = project.each_told(("get", "work"), missed, "--fileperf-update=new", "-v")
    get, work = last["get"], last["work"]

    for ran in (get, work):
        assert ran.record["failed"] == [], ran.text
        require_cpu_that_was_there(ran)
        assert "so their CPU and memory are unknown" not in ran.said or not TWO_CORES, ran.text
        leaving = [name for name in results(ran) if "after its last answer" in told(ran, name)]
        assert set(leaving) <= {"test_work[later]"}, ran.text
    assert left in told(work, "test_work[later]"), work.text
    assert not results(work)["test_work[later]"]["baseline_written"]
    if not TWO_CORES:
        return
    assert sorted({*results(get), *results(work)}) == NAMES, get.text
    assert get.said.count("in child processes, which may use") >= 2, get.text
    early, late, passing = (
        results(get)[f"test_get[{name}]"]["summary"]["server"] for name in ("early", "late", "passing")
    )
    assert passing["cpu_per_request"] >= 0.045
    for use in (early, late):
        assert use["cpu_per_request"] >= 0.009
        assert use["children_cpu_share"] >= 0.5 * use["cpu_share"]


def test_a_pool_is_not_slower_than_the_event_loop_and_work_left_behind_is_no_gain(project: Project) -> None:
    def missed(name: str, ran: Ran) -> list[str]:
        return ["after its last answer"] * (name == "left" and "after its last answer" not in ran.said)

    before = {f"before/{name}": ASGI + IN_LOOP for name in APPS}
    project.write({**APPS, **before, "test_load.py": COMPARED})
    last = project.each_told(("left", "pool"), missed, "--fileperf-against=./before", "-v")
    left, pool = last["left"], last["pool"]

    assert results(left)["test_left"]["standing"] == "INCONCLUSIVE", left.text
    assert "after its last answer" in left.said, left.text
    assert "background work" not in left.said + pool.said, left.text
    if TWO_CORES:
        assert results(pool)["test_pool"]["standing"] != "REGRESSED", pool.text
        assert "so their CPU and memory are unknown" not in left.said + pool.said, pool.text
        require_cpu_that_was_there(pool, "test_pool")
