"""Real uvicorn and gunicorn servers: that they start as asked, serve, say what went wrong, and end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import httpx
import psutil
import pytest
from fastapi import FastAPI
from serve.processes import Boot, check_until, facts, launch, linux, posix, remaining_after

from pytest_fileperf.errors import AppLoadError, PlanError, ServerDiedError, ServerStartError
from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.pool import ServerPool
from pytest_fileperf.serve.spec import Gunicorn, Uvicorn

Kind: TypeAlias = type[Uvicorn] | type[Gunicorn]
pytestmark = pytest.mark.parametrize(
    "kind", [pytest.param(Uvicorn, id="uvicorn"), pytest.param(Gunicorn, id="gunicorn", marks=posix)]
)
one_and_two = pytest.mark.parametrize("workers", [1, 2])

in_this_module = FastAPI()


@in_this_module.get("/")
async def answer() -> dict[str, str]:
    return {"from": "a test module"}


@one_and_two
@pytest.mark.parametrize("loop,http", [("asyncio", "h11"), ("uvloop", "httptools")])
def test_serves_on_what_was_asked_for(workers: int, loop: str, http: str, kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=workers, loop=loop, http=http))
    assert server.title == f"{kind.name} ×{workers} ({loop}, {http})"
    found = server.identity()
    assert found == {
        "kind": kind.name, "workers": workers, "loop": loop, "http": http, "stabilised": list(server.stabilised)
    }  # fmt: skip
    assert len(server.worker_pids) == workers
    assert set(server.worker_pids) <= set(server.pids)
    assert facts(server)["pid"] in server.worker_pids
    server.check()


@one_and_two
def test_everything_is_gone_at_the_end(workers: int, kind: Kind, scratch: Path) -> None:
    with launch(kind(workers=workers), app_spec("serve.apps:app")) as server:
        pids = server.pids
        assert len(list(scratch.iterdir())) == 1
    assert remaining_after(0, pids) == []
    assert list(scratch.iterdir()) == []


def test_the_app_s_lifespan_ends_before_the_server_does(kind: Kind, tmp_path: Path) -> None:
    marker = tmp_path / "shut down"

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        marker.touch()

    with launch(kind(), app_spec(FastAPI(lifespan=lifespan))):
        assert not marker.exists()
    assert marker.exists()


def make_from_this_module() -> FastAPI:
    return in_this_module


@pytest.mark.parametrize("app", [in_this_module, make_from_this_module])
def test_apps_and_factories_of_a_test_module_are_served(app: object, kind: Kind, boot: Boot) -> None:
    assert facts(boot(kind(), app)) == {"from": "a test module"}


def test_a_factory_by_name_is_served(kind: Kind, boot: Boot) -> None:
    assert "pid" in facts(boot(kind(), "serve.apps:make()"))


def test_it_works_where_the_test_run_works(
    kind: Kind, boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "gone when the next test runs")
    seen = facts(boot(kind(env={"COLOUR": "red"})))
    assert seen["cwd"] == str(tmp_path)
    assert seen["env"]["COLOUR"] == "red"
    assert "PYTEST_CURRENT_TEST" not in seen["env"]


@linux
def test_it_keeps_to_its_cores(kind: Kind, boot: Boot) -> None:
    core = max(os.sched_getaffinity(0))
    assert facts(boot(kind(), cores=frozenset({core})))["cores"] == [core]


@linux
def test_stabilised_boots_are_alike_and_their_number_counts(kind: Kind, boot: Boot) -> None:
    servers = [boot(kind(), number=0), boot(kind(), number=0), boot(kind(), number=1)]
    one, same, other = map(facts, servers)
    assert "hash seed" in servers[0].stabilised
    assert one["hash"] == same["hash"] != other["hash"]
    if "addresses" in servers[0].stabilised:
        assert one["address"] == same["address"] == other["address"]
    if "allocator" in servers[0].stabilised:
        assert one["env"]["MALLOC_ARENA_MAX"] == "1"


def test_not_stabilised_when_not_wanted(kind: Kind, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    server = boot(kind(stabilise=False))
    assert server.stabilised == ()
    assert not {"MALLOC_ARENA_MAX", "PYTEST_FILEPERF_LAYOUT"} & facts(server)["env"].keys()


APPS_THAT_FAIL = {
    "module": ("serve_nowhere:app", "No module named 'serve_nowhere'"),
    "attribute": ("serve.apps:ap", "did you mean app"),
    "wsgi": ("serve.apps:wsgi", "as a WSGI app does"),
    "factory": ("serve.apps:make_failing()", "failed: RuntimeError: no database here"),
}


@pytest.mark.parametrize("app,reason", APPS_THAT_FAIL.values(), ids=APPS_THAT_FAIL)
def test_an_app_that_does_not_load_is_an_error_as_the_server_saw_it(
    app: str, reason: str, kind: Kind, boot: Boot
) -> None:
    with pytest.raises(AppLoadError, match=reason):
        boot(kind(), app)


def test_an_app_that_does_not_load_leaves_nothing_behind(kind: Kind, boot: Boot, scratch: Path) -> None:
    with pytest.raises(AppLoadError):
        boot(kind(), "serve_nowhere:app")
    assert list(scratch.iterdir()) == []


def test_an_app_that_does_not_load_in_a_worker_is_the_same_error(kind: Kind, boot: Boot) -> None:
    with pytest.raises(AppLoadError, match="No module named 'serve_nowhere'"):
        boot(kind(workers=2), "serve_nowhere:app")


@one_and_two
@pytest.mark.parametrize("app", ["failing_lifespan", "crashing_lifespan"])
def test_a_failing_lifespan_is_shown_with_the_app_s_own_words(app: str, workers: int, kind: Kind, boot: Boot) -> None:
    with pytest.raises(ServerStartError, match="lifespan") as caught:
        boot(kind(workers=workers), f"serve.apps:{app}")
    assert any("RuntimeError: no database here" in line for line in caught.value.log)


def test_an_app_without_a_lifespan_is_served(kind: Kind, boot: Boot) -> None:
    assert "pid" in facts(boot(kind(), "serve.apps:without_lifespan"))


@linux
def test_a_server_may_open_more_files_than_the_test_run(kind: Kind, boot: Boot) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert facts(boot(kind()))["open files"] == min(hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_hanging_start_ends_with_the_last_lines_of_the_log(kind: Kind, boot: Boot) -> None:
    started = time.monotonic()
    with pytest.raises(ServerStartError, match=r"not ready to serve serve.apps:hanging_lifespan within 1 s") as caught:
        boot(kind(start_timeout_s=1), "serve.apps:hanging_lifespan")
    assert "waiting for the database" in caught.value.log
    assert time.monotonic() - started < 10


@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_that_vanishes_while_it_starts_is_noticed(
    workers: int, kind: Kind, boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vanishing_app.py").write_text("import os\nprint('last words')\nos._exit(9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    alone = kind is Uvicorn and workers == 1  # no supervisor above it
    said = "ended with exit code 9 before it was ready" if alone else f"a {kind.name} worker ended before it was ready"
    with pytest.raises(ServerStartError, match=said) as caught:
        boot(kind(workers=workers), "vanishing_app:app")
    assert "last words" in caught.value.log


def test_a_package_that_is_not_installed_is_named_before_anything_starts(
    kind: Kind, boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(PlanError, match="uvloop is not installed"):
        boot(kind(loop="uvloop"))


def test_several_workers_need_an_app_that_can_be_imported(kind: Kind, boot: Boot) -> None:
    with pytest.raises(AppLoadError, match='"module:attribute"'):
        boot(kind(workers=2), in_this_module)


def test_no_app_is_an_error(kind: Kind) -> None:
    with pytest.raises(PlanError, match="no app to boot"), launch(kind(), None):
        pass


@posix
def test_a_worker_that_died_is_told_though_the_supervisor_replaces_it(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    worker = facts(server)["pid"]
    os.kill(worker, signal.SIGKILL)
    assert remaining_after(5, [worker]) == []
    with pytest.raises(ServerDiedError, match=f"its worker {worker} has ended"):
        server.check()


@posix
def test_a_supervisor_that_died_is_told_with_the_signal_and_its_workers_end(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    pids = server.pids
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(ServerDiedError, match="ended with signal SIGKILL"):
        check_until(5, server)
    assert remaining_after(5, pids) == []


@posix
@one_and_two
def test_a_server_that_does_not_end_is_killed(workers: int, kind: Kind) -> None:
    spec = kind(workers=workers, stop_timeout_s=0.3)
    with launch(spec, app_spec("serve.apps:stubborn")) as server:
        pids = server.pids
    assert remaining_after(0, pids) == []


@posix
def test_servers_that_do_not_end_are_waited_for_side_by_side(kind: Kind) -> None:
    with ServerPool() as pool:
        pool.boots(kind(stop_timeout_s=2), app_spec("serve.apps:stubborn"), 3, None)
        started = time.monotonic()
    assert time.monotonic() - started < 5


@posix
def test_a_stopped_process_is_killed_too(kind: Kind) -> None:
    with launch(kind(stop_timeout_s=0.3), app_spec("serve.apps:app")) as server:
        pids = server.pids
        psutil.Process(pids[0]).suspend()
    assert remaining_after(0, pids) == []


@posix
def test_the_server_is_in_a_session_of_its_own(kind: Kind, boot: Boot) -> None:
    server = boot(kind(workers=2))
    assert {os.getsid(pid) for pid in server.pids} == {server.pids[0]}
    assert server.pids[0] != os.getsid(0)


def test_nothing_is_logged_about_requests(kind: Kind, boot: Boot) -> None:
    server = boot(kind())
    assert httpx.get(f"{server.url}/looked-for", trust_env=False).status_code == 200
    assert not any("looked-for" in line for line in server.log)
