"""Processes for tests: servers, what they say of themselves and which of their processes live; and a scripted one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

import httpx
import pytest

from pytest_fileperf.host.child import process_tree
from pytest_fileperf.host.profiler import Profiler, ProfilerUnavailableError
from pytest_fileperf.host.threads import RUNNING, Observation, ThreadWatch
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.launch import Launch, ServerPool
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ServerSpec, Uvicorn, needs_app
from pytest_fileperf.versions.tree import HERE, CodeTree

Boot = Callable[..., RunningServer]
"""What the fixture `boot` is: it takes a spec, an app, the number of the boot, and cores."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")

BUSY = """
import sys, threading, time

def burn():
    print("here", flush=True)
    while True:
        sum(range(1000))

for _ in range(int(sys.argv[1])):
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
burn()
"""


@contextmanager
def started(launch: Launch) -> Iterator[RunningServer]:
    """Boots the server, and ends it at the end of the block."""
    try:
        launch.start()
        yield launch.ready()
    finally:
        launch.stop()


def launch(
    spec: ServerSpec,
    app: AppSpec | None = None,
    *,
    boot: int = 0,
    cores: frozenset[int] | None = None,
    code_tree: CodeTree = HERE,
    pool: ServerPool | None = None,
) -> AbstractContextManager[RunningServer]:
    """Boots a server of any kind, and ends it at the end of the block."""
    return started((pool or ServerPool()).launch(spec, app, StartUp(number=boot, cores=cores, code_tree=code_tree)))


@contextmanager
def booting() -> Iterator[Boot]:
    """Gives what the fixture `boot` is; ends its servers at the end of the block."""
    with ExitStack() as servers:

        def boot(
            spec: ServerSpec | None = None,
            app: object = "serve.apps:app",
            number: int = 0,
            cores: frozenset[int] | None = None,
        ) -> RunningServer:
            spec = spec or Uvicorn()
            served = app_spec(app) if needs_app(spec) else None
            return servers.enter_context(launch(spec, served, boot=number, cores=cores))

        yield boot


def facts(server: RunningServer) -> Any:
    """Returns what a server says about its process."""
    return get(server.url).json()


def get(url: str) -> httpx.Response:
    """Returns an answer; reads no certificates before, which would take ten times as long as all else."""
    return httpx.get(url, trust_env=False, verify=False)


def check_until(timeout_s: float, server: RunningServer) -> None:
    """Checks the server again and again, until that raises or the time is over."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        server.check()


def living(pids: Iterable[int]) -> list[int]:
    """Returns those that run; a zombie does not."""
    return [pid for pid in pids if any(process.pid == pid for process in process_tree(pid))]


def remaining_after(timeout_s: float, pids: Iterable[int]) -> list[int]:
    """Returns those that still run at the end of the time; at once when there are none."""
    deadline = time.monotonic() + timeout_s
    left = living(pids)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = living(left)
    return left


@contextmanager
def busy(threads: int = 0) -> Iterator[int]:
    """Runs a process that computes, and has so many threads that sleep."""
    with subprocess.Popen([sys.executable, "-c", BUSY, str(threads)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            yield process.pid
        finally:
            process.kill()


def why_no_profile() -> str:
    """Returns why py-spy does not work here; an empty text where it does."""
    try:
        with busy() as pid, Profiler([pid], seconds=0):
            return ""
    except ProfilerUnavailableError as error:
        return str(error)


# --- a process that does as it is told, for what is seen of it from outside

PATIENCE_S = 20.0

SCRIPT = """
import select, sys, threading, time
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(4)
go_on = threading.Event()
lock = threading.Lock()
work, files = [], []

def told():
    return bool(select.select([sys.stdin], [], [], 0)[0])

def nap():
    while not go_on.is_set():
        time.sleep(0.02)

def wait():
    with lock:
        pass

threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("here", flush=True)
for line in sys.stdin:
    what, _, count = line.strip().partition(" ")
    if what == "nap":
        go_on.clear()
        work.extend(pool.submit(nap) for _ in range(int(count)))
    elif what == "wait":
        lock.acquire()
        work.extend(pool.submit(wait) for _ in range(int(count)))
    elif what == "rest":
        go_on.set()
        if lock.locked():
            lock.release()
        for one in work:
            one.result()
        work.clear()
    elif what == "open":
        files.extend(open(sys.executable, "rb") for _ in range(int(count)))
    print("done", flush=True)
    while what == "spin" and not told():
        pass
    while what == "sleep" and not told():
        time.sleep(0.02)
"""


class Scripted:
    """Its main thread waits for orders, and one of its threads sleeps all the time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def do(self, what: str) -> None:
        """Returns when it has begun: `nap` and `wait` with so many threads of 4, `spin` and `sleep` with the main one.

        `rest` ends what threads do, and returns when they have.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        self.read("done")

    def read(self, answer: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{answer}\n"


@contextmanager
def scripted() -> Iterator[Scripted]:
    """Runs such a process, and ends it."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            found = Scripted(process)
            found.read("here")
            with closing(ThreadWatch(found.pid)) as watch:  # it has said so, and its threads may not wait yet
                until(lambda: RUNNING not in watch.observe()[0])
            yield found
        finally:
            process.kill()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def settled(watch: ThreadWatch) -> Observation:
    """Returns an observation of threads that have come to where they go, the main one apart."""
    before = watch.observe()
    while True:
        time.sleep(0.01)
        now = watch.observe()
        if now[0][1:] == before[0][1:] and RUNNING not in now[0][1:]:
            return now
        before = now
