"""One import serves many start-ups, where nothing keeps the app from it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from contracts.project import Project, results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="apps are forked on Linux only")

APP = """
import asyncio, os, pathlib
{}
with open(pathlib.Path(__file__).with_suffix(".imports"), "a") as imports:
    imports.write(f"{{os.getpid()}}\\n")

async def app(scope, receive, send):
    assert scope["type"] == "http"
    await asyncio.sleep(0.005)
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": str(os.getpid()).encode()}})
"""
TESTS = """
import pytest

@pytest.mark.parametrize("path", ["/a", "/b"])
def test_get(fileperf, path):
    fileperf.get(path, connections=2, duration="200ms", warmup="50ms", boots=2)
"""
CHANGING = """
import pytest

@pytest.fixture(autouse=True)
def changed():
    with open("data.txt", "a") as data:
        data.write("more")

@pytest.mark.parametrize("path", ["/a", "/b"])
def test_changing(fileperf, path):
    fileperf.get(path, app="app_reads:app", connections=2, duration="200ms", warmup="50ms", boots=2)

def test_broken(fileperf):
    fileperf.get("/", app="app_broken:app", connections=2)

def test_named(fileperf):
    fileperf.get("/", app="app_named:app", connections=2, duration="200ms", warmup="50ms", boots=2)
"""
LIFESPAN = """
import os
NAME = f"data-{{os.getpid()}}"
forked = []
os.register_at_fork(after_in_child=lambda: forked.append(1))

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if forked:
            {fails}
        await send({{"type": "lifespan.startup.complete"}})
        await receive()
        await send({{"type": "lifespan.shutdown.complete"}})
        return
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
EACH = """
import pytest

@pytest.mark.parametrize("name", {})
def test_get(fileperf, name):
    fileperf.get("/", app=f"app_{{name}}:app", connections=2)
"""
COMPARED = """
import pytest

@pytest.mark.parametrize("name,longest", [("slow", "12s"), ("mixed", "2s")], ids=["slow", "mixed"])
def test_get(fileperf, name, longest):
    fileperf.get("/", app=f"app_{name}:app", connections=2, max_duration=longest, gate="rps")
"""
FAILING = """
from pytest_fileperf import Gunicorn, Uvicorn

def test_get(fileperf):
    server = Gunicorn() if "{}" == "gunicorn" else Uvicorn()
    fileperf.get("/", server=server, connections=2, max_duration="4s", gate="rps")
"""
SLOW = """
import pathlib, time
begun = time.monotonic()
time.sleep(0.5)
with open(pathlib.Path(__file__).with_name("import.txt"), "a") as times:
    times.write(f"{begun} {time.monotonic()}\\n")
"""
ANEW = "each start-up imports the app anew: "
CANNOT = {
    name: (APP.format(first), said)
    for name, first, said in (
        (
            "thread",
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True, name='asks').start()",
            "a thread (asks)",
        ),
        ("socket", "import socket\nheld = socket.create_server(('127.0.0.1', 0))", "its import opens a socket"),
        ("loop", "loop = asyncio.new_event_loop()", "its import opens "),
        ("inotify", "import ctypes\nctypes.CDLL(None).inotify_init()", "its import opens an inotify"),
        (
            "database",
            "import sqlite3\nheld = sqlite3.connect('data.sqlite3')\nheld.execute('create table if not exists t (x)')",
            "data.sqlite3",
        ),
        ("memory", "import mmap\nheld = mmap.mmap(-1, 4096)", "its import shares memory with other processes"),
        ("process", "import subprocess\nheld = subprocess.Popen(['sleep', '60'])", "its import starts a process"),
        (
            "ends",
            "os.register_at_fork(after_in_child=lambda: os._exit(9))",
            "a server forked from the imported app did not start",
        ),
    )
} | {
    "raises": (
        LIFESPAN.format(fails="raise RuntimeError('not in a fork')"),
        "a server forked from the imported app did not start",
    ),
    "exits": (LIFESPAN.format(fails="os._exit(5)"), "a server forked from the imported app did not start"),
}
"""Apps that cannot be forked, and what is said of each; the last two fail in their lifespan, if that is in a fork."""


def imports(path: Path) -> list[str]:
    """Returns the processes that imported this file."""
    return path.with_suffix(".imports").read_text().splitlines()


def test_one_import_serves_all_start_ups_of_a_session_while_no_file_changes(project: Project) -> None:
    app = project.top / "app.py"
    reads = APP.format('DATA = open("data.txt").read()')
    project.write({"app.py": APP.format(""), "app_reads.py": reads, "data.txt": "data"})
    project.write({"app_broken.py": "raise RuntimeError('no key')\n", "test_a.py": TESTS, "test_b.py": CHANGING})
    project.write({"app_named.py": LIFESPAN.format(fails="open(NAME, 'x').close()")})  # the second fork finds it
    ran = project.run("-v", "--fileperf-server=uvicorn:tls=yes,uds=yes")

    assert "5 passed, 1 error" in ran.said or "1 failed, 5 passed" in ran.said, ran.text
    anew = {name: note for name, result in results(ran).items() for note in result["notes"] if ANEW in note}
    assert anew.keys() == {"test_named"}, ran.text
    assert "a server forked from the imported app did not start" in anew["test_named"]
    assert len(imports(app)) == 1
    assert len(imports(project.top / "app_reads.py")) == 2
    assert "RuntimeError: no key" in ran.said, ran.text

    app.with_suffix(".imports").unlink()
    never = project.run("test_a.py::test_get[/a]", "-o", "fileperf_preload=never")
    assert never.status == 0, never.text
    assert len(imports(app)) >= 2


def test_what_cannot_be_forked_starts_afresh_and_is_told(project: Project) -> None:
    apps = {f"app_{name}.py": text for name, (text, _) in CANNOT.items()}
    ran = project.write({**apps, "test_load.py": EACH.format(list(CANNOT))}).run("--fileperf-smoke")

    assert ran.status == 0, ran.text
    told = {name: [note for note in results(ran)[f"test_get[{name}]"]["notes"] if ANEW in note] for name in CANNOT}
    wrong = {name: notes for name, notes in told.items() if len(notes) != 1 or CANNOT[name][1] not in notes[0]}
    assert wrong == {}
    # What has imported the app serves, though it cannot be forked.
    assert {name: len(imports(project.top / f"app_{name}.py")) for name in CANNOT if "imports" in CANNOT[name][0]} == {
        **dict.fromkeys(("thread", "socket", "loop", "inotify", "database", "memory", "process"), 1),
        "ends": 2,
    }


def test_each_version_of_a_comparison_is_imported_twice_and_forked_if_both_can_be(project: Project) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    slow, mixed = SLOW + APP.format(""), APP.format("")
    project.write({"app_slow.py": slow, "before/app_slow.py": slow, "before/app_mixed.py": mixed})
    ran = project.write({"app_mixed.py": APP.format(thread), "test_load.py": COMPARED}).run(
        "--fileperf-against=./before", "-v"
    )

    assert ran.status == 0, ran.text
    found = results(ran)
    anew = {name: any(ANEW in note for note in result["notes"]) for name, result in found.items()}
    assert anew == {"test_get[slow]": False, "test_get[mixed]": True}, ran.text
    pairs = found["test_get[mixed]"]["verdict"]["comparisons"][0]["pairs"]
    before = imports(project.top / "before" / "app_mixed.py")
    assert len(before) == len(set(before)) >= pairs
    # The second import comes with the second pair of start-ups; the first of both versions are at the same time.
    assert len(imports(project.top / "before" / "app_slow.py")) == 2
    assert are_imported_together(project)

    for place in (".", "before"):
        (project.top / place / "import.txt").unlink()
    project.write({"test_load.py": COMPARED.replace("12s", "1s")})
    never = project.run("--fileperf-against=./before", "-k", "slow", "-o", "fileperf_preload=never")
    assert never.status == 0, never.text
    assert are_imported_together(project)


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_an_import_that_fails_beside_another_is_told_as_alone(project: Project, server: str) -> None:
    fails = "import sys\nsys.exit('set THE_SECRET first')\n"
    project.write({"app.py": fails, "before/app.py": APP.format(""), "test_load.py": FAILING.format(server)})
    ran = project.run("--fileperf-against=./before", "-o", "fileperf_preload=never")

    assert ran.status == 1, ran.text
    assert 'app "app:app" cannot be imported: SystemExit: set THE_SECRET first' in " ".join(ran.text.split()), ran.text


def are_imported_together(project: Project) -> bool:
    """Returns whether the first imports of both versions overlap."""
    first, second = (
        [float(instant) for instant in (project.top / place / "import.txt").read_text().splitlines()[0].split()]
        for place in (".", "before")
    )
    return max(first[0], second[0]) < min(first[1], second[1])
