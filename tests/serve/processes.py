"""Looks at processes for tests: which of them live, and whether they all end in time."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

from pytest_fileperf.serve.tree import is_alive


def living(pids: Iterable[int]) -> list[int]:
    """Returns those that run; a zombie does not."""
    return [pid for pid in pids if psutil.pid_exists(pid) and is_alive(psutil.Process(pid))]


def remaining_after(timeout_s: float, pids: Iterable[int]) -> list[int]:
    """Returns those that still run at the end of the time; at once when there are none."""
    deadline = time.monotonic() + timeout_s
    left = living(pids)
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = living(left)
    return left
