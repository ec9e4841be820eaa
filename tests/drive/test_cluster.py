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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from itertools import chain, pairwise, repeat
from pathlib import Path

import dask
import distributed.versions
import httpx
import psutil
import pytest
from distributed import LocalCluster
from drive.scripted import answer, scripted
from machines import HERE, OTHER, DaskCluster, NotAllowedError, dask_cluster, machines

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.generator import LoadOrder, packed
from pytest_fileperf.drive.group import Generators
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.remote import FORSAKEN_S, RemoteGenerator, RemoteHandle
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import GeneratorError
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work

MS = 1_000_000
GET = Operation(method="GET", url="/")
PLAN = LoadPlan(connections=4, warmup_ns=0, round_ns=200 * MS, rounds=2, timeout_ns=2000 * MS, generators=2)
COUNTED = replace(PLAN, round_ns=20_000 * MS, rounds=1)
SEEN: list[tuple[bytes, bytes]] = []
FORBIDDEN = 9999
"""A port that no load may go to."""
FAR = Path(__file__).with_name("far.py")
ENVIRONMENT = (("PYTHONPATH", str(Path(__file__).parents[1])),)


async def hello(number: int, writer: asyncio.StreamWriter) -> None:
    writer.write(answer(b"hello"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted(hello, SEEN) as base:
        yield base


@contextmanager
def local_cluster(workers: int) -> Iterator[str]:
    """Gives the address of a cluster whose workers are threads of this process."""
    with made_cluster(workers) as cluster:
        yield str(cluster.scheduler_address)


def made_cluster(workers: int) -> LocalCluster:
    return LocalCluster(
        n_workers=workers, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0", protocol="tcp"
    )


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with local_cluster(2) as address:
        yield address


@pytest.fixture(scope="module")
def shared(scheduler: str) -> Iterator[Generators]:
    with closing(Cluster(scheduler)) as cluster, closing(Generators(cluster=cluster)) as generators:
        yield generators


def load(
    generators: Generators,
    url: str,
    plan: LoadPlan = PLAN,
    work: Work = GET,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Run:
    SEEN.clear()
    target = Target(boot=1, url=url)
    (result,) = generators.run((work,), plan, (target,), pids=((),), cores=None, progress=tell, check=lambda: None)
    return result


def generator_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [process] if "pytest_fileperf.drive" in process.cmdline() else []
    return found


@contextmanager
def leaving_no_generator() -> Iterator[None]:
    """Ends generators whose workers are gone. The workers were threads of this process, so generators would stay."""
    before = {process.pid for process in generator_processes()}
    try:
        yield
    finally:
        left = [process for process in generator_processes() if process.pid not in before]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)


def test_all_workers_make_one_load_together(shared: Generators, url: str) -> None:
    result = load(shared, url)

    assert result.lost == {}
    rounds = [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]
    assert [round_.duration_ns for round_ in rounds] == [200 * MS, 200 * MS]
    assert all(one.ended_ns == next_.started_ns for one, next_ in pairwise(rounds))
    assert [[own.number for own in round_.generators] for round_ in rounds] == [[1, 2]] * 2
    assert all(own.requests > 0 for round_ in rounds for own in round_.generators)


def test_requests_add_up_to_what_was_asked_and_each_row_is_sent_once(shared: Generators, url: str) -> None:
    work = Requests(recipes=(Operation(method="GET", url="/files/{id}"),), columns={"id": tuple(range(301))})
    result = load(shared, url, replace(COUNTED, requests=301), work)

    assert sum(round_.requests for round_ in result.rounds) == 301
    paths = sorted(int(head.split(b" ")[1].rpartition(b"/")[2]) for head, _ in SEEN)
    assert paths == list(range(301))


def test_one_worker_is_enough(shared: Generators, url: str) -> None:
    made = load(shared, url, replace(PLAN, generators=1))
    assert made.lost == {}
    assert len(made.rounds[0].generators) == 1


def test_they_share_this_machine_s_clock_and_are_not_far(shared: Generators, url: str) -> None:
    load(shared, url)
    for number in (1, 2):
        member = shared.member(number)
        assert member.worker.startswith("tcp://127.0.0.1:")
        assert (member.clock.ahead_ns, member.clock.error_ns) == (0, 0)
        assert 0 < member.clock.distance_ns < 1000 * MS
        assert member.pid is not None


def test_they_load_two_servers_in_turn(shared: Generators, url: str) -> None:
    plan = Alternation(
        connections=4,
        warmup_ns=50 * MS,
        warm_firsts=(Side.BASE,),
        turns_ns=(50 * MS,) * 3,
        handover_ns=5 * MS,
        firsts=(Side.BASE, Side.NOW, Side.BASE),
        timeout_ns=2000 * MS,
        generators=1,
    )
    targets = (Target(boot=0, url=url), Target(boot=0, url=url))
    made = shared.run((GET, GET), plan, targets, pids=((), ()), cores=None, progress=lambda _: None, check=lambda: None)
    for side, result in zip(Side, made, strict=True):
        turns = [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]
        zero_ns = result.rounds[0].started_ns
        assert [(turn.started_ns - zero_ns, turn.ended_ns - zero_ns) for turn in turns] == list(plan.rounds(side))
        assert all(turn.requests for turn in turns)


def test_a_journey_of_this_module_travels_by_value(shared: Generators, url: str) -> None:
    async def journey(client: httpx.AsyncClient) -> None:
        assert (await client.get("/there")).text == "hello"

    made = load(shared, url, work=Journey(name="there", function=journey))
    assert sum(round_.requests for round_ in made.rounds) > 0
    assert {failure.example for round_ in made.rounds for failure in round_.failures} == set()


def test_a_generator_that_dies_is_named_and_the_next_load_has_a_new_one(
    shared: Generators, url: str, tmp_path: Path
) -> None:
    marker = tmp_path / "died"

    async def journey(client: httpx.AsyncClient) -> None:
        await client.get("/")
        await asyncio.sleep(0.1)
        with suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os._exit(7)

    made = load(shared, url, work=Journey(name="dies once", function=journey))
    ((number, why),) = made.lost.items()
    assert why == "'s process ended with exit code 7"
    assert {own.number for round_ in made.rounds for own in round_.generators} == {3 - number}
    assert load(shared, url).lost == {}


def test_a_listener_that_raises_ends_the_generators_and_gives_the_workers_back(url: str) -> None:
    before = {process.pid for process in generator_processes()}

    def interrupt(_: RunProgress) -> None:
        raise KeyboardInterrupt

    with local_cluster(2) as address, closing(Cluster(address)) as cluster:
        generators = Generators(cluster=cluster)
        begun_s = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            load(generators, url, replace(PLAN, round_ns=60_000 * MS), tell=interrupt)
        assert time.monotonic() - begun_s < 20
        assert {process.pid for process in generator_processes()} <= before
        assert load(generators, url).lost == {}
        generators.close()
    assert {process.pid for process in generator_processes()} <= before


def test_a_cluster_that_does_not_answer_is_told_once_and_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.cluster._CONNECT_S", 0.5)
    with closing(Cluster("tcp://127.0.0.1:9")) as cluster:
        begun_s = 0.0
        for _ in range(2):
            begun_s = time.monotonic()
            with pytest.raises(GeneratorError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9 .*start one"):
                cluster.workers()
        assert time.monotonic() - begun_s < 0.4


def test_a_cluster_without_workers_says_so_and_names_its_address(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    with local_cluster(0) as address, closing(Cluster(str(path))) as cluster:
        path.write_text(json.dumps({"address": address}))
        with pytest.raises(GeneratorError) as error:
            cluster.workers()
    assert str(error.value).endswith(f"has no workers that answer: start some, as with `dask worker {address}`")


def test_a_worker_with_another_version_is_named(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    get_versions = distributed.versions.get_versions

    def versions(packages: Sequence[str] = ()) -> dict[str, dict[str, object]]:
        found: dict[str, dict[str, object]] = get_versions()
        found["packages"].update(dict.fromkeys(packages, f"version of {threading.current_thread().name}"))
        return found

    monkeypatch.setattr("distributed.versions.get_versions", versions)
    with (
        closing(Cluster(scheduler)) as cluster,
        pytest.raises(GeneratorError, match=r"worker tcp://\S+ has pytest-fileperf version of .*, and here it is "),
    ):
        cluster.workers()


@pytest.mark.parametrize("kind", ["another digest", "no digest"])
def test_a_worker_with_other_code_under_the_same_version_is_named(
    kind: str, scheduler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def code() -> str:
        if threading.current_thread().name == "fileperf cluster":
            return "here"
        if kind == "no digest":
            raise AttributeError("there is no such field")
        return "there"

    monkeypatch.setattr("pytest_fileperf.drive.remote._code", code)
    with (
        closing(Cluster(scheduler)) as cluster,
        pytest.raises(GeneratorError, match=r"worker tcp://\S+ has other code of pytest-fileperf \S+ than is here: in"),
    ):
        cluster.workers()


def test_a_worker_that_hangs_is_left_out_and_named(far: DaskCluster) -> None:
    far.workers[0].send_signal(signal.SIGSTOP)
    try:
        found = run_far(far, HERE, 0.3, "--allow", HERE, "--generators", "1", "--silent")
    finally:
        far.workers[0].send_signal(signal.SIGCONT)
    assert (found.get("lost"), found.get("silent")) == ({}, 1), found


def test_more_generators_than_workers_wait_for_one_and_then_do_without(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.cluster._REPLACED_S", 0.2)
    with (
        local_cluster(1) as address,
        closing(Cluster(address)) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        made = load(generators, url)
        assert list(made.lost.values()) == [" is gone (no worker is left for it)"]
        assert sum(round_.requests for round_ in made.rounds) > 0


def test_a_generator_that_makes_no_load_gives_its_worker_to_others(url: str) -> None:
    with (
        local_cluster(2) as address,
        closing(Cluster(address)) as cluster,
        closing(Generators(cluster=cluster)) as first,
        closing(Generators(cluster=cluster)) as second,
    ):
        assert load(first, url).lost == {}
        assert load(first, url, replace(PLAN, generators=1)).lost == {}
        assert load(second, url, replace(PLAN, generators=1)).lost == {}


def test_another_run_on_the_same_workers_is_noticed_once(shared: Generators, scheduler: str, url: str) -> None:
    load(shared, url)
    with closing(Cluster(scheduler)) as cluster:
        assert [cluster.workers().is_shared for _ in range(2)] == [True, False]


def test_a_run_is_no_other_one_to_itself(url: str) -> None:
    with (
        local_cluster(1) as address,
        closing(Cluster(address)) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        load(generators, url, replace(PLAN, generators=1))
        assert not cluster.workers().is_shared


def test_a_generator_that_is_told_too_late_to_begin_is_missing(
    shared: Generators, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(shared, url)  # it has its worker
    second, sent = shared.member(2), RemoteHandle._sent

    async def late(handle: RemoteHandle, message: object) -> None:
        if handle is second:
            await asyncio.sleep(0.5)
        await sent(handle, message)

    monkeypatch.setattr(RemoteHandle, "_sent", late)
    made = load(shared, url, replace(PLAN, rounds=4))
    assert re.fullmatch(r" was told \d+ ms too late to begin", made.lost[2])
    assert {own.number for round_ in made.rounds for own in round_.generators} == {1}


def later(monkeypatch: pytest.MonkeyPatch, delays_s: Iterator[float]) -> None:
    """Has messages to workers take so long, one after the other."""
    sent = RemoteHandle._sent

    async def late(handle: RemoteHandle, message: object) -> None:
        await asyncio.sleep(next(delays_s))
        await sent(handle, message)

    monkeypatch.setattr(RemoteHandle, "_sent", late)


def test_a_load_that_all_were_told_too_late_is_ordered_once_more_with_more_time(
    shared: Generators, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(shared, url)  # they have their workers
    later(monkeypatch, repeat(0.5))
    made = load(shared, url)
    assert made.lost == {}
    assert {own.number for round_ in made.rounds for own in round_.generators} == {1, 2}


def test_a_load_that_all_were_told_too_late_twice_says_what_may_be_the_matter(
    shared: Generators, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(shared, url)
    later(monkeypatch, chain(repeat(0.3, 2), repeat(2.5)))
    with pytest.raises(GeneratorError) as error:
        load(shared, url)
    late = r"generator \d of 2 on tcp://\S+ was told [\d.]+ m?s too late to begin"
    assert re.fullmatch(
        f"no load generator is left: {late}; {late}; the machines are busy, or the network is slow", str(error.value)
    )


def test_an_end_that_comes_while_a_run_is_ordered_leaves_no_process(scheduler: str, url: str) -> None:
    before = {process.pid for process in generator_processes()}
    order = pickle.dumps(LoadOrder(works=packed((GET,)), plan=PLAN, targets=(), pids=(), cores=None, together=True))

    async def ended_after(delay_s: float) -> None:
        generator = RemoteGenerator(())
        ordering = asyncio.create_task(generator.order(order))
        await asyncio.sleep(delay_s)
        await generator.end()
        await asyncio.gather(ordering, return_exceptions=True)
        with pytest.raises(GeneratorError, match="it has been ended"):
            await generator.order(order)

    for delay_s in (0.0, 0.001, 0.004):
        asyncio.run(ended_after(delay_s))
    assert {process.pid for process in generator_processes()} <= before


def test_a_generator_that_nobody_knows_any_more_ends(url: str) -> None:
    """Dask forgets an actor whose test process is gone."""
    before = {process.pid for process in generator_processes()}
    order = pickle.dumps(LoadOrder(works=packed((GET,)), plan=PLAN, targets=(), pids=(), cores=None, together=True))

    async def forgotten() -> list[psutil.Process]:
        generator = RemoteGenerator(())
        await generator.order(order)
        return [process for process in generator_processes() if process.pid not in before]

    begun = asyncio.run(forgotten())
    gc.collect()
    assert begun
    _, alive = psutil.wait_procs(begun, timeout=FORSAKEN_S - 1)  # it would end by itself, too
    assert alive == []


def test_a_scheduler_that_goes_away_in_a_load_is_blamed_and_no_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.cluster._CONNECT_S", 1.0)
    with (
        leaving_no_generator(),
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),  # so long it takes to close without a scheduler
        made_cluster(1) as made,
        closing(Cluster(address := made.scheduler_address)) as cluster,
        closing(Generators(cluster=cluster)) as generators,
    ):
        gone = re.escape(f"the Dask scheduler at {address} is gone: start it again, with its workers")
        with pytest.raises(GeneratorError, match=f"^{gone}$"):
            load(
                generators, url, replace(PLAN, generators=1, rounds=50), tell=lambda _: made.sync(made.scheduler.close)
            )
        for pause_s in (0.0, 2.0):  # it connects again meanwhile, and gives that up
            time.sleep(pause_s)
            with pytest.raises(GeneratorError, match=f"^{gone}$"):
                cluster.workers()


def test_a_scheduler_that_goes_away_is_told_in_a_sentence(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with leaving_no_generator(), ExitStack() as stack, local_cluster(1) as address:
        cluster = stack.enter_context(closing(Cluster(address)))
        generators = stack.enter_context(closing(Generators(cluster=cluster)))
        assert load(generators, url, replace(PLAN, generators=1)).lost == {}
        other = stack.enter_context(closing(Cluster(address)))
        assert other.workers().count == 1
    monkeypatch.setattr("pytest_fileperf.drive.cluster._CONNECT_S", 1.0)
    with pytest.raises(GeneratorError, match=r"no Dask scheduler answers at tcp://\S+ "):
        Cluster(address).workers()


def test_nothing_loads_the_other_machine_s_own_server(far: DaskCluster) -> None:
    found = run_far(far, "127.0.0.1", 0.4)
    assert "is on another machine" in str(found["error"])
    assert "--fileperf-host=ADDRESS" in str(found["error"])


# --- on another machine


@contextmanager
def far_cluster(logs: Path, *, near: int = 0, delay_ms: float = 0.0, jitter_ms: float = 0.0) -> Iterator[DaskCluster]:
    """Gives two workers whose clock is 3 s ahead; all but some `near` ones are on another machine."""
    with ExitStack() as closing:
        try:
            joined = closing.enter_context(machines(delay_ms=delay_ms, jitter_ms=jitter_ms))
        except NotAllowedError as error:
            pytest.skip(f"needs two network namespaces, which cannot be made here: {error}")
        yield closing.enter_context(dask_cluster(joined, logs, near=near, ahead_s=3, environment=ENVIRONMENT))


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    with far_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@contextmanager
def running_far(far: DaskCluster, host: str, seconds: float, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    joined = far.machines
    command = [*joined.on(joined.here), sys.executable, str(FAR), far.address, host, str(seconds), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **dict(ENVIRONMENT)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_far(far: DaskCluster, host: str, seconds: float, *arguments: str) -> dict[str, object]:
    with running_far(far, host, seconds, *arguments) as process:
        return answer_of(process)


def answer_of(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, object] = json.loads(line)
            return found
    raise AssertionError("it said nothing")


def test_over_a_slow_cable_rounds_begin_together_and_a_worker_that_is_killed_is_lost(tmp_path: Path) -> None:
    with far_cluster(tmp_path, delay_ms=20, jitter_ms=5) as far:
        found = run_far(far, HERE, 0.6, "--allow", HERE)
        with running_far(far, HERE, 3.0, "--allow", HERE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            os.kill(far.workers[1].pid, signal.SIGKILL)
            killed_s = time.monotonic()
            after = answer_of(process)
            assert time.monotonic() - killed_s < 3.0 + 2.0 + 5.0

    lost, kept = after["lost"], after["rounds"]
    assert isinstance(lost, dict)
    assert isinstance(kept, list)
    assert len(lost) == 1
    assert " is gone" in str(lost)
    assert [count for *_, count in kept] == [1, 1]
    assert found["lost"] == {}
    clocks = found["clocks"]
    assert isinstance(clocks, list)
    for ahead_ns, error_ns, distance_ns in clocks:
        assert abs(ahead_ns - 3000 * MS) < 5 * MS  # the truth is known: one machine's clock, and 3 s
        assert abs(ahead_ns - 3000 * MS) <= error_ns
        assert 30 * MS < distance_ns < 60 * MS
    rounds = found["rounds"]
    assert isinstance(rounds, list)
    assert all(count == 2 for *_, count in rounds)
    assert all(0 < start < end < 60 for start, end, _ in rounds)  # on this clock


@pytest.mark.parametrize(
    "arguments",
    [
        ("--url", f"http://{OTHER}:{FORBIDDEN}", "--allow", "10.9.9.9"),
        ("--redirect", f"http://{OTHER}:{FORBIDDEN}/", "--allow", HERE),
        ("--redirect", f"http://127.0.0.1:{FORBIDDEN}/", "--allow", HERE),
    ],
    ids=["name", "redirect to a name", "redirect to the worker's own machine"],
)
def test_what_is_not_allowed_is_refused_and_nothing_is_sent(
    far: DaskCluster, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    server = [sys.executable, "-m", "http.server", str(FORBIDDEN), "--bind", "0.0.0.0", "--directory", str(tmp_path)]
    with (tmp_path / "log").open("wb") as log:
        listening = subprocess.Popen([*far.machines.on(far.machines.there), *server], stderr=log, stdout=log)
    try:
        found = run_far(far, HERE, 0.4, *arguments)
    finally:
        listening.kill()
        listening.wait()
    said = str(found.get("error") or found["failures"])
    assert "load only goes to this machine" in said
    assert re.search(r"generator \d of 2 on tcp://", said) or "--redirect" in arguments
    assert "GET" not in (tmp_path / "log").read_text()


def test_a_worker_that_cannot_be_reached_is_lost_and_the_next_load_does_without(tmp_path: Path) -> None:
    with far_cluster(tmp_path, near=1) as far, running_far(far, HERE, 2.0, "--allow", HERE, "--loads", "2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        far.machines.cut()
        since_s = time.monotonic()
        first = answer_of(process)
        assert time.monotonic() - since_s < 2.0 + 2.0 + 5.0 + 3.0  # the load, its time limit, the limit; a busy machine
        second = answer_of(process)
    for found in (first, second):
        lost, rounds = found["lost"], found["rounds"]
        assert isinstance(lost, dict)
        assert isinstance(rounds, list)
        assert len(lost) == 1
        assert [count for *_, count in rounds] == [1, 1]


def test_a_load_ends_where_its_test_process_is_killed(far: DaskCluster) -> None:
    with running_far(far, HERE, 60.0, "--allow", HERE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        generators = [
            child
            for worker in far.workers
            for child in psutil.Process(worker.pid).children(recursive=True)
            if "pytest_fileperf.drive" in child.cmdline()
        ]
        process.kill()
    assert len(generators) >= 2
    _, alive = psutil.wait_procs(generators, timeout=15)
    assert alive == []
