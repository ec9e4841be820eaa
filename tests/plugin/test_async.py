"""`afileperf` in async tests: under anyio and pytest-asyncio, with the test's own loop alive, and cancelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

ON_ASYNCIO = '@pytest.mark.parametrize("anyio_backend", ["asyncio"])'
"""anyio's plugin would run each test on trio too, where that is installed."""
VERBS = """
async def roundtrip(client):
    answer = await client.get("/")
    assert len(answer.content) == 1024

{mark}
async def test_verbs(afileperf):
    assert (await afileperf.get("/", expect_bytes=1024)).requests > 0
    assert (await afileperf.post("/", content=b"abc")).requests > 0
    assert (await afileperf.put("/", content=b"abc")).requests > 0
    assert (await afileperf.patch("/", content=b"abc")).requests > 0
    assert (await afileperf.delete("/")).requests > 0
    assert (await afileperf.request("GET", "/status/404", expect_status=404)).requests > 0
    assert (await afileperf.run(roundtrip)).requests > 0
"""


def test_under_anyio(project: pytest.Pytester, run_apart: Run) -> None:
    project.makepyfile("import pytest\n" + VERBS.format(mark=f"@pytest.mark.anyio\n{ON_ASYNCIO}"))
    run_apart("--fileperf-smoke").assert_outcomes(passed=1)


def test_under_pytest_asyncio(project: pytest.Pytester, run_apart: Run) -> None:
    project.makepyfile("import pytest\n" + VERBS.format(mark="@pytest.mark.asyncio"))
    run_apart("--fileperf-smoke", plugins=("asyncio",)).assert_outcomes(passed=1)


def test_the_test_s_own_loop_goes_on(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import anyio
        import pytest

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_loop(afileperf):
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
                await afileperf.get("/")
                tasks.cancel_scope.cancel()
            assert beats > before + 1
        """
    )
    run_load("--fileperf-smoke").assert_outcomes(passed=1)


def test_a_failure_shows_the_line_of_the_test(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import pytest

        @pytest.mark.anyio
        @pytest.mark.parametrize("anyio_backend", ["asyncio"])
        async def test_failure(afileperf):
            await afileperf.get("/status/500")
        """
    )
    result = run_load("--fileperf-smoke")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*await afileperf.get(*", "E*RequestsFailedError: *", "*.py:6: RequestsFailedError"])
    result.stdout.no_fnmatch_line("*to_thread*")
    result.stdout.no_fnmatch_line("*measuring.py*")


CANCELLED = """
import asyncio
import time

import anyio
import pytest

@pytest.mark.{mark}
async def test_cancelled(afileperf):
    await afileperf.get("/", requests=20, gate="none")
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        {limit}
            await afileperf.get("/", duration="30s", boots=1, warmup=0, gate="none", connections=2)
    assert time.monotonic() - begun < 20, "it was not measured to its end"
    assert (await afileperf.get("/", requests=20, gate="none")).requests == 20
"""


def test_a_measurement_cancelled_by_anyio_ends_before_the_next_one_begins(
    project: pytest.Pytester, run_load: Run
) -> None:
    mark = f"anyio\n{ON_ASYNCIO}"
    project.makepyfile(CANCELLED.format(mark=mark, limit="with anyio.fail_after(1):"))
    run_load("--fileperf").assert_outcomes(passed=1)


def test_a_measurement_cancelled_by_asyncio_ends_before_the_next_one_begins(
    project: pytest.Pytester, run_load: Run
) -> None:
    project.makepyfile(CANCELLED.format(mark="asyncio", limit="async with asyncio.timeout(1):"))
    run_load("--fileperf", plugins=("asyncio",)).assert_outcomes(passed=1)
