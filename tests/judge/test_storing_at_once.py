"""Runs that store at once, as real processes: no entry is lost, and none waits without an end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from judge.test_baseline import ENTRY, HERE, MODULE

from pytest_fileperf.errors import BaselineError
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge import baseline
from pytest_fileperf.judge.baseline import BaselineStore

STORES = """
import sys
from pathlib import Path
from judge.test_baseline import ENTRY, HERE, MODULE
from pytest_fileperf.judge.baseline import BaselineStore

store, name, count = BaselineStore(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
input()
for number in range(count):
    store.write(MODULE, f"{name}-{number}", ENTRY, HERE)
    store.write(MODULE, f"{name}-passing", ENTRY, HERE)
    store.remove([f"{name}-passing"])
"""
RUNS, ENTRIES = 2, 10


def store_at_once(directory: Path, *, runs: int, entries: int) -> set[str]:
    """Returns the keys that are stored after so many processes have stored so many entries each, all at one time."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", STORES, str(directory), str(run), str(entries)],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in range(runs)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    (file,) = directory.glob("*-*/*.json")
    return set(json.loads(file.read_text())["tests"])


def test_no_entry_is_lost(tmp_path: Path) -> None:
    found = store_at_once(tmp_path, runs=RUNS, entries=ENTRIES)
    assert found == {f"{run}-{number}" for run in range(RUNS) for number in range(ENTRIES)}


def test_a_run_that_holds_the_lock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "_LOCK_S", 0.1)
    with (
        locked(tmp_path / ".local" / "lock", within_s=1.0),
        pytest.raises(BaselineError, match=r"another run has been storing baselines in .* for 0\.1 s: end it"),
    ):
        BaselineStore(tmp_path).write(MODULE, "a", ENTRY, HERE)
    BaselineStore(tmp_path).write(MODULE, "a", ENTRY, HERE)
    assert (tmp_path / ".local" / ".gitignore").read_text() == "*\n"
