"""Under coverage: servers and load generators are untraced, or traced where that is asked for, which is then said."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., pytest.RunResult]

APP = """
import sys

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while (await receive())["type"] != "lifespan.shutdown":
            await send({"type": "lifespan.startup.complete"})
        await send({"type": "lifespan.shutdown.complete"})
        return
    traced = b"yes" if sys.gettrace() or "coverage" in sys.modules else b"no"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(traced))]})
    await send({"type": "http.response.body", "body": traced})
"""
PROGRAM = """
import http.server, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        traced = b"yes" if "coverage" in sys.modules else b"no"
        self.send_response(200)
        self.send_header("Content-Length", str(len(traced)))
        self.end_headers()
        self.wfile.write(traced)

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
TESTS = """
import sys

import pytest
from pytest_fileperf import Command

TRACED = {traced!r}

def test_app(fileperf):
    fileperf.get("/", expect_body=TRACED)

async def journey(client):
    assert ("coverage" in sys.modules) == (TRACED == "yes")

def test_journey(fileperf):
    fileperf.run(journey)

@pytest.mark.skipif(sys.platform == "win32", reason="a Command needs POSIX")
def test_program(fileperf):
    fileperf.get("/", expect_body=TRACED, server=Command(["{{python}}", "program.py", "{{port}}"]))

def test_in_pytest(fileperf):
    fileperf.get("/", expect_body="yes", server="inprocess")
"""
COMBINED = """
import pathlib
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtestloop():  # as pytest-cov does it
    done = yield
    print("combined the data of servers" if [*pathlib.Path().glob(".coverage.*")] else "no server has ended")
    return done
"""
SAID = "traced by coverage. Traced code is slower, and never compared with untraced code"


@pytest.fixture
def traced(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[..., pytest.RunResult]:
    """Runs the tests under coverage, which traces what the run starts; returns the outcome and the JSON file."""
    for name in [name for name in os.environ if name.startswith(("COV_CORE_", "COVERAGE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    project.makepyfile(server_app=APP, program=PROGRAM)
    settings = "[run]\npatch = subprocess\nparallel = true\nsigterm = true\nsource = .\n"
    (project.path / ".coveragerc").write_text(settings, encoding="utf-8")

    def run(*arguments: str, traced: str) -> pytest.RunResult:
        project.makepyfile(test_it=TESTS.format(traced=traced))
        command = (sys.executable, "-m", "coverage", "run", "-m", "pytest", "-pfileperf")
        return project.run(*command, "--fileperf-smoke", "--fileperf-json=out.json", *arguments, timeout=60)

    return run


def results(path: Path) -> Mapping[str, Any]:
    found = json.loads((path / "out.json").read_text(encoding="utf-8"))["results"]
    return {result["test"]["name"].removeprefix("test_"): result for result in found}


def test_servers_and_generators_are_not_traced_and_an_app_in_the_pytest_process_is(
    project: pytest.Pytester, traced: Run
) -> None:
    ran = traced(traced="no")
    ran.assert_outcomes(passed=4)
    ran.stdout.fnmatch_lines(
        ["fileperf: coverage did not trace the servers, *. To trace them too, add --fileperf-coverage"]
    )
    found = results(project.path)
    tracers = {name: [boot["tracer"] for boot in result["boots"]] for name, result in found.items()}
    assert tracers == {"app": [""], "journey": [""], "program": [""], "in_pytest": ["coverage"]}
    told = {name: [note for note in result["notes"] if "traced by" in note] for name, result in found.items()}
    (note,) = told.pop("in_pytest")
    assert note.startswith("traced by coverage, because the app ran in the pytest")
    assert not any(told.values())


def test_they_are_where_that_is_asked_for_and_every_result_says_so(project: pytest.Pytester, traced: Run) -> None:
    project.makeconftest(COMBINED)
    result = traced("-ofileperf_coverage=true", "-k", "not in_pytest", traced="yes")
    result.assert_outcomes(passed=3, deselected=1)
    result.stdout.fnmatch_lines(["*combined the data of servers*"])
    found = results(project.path).values()
    assert [[boot["tracer"] for boot in result["boots"]] for result in found] == [["coverage"]] * 3
    assert all(SAID in result["notes"] for result in found)
    assert all(result["identity"]["tracer"] == "coverage" for result in found)
    # The servers have ended, and left what they saw: only they import these files.
    project.run(sys.executable, "-m", "coverage", "combine", timeout=60)
    report = project.run(sys.executable, "-m", "coverage", "report", "--show-missing", timeout=60)
    report.stdout.re_match_lines_random([r"program\.py +\d+ +0 +100%", r"server_app\.py +\d+ +0 +100%"])
