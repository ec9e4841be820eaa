"""What pytest shows while a run goes on, and where there is no app."""

from __future__ import annotations

import contextlib
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


def test_without_an_app_the_ways_to_give_one_are_told(pytester: pytest.Pytester, run_load: Run) -> None:
    pytester.makepyfile(
        """
        def test_verb(fileperf):
            fileperf.get("/")

        def test_app(fileperf_app):
            pass

        def test_server(fileperf_server):
            pass

        def test_a_command_needs_none(fileperf):
            fileperf.get("/", requests=2, gate="none", server="command:{python} -m http.server {port}")
        """
    )
    result = run_load("--fileperf")
    result.assert_outcomes(passed=1, failed=1, errors=2)
    ways = "*no app to test. Name it in *fileperf_app = *@pytest.mark.fileperf(app=*your own fixture fileperf_app*"
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


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_progress_is_one_line_rewritten_on_a_terminal(project: pytest.Pytester) -> None:
    import pty

    project.makepyfile('def test_download(fileperf): fileperf.get("/", connections=2)')
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-pfileperf",
        "--fileperf",
        "--fileperf-server=inprocess",
        *QUICK,
        LONG_ENOUGH_TO_SEE,
    ]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=project.path, env=env) as process:
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
