"""One import serves many start-ups, where nothing keeps the app from it."""

from __future__ import annotations

import sys

import pytest
from contracts.project import Project, results

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="apps are forked on Linux only")

APP = """
import asyncio, os, pathlib
{}
with open(pathlib.Path(__file__).with_name("imports.txt"), "a") as imports:
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
    fileperf.get(path, connections=2, duration="600ms", warmup="50ms", boots=3)
"""
CHANGING = """
import pytest

@pytest.fixture(autouse=True)
def changed():
    with open("data.txt", "a") as data:
        data.write("more")
"""
LIFESPAN = """
import os
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
def test_get(fileperf):
    fileperf.get("/", connections=2, max_duration="6s", gate="rps")
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
        ("ends", "os.register_at_fork(after_in_child=lambda: os._exit(9))", "a fork of it does not start"),
    )
} | {
    "raises": (LIFESPAN.format(fails="raise RuntimeError('not in a fork')"), "a fork of it does not start"),
    "exits": (LIFESPAN.format(fails="os._exit(5)"), "a fork of it does not start"),
}
"""Apps that cannot be forked, and what is said of each; the last two fail in their lifespan, if that is in a fork."""


def imports(project: Project) -> int:
    return len((project.top / "imports.txt").read_text().splitlines())


def app(project: Project, first: str = "") -> Project:
    return project.write({"app.py": APP.format(first), "test_load.py": TESTS})


def test_one_import_serves_all_start_ups_of_a_session(project: Project) -> None:
    ran = app(project).run("-v")

    assert ran.status == 0, ran.text
    assert ANEW not in ran.said, ran.text
    assert imports(project) == 1


def test_each_start_up_may_have_an_import_of_its_own(project: Project) -> None:
    ran = app(project).run("-v", "-o", "fileperf_preload=never")

    assert ran.status == 0, ran.text
    assert imports(project) >= 3


def test_a_file_that_changes_is_imported_again(project: Project) -> None:
    app(project, 'DATA = open("data.txt").read()').write({"data.txt": "data", "conftest.py": CHANGING})
    ran = project.run("-v")

    assert ran.status == 0, ran.text
    assert imports(project) == 2


def test_what_cannot_be_forked_starts_afresh_and_is_told(project: Project) -> None:
    apps = {f"app_{name}.py": text for name, (text, _) in CANNOT.items()}
    ran = project.write({**apps, "test_load.py": EACH.format(list(CANNOT))}).run("--fileperf-smoke")

    assert ran.status == 0, ran.text
    told = {name: [note for note in results(ran)[f"test_get[{name}]"]["notes"] if ANEW in note] for name in CANNOT}
    wrong = {name: notes for name, notes in told.items() if len(notes) != 1 or CANNOT[name][1] not in notes[0]}
    assert wrong == {}


def test_an_app_that_does_not_import_says_so_once(project: Project) -> None:
    ran = app(project, "raise RuntimeError('no key')").run("-k", "a")

    assert ran.status == 1
    assert "RuntimeError: no key" in ran.said, ran.text


def test_a_version_that_cannot_be_forked_keeps_the_other_from_it(project: Project) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    project.write({"app.py": APP.format(thread), "before/app.py": APP.format(""), "test_load.py": COMPARED})
    ran = project.run("--fileperf-against=./before", "-v")

    assert ran.status == 0, ran.text
    assert ANEW in ran.said, ran.text
    pairs = results(ran)["test_get"]["verdict"]["comparisons"][0]["pairs"]
    before = (project.top / "before" / "imports.txt").read_text().splitlines()
    assert len(before) == len(set(before)) >= pairs


def test_each_version_of_a_comparison_is_imported_twice(project: Project) -> None:
    long = COMPARED.replace("6s", "15s")  # the second import comes with the second pair of start-ups
    project.write({"app.py": APP.format(""), "before/app.py": APP.format(""), "test_load.py": long})
    ran = project.run("--fileperf-against=./before")

    assert ran.status == 0, ran.text
    assert len((project.top / "before" / "imports.txt").read_text().splitlines()) == 2


SLOW = """
import pathlib, time
begun = time.monotonic()
time.sleep(2)
pathlib.Path(__file__).with_name("import.txt").write_text(f"{begun} {time.monotonic()}")
"""


def test_both_versions_are_imported_at_the_same_time(project: Project) -> None:
    app = SLOW + APP.format("")
    project.write({"app.py": app, "before/app.py": app, "test_load.py": COMPARED.replace("6s", "1s")})
    ran = project.run("--fileperf-against=./before")

    assert ran.status == 0, ran.text
    first, second = (
        [float(instant) for instant in (project.top / place / "import.txt").read_text().split()]
        for place in (".", "before")
    )
    assert max(first[0], second[0]) < min(first[1], second[1])
