"""What a server's processes use: children that work for it, and work that goes on after its last answer."""

from __future__ import annotations

import os

import pytest
from contracts.project import Project, Ran, results

two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores, and affinity"
)

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
    return {}
"""
ON_THE_CORES = """
import os
import httpx
import pytest

APPS = {name: pytest.mark.fileperf(app=f"app_{name}:app") for name in ("early", "late", "passing")}

@pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in APPS.items()])
def test_get(fileperf, fileperf_server, name):
    fileperf.get("/", connections=4, duration="1.5s", boots=1, warmup="0.5s", gate="none")
    cores = httpx.get(fileperf_server.url + "/", timeout=30).json()
    assert cores["child"] == len(os.sched_getaffinity(0))
    assert cores.get("worker", 1) == 1
"""
ALONE = """
def test_get(fileperf):
    fileperf.get("/", connections=4, duration="1s", boots=1, warmup="0.2s")
"""
COMPARED = """
def test_get(fileperf):
    fileperf.get("/", connections=8, max_duration="5s", gate="rps")
"""


def require_cpu_that_was_there(ran: Ran) -> None:
    """A rate times the CPU time of a request is at most the cores that the server had."""
    for result in results(ran).values():
        use = result["summary"]["server"]
        assert use["cpu_per_request"] is not None
        assert result["summary"]["rps"] * use["cpu_per_request"] <= use["cores"] * 1.02


@two_cores
def test_processes_of_an_app_have_all_cores_and_count(project: Project) -> None:
    """A pool that is made with the app or by the first request, and a child for each request."""
    apps = {
        "app_early.py": f"{ASGI}\nEARLY = True\n{IN_POOL}",
        "app_late.py": f"{ASGI}\nEARLY = False\n{IN_POOL}",
        "app_passing.py": ASGI + PASSING,
    }
    ran = project.write({**apps, "test_load.py": ON_THE_CORES}).run("-v")

    assert ran.status == 0, ran.text
    assert "what they used is unknown" not in ran.said, ran.text
    assert ran.said.count("in child processes, which may use") >= 2, ran.text
    require_cpu_that_was_there(ran)
    early, late, passing = (
        results(ran)[f"test_get[{name}]"]["summary"]["server"] for name in ("early", "late", "passing")
    )
    assert passing["cpu_per_request"] >= 0.045
    for use in (early, late):
        assert use["cpu_per_request"] >= 0.009
        assert use["children_cpu_share"] >= 0.5 * use["cpu_share"]


@two_cores
def test_a_pool_is_not_slower_than_the_event_loop(project: Project) -> None:
    pool = f"{ASGI}\nEARLY = False\n{IN_POOL}"
    project.write({"app.py": pool, "before/app.py": ASGI + IN_LOOP, "test_load.py": COMPARED})
    ran = project.run("--fileperf-against=./before", "-v")

    assert "REGRESSED" not in ran.said, ran.text
    assert "what they used is unknown" not in ran.said, ran.text
    require_cpu_that_was_there(ran)


def test_work_that_is_left_behind_is_said_and_not_stored(project: Project) -> None:
    project.write({"app.py": ASGI + LATER, "test_load.py": ALONE}).commit()
    ran = project.run("--fileperf-update=new", "-v")

    assert "of a core after its last answer: it cannot sustain these requests/s" in ran.said, ran.text
    assert not results(ran)["test_get"]["baseline_written"]
    require_cpu_that_was_there(ran)


def test_work_that_is_left_behind_is_no_gain(project: Project) -> None:
    project.write({"app.py": ASGI + LATER, "before/app.py": ASGI + IN_LOOP, "test_load.py": COMPARED})
    ran = project.run("--fileperf-against=./before", "-v")

    assert results(ran)["test_get"]["standing"] == "INCONCLUSIVE", ran.text
    assert "after its last answer" in ran.said, ran.text
    assert "background work" not in ran.said, ran.text


def test_what_a_server_always_does_is_no_work_left_behind(project: Project) -> None:
    ran = project.write({"app.py": ASGI + ALWAYS, "test_load.py": ALONE}).run("-v")

    assert ran.status == 0, ran.text
    assert "after its last answer" not in ran.said, ran.text
