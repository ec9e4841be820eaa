"""Gates: which change has which outcome, what that does to the test and the exit code, and what stays untouched."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from contracts.answers import answering
from contracts.project import Project, Ran, results

STORED = """
import os
import pytest

pytestmark = pytest.mark.fileperf(server="inprocess", connections=2, requests=60, boots=1, gate="rps")

def test_slower(fileperf):
    fileperf.get("/")

def test_slower_mean(fileperf):
    fileperf.get("/", gate=("rps", "mean"), tolerance={"rps": "9900%"})

def test_faster(fileperf):
    fileperf.get("/")

def test_tolerant(fileperf):
    fileperf.get("/", gate="rps, mean", tolerance={"rps": "900%", "mean": "5% and 1s"}, watch="p50")

def test_other_load(fileperf):
    fileperf.get("/", connections=int(os.environ.get("CONNECTIONS", "2")))

def test_other_machine(fileperf):
    fileperf.get("/")
"""
NEW = """
import pytest

pytestmark = pytest.mark.fileperf(server="inprocess", connections=2, requests=20, boots=1)

def test_gated(fileperf):
    fileperf.get("/")

def test_limited(fileperf):
    fileperf.get("/", min_rps=1)

@pytest.mark.parametrize("seconds", [0.02, 0.002])
def test_ranked(fileperf, seconds):
    fileperf.get("/", app=f"app_{str(seconds).partition('.')[2]}:app", group="sleeps", gate=False)
"""
IN_TURN = """
from pytest_fileperf import part

def test_get(fileperf):
    fileperf.get("/", connections=4, gate=("rps", "p50"), watch="rss", max_duration="10s")

def test_free(fileperf):
    fileperf.get("/", connections=2, requests=4, gate="none")

async def journey(client):
    async with client.step("login"):
        await client.get("/")

def test_mix(fileperf):
    parts = {part.get(path, name=name, gate="p50"): 1 for name, path in (("same", "/wait"), ("slower", "/"))}
    parts[part.run(journey, steps={"login": {"gate": "p50"}}, gate="none")] = 1
    fileperf.mix(parts, connections=4, gate="none", max_duration="10s")
"""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose baselines were changed by hand: to those of faster or slower code, or of a larger machine."""
    project = Project(top=tmp_path_factory.mktemp("gates"))
    project.write({"app.py": answering(0.002), "test_it.py": STORED})
    ran = project.run("--fileperf-update=all", "--fileperf-reason=answers are signed now")
    assert "6 baselines stored" in ran.said, ran.text
    (file,) = (project.top / ".fileperf").glob("*-*/test_it.py.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    changed = (
        ("slower", "rps", 1e6),
        ("faster", "rps", 1e-6),
        ("slower_mean", "mean", 1e-3),
        ("tolerant", "mean", 0.1),
    )
    for name, metric, factor in changed:
        for boot in content["tests"][f"test_it.py::test_{name}"]["evidence"]["boots"]:
            for values in (boot["rounds"], boot["runs"]):
                if metric in values:
                    value = values[metric]
                    values[metric] = [one * factor for one in value] if isinstance(value, list) else value * factor
    content["tests"]["test_it.py::test_slower"]["packages"]["uvicorn"] = "0.0.1"
    other = {"test_it.py::test_other_machine": content["tests"].pop("test_it.py::test_other_machine")}
    file.write_text(json.dumps(content), encoding="utf-8")
    elsewhere = file.parent.with_name("another-00000000")
    elsewhere.mkdir()
    content |= {"environment": {**content["environment"], "cores": 999}, "tests": other}
    (elsewhere / file.name).write_text(json.dumps(content), encoding="utf-8")
    other["test_it.py::test_other_machine"]["captured"] = "2020-01-01T00:00:00+00:00"
    older = elsewhere.with_name("older-00000000")
    older.mkdir()
    content |= {"environment": {**content["environment"], "cores": 998}}
    (older / file.name).write_text(json.dumps(content), encoding="utf-8")
    return project


@pytest.fixture(scope="module")
def judged(stored: Project) -> Ran:
    options = ("--fileperf-confirm=never", "--fileperf-markdown=run.md", "--tb=short")
    return stored.run(*options, env={"CONNECTIONS": "3", "GITHUB_ACTIONS": "true"}, width=120)


def test_outcomes_by_stored_figures(stored: Project, judged: Ran) -> None:
    standings = {name.removeprefix("test_"): one["standing"] for name, one in results(judged).items()}
    assert standings == {
        "slower": "REGRESSED",
        "slower_mean": "REGRESSED",
        "faster": "IMPROVED",
        "tolerant": "PASS",
        "other_load": "INCONCLUSIVE",
        "other_machine": "INCONCLUSIVE",
    }, judged.text
    assert (judged.status, "2 failed, 2 passed, 2 inconclusive" in judged.said) == (1, True), judged.text
    assert "load.connections was 2, is 3" in judged.said, judged.text
    assert "another machine (cores was 999, is " in judged.said, judged.text
    (undecided,) = (line for line in judged.text.splitlines() if "title=INCONCLUSIVE test_other_load" in line)
    assert undecided.startswith("::warning "), undecided
    assert "uvicorn 0.0.1 → " in judged.said, judged.text
    markdown = (stored.top / "run.md").read_text(encoding="utf-8")
    assert markdown.index("| **REGRESSED** |") < markdown.index("| **INCONCLUSIVE** |"), markdown
    unbroken = " ".join(judged.text.replace("\nE ", "\n").split())
    assert unbroken.count("reason given for the baseline") == 2, judged.text


def test_a_comparison_has_both_sides_the_right_way_round(judged: Ran) -> None:
    by_name = {name: one["verdict"]["comparisons"] for name, one in results(judged).items()}
    (slower,), (faster,), (_, mean) = (by_name[f"test_{name}"] for name in ("slower", "faster", "slower_mean"))
    assert slower["now"] < slower["base"]
    assert slower["low"] <= slower["change"] <= slower["high"] < 0 < faster["low"] <= faster["change"]
    assert mean["now"] > mean["base"]
    assert (mean["metric"], mean["tolerance"], mean["change"] > 0) == ("mean", 0.06, True)


def test_what_is_only_watched_and_a_floor_s_loss_fail_nothing(stored: Project, judged: Ran) -> None:
    _, mean, p50 = results(judged)["test_tolerant"]["verdict"]["comparisons"]
    assert (mean["outcome"], mean["floor"], mean["change"] > 1) == ("PASS", 1.0, True), mean
    assert (p50["outcome"], p50["base"] is not None) == ("WATCHED", True), p50
    assert re.search(r"p50 \S+ ms → \S+ ms [^]]+\] WATCHED", judged.said), judged.text
    assert "p50 " in (stored.top / "run.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("strict,ci,failed", [(True, "false", 2), (False, "true", 1)])
def test_what_is_new_fails_where_that_is_asked_for(project: Project, strict: bool, ci: str, failed: int) -> None:
    apps = {"app.py": answering(), "app_02.py": answering(0.02), "app_002.py": answering(0.002)}
    option = "--fileperf-strict" if strict else "--fileperf-group-by=func"
    ran = project.write({**apps, "test_it.py": NEW}).run(option, "--tb=line", env={"CI": ci})
    assert ran.status == 1, ran.text
    assert f"{4 - failed} passed" in ran.said, ran.text
    assert [one["standing"] for one in results(ran).values()] == ["NEW", "NEW", "-", "-"]
    slow, fast = (results(ran)[f"test_ranked[{seconds}]"]["summary"]["latency"]["min"] for seconds in (0.02, 0.002))
    assert fast < 0.019 <= slow, "each has its own app"  # timers of event loops are good to a millisecond
    (ranking,) = ran.record["rankings"]
    assert ranking["group"] == ("sleeps" if strict else "test_ranked")
    assert ranking["places"]["nodeid"] == [f"test_it.py::test_ranked[{seconds}]" for seconds in (0.002, 0.02)], ranking


def test_versions_in_turn(project: Project) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=project.top, check=True, capture_output=True, timeout=60)
        return done.stdout.decode()

    fast, slow = (f"import _version\n{answering(seconds)}" for seconds in (0.002, 0.02))
    project.write({".gitignore": "__pycache__/\n_version.py\n", "_version.py": "", "test_it.py": IN_TURN})
    project.write({"app.py": slow, "pyproject.toml": "[project.optional-dependencies]\na = []\n"}).commit()
    project.write({"app.py": fast}).commit()
    before = git("rev-parse", "--short=7", "HEAD~1").strip()
    assert f"against {before} (the commit before HEAD)" in project.run("--fileperf-against=HEAD", "--co").said

    git("clone", "-q", "--depth=1", f"file://{project.top}", f"{project.top}-shallow")
    refused = Project(top=project.top.with_name(f"{project.top.name}-shallow")).run("--fileperf-against=HEAD~1", "--co")
    assert (refused.status, "`git fetch --unshallow`" in refused.said) == (4, True), refused.text
    refused = project.run("--fileperf-against=HEAD~9", "--co")
    assert (refused.status, "older than the history" in refused.said) == (4, True), refused.text
    refused = project.run("--fileperf-against=./", "--co")
    assert (refused.status, "both versions would be the same" in refused.said) == (4, True), refused.text

    project.write({"app.py": slow, "new.py": "VALUE = 1\n", "pyproject.toml": ""})
    untouched = (("status", "--porcelain"), ("stash", "list"), ("worktree", "list"), ("for-each-ref",))
    state = [git(*words) for words in untouched]
    head = git("rev-parse", "--short=7", "HEAD").strip()
    history = project.top.with_name(f"{project.top.name}.jsonl")
    more = (f"--fileperf-history={history}", "--fileperf-server=uvicorn:uds=yes", "--tb=short")
    ran = project.run("--fileperf-against=HEAD", *more, width=120)
    assert (ran.status, results(ran)["test_get"]["standing"], "2 failed, 1 passed" in ran.said) == (
        1,
        "REGRESSED",
        True,
    ), ran.text
    parts = {one["test"]["step"] or one["test"]["part"]: one for one in ran.record["results"] if one["test"]["part"]}
    assert parts["slower"]["standing"] == parts["login"]["standing"] == "REGRESSED", ran.text
    assert parts["same"]["standing"] != "REGRESSED", ran.text
    assert {one["base"]["title"] for one in parts.values()} == {f"HEAD ({head})"}
    assert re.search(rf"RegressionError: #slower: p50 .* compared with HEAD \({head}\)", ran.said), ran.text
    assert re.search(rf" #journey#login: p50 .* compared with HEAD \({head}\)", ran.said), ran.text
    assert "--fileperf-update" not in ran.said, ran.text
    assert "pyproject.toml differs between the versions" in ran.said, ran.text
    rps, p50, rss = results(ran)["test_get"]["verdict"]["comparisons"]
    assert (rss["outcome"], rss["low"] <= rss["change"] <= rss["high"]) == ("WATCHED", True), rss
    assert -0.95 < rps["change"] < -0.7
    assert p50["now"] > 0.02 > p50["base"] > 0.002
    assert [git(*words) for words in untouched] == state
    assert not (project.top / ".fileperf").exists()
    (line,) = map(json.loads, history.read_text(encoding="utf-8").splitlines())
    assert (line["commit"][:7], line["dirty"], line["branch"]) == (head, True, git("branch", "--show-current").strip())
    assert {test["old"] for test in line["tests"].values()} == {git("rev-parse", "HEAD^{tree}").strip()[:12]}
    assert line["tests"]["test_it.py::test_get"]["ratios"]["rps"][0] < -1
    assert "test_it.py::test_mix#slower" in line["tests"]
    assert str(project.top) not in history.read_text(encoding="utf-8")
