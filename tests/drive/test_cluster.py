"""Generators on the workers of a Dask cluster: in threads of this process, and on another machine."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import psutil
import pytest
from drive.scripted import GET, MS
from drive.test_group import PLAN, by_numbers, load, local_cluster, scheduler, there, url
from machines import HERE, OTHER, DaskCluster, NotAllowedError, dask_cluster, machines

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.generator import FORSAKEN_S, LoadOrder, packed
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.remote import RemoteGenerator, RemoteHandle
from pytest_fileperf.drive.scheduler import scheduler_address
from pytest_fileperf.errors import GeneratorError

__all__ = ("scheduler", "there", "url")

ONE = replace(PLAN, generators=1)


def generator_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [process] if "pytest_fileperf.drive" in process.cmdline() else []
    return found


# --- which scheduler, and which of its workers

ADDRESSES = ("tcp://10.0.0.5:8786", "tls://[::1]:8786", "10.0.0.5:8786", "load-1:8786", "inproc://10.0.0.5/12/1")
NEITHER = "{} is neither an address with a port, as in tcp://127.0.0.1:8786, nor an existing file"
NO_FILE = "{} isn't a scheduler file ({}). Give the file that `dask scheduler "


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_is_taken_as_it_is_also_from_a_file(address: str, tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(json.dumps({"address": address}))
    assert scheduler_address(address) == scheduler_address(str(path)) == address


@pytest.mark.parametrize(
    "given, content, why",
    [
        ("missing.json", None, NEITHER),
        ("127.0.0.1", None, NEITHER),
        ("tcp://127.0.0.1", None, NEITHER),
        ("./" + "x" * 300, None, NEITHER),
        ("/dev/null/x", None, NEITHER),
        ("file", b"garbage", "it isn't JSON with an address"),
        ("file", b'{"x": 1}', "it isn't JSON with an address"),
        ("file", b"[]", "it isn't JSON with an address"),
        ("file", b"\xff", "it isn't JSON with an address"),
        ("file", b'{"address": 5}', "5 isn't an address with a port"),
        ("file", b'{"address": "10.0.0.5"}', "'10.0.0.5' isn't an address with a port"),
        (".", None, "Is a directory"),
    ],
)
def test_what_is_no_scheduler_says_so(
    given: str, content: bytes | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(given).write_bytes(content)
    with pytest.raises(GeneratorError) as error:
        scheduler_address(given)
    assert str(error.value).startswith(NEITHER.format(given) if why == NEITHER else NO_FILE.format(given, why))


def test_a_cluster_that_does_not_answer_is_told_once_and_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.cluster._CONNECT_S", 0.5)
    with closing(Cluster("tcp://127.0.0.1:9")) as cluster:
        begun_s = 0.0
        for _ in range(2):
            begun_s = time.monotonic()
            with pytest.raises(GeneratorError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*Start one"):
                cluster.workers()
        assert time.monotonic() - begun_s < 0.4


@cache
def dasks_versions() -> Callable[[], dict[str, dict[str, object]]]:
    """Returns Dask's function as it was when this was first called."""
    from distributed.versions import get_versions

    return get_versions  # type: ignore[no-any-return]  # it has no types


def versions_of_threads(packages: Sequence[str] = ()) -> dict[str, dict[str, object]]:
    found = dasks_versions()()
    found["packages"].update(dict.fromkeys(packages, f"version of {threading.current_thread().name}"))
    return found


def code_of_threads() -> str:
    return "here" if threading.current_thread().name == "fileperf cluster" else "there"


def no_code() -> str:
    if threading.current_thread().name == "fileperf cluster":
        return "here"
    raise AttributeError("there is no such field")


@pytest.mark.parametrize(
    "place, told, words",
    [
        (
            "distributed.versions.get_versions",
            versions_of_threads,
            r"pytest-fileperf version of .*, but this machine has ",
        ),
        (
            "pytest_fileperf.drive.remote._code",
            code_of_threads,
            r"other code of pytest-fileperf \S+ than this machine\. Install",
        ),
        (
            "pytest_fileperf.drive.remote._code",
            no_code,
            r"other code of pytest-fileperf \S+ than this machine\. Install",
        ),
    ],
)
def test_a_worker_with_another_version_or_other_code_is_named(
    place: str, told: Callable[..., object], words: str, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dasks_versions()
    monkeypatch.setattr(place, told)
    with closing(Cluster(scheduler)) as cluster, pytest.raises(GeneratorError, match=rf"worker tcp://\S+ has {words}"):
        cluster.workers()


def test_workers_come_and_are_used_and_then_the_scheduler_goes_away(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler is blamed, and no worker."""
    import dask
    import distributed  # noqa: F401 - else its settings, which come with it, would go with the one below

    monkeypatch.setattr("pytest_fileperf.drive.cluster._CONNECT_S", 1.0)
    monkeypatch.setattr("pytest_fileperf.drive.cluster._REPLACED_S", 0.2)
    path, before = tmp_path / "scheduler.json", {process.pid for process in generator_processes()}
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "0.5s"}),  # so long it takes to close without a scheduler
        local_cluster(0) as made,
        closing(Cluster(str(path))) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        path.write_text(json.dumps({"address": made.scheduler_address}))
        with pytest.raises(GeneratorError) as error:
            cluster.workers()
        said = f"has no workers that answer. Start some, for example with `dask worker {made.scheduler_address}`"
        assert str(error.value).endswith(said)

        made.scale(1)
        made.wait_for_workers(1)
        result = load(generators, url)
        assert list(result.lost.values()) == [" is gone (no worker is left for it)"]
        assert sum(round_.requests for round_ in result.rounds) > 0
        assert cluster.workers() == (1, (), False)  # a run is no other one to itself

        gone = re.escape(f"the Dask scheduler at {path} is gone. Start it and its workers again")
        with pytest.raises(GeneratorError, match=f"^{gone}$"):
            load(generators, url, replace(ONE, rounds=90), tell=lambda _: made.sync(made.scheduler.close))
        for pause_s in (0.0, 1.5):  # it connects again meanwhile, and gives that up
            time.sleep(pause_s)
            with pytest.raises(GeneratorError, match=f"^{gone}$"):
                cluster.workers()
    # The workers were threads of this process, so generators stay.
    left = [process for process in generator_processes() if process.pid not in before]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=5)


def test_an_idle_worker_serves_other_runs_and_each_is_told_once_of_the_other(
    there: Generators, scheduler: str, url: str
) -> None:
    assert load(there, url).lost == {}
    with closing(Cluster(scheduler)) as cluster:
        assert [cluster.workers() for _ in range(2)] == [(2, (), True), (2, (), False)]
        with closing(Generators(cluster=cluster)) as first, closing(Generators(cluster=cluster)) as second:
            assert load(first, url).lost == {}
            assert load(first, url, ONE).lost == {}
            assert load(second, url, ONE).lost == {}


# --- orders that come late, and ends that come early


def later(monkeypatch: pytest.MonkeyPatch, delays_s: Iterator[float], only: object = None) -> None:
    """Has messages to workers take so long, one after the other."""
    sent = RemoteHandle._sent

    async def late(handle: RemoteHandle, message: object) -> None:
        if only is None or handle is only:
            await asyncio.sleep(next(delays_s))
        await sent(handle, message)

    monkeypatch.setattr(RemoteHandle, "_sent", late)


def test_a_generator_that_is_told_too_late_to_begin_is_missing(
    there: Generators, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(there, url)  # it has its worker
    with monkeypatch.context() as patch:
        later(patch, repeat(0.5), only=there.member(2))
        made = load(there, url, replace(PLAN, rounds=4))
    assert re.fullmatch(r" got its start signal \d+ ms too late", made.lost[2])
    assert by_numbers(made) == {1}

    later(monkeypatch, repeat(0.5))  # all of them: the load is ordered once more, with more time
    made = load(there, url)
    assert (made.lost, by_numbers(made)) == ({}, {1, 2})


def test_a_load_that_all_were_told_too_late_twice_says_what_may_be_the_matter(
    there: Generators, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(there, url)
    later(monkeypatch, chain(repeat(0.3, 2), repeat(2.0)))
    with pytest.raises(GeneratorError) as error:
        load(there, url)
    late = r"generator \d of 2 on tcp://\S+ got its start signal [\d.]+ m?s too late"
    assert re.fullmatch(
        f"no load generator is left to make the load: {late}; {late}. The machines are busy, or the network is slow",
        str(error.value),
    )


ORDER = pickle.dumps(LoadOrder(works=packed((GET,)), plan=PLAN, targets=(), cores=None, is_from_elsewhere=True))


@pytest.mark.parametrize("delay_s", [0.0, 0.004])
def test_an_end_that_comes_while_a_run_is_ordered_leaves_no_process(delay_s: float) -> None:
    before = {process.pid for process in generator_processes()}

    async def ended() -> None:
        generator = RemoteGenerator(())
        ordering = asyncio.create_task(generator.order(ORDER))
        await asyncio.sleep(delay_s)
        await generator.end()
        await asyncio.gather(ordering, return_exceptions=True)
        with pytest.raises(GeneratorError, match="the load generator has already been ended"):
            await generator.order(ORDER)

    asyncio.run(ended())
    assert {process.pid for process in generator_processes()} <= before


def test_a_generator_that_nobody_knows_any_more_ends() -> None:
    """Dask forgets an actor whose test process is gone."""
    before = {process.pid for process in generator_processes()}

    async def forgotten() -> list[psutil.Process]:
        generator = RemoteGenerator(())
        await generator.order(ORDER)
        until_s = time.monotonic() + FORSAKEN_S - 1
        while not (new := [one for one in generator_processes() if one.pid not in before]):
            assert time.monotonic() < until_s
            await asyncio.sleep(0.05)  # it begins a moment later where others have the cores
        return new

    begun = asyncio.run(forgotten())
    gc.collect()
    _, alive = psutil.wait_procs(begun, timeout=FORSAKEN_S - 1)  # it would end by itself, too
    assert alive == []


# --- on another machine, behind a slow cable, whose clock is 3 s ahead

FORBIDDEN = 9999
"""A port that no load may go to."""
FAR = Path(__file__).with_name("far.py")
ENVIRONMENT = (("PYTHONPATH", str(Path(__file__).parents[1])),)
REFUSED = {
    "name": {"url": f"http://{OTHER}:{FORBIDDEN}", "allow": "10.9.9.9"},
    "redirect to a name": {"redirect": f"http://{OTHER}:{FORBIDDEN}/"},
    "redirect to the worker's own machine": {"redirect": f"http://127.0.0.1:{FORBIDDEN}/"},
}
QUICK = {
    "drive.cluster._ANSWER_S": 2.0,
    "drive.cluster._REPLACED_S": 0.5,
    "drive.remote._SILENT_S": 2.0,
    "drive.group._SILENT_S": 3.0,
}
"""Limits of the package that such loads need not wait for so long."""
Found = Mapping[str, Any]


class Loader:
    """A process on this machine that makes loads."""

    def __init__(self, far: DaskCluster) -> None:
        command = [*far.machines.on(far.machines.here), sys.executable, str(FAR), far.address]
        env = {**os.environ, **dict(ENVIRONMENT)}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env)

    def begin(self, **order: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"host": HERE, "allow": HERE, "set": QUICK, **order}) + "\n")
        self.process.stdin.flush()

    def said(self, begin: str = "{") -> str:
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if line.startswith((begin, "{")))
        assert line.startswith(begin), line  # an error in place of `begun` would be waited for in vain
        return line

    def load(self, **order: object) -> Found:
        self.begin(**order)
        found: Found = json.loads(self.said())
        return found


@contextmanager
def loader(far: DaskCluster) -> Iterator[Loader]:
    made = Loader(far)
    with made.process:
        try:
            yield made
        finally:
            made.process.kill()


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What loads found on one cluster. Other test processes of this run wait for it: it is made once."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return made_far(tmp_path_factory.mktemp("cluster"))
    import fcntl  # not on Windows

    kept = tmp_path_factory.getbasetemp().parent / f"far-{run}.json"
    with kept.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not kept.stat().st_size:
            file.write(json.dumps(made_far(tmp_path_factory.mktemp("cluster"))))
            file.flush()
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def made_far(logs: Path) -> dict[str, Any]:
    """Makes loads on a cluster, of which a worker is near: at last one worker is killed, and the cable cut."""
    with ExitStack() as stack:
        try:
            joined = stack.enter_context(machines(delay_ms=20, jitter_ms=5))
        except NotAllowedError as error:
            pytest.skip(f"needs two network namespaces, which cannot be made here: {error}")
        cluster = stack.enter_context(dask_cluster(joined, logs, workers=3, near=1, ahead_s=3, environment=ENVIRONMENT))
        own = stack.enter_context(loader(cluster))
        found: dict[str, Any] = {"own server": own.load(host="127.0.0.1", allow="")}
        found |= refused(cluster, own, logs)
        found["all"] = own.load(generators=3, seconds=0.6)
        cluster.workers[0].send_signal(signal.SIGSTOP)
        found["hangs"] = own.load(generators=1, anew=True)
        cluster.workers[0].send_signal(signal.SIGCONT)
        for name, lose in (("killed", cluster.workers[2].kill), ("cut", joined.cut)):
            own.begin(generators=3 if name == "killed" else 2, seconds=1.5)
            own.said("begun")
            lose()
            begun_s = time.monotonic()
            found[name] = json.loads(own.said())
            found[f"{name} for"] = time.monotonic() - begun_s
        found["after"] = own.load()
        found["orphans"] = [process.pid for process in orphans(cluster, own)]
        return found


def refused(cluster: DaskCluster, own: Loader, logs: Path) -> dict[str, Any]:
    """Returns what became of loads that are to go where no load may, and what a server there saw of them."""
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        for place in (cluster.machines.here, cluster.machines.there):  # the near worker may load its own machine
            command = [*cluster.machines.on(place), sys.executable, "-m", "http.server", str(FORBIDDEN)]
            log = stack.enter_context((logs / f"{place}.log").open("wb"))
            server = stack.enter_context(subprocess.Popen(command, stderr=log, stdout=log, cwd=logs))
            stack.callback(server.kill)
        for name, order in REFUSED.items():
            found[name] = own.load(**order)
    return {**found, "seen": (logs / f"{cluster.machines.there}.log").read_text()}


def orphans(cluster: DaskCluster, own: Loader) -> list[psutil.Process]:
    """Kills the process that makes a load; returns the generators that are left of it."""
    own.begin(seconds=60.0)
    own.said("begun")
    near = psutil.Process(cluster.workers[0].pid)
    orphaned = [child for child in near.children(recursive=True) if "pytest_fileperf.drive" in child.cmdline()]
    own.process.kill()
    assert orphaned
    alive: list[psutil.Process] = psutil.wait_procs(orphaned, timeout=15)[1]
    return alive


def counts(found: Found) -> list[int]:
    return [count for *_, count in found["rounds"]]


def test_nothing_loads_the_other_machine_s_own_server(far: Found) -> None:
    assert re.search("is on another machine.*--fileperf-host=ADDRESS", far["own server"]["error"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_allowed_is_refused_and_nothing_is_sent(far: Found, name: str) -> None:
    said = str(far[name].get("error") or far[name]["failures"])
    assert "load goes only to this machine" in said
    assert re.search(r"generator \d of 2 on tcp://", said) or "redirect" in name
    assert "GET" not in far["seen"]


def test_over_a_slow_cable_rounds_begin_together_and_are_on_this_clock(far: Found) -> None:
    assert (far["all"]["lost"], counts(far["all"])) == ({}, [3, 3])
    assert all(0 < start < end < 60 for start, end, _ in far["all"]["rounds"])
    near, *others = sorted(far["all"]["clocks"], key=lambda clock: clock[2])
    assert near[2] < 20 * MS
    for ahead_ns, error_ns, distance_ns in (near, *others):
        assert abs(ahead_ns - 3000 * MS) < 20 * MS  # the truth is known: one machine's clock, and 3 s
        assert abs(ahead_ns - 3000 * MS) <= error_ns
        assert 30 * MS < distance_ns < 60 * MS or distance_ns == near[2]


def test_a_worker_that_hangs_is_left_out_and_named(far: Found) -> None:
    assert (far["hangs"].get("lost"), far["hangs"].get("silent")) == ({}, 1), far["hangs"]


def test_a_load_ends_where_its_test_process_is_killed(far: Found) -> None:
    assert far["orphans"] == []


@pytest.mark.parametrize("name, left", [("killed", 2), ("cut", 1)])
def test_a_worker_that_is_killed_or_cannot_be_reached_is_lost(far: Found, name: str, left: int) -> None:
    assert [" is gone" in why for why in far[name]["lost"].values()] == [True]
    assert counts(far[name]) == [left, left]
    assert far[f"{name} for"] < 1.5 + 2.0 + 3.0 + 3.0  # the load, its time limit, the limit; a busy machine


def test_the_load_after_one_that_lost_a_worker_does_without(far: Found) -> None:
    assert len(far["after"]["lost"]) == 1
    assert counts(far["after"]) == [1, 1]
