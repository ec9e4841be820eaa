"""How a session spreads loads over start-ups, generators and rates, and what it makes of the runs; on fake servers."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from session.fakes import GET, MS, TEST, App, Clock, Host, Loads, Server, Sink, rig_of

from pytest_fileperf.drive.cluster import Workers
from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import NotMeasuredError, PerformanceError, PlanError
from pytest_fileperf.host.sample import CoreTime, ProcessUse, Sample
from pytest_fileperf.judge.record import Result, Standing
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.capacity import CapacityEnd
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import GeneratorProcess, Phase
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work
from pytest_fileperf.report.story import notes, undecided_texts
from pytest_fileperf.report.wording import notes_text
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loads import Cores, Tell, core_delay
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.keys import AUTO
from pytest_fileperf.settings.settings import Options, Settings, for_capacity, resolve
from pytest_fileperf.versions.tree import CodeTree

QUICK = Settings(
    app="serve.apps:app", connections=16, duration_ns=300 * MS, rounds=6, boots=2, warmup_ns=0, gate=("rps",)
)

# --- Start-ups


# --- Generators


def measured(directory: Path, settings: Settings, loads: Loads, host: Host | None = None, **options: object) -> Result:
    """Measures once; returns the result also where its verdict fails the test."""
    host = host or Host()
    rig, *_ = rig_of(host)
    loads.clock = host.clock
    with Session(Options(baselines=directory, **options), replace(rig, loads=loads)) as session:  # type: ignore[arg-type]
        with suppress(PerformanceError):
            session.measure(GET, settings, TEST)
            session.settle(passed=True)
        return session.results[0]


BUSIEST = "the busiest used 100 % of its core"


@pytest.mark.parametrize(
    "cores, workers, needed, connections, generators, made, said",
    [
        (8, None, 0.5, 16, AUTO, [1], "generators=auto chose 1: it used 50 % of its core"),
        (8, None, 3.0, 16, AUTO, [1, 2, 4], "generators=auto chose 4: the busiest used 75 % of its core"),
        (4, None, 9.0, 16, AUTO, [1, 2, 3], f"generators=auto chose 3: {BUSIEST}, and no core is free for another one"),
        (8, None, 9.0, 3, AUTO, [1, 2, 3], f"generators=auto chose 3: {BUSIEST}, and the load has no more connections"),
        (2, None, 9.0, 16, AUTO, [], "generators=auto chose 1: no core is free for another one"),
        (8, None, 9.0, 1, AUTO, [], "generators=auto chose 1: the load has one connection"),
        (8, None, 0.5, 3, 7, [3], "3 of 7 generators made the load: the load has only 3 connections"),
        (8, 3, 9.0, 16, None, [3], ""),
        (8, 3, 9.0, 16, 2, [2], ""),
        (8, 3, 9.0, 2, None, [2], "2 of 3 workers made the load: the load has only 2 connections"),
        (8, 3, 9.0, 16, AUTO, [1, 2, 3], f"generators=auto chose 3: {BUSIEST}, and the cluster has no more workers"),
        (8, 1, 9.0, 16, AUTO, [], "generators=auto chose 1: the cluster has no more workers"),
    ],
)
def test_as_many_generators_are_taken_as_it_takes(
    cores: int,
    workers: int | None,
    needed: float,
    connections: int,
    generators: int | str | None,
    made: list[int],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    loads = Loads(Clock(), needed=needed)
    loads.cluster = None if workers is None else (workers, (), False)
    settings = replace(QUICK, connections=connections, generators=generators)
    result = measured(tmp_path, settings, loads)
    taken = made[-1] if made else 1
    assert loads.made[-2:] == [taken, taken]  # the two boots
    assert generators != AUTO or loads.made[:-2] == made
    assert notes_text(result.notes) == said
    identity = {"connections": connections} | ({"generators": taken} if taken > 1 else {})
    assert workers is not None or result.identity["load"] == identity


LOST, SAID = {2: "'s process ended with exit code -9"}, "generator 2 of 3's process ended with exit code -9"


def test_a_load_that_lost_a_generator_is_never_a_pass_and_becomes_no_baseline(tmp_path: Path) -> None:
    settings = replace(QUICK, generators=3)
    result = measured(tmp_path / "alone", replace(settings, gate=()), Loads(Clock(), needed=0.5, lost=LOST))
    assert (result.standing, result.lost) == (Standing.INCONCLUSIVE, SAID)
    assert result.unfit == "a run with a part of the load missing"
    assert undecided_texts(result) == (f"part of the load is missing: {SAID}",)
    assert f"part of the load is missing: {SAID}" in notes(result)
    rig, *_ = rig_of(Host())
    strict = Session(
        Options(baselines=tmp_path, strict=True), replace(rig, loads=Loads(Clock(), needed=0.5, lost=LOST))
    )
    with strict, pytest.raises(NotMeasuredError, match=r"generator 2 of 3's process ended"):
        strict.measure(GET, replace(settings, gate=()), TEST)
    # Without its part the code would seem slower than its baseline, which is of all of the load.
    slower = Host(now=App(latency_ns=100 * MS))
    assert measured(tmp_path, settings, Loads(Clock()), update="new").baseline_written
    compared = measured(tmp_path, settings, Loads(Clock(), needed=0.5, lost=LOST), slower)
    assert [item.outcome for item in compared.verdict.comparisons] == [Outcome.INCONCLUSIVE]
    assert compared.standing is Standing.INCONCLUSIVE


@pytest.mark.parametrize(
    "workers, said",
    [
        ((2, ("tcp://10.0.0.7:4000",), False), "worker tcp://10.0.0.7:4000 did not answer and made no"),
        ((2, (), True), "another test run uses the same workers, and both dist"),
    ],
)
def test_what_is_wrong_with_a_cluster_is_said(workers: Workers, said: str, tmp_path: Path) -> None:
    loads = Loads(Clock())
    loads.cluster = workers
    assert notes_text(measured(tmp_path, QUICK, loads).notes).startswith(said)
    with pytest.raises(PlanError, match=r"generators=4, but the cluster has 2 workers. Start more, or"):
        measured(tmp_path, replace(QUICK, generators=4), loads)


# --- Rates, in a search for the capacity


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
        latency = np.maximum.accumulate(due - work_ns + server.latency_ns) + work_ns - due
        begun_ns, rounds = round(self.clock() * 1e9) + plan.warmup_ns, []
        for place in range(plan.rounds):
            start_ns = plan.warmup_ns + place * plan.round_ns
            own = Histogram.of(latency[(due >= start_ns) & (due < start_ns + plan.round_ns)])
            at_ns = begun_ns + place * plan.round_ns
            made = self._round(server, work, place, Phase.ROUND, at_ns, plan.round_ns, own.count)
            rounds.append(replace(made, latency=own, service=own, ttfb=own))
        return self._ended(server, work, plan, index, rounds, plan.duration_ns, cores, tell)


class LosesOnce(Queues):
    """Two generators make the loads; the first one that breaks the limit loses one of them."""

    has_lost = False

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        run = super().make(work, plan, index, server, cores, tell)
        latency = Histogram.merged(round_.latency for round_ in run.rounds)
        breaks = plan.seed is not None and latency.percentile_ns(99) > 100 * MS
        why, self.has_lost = ("'s process is gone", True) if breaks and not self.has_lost else ("", self.has_lost)
        own = (GeneratorProcess(number=number, of=2, connections=1, lost=why * (number == 2)) for number in (1, 2))
        return replace(run, boot=replace(run.boot, generators=tuple(own)))


def searched(
    directory: Path,
    host: Host,
    loads: type[Queues] = Queues,
    *,
    update: str | None = None,
    old: str = "",
    **keys: object,
) -> tuple[Result, Sink]:
    """Searches once, of two versions with `old`; returns the result also where the verdict fails."""
    rig, _, sink = rig_of(host)
    asked = for_capacity(resolve(verb={"app": "serve.apps:app", "max_p99": "100ms", "connections": 1, **keys}))
    against = CodeTree(here=Path("/here"), there=Path("/there"), title=old) if old else None
    rig = replace(rig, loads=loads(host.clock))
    with Session(Options(baselines=directory, update=update), rig, against=against) as session:
        with suppress(PerformanceError):
            session.measure(GET, asked, TEST)
        session.settle(passed=True)
        return session.results[0], sink


FIVE_MS = App(latency_ns=5 * MS)


def test_a_capacity_is_found_on_three_boots_with_the_figures_of_loads_that_hold(tmp_path: Path) -> None:
    host = Host(now=replace(FIVE_MS, latency_of_first_boot_ns=7 * MS))
    result, sink = searched(tmp_path, host, min_capacity=300)
    found = result.capacity
    assert found is not None
    assert found.ended is CapacityEnd.FOUND
    assert found.low < found.rate < found.high
    assert found.rate == pytest.approx(165, rel=0.1)
    assert {load.boot for load in found.tried} == {round_.boot for round_ in result.recording.rounds} == {0, 1, 2}
    slow, *others = (boot.capacity.rate for boot in result.recording.boots if boot.capacity is not None)
    assert all(slow / other == pytest.approx(5 / 7, rel=0.15) for other in others)
    assert 0.8 * found.rate < result.measurement.rps < 1.1 * found.rate
    assert result.measurement.latency.p99 <= 0.1
    assert [check.name for check in result.verdict.limits if not check.holds] == ["min_capacity"]
    assert {line.boot for line in sink.lines} == {1, 2, 3}
    assert host.clock.now_s - 1000 < 63


def test_two_versions_are_searched_in_turn(tmp_path: Path) -> None:
    result, _ = searched(tmp_path, Host(base=FIVE_MS, now=App(latency_ns=8 * MS)), old="old", max_duration="30s")
    (comparison,) = result.verdict.comparisons
    assert comparison.outcome is Outcome.REGRESSED
    assert comparison.change == pytest.approx(-0.4, abs=0.12)
    assert result.base_capacity is not None
    assert result.base_capacity.rate == pytest.approx(177, rel=0.1)
    assert len(result.pairs) >= 3
    assert result.base_seconds is not None
    assert result.base_seconds < 65


def test_a_generator_in_the_way_of_a_search_is_not_taken_for_the_server(tmp_path: Path) -> None:
    used_up = App(latency_ns=MS // 5, client_cpu_ns=1_600_000)
    result, _ = searched(tmp_path / "used", Host(now=used_up), connections=32, max_duration="20s")
    assert result.capacity is not None
    assert result.capacity.ended is CapacityEnd.GENERATOR
    assert result.capacity.rate < 650
    assert result.measurement.saturated
    # A load is told although its figures are not kept.
    result, _ = searched(tmp_path / "lost", Host(now=FIVE_MS), LosesOnce, max_duration="20s")
    assert (result.lost, result.standing) == ("generator 2 of 2's process is gone", Standing.INCONCLUSIVE)


# --- What runs become


@pytest.mark.parametrize(
    "busy,waited,stolen,delay",
    [(800, 0, 0, 1.0), (1000, 100, 0, 1.75), (1000, 900, 0, 1.75), (800, 0, 80, 1.1), (1000, 100, 80, 1.85)],
)
def test_what_others_had_of_a_core_may_be_more_than_was_seen_and_what_the_host_took_is_known(
    busy: int, waited: int, stolen: int, delay: float
) -> None:
    """Two servers in turn, each of which had the core for 400 ms; in milliseconds."""

    def sample(ran: int, waited: int, busy: int, stolen: int) -> Sample:
        use = ProcessUse(
            pid=1, cpu_ns=ran * MS, main_cpu_ns=ran * MS, waiting_ns=waited * MS, rss_bytes=0, threads=1, files=None,
            written_bytes=None, read_bytes=None,
        )  # fmt: skip
        cores = (CoreTime(core=0, busy_ns=busy * MS, stolen_ns=stolen * MS), CoreTime(core=1, busy_ns=0, stolen_ns=0))
        return Sample(at_ns=ran, server=(use,), cores=cores)

    side = [sample(0, 0, 0, 0), sample(400, waited, busy, stolen)]
    assert core_delay([side, side], 0, {0}) == pytest.approx(delay)
