"""Real uvicorn servers: that they start as asked, serve, say what went wrong, and end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fastapi import FastAPI
from serve.processes import remaining_after

from pytest_fileperf.errors import AppLoadError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.fleet import Fleet
from pytest_fileperf.serve.launch import launch
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Uvicorn

Boot = Callable[..., RunningServer]
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals")

in_this_module = FastAPI()


@in_this_module.get("/")
async def answer() -> dict[str, str]:
    return {"from": "a test module"}


@pytest.fixture
def boot() -> Iterator[Boot]:
    with ExitStack() as servers:

        def boot(
            spec: Uvicorn | None = None,
            app: object = "serve.apps:app",
            number: int = 0,
            cores: frozenset[int] | None = None,
        ) -> RunningServer:
            return servers.enter_context(launch(spec or Uvicorn(), app_spec(app), boot=number, cores=cores))

        yield boot


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where run directories of this test go."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def facts(server: RunningServer) -> Any:
    return httpx.get(server.url, trust_env=False).json()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("loop,http", [("asyncio", "h11"), ("uvloop", "httptools")])
def test_serves_on_what_was_asked_for(workers: int, loop: str, http: str, boot: Boot) -> None:
    server = boot(Uvicorn(workers=workers, loop=loop, http=http))
    assert server.title == f"uvicorn ×{workers} ({loop}, {http})"
    found = server.identity()
    assert found == {
        "kind": "uvicorn", "workers": workers, "loop": loop, "http": http, "stabilised": list(server.stabilised)
    }  # fmt: skip
    assert facts(server)["pid"] in server.pids
    assert len(server.pids) >= (1 if workers == 1 else 3)
    server.check()


@pytest.mark.parametrize("workers", [1, 2])
def test_everything_is_gone_at_the_end(workers: int, scratch: Path) -> None:
    with launch(Uvicorn(workers=workers), app_spec("serve.apps:app"), boot=0, cores=None) as server:
        pids = server.pids
        assert len(list(scratch.iterdir())) == 1
    assert remaining_after(0, pids) == []
    assert list(scratch.iterdir()) == []


def test_the_app_s_lifespan_ends_before_the_server_does(boot: Boot, tmp_path: Path) -> None:
    marker = tmp_path / "shut down"

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        marker.touch()

    with launch(Uvicorn(), app_spec(FastAPI(lifespan=lifespan)), boot=0, cores=None):
        assert not marker.exists()
    assert marker.exists()


def make_from_this_module() -> FastAPI:
    return in_this_module


@pytest.mark.parametrize("app", [in_this_module, make_from_this_module])
def test_apps_and_factories_of_a_test_module_are_served(app: object, boot: Boot) -> None:
    assert facts(boot(app=app)) == {"from": "a test module"}


def test_a_factory_by_name_is_served(boot: Boot) -> None:
    assert "pid" in facts(boot(app="serve.apps:make()"))


def test_it_works_where_the_test_run_works(boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "gone when the next test runs")
    seen = facts(boot(Uvicorn(env=(("COLOUR", "red"),))))
    assert seen["cwd"] == str(tmp_path)
    assert seen["env"]["COLOUR"] == "red"
    assert "PYTEST_CURRENT_TEST" not in seen["env"]


def test_the_client_goes_to_the_server(boot: Boot) -> None:
    import asyncio

    server = boot()

    async def ask() -> httpx.Response:
        async with server.client(headers={"x-test": "1"}) as client:
            return await client.get("/")

    response = asyncio.run(ask())
    assert response.status_code == 200
    assert response.request.url.port == httpx.URL(server.url).port
    assert response.request.headers["x-test"] == "1"


@linux
def test_it_keeps_to_its_cores(boot: Boot) -> None:
    core = max(os.sched_getaffinity(0))
    assert facts(boot(cores=frozenset({core})))["cores"] == [core]


@linux
def test_stabilised_boots_are_alike_and_their_number_counts(boot: Boot) -> None:
    servers = [boot(number=0), boot(number=0), boot(number=1)]
    one, same, other = map(facts, servers)
    assert "hash seed" in servers[0].stabilised
    assert one["hash"] == same["hash"] != other["hash"]
    if "addresses" in servers[0].stabilised:
        assert one["address"] == same["address"] == other["address"]
    if "allocator" in servers[0].stabilised:
        assert one["env"]["MALLOC_ARENA_MAX"] == "1"


def test_not_stabilised_when_not_wanted(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    server = boot(Uvicorn(stabilise=False))
    assert server.stabilised == ()
    assert "MALLOC_ARENA_MAX" not in facts(server)["env"]


APPS_THAT_FAIL = {
    "module": ("serve_nowhere:app", "No module named 'serve_nowhere'"),
    "attribute": ("serve.apps:ap", "did you mean app"),
    "wsgi": ("serve.apps:wsgi", "as a WSGI app does"),
    "factory": ("serve.apps:make_failing()", "failed: RuntimeError: no database here"),
}


@pytest.mark.parametrize("app,reason", APPS_THAT_FAIL.values(), ids=APPS_THAT_FAIL)
def test_an_app_that_does_not_load_is_an_error_as_the_server_saw_it(
    app: str, reason: str, boot: Boot, scratch: Path
) -> None:
    with pytest.raises(AppLoadError, match=reason):
        boot(app=app)
    assert list(scratch.iterdir()) == []


def test_an_app_that_does_not_load_in_a_worker_is_the_same_error(boot: Boot) -> None:
    with pytest.raises(AppLoadError, match="No module named 'serve_nowhere'"):
        boot(Uvicorn(workers=2), "serve_nowhere:app")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("app", ["failing_lifespan", "crashing_lifespan"])
def test_a_failing_lifespan_is_shown_with_the_app_s_own_words(app: str, workers: int, boot: Boot) -> None:
    with pytest.raises(ServerStartError, match="lifespan") as caught:
        boot(Uvicorn(workers=workers), f"serve.apps:{app}")
    assert any("RuntimeError: no database here" in line for line in caught.value.log)


def test_an_app_without_a_lifespan_is_served(boot: Boot) -> None:
    assert "pid" in facts(boot(app="serve.apps:without_lifespan"))


@linux
def test_a_server_may_open_more_files_than_the_test_run(boot: Boot) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert facts(boot())["open files"] == min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@posix
def test_a_full_disk_is_named_as_the_place_to_look_at(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, encoding: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ServerStartError, match=f"cannot be started from {tempfile.gettempdir()}: .*No space left"):
        boot()


def test_a_hanging_start_ends_with_the_last_lines_of_the_log(boot: Boot) -> None:
    started = time.monotonic()
    with pytest.raises(ServerStartError, match=r"not ready to serve serve.apps:hanging_lifespan within 1 s") as caught:
        boot(Uvicorn(start_timeout_s=1), "serve.apps:hanging_lifespan")
    assert "waiting for the database" in caught.value.log
    assert time.monotonic() - started < 10


@posix
@pytest.mark.parametrize(
    "workers,said", [(1, "ended with exit code 9 before it was ready"), (2, "a uvicorn worker ended")]
)
def test_a_process_that_vanishes_while_it_starts_is_noticed(
    workers: int, said: str, boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vanishing_app.py").write_text("import os\nprint('last words')\nos._exit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ServerStartError, match=said) as caught:
        boot(Uvicorn(workers=workers), "vanishing_app:app")
    assert "last words" in caught.value.log


def test_a_taken_port_is_named_with_what_to_do(boot: Boot) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ServerStartError, match=rf"port {port} of 127.0.0.1 cannot be used .*leave `port` out"):
            boot(Uvicorn(port=port))


def test_a_package_that_is_not_installed_is_named_before_anything_starts(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlanError, match="uvloop is not installed"):
        boot(Uvicorn(loop="uvloop"))


def test_several_workers_need_an_app_that_can_be_imported(boot: Boot) -> None:
    with pytest.raises(AppLoadError, match='"module:attribute"'):
        boot(Uvicorn(workers=2), in_this_module)


def test_no_app_is_an_error() -> None:
    with pytest.raises(PlanError, match="no app to boot"), launch(Uvicorn(), None, boot=0, cores=None):
        pass


@posix
def test_a_server_that_died_is_told_with_the_signal(boot: Boot) -> None:
    server = boot()
    pids = server.pids
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{server.url}/die", trust_env=False)
    assert remaining_after(5, pids) == []
    with pytest.raises(ServerDiedError, match="ended with signal SIGKILL") as caught:
        server.check()
    assert any("startup complete" in line for line in caught.value.log)


@posix
def test_a_worker_that_died_is_told_though_the_supervisor_replaces_it(boot: Boot) -> None:
    server = boot(Uvicorn(workers=2))
    worker = facts(server)["pid"]
    os.kill(worker, signal.SIGKILL)
    assert remaining_after(5, [worker]) == []
    with pytest.raises(ServerDiedError, match=f"its worker {worker} has ended"):
        server.check()


@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_does_not_end_is_killed(workers: int) -> None:
    with launch(
        Uvicorn(workers=workers, stop_timeout_s=0.3), app_spec("serve.apps:stubborn"), boot=0, cores=None
    ) as server:
        pids = server.pids
    assert remaining_after(0, pids) == []


@posix
def test_servers_that_do_not_end_are_waited_for_side_by_side() -> None:
    with Fleet() as fleet:
        fleet.boots(Uvicorn(stop_timeout_s=2), app_spec("serve.apps:stubborn"), 3, None)
        started = time.monotonic()
    assert time.monotonic() - started < 5


@posix
def test_a_stopped_process_is_killed_too() -> None:
    with launch(Uvicorn(stop_timeout_s=0.3), app_spec("serve.apps:app"), boot=0, cores=None) as server:
        pids = server.pids
        psutil.Process(pids[0]).suspend()
    assert remaining_after(0, pids) == []


@posix
def test_the_server_is_in_a_session_of_its_own(boot: Boot) -> None:
    server = boot(Uvicorn(workers=2))
    assert {os.getsid(pid) for pid in server.pids} == {server.pids[0]}
    assert server.pids[0] != os.getsid(0)
