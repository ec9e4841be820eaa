"""Odd machines and users: a run works there, or says in a sentence what it lacks.

Each run has many oddities at once, as long as all of them are to make no difference.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hostile.runs import LOAD, project_in, ran

posix = pytest.mark.skipif(os.name != "posix", reason="resource limits and users are POSIX")
TESTS = f"""
import pytest
pytestmark = pytest.mark.fileperf({LOAD}, gate="none")

async def journey(client):
    response = await client.get("/")
    response.raise_for_status()

def test_replayed(fileperf):
    fileperf.get("/")

def test_journey(fileperf):
    fileperf.run(journey)

def test_own_client(fileperf_server, fileperf):
    with fileperf_server.sync_client() as client:
        assert client.get("/").status_code == 200
    fileperf.post("/", content=b"x" * 100_000)
"""
ODD_VARIABLES: Mapping[str, str | None] = {
    "HOME": "/no/such/home", "USER": None, "LOGNAME": None, "LANG": None, "LC_ALL": "xx_XX.odd", "TZ": "Nowhere/None",
    "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "XDG_CACHE_HOME": "/dev/null", "SHELL": None, "TERM": None,
    "HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1",
    "https_proxy": "nonsense", "NO_PROXY": None, "SSL_CERT_FILE": "/no/such/file", "SSLKEYLOGFILE": "/dev/null",
    "UVICORN_PORT": "1", "WEB_CONCURRENCY": "7", "HOST": "::", "PORT": "x", "UVLOOP_DEBUG": "x",
    "PYTHONOPTIMIZE": "2", "PYTHONSAFEPATH": "1", "PYTHONHASHSEED": "7", "PYTHONUNBUFFERED": "1",
    "PYTHONNODEBUGRANGES": "1", "MALLOC_ARENA_MAX": "x",
    "COLUMNS": "1", "LINES": "0", "FORCE_COLOR": "1", "NO_COLOR": "1", "GITHUB_ACTIONS": "true",
    "GITHUB_STEP_SUMMARY": "/no/such/file", "GITHUB_EVENT_PATH": "/dev/null", "GITHUB_SHA": "x", "CI": "maybe",
    "GITLAB_CI": "x", "BUILD_NUMBER": "\n",
}  # fmt: skip


def test_odd_variables_change_nothing(tmp_path: Path) -> None:
    project = project_in(tmp_path / "a % 'c' {d} ü", TESTS)
    (project / ".netrc").write_text("machine 127.0.0.1 login a password b")
    env = {"NETRC": str(project / ".netrc"), **ODD_VARIABLES}
    found = ran(project, "--fileperf", "--fileperf-json=out/run.json", "-rA", env=env)
    assert found.tests == dict.fromkeys(("replayed", "journey", "own_client"), ("passed", "")), found.text
    assert "Traceback" not in found.text
    written = json.loads((project / "out" / "run.json").read_text(encoding="utf-8"))
    assert len(written["results"]) == 3


LIMITED = (
    "import os, resource, runpy, sys; {0}; sys.argv[0] = 'pytest'; runpy.run_module('pytest', run_name='__main__')"
)
SMALL = f"""
import pytest
@pytest.mark.fileperf({LOAD}, gate="none")
def test_it(fileperf):
    fileperf.get("/")

def test_many(fileperf):
    fileperf.get("/", requests=600, connections=500, boots=1, gate="none")
"""
LACKS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "room for files": (
        # Python 3.11 does not notice that it wrote a part of a .pyc file, and all later runs would import that part.
        "sys.dont_write_bytecode = True; os.environ.update(PYTHONDONTWRITEBYTECODE='1'); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))",
        ("--fileperf-json=run.json", "--fileperf-html=run.html", "--fileperf-markdown=/dev/full"),
        r"cannot write .*run\.json: File too large.*cannot write /dev/full: No space left on device. Free some",
    ),
    "descriptors": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
        ("--fileperf-server=uvicorn",),
        r"connections need more open files than this process may have \(64\)",
    ),
    "files for an event loop": (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (14, 14))",
        (),
        r"an event loop needs 16 open files, but this process may open only \d+ more: Too many open files. Raise",
    ),
    "a temporary directory and an input": ("os.environ.update(TMPDIR='/no/such'); os.close(0)", (), "1 passed"),
}
"""What a run lacks: how it comes to that, with which options, and what it says."""


@posix
@pytest.mark.parametrize("what", LACKS)
def test_what_a_run_lacks_is_told(tmp_path: Path, what: str) -> None:
    done, options, said = LACKS[what]
    many = "many" if what == "descriptors" else "not many"
    project = project_in(tmp_path, SMALL)
    found = ran(project, "--fileperf", "--fileperf-server=inprocess", "-k", many, *options, program=_program(done))
    assert re.search(said, " ".join(found.text.split())), found.text
    assert "pytest_fileperf/" not in found.text  # a frame of ours
    assert not [path.name for path in project.iterdir() if path.name.startswith(("run.", ".run"))]


def _program(done: str) -> tuple[str, ...]:
    return sys.executable, "-c", LIMITED.format(done)


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
def test_a_user_who_may_write_nothing_there_is_told() -> None:
    with tempfile.TemporaryDirectory() as directory:
        project = project_in(Path(directory) / "of_root", SMALL.replace(', gate="none"', ""))
        Path(directory).chmod(0o755)
        become = "os.setgid(65534); os.setuid(65534); os.environ.update(HOME='/', PYTHONDONTWRITEBYTECODE='1')"
        can = subprocess.run([*_program(become), "--version"], cwd=project, check=False, capture_output=True)
        if can.returncode:
            pytest.skip("another user cannot run this Python")
        options = ("--fileperf-server=inprocess", "--fileperf-update=all", "--fileperf-json=run.json", "-k", "not many")
        found = ran(project, "--fileperf", *options, "--junitxml=/dev/null", program=_program(become))
        text = " ".join(found.text.split())
        assert "run.json: Permission denied" in text
        assert "pytest_fileperf/" not in text
        assert not (project / ".fileperf").exists()
