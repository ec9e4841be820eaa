"""A cause accounts for the loss: what is named is what cost the time, by its size; else it is not named."""

from __future__ import annotations

import re

import pytest
from contracts.project import Project, Ran, results

pytestmark = pytest.mark.timeout(300)  # up to three comparisons on a busy machine
APP = """
import asyncio
import hashlib
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

BODY = bytes(range(256)) * 4
pool = ThreadPoolExecutor(2)
narrow = ThreadPoolExecutor(1)
places = asyncio.Semaphore(4)
opened = []


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BODY).digest()


def crunch(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        zlib.compress(BODY * 400, 9)


async def pooled():
    async with places:
        if len(opened) < 4:
            opened.append(1)
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.02)


async def work(path):
    {work}


async def app(scope, receive, send):
    if scope["type"] == "http":
        await work(scope["path"])
        await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
        await send({{"type": "http.response.body", "body": b"ok"}})
"""
QUICK = 'gate="rps", connections={connections}, max_duration="10s"'
RATE = 'gate="p95", rate=60, max_duration="15s"'


def compared(
    project: Project, before: str, now: str, *, load: str, path: str = "fileperf.get('/'", told: str = ""
) -> Ran:
    test = f"def test_it(fileperf):\n    {path}, {load})\n"
    files = {"app.py": APP.format(work=now), "before/app.py": APP.format(work=before), "test_it.py": test}
    ran = project.write(files).told(f"REGRESSED.*{told}", "--fileperf-against=./before")
    assert ran.status == 1, ran.text
    assert "REGRESSED" in ran.said, ran.text
    return ran


WAITS = r"[\d.]+ of [\d.]+ (ms|s) more are waiting, not CPU"
GROWN = "CPU per request grew|no profile"
BLOCKED = r"waited for the event loop: blocked for ([\d.]+ (?:ms|s)) at a time"


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


def test_a_wait_is_not_explained_by_a_little_cpu(project: Project) -> None:
    now = "burn(0.00015); await asyncio.sleep(0.02)"
    ran = compared(project, "burn(0.0001)", now, load=QUICK.format(connections=4), told=WAITS)

    assert re.search(WAITS, ran.said), ran.text
    assert "CPU per request grew" not in ran.said, ran.text
    assert "in burn" not in ran.said, ran.text


def test_cpu_is_not_called_waiting(project: Project) -> None:
    ran = compared(project, "burn(0.0001)", "burn(0.003)", load=QUICK.format(connections=4), told=GROWN)

    assert "waiting, not CPU" not in ran.said, ran.text
    assert re.search(GROWN, ran.said), ran.text


def test_a_core_that_the_server_s_own_threads_share_is_no_wait(project: Project) -> None:
    before = "await asyncio.get_running_loop().run_in_executor(pool, burn, 0.0004)"
    ran = compared(project, before, "burn(0.004)", load=QUICK.format(connections=4), told=GROWN)

    assert "waiting, not CPU" not in ran.said, ran.text
    assert re.search(GROWN, ran.said), ran.text


def test_a_pool_with_one_thread_is_told_as_requests_that_wait_for_each_other(project: Project) -> None:
    work = "await asyncio.get_running_loop().run_in_executor({}, time.sleep, 0.02)"
    turns = "Waiting: requests wait for each other, about 1 is served at a time"
    ran = compared(project, work.format("pool"), work.format("narrow"), load=QUICK.format(connections=8), told=turns)

    assert "more are waiting, not CPU" in ran.said, ran.text
    assert turns in ran.said, ran.text


def test_work_in_threads_too_short_to_be_seen_is_told_with_its_size(project: Project) -> None:
    work = "await asyncio.get_running_loop().run_in_executor(pool, burn, {})"
    load = QUICK.format(connections=4)
    ran = compared(project, work.format(0.00005), work.format(0.0003), load=load)

    profile = results(ran)["test_it"]["profile"]
    named = {each["function"]: each["growth_s"] for each in profile.get("functions", ())}
    assert set(named) <= {"burn", "work", "other threads, whose calls are too short to be seen"}, named
    assert sum(named.values()) == pytest.approx(250e-6, rel=0.3)


def test_a_sleep_in_an_async_def_blocks_the_event_loop_and_is_named(project: Project) -> None:
    by = rf"{BLOCKED} by (.*?) ?,? code that waits"
    before, now = "await asyncio.sleep(0.02)", "time.sleep(0.02)"
    ran = compared(project, before, now, load=QUICK.format(connections=4), told=by)

    assert "more are waiting, not CPU" in ran.said, ran.text
    found = re.search(by, ran.said)
    assert found is not None, ran.text
    assert 0.018 <= seconds(found[1]) <= 0.2
    assert found[2] == "" or "work (app.py:" in found[2]


def test_work_that_moved_from_a_thread_to_the_event_loop_is_said(project: Project) -> None:
    before = "path == '/export' and await asyncio.get_running_loop().run_in_executor(pool, crunch, 0.08)"
    mix = "fileperf.mix({part.get('/export', name='export'): 1, part.get('/', name='small'): 24}"
    rate = RATE.replace("60", "100")
    project.write({"conftest.py": "import builtins\nfrom pytest_fileperf import part\nbuiltins.part = part\n"})
    ran = compared(project, before, "path == '/export' and crunch(0.08)", load=rate, path=mix, told=BLOCKED)

    assert "did not grow" not in ran.said, ran.text
    found = re.search(BLOCKED, ran.said)
    assert found is not None, ran.text
    assert 0.05 <= seconds(found[1]) <= 1.0
    assert "code that computes; it ran in a thread before" in ran.said, ran.text


def test_no_time_is_called_lost_where_only_memory_grew(project: Project) -> None:
    before, now = "burn(0.001)", "opened.append(bytes(100_000))"
    ran = compared(project, before, now, load='gate=("rps", "rss"), connections=4, max_duration="10s"')

    assert "rss" in ran.said, ran.text
    assert "waiting" not in ran.said, ran.text
    assert "CPU per request" not in ran.said, ran.text


def test_a_pool_that_is_cold_at_first_is_no_concurrency(project: Project) -> None:
    load = 'duration="1.5s", boots=1, warmup="0.6s", gate="none"'
    test = f"""
    import pytest

    @pytest.mark.parametrize("connections", [12, 3])
    def test_it(fileperf, connections):
        fileperf.get("/", connections=connections, {load})
    """
    ran = project.write({"app.py": APP.format(work="await pooled()"), "test_it.py": test}).run("-v")

    assert ran.status == 0, ran.text
    crowded, few = (results(ran)[f"test_it[{connections}]"]["limit"] for connections in (12, 3))
    assert crowded["kind"] == "unclear", crowded
    assert re.match(r"requests wait for each other, about [3-7] are served at a time", crowded["evidence"]), crowded
    assert few["kind"] == "concurrency", few
