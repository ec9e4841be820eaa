"""The servers of a run: shared where spec and app are the same, several boots where asked for, all ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from serve.processes import posix, remaining_after

from pytest_fileperf.errors import AppLoadError, ServerStartError
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.pool import ServerPool
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn

APP = AppSpec("serve.apps:app")
PROGRAM = Command(("{python}", str(Path(__file__).with_name("program.py")), "--port={port}"))


@pytest.fixture
def pool() -> Iterator[ServerPool]:
    with closing(ServerPool()) as pool:
        yield pool


def test_boots_are_reused_and_added_to(pool: ServerPool) -> None:
    first = pool.boots(Uvicorn(), APP, 1, None)
    three = pool.boots(Uvicorn(), app_spec("serve.apps:app"), 3, None)
    assert three[:1] == first
    assert len({server.pids for server in three}) == 3
    assert pool.boots(Uvicorn(), APP, 2, None) == three[:2]


@pytest.mark.parametrize("spec", [Uvicorn(), pytest.param(Gunicorn(), marks=posix), pytest.param(PROGRAM, marks=posix)])
def test_boots_have_their_own_hash_seed(spec: ServerSpec, pool: ServerPool) -> None:
    servers = pool.boots(spec, APP, 2, None)
    seeds = [httpx.get(server.url, trust_env=False).json()["env"]["PYTHONHASHSEED"] for server in servers]
    assert seeds == ["1", "2"]


def test_another_spec_or_app_is_another_server(pool: ServerPool) -> None:
    one = pool.boots(Uvicorn(), APP, 1, None)
    assert pool.boots(Uvicorn(http="h11"), APP, 1, None) != one
    assert pool.boots(Uvicorn(), AppSpec("serve.apps:make", factory=True), 1, None) != one


@posix
def test_close_ends_everything_and_can_be_repeated() -> None:
    pool = ServerPool()
    servers = pool.boots(PROGRAM, None, 2, None) + pool.boots(Uvicorn(workers=2), APP, 1, None)
    pids = [pid for server in servers for pid in server.pids]
    pool.close()
    assert remaining_after(0, pids) == []
    pool.close()


@posix
def test_servers_that_do_not_end_are_waited_for_side_by_side_and_killed() -> None:
    with closing(ServerPool()) as pool:
        servers = pool.boots(Uvicorn(stop_timeout_s=2), AppSpec("serve.apps:stubborn"), 3, None)
        pids = [pid for server in servers for pid in server.pids]
        started = time.monotonic()
    assert time.monotonic() - started < 5
    assert remaining_after(0, pids) == []


def test_a_failed_start_ends_the_others_and_leaves_earlier_boots(
    pool: ServerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (running,) = pool.boots(Uvicorn(), APP, 1, None)
    with pytest.raises(AppLoadError):
        pool.boots(Uvicorn(), AppSpec("serve_nowhere:app"), 2, None)
    running.check()
    assert pool.boots(Uvicorn(), APP, 1, None) == (running,)


def test_what_can_be_there_once_gives_one_boot(pool: ServerPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    (fixed,) = pool.boots(Uvicorn(port=port), APP, 3, None)
    assert fixed.url == f"http://127.0.0.1:{port}"
    assert len(pool.boots(Url(fixed.url), None, 3, None)) == 1
    assert len(pool.boots(InProcess(), APP, 3, None)) == 1


@posix
def test_a_command_is_the_same_server_whatever_the_app(pool: ServerPool) -> None:
    assert pool.boots(PROGRAM, APP, 1, None) == pool.boots(PROGRAM, None, 1, None)


@posix
def test_a_dead_boot_is_replaced_at_its_next_use(pool: ServerPool) -> None:
    dead, alive = pool.boots(PROGRAM, None, 2, None)
    os.kill(dead.pids[0], signal.SIGKILL)
    assert remaining_after(5, dead.pids) == []
    replaced, same = pool.boots(PROGRAM, None, 2, None)
    replaced.check()
    assert replaced is not dead
    assert same is alive


def test_a_server_that_is_not_there_is_an_error(pool: ServerPool) -> None:
    with pytest.raises(ServerStartError):
        pool.boots(Url("http://127.0.0.1:9"), None, 1, None)
