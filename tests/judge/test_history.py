"""What sessions showed of a machine: kept locally, bounded, and never a reason to fail."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from judge.sides import known, recording_of, round_of

from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.history import MOST_FILES, SPAN_NS, History, trend_of
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Recording

HOUR_NS = 3_600 * 10**9
DAY_NS = 24 * HOUR_NS
START_NS = 1_800_000_000 * 10**9
HERE = Environment(system="Linux", machine="x86_64", cpu="CPU", cores=2, python="CPython 3.11")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "baselines", HERE)


def files(directory: Path) -> list[Path]:
    return sorted((directory / "baselines" / ".local" / HERE.profile).glob("*.json"))


def test_sessions_are_read_as_they_were_added(history: History) -> None:
    assert history.read().changes == ()
    history.add({"rps": 0.012344, "p99": 0.1}, START_NS)
    history.add({"rps": 0.02}, START_NS + DAY_NS)
    assert history.read().changes == ({"p99": 0.1, "rps": 0.01234}, {"rps": 0.02})


def test_runs_of_the_same_hours_are_one_session(history: History) -> None:
    history.add({"rps": 0.03}, START_NS)
    history.add({"rps": 0.04, "p99": 0.2}, START_NS + SPAN_NS - 1)
    history.add({"rps": 0.02}, START_NS + SPAN_NS)
    merged, alone = history.read().changes
    assert merged == {"p99": pytest.approx(0.2), "rps": pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))}
    assert alone == {"rps": 0.02}


def test_a_run_is_of_the_present_unless_a_time_is_given(history: History) -> None:
    history.add({"rps": 0.01}, START_NS - 10_000 * DAY_NS)
    for _ in range(10):
        history.add({"rps": 0.02})
    assert [changes["rps"] for changes in history.read().changes] == pytest.approx([0.01, 0.02])


def test_an_hour_in_which_all_is_alike_does_not_show_a_steady_machine(history: History) -> None:
    for minute in range(0, 60, 3):
        history.add({"rps": 0.001}, START_NS + minute * HOUR_NS // 60)
    assert not history.read().is_steady({"rps": METRICS["rps"].tolerance})
    for day in range(1, RULES.least_sessions):
        assert not history.read().is_steady({"rps": METRICS["rps"].tolerance})
        history.add({"rps": 0.001}, START_NS + day * DAY_NS)
    assert history.read().is_steady({"rps": METRICS["rps"].tolerance})


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_that_drifts_over_hours_is_not_taken_for_steady(seed: int, history: History) -> None:
    """Its level deviates by 15 % and is another one after 12 hours; it is measured every 10 minutes, 2 hours a day."""
    rng, steady = np.random.default_rng(seed), 0
    stored = level = 0.15 * rng.standard_normal()
    before_ns = 0
    for at_ns in (day * DAY_NS + run * HOUR_NS // 6 for day in range(10) for run in range(12)):
        alike = math.exp((before_ns - at_ns) / (12 * HOUR_NS))
        level = alike * level + 0.15 * math.sqrt(1 - alike**2) * rng.standard_normal()
        before_ns = at_ns
        history.add({"rps": abs(level - stored)}, START_NS + at_ns)
        steady += history.read().is_steady({"rps": METRICS["rps"].tolerance})
    assert steady == 0


def test_a_session_without_figures_adds_nothing(history: History, tmp_path: Path) -> None:
    history.add({})
    assert list(tmp_path.iterdir()) == []


def test_each_machine_has_its_own(history: History, tmp_path: Path) -> None:
    history.add({"rps": 0.01})
    assert History(tmp_path / "baselines", replace(HERE, cores=4)).read().changes == ()


def test_git_ignores_all_of_it(history: History, tmp_path: Path) -> None:
    history.add({"rps": 0.01})
    assert (tmp_path / "baselines" / ".local" / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_the_oldest_are_forgotten(history: History, tmp_path: Path) -> None:
    for number in range(MOST_FILES + 3):
        history.add({"rps": number / 1000}, START_NS + number * DAY_NS)
    kept = history.read().changes
    assert [changes["rps"] for changes in kept] == [number / 1000 for number in range(3, MOST_FILES + 3)]
    assert len(files(tmp_path)) == MOST_FILES


def test_an_hour_of_many_runs_does_not_end_the_memory_of_other_days(history: History, tmp_path: Path) -> None:
    for day in range(20):
        history.add({"rps": day / 1000}, START_NS + day * DAY_NS)
    for number in range(2 * MOST_FILES):
        history.add({"rps": 0.1 + number / 1000}, START_NS + 20 * DAY_NS + number * HOUR_NS // 60)
    *days, hour = history.read().changes
    assert [changes["rps"] for changes in days] == [day / 1000 for day in range(20)]
    kept = [0.1, *(0.1 + number / 1000 for number in range(2 * MOST_FILES)[-(MOST_FILES - 21) :])]
    assert hour["rps"] == pytest.approx(math.sqrt(math.fsum(change**2 for change in kept) / len(kept)))
    assert len(files(tmp_path)) == MOST_FILES


def test_runs_without_end_leave_a_memory_of_many_sessions(history: History, tmp_path: Path) -> None:
    for number in range(300):
        history.add({"rps": 0.01}, START_NS + number * HOUR_NS)
    assert len(history.read().changes) == len(files(tmp_path)) == MOST_FILES


def test_two_runs_may_write_at_the_same_time(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "baselines", HERE)
    with ThreadPoolExecutor(max_workers=4) as pool:
        for number in range(40):
            pool.submit((history, other)[number % 2].add, {"rps": number / 1000}, START_NS + number * DAY_NS)
    assert sorted(changes["rps"] for changes in history.read().changes) == [number / 1000 for number in range(40)]
    assert all(path.is_file() for path in files(tmp_path)), "nothing else is left"


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[1]",
        "[" * 100_000,
        '{"changes": {"rps": 0.1}}',
        '{"schema": 2, "changes": {"rps": 0.1}}',
        '{"schema": 1, "changes": {"rps": -0.1}}',
        '{"schema": 1, "changes": {"rps": NaN}}',
        '{"schema": 1, "changes": {"rps": 1e200}}',
        '{"schema": 1, "changes": {"rps": 0.01, "p99": 20.1}}',
        '{"schema": 1, "changes": [0.1]}',
    ],
)
def test_what_is_damaged_is_left_out(history: History, tmp_path: Path, damage: str) -> None:
    history.add({"rps": 0.01}, START_NS)
    history.add({"rps": 0.02}, START_NS + DAY_NS)
    files(tmp_path)[0].write_text(damage, encoding="utf-8")
    assert history.read().changes == ({"rps": 0.02},)
    assert history.read().spread(METRICS["rps"]).sessions == 1


@pytest.mark.parametrize("name", ["notes.json", "-1.json", "9" * 200 + "-0.json"])
def test_a_file_of_another_name_is_no_error(name: str, history: History, tmp_path: Path) -> None:
    history.add({"rps": 0.01}, START_NS)
    (file,) = files(tmp_path)
    file.with_name(name).write_text("{", encoding="utf-8")
    assert history.read().changes == ({"rps": 0.01},)
    history.add({"rps": 0.02}, START_NS + DAY_NS)
    assert len(files(tmp_path)) == 3


def test_bytes_that_are_no_text_are_left_out(history: History, tmp_path: Path) -> None:
    history.add({"rps": 0.01})
    files(tmp_path)[0].write_bytes(b"\xff\xfe")
    assert history.read().changes == ()


def test_metrics_of_another_version_are_left_out(history: History, tmp_path: Path) -> None:
    history.add({"rps": 0.01})
    content = {"schema": 1, "changes": {"rps": 0.01, "of the future": 0.1}}
    files(tmp_path)[0].write_text(json.dumps(content), encoding="utf-8")
    assert history.read().changes == ({"rps": 0.01},)


def test_what_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    history = History(blocked, HERE)
    history.add({"rps": 0.01})
    assert history.read().changes == ()


def test_it_is_no_baseline(history: History, tmp_path: Path) -> None:
    """Even where a file has the name of a module's baselines."""
    history.add({"rps": 0.01})
    (path,) = files(tmp_path)
    os.link(path, path.with_name("tests__test_a.py.json"))
    store = BaselineStore(tmp_path / "baselines")
    assert store.keys() == {}
    assert store.trees() == set()
    assert store.find("tests/test_a.py", "a", HERE) is None
    assert store.remove({"a"}) == 0
    assert len(files(tmp_path)) == 2


# --- Start-ups that get slower one after another


def recorded(rates: Sequence[Sequence[float]], *, cpu_us: float = 100.0) -> Recording:
    rounds = (
        round_of(max(1, round(rate)), boot=boot, index=index, server_cpu_ns=round(rate * cpu_us * 1000))
        for boot, of_boot in enumerate(rates)
        for index, rate in enumerate(of_boot)
    )
    return recording_of(*rounds, boots=tuple(Boot(index=boot) for boot in range(len(rates))))


def test_start_ups_that_get_slower_one_after_another_are_noticed() -> None:
    trend = known(trend_of(recorded([[1728, 1730, 1700], [1400, 1410, 1390], [992, 990, 1000], [780, 779, 790]])))
    assert trend.falls
    assert trend.of_rate
    assert [round(level, -1) for level in trend.levels] == [1720, 1400, 990, 780]


def test_no_trend_in_few_start_ups_small_changes_or_a_single_jump() -> None:
    assert trend_of(recorded([[1728], [780]])) is None
    assert trend_of(recorded([[1000] * 4, [980] * 4, [960] * 4, [940] * 4])) is None
    assert trend_of(recorded([[1000] * 4, [990] * 4, [500] * 4, [495] * 4])) is None
    assert trend_of(recorded([[1000] * 4, [700] * 4, [800] * 4, [500] * 4])) is None


def test_the_same_code_has_a_trend_by_chance_in_at_most_1_of_200_measurements() -> None:
    """Start-ups differ by 1 to 6 %, rounds by 3 to 9 %, and the machine drifts by up to 4 % a minute."""
    chance, found, trials = random.Random(2026), 0, 3000
    for _ in range(trials):
        of_boots, of_rounds, drift = chance.uniform(0.01, 0.06), chance.uniform(0.03, 0.09), chance.gauss(0, 0.012)
        levels = [chance.gauss(0, of_boots) + drift * boot for boot in range(chance.randint(3, 6))]
        rates = [[2000 * math.exp(level + chance.gauss(0, of_rounds)) for _ in range(4)] for level in levels]
        found += trend_of(recorded(rates)) is not None
    assert found <= 0.005 * trials
