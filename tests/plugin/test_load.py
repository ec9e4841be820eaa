"""What pytest shows while a run goes on and at its end, and where a new measurement fails."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]
QUICK = ("--fileperf-duration=0.1s", "--fileperf-rounds=2", "--fileperf-boots=1", "--fileperf-warmup=0")
LONG_ENOUGH_TO_SEE = "--fileperf-duration=0.4s"
"""For what is shown while a measurement runs."""


def test_several_generators_make_one_load(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile(
        """
        import os, pytest

        pytestmark = pytest.mark.fileperf(gate="none", connections=6)

        def test_counted(fileperf):
            result = fileperf.get("/", requests=1003)
            assert (result.requests, result.errors, result.bytes_received) == (1003, 0, 1003 * 1024)

        async def dies_once(client):
            await client.get("/")
            await client.pause("50ms")
            try:
                os.close(os.open("died", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os._exit(7)

        def test_lost(fileperf):
            assert fileperf.run(dies_once, duration="0.3s", boots=1, warmup=0).requests
        """
    )
    result = run_load(
        "--fileperf-server=uvicorn",
        "--fileperf-generators=3",
        "--fileperf-json=run.json",
        "--fileperf-html=run.html",
        "-v",
    )
    assert result.parseoutcomes() == {"passed": 1, "inconclusive": 1}
    counted, lost = json.loads((project.path / "run.json").read_text())["results"]
    generators = counted["summary"]["generators"]
    assert [own["connections"] for own in generators] == [2, 2, 2]
    assert sum(own["rps"] for own in generators) == pytest.approx(counted["summary"]["rps"])
    assert counted["load"] == "6 connections, 1003 requests, 3 generators"
    assert [own["lost"] for own in lost["summary"]["generators"] if own["lost"]] == [
        "'s process ended with exit code 7"
    ]
    result.stdout.re_match_lines([r" *generator 3  .*2 connections  .*0 errors  CPU \d+ %"])
    assert "Load generators" in (project.path / "run.html").read_text()


def test_new_fails_where_that_is_asked_for(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.makepyfile('def test_download(fileperf): fileperf.get("/", connections=2)')
    run_load("--fileperf", *QUICK).assert_outcomes(passed=1)
    run_load("--fileperf", "--fileperf-strict", *QUICK).assert_outcomes(failed=1)
    monkeypatch.setenv("CI", "true")
    run_load("--fileperf", *QUICK).assert_outcomes(failed=1)


def test_without_an_app_the_ways_to_give_one_are_told(pytester: pytest.Pytester, run_load: Run) -> None:
    pytester.makepyfile(
        """
        def test_verb(fileperf):
            fileperf.get("/")

        def test_app(fileperf_app):
            pass

        def test_server(fileperf_server):
            pass
        """
    )
    result = run_load("--fileperf")
    result.assert_outcomes(failed=1, errors=2)
    ways = "*no app to test. Name it in *fileperf_app = *@pytest.mark.fileperf(app=*override the fixture fileperf_app*"
    assert sum("@pytest.mark.fileperf(app=" in line for line in result.stdout.lines) >= 3
    result.stdout.fnmatch_lines([ways])


@pytest.mark.parametrize("argument,is_shown", [("-rN", True), ("-s", True), ("-q", False)])
def test_progress_is_shown_while_output_is_captured_unless_the_run_is_quiet(
    project: pytest.Pytester, run_load: Run, argument: str, is_shown: bool
) -> None:
    # A package keeps the modules of earlier runs as its attributes, which `from … import` would take.
    project.makeconftest(
        """
        from importlib import import_module

        progress = import_module("pytest_fileperf.report.progress")
        usual, progress.PLAIN_AFTER_S = progress.PLAIN_AFTER_S, 0.0

        def pytest_unconfigure():
            progress.PLAIN_AFTER_S = usual
        """
    )
    project.makepyfile(
        """
        def test_download(fileperf):
            print("captured")
            fileperf.get("/", connections=2)
        """
    )
    result = run_load("--fileperf", *QUICK, LONG_ENOUGH_TO_SEE, argument)
    result.assert_outcomes(passed=1)
    assert any(line.startswith("fileperf: test_download  ") for line in result.stdout.lines) is is_shown


def test_a_test_that_passes_is_one_line_and_all_others_are_ten(project: pytest.Pytester, run_load: Run) -> None:
    """What the machine does here is no matter: that others work on it, or what limits a run, is a line more."""
    project.makeconftest(
        """
        from dataclasses import replace
        from importlib import import_module
        from pytest_fileperf.measure.usage import Busy
        from pytest_fileperf.measure.limiting import Limit, LimitKind

        active = import_module("pytest_fileperf.plugin.active")
        whole = active._result_lines

        def of_a_quiet_machine(record, reporter):
            limit = Limit(kind=LimitKind.SERVER_CPU, evidence="")
            quiet = tuple(
                replace(each, measurement=replace(each.measurement, busy=Busy(), limit=limit))
                for each in record.results
            )
            return whole(replace(record, results=quiet), reporter)

        active._result_lines = of_a_quiet_machine

        def pytest_unconfigure():
            active._result_lines = whole
        """
    )
    project.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_get(fileperf, number):
            fileperf.get("/", connections=1, requests=300, warmup=0, boots=1, gate="none", min_rps=1)
        """
    )
    result = run_load("--fileperf")
    result.assert_outcomes(passed=6)
    assert len(result.stdout.lines) <= 16
    assert sum(line.startswith("test_get[") for line in result.stdout.lines) == 6


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_is_one_line_rewritten_on_a_terminal(project: pytest.Pytester) -> None:
    import pty

    project.makepyfile('def test_download(fileperf): fileperf.get("/", connections=2)')
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-pno:randomly",
        "-pno:asyncio",
        "--fileperf",
        *QUICK,
        LONG_ENOUGH_TO_SEE,
    ]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=project.path) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Linux ends a terminal whose other end is closed with EIO
            while block := os.read(ours, 4096):
                shown += block
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    rewritten = re.findall(r"\rtest_download  [^\r\n]*", text)
    assert any("measuring" in line for line in rewritten)
    assert re.search(r"\r +\r", text), "the line is cleared at the end"
