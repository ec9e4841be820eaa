"""Several generator processes that make one load together."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import monotonic

import httpx
import psutil
import pytest
from drive.scripted import hello, scripted

from pytest_fileperf.drive.group import Generators, own_cores
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import GeneratorError
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Work

MS = 1_000_000
GET = Operation(method="GET", url="/")
PLAN = LoadPlan(connections=6, warmup_ns=0, round_ns=200 * MS, rounds=3, timeout_ns=2000 * MS, generators=3)
COUNTED = replace(PLAN, round_ns=20_000 * MS, rounds=1)
SEEN: list[tuple[bytes, bytes]] = []
"""Head and body of each request that the server got."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with scripted(hello, SEEN) as base:
        yield base


@pytest.fixture(scope="module")
def shared() -> Iterator[Generators]:
    with closing(Generators()) as generators:
        yield generators


def load(
    generators: Generators,
    url: str,
    plan: LoadPlan = PLAN,
    work: Work = GET,
    tell: Callable[[RunProgress], None] = lambda _: None,
) -> Run:
    SEEN.clear()
    target, pids = Target(boot=1, url=url), ((os.getpid(),),)
    (result,) = generators.run((work,), plan, (target,), pids=pids, cores=None, progress=tell, check=lambda: None)
    return result


def dies_once(marker: Path) -> Journey:
    """Ends the process of the first call, after some time."""

    async def journey(client: httpx.AsyncClient) -> None:
        await client.get("/")
        await asyncio.sleep(0.1)
        with suppress(FileExistsError):
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            os._exit(7)

    return Journey(name="dies once", function=journey)


def test_requests_errors_and_bytes_add_up_to_what_was_asked(shared: Generators, url: str) -> None:
    result = load(shared, url, replace(COUNTED, requests=1007))

    (only,) = result.rounds
    assert len(SEEN) == 1007
    assert (only.requests, only.failed, only.bytes_received, only.latency.count) == (1007, 0, 5 * 1007, 1007)
    assert [(own.number, own.requests) for own in only.generators] == [(1, 336), (2, 336), (3, 335)]
    assert only.client_cpu_ns == sum(own.cpu_ns for own in only.generators) > 0
    assert (result.due, result.lost) == (1007, {})


def test_every_row_of_a_feed_is_sent_once_and_every_body_is_unique(shared: Generators, url: str) -> None:
    recipe = Operation(method="POST", url="/{id}", arguments={"content": payload("64B", unique=True)})
    work = Requests(recipes=(recipe,), columns={"id": tuple(range(100))})

    load(shared, url, replace(COUNTED, requests=100), work)

    assert sorted(int(head.split()[1][1:]) for head, _ in SEEN) == list(range(100))
    assert len({body for _, body in SEEN}) == 100


def test_requests_of_an_open_loop_are_due_when_one_generator_would_send_them(shared: Generators, url: str) -> None:
    result = load(shared, url, replace(PLAN, rate=200.0, round_ns=500 * MS, rounds=1))

    assert result.due == sum(round_.requests for round_ in result.rounds) == len(SEEN) == 100
    assert result.boot.leads is not None
    assert result.boot.leads.due_ns == tuple(range(0, 500 * MS, 5 * MS))
    assert result.attack_ns == 495 * MS


def test_rounds_are_the_same_stretches_of_time_for_all(shared: Generators, url: str) -> None:
    told: list[RunProgress] = []
    result = load(shared, url, tell=told.append)

    rounds = [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]
    assert [round_.duration_ns for round_ in rounds] == [200 * MS] * 3
    assert all(earlier.ended_ns == later.started_ns for earlier, later in pairwise(rounds))
    assert all(len(round_.generators) == 3 and round_.server_cpu_ns for round_ in rounds)
    assert told[-1].requests <= sum(round_.requests for round_ in result.rounds)


def test_all_take_turns_of_two_servers_together(shared: Generators, url: str) -> None:
    plan = Alternation(
        connections=6,
        warmup_ns=20 * MS,
        turns_ns=(50 * MS,) * 3,
        handover_ns=5 * MS,
        firsts=(Side.BASE, Side.NOW, Side.NOW),
        timeout_ns=2000 * MS,
        generators=3,
    )
    targets = (Target(boot=0, url=url), Target(boot=0, url=url))
    pids = ((os.getpid(),), (os.getpid(),))
    made = shared.run((GET, GET), plan, targets, pids=pids, cores=None, progress=lambda _: None, check=lambda: None)

    for side, result in zip(Side, made, strict=True):
        turns = [round_ for round_ in result.rounds if round_.phase is Phase.ROUND]
        zero_ns = result.rounds[0].started_ns
        assert [(turn.started_ns - zero_ns, turn.ended_ns - zero_ns) for turn in turns] == list(plan.rounds(side))
        assert all(len(turn.generators) == 3 for turn in turns)
        # A rate by all answers: three rates by those of a generator each would not see each other's.
        assert all(turn.typical_rps is not None for turn in turns if turn.requests > 32)


def test_one_that_dies_is_named_and_what_the_others_measured_is_kept(
    shared: Generators, url: str, tmp_path: Path
) -> None:
    made = load(shared, url, work=dies_once(tmp_path / "died"))

    ((number, why),) = made.lost.items()
    assert why == "'s process ended with exit code 7"
    others = {1, 2, 3} - {number}
    assert {own.number for round_ in made.rounds for own in round_.generators} == others
    assert all(round_.requests for round_ in made.rounds if round_.phase is Phase.ROUND)
    again = load(shared, url)
    assert again.lost == {}
    assert len(again.rounds[0].generators) == 3


def test_one_that_hangs_is_given_up(shared: Generators, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.drive.group._SILENT_S", 2.0)
    stopped: list[int] = []

    def stop_second(_: RunProgress) -> None:
        pid = shared.member(2).pid
        if pid is not None and not stopped:
            stopped.append(pid)
            os.kill(pid, signal.SIGSTOP)

    begun_s = monotonic()
    made = load(shared, url, replace(PLAN, timeout_ns=500 * MS), tell=stop_second)

    assert made.lost == {2: " said nothing for 2 s"}
    assert shared.member(2).pid is None  # the next load starts a new one
    assert monotonic() - begun_s < 20
    assert sum(round_.requests for round_ in made.rounds)


def test_those_that_are_idle_are_none_of_a_load(shared: Generators, url: str) -> None:
    load(shared, url)
    assert shared.pids == tuple(shared.member(number).pid for number in (1, 2, 3))
    during: list[tuple[int, ...]] = []
    load(shared, url, replace(PLAN, generators=1), tell=lambda _: during.append(shared.pids))

    assert {shared.pids, *during} == {(shared.member(1).pid,)}
    assert shared.member(3).pid is not None  # it waits for the next load that wants it


class Deadly:
    """Ends the process that it is brought to, which says why."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("import os; os.write(2, b'no licence'); os._exit(3)",)


def test_nothing_is_kept_of_a_load_that_did_not_begin(shared: Generators, url: str) -> None:
    async def journey(client: httpx.AsyncClient, value: object) -> None:
        """Is never called."""

    work = Journey(name="any", function=journey, arguments=(Deadly(),))
    with pytest.raises(GeneratorError) as caught:
        load(shared, url, work=work)
    ended = r"before the load began, generator \d of 3's process ended with exit code 3"
    lost = ended + r"\nlast lines of its log:\n  \| no licence"
    assert re.fullmatch(lost, str(caught.value))
    assert shared.pids == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt, httpx.ConnectError])
def test_an_error_leaves_no_process(shared: Generators, url: str, error: type[BaseException]) -> None:
    def interrupt(_: RunProgress) -> None:
        raise KeyboardInterrupt

    before = {child.pid for child in psutil.Process().children(recursive=True)} - set(shared.pids)
    with pytest.raises(error):
        load(shared, url if error is KeyboardInterrupt else "http://127.0.0.1:9", tell=interrupt)
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_each_generator_has_a_core_of_its_own_where_there_are_enough() -> None:
    assert own_cores(frozenset({4, 2, 7}), 2) == [frozenset({2}), frozenset({4})]
    assert own_cores(frozenset({4}), 2) == [frozenset({4})] * 2
    assert own_cores(None, 2) == [None, None]
