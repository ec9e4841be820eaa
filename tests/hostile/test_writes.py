"""Runs that get a signal at every write: each file is as it was or as it was to be, and the next run tidies up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from hostile.runs import LOAD, project_in
from serve.processes import posix

DYING = Path(__file__).with_name("dying_runs.py")
TESTS = f"""
import pytest
pytestmark = pytest.mark.fileperf({LOAD})

def test_before(fileperf):
    fileperf.get("/")

def test_now(fileperf):
    fileperf.get("/")
"""


STEP = int(os.environ.get("STEP", "2"))
"""Every second write gets one of three signals: all writes are twice as many runs, which STEP=1 makes."""


@posix
def test_a_signal_at_any_write_damages_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    project = project_in(tmp_path, TESTS)
    env = {key: value for key, value in os.environ.items() if key != "CI"} | {"OPENBLAS_NUM_THREADS": "1"}
    command = (sys.executable, str(DYING), str(project), str(STEP))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert found["wrong"] == [], (project / "log.txt").read_text(errors="replace")[-3000:]
    kinds = Counter(write.partition(" ")[0] for write in found["writes"])
    assert kinds["os.rename"] == 3  # a baseline and two reports
    assert kinds["open"] >= 2 * kinds["os.rename"]
