"""The CPU time of a process tree whose children begin and end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_fileperf.host.cpu import TreeCpu, tree_pids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")

PARENT = """
import os, signal, subprocess, sys, threading, time
code = "import time\\nwhile time.process_time() < 0.2: pass\\nprint(1, flush=True); input()"
burn = [sys.executable, "-S", "-c", code]
children = []

def begin():
    children.append(subprocess.Popen(burn, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    children[-1].stdout.readline()

for line in sys.stdin:
    if line == "begin\\n":
        thread = threading.Thread(target=begin)
        thread.start()
        thread.join()
    elif line == "ignore\\n":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        children[-1].communicate("")
    print("done", flush=True)
"""


class Parent:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process

    def do(self, what: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"


@contextmanager
def parent() -> Iterator[Parent]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Parent(process)


def test_children_count_while_they_live_and_when_they_have_ended() -> None:
    with parent() as own:
        tree = TreeCpu([own.pid])
        before = tree.spent_ns()
        assert before is not None
        own.do("begin")
        living = tree.spent_ns()
        assert living is not None
        assert living - before >= 190_000_000
        (child,) = set(tree.pids) - {own.pid}
        assert tree.above([child]) == {own.pid}
        own.do("end")
        ended = tree.spent_ns()
        assert ended is not None
        assert ended >= living - 20_000_000
        assert child not in tree.pids
        assert tree.ended_ns >= 180_000_000


def test_a_child_that_nobody_waits_for_leaves_the_time_unknown() -> None:
    with parent() as own:
        own.do("ignore")
        tree = TreeCpu([own.pid])
        tree.spent_ns()
        own.do("begin")
        assert tree.spent_ns() is not None
        own.do("end")
        assert tree.spent_ns() is None
        assert not tree.is_complete


def test_without_a_process_nothing_is_known() -> None:
    assert TreeCpu([]).spent_ns() is None
    assert tree_pids([os.getpid()])[0] == os.getpid()
