"""Baselines: what is stored, replaced, kept and removed, in files and in Git; and what is in no file."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from contracts.answers import answering
from contracts.project import Project, results

ALIKE = """
import pytest

pytestmark = pytest.mark.fileperf(server="inprocess", connections=2, requests=20, boots=1)
"""
FIRST = f"""{ALIKE}
def test_one(fileperf):
    fileperf.get("/?key=canary-query", headers={{"Authorization": "canary-token"}}, cookies={{"c": "canary-cookie"}})

def test_two(fileperf):
    fileperf.get("/", json={{"password": "canary-body"}})
    fileperf.get("/more")

def test_fails(fileperf):
    assert fileperf.get("/").errors == 1

@pytest.fixture
def broken():
    yield
    raise OSError("left over")

def test_torn_down(broken, fileperf):
    fileperf.get("/")

def test_limit(fileperf):
    fileperf.get("/", min_rps=1e9)
"""
ENDING = f"""{ALIKE}
def test_skips(fileperf):
    fileperf.get("/")
    pytest.skip("enough")

@pytest.mark.xfail
def test_expected(fileperf):
    fileperf.get("/")
    raise OSError
"""
NOT_STORED = {f"test_{name}": "the test did not pass" for name in ("fails", "torn_down", "skips", "expected")}
SECOND = f"""{ALIKE}
def test_three(fileperf):
    fileperf.get("/")
"""
IN_TURN = """
def test_get(fileperf):
    fileperf.get("/", connections=4, gate="rps", duration="0.5s", max_duration="30s", warmup="0.1s")
"""


def stored(top: Path) -> Mapping[str, Any]:
    """Returns the entries of all files, by the tests' node ids."""
    found: dict[str, Any] = {}
    for file in top.glob("*-*/*.json"):
        found |= json.loads(file.read_text(encoding="utf-8"))["tests"]
    return found


def kept(project: Project) -> set[str]:
    """Returns the trees that are kept in the repository."""
    command = ["git", "for-each-ref", "--format=%(refname)", "refs/fileperf"]
    done = subprocess.run(command, cwd=project.top, check=True, capture_output=True, text=True, timeout=60)
    return {line.rpartition("/")[2] for line in done.stdout.split()}


def test_what_is_stored_stays_until_it_is_asked_for(project: Project) -> None:
    files = {
        ".gitignore": "__pycache__/\n",
        "app.py": answering(0),
        "test_a.py": FIRST,
        "test_b.py": SECOND,
        "test_c.py": ENDING,
    }
    project.write(files).commit()
    project.write({"new.py": "VALUE = 1\n"})
    directory = project.top / ".fileperf"

    asked = ("--fileperf-update=all", "--fileperf-prune", "--junitxml=run.xml")
    ran = project.run(*asked, "--fileperf-reason=why\n  so", "--tb=line")
    assert ran.status == 1, ran.text
    first = stored(directory)
    names = ["test_a.py::test_one", "test_a.py::test_two", "test_a.py::test_two#2", "test_b.py::test_three"]
    assert sorted(first) == names, ran.text
    assert "4 baselines stored" in ran.said, ran.text
    assert "4 measurements not stored: the test did not pass" in ran.said, ran.text
    assert "found no stale baselines in modules whose tests were all collected" in ran.said, ran.text
    cases = ElementTree.parse(project.top / "run.xml").iter("testcase")
    found = {str(case.get("name")): case.find(".//property[@name='fileperf_not_stored']") for case in cases}
    why = {name: one.get("value") for name, one in found.items() if one is not None}
    assert why == NOT_STORED, ran.text
    assert "1 measurement cannot become a baseline: a run with broken limits" in ran.said, ran.text
    assert {name for name, one in results(ran).items() if one["baseline_written"]} == {
        "test_one",
        "test_two",
        "test_three",
    }
    assert {one["reason"] for one in first.values()} == {"why so"}
    assert kept(project) == {one["tree"] for one in first.values()}
    assert "canary" not in "".join(path.read_text() for path in directory.rglob("*.json")) + str(ran.record)

    (project.top / "test_c.py").unlink()

    # Another code, and one test alone: the others keep what they have.
    project.write({"new.py": "VALUE = 2\n"})
    ran = project.run("--fileperf-update=all", "test_a.py::test_one")
    second = stored(directory)
    changed = [name for name in second if second[name] != first.get(name)]
    assert (sorted(second), changed, ran.status) == (names, ["test_a.py::test_one"], 0), ran.text
    assert kept(project) == {one["tree"] for one in second.values()}
    assert len(kept(project)) == 2

    # What is there stays, and what is missing is stored, where it was asked for; no code is kept where none is to be.
    project.write(
        {"new.py": "VALUE = 3\n", "test_b.py": f"{SECOND}\ndef test_four(fileperf):\n    fileperf.get('/')\n"}
    )
    options = ("--fileperf-baselines=other", "-o", "fileperf_keep_trees=false")
    ran = project.run("--fileperf-update=all", *options, "test_b.py::test_four")
    assert list(stored(project.top / "other")) == ["test_b.py::test_four"], ran.text
    assert (stored(directory), len(kept(project))) == (second, 2)

    # Nothing is removed by a selection, and what is gone only where that is asked for.
    project.write({"test_a.py": FIRST.replace("def test_two", "def test_renamed"), "new.py": "VALUE = 2\n"})
    (project.top / "test_b.py").unlink()
    ran = project.run("--fileperf-prune", "--lf", "--tb=no")
    assert "FAILED test_a.py::test_fails" in ran.said, ran.text
    assert [name for name in names if name not in stored(directory)] == ["test_b.py::test_three"], ran.text
    project.run("--fileperf-prune", "-k", "test_one", "--tb=no")
    assert len(stored(directory)) == 3
    shared = project.top.with_name(f"{project.top.name}-shared")  # other projects store there, too
    (shared / "any-00000000").mkdir(parents=True)
    (file,) = directory.glob("*-*/test_a.py.json")
    others = file.read_text(encoding="utf-8").replace("test_a.py", "test_of_others.py")
    (shared / "any-00000000" / "test_of_others.py.json").write_text(others, encoding="utf-8")
    project.run("--fileperf-prune", f"--fileperf-baselines={shared}", "-k", "test_renamed", "--tb=no")
    assert len(stored(shared)) == 3
    ran = project.run("--tb=no")
    assert "stale" in ran.said, ran.text
    assert len(stored(directory)) == 3
    project.run("--fileperf-prune", "--tb=no")
    assert sorted(stored(directory)) == ["test_a.py::test_one"]
    assert kept(project) == {second["test_a.py::test_one"]["tree"]}
    ran = project.run("--fileperf-update=all", env={"CI": "true"})
    assert (ran.status, "CI is set" in ran.said) == (4, True), ran.text


@pytest.mark.timeout(300)
def test_what_got_better_keeps_its_baseline_if_only_new_ones_are_asked_for(project: Project) -> None:
    project.write({".gitignore": "__pycache__/\n", "app.py": answering(0.05), "test_it.py": IN_TURN}).commit()
    project.write({"app.py": answering(0.02)})  # which is never committed
    directory = project.top / ".fileperf"
    tls = "--fileperf-server=uvicorn:tls=yes"
    assert "1 baseline stored" in project.run("--fileperf-update=all", tls).said
    before = stored(directory)
    project.write({"app.py": answering(0.002)})

    ran = project.told("IMPROVED", "--fileperf-update=new", "--fileperf-history", "-v", tls, width=120)
    assert (ran.status, results(ran)["test_get"]["standing"]) == (0, "IMPROVED"), ran.text
    assert "alternately with the code of its baseline" in ran.said, ran.text
    assert (stored(directory), results(ran)["test_get"]["not_stored"]) == (before, ""), ran.text
    line = json.loads((directory / "history.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    of_test = line["tests"]["test_it.py::test_get"]
    assert of_test["old"] == before["test_it.py::test_get"]["tree"][:12]
    assert (line["dirty"], 1 < of_test["ratios"]["rps"][0] < 4) == (True, True), line

    # The committed code was measured once, against the same baseline, and has a tag.
    (head,) = re.findall("[0-9a-f]{40}", (project.top / ".git" / "logs" / "HEAD").read_text(encoding="utf-8"))[-1:]
    ratios = {**of_test, "ratios": {"rps": [-0.9, 0.01, 6]}}
    told = {**line, "dirty": False, "tree": "0" * 12, "tests": {"test_it.py::test_get": ratios}, "id": "another"}
    with (directory / "history.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(told) + "\n")
    subprocess.run(["git", "tag", "v1", head], cwd=project.top, check=True, timeout=60)
    ran = project.run("--fileperf-history", "-v", tls, width=240)
    since = r"rps \+[\d,.]+ % since v1 \[90 %: \+.*\], \+[\d,.]+ % since the last baseline"
    assert re.search(since, ran.said), ran.text


def test_damage_is_told_by_its_path_and_nothing_is_lost(project: Project) -> None:
    project.write({"app.py": answering(0), "test_b.py": SECOND})
    project.run("--fileperf-update=all")
    (file,) = (project.top / ".fileperf").glob("*-*/test_b.py.json")
    good, key = file.read_text(encoding="utf-8"), '"test_b.py::test_three"'
    for bad, why in (
        (good.replace('"schema": 3', '"schema": 99'), "Upgrade pytest-fileperf"),
        (f"<<<<<<< HEAD\n{good}", "conflict markers of a merge, from line 1 on"),
        (good.replace(key, f"{key}: {{}},\n  {key}"), "a baseline has the key 'test_b.py::test_three' twice"),
    ):
        file.write_text(bad, encoding="utf-8")
        ran = project.run("--fileperf-update=all", "--tb=short")
        assert ran.status == 1, ran.text
        assert why in ran.said, ran.text
        assert "test_b.py.json" in ran.text.replace("\n", "").replace("E     ", ""), ran.text
        assert file.read_text(encoding="utf-8") == bad
