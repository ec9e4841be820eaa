"""How cores are shared out between server and generator."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from serve.processes import linux

from pytest_fileperf.serve import cores
from pytest_fileperf.serve.process_tree import process_tree
from pytest_fileperf.serve.running import RunningServer

two_cores = pytest.mark.skipif(cores.split_cores(1) is None, reason="needs two cores that processes can be kept to")
Split = tuple[frozenset[int], frozenset[int]] | None

TWO_THREADS_A_CORE = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
NEIGHBOURS = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}

SPLITS: dict[str, tuple[set[int], dict[int, str], int, Split]] = {
    "two": ({0, 1}, {}, 1, (frozenset({1}), frozenset({0}))),
    "one": ({0}, {}, 1, None),
    "too few for two workers": ({0, 1}, {}, 2, None),
    "two workers": ({2, 3, 5}, {}, 2, (frozenset({3, 5}), frozenset({2}))),
    "spare ones stay free": (set(range(8)), {}, 2, (frozenset({1, 2}), frozenset({0}))),
    "own physical cores first": ({0, 4, 5, 1}, TWO_THREADS_A_CORE, 1, (frozenset({1}), frozenset({0}))),
    "neighbouring threads": ({0, 1, 2, 3}, NEIGHBOURS, 1, (frozenset({2}), frozenset({0}))),
    "second threads when there is no other way": ({0, 1, 2, 3}, NEIGHBOURS, 2, (frozenset({2, 1}), frozenset({0}))),
}


@pytest.mark.parametrize("available,siblings,workers,split", SPLITS.values(), ids=SPLITS)
def test_split(
    available: set[int],
    siblings: dict[int, str],
    workers: int,
    split: Split,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for core, listed in siblings.items():
        topology = tmp_path / f"cpu{core}" / "topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{listed}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: available, raising=False)
    assert cores.split_cores(workers, cpus=tmp_path) == split


def test_without_affinity_nothing_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.split_cores(1) is None


@pytest.mark.parametrize("text,parsed", [("0", {0}), ("0-1\n", {0, 1}), ("0,4", {0, 4}), ("1-2,8-9", {1, 2, 8, 9})])
def test_core_lists(text: str, parsed: set[int]) -> None:
    assert cores._parse_core_list(text) == parsed


ONE, OTHER, TWO = frozenset({1}), frozenset({0}), frozenset({1, 2})
BOOTS = {
    "one core each": (ONE, OTHER, {0: 0, 1: 0}, (ONE, OTHER)),
    "no NUMA": (ONE, OTHER, {}, (ONE, OTHER)),
    "memory of their own": (ONE, OTHER, {0: 0, 1: 1}, (ONE, ONE)),
    "several workers": (TWO, OTHER, {0: 0, 1: 0, 2: 0}, (TWO, TWO)),
}


@pytest.mark.parametrize("server,generator,nodes,where", BOOTS.values(), ids=BOOTS)
def test_where_two_servers_boot_side_by_side(
    server: frozenset[int],
    generator: frozenset[int],
    nodes: dict[int, int],
    where: tuple[frozenset[int], frozenset[int]],
    tmp_path: Path,
) -> None:
    (tmp_path / "self" / "task").mkdir(parents=True)
    for core in (0, 1, 2):
        (tmp_path / f"cpu{core}").mkdir()
    for core, node in nodes.items():
        (tmp_path / f"cpu{core}" / f"node{node}").mkdir()
    assert cores.boot_cores(server, generator, cpus=tmp_path, proc=tmp_path) == where


def test_without_a_list_of_threads_nothing_boots_elsewhere(tmp_path: Path) -> None:
    assert cores.boot_cores(ONE, OTHER, cpus=tmp_path, proc=tmp_path / "none") == (ONE, ONE)


class Running(RunningServer):
    """A process, as a server."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        return process_tree(self.pid)

    def check(self) -> None:
        """Nobody asks."""


FAMILY = """
import subprocess, sys, threading

for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
look = "import os, sys; sys.stdin.readline(); print(sorted(os.sched_getaffinity(0)), flush=True)"
if sys.argv[1:]:
    print("ready", flush=True)
    sys.stdin.readline()
    subprocess.run([sys.executable, "-c", look], input="now", text=True)
else:
    child = subprocess.Popen([sys.executable, __file__, "child"], stdin=subprocess.PIPE)
    sys.stdin.readline()
    child.communicate(b"now")
"""
"""A process with a child, both with threads, whose child says which cores one has that it starts later."""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "family.py").write_text(FAMILY, encoding="utf-8")
    command = [sys.executable, str(tmp_path / "family.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@two_cores
def test_a_server_is_moved_with_its_threads_and_children_and_what_they_start(family: subprocess.Popen[str]) -> None:
    core = min(os.sched_getaffinity(0))
    server = Running(family.pid)
    threads = [thread.id for process in server.processes for thread in process.threads()]

    assert cores.keep_to(frozenset({core}), server)

    assert len(threads) == 8
    assert {frozenset(os.sched_getaffinity(thread)) for thread in threads} == {frozenset({core})}
    assert family.communicate("now\n")[0] == f"[{core}]\n"


@two_cores
def test_what_is_started_while_it_is_moved_is_moved_too(
    family: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    core, move, late = min(os.sched_getaffinity(0)), os.sched_setaffinity, Running(family.pid)
    seen = iter([late.processes[:1]])
    moved: list[int] = []

    def noted(thread: int, cores: frozenset[int]) -> None:
        moved.append(thread)
        move(thread, cores)

    monkeypatch.setattr(Running, "processes", property(lambda self: next(seen, process_tree(self.pid))))
    monkeypatch.setattr(os, "sched_setaffinity", noted)
    assert cores.keep_to(frozenset({core}), late)
    assert len(moved) == len(set(moved)) == 8
    family.communicate("now\n")


RESTLESS = """
import threading

def again():
    threading.Thread(target=again).start()

again()
print("ready", flush=True)
threading.Event().wait()
"""


@two_cores
def test_a_server_whose_threads_are_always_new_is_moved_in_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a thread that is moved are where it is."""
    core = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", RESTLESS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            server = Running(process.pid)
            before = cores.is_on(frozenset({core}), server)
            moved = cores.keep_to(frozenset({core}), server)
            main_thread = os.sched_getaffinity(process.pid)
        finally:
            process.kill()
    assert not before
    assert moved
    assert main_thread == {core}


@linux
def test_a_server_that_has_ended_is_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    assert not cores.keep_to(frozenset(os.sched_getaffinity(0)), Running(process.pid))


@two_cores
def test_a_server_that_is_not_ours_to_move_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: int, cores: frozenset[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refused)
    assert not cores.keep_to(frozenset({min(os.sched_getaffinity(0))}), Running(os.getpid()))


@two_cores
def test_a_server_of_which_a_process_stays_behind_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: None)
    assert not cores.keep_to(frozenset({min(os.sched_getaffinity(0))}), Running(os.getpid()))
