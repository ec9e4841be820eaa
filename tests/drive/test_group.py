"""Several generators that make one load together: processes of this machine, and on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import httpx
import psutil
import pytest
from drive.scripted import GET, HELLO, MS, saying, scripted
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.drive.cluster import Cluster
from pytest_fileperf.drive.generator import READY, LoadOrder
from pytest_fileperf.drive.group import Generators, own_cores
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.remote import Reading, offset_of, on_this_clock
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import GeneratorError
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.recording import Boot, Phase, Round
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work

if TYPE_CHECKING:
    from distributed import LocalCluster

PLAN = LoadPlan(connections=4, warmup_ns=0, round_ns=150 * MS, rounds=2, timeout_ns=2000 * MS, generators=2)
COUNTED = replace(PLAN, round_ns=20_000 * MS, rounds=1)
SEEN: list[tuple[bytes, bytes]] = []
"""Head and body of each request that the server got."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted(saying(HELLO, after_s=0.004), SEEN) as base:  # so that few loads need a whole core
        yield base


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Gives a cluster whose workers are threads of this process."""
    from distributed import LocalCluster  # a second's work, which is not for each process that collects tests

    with LocalCluster(
        n_workers=workers, processes=False, threads_per_worker=1, dashboard_address="127.0.0.1:0", protocol="tcp"
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    with local_cluster(2) as cluster:
        yield str(cluster.scheduler_address)


@pytest.fixture(scope="module")
def here() -> Iterator[Generators]:
    with closing(Generators()) as generators:
        yield generators


@pytest.fixture(scope="module")
def there(scheduler: str) -> Iterator[Generators]:
    with closing(Cluster(scheduler)) as cluster, closing(Generators(cluster=cluster)) as generators:
        yield generators


@pytest.fixture(params=["here", "there"])
def group(request: pytest.FixtureRequest) -> Generators:
    found: Generators = request.getfixturevalue(request.param)
    return found


def load(
    generators: Generators,
    url: str,
    plan: LoadPlan = PLAN,
    work: Work = GET,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Run:
    SEEN.clear()
    target = Target(boot=1, url=url, pids=(os.getpid(),))
    (result,) = generators.run((work,), plan, (target,), cores=None, progress=tell, check=lambda: None)
    return result


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def by_numbers(result: Run) -> set[int]:
    return {own.number for round_ in result.rounds for own in round_.generators}


def test_what_all_send_adds_up_and_each_row_and_body_is_sent_once(group: Generators, url: str) -> None:
    recipe = Operation(method="POST", url="/{id}", arguments={"content": payload("64B", unique=True)})
    work = Requests(recipes=(recipe,), columns={"id": tuple(range(301))})
    result = load(group, url, replace(COUNTED, requests=301), work)

    (only,) = result.rounds
    assert (only.requests, only.failed, only.bytes_received, only.latency.count) == (301, 0, 5 * 301, 301)
    assert [(own.number, own.requests) for own in only.generators] == [(1, 151), (2, 150)]
    assert only.client_cpu_ns == sum(own.cpu_ns for own in only.generators) > 0
    assert (result.due, result.lost) == (301, {})
    assert sorted(int(head.split()[1][1:]) for head, _ in SEEN) == list(range(301))
    assert len({body for _, body in SEEN}) == 301


def test_all_take_turns_of_two_servers_together(group: Generators, url: str) -> None:
    plan = Alternation(
        connections=4,
        warmup_ns=20 * MS,
        turns_ns=(150 * MS,) * 3,
        handover_ns=5 * MS,
        firsts=(Side.BASE, Side.NOW, Side.NOW),
        timeout_ns=2000 * MS,
        generators=2,
    )
    # Both servers are threads of this process.
    targets = (Target(boot=0, url=url, pids=(os.getpid(),)), Target(boot=0, url=url))
    made = group.run((GET, GET), plan, targets, cores=None, progress=lambda _: None, check=lambda: None)

    for side, result in zip(Side, made, strict=True):
        turns = [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]
        zero_ns = result.rounds[0].started_ns
        assert [(turn.started_ns - zero_ns, turn.ended_ns - zero_ns) for turn in turns] == list(plan.rounds(side))
        assert all(len(turn.generators) == 2 for turn in turns)
        assert all(bool(turn.server_cpu_ns) == (side == Side.BASE and not group.member(1).worker) for turn in turns)
        # A rate by all answers: two rates by those of a generator each would not see each other's.
        rated = [turn for turn in turns if turn.requests > 32]
        assert rated
        assert all(turn.typical_rps is not None for turn in rated)


def test_one_that_dies_is_named_and_what_the_others_measured_is_kept(
    here: Generators, url: str, tmp_path: Path
) -> None:
    """`test_cluster` kills workers."""
    marker = tmp_path / "died"

    async def journey(client: httpx.AsyncClient) -> None:
        assert (await client.get("/there")).text == "hello"
        await asyncio.sleep(0.1)
        with suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os._exit(7)

    made = load(here, url, work=Journey(name="dies once", function=journey))
    ((number, why),) = made.lost.items()
    assert why == "'s process ended with exit code 7"
    assert by_numbers(made) == {3 - number}
    assert all(round_.requests and not round_.failed for round_ in made.rounds if round_.phase is Phase.ROUND)
    again = load(here, url)
    assert (again.lost, by_numbers(again)) == ({}, {1, 2})


def test_one_that_hangs_is_given_up(here: Generators, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.group._SILENT_S", 1.0)
    stopped: list[int] = []

    def stop_second(_: RunProgress) -> None:
        pid = here.member(2).pid
        if pid is not None and not stopped:
            stopped.append(pid)
            os.kill(pid, signal.SIGSTOP)

    begun_s = monotonic()
    made = load(here, url, replace(PLAN, rounds=4, timeout_ns=600 * MS), tell=stop_second)

    assert made.lost == {2: " sent nothing for 2 s"}
    assert here.member(2).pid is None  # the next load starts a new one
    assert monotonic() - begun_s < 20
    assert sum(round_.requests for round_ in made.rounds)


class Member:
    """A generator elsewhere, which says these messages when it gets an order, and has its result once it may begin."""

    is_elsewhere, worker, tracer, pid, head_start_ns = True, "tcp://far", "", None, 0

    def __init__(self, events: list[str], *messages: str | None) -> None:
        self.events = events
        self.messages = messages

    def order(self, _: LoadOrder, put: Callable[[object], None]) -> None:
        self.put = put
        for message in self.messages:
            put(message)

    def send(self, _: int) -> None:
        self.events.append("begin")
        self.put((RESULT,))

    def ended(self) -> str:
        return " is gone"

    def hang_up(self) -> None:
        """Does nothing, like the following."""

    kill = close = shorten_log = hang_up


def test_the_others_begin_when_all_are_ready_after_one_was_ready_and_lost() -> None:
    events: list[str] = []
    late = Member(events)
    members = iter((Member(events, READY, None), late, Member(events, READY)))
    generators = Generators(cluster=cast(Cluster, SimpleNamespace(generator=lambda: next(members))))

    def check() -> None:
        if not events:
            events.append("ready")
            late.put(READY)

    plan, target = replace(PLAN, generators=3), Target(boot=1, url="http://127.0.0.1:9")
    (made,) = generators.run((GET,), plan, (target,), cores=None, progress=lambda _: None, check=check)
    assert events == ["ready", "begin", "begin"]
    assert made.lost == {1: " is gone"}


class Deadly:
    """Ends the process that it is brought to, which says why."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("import os; os.write(2, b'no licence'); os._exit(3)",)


def test_nothing_is_kept_of_a_load_that_did_not_begin(here: Generators, url: str) -> None:
    async def journey(client: httpx.AsyncClient, value: object) -> None:
        """Is never called."""

    work = Journey(name="any", function=journey, arguments=(Deadly(),))
    with pytest.raises(GeneratorError) as caught:
        load(here, url, work=work)
    ended = r"before the load began, generator \d of 2's process ended with exit code 3"
    assert re.fullmatch(ended + r"\nLast lines of its log:\n  \| no licence", str(caught.value))
    assert here.pids == ()


def interrupt(_: RunProgress) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_leaves_no_process_and_the_next_load_has_new_ones(group: Generators, url: str) -> None:
    load(group, url)
    pids, begun_s = group.pids, monotonic()
    with pytest.raises(KeyboardInterrupt):
        load(group, url, replace(PLAN, round_ns=60_000 * MS), tell=interrupt)
    assert monotonic() - begun_s < 20
    assert group.pids == ()
    assert children().isdisjoint(pids)
    assert load(group, url).lost == {}


def test_each_generator_has_a_core_of_its_own_where_there_are_enough() -> None:
    assert own_cores(frozenset({4, 2, 7}), 2) == [frozenset({2}), frozenset({4})]
    assert own_cores(frozenset({4}), 2) == [frozenset({4})] * 2
    assert own_cores(None, 2) == [None, None]


# --- how far another machine's clock is ahead, by questions that take their time

HALF_SECOND = Round(
    boot=1,
    index=0,
    phase=Phase.ROUND,
    started_ns=100 * MS,
    ended_ns=600 * MS,
    requests=3,
    latency=Histogram.of([5 * MS, 6 * MS, 7 * MS]),
    ttfb=EMPTY,
    bytes_sent=0,
    bytes_received=30,
)
RESULT = Run(
    plan=LoadPlan(connections=1, warmup_ns=0, round_ns=500 * MS, rounds=1, timeout_ns=MS),
    boot=Boot(index=0),
    rounds=(HALF_SECOND,),
    engine="replay",
    why_engine="",
    subjects={("a", ""): (HALF_SECOND,), ("a", "login"): (HALF_SECOND,)},
    attack=(10, 20),
    last_end_ns=30,
    ends=((array("q", [1, 2, 3]),),),
)
WAYS = st.tuples(st.integers(0, 60 * MS), st.integers(0, 60 * MS))


def readings(ahead_ns: int, ways: list[tuple[int, int]]) -> list[Reading]:
    """Returns questions whose ways there and back took these times."""
    found, now_ns = [], 1_000 * MS
    for there_ns, back_ns in ways:
        heard_ns = now_ns + there_ns + back_ns
        found.append((now_ns, now_ns + there_ns + ahead_ns, heard_ns))
        now_ns = heard_ns
    return found


@given(st.integers(-(10**15), 10**15), st.lists(WAYS, min_size=1, max_size=20))
def test_the_offset_is_off_by_no_more_than_it_says(ahead_ns: int, ways: list[tuple[int, int]]) -> None:
    each = readings(ahead_ns, ways)
    found_ns, error_ns, distance_ns = offset_of(each, now_ns=each[-1][-1])
    assert abs(found_ns - ahead_ns) <= error_ns + 1
    assert distance_ns == min(there + back for there, back in ways)


def test_the_quickest_answer_tells_most() -> None:
    each = readings(3_000 * MS, [(40 * MS, 10 * MS), (2 * MS, 2 * MS), (10 * MS, 60 * MS)])
    ahead_ns, error_ns, _ = offset_of(each, now_ns=each[-1][-1])
    assert ahead_ns == 3_000 * MS
    assert error_ns == 2 * MS + round(70 * MS * 1e-4)


def test_an_old_answer_tells_less_as_clocks_drift_apart() -> None:
    old, new = readings(0, [(1 * MS, 1 * MS), (3 * MS, 3 * MS)])
    minute_ns = 60_000 * MS
    new = (new[0] + minute_ns, new[1] + minute_ns, new[2] + minute_ns)
    _, error_ns, _ = offset_of([old, new], now_ns=new[-1])
    assert error_ns == 3 * MS  # the old one is worth 1 ms and 6 ms of drift


@given(st.integers(-(10**15), 10**15))
def test_instants_come_back_from_another_clock_as_they_were(ahead_ns: int) -> None:
    assert on_this_clock(on_this_clock(RESULT, -ahead_ns), ahead_ns) == RESULT
