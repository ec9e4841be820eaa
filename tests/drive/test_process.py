"""A generator in a process of its own: what reaches it, what it is told, and how it ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import httpx
import psutil
import pytest
from drive.scripted import GET, MS, counted, hello, scripted

from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import GeneratorError, LoadError, PlanError
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work, with_value


class Values(NamedTuple):
    """What a setup returns."""

    path: str


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
    check: Callable[[], None] = lambda: None,
    cores: frozenset[int] | None = None,
) -> Run:
    target = Target(boot=1, url=url, pids=(os.getpid(),))
    (result,) = generators.run(
        (work,), plan or counted(10), (target,), cores=cores, progress=lambda _: None, check=check
    )
    assert not result.rounds[0].generators
    return result


def good(result: Run) -> int:
    return sum(round_.requests for round_ in result.rounds)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_one_process_serves_many_loads_and_knows_what_they_cost(shared: Generators, url: str) -> None:
    result = run(shared, url, plan=counted(200))
    assert (good(result), result.rounds[0].boot) == (200, 1)
    assert result.rounds[0].client_cpu_ns > 0
    assert result.rounds[0].server_cpu_ns
    before = children()
    for content in (payload("2MiB"), bytes(20 << 20)):  # that is larger than the pipes to it
        size = 20 << 20 if isinstance(content, bytes) else content.size_bytes
        sent = run(shared, url, Operation(method="POST", url="/", arguments={"content": content}), counted(2))
        assert sum(r.bytes_sent for r in sent.rounds) == 2 * size
    assert children() == before


def test_a_journey_travels_by_value_with_what_a_setup_returned(shared: Generators, url: str) -> None:
    wanted = "hello"

    async def journey(client: httpx.AsyncClient, values: Values) -> None:
        assert (await client.get(values.path)).text == wanted

    work = Journey(name="any", function=journey, takes_value=True)
    assert good(run(shared, url, with_value(work, Values("/")))) == 10
    with pytest.raises(
        PlanError, match=r"the value that setup returned for any.* cannot be sent to the load generator"
    ):
        run(shared, url, with_value(work, threading.Lock()))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="nothing is pinned here")
def test_the_cores_of_one_run_are_not_those_of_the_next(shared: Generators, url: str) -> None:
    everywhere = os.sched_getaffinity(0)
    one = frozenset(sorted(everywhere)[:1])

    async def on_one(client: httpx.AsyncClient) -> None:
        assert os.sched_getaffinity(0) == one

    async def on_all(client: httpx.AsyncClient) -> None:
        assert os.sched_getaffinity(0) == everywhere

    for journey, cores in ((on_one, one), (on_all, None)):
        assert good(run(shared, url, Journey(name="cores", function=journey), counted(2), cores=cores)) == 2


def test_neither_what_is_printed_nor_files_of_the_tests_disturb_and_nothing_is_left(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise RuntimeError('no module of the standard library')")
    (tmp_path / "temporary").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    before = children()

    async def chatty(client: httpx.AsyncClient) -> None:
        os.write(1, b"hello " * 1_000_000)
        await client.get("/")

    with closing(Generators()) as generators:
        assert good(run(generators, url, Journey(name="chatty", function=chatty))) == 10
        (log,) = tmp_path.glob("temporary/fileperf-*/generator-*/log.txt")
        assert log.stat().st_size < 20_000_000  # of 60 MB
    assert children() == before
    assert list((tmp_path / "temporary").iterdir()) == []


class Broken:
    """What can be packed, and not unpacked."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("no number",)


@pytest.mark.parametrize(
    "used, kind, words",
    [
        (threading.Lock(), PlanError, "cannot be sent to the load generator"),
        (
            ModuleType("onlyhere"),
            LoadError,
            "the load generator cannot use the journey: No module named 'onlyhere'. Install it where the load "
            "generator runs, or put the needed code",
        ),
        (
            Broken(),
            LoadError,
            "the load generator cannot use the journey: ValueError: invalid literal for int() with base 10",
        ),
    ],
    ids=["a lock", "no such module", "it fails"],
)
def test_a_journey_that_cannot_be_carried_or_loaded_says_why(
    shared: Generators, url: str, used: object, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onlyhere", ModuleType("onlyhere"))

    async def journey(client: httpx.AsyncClient) -> None:
        assert used

    with pytest.raises(kind) as error:
        run(shared, url, Journey(name="journey", function=journey))
    assert type(error.value) is kind
    assert words in str(error.value)


# --- errors end the process, and the next load has a new one


@pytest.mark.hostile
def test_a_check_that_raises_ends_the_run_and_the_process(shared: Generators, url: str) -> None:
    class DiedError(Exception):
        pass

    def check() -> None:
        raise DiedError

    before = children()
    plan = LoadPlan(connections=2, warmup_ns=0, round_ns=30_000 * MS, rounds=1, timeout_ns=5000 * MS)
    with pytest.raises(DiedError):
        run(shared, url, plan=plan, check=check)
    assert shared.pids == ()
    assert children() <= before


@pytest.mark.hostile
def test_a_full_disk_is_told_with_what_to_do(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, mode: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "open", full)
    with closing(Generators()) as generators, pytest.raises(GeneratorError, match=r"No space left.*Free some space"):
        run(generators, url)


# --- the test process is killed

KILLED = """
import os, re, signal, sys, threading, time
from pathlib import Path
import psutil
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Journey
url, begun, how = sys.argv[1:]
async def journey(client):
    Path(begun).touch()
    if how == "holding":
        re.match("(a+)+$", "a" * 40 + "b")
    await client.get("/")
generators = Generators()
plan = LoadPlan(connections=1, warmup_ns=0, round_ns=60_000_000_000, rounds=1, timeout_ns=10**9)
def kill():
    while not Path(begun).exists():
        time.sleep(0.01)
    supervisor = psutil.Process(*generators.pids).parent()
    if how == "stopped":
        supervisor.suspend()
    print(*generators.pids, supervisor.pid, flush=True)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=kill).start()
work = Journey(name="journey", function=journey)
generators.run((work,), plan, (Target(boot=0, url=url),), cores=None, progress=repr, check=lambda: None)
"""


@pytest.mark.hostile
@pytest.mark.skipif(sys.platform != "linux", reason="sees that a process has ended which nobody has waited for")
@pytest.mark.parametrize("how", ["holding", "stopped"])
def test_a_generator_whose_test_process_is_killed_ends_and_leaves_no_files(how: str, url: str, tmp_path: Path) -> None:
    """Also if it holds Python's lock, and if it ends before its supervisor looks."""
    (tmp_path / "temporary").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, url, str(tmp_path / "begun"), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
    )
    orphan, supervisor = map(int, ran.stdout.split())
    if how == "stopped":
        until(lambda: psutil.Process(orphan).status() == psutil.STATUS_ZOMBIE)
        psutil.Process(supervisor).resume()
    until(lambda: not list((tmp_path / "temporary").iterdir()) and not psutil.pid_exists(orphan))


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
