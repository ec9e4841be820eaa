from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge.sides import known
from pytest_benchmark.stats import Stats
from report.samples import FAILURES, REGRESSED, recording, result

from pytest_fileperf.errors import FilePerfError, PlanError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.report.benchmark_json import benchmark_json, benchmarks_of, run_document, save_benchmarks

INFO: dict[str, object] = {
    "machine_info": {"node": "here", "cpu": {}},
    "commit_info": {"id": "0123abc", "dirty": False},
    "datetime": "2026-11-21T09:30:00+00:00",
    "version": "5.3.1",
}


def run_of(*results: Result) -> dict[str, object]:
    return {**INFO, "benchmarks": benchmarks_of(session_record(results))}


def document(*results: Result) -> Any:
    return json.loads(benchmark_json(run_of(*results)))


def of_latencies(values_ns: list[int]) -> Recording:
    histogram, recorded = Histogram.of(np.array(values_ns)), recording(requests=len(values_ns), boots=1, rounds=1)
    return replace(recorded, rounds=(replace(recorded.rounds[0], latency=histogram, ttfb=histogram),))


def stats_of(values_ns: list[int]) -> Any:
    return document(result(recorded=of_latencies(values_ns)))["benchmarks"][0]["stats"]


def test_a_run_in_full() -> None:
    recorded = recording(requests=400, boots=1, rounds=1, slowest_ms=10.0, failures=FAILURES)
    run = document(
        result("test_upload[256KiB]", recorded=recorded, params={"size": "256KiB"}, group="uploads",
               verdict=Verdict(comparisons=(REGRESSED,)))
    )  # fmt: skip
    (benchmark,) = run.pop("benchmarks")
    assert run == {
        "machine_info": {"node": "here", "cpu": {}},
        "commit_info": {"id": "0123abc", "dirty": False},
        "datetime": "2026-11-21T09:30:00+00:00",
        "version": "5.3.1",
    }
    stats = benchmark.pop("stats")
    assert stats.pop("outliers") == "169;0"
    assert stats == pytest.approx(
        {
            "min": 0.005, "max": 0.01, "mean": 0.0075, "stddev": 0.001449, "rounds": 400, "median": 0.0075,
            "iqr": 0.0025, "q1": 0.00625, "q3": 0.00875, "iqr_outliers": 0, "stddev_outliers": 169, "ld15iqr": 0.005,
            "hd15iqr": 0.01, "ops": 800.0, "total": 3.0, "iterations": 1,
        },
        rel=4e-3,
    )  # fmt: skip
    extra = benchmark["extra_info"]["fileperf"]
    assert extra.pop("p99") == pytest.approx(0.00995, rel=1e-3)
    assert {name: extra[name] for name in ("work", "standing", "errors", "engine", "server_cpu_per_request")} == {
        "work": "POST /upload", "standing": "REGRESSED", "errors": 14, "engine": "replay",
        "server_cpu_per_request": 0.00045,
    }  # fmt: skip
    assert (extra["attack"], extra["wait"]) == (0.0, 0.0152)
    assert extra["limit"].startswith("unclear: ")
    del benchmark["extra_info"]
    assert benchmark == {
        "group": "uploads",
        "name": "test_upload[256KiB]",
        "fullname": "tests/test_files.py::test_upload[256KiB]",
        "params": {"size": "256KiB"},
        "param": "256KiB",
        "options": {},
    }


def test_further_measurements_of_a_test_have_names_of_their_own() -> None:
    (benchmark,) = document(result("test_a", nodeid="t.py::test_a#2"))["benchmarks"]
    assert (benchmark["name"], benchmark["fullname"], benchmark["param"]) == ("test_a#2", "t.py::test_a#2", None)


def test_what_has_no_latency_or_was_only_smoke_is_left_out() -> None:
    assert document(result(recorded=recording(requests=0)), result(smoke=True))["benchmarks"] == []


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=60))
def test_statistics_are_pytest_benchmarks_own_to_the_histograms_precision(values_ns: list[int]) -> None:
    stats, truth = stats_of(values_ns), Stats()  # type: ignore[no-untyped-call]
    for value_ns in values_ns:
        truth.update(value_ns / 1e9)  # type: ignore[no-untyped-call]
    assert set(stats) == {*Stats.fields, "iterations"}
    for name in ("min", "max", "mean", "rounds", "total"):
        assert stats[name] == pytest.approx(getattr(truth, name), rel=1e-9)
    # The sum of squares is a float: differences far below the mean drown in it.
    assert stats["stddev"] == pytest.approx(truth.stddev, rel=1e-6, abs=1e-6 * truth.mean)
    ordered = sorted(values_ns)
    for name, share in (("q1", 0.25), ("median", 0.5), ("q3", 0.75)):
        at_rank = ordered[max(0, int(np.ceil(share * len(ordered))) - 1)] / 1e9
        assert at_rank <= stats[name] + 1e-12 <= at_rank * 1.001 + 2e-9
    assert stats["min"] <= stats["ld15iqr"] <= stats["q1"] <= stats["q3"] <= stats["hd15iqr"] <= stats["max"]
    assert 0 <= stats["iqr_outliers"] <= len(values_ns) // 2


def test_tukey_outliers_are_counted_and_left_beyond_the_fences() -> None:
    stats = stats_of([1_000] + [1_000_000 + 1_000 * step for step in range(100)] + [50_000_000, 60_000_000])
    assert (stats["iqr_outliers"], stats["stddev_outliers"], stats["outliers"]) == (3, 2, "2;3")
    assert (stats["ld15iqr"], stats["hd15iqr"]) == pytest.approx((1.000e-3, 1.099e-3), rel=1e-3)


def cli(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "pytest_benchmark", "--storage", "file://saved", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_real_command_compares_two_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = run_of(result("test_upload"), result("test_download", group="downloads"))
    after = run_of(result("test_upload", recorded=recording(requests=900, slowest_ms=40.0)))
    saved = [save_benchmarks(run, name=name, storage="file://saved") for run, name in ((before, "old"), (after, "new"))]
    assert [path.name for path in saved if path] == ["0001_old.json", "0002_new.json"]

    table = cli(tmp_path, "compare", "--columns=median,ops,rounds", "--sort=fullname")
    row = re.search(r"^test_upload \(0001_old\) +18\.\d+ \(1\.0\) +2\.0500 \(1\.0\) +12300$", table, re.MULTILINE)
    assert row, table
    row = re.search(r"^test_upload \(0002_new\) +22\.\d+ \(1\.25\) +1\.8000 \(0\.88\) +10800$", table, re.MULTILINE)
    assert row, table
    assert "benchmark 'downloads': 1 tests" in table


def test_real_facts_and_the_default_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    facts = run_document(None, "a project")
    path = known(save_benchmarks({**facts, "benchmarks": benchmarks_of(session_record([result()]))}))
    assert re.fullmatch(r"\.benchmarks/[^/]+-CPython-3\.\d+-\d+bit/0001_unversioned_\d{8}_\d{6}\.json",
                        path.relative_to(tmp_path).as_posix())  # fmt: skip
    stored = json.loads(path.read_text())
    assert stored["machine_info"]["python_implementation"] == "CPython"
    assert (stored["commit_info"]["id"], stored["commit_info"]["project"]) == ("unversioned", "a project")
    changed = {**run_of(result()), "commit_info": {"id": "0123abc", "dirty": True}}
    path = known(save_benchmarks(changed, storage=str(tmp_path)))
    assert re.fullmatch(r"0001_0123abc_\d{8}_\d{6}_uncommitted-changes\.json", path.name)


def test_nothing_is_saved_when_there_is_nothing(tmp_path: Path) -> None:
    storage = tmp_path / "saved"
    assert save_benchmarks(run_of(), name="empty", storage=str(storage)) is None
    assert not storage.exists()


def test_a_storage_that_is_no_directory_of_files_is_refused(tmp_path: Path) -> None:
    run = run_of(result())
    with pytest.raises(
        PlanError, match=r"cannot save runs to elasticsearch\+http://host. Give a directory or file://PATH"
    ):
        save_benchmarks(run, name="a", storage="elasticsearch+http://host")
    with pytest.raises(PlanError, match="'a/b' cannot be part of a file name"):
        save_benchmarks(run, name="a/b", storage=str(tmp_path))
    (tmp_path / "taken").write_text("")
    with pytest.raises(FilePerfError, match=r"cannot create the directory .*taken: File exists"):
        save_benchmarks(run, name="a", storage=str(tmp_path / "taken"))
