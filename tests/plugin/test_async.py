"""`afileperf` in async tests, and tests that were to measure and did not: those fail, with a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile.runs import Ran, once, project_in, ran
from plugin.conftest import Run

QUIET = "-Wignore:Module already imported"
"""Plugins that the process of a run has imported are no matter of the run's."""
BACKEND = """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
TESTS = f"""
import unittest

import anyio
import pytest
from pytest_fileperf import FilePerfError
{BACKEND}
async def roundtrip(client):
    assert len((await client.get("/")).content) == 1024

async def each_verb(afileperf):
    assert (await afileperf.get("/", expect_bytes=1024)).requests > 0
    assert (await afileperf.post("/", content=b"abc")).requests > 0
    assert (await afileperf.put("/", content=b"abc")).requests > 0
    assert (await afileperf.patch("/", content=b"abc")).requests > 0
    assert (await afileperf.delete("/")).requests > 0
    assert (await afileperf.request("GET", "/status/404", expect_status=404)).requests > 0
    assert (await afileperf.run(roundtrip)).requests > 0
    assert (await afileperf.capacity.get("/", max_p99="1s")).rate > 0
    assert (await afileperf.stream("/", each="1KiB")).events.count > 0

@pytest.mark.anyio
async def test_anyio(afileperf):
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            beats += 1
            await anyio.sleep(0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        await anyio.sleep(0)
        before = beats
        await each_verb(afileperf)
        tasks.cancel_scope.cancel()
    assert beats > before + 1, "the test's own loop goes on"

@pytest.mark.asyncio
async def test_asyncio(afileperf):
    await each_verb(afileperf)

def test_nothing(fileperf): pass

def test_nothing_async(afileperf): pass

def test_late(request): request.getfixturevalue("fileperf")

def test_forgotten(afileperf):
    afileperf.get("/")
    afileperf.post("/x", content=b"")

@pytest.mark.anyio
async def test_forgotten_anyio(afileperf):
    afileperf.get("/")

@pytest.mark.asyncio
async def test_forgotten_asyncio(afileperf):
    afileperf.get("/")

@pytest.mark.anyio
async def test_blocked_anyio(fileperf):
    fileperf.get("/")

@pytest.mark.asyncio
async def test_blocked_asyncio(fileperf):
    await fileperf.capacity.get("/", max_p99="1s")

def test_own_failure(afileperf):
    afileperf.get("/")
    assert 1 == 2, "its own"

def test_skipped(fileperf):
    pytest.skip("its own")

def test_expected(fileperf):
    pytest.xfail("its own")

@pytest.mark.xfail(reason="measures nothing")
def test_expected_by_mark(fileperf):
    pass

def test_tried(fileperf):
    with pytest.raises(FilePerfError):
        fileperf.get("/", app="no.such:app")

@pytest.fixture
def measured(fileperf):
    with pytest.raises(FilePerfError):
        fileperf.get("/", app="no.such:app")

def test_measured_by_a_fixture(measured):
    pass

@pytest.mark.fileperf
def test_by_other_means():
    pass

class TestOfUnittest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def give(self, fileperf):
        self.fileperf = fileperf

    def test_unittest(self):
        self.fail("its own")
"""
NOTHING = (
    "this test uses {} but measured nothing. Call it, as in {}.get(…), leave the fixture out (the marker fileperf"
    " alone makes a load test), or skip the test with pytest.skip(…) if there is nothing to measure"
)
BLOCKED = "is an async test, and fileperf would block its event loop while it measures. Use the fixture afileperf"
FORGOTTEN = "So nothing was measured. Write `await` before the call, in an async test"


def forgotten(test: str) -> str:
    """Returns the place of the first line of a test, and what is said of it."""
    first = TESTS[: TESTS.index(f"def test_{test}(")].count("\n") + 2
    return f"test_it.py:{first}: GET / was called and not awaited"


FAILED = {
    "nothing": NOTHING.format("fileperf", "fileperf"),
    "nothing_async": NOTHING.format("afileperf", "await afileperf"),
    "late": NOTHING.format("fileperf", "fileperf"),
    "forgotten": f"POST /x was called and not awaited {FORGOTTEN}",
    "forgotten_anyio": f"{forgotten('forgotten_anyio')} {FORGOTTEN}",
    "forgotten_asyncio": f"{forgotten('forgotten_asyncio')} {FORGOTTEN}",
    "blocked_anyio": f"GET /: test_blocked_anyio {BLOCKED}",
    "blocked_asyncio": f"capacity GET /: test_blocked_asyncio {BLOCKED}",
    "own_failure": "AssertionError: its own",
    "unittest": "AssertionError: its own",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One run with all of these tests, whose warnings are errors."""

    def make(directory: Path) -> Ran:
        plugins = ("-pasyncio", "-oasyncio_default_fixture_loop_scope=function", QUIET)
        return ran(project_in(directory, TESTS), "--fileperf-smoke", "-Werror", *plugins)

    return once(tmp_path_factory, "async", make)


def test_a_test_fails_that_was_to_measure_and_did_not(whole: Ran) -> None:
    outcomes = {name: outcome for name, (outcome, _) in whole.tests.items()}
    passed = ("anyio", "asyncio", "tried", "measured_by_a_fixture", "by_other_means")
    skipped = ("skipped", "expected", "expected_by_mark")
    expected = dict.fromkeys(passed, "passed") | dict.fromkeys(skipped, "skipped") | dict.fromkeys(FAILED, "failed")
    assert outcomes == expected, whole.text


@pytest.mark.parametrize("name", FAILED)
def test_it_says_why_and_what_to_do(whole: Ran, name: str) -> None:
    """The own failure of a test comes first. Python says nothing of calls that were never awaited."""
    _, text = whole.tests[name]
    assert FAILED[name] in " ".join(text.split())
    assert ("measure" in text) is ("its own" not in text)
    assert name != "forgotten" or forgotten(name) in text
    assert "never awaited" not in whole.text


CANCELLED = f"""
import asyncio
import time

import anyio
import pytest
{BACKEND}
async def impatient(afileperf, limit):
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        async with limit:
            await afileperf.get("/", duration="30s", boots=1, warmup=0, gate="none", connections=2)
    assert time.monotonic() - begun < 20, "it was not measured to its end"

class Limit:
    async def __aenter__(self):
        self.limit = anyio.fail_after(0.5)
        return self.limit.__enter__()

    async def __aexit__(self, *error):
        return self.limit.__exit__(*error)

@pytest.mark.anyio
async def test_by_anyio(afileperf):
    await impatient(afileperf, Limit())
    assert (await afileperf.get("/", requests=20, gate="none")).requests == 20

@pytest.mark.asyncio
async def test_by_asyncio(afileperf):
    await impatient(afileperf, asyncio.timeout(0.5))
    assert (await afileperf.get("/", requests=20, gate="none")).requests == 20

@pytest.mark.asyncio
async def test_only_cancelled(afileperf):
    await impatient(afileperf, asyncio.timeout(0.5))

@pytest.mark.anyio
async def test_left(afileperf):
    task = asyncio.create_task(afileperf.get("/", duration="20s", gate="none"))
    await asyncio.sleep(0.01)
"""


def test_a_measurement_that_is_cancelled_ends_before_the_next_one_begins(
    project: pytest.Pytester, run_load: Run
) -> None:
    """A test with no other measurement has measured nothing."""
    project.makepyfile(test_it=CANCELLED)
    result = run_load("--fileperf", plugins=("asyncio",))
    result.assert_outcomes(passed=2, failed=2)
    said = " ".join(result.stdout.str().split())
    line = next(at for at, text in enumerate(CANCELLED.strip().splitlines(), 1) if "await afileperf.get(" in text)
    nothing = "So this test measured nothing. Let the call end, shorten it with duration= or requests=,"
    assert f"test_it.py:{line}: GET / was cancelled before it was measured {nothing} or skip the test with" in said
    left = next(at for at, text in enumerate(CANCELLED.strip().splitlines(), 1) if "create_task" in text)
    assert f"test_it.py:{left}: GET / was cancelled before it was measured" in said


STATUSES = (201, 202, 203, 206, 207)
AT_ONCE = f"""
import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
{BACKEND}
PATHS = [f"/status/{{status}}" for status in {STATUSES}]

@pytest.mark.anyio
async def test_gathered(afileperf):
    verbs = [afileperf.get(path, expect_status=int(path[-3:])) for path in PATHS]
    measured = await asyncio.gather(*verbs)
    assert [[*one.statuses] for one in measured] == [[int(path[-3:])] for path in PATHS]

def test_threads(fileperf):
    def status(path):
        return [*fileperf.get(path, expect_status=int(path[-3:])).statuses]

    with ThreadPoolExecutor() as pool:
        assert [*pool.map(status, PATHS)] == [[int(path[-3:])] for path in PATHS]
"""


def test_verbs_at_once_are_measured_one_at_a_time(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(AT_ONCE)
    result = run_load("--fileperf-smoke", "-Werror", QUIET, "--fileperf-json=run.json")
    result.assert_outcomes(passed=2)
    for name in ("test_gathered", "test_threads"):
        result.stdout.fnmatch_lines([f"fileperf: *::{name}: GET /status/* waited for an earlier measurement*"])
    results = json.loads((project.path / "run.json").read_text(encoding="utf-8"))["results"]
    found = [(one["test"]["nodeid"].partition("::")[2], one["work"]) for one in results]
    assert [each for each in found if "gathered" in each[0]] == [
        (f"test_gathered{further}", f"GET /status/{status}")
        for further, status in zip(("", "#2", "#3", "#4", "#5"), STATUSES, strict=True)
    ]


def test_both_fixtures_number_the_measurements_of_a_test_together(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("""
        import asyncio

        def test_both(fileperf, afileperf):
            fileperf.get("/")
            asyncio.run(afileperf.get("/"))
    """)
    run_load("--fileperf-smoke", "--fileperf-json=run.json").assert_outcomes(passed=1)
    results = json.loads((project.path / "run.json").read_text(encoding="utf-8"))["results"]
    assert [result["test"]["nodeid"].partition("::")[2] for result in results] == ["test_both", "test_both#2"]
