"""Runs of pytest that are killed leave nothing, and servers that do not end are told."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from serve.processes import linux, posix

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TELLING = (
    ("uvicorn x2", "load", "holding", "SIGKILL"),
    ("gunicorn x2", "boot", "holding", "SIGTERM"),
    ("command", "teardown", "polite", "SIGKILL"),
    ("uvicorn", "warm-up", "polite", "SIGINT"),
)


@pytest.fixture(scope="module")
def kills() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        found = importlib.import_module("kills")
        waiting = found.APP.replace("    requests += 1\n", "    requests += 1\n    await asyncio.sleep(0.003)\n")
        patch.setattr(found, "APP", waiting)  # a load that waits leaves the cores to others
        yield found


@linux
@pytest.mark.parametrize("case", TELLING, ids=" ".join)
def test_nothing_is_left_of_a_run_that_is_killed(case: tuple[str, ...], kills: ModuleType) -> None:
    left = kills.killed(case)
    assert (left.get("processes"), left.get("ports"), left.get("directories")) == (0, 0, 0), left


@linux
@pytest.mark.parametrize("kind", ["uvicorn x2", "command"])
def test_a_run_that_ignores_ctrl_c_goes_on_and_leaves_nothing(kind: str, kills: ModuleType) -> None:
    """A shell starts what is in its background so, and nothing of ours may take that for a reason to stay."""
    left = kills.killed((kind, "load", "polite", "SIGINT"), ignores_ctrl_c=True)
    assert left.get("code") == 0, left
    assert (left["processes"], left["ports"], left["directories"]) == (0, 0, 0), left


@posix
def test_a_server_that_does_not_end_is_told_in_a_line(
    run: Callable[..., pytest.RunResult], project: pytest.Pytester
) -> None:
    project.makepyfile(
        stubborn="""
        import asyncio

        async def app(scope, receive, send):
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                await receive()
                await asyncio.sleep(60)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
        """,
        test_it="""
        from pytest_fileperf import Uvicorn

        def test_it(fileperf):
            fileperf.get("/", app="stubborn:app", server=Uvicorn(stop_timeout_s=0.3), requests=2, gate="none")
        """,
    )
    result = run("--fileperf-smoke", "-q")
    result.assert_outcomes(passed=1)
    lines = [line for line in result.outlines if "did not end within 0.3 s" in line]
    assert len(lines) == 1
    assert lines[0].startswith("fileperf: uvicorn ×1 ")
