"""The server of a run: one boot at a time, kept for who asks for it again, and ended."""

from __future__ import annotations

import copy
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from serve.processes import facts, linux, posix, remaining_after

from pytest_fileperf.errors import AppLoadError, ServerStartError
from pytest_fileperf.serve import preload
from pytest_fileperf.serve.app import AppSpec, app_spec
from pytest_fileperf.serve.job import stamps_of
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.running import RunningServer, serving_server
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn

APP = AppSpec("serve.apps:app")
PROGRAM = Command(("{python}", str(Path(__file__).with_name("program.py")), "--port={port}"))


@pytest.fixture
def pool() -> Iterator[ServerPool]:
    with closing(ServerPool()) as pool:
        yield pool


def test_a_boot_serves_until_another_one_is_asked_for(pool: ServerPool) -> None:
    first = pool.boot(Uvicorn(), APP, 1, None)
    assert pool.boot(Uvicorn(), app_spec("serve.apps:app"), 1, None) is first
    assert pool.any_boot(Uvicorn(), APP, None) is first
    assert pool.serving(Uvicorn(), APP) == 1
    pids = first.pids
    second = pool.boot(Uvicorn(), APP, 2, None)
    assert remaining_after(0, pids) == []
    assert second.pids != pids


@pytest.mark.parametrize("spec", [Uvicorn(), pytest.param(Gunicorn(), marks=posix), pytest.param(PROGRAM, marks=posix)])
def test_boots_have_their_own_hash_seed(spec: ServerSpec, pool: ServerPool) -> None:
    seeds = [facts(pool.boot(spec, APP, number, None))["env"]["PYTHONHASHSEED"] for number in range(2)]
    assert seeds == ["1", "2"]


def test_another_server_or_app_ends_the_one_before(pool: ServerPool) -> None:
    one = pool.any_boot(Uvicorn(), APP, None)
    pids = one.pids
    pool.any_boot(Uvicorn(), AppSpec("serve.apps:make", factory=True), None)
    assert remaining_after(0, pids) == []
    assert pool.serving(Uvicorn(), APP) is None


@posix
def test_close_ends_everything_and_can_be_repeated() -> None:
    pool = ServerPool()
    pids = pool.boot(Uvicorn(workers=2), APP, 0, None).pids
    pool.close()
    assert remaining_after(0, pids) == []
    pool.close()


def test_after_a_failed_start_another_server_can_follow(pool: ServerPool) -> None:
    with pytest.raises(AppLoadError):
        pool.boot(Uvicorn(), AppSpec("serve_nowhere:app"), 0, None)
    pool.any_boot(Uvicorn(), APP, None).check()


def test_an_in_process_app_is_one_server(pool: ServerPool) -> None:
    assert pool.any_boot(InProcess(), APP, None) is pool.any_boot(InProcess(), APP, None)


def test_a_fixed_port_is_free_for_the_next_server(pool: ServerPool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    for spec in (Uvicorn(port=port), Uvicorn(port=port, http="h11")):
        assert pool.any_boot(spec, APP, None).url == f"http://127.0.0.1:{port}"


@posix
def test_a_command_is_the_same_server_whatever_the_app(pool: ServerPool) -> None:
    assert pool.any_boot(PROGRAM, APP, None) is pool.any_boot(PROGRAM, None, None)


@posix
def test_a_dead_boot_is_replaced_at_its_next_use(pool: ServerPool) -> None:
    dead = pool.boot(PROGRAM, None, 1, None)
    os.kill(dead.pids[0], signal.SIGKILL)
    assert remaining_after(5, dead.pids) == []
    assert pool.serving(PROGRAM, None) is None
    replaced = pool.boot(PROGRAM, None, 1, None)
    replaced.check()
    assert replaced is not dead


def test_a_server_that_is_not_there_is_an_error(pool: ServerPool) -> None:
    with pytest.raises(ServerStartError):
        pool.any_boot(Url("http://127.0.0.1:9"), None, None)


def test_tests_see_the_boot_that_serves(pool: ServerPool) -> None:
    server = serving_server(lambda: pool.any_boot(Uvicorn(), APP, None))
    assert isinstance(copy.copy(server), RunningServer)
    assert pool.running is None, "a copy boots nothing"
    identity = server.identity
    assert server.pids == pool.any_boot(Uvicorn(), APP, None).pids
    second = pool.boot(Uvicorn(), APP, 1, None)
    assert (server.url, server.title, server.pids) == (second.url, second.title, second.pids)
    assert server.identity() == identity() == second.identity()
    pool.close()
    assert facts(server)["env"]["PYTHONHASHSEED"] == "1"


FILLED = {"DATABASE_URL": "sqlite:///data-{boot}.db", "AT": "{worker} of {port}", "LEFT": '{"boot": {x}}'}


@pytest.mark.parametrize(
    "spec,workers",
    [
        pytest.param(Uvicorn(env=FILLED), {"0"}, id="uvicorn"),
        pytest.param(Uvicorn(workers=2, env=FILLED), {"0", "1"}, id="uvicorn with two workers", marks=posix),
        pytest.param(Gunicorn(workers=2, env=FILLED), {"0", "1"}, id="gunicorn with two workers", marks=posix),
        pytest.param(replace(PROGRAM, env=FILLED), {"0"}, id="command", marks=posix),
    ],
)
def test_names_are_filled_in_before_the_app_is_imported(spec: ServerSpec, workers: set[str], pool: ServerPool) -> None:
    for boot in ("0000", "0001"):
        server = pool.boot(spec, AppSpec("serve.apps:app"), int(boot), None)
        port = httpx.URL(server.url).port
        seen: list[tuple[str, ...]] = []
        while {at.partition(" ")[0] for _, at, _ in seen} != workers:
            env = facts(server)["env"]
            seen.append(tuple(env[name] for name in FILLED))
        assert {database for database, _, _ in seen} == {f"sqlite:///data-{boot}.db"}
        assert {at for _, at, _ in seen} == {f"{worker} of {port}" for worker in workers}
        assert {left for _, _, left in seen} == {FILLED["LEFT"]}


@pytest.mark.parametrize("spec", [Uvicorn(), pytest.param(Gunicorn(), marks=posix), InProcess()], ids=str)
def test_an_app_that_fails_in_its_shutdown_is_told(spec: ServerSpec, pool: ServerPool) -> None:
    running = pool.any_boot(spec, app_spec("serve.apps:failing_shutdown"), None)
    pool.close()
    (said,) = pool.endings
    assert said.startswith(f"{running.title} failed when it was asked to end: ")
    assert "the files are gone" in said


@posix
def test_a_server_that_does_not_end_in_time_is_told_and_how_often(pool: ServerPool) -> None:
    spec, app = Uvicorn(stop_timeout_s=0.3), app_spec("serve.apps:stubborn")
    pool.boot(spec, app, 1, None)
    running = pool.boot(spec, app, 2, None)
    pids = running.pids
    pool.close()
    assert remaining_after(0, pids) == []
    said = f"{running.title} did not end within 0.3 s of being asked to, and was killed"
    assert pool.endings == {said: 2}


@posix
@pytest.mark.parametrize("spec", [Uvicorn(), Uvicorn(workers=2), Gunicorn(), PROGRAM, InProcess()], ids=str)
def test_nothing_is_told_of_a_server_that_ends_as_asked(spec: ServerSpec, pool: ServerPool) -> None:
    pool.any_boot(spec, APP, None)
    pool.close()
    assert not pool.endings


@linux
def test_nothing_is_left_of_an_import_that_ctrl_c_interrupts(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(directory: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(preload, "lend_package", interrupt)
    launch = ServerPool(preloads=preload.Preloads()).launch(Uvicorn(), APP, boot=0, cores=None)
    with pytest.raises(KeyboardInterrupt):
        launch.start()
    launch.stop()
    assert list(scratch.iterdir()) == []


@posix
def test_a_file_of_a_package_is_as_it_was_though_another_environment_links_it(tmp_path: Path) -> None:
    """As uv does, which changes the time of the link count."""
    package = tmp_path / "site-packages" / "package.py"
    package.parent.mkdir()
    package.write_text("a = 1")
    before = stamps_of((str(package),))
    (tmp_path / "other.py").hardlink_to(package)
    assert stamps_of((str(package),)) == before
    package.write_text("a = 2")
    assert stamps_of((str(package),)) != before
