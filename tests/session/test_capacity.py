"""How a session searches for the capacity: alone, against stored figures, and of two versions; on fake servers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from session.fakes import MS, App, Host, Loads, Server, rig_of

from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import LimitExceededError, PerformanceError
from pytest_fileperf.judge.record import Result, Standing, TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import GeneratorProcess, Phase
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loads import Cores, Tell
from pytest_fileperf.session.session import Session
from pytest_fileperf.session.sides import Base
from pytest_fileperf.settings.settings import Options, Settings, for_capacity, resolve
from pytest_fileperf.versions.tree import CodeTree

GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
OLD = CodeTree(here=Path("/here"), there=Path("/there"), title="old")
AGAINST = Base(title="old", code_tree=OLD)


def settings(**verb: object) -> Settings:
    given = {"app": "serve.apps:app", "max_p99": "100ms", "connections": 1, **verb}
    return for_capacity(resolve(verb=given))


class Queues(Loads):
    """Serves one request after the other: at a rate, requests wait for those before them."""

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        if plan.seed is None:
            return super().make(work, plan, index, server, cores, tell)
        assert isinstance(server, Server)
        due_ns, pacing = list[int](), plan.pacing()
        while (at := pacing.due(0, len(due_ns), 0)) is not None and at < plan.duration_ns:
            due_ns.append(at)
        due = np.array(due_ns, dtype=np.int64)
        work_ns = np.cumsum(np.full(due.size, server.latency_ns))
        before_ns = work_ns - server.latency_ns
        latency = np.maximum.accumulate(due - before_ns) + work_ns - due
        begun_ns, rounds = round(self.clock() * 1e9) + plan.warmup_ns, []
        for place in range(plan.rounds):
            start_ns = plan.warmup_ns + place * plan.round_ns
            own = Histogram.of(latency[(due >= start_ns) & (due < start_ns + plan.round_ns)])
            made = self._round(
                server, work, place, Phase.ROUND, begun_ns + place * plan.round_ns, plan.round_ns, own.count
            )
            rounds.append(replace(made, latency=own, service=own, ttfb=own))
        return self._ended(server, work, plan, index, rounds, plan.duration_ns, cores, tell)


def run(directory: Path, asked: Settings, host: Host, *, against: bool = False, update: str | None = None) -> Result:
    """Searches once; returns the result also where the verdict fails."""
    rig, _, _ = rig_of(host)
    rig = replace(rig, loads=Queues(host.clock))
    options = Options(baselines=directory, update=update)
    with Session(options, rig, against=AGAINST if against else None) as session:
        with suppress(PerformanceError):
            session.capacity(GET, asked, TEST)
        session.settle(passed=True)
        return session.results[0]


FIVE_MS, SIX_MS = App(latency_ns=5 * MS), App(latency_ns=6 * MS + MS // 4)


def test_it_is_found_on_three_boots_within_its_time(tmp_path: Path) -> None:
    host = Host(now=FIVE_MS)
    found = run(tmp_path, settings(), host).capacity
    assert found is not None
    assert found.ended is CapacityEnd.FOUND
    assert found.rate == pytest.approx(177, rel=0.08)
    assert found.low < found.rate < found.high
    assert found.closed_rps == pytest.approx(200, rel=0.1)
    assert {load.boot for load in found.tried} == {0, 1, 2}
    assert host.clock.now_s - 1000 < 63


def test_its_figures_are_those_of_loads_that_hold(tmp_path: Path) -> None:
    result = run(tmp_path, settings(), Host(now=FIVE_MS))
    assert result.capacity is not None
    assert 0.8 * result.capacity.rate < result.measurement.rps < 1.1 * result.capacity.rate
    assert result.measurement.latency.p99 <= 0.1
    assert all(check.holds for check in result.verdict.limits)


def test_where_boots_differ_its_figures_are_those_of_each_at_its_own_capacity(tmp_path: Path) -> None:
    app = App(latency_ns=5 * MS, latency_of_first_boot_ns=7 * MS)
    result = run(tmp_path, settings(), Host(now=app))
    assert result.capacity is not None
    assert {round_.boot for round_ in result.recording.rounds} == {0, 1, 2}
    slow, *others = (boot.capacity.rate for boot in result.recording.boots if boot.capacity is not None)
    assert all(slow / other == pytest.approx(5 / 7, rel=0.15) for other in others)


def test_a_least_capacity_is_a_limit_as_any(tmp_path: Path) -> None:
    result = run(tmp_path, settings(min_capacity=300), Host(now=FIVE_MS))
    assert result.standing is Standing.LIMIT
    (broken,) = (check for check in result.verdict.limits if not check.holds)
    assert broken.name == "min_capacity"


def test_it_is_compared_with_a_stored_one(tmp_path: Path) -> None:
    assert run(tmp_path, settings(), Host(now=FIVE_MS), update="new").baseline_written
    (comparison,) = run(tmp_path, settings(), Host(now=FIVE_MS)).verdict.comparisons
    assert comparison.metric == "capacity"
    assert comparison.change == pytest.approx(0, abs=0.12)
    slow = run(tmp_path, settings(), Host(now=App(latency_ns=15 * MS)))
    assert slow.verdict.outcome is Outcome.REGRESSED


def test_two_versions_are_searched_in_turn(tmp_path: Path) -> None:
    result = run(tmp_path, settings(), Host(base=FIVE_MS, now=App(latency_ns=8 * MS)), against=True)
    assert result.verdict.outcome is Outcome.REGRESSED
    (comparison,) = result.verdict.comparisons
    assert comparison.change == pytest.approx(-0.4, abs=0.12)
    assert result.base_capacity is not None
    assert result.base_capacity.rate == pytest.approx(177, rel=0.1)
    assert len(result.pairs) >= 3
    assert result.base_seconds is not None
    assert result.base_seconds < 125


def test_equal_versions_are_not_told_apart(tmp_path: Path) -> None:
    result = run(tmp_path, settings(), Host(base=FIVE_MS, now=FIVE_MS), against=True)
    assert result.verdict.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE)


def test_a_generator_that_is_used_up_is_not_taken_for_the_server(tmp_path: Path) -> None:
    host = Host(now=App(latency_ns=MS // 5, client_cpu_ns=1_600_000))
    result = run(tmp_path, settings(connections=32), host)
    assert result.capacity is not None
    assert result.capacity.ended is CapacityEnd.GENERATOR
    assert result.capacity.rate < 650
    assert result.standing in (Standing.SATURATED, Standing.NEW)
    assert result.measurement.saturated


class LosesOnce(Queues):
    """Two generators make the loads; the first one that breaks the limit loses one of them."""

    lost = False

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        run = super().make(work, plan, index, server, cores, tell)
        latency = Histogram.merged(round_.latency for round_ in run.rounds)
        breaks = plan.seed is not None and latency.percentile_ns(99) > 100 * MS
        why, self.lost = ("'s process is gone", True) if breaks and not self.lost else ("", self.lost)
        own = (GeneratorProcess(number=number, of=2, connections=1, lost=why * (number == 2)) for number in (1, 2))
        return replace(run, boot=replace(run.boot, generators=tuple(own)))


def test_a_load_that_lost_a_generator_is_told_although_its_figures_are_not_kept(tmp_path: Path) -> None:
    rig, _, _ = rig_of(host := Host(now=FIVE_MS))
    search = LosesOnce(host.clock)
    with Session(Options(baselines=tmp_path), replace(rig, loads=search)) as session:
        session.capacity(GET, settings(), TEST)
        (result,) = session.results
    assert search.lost
    assert result.lost == "generator 2 of 2's process is gone"
    assert result.standing is Standing.INCONCLUSIVE


def test_each_load_is_told_with_its_own_boot(tmp_path: Path) -> None:
    rig, _, sink = rig_of(host := Host(now=FIVE_MS))
    with Session(Options(baselines=tmp_path), replace(rig, loads=Queues(host.clock))) as session:
        session.capacity(GET, settings(), TEST)
    assert {line.boot for line in sink.lines} == {1, 2, 3}


def test_where_no_rate_holds_the_limits_are_broken(tmp_path: Path) -> None:
    rig, _, _ = rig_of(host := Host(now=App(latency_ns=300 * MS)))
    session = Session(Options(baselines=tmp_path), replace(rig, loads=Queues(host.clock)))
    with session, pytest.raises(LimitExceededError, match="no rate that was tried holds max_p99"):
        session.capacity(GET, settings(), TEST)
