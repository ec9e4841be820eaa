"""How a session judges by stored baselines and stores them: on fake servers, loads, clock and chance."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from session.fakes import MS, App, Clock, Host, Loads, Server, rig_of

from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import BaselineError, PerformanceError
from pytest_fileperf.host.sample import CoreTime, ProcessUse, Sample
from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.record import Result, TestId
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.report.progress import ProgressLine
from pytest_fileperf.session.loads import core_delay, recording_of
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.settings import Options, Settings

GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
QUICK = Settings(app="serve.apps:app", connections=1, duration_ns=300 * MS, rounds=6, warmup_ns=0, gate=("rps",))


def run(baselines: Path, update: str | None, settings: Settings = QUICK) -> Result:
    """Measures once, on fake servers; returns the result also where the verdict fails."""
    with Session(Options(baselines=baselines, update=update), rig_of(Host())[0]) as session:
        with suppress(PerformanceError):
            session.measure(GET, settings, TEST)
            session.settle(TEST.nodeid, passed=True)
        return session.results[0]


def stored(baselines: Path) -> str:
    (file,) = baselines.rglob("*.json")
    return file.read_text(encoding="utf-8")


def make_baseline_faster(baselines: Path) -> None:
    """Makes the stored requests/s a hundred times what they were."""
    (file,) = baselines.rglob("*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    for boot in content["tests"][TEST.nodeid]["evidence"]["boots"]:
        boot["rounds"]["rps"] = [value * 100 for value in boot["rounds"]["rps"]]
    file.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("update, accepts", [("passed", False), ("new", False), ("all", True), (None, False)])
def test_a_regressed_run_becomes_the_baseline_only_where_all_are_asked_for(
    update: str | None, accepts: bool, tmp_path: Path
) -> None:
    assert run(tmp_path, "new").baseline_written
    make_baseline_faster(tmp_path)
    before = stored(tmp_path)

    result = run(tmp_path, update)

    assert result.verdict.outcome is Outcome.REGRESSED
    assert result.baseline_written is accepts
    assert (stored(tmp_path) != before) is accepts


def test_a_run_with_a_broken_limit_is_not_stored(tmp_path: Path) -> None:
    result = run(tmp_path, "all", replace(QUICK, limits={"min_rps": 1e12}))

    assert not result.baseline_written
    assert not list(tmp_path.rglob("*.json"))


def test_a_regression_that_was_stored_does_not_fail(tmp_path: Path) -> None:
    run(tmp_path, "new")
    make_baseline_faster(tmp_path)
    with Session(Options(baselines=tmp_path, update="all"), rig_of(Host())[0]) as session:
        session.measure(GET, QUICK, TEST)
        assert session.results[0].verdict.outcome is Outcome.REGRESSED


def test_what_a_limit_has_judged_may_be_new_in_ci(tmp_path: Path) -> None:
    with Session(Options(baselines=tmp_path, ci=True), rig_of(Host())[0]) as session:
        session.measure(GET, replace(QUICK, limits={"min_rps": 1.0}), TEST)
        assert session.results[0].verdict.outcome is Outcome.NEW


def test_a_smoke_run_judges_no_limits(tmp_path: Path) -> None:
    with Session(Options(baselines=tmp_path, smoke=True), rig_of(Host())[0]) as session:
        session.measure(GET, replace(QUICK, limits={"min_rps": 1e12}), TEST)
        assert session.results[0].verdict.limits == ()


def test_a_measurement_is_kept_when_its_baseline_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / Environment.current().profile).symlink_to("/proc/nowhere")  # nobody can make it
    with Session(Options(baselines=tmp_path, update="new"), rig_of(Host())[0]) as session:
        session.measure(GET, QUICK, TEST)
        with pytest.raises(BaselineError, match="cannot be written"):
            session.settle(TEST.nodeid, passed=True)

        assert [result.baseline_written for result in session.results] == [False]
        assert session.results[0].not_stored == "it could not be written"


def test_a_baseline_that_cannot_be_written_keeps_no_other_from_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BaselineStore.write

    def failing(self: BaselineStore, module: str, nodeid: str, *args: Any, **kwargs: Any) -> None:
        if nodeid == TEST.nodeid:
            raise BaselineError("the disk is full")
        write(self, module, nodeid, *args, **kwargs)

    monkeypatch.setattr(BaselineStore, "write", failing)
    with Session(Options(baselines=tmp_path, update="new"), rig_of(Host())[0]) as session:
        for test in (TEST, replace(TEST, nodeid=f"{TEST.nodeid}#2")):
            session.measure(GET, QUICK, test)
        with pytest.raises(BaselineError, match="the disk is full"):
            session.settle(TEST.nodeid, passed=True)
        assert [(it.baseline_written, it.not_stored) for it in session.results] == [
            (False, "it could not be written"),
            (True, ""),
        ]
        assert f"{TEST.nodeid}#2" in stored(tmp_path)


@pytest.mark.parametrize("passed, stores", [(None, False), (False, False), (True, True)])
def test_a_baseline_is_stored_once_the_whole_test_has_passed(passed: bool | None, stores: bool, tmp_path: Path) -> None:
    """Its own assertions come after the measurements."""
    second = replace(TEST, nodeid=f"{TEST.nodeid}#2")
    with Session(Options(baselines=tmp_path, update="new"), rig_of(Host())[0]) as session:
        session.measure(GET, QUICK, TEST)
        session.measure(GET, QUICK, second)
        if passed is not None:
            session.settle("test_any.py::test_other", passed=not passed)
            assert not list(tmp_path.rglob("*.json"))
            session.settle(TEST.nodeid, passed=passed)
        assert bool(list(tmp_path.rglob("*.json"))) is stores
        session.settle(passed=False)  # the session is over
        assert [result.baseline_written for result in session.results] == [stores] * 2
        assert [result.not_stored for result in session.results] == ["" if stores else "the test did not pass"] * 2


def test_a_damaged_baseline_is_told_before_anything_is_booted(tmp_path: Path) -> None:
    run(tmp_path, "new")
    (file,) = tmp_path.rglob("*.json")
    file.write_text("{")
    host = Host()
    with (
        Session(Options(baselines=tmp_path), rig_of(host)[0]) as session,
        pytest.raises(BaselineError, match="not JSON"),
    ):
        session.measure(GET, QUICK, TEST)
    assert host.booted == []


def test_a_baseline_is_the_one_that_was_there_before_the_load(tmp_path: Path) -> None:
    """It is read once, whatever becomes of the file meanwhile."""
    run(tmp_path, "new")
    (file,) = tmp_path.rglob("*.json")

    class Removing(Loads):
        def make(self, *args: Any, **kwargs: Any) -> Run:
            file.unlink(missing_ok=True)
            return super().make(*args, **kwargs)

    rig, loads, _ = rig_of(Host())
    with Session(Options(baselines=tmp_path, update="new"), replace(rig, loads=Removing(loads.clock))) as session:
        session.measure(GET, replace(QUICK, tolerances=dict.fromkeys(("rps", "p99"), 20.0)), TEST)
        (result,) = session.results
    assert result.verdict.outcome is Outcome.PASS
    assert not result.baseline_written
    assert not file.exists()


def test_boots_serve_one_after_the_other_in_an_order_of_chance(tmp_path: Path) -> None:
    host = Host()
    rig, loads, sink = rig_of(host, seed=3)
    with Session(Options(baselines=tmp_path), rig) as session:
        session.measure(GET, QUICK, TEST)
        (result,) = session.results
    rounds = [(round_.boot, round_.index) for round_ in result.recording.rounds]
    assert rounds == [(boot, index) for boot in range(3) for index in range(2)]
    started = [round_.started_ns for round_ in result.recording.rounds]
    assert started == sorted(started)
    numbers = [asked.boot for asked in host.booted]
    assert numbers != sorted(numbers) == [0, 1, 2]
    assert host.most_alive == 1
    assert [(line.boot, line.boots, line.total_s) for line in sink.lines] == [(boot, 3, 0.3) for boot in (1, 2, 3)]
    assert loads.is_closed


def test_the_last_boot_of_a_test_is_the_first_one_of_the_next(tmp_path: Path) -> None:
    host = Host()
    rig, _, _ = rig_of(host)
    with Session(Options(baselines=tmp_path), rig) as session:
        session.measure(GET, QUICK, TEST)
        server = session.server(QUICK, TEST.nodeid)
        kept = server.title
        session.measure(GET, QUICK, TEST)
        first, second = session.results
        assert server.title == second.server
    assert len(host.booted) == 5
    assert first.server == kept == host.servers[2].title
    assert second.recording.boots[0].pids == first.recording.boots[2].pids
    asked = [booted.boot for booted in host.booted]
    assert sorted(asked[:3]) == sorted(asked[2:]) == [0, 1, 2]
    assert host.most_alive == 1


# --- From runs to recordings, and from progress to lines

PLAN = LoadPlan(connections=2, warmup_ns=0, round_ns=100 * MS, rounds=2, timeout_ns=1000 * MS)


@pytest.fixture
def runs() -> list[Run]:
    """Runs on boots 1, 0 and 1 again."""
    loads = Loads(Clock())
    servers = [Server(App(), latency_ns=MS, number=number, cores=None) for number in range(2)]
    work = Operation(method="GET", url="/")
    return [loads.make(work, PLAN, boot, servers[boot], None, lambda _: None) for boot in (1, 0, 1)]


def test_rounds_stand_in_order_and_those_of_one_boot_count_on(runs: list[Run]) -> None:
    recording = recording_of([replace(run, pinned=True) for run in runs])
    places = [(round_.boot, round_.index) for round_ in recording.rounds]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    started = [round_.started_ns for round_ in recording.rounds if round_.boot == 1]
    assert started == sorted(started)
    assert (recording.connections, recording.open_loop, recording.pinned) == (2, False, True)


def test_runs_on_one_boot_are_one_boot(runs: list[Run]) -> None:
    low, high = (replace(runs[0], boot=replace(runs[0].boot, peak_rss_bytes=peak)) for peak in (1, 9))
    recording = recording_of([high, runs[1], low])
    assert [boot.index for boot in recording.boots] == [0, 1]
    assert recording.boots[1].peak_rss_bytes == 9


@pytest.mark.parametrize("due, total", [((None, None, None), None), ((3, 4, 5), 12), ((3, None, 0), 3)])
def test_times_and_due_requests_are_summed(due: tuple[int | None, ...], total: int | None, runs: list[Run]) -> None:
    made = [
        replace(run, due=own, attack=(0, 2), attack_ns=2, last_end_ns=5) for run, own in zip(runs, due, strict=True)
    ]
    recording = recording_of(made)
    assert (recording.due, recording.attack_ns, recording.wait_ns) == (total, 6, 9)


def test_progress_of_a_run_is_told_as_progress_of_the_whole() -> None:
    host = Host()
    rig, _, sink = rig_of(host)
    begun_s = rig.clock()
    host.clock.now_s += 4
    progress = RunProgress(phase="round", elapsed_ns=MS, requests=5, rps=7.0, p99_ns=2 * MS, failed=1)
    rig.tell(progress, title="test_any", begun_s=begun_s, total_s=9.0, boots=3, boot=2, requests=100)
    assert sink.lines == [
        ProgressLine(title="test_any", run=progress, boot=2, boots=3, elapsed_s=4.0, total_s=9.0, requests=105)
    ]


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
