"""From runs to recordings, and from progress to lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from session.fakes import MS, App, Clock, Host, Loads, Server, rig_of

from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.report.progress import ProgressLine
from pytest_fileperf.session.loads import recording_of

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
        ProgressLine(
            title="test_any",
            phase="round",
            boot=2,
            boots=3,
            elapsed_s=4.0,
            total_s=9.0,
            requests=105,
            rps=7.0,
            p99_s=0.002,
            failures=1,
        )
    ]
