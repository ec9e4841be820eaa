"""How cores are shared out between server and generator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_fileperf.serve import spec as cores

two_cores = pytest.mark.skipif(cores.split_cores(1) is None, reason="needs two cores that processes can be kept to")
Split = tuple[frozenset[int], frozenset[int]] | None

TWO_THREADS_A_CORE = {0: "0,4", 1: "1,5", 2: "2,6", 3: "3,7", 4: "0,4", 5: "1,5", 6: "2,6", 7: "3,7"}
NEIGHBOURS = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
FOUR_AND_FOUR = {0: "0-1,8-9", 1: "0-1,8-9", 2: "2", 8: "0-1,8-9"}

SPLITS: dict[str, tuple[set[int], dict[int, str], int, Split]] = {
    "two": ({0, 1}, {}, 1, (frozenset({1}), frozenset({0}))),
    "one": ({0}, {}, 1, None),
    "too few for two workers": ({0, 1}, {}, 2, None),
    "two workers": ({2, 3, 5}, {}, 2, (frozenset({3, 5}), frozenset({2}))),
    "spare ones stay free": (set(range(8)), {}, 2, (frozenset({1, 2}), frozenset({0}))),
    "own physical cores first": ({0, 4, 5, 1}, TWO_THREADS_A_CORE, 1, (frozenset({1}), frozenset({0}))),
    "neighbouring threads": ({0, 1, 2, 3}, NEIGHBOURS, 1, (frozenset({2}), frozenset({0}))),
    "four threads a core": ({0, 1, 2, 8}, FOUR_AND_FOUR, 1, (frozenset({2}), frozenset({0}))),
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
    monkeypatch.setattr(cores, "CPUS", tmp_path)
    assert cores.split_cores(workers) == split


@pytest.mark.parametrize(
    "available, generators, own", [(8, 3, {0, 3, 4}), (5, 3, {0, 3, 4}), (4, 3, {0, 3}), (3, 3, {0}), (8, 1, {0})]
)
def test_each_of_several_generators_has_a_core_where_there_are_enough(
    available: int, generators: int, own: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(available)), raising=False)
    monkeypatch.setattr(cores, "CPUS", tmp_path)
    assert cores.split_cores(2, generators) == (frozenset({1, 2}), frozenset(own))


def test_without_affinity_nothing_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cores.split_cores(1) is None
