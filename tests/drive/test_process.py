from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import httpx
import psutil
import pytest
from drive.scripted import hello, scripted

from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import FileLimitError, GeneratorError, LoadError, PlanError
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work, with_value

MS = 1_000_000


class Values(NamedTuple):
    """What a setup returns."""

    path: str


GET = Operation(method="GET", url="/")


def counted(requests: int, connections: int = 2) -> LoadPlan:
    return LoadPlan(
        connections=connections, warmup_ns=0, round_ns=20_000 * MS, rounds=1, timeout_ns=5000 * MS, requests=requests
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted(hello) as base:
        yield base


@pytest.fixture(scope="module")
def shared() -> Iterator[Generators]:
    with closing(Generators()) as generators:
        yield generators


def run(
    generators: Generators,
    url: str,
    work: Work = GET,
    plan: LoadPlan | None = None,
    tell: Callable[[RunProgress], None] = lambda _: None,
    check: Callable[[], None] = lambda: None,
    cores: frozenset[int] | None = None,
) -> Run:
    target, pids = Target(boot=1, url=url), (os.getpid(),)
    (result,) = generators.run(
        (work,), plan or counted(10), (target,), pids=(pids,), cores=cores, progress=tell, check=check
    )
    assert not result.rounds[0].generators
    return result


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_a_run_in_its_own_process(shared: Generators, url: str) -> None:
    result = run(shared, url)

    assert sum(r.requests for r in result.rounds) == 10
    assert result.rounds[0].boot == 1
    assert result.rounds[0].client_cpu_ns > 0


def test_reads_the_cpu_time_of_the_processes_it_is_given(shared: Generators, url: str) -> None:
    result = run(shared, url, plan=counted(200))

    assert result.rounds[0].server_cpu_ns is not None
    assert result.rounds[0].server_cpu_ns > 0


def test_serves_many_runs_with_one_process(shared: Generators, url: str) -> None:
    run(shared, url)
    before = children()
    run(shared, url, Operation(method="POST", url="/", arguments={"content": payload("2MiB")}))

    assert children() == before


def test_a_journey_of_the_test_module_travels_by_value(shared: Generators, url: str) -> None:
    wanted = "hello"

    async def journey(client: httpx.AsyncClient) -> None:
        response = await client.get("/")
        assert response.text == wanted

    result = run(shared, url, Journey(name="journey", function=journey))

    assert sum(r.requests for r in result.rounds) == 10


def test_what_a_journey_prints_does_not_disturb_and_fills_no_disk(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def chatty(client: httpx.AsyncClient) -> None:
        os.write(1, b"hello " * 1_000_000)
        await client.get("/")

    with closing(Generators()) as generators:
        assert sum(r.requests for r in run(generators, url, Journey(name="chatty", function=chatty)).rounds) == 10
        (log,) = tmp_path.glob("fileperf-*/generator-*/log.txt")
        assert log.stat().st_size < 20_000_000  # of 60 MB


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="nothing is pinned here")
def test_the_cores_of_one_run_are_not_those_of_the_next(shared: Generators, url: str) -> None:
    everywhere = os.sched_getaffinity(0)
    one = frozenset(sorted(everywhere)[:1])

    async def on_one(client: httpx.AsyncClient) -> None:
        assert os.sched_getaffinity(0) == one

    async def on_all(client: httpx.AsyncClient) -> None:
        assert os.sched_getaffinity(0) == everywhere

    for journey, cores in ((on_one, one), (on_all, None)):
        result = run(shared, url, Journey(name="cores", function=journey), counted(2), cores=cores)
        assert sum(r.requests for r in result.rounds) == 2


def test_modules_of_the_working_directory_do_not_hide_the_standard_library_s(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    with closing(Generators()) as generators:
        assert sum(r.requests for r in run(generators, url).rounds) == 10


def test_a_request_larger_than_the_pipes_reaches_the_generator(url: str) -> None:
    work = Operation(method="POST", url="/", arguments={"content": bytes(20 << 20)})
    with closing(Generators()) as generators:
        assert sum(r.bytes_sent for r in run(generators, url, work, counted(2)).rounds) == 2 * (20 << 20)


def test_a_journey_that_holds_a_lock_is_refused_with_a_reason(shared: Generators, url: str) -> None:
    lock = threading.Lock()

    async def journey(client: httpx.AsyncClient) -> None:
        with lock:
            await client.get("/")

    with pytest.raises(PlanError, match="cannot be carried to the generator process"):
        run(shared, url, Journey(name="locked", function=journey))


class Broken:
    """What can be packed, and not unpacked."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


@pytest.mark.parametrize(
    "used, words",
    [
        (ModuleType("onlyhere"), "No module named 'onlyhere': install it there, or write what the journey needs"),
        (Broken(), "ValueError: invalid literal for int() with base 10: 'no number'"),
    ],
    ids=["no such module", "it fails"],
)
def test_a_journey_that_cannot_be_loaded_there_says_why(
    shared: Generators, url: str, used: object, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onlyhere", ModuleType("onlyhere"))

    async def journey(client: httpx.AsyncClient) -> None:
        assert used

    with pytest.raises(LoadError) as error:
        run(shared, url, Journey(name="journey", function=journey))
    assert type(error.value) is LoadError
    assert str(error.value).startswith(f"the journey cannot be loaded where the generator runs: {words}")


def test_what_a_setup_returned_goes_with_the_journey(shared: Generators, url: str) -> None:
    async def journey(client: httpx.AsyncClient, values: Values) -> None:
        assert (await client.get(values.path)).text == "hello"

    work = Journey(name="any", function=journey, takes_value=True)
    result = run(shared, url, with_value(work, Values("/")), counted(2))
    assert sum(r.requests for r in result.rounds) == 2
    with pytest.raises(PlanError, match="what the setup returned cannot be carried to the generator process, for any"):
        run(shared, url, with_value(work, threading.Lock()))


@pytest.mark.hostile
def test_no_server_is_a_connect_error(url: str) -> None:
    with closing(Generators()) as generators, pytest.raises(httpx.ConnectError):
        run(generators, "http://127.0.0.1:9")


@pytest.mark.hostile
def test_more_connections_than_open_files_are_refused(url: str) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        hard = 1 << 20
    with closing(Generators()) as generators, pytest.raises(FileLimitError, match="ulimit -n"):
        run(generators, url, plan=counted(2 * hard, connections=2 * hard))


@pytest.mark.hostile
def test_a_generator_that_is_killed_says_so_and_the_next_run_has_a_new_one(url: str) -> None:
    async def dies(client: httpx.AsyncClient) -> None:
        print("last words", file=sys.stderr, flush=True)
        os._exit(7)

    with closing(Generators()) as generators:
        with pytest.raises(GeneratorError, match="exit code 7") as raised:
            run(generators, url, Journey(name="dies", function=dies))
        assert "last words" in str(raised.value)
        assert sum(r.requests for r in run(generators, url).rounds) == 10


@pytest.mark.hostile
def test_a_check_that_raises_ends_the_run_and_the_process(url: str) -> None:
    class DiedError(Exception):
        pass

    def check() -> None:
        raise DiedError

    before = children()
    plan = LoadPlan(connections=2, warmup_ns=0, round_ns=30_000 * MS, rounds=1, timeout_ns=5000 * MS)
    with closing(Generators()) as generators, pytest.raises(DiedError):
        run(generators, url, plan=plan, check=check)

    assert children() == before


@pytest.mark.hostile
def test_a_full_disk_is_told_with_what_to_do(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, mode: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    with closing(Generators()) as generators, pytest.raises(GeneratorError, match=r"No space left.*; make room"):
        run(generators, url)


def test_leaves_no_process_and_no_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = children()
    with closing(Generators()) as generators:
        run(generators, url, Operation(method="POST", url="/", arguments={"content": payload("2MiB")}))
        assert list(tmp_path.iterdir())

    assert children() == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("holds", [False, True], ids=["running", "holding Python's lock"])
@pytest.mark.hostile
def test_a_generator_whose_test_process_is_killed_ends_and_cleans_up_by_itself(
    holds: bool, url: str, tmp_path: Path
) -> None:
    work = "Journey(name='hold', function=hold)" if holds else "Operation(method='GET', url='/')"
    script = f"""
import os, re, signal, threading, time
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Journey, Operation
import psutil
async def hold(client):
    re.match("(a+)+$", "a" * 40 + "b")
generators = Generators()
plan = LoadPlan(connections=1, warmup_ns=0, round_ns=60_000_000_000, rounds=1, timeout_ns=10**9)
def kill():
    while not generators.pids:
        time.sleep(0.01)
    time.sleep({1.5 if holds else 0.3})
    print(*generators.pids, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=kill).start()
generators.run(({work},), plan, (Target(boot=0, url={url!r}),), pids=((),), cores=None,
              progress=repr, check=lambda: None)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    orphan = int(ran.stdout)
    if psutil.pid_exists(orphan):
        with suppress(psutil.NoSuchProcess):
            psutil.Process(orphan).wait(10)
    deadline = time.monotonic() + 5  # its supervisor removes the files
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert not psutil.pid_exists(orphan)
    assert list(tmp_path.iterdir()) == []


_STOPPED = """
import os, signal, sys, threading, time
import psutil
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
generators = Generators()
plan = LoadPlan(connections=1, warmup_ns=0, round_ns=60_000_000_000, rounds=1, timeout_ns=10**9)
def kill():
    while not generators.pids:
        time.sleep(0.01)
    supervisor = psutil.Process(*generators.pids).parent()
    supervisor.suspend()
    print(*generators.pids, supervisor.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=kill).start()
target = Target(boot=0, url=sys.argv[1])
generators.run((Operation(method="GET", url="/"),), plan, (target,), pids=((),), cores=None, progress=repr,
              check=lambda: None)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="sees that a process has ended which nobody has waited for")
def test_a_generator_that_ends_before_its_supervisor_looks_leaves_no_files(url: str, tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", _STOPPED, url], capture_output=True, text=True, timeout=60, check=False, env=env
    )
    orphan, supervisor = map(psutil.Process, map(int, ran.stdout.split()))
    deadline = time.monotonic() + 20
    while orphan.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.02)
    supervisor.resume()
    deadline = time.monotonic() + 20
    while list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert list(tmp_path.iterdir()) == []
