"""A history's file: what is written, who may write at once, what is skipped, and how its lines become series."""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from report.samples import result

from pytest_fileperf.errors import RecordError
from pytest_fileperf.judge.history import (
    Run,
    TestRatios,
    append,
    line_of,
    read,
    series_of,
)
from pytest_fileperf.judge.trend import courses_of
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind
from pytest_fileperf.session.history import ratios_of, work_of

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


def run_of(day: int, ratio: float = 0.0, *, old: str = "a" * 12, **given: object) -> Run:
    ratios = TestRatios(
        old=old,
        work=str(given.pop("work", "load")),
        ratios={"rps": (ratio, 0.01, 6)},
        stored=bool(given.pop("stored", False)),
    )
    facts: Mapping[str, object] = {
        "at": (BEGIN + timedelta(days=day, hours=1)).isoformat(),
        "made": (BEGIN + timedelta(days=day)).isoformat(),
        "tree": f"{day:012d}",
        "machine": "linux",
        "packages": "p",
        "commit": f"{day:040d}",
        "branch": "main",
        "tests": {"test_it.py::test_get": ratios},
        **given,
    }
    return Run(**facts)  # type: ignore[arg-type]


def test_a_run_is_read_as_it_was_written_and_once(tmp_path: Path) -> None:
    path, runs = tmp_path / "history.jsonl", [run_of(1, -0.02), run_of(0, 0.0101, dirty=True, made="", commit="")]
    for run in runs:
        append(path, run)
    found, said = read([path, path])
    assert (found, said) == ([runs[1], runs[0]], [])


def _append(path: Path, day: int) -> None:
    append(path, run_of(day))


def test_ten_writers_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    path, context = tmp_path / "history.jsonl", multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(path, day)) for day in range(10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=60)
    assert sorted(run.tree for run in read([path])[0]) == [f"{day:012d}" for day in range(10)]


def _append_in_vain(path: Path) -> None:
    """Appends where the file may grow by a few bytes only, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100,) * 2)
    append(path, run_of(1))


def test_without_room_the_file_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    append(path, run_of(0))
    before = path.read_bytes()
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool,
        pytest.raises(RecordError, match=r"history\.jsonl cannot be written: File too large"),
    ):
        pool.submit(_append_in_vain, path).result(timeout=60)
    assert path.read_bytes() == before


def test_what_merges_leave_is_skipped_and_told(tmp_path: Path) -> None:
    path, first, second = tmp_path / "history.jsonl", line_of(run_of(0)), line_of(run_of(1))
    newer = json.dumps({**json.loads(first), "v": 99}) + "\n"
    path.write_text(f"<<<<<<< ours\n{second}=======\n{first}{second}>>>>>>> theirs\n{newer}{first[:80]}")
    found, said = read([path])
    assert [run.tree for run in found] == ["0" * 12, "0" * 11 + "1"]
    assert said == [
        f"{path}: line 1 and 3 more left out, because it contains no run. Maybe a merge left it",
        f"{path}: 1 run of a newer version left out. Upgrade pytest-fileperf",
    ]
    append(path, run_of(2))
    assert len(read([path])[0]) == 3, "half a line at the end takes the next one with it"


@pytest.mark.parametrize(
    "change",
    [
        {"tests": {"t": {"old": "a", "work": "w", "ratios": {"rps": [math.inf, 1, 1]}}}},
        {"tests": {"t": {"old": "a", "work": "w", "ratios": {"rps": [0.1, -1, 1]}}}},
        {"tests": {"t": {"work": "w", "ratios": {"rps": [0.1, 1, 1]}}}},
        {"tests": []},
        {"at": "yesterday"},
        {"dirty": 10**12},
        {"commit": "\x1b[2J"},
        {"machine": "\x1b[2J"},
        {"tests": {"t": {"old": ["x"], "work": "w", "ratios": {}}}},
        {"tests": {"t": {"old": "a" * 12, "work": "w", "ratios": {"rps": [10**400, 1, 1]}}}},
        {"tests": {"t": {"old": "a" * 12, "work": "w", "ratios": {"rps": [0, 1e300, 1]}}}},
        {"tests": {"--override-ini=addopts=-p evil": {"old": "a" * 12, "work": "w", "ratios": {}}}},
        {"v": True},
    ],
)
def test_a_line_with_wrong_values_is_no_run(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(json.dumps({**json.loads(line_of(run_of(0))), **change}) + "\n" + line_of(run_of(1)))
    found, said = read([path])
    assert ([run.tree for run in found], len(said)) == (["0" * 11 + "1"], 1)


def test_no_other_file_is_written_to_and_none_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "README.md"
    other.write_text("# Read me\n")
    with pytest.raises(RecordError, match=r"README\.md exists, but isn't a history. Name another file"):
        append(other, run_of(0))
    assert other.read_text() == "# Read me\n"
    for step in (lambda path: append(path, run_of(0)), lambda path: read([path])):
        with pytest.raises(RecordError, match=r"cannot be (read|written): Is a directory"):
            step(tmp_path)
    with pytest.raises(RecordError, match=r"does not exist. Run pytest with --fileperf-history to write it"):
        read([tmp_path / "none.jsonl"])


def test_codes_are_linked_by_the_runs_between_them_in_either_direction() -> None:
    second, third = f"{3:012d}", "c" * 12
    runs = [run_of(0), run_of(4, 0.01, old=second), run_of(6, 0.02, old=third)]
    beside = [run_of(3, -0.10, dirty=True), run_of(3, 0.05, old=third)]
    (series,) = series_of(runs, beside)
    assert series.ratios == pytest.approx((0, -0.09, -0.10 - 0.05 + 0.02), rel=1e-4)
    assert series.unlinked == ()
    assert series.links == pytest.approx((0, 2e-4, 2e-4), rel=1e-4)


def test_ratios_to_a_renewed_baseline_are_linked_to_the_first_one() -> None:
    new = f"{3:012d}"
    linked = [run_of(0), run_of(3, -0.10), run_of(4, 0.01, old=new), run_of(5, -0.11)]
    (series,) = series_of(linked)
    assert series.ratios == pytest.approx((0, -0.10, -0.09, -0.11), rel=1e-4)
    assert series.links == pytest.approx((0, 0, 2e-4, 2e-4), rel=1e-4), (
        "an error of 1 %, and sessions that differ by 1 %"
    )
    assert series.unlinked == ()

    (lucky,) = series_of([run_of(0), run_of(3, -0.10, stored=True), run_of(4, 0.01, old=new)])
    assert lucky.links[2] == pytest.approx(5e-4, rel=1e-4), "stored because it was better"

    (alone,) = series_of([run_of(0), run_of(3, -0.10), run_of(4, 0.01, old="b" * 12)])
    assert (alone.unlinked, alone.links[2]) == ((("a" * 12, "b" * 12),), 1.0)

    twice = [run_of(day, -0.1 + error, tree=new) for day, error in ((3, 0.02), (4, -0.02))]
    (known,) = series_of([run_of(0), *twice, run_of(5, 0.01, old=new)])
    assert (known.links[3], known.ratios[3]) == pytest.approx((1e-4, -0.09), rel=1e-4), "two runs tell it better"


def test_another_load_is_another_series_and_another_machine_a_link() -> None:
    runs = [run_of(day, work="old load") for day in range(3)] + [run_of(day) for day in range(3, 6)]
    runs = [*runs, run_of(6, machine="mac"), run_of(7), run_of(8, machine="mac")]
    (series,) = series_of(runs)
    assert (len(series.runs), series.others) == (6, 3)
    assert series.links == pytest.approx((0, 0, 0, 1e-4, 0, 0))


def test_the_change_since_a_run_is_that_of_the_levels() -> None:
    runs = [run_of(day, 0.0) for day in range(20)] + [run_of(day, -0.04) for day in range(20, 40)]
    (series,) = series_of(runs)
    (course,) = courses_of([series])
    sd = math.sqrt(2e-4)
    assert series.change_since(20, course) == pytest.approx((-0.04, sd * math.sqrt(1 / 20 + 1 / 20)))
    assert series.change_since(25, course) == pytest.approx((0, sd * math.sqrt(1 / 15 + 1 / 5))), "a step before it"
    assert series.change_since(0, course) is None
    assert series.change_since(40, course, is_since_old=True) is None
    assert series.change_since(0, course, is_since_old=True) == pytest.approx((-0.04, sd / math.sqrt(20)))
    (hard,) = series_of([run_of(day, -0.01 * (day >= 5)) for day in range(9)])
    (course,) = courses_of([hard])
    assert course.steps == ()
    assert hard.change_since(5, course) == pytest.approx((-0.01, sd * math.sqrt(1 / 5 + 1 / 4)))
    assert hard.change_since(8, course, is_last_alone=True) == pytest.approx(
        (-0.01 + 0.03 / 8, sd * math.sqrt(1 + 1 / 8))
    )


def test_what_differs_between_runs_of_one_load_and_what_makes_another() -> None:
    identity = {"work": {"url": "/"}, "load": {"connections": 32}, "server": {"kind": "uvicorn", "stabilised": ["a"]}}
    same = {**identity, "against": "v1 (1a2b3c4)", "engine": "replay", "server": {"kind": "uvicorn", "stabilised": []}}
    assert work_of(same) == work_of(identity)
    assert work_of({**identity, "load": {"connections": 8}}) != work_of(identity)


def test_comparisons_that_show_nothing_are_left_out() -> None:
    found = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, pairs=6, log_ratio=-0.02, log_error=0.01
    )
    void = found.undecided(Reason(kind=ReasonKind.SAME_FILES))
    shown = result().having(comparisons=(found,), old_tree="a" * 40)
    (test,) = ratios_of([shown]).values()
    assert (test.old, test.ratios) == ("a" * 12, {"rps": (-0.02, 0.01, 6)})
    assert ratios_of([shown.having(comparisons=(void,)), shown.having(old_tree="")]) == {}
