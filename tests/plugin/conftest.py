"""A project to run pytest on: an app, and no plugins but ours, so that each test adds the one it is about."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from apps import SOURCE
from contracts.project import run_pytest
from plugin.projects import TESTS
from versions.repositories import Repo

MS = 1_000_000
# Two servers in turn that wait leave the cores to other tests.
APP = f"""{SOURCE}
import asyncio
import os


async def app(scope, receive, send):
    "Answers 1024 bytes, after reading the whole request. Below /wait it waits for 2 ms."
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    await request_body(receive)
    if scope["path"] == "/broken":
        raise OSError("no such table: items")
    if scope["path"].startswith("/wait"):
        await asyncio.sleep(0.002)
    status = int(scope["path"].removeprefix("/status/")) if scope["path"].startswith("/status/") else 200
    body = b"" if status == 204 else str(os.getpid()).encode() if scope["path"] == "/pid" else b"x" * 1024
    await respond(send, body, status)


def make():
    return app
"""

for _name in (
    "cloudpickle",
    "httpcore",
    "httptools",
    "httpx",
    "numpy",
    "psutil",
    "pytest_fileperf.plugin.active",
    "pytest_fileperf.plugin.verbs",
    "pytest_fileperf.plugin.written",
    "pytest_fileperf.report.page.document",
    "pytest_fileperf.session.session",
    "pytest_fileperf.settings.keywords",  # `part` is kept by the package, and its class has to be the same
    "pytest_fileperf.wire.asgi",
    "scipy.special",
    "uvicorn",
    "uvloop",
    "wcwidth",
):
    importlib.import_module(_name)  # pytester forgets what a run imports, and numpy cannot be imported twice

PACE = {
    "_LEAST_PAIR_NS": 300 * MS,
    "_MOST_PAIR_NS": 600 * MS,
    "_WARMUP_NS": 50 * MS,
    "_PROBE_NS": 50 * MS,
    "_LIMITING_NS": 200 * MS,
    "_PROFILE_NS": 600 * MS,
}
"""Of comparisons: what tests make slower takes many times as long, and shows in few turns."""
OTHERS = ("asyncio", "benchmark", "cacheprovider", "hypothesispytest", "randomly", "timeout", "xdist")

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A directory with `server_app.py`, an app that `fileperf_app` names."""
    pytester.makepyfile(server_app=APP)
    pytester.makeini("[pytest]\nfileperf_app = server_app:app\npythonpath = .\n")
    return pytester


@pytest.fixture
def repo(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Repo:
    """The project, committed; temporary files go where they can be counted."""
    (project.path / ".gitignore").write_text("__pycache__\n/stdout\n/stderr\n/runpytest-*\n/out.json\n/out.html\n")
    project.makepyfile(test_it=TESTS)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "temporary").mkdir()
    made = Repo(project.path)
    made.git("init", "--quiet")
    made.commit()
    return made


def _arguments(arguments: tuple[str, ...], plugins: tuple[str, ...]) -> list[str]:
    off = [f"-pno:{name}" for name in OTHERS if name not in plugins]
    scope = ["-oasyncio_default_fixture_loop_scope=function"] if "asyncio" in plugins else []
    return [*off, *scope, *arguments]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest in this process."""
    monkeypatch.delenv("CI", raising=False)
    for name, value in PACE.items():
        monkeypatch.setattr(f"pytest_fileperf.settings.plans.{name}", value)

    def run(*arguments: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        return pytester.runpytest_inprocess(*_arguments(arguments, plugins))

    return run


@pytest.fixture
def run_load(run: Run) -> Run:
    """Runs load tests in this process: on a server in the process too, where the arguments name no other."""

    def run_load(*arguments: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        return run("--fileperf-server=inprocess", *arguments, plugins=plugins)

    return run_load


@pytest.fixture
def run_apart(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest as a process of its own: for what a run does to its process. Both streams are its `stdout`."""
    monkeypatch.delenv("CI", raising=False)

    def run(*arguments: str, plugins: tuple[str, ...] = ()) -> pytest.RunResult:
        status, text = run_pytest(pytester.path, dict(os.environ), _arguments(arguments, plugins), 50)
        print(text)
        return pytest.RunResult(status, text.splitlines(), [], 0.0)

    return run
