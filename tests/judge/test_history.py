"""What sessions showed of a machine: kept locally, bounded, and never a reason to fail."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.history import MOST_SESSIONS, History

HERE = Environment(system="Linux", machine="x86_64", cpu="CPU", cores=2, python="CPython 3.11")


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "baselines", HERE)


def files(directory: Path) -> list[Path]:
    return sorted((directory / "baselines" / ".local" / HERE.profile).glob("*.json"))


def test_sessions_are_read_as_they_were_added(history: History) -> None:
    assert history.read().changes == ()
    history.add({"rps": 0.012344, "p99": 0.1})
    history.add({"rps": 0.02})
    assert history.read().changes == ({"p99": 0.1, "rps": 0.01234}, {"rps": 0.02})


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
    for number in range(MOST_SESSIONS + 3):
        history.add({"rps": number / 1000})
    kept = history.read().changes
    assert [changes["rps"] for changes in kept] == [number / 1000 for number in range(3, MOST_SESSIONS + 3)]
    assert len(files(tmp_path)) == MOST_SESSIONS


def test_two_runs_may_write_at_the_same_time(history: History, tmp_path: Path) -> None:
    other = History(tmp_path / "baselines", HERE)
    with ThreadPoolExecutor(max_workers=4) as pool:
        for number in range(40):
            pool.submit((history, other)[number % 2].add, {"rps": number / 1000})
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
        '{"schema": 1, "changes": [0.1]}',
    ],
)
def test_what_is_damaged_is_left_out(history: History, tmp_path: Path, damage: str) -> None:
    history.add({"rps": 0.01})
    history.add({"rps": 0.02})
    files(tmp_path)[0].write_text(damage, encoding="utf-8")
    assert history.read().changes == ({"rps": 0.02},)


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
