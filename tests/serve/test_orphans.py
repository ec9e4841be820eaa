"""No server outlives the test run that starts or builds it; of runs that measure, tests/hostile tells."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from serve.processes import get, linux, remaining_after

from pytest_fileperf.serve.spec import Command, Gunicorn, ServerSpec, Uvicorn

pytestmark = linux

PROGRAM = ("{python}", str(Path(__file__).with_name("program.py")), "--port={port}")
SPECS = (Uvicorn(workers=2), Gunicorn(workers=2), Command((*PROGRAM, "--child=apart")))
STARTER = """
import pickle, sys, time
from contextlib import ExitStack, closing
sys.path[:] = {sys_path!r}
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.launch import ServerPool
urls = []
with ExitStack() as pools:
    for spec in pickle.loads({specs!r}):
        server = pools.enter_context(closing(ServerPool())).any_boot(spec, app_spec({app!r}), None)
        print(server.url, *server.pids, flush=True)
    print("up", flush=True)
    time.sleep(60)
"""


@contextmanager
def starting(scratch: Path, *specs: ServerSpec, app: str = "serve.apps:app") -> Iterator[subprocess.Popen[str]]:
    """Runs a process that starts these servers, as pytest would; a pickle, as a `repr` hides what may be secret."""
    code = STARTER.format(sys_path=sys.path, specs=pickle.dumps(specs), app=app)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TMPDIR": str(scratch)},
        start_new_session=True,
    ) as starter:
        try:
            yield starter
        finally:
            starter.kill()


def served(starter: subprocess.Popen[str]) -> dict[str, list[int]]:
    """Returns the processes of each server by its address, the first of them on top."""
    assert starter.stdout is not None
    lines = dict[str, list[int]]()
    for line in starter.stdout:
        if line == "up\n":
            return lines
        url, *pids = line.split()
        lines[url] = [*map(int, pids)]
    pytest.fail("the program that starts servers has ended")


def require_nothing_left(scratch: Path, pids: list[int], timeout_s: float = 5) -> None:
    assert remaining_after(timeout_s, pids) == []
    wait_until(lambda: not list(scratch.iterdir()))


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_killed_run_leaves_nothing_behind_that_is_detached_or_has_a_session_of_its_own(tmp_path: Path) -> None:
    with starting(tmp_path, *SPECS) as starter:
        servers = served(starter)
        *urls, command = servers
        assert len({os.getsid(pid) for pid in servers[command]}) == 2
        (own,) = tmp_path.iterdir()
        assert len(list(own.glob("server-*"))) == len(SPECS)
        for url in urls:
            get(url + "/detach")
        known = [one.pid for one in psutil.Process(starter.pid).children(recursive=True)]
        assert len(known) >= sum(map(len, servers.values())) + 2 * len(urls)  # supervisors, and what is detached
        starter.kill()
        require_nothing_left(tmp_path, known)


def test_a_killed_run_and_supervisors_leave_no_worker_behind_that_ignores_the_request_to_end(tmp_path: Path) -> None:
    specs = (Uvicorn(workers=2), Gunicorn(workers=2), Command((*PROGRAM, "--stubborn")))
    with starting(tmp_path, *specs, app="serve.apps:stubborn") as starter:
        uvicorn, gunicorn, program = served(starter).values()
        supervisor = psutil.Process(program[0]).parent()
        assert supervisor is not None
        for pid in (uvicorn[0], gunicorn[0], supervisor.pid):
            os.kill(pid, signal.SIGKILL)
        starter.kill()
        assert remaining_after(15, [*uvicorn, *gunicorn, *program]) == []


def test_a_run_that_is_killed_while_it_builds_a_server_leaves_nothing_behind(tmp_path: Path) -> None:
    """While one starts: `hostile/test_kills`."""
    told = tmp_path / "pid"
    build = ("{python}", "-c", f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(60)")
    with starting(tmp_path, Command(PROGRAM, build=build)) as starter:
        wait_until(lambda: told.exists() and bool(told.read_text()))
        starter.kill()
        assert remaining_after(5, [int(told.read_text())]) == []
