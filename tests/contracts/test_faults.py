"""What goes wrong around a load: each run ends, says what happened, and keeps what it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
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


def test_a_server_that_refuses_uploads_is_counted(project: Project) -> None:
    project.write(
        {
            "app.py": APP,
            "test_load.py": f"""
            import pytest
            from pytest_fileperf import payload

            @pytest.mark.parametrize("size", ["1MiB", "2MiB", "8MiB", "16MiB"])
            def test_upload(fileperf, size):
                fileperf.post("/", content=payload(size), {SHORT}, gate="none")
            """,
        }
    )

    ran = project.run()

    assert ran.status == 1, ran.text
    assert "3 failed, 1 passed" in ran.said, ran.text
    assert "generator's process ended" not in ran.said, ran.text
    for size in ("2MiB", "8MiB", "16MiB"):
        failures = results(ran)[f"test_upload[{size}]"]["failures"]
        assert failures, ran.text
        assert all(re.search("413|clos|reset|refused", str(failure)) for failure in failures)


def test_a_clock_that_stands_still_is_refused(project: Project) -> None:
    project.write(
        {
            "app.py": APP,
            "test_load.py": f"""
            import time
            import pytest

            @pytest.fixture(autouse=True)
            def new_year(monkeypatch):
                for name, value in dict(time=0.0, monotonic=5.0, time_ns=0, monotonic_ns=5).items():
                    monkeypatch.setattr(time, name, lambda value=value: value)

            def test_get(fileperf):
                fileperf.get("/", {SHORT})

            def test_server(fileperf_server):
                assert fileperf_server.url
            """,
        }
    )

    ran = project.run()

    assert ran.status == 1, ran.text
    assert ran.said.count("the clock of this process stands still, as freezegun and time-machine make it") >= 2


@pytest.mark.skipif("not hasattr(__import__('os'), 'fork')", reason="the system has no fork")
def test_a_fork_leaves_the_load_to_its_parent(project: Project) -> None:
    project.write(
        {
            "app.py": APP,
            "test_load.py": f"""
            import os, sys, time

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
            """,
        }
    )

    ran = project.run()

    assert ran.status == 0, ran.text
    assert len(ran.record["results"]) == 2


def test_an_entry_that_a_merge_doubled_is_named(project: Project) -> None:
    load = SHORT.replace("boots=1", 'max_duration="3s"')
    project.write(
        {"app.py": APP, "test_load.py": f"def test_get(fileperf):\n    fileperf.get('/', {load}, gate='rps')\n"}
    ).commit()
    stored = project.run("--fileperf-update=all")
    assert stored.status == 0, stored.text
    (file,) = (project.top / ".fileperf").glob("*-*/*.json")
    _double(file, '"test_load.py::test_get": {')

    ran = project.run()

    assert ran.status == 1, ran.text
    assert "a baseline has 'test_load.py::test_get' twice" in ran.said, ran.text
    assert "test_load.py.json" in ran.said, ran.text


def _double(file: Path, begin: str) -> None:
    """Puts the object that begins there before itself once more."""
    lines = file.read_text(encoding="utf-8").split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip() == begin)
    indent = lines[first][: -len(lines[first].lstrip())]
    last = next(at for at in range(first, len(lines)) if lines[at].rstrip(",") == indent + "}")
    lines[first:first] = [*lines[first:last], indent + "},"]
    file.write_text("\n".join(lines), encoding="utf-8")


def test_values_of_other_options_are_in_no_file(project: Project) -> None:
    project.write(
        {
            "app.py": APP,
            "conftest.py": """
            def pytest_addoption(parser):
                parser.addoption("--api-key", "-A")
                parser.addoption("--login", nargs=2)
                parser.addini("password", "of the service")
            """,
            "tests/test_load.py": f"def test_get(fileperf):\n    fileperf.get('/', {SHORT}, gate='none')\n",
        }
    )
    secrets = ["--api-key", "canary-word", "-Acanary-attached", "--login", "canary-first", "canary-second"]

    ran = project.run(
        *secrets,
        "-o",
        "password=canary-ini",
        "-vv",
        "--fileperf-markdown",
        "run.md",
        "--fileperf-html=run.html",
        "tests",
    )

    assert ran.status == 0, ran.text
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
    assert "the code here has no answer to GET / in 750 ms (./before has one)" in ran.said, ran.text
