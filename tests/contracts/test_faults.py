"""What goes wrong around a load: each run ends, says what happened, and keeps what it has."""

from __future__ import annotations

import os
import re

from contracts.project import Project, results

APP = """
import asyncio

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    length = int(dict(scope["headers"]).get(b"content-length", 0))
    status = 413 if length >= 2 << 20 else 200
    if status == 200:
        while (await receive()).get("more_body"):
            pass
        await asyncio.sleep(0.002)
    headers = [(b"content-length", b"2")] + [(b"connection", b"close")] * (status != 200)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})
"""
SHORT = 'connections=4, duration="0.3s", warmup="0.1s", boots=1'


CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--api-key", "-A")
    parser.addoption("--login", nargs=2)
    parser.addini("password", "of the service")
"""
TESTS = f"""
import os, sys, time
import pytest
from pytest_fileperf import payload

@pytest.mark.parametrize("size", ["1MiB", "2MiB", "16MiB"])
def test_upload(fileperf, size):
    fileperf.post("/", content=payload(size), {SHORT}, gate="none")

@pytest.fixture
def new_year(monkeypatch):
    for name, value in dict(time=0.0, monotonic=5.0, time_ns=0, monotonic_ns=5).items():
        monkeypatch.setattr(time, name, lambda value=value: value)

def test_frozen(new_year, fileperf):
    fileperf.get("/", {SHORT})

def test_frozen_server(new_year, fileperf_server):
    assert fileperf_server.url

@pytest.mark.filterwarnings("ignore:This process")  # since Python 3.12: it is multi-threaded
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_forks(fileperf, fileperf_server):
    fileperf.get("/", {SHORT}, gate="none")
    if (pid := os.fork()) == 0:
        sys.exit(0)
    until = time.monotonic() + 20
    while not (ended := os.waitpid(pid, os.WNOHANG)[0]) and time.monotonic() < until:
        time.sleep(0.05)
    if not ended:
        os.kill(pid, 9)
    fileperf.get("/", {SHORT}, gate="none")
    assert fileperf_server.sync_client().get("/").status_code == 200
    assert ended, "the child hangs"
"""
SECRETS = ("--api-key", "canary-word", "-Acanary-attached", "--login", "canary-first", "canary-second")


def test_faults_beside_a_load_are_named_and_other_tests_go_on(project: Project) -> None:
    """Refused uploads, a clock that stands still, a fork; values of other options are in no file."""
    shown = ("-vv", "--fileperf-markdown", "run.md", "--fileperf-html=run.html", "tests")
    project.write({"app.py": APP, "conftest.py": CONFTEST, "tests/test_load.py": TESTS})

    ran = project.run(*SECRETS, "-o", "password=canary-ini", *shown)

    assert ran.status == 1, ran.text
    # The child that forks says what it has seen, too, before its parent ends.
    summary = ran.text.rpartition("short test summary info")[2]
    bad = set(re.findall(r"(?:FAILED|ERROR) \S+::(test_\S+)", summary))
    assert bad == {"test_upload[2MiB]", "test_upload[16MiB]", "test_frozen", "test_frozen_server"}, ran.text
    assert "3 failed, 2 passed, 1 error" in summary or not hasattr(os, "fork"), ran.text
    assert "generator's process ended" not in ran.said, ran.text
    for size in ("2MiB", "16MiB"):
        failures = results(ran)[f"test_upload[{size}]"]["failures"]
        assert failures, ran.text
        assert all(re.search("413|clos|reset|refused", str(failure)) for failure in failures)
    assert results(ran)["test_upload[16MiB]"]["summary"]["cut_off"] > 0, "answers before the whole request was sent"
    messages = {one["name"]: one["message"] for one in ran.record["failed"]}
    for name in ("test_frozen", "test_frozen_server"):
        assert "the clock of this process stands still, maybe because of freezegun or time-machine" in messages[name]
    if hasattr(os, "fork"):
        assert [one["test"]["name"] for one in ran.record["results"]].count("test_forks") == 2

    files = [path.read_text(encoding="utf-8") for path in (project.top / "run.md", project.top / "run.html")]
    assert "canary" not in "".join(files) + str(ran.record)
    command = ran.record["asked"]["command"].replace("'", "")
    assert command.startswith("pytest ")
    assert "--api-key … -A… --login … … -o … -vv --fileperf-markdown run.md --fileperf-html=run.html tests" in command


def test_which_side_has_no_answer_is_said(project: Project) -> None:
    app = """
    import asyncio

    async def app(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.sleep({})
            await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
            await send({{"type": "http.response.body", "body": b"ok"}})
    """
    load = 'def test_it(fileperf): fileperf.get("/", connections=2, max_duration="2s")\n'
    project.write({"app.py": app.format(3600), "before/app.py": app.format(0.001), "test_it.py": load})

    ran = project.run("--fileperf-against=./before")
    assert ran.status == 1, ran.text
    assert "none of 2 requests succeeded: timeout" in ran.said, ran.text
    assert "the new code gave no answer to GET / within 750 ms (./before gave one)" in ran.said, ran.text
