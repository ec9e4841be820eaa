"""How many generators a session takes, and what it says where one is lost; on fake servers and loads."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from session.fakes import App, Clock, Host, Loads, rig_of

from pytest_fileperf.drive.cluster import Workers
from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import NotMeasuredError, PerformanceError, PlanError
from pytest_fileperf.judge.record import Result, Standing, TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.limiting import LimitKind
from pytest_fileperf.measure.recording import GeneratorProcess, GeneratorRound, Round
from pytest_fileperf.plan.load import Alternation, LoadPlan, generators_used
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.report.figures import figure_rows
from pytest_fileperf.report.remarks import notes
from pytest_fileperf.report.story import undecided_texts
from pytest_fileperf.report.wording import note_text, notes_text
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loads import BothServers, BothWorks, Cores, Tell
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.keys import AUTO
from pytest_fileperf.settings.settings import Options, Settings

MS = 1_000_000
GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
QUICK = Settings(
    app="serve.apps:app", connections=16, duration_ns=300 * MS, rounds=6, boots=2, warmup_ns=0, gate=("rps",)
)


class SharedLoads(Loads):
    """Loads that need some cores of generators, and in which one of these may be lost."""

    def __init__(self, cores: float = 0.5, lost: dict[int, str] | None = None) -> None:
        super().__init__(Clock())
        self.cores = cores
        self.lost = lost or {}
        self.made: list[int] = []
        """With how many generators loads were made."""

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        return self._shared(super().make(work, plan, index, server, cores, tell), plan)

    def alternate(
        self, works: BothWorks, plan: Alternation, index: int, servers: BothServers, cores: Cores, tell: Tell
    ) -> tuple[Run, Run]:
        base, now = super().alternate(works, plan, index, servers, cores, tell)
        return self._shared(base, plan), self._shared(now, plan)

    def _shared(self, run: Run, plan: LoadPlan | Alternation) -> Run:
        count = generators_used(plan)
        self.made.append(count)
        rounds = tuple(self._own_round(round_, count) for round_ in run.rounds)
        processes = [
            GeneratorProcess(number=number, of=count, connections=4, lost=self.lost.get(number, ""))
            for number in range(1, count + 1)
        ]
        boot = replace(run.boot, generators=tuple(processes) if count > 1 else ())
        return replace(run, rounds=rounds, boot=boot)

    def _own_round(self, round_: Round, count: int) -> Round:
        each_ns = round(min(1.0, self.cores / count) * round_.duration_ns)
        own = [
            GeneratorRound(number=number, requests=round_.requests // count, failed=0, cpu_ns=each_ns - number)
            for number in range(1, count + 1)
            if number not in self.lost
        ]
        return replace(round_, client_cpu_ns=each_ns * count, generators=tuple(own) if count > 1 else ())


def measured(
    tmp_path: Path, settings: Settings, loads: SharedLoads | None = None, *, strict: bool = False
) -> tuple[Result, SharedLoads]:
    """Measures the code of a stored baseline; returns the result and the loads."""
    host = Host()
    rig, *_ = rig_of(host)
    loads = loads or SharedLoads()
    loads.clock = host.clock
    with Session(Options(baselines=tmp_path, strict=strict), replace(rig, loads=loads)) as session:
        session.measure(GET, settings, TEST)
        return session.results[0], loads


def on_cores(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(count)), raising=False)


@pytest.mark.parametrize(
    "cores, needed, settings, made, said",
    [
        (8, 0.5, QUICK, [1], "generators=auto took 1: it used 50 % of its core"),
        (8, 3.0, QUICK, [1, 2, 4], "generators=auto took 4: the busiest used 75 % of its core"),
        (
            4,
            9.0,
            QUICK,
            [1, 2, 3],
            "generators=auto took 3: the busiest used 100 % of its core, and no core is free for another one",
        ),
        (
            8,
            9.0,
            replace(QUICK, connections=2),
            [1, 2],
            "generators=auto took 2: the busiest used 100 % of its core, and the load has no more connections",
        ),
        (2, 9.0, QUICK, [], "generators=auto took 1: no core is free for another one"),
        (8, 9.0, replace(QUICK, connections=1), [], "generators=auto took 1: the load has one connection"),
    ],
)
def test_as_many_are_taken_as_it_takes(
    cores: int,
    needed: float,
    settings: Settings,
    made: list[int],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_cores(cores, monkeypatch)
    result, loads = measured(tmp_path, replace(settings, generators="auto"), SharedLoads(needed))

    taken = made[-1] if made else 1
    assert loads.made == [*made, taken, taken]  # then two boots
    assert said in notes(result)
    assert result.identity["load"] == {"connections": settings.connections} | (
        {"generators": taken} if taken > 1 else {}
    )


def test_there_are_no_more_than_connections_and_that_is_said(tmp_path: Path) -> None:
    result, loads = measured(tmp_path, replace(QUICK, connections=3, generators=7))
    assert loads.made == [3, 3]
    assert "3 of 7 generators made the load: it has only 3 connections" in notes(result)
    assert result.load == "3 connections, 300 ms, 3 generators"


def test_a_saturated_one_is_named(tmp_path: Path) -> None:
    result, _ = measured(tmp_path, replace(QUICK, generators=4), SharedLoads(3.9))
    assert result.standing is not Standing.PASS
    assert result.measurement.saturated
    assert (result.measurement.limit.kind, result.measurement.limit.evidence) == (
        LimitKind.GENERATOR,
        "generator 1 of 4 at 97 % of its core",
    )
    assert "generator saturated: generator 1 of 4 at 97 % of its core; these figures are the generators' own" in notes(
        result
    )
    assert dict(figure_rows(result))["generator 4"][:2] == ["any core", "4 connections"]


LOST = {2: "'s process ended with exit code -9"}
SAID = "generator 2 of 3's process ended with exit code -9"


def test_a_load_that_lost_one_is_never_a_pass_and_becomes_no_baseline(tmp_path: Path) -> None:
    settings = replace(QUICK, generators=3, gate=())
    result, _ = measured(tmp_path, settings, SharedLoads(lost=LOST))
    assert result.measurement.requests > 0
    assert (result.standing, result.lost) == (Standing.INCONCLUSIVE, SAID)
    assert result.unfit == "a run of which a part is missing"
    assert undecided_texts(result) == (f"{SAID}: a part of the load is missing",)
    assert f"a part of the load is missing: {SAID}" in notes(result)
    assert [own.lost for own in result.measurement.client.generators] == ["", LOST[2], ""]
    with pytest.raises(NotMeasuredError, match=r"generator 2 of 3's process ended"):
        measured(tmp_path, settings, SharedLoads(lost=LOST), strict=True)


def test_a_comparison_that_lost_one_tells_nothing(tmp_path: Path) -> None:
    """Without the lost one's part the code would seem slower than its baseline, which is of all of the load."""
    host = Host(now=App(latency_ns=3 * MS))
    settings = replace(QUICK, generators=3)
    results: list[Result] = []
    for update, loads in (("new", SharedLoads()), (None, SharedLoads(lost=LOST))):
        loads.clock = host.clock
        rig, *_ = rig_of(host)
        options = Options(baselines=tmp_path, update=update)
        with Session(options, replace(rig, loads=loads)) as session, suppress(PerformanceError):
            session.measure(GET, settings, TEST)
            session.settle(TEST.nodeid, passed=True)
        results += session.results
    assert results[0].baseline_written
    result = results[1]
    assert [item.outcome for item in result.verdict.comparisons] == [Outcome.INCONCLUSIVE]
    assert result.standing is Standing.INCONCLUSIVE


@pytest.mark.parametrize(
    "workers, settings, made, said",
    [
        (3, QUICK, [3], ""),
        (3, replace(QUICK, generators=2), [2], ""),
        (3, replace(QUICK, connections=2), [2], "2 of 3 workers made the load: it has only 2 connections"),
        (
            3,
            replace(QUICK, generators=AUTO),
            [1, 2, 3],
            "generators=auto took 3: the busiest used 100 % of its core, and the cluster has no more workers",
        ),
        (1, replace(QUICK, generators=AUTO), [], "generators=auto took 1: the cluster has no more workers"),
    ],
)
def test_all_workers_of_a_cluster_are_taken_or_as_many_as_asked_for(
    tmp_path: Path, workers: int, settings: Settings, made: list[int], said: str
) -> None:
    loads = SharedLoads(cores=9.0)
    loads.cluster = Workers(count=workers)
    result, _ = measured(tmp_path, settings, loads)
    assert loads.made[: len(made)] == made
    assert notes_text(result.notes) == said


def test_more_generators_than_workers_are_refused(tmp_path: Path) -> None:
    loads = SharedLoads()
    loads.cluster = Workers(count=2)
    with pytest.raises(PlanError, match="generators=4, and the cluster has 2 workers: start more, or ask for less"):
        measured(tmp_path, replace(QUICK, generators=4), loads)


def test_workers_that_do_not_answer_are_named(tmp_path: Path) -> None:
    loads = SharedLoads()
    loads.cluster = Workers(count=2, silent=("tcp://10.0.0.7:4000",))
    result, _ = measured(tmp_path, QUICK, loads)
    assert notes_text(result.notes) == "worker tcp://10.0.0.7:4000 did not answer, and made no load"


def test_that_another_run_has_generators_on_the_workers_is_said(tmp_path: Path) -> None:
    loads = SharedLoads()
    loads.cluster = Workers(count=2, is_shared=True)
    result, _ = measured(tmp_path, QUICK, loads)
    (said,) = map(note_text, result.notes)
    assert said.startswith("another test run has load generators on the same workers, and both disturb each other: ")
