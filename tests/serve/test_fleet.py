"""The servers of a run: shared where spec and app are the same, several boots where asked for, all ended."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serve.processes import posix, remaining_after

from pytest_fileperf.errors import AppLoadError, ServerStartError
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.fleet import Fleet
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn

APP = AppSpec("serve.apps:app")
PROGRAM = Command(("{python}", str(Path(__file__).with_name("program.py")), "--port={port}"))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet() as fleet:
        yield fleet


def test_boots_are_reused_and_added_to(fleet: Fleet) -> None:
    first = fleet.boots(Uvicorn(), APP, 1, None)
    three = fleet.boots(Uvicorn(), app_spec("serve.apps:app"), 3, None)
    assert three[:1] == first
    assert len({server.pids for server in three}) == 3
    assert fleet.boots(Uvicorn(), APP, 2, None) == three[:2]


@pytest.mark.parametrize("spec", [Uvicorn(), pytest.param(Gunicorn(), marks=posix), pytest.param(PROGRAM, marks=posix)])
def test_boots_have_their_own_hash_seed(spec: ServerSpec, fleet: Fleet) -> None:
    servers = fleet.boots(spec, APP, 2, None)
    seeds = [httpx.get(server.url, trust_env=False).json()["env"]["PYTHONHASHSEED"] for server in servers]
    assert seeds == ["1", "2"]


def test_another_spec_or_app_is_another_server(fleet: Fleet) -> None:
    one = fleet.boots(Uvicorn(), APP, 1, None)
    assert fleet.boots(Uvicorn(http="h11"), APP, 1, None) != one
    assert fleet.boots(Uvicorn(), AppSpec("serve.apps:make", factory=True), 1, None) != one


def test_close_ends_everything_and_can_be_repeated() -> None:
    fleet = Fleet()
    servers = fleet.boots(Uvicorn(), APP, 2, None) + fleet.boots(Uvicorn(workers=2), APP, 1, None)
    pids = [pid for server in servers for pid in server.pids]
    fleet.close()
    assert remaining_after(0, pids) == []
    fleet.close()


def test_a_failed_start_ends_the_others_and_leaves_earlier_boots(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (running,) = fleet.boots(Uvicorn(), APP, 1, None)
    with pytest.raises(AppLoadError):
        fleet.boots(Uvicorn(), AppSpec("serve_nowhere:app"), 3, None)
    running.check()
    assert fleet.boots(Uvicorn(), APP, 1, None) == (running,)


def test_what_can_be_there_once_gives_one_boot(fleet: Fleet) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    (fixed,) = fleet.boots(Uvicorn(port=port), APP, 3, None)
    assert fixed.url == f"http://127.0.0.1:{port}"
    assert len(fleet.boots(Url(fixed.url), None, 3, None)) == 1
    assert len(fleet.boots(InProcess(), APP, 3, None)) == 1


@posix
def test_a_command_is_the_same_server_whatever_the_app(fleet: Fleet) -> None:
    assert fleet.boots(PROGRAM, APP, 1, None) == fleet.boots(PROGRAM, None, 1, None)


@posix
def test_a_dead_boot_is_replaced_at_its_next_use(fleet: Fleet) -> None:
    dead, alive = fleet.boots(Uvicorn(), APP, 2, None)
    os.kill(dead.pids[0], signal.SIGKILL)
    assert remaining_after(5, dead.pids) == []
    replaced, same = fleet.boots(Uvicorn(), APP, 2, None)
    replaced.check()
    assert replaced is not dead
    assert same is alive


def test_a_server_that_is_not_there_is_an_error(fleet: Fleet) -> None:
    with pytest.raises(ServerStartError):
        fleet.boots(Url("http://127.0.0.1:9"), None, 1, None)
