"""A cause accounts for the loss: what is named is what cost the time, by its size; else it is not named."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from contracts.project import Project, Ran, results

APP = """
import asyncio
import hashlib
import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

BODY = bytes(range(256)) * 4
ROWS = [{"id": number, "name": f"file {number}", "tags": ["a", "b"]} for number in range(10)]
pool = ThreadPoolExecutor(2)
narrow = ThreadPoolExecutor(1)
wide = ThreadPoolExecutor(4)
places = asyncio.Semaphore(4)
opened = []


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BODY).digest()


def burn_and_wait(seconds):
    burn(seconds)
    time.sleep(0.002)


def crunch(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        zlib.compress(BODY * 400, 9)


def fetch(times):
    for _ in range(times):
        json.dumps(ROWS, indent=1)


async def run_in(pool, *work):
    await asyncio.get_running_loop().run_in_executor(pool, *work)


async def pooled():
    async with places:
        if len(opened) < 4:
            opened.append(1)
            await asyncio.sleep(0.2)
        await asyncio.sleep(0.02)


async def work(path):
    WORK


async def app(scope, receive, send):
    if scope["type"] == "http":
        await work(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change that makes requests worse, and what is said of it."""

    old: str
    new: str
    load: str = "connections=4, gate='rps', max_duration='10s'"
    verb: str = "get('/{}'"
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


WAITS = r"[\d.]+ of the extra [\d.]+ (ms|s) are waiting, not CPU"
BLOCKED = r"waited for the event loop, blocked for ([\d.]+ (?:ms|s)) at a time"
WAITING = {
    # a wait is not explained by a little CPU
    "narrow": Case(
        old="burn(0.0001); await run_in(wide, time.sleep, 0.01)",
        new="burn(0.00015); await run_in(narrow, time.sleep, 0.01)",
        says=(WAITS, "Waiting: requests wait for each other, and the server handles about 1 at a time"),
        never=("CPU per request grew", "in burn"),
    ),
    "sleep": Case(
        old="await asyncio.sleep(0.02)",
        new="time.sleep(0.02)",
        says=(WAITS, rf"{BLOCKED} by (work \(app\.py:\d+\) ?,? )?code that waits"),
    ),
    # each wait is too short to be seen as one, but there are many
    "nap": Case(
        old="await asyncio.sleep(0.004)",
        new="time.sleep(0.004)",
        says=(WAITS, r"the event loop, blocked \d+ % of the time by (work \(app\.py:\d+\),\s+)?code that waits"),
    ),
    # work that moved from a thread to the event loop
    "export": Case(
        old="await run_in(pool, crunch, 0.08)",
        new="crunch(0.08)",
        load="rate=100, gate='p95', max_duration='15s'",
        verb="mix({{part.get('/{0}', name='export'): 1, part.get('/', name='small'): 24}}",
        says=(BLOCKED, "code that computes; it ran in a thread before"),
        never=("did not grow",),
    ),
}
ONE = "connections=1, gate='rps', max_duration='10s'"
"""It takes half of the CPU time, as server and generator work by turns."""
COMPUTING = {
    # short work in threads has its size
    "short": Case(old="await run_in(pool, burn, 0.00005)", new="await run_in(pool, burn, 0.0003)", load=ONE),
    # work in threads, brief before; the core that they share is no wait, and a thread that waits is no cause
    "long": Case(
        old="await run_in(pool, burn, 0.0002)",
        new="await run_in(pool, burn_and_wait, 0.004)",
        says=("CPU per request grew|no profile",),
        never=("waiting, not CPU",),
    ),
    # the same work done more often is found, although it was most before
    "often": Case(
        old="fetch(4)", new="fetch(40)", load=ONE, says=("CPU per request grew",), never=("waiting, not CPU",)
    ),
}


def has_py_spy() -> bool:
    return shutil.which("py-spy", path=str(Path(sys.executable).parent)) is not None


def work(codes: Mapping[str, str]) -> str:
    """Returns the app with the code of each path."""
    lines = "\n    ".join(f"if path == '/{name}': {code}" for name, code in codes.items())
    return APP.replace("WORK", lines)


def failure_of(ran: Ran, name: str) -> str:
    """Returns what a test failed with, in one line."""
    found = re.search(rf"^_+ test_{name} _+$(.*?)^(?:_{{3,}} |={{3,}})", ran.text, re.DOTALL | re.MULTILINE)
    return " ".join(re.sub("^E ", "", found[1], flags=re.MULTILINE).split()) if found else ""


def offences(name: str, case: Case, ran: Ran) -> Iterator[str]:
    said = failure_of(ran, name)
    yield from (words for words in ("REGRESSED", *case.says) if not re.search(words, said))
    yield from (f"not {words}" for words in case.never if re.search(words, said))
    profile = results(ran)[f"test_{name}"].get("profile") or {}
    growth = {each["function"]: each["growth_s"] for each in profile.get("functions", ())}
    if name == "sleep" and (blocked := re.search(BLOCKED, said)) and not 0.018 <= seconds(blocked[1]) <= 0.2:
        yield blocked[1]
    if name == "export" and (blocked := re.search(BLOCKED, said)) and not 0.05 <= seconds(blocked[1]) <= 1.0:
        yield blocked[1]
    if name == "short" and (
        not set(growth) <= {"burn", "other threads (functions unknown)"}
        or sum(growth.values()) != pytest.approx(250e-6, rel=0.3)
    ):
        yield f"{growth}"
    if name == "long" and has_py_spy() and growth != {"burn": pytest.approx(3.8e-3, rel=0.2)}:
        yield f"{growth}"
    if name == "often" and has_py_spy():
        yield from (w for w in (r"dumps \(json/__init__.py:", r"called by fetch \(app.py:") if not re.search(w, said))
        if not growth.get("dumps", 0) > 0.5 * profile.get("growth_s", math.inf):
            yield f"{growth}"


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1.0, "ms": 1e-3, "µs": 1e-6}[unit]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cases", [WAITING, COMPUTING], ids=["waiting", "computing"])
def test_a_cause_accounts_for_the_loss(project: Project, cases: Mapping[str, Case]) -> None:
    """Where other programs have the cores, less is rightly said: what such a run did not tell is asked again."""
    tests = (
        f"def test_{name}(fileperf):\n    fileperf.{case.verb.format(name)}, {case.load})\n\n"
        for name, case in cases.items()
    )
    project.write(
        {
            "app.py": work({name: case.new for name, case in cases.items()}),
            "before/app.py": work({name: case.old for name, case in cases.items()}),
            "test_it.py": "from pytest_fileperf import part\n\n" + "".join(tests),
        }
    )

    def missed(name: str, ran: Ran) -> list[str]:
        return list(offences(name, cases[name], ran))

    last = project.each_told(cases, missed, "--fileperf-against=./before", width=100)
    wrong = {name: missed(name, ran) for name, ran in last.items()}
    assert not any(wrong.values()), f"{wrong}\n" + "\n".join(last[name].text for name in wrong if wrong[name])


def test_a_pool_that_is_cold_at_first_is_no_concurrency(project: Project) -> None:
    load = 'duration="1.5s", boots=1, warmup="0.6s", gate="none"'
    test = f"""
    import pytest

    @pytest.mark.parametrize("connections", [12, 3])
    def test_it(fileperf, connections):
        fileperf.get("/", connections=connections, {load})
    """
    ran = project.write({"app.py": APP.replace("WORK", "await pooled()"), "test_it.py": test}).run("-v")

    assert ran.status == 0, ran.text
    crowded, few = (results(ran)[f"test_it[{connections}]"]["limit"] for connections in (12, 3))
    assert crowded["kind"] == "unclear", crowded
    assert re.match(r"requests wait for each other, and the server handles about [3-7]", crowded["evidence"]), crowded
    assert few["kind"] == "concurrency", few
