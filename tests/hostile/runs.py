"""One run of pytest, as a process of its own, serves many cases: each looks at what became of its test."""

from __future__ import annotations

import os
import pickle
import subprocess
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from contracts.project import run_pytest
from plugin.conftest import APP, OTHERS

__all__ = ("LOAD", "QUIET", "Ran", "once", "project_in", "ran")

LOAD = "connections=2, requests=4, boots=1, warmup=0, rounds=1"
QUIET = tuple(f"-pno:{name}" for name in OTHERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a run has printed and written."""

    directory: Path
    status: int
    text: str
    """What it printed, on both streams."""
    tests: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Of each test `passed`, `failed`, `error` or `skipped`, and what is said of it."""


def project_in(directory: Path, tests: str, *, app: str = APP, ini: str = "") -> Path:
    """Makes a project with an app and tests; returns its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "server_app.py").write_text(app, encoding="utf-8")
    (directory / "pytest.ini").write_text(f"[pytest]\nfileperf_app = server_app:app\npythonpath = .\n{ini}")
    (directory / "test_it.py").write_text(tests, encoding="utf-8")
    return directory


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Ran]) -> Ran:
    """Returns a run that is made once, in a directory of its own, however many processes of xdist look at it."""
    apart = "PYTEST_XDIST_WORKER" in os.environ
    base = factory.getbasetemp().parent if apart else factory.mktemp(name)
    kept = base / f"{name}.pickle"
    with suppress(FileExistsError):
        (base / f"{name}.begun").mkdir()  # one process alone can make it
        written = base / f"{name}.new"
        try:
            found: Ran | Exception = make(base / name)
        except Exception as error:  # each test that asks for the run fails for this reason
            found = error
        written.write_bytes(pickle.dumps(found))
        written.rename(kept)
    until_s = time.monotonic() + 100
    while not kept.exists():
        assert time.monotonic() < until_s, "the run that another process makes has not ended"
        time.sleep(0.05)
    kept_run: Ran | Exception = pickle.loads(kept.read_bytes())
    if isinstance(kept_run, Exception):
        raise kept_run
    return kept_run


def ran(
    directory: Path, *arguments: str, env: Mapping[str, str | None] | None = None, program: Sequence[str] = ()
) -> Ran:
    """Runs pytest there, or another program with the same arguments, within 100 s; without variables that are None."""
    own = {name: value for name, value in os.environ.items() if name != "CI"}
    given = {name: value for name, value in {**own, **(env or {})}.items() if value is not None}
    junit = directory / "junit.xml"
    every = [*QUIET, "--junitxml=junit.xml", "-ojunit_family=xunit2", *arguments]
    if program:
        done = subprocess.run(
            [*program, *every],
            cwd=directory,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=100,
            check=False,
        )
        status, text = done.returncode, done.stdout.decode("utf-8", "replace")
    else:
        status, text = run_pytest(directory, given, every, 100)
    tests = dict(map(_outcome, ET.parse(junit).iter("testcase"))) if junit.exists() and junit.stat().st_size else {}
    return Ran(directory=directory, status=status, text=text, tests=tests)


def _outcome(case: ET.Element) -> tuple[str, tuple[str, str]]:
    name = (case.get("name") or "").removeprefix("test_")
    for kind, outcome in (("failure", "failed"), ("error", "error"), ("skipped", "skipped")):
        if (found := case.find(kind)) is not None:
            return name, (outcome, f"{found.get('message')}\n{found.text}")
    return name, ("passed", "")
