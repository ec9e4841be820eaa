"""No server outlives the test run, whichever way the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from serve.processes import remaining_after

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

STARTER = """
import sys, time
sys.path[:] = {sys_path!r}
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.fleet import Fleet
from pytest_fileperf.serve.spec import Uvicorn
with Fleet() as fleet:
    for app, workers in {servers!r}:
        (server,) = fleet.boots(Uvicorn(workers=workers), app_spec(app), 1, None)
        print(*server.pids, flush=True)
    print("up", flush=True)
    time.sleep(60)
"""


@dataclass
class Run:
    """A process that has started servers, as pytest would."""

    starter: subprocess.Popen[str]
    servers: list[list[int]]
    """The processes of each, the first of them on top."""

    @property
    def pids(self) -> list[int]:
        return [pid for server in self.servers for pid in server]


@contextmanager
def running(scratch: Path, *servers: tuple[str, int]) -> Iterator[Run]:
    code = STARTER.format(sys_path=sys.path, servers=servers)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
    ) as starter:
        assert starter.stdout is not None
        try:
            lines = list(iter(starter.stdout.readline, "up\n"))
            yield Run(starter, [[int(pid) for pid in line.split()] for line in lines])
        finally:
            starter.kill()


def test_a_killed_test_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with running(tmp_path, ("serve.apps:app", 1), ("serve.apps:app", 2), ("serve.apps:stubborn", 1)) as run:
        assert len(list(tmp_path.iterdir())) == 3
        run.starter.kill()
        assert remaining_after(3, run.servers[0] + run.servers[1]) == []
        assert remaining_after(15, run.servers[2]) == []
        assert list(tmp_path.iterdir()) == []


def test_a_killed_test_run_and_supervisor_leave_no_worker_behind(tmp_path: Path) -> None:
    with running(tmp_path, ("serve.apps:app", 2)) as run:
        os.kill(run.servers[0][0], signal.SIGKILL)
        run.starter.kill()
        assert remaining_after(15, run.pids) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_a_terminal_s_signal_reaches_the_test_run_which_ends_its_servers(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(tmp_path, ("serve.apps:app", 1), ("serve.apps:app", 2)) as run:
        assert {os.getpgid(pid) for pid in run.pids}.isdisjoint({run.starter.pid})
        os.killpg(run.starter.pid, number)
        run.starter.wait(10)
        assert remaining_after(10, run.pids) == []
        assert list(tmp_path.iterdir()) == []


def test_a_run_interrupted_while_a_server_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    code = STARTER.format(sys_path=sys.path, servers=[("serve.apps:hanging_lifespan", 2)])
    with subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(tmp_path)}
    ) as starter:
        while len(pids := [int(path.suffix[1:]) for path in tmp_path.glob("*/started.*")]) < 2:
            assert starter.poll() is None
        starter.send_signal(signal.SIGINT)
        starter.wait(10)
        assert remaining_after(5, pids) == []
        assert list(tmp_path.iterdir()) == []
