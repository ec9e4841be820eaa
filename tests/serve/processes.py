"""Servers for tests: starts them, asks what they say of themselves, and which of their processes live."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest

from pytest_fileperf.host.child import process_tree
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.launch import Launch, ServerPool
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ServerSpec
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
    return started((pool or ServerPool()).launch(spec, app, boot=boot, cores=cores, code_tree=code_tree))


def facts(server: RunningServer) -> Any:
    """Returns what a server says about its process."""
    return httpx.get(server.url, trust_env=False).json()


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
