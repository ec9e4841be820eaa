"""`python -m pytest_fileperf trend` in a repository with a history, and the script that keeps one on a branch."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from command import command

SCRIPT = Path(__file__).parents[1] / "examples" / "trend" / "push_history.sh"
BEGIN = datetime(2026, 10, 1, tzinfo=UTC)
ENV = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CI", "GITHUB_"))},
    **{f"GIT_{role}_{what}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def git(directory: Path, *words: str, given: bytes = b"") -> str:
    done = subprocess.run(["git", *words], cwd=directory, input=given, capture_output=True, check=True, env=ENV)
    return done.stdout.decode().strip()


def trend(directory: Path, *words: str) -> tuple[int, str, str]:
    """Runs the command, where `directory` is; returns its exit code and both outputs."""
    out, complaint = io.StringIO(), io.StringIO()
    with contextlib.chdir(directory), contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaint):
        status = command("trend", *words)
    return status, out.getvalue(), complaint.getvalue()


def committed(directory: Path, days: int) -> list[str]:
    """Makes a repository with a commit a day, and returns these."""
    git(directory, "init", "-q", "-b", "main")
    commits = b"".join(
        f"commit refs/heads/main\ncommitter x <x@example.org> {int((BEGIN + timedelta(days=day)).timestamp())} +0000\n"
        f"data 1\nx\nM 100644 inline file\ndata {len(str(day))}\n{day}\n".encode()
        for day in range(days)
    )
    git(directory, "fast-import", "--quiet", given=commits)
    git(directory, "reset", "-q", "--hard")
    return git(directory, "rev-list", "--reverse", "main").split()


def line_of(day: int, commit: str, tests: Mapping[str, object], machine: str = "linux") -> str:
    run = {
        "at": (BEGIN + timedelta(days=100)).isoformat(),
        "made": (BEGIN + timedelta(days=day)).isoformat(),
        "commit": commit,
        "branch": "main",
        "tree": f"{day + 1:012d}",
        "machine": machine,
        "packages": "p",
        "tests": tests,
    }
    return json.dumps({"v": 1, "id": "", **run}) + "\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of 40 commits, each with a run: −2 % at 15, −5 % at 25, and ten times −0.5 % from 28 on."""
    directory, rng = tmp_path_factory.mktemp("project"), np.random.default_rng(4)
    lines = []
    for day, commit in enumerate(committed(directory, 40)):
        level = -0.02 * (day >= 15) - 0.05 * (day >= 25) - 0.005 * min(max(day - 27, 0), 10)
        metrics = {
            "rps": (level + rng.normal(0, 0.005), 0.005, 6),
            "p99": (rng.normal(0, 0.05), 0.05, 6),
        }
        same = {"rps": (rng.normal(0, 0.005), 0.005, 6)}
        tests = {
            "test_api.py::test_upload": {"old": "0" * 12, "work": "w", "ratios": metrics},
            **{f"test_api.py::test_{name}": {"old": "0" * 12, "work": "w", "ratios": same} for name in "abcd"},
        }
        lines.append(line_of(day, commit, tests))
    git(directory, "tag", "v1", "main~19")
    (directory / ".fileperf").mkdir()
    (directory / ".fileperf" / "history.jsonl").write_text("".join(lines[::-1]))
    return directory


def test_steps_and_slow_changes_are_told_with_their_commits(project: Path) -> None:
    status, said, complaint = trend(project, "--json=trend.json", "--html=trend.html")
    lines = said.splitlines()
    assert (status, complaint, len(lines) <= 12) == (0, "", True), said
    assert all(len(line) <= 80 for line in lines), said
    assert lines[0] == "trend of 40 runs since 2026-10-01; change [90 %] since the first baseline"
    assert re.match(r"test_upload +rps [▁-█]{20}  −1[012]\.\d % \[−", lines[2]), said
    first, second, slow = lines[3:6]
    commits = git(project, "rev-list", "--reverse", "main").split()
    for line, at in ((first, 15), (second, 25)):
        assert any(f" by {commits[near][:7]} of 2026-10-" in line for near in range(at - 3, at + 4)), said
    assert " slowly, " in slow, said
    assert re.search(r"\d more, (none|\d) of them with lasting changes\. Show", said), said
    assert "no lasting change; a change of 2 % would show within" in said

    (upload,) = [one for one in json.loads((project / "trend.json").read_text()) if one["steps"]]
    assert [step["slow"] for step in upload["steps"]] == [False, False, True]
    true = np.expm1(-0.12)
    assert upload["low"] - 0.01 < true < upload["high"] + 0.01
    page = (project / "trend.html").read_text()
    assert page.count("<figure>") == 6
    assert "<script" not in page
    assert page.index("test_upload rps") < page.index("test_a rps")


def test_a_loss_since_a_release_fails_where_it_is_sure(project: Path) -> None:
    status, said, complaint = trend(project, "--since=v1", "--fail-over=5%", "--metric=rps")
    assert status == 1, said
    assert complaint == "test_api.py::test_upload: rps became worse by more than 5% since v1\n"
    assert "change [90 %] since v1" in said
    assert trend(project, "--since=2026-10-21", "--fail-over=20%", "--metric=rps")[0] == 0
    assert trend(project, "--since=v1", "--fail-over=5%", "-k", "test_b")[0] == 0


def test_two_kinds_of_machine_and_a_renewed_baseline_make_no_step(tmp_path: Path) -> None:
    """Eight unchanged tests, and one that lost 5 % in run 50. From run 20 on every other run is one in CI.

    There ratios are 0.7 % higher, and the baseline is another one: code that was 4 % faster. From run 40 on all compare
    with the code of run 35, which was stored because it looked 2 % better.
    """
    rng, commits = np.random.default_rng(6), committed(tmp_path, 70)
    files: dict[str, list[str]] = {"laptop": [], "ci": []}
    for day, commit in enumerate(commits):
        is_ci, is_lucky, is_renewed = day >= 20 and day % 2 == 0, day == 35, day >= 40
        old, base = (f"{36:012d}", 0.0) if is_renewed else ("1" * 12, 0.04) if is_ci else ("0" * 12, 0.0)
        tests = {}
        for name in "abcdefghi":
            error = rng.uniform(0.005, 0.015)
            true = 0.007 * is_ci - base - 0.05 * (name == "i" and day >= 50)
            tests[f"test_api.py::test_{name}"] = {
                "old": old,
                "work": "w",
                "ratios": {"rps": (rng.normal(true, error) + 0.02 * is_lucky, error, 6)},
                "stored": is_lucky,
            }
        machine = "ci" if is_ci else "laptop"
        files[machine].append(line_of(day, commit, tests, machine))
    for name, lines in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    status, said, complaint = trend(tmp_path, "laptop.jsonl", "ci.jsonl", "--json=trend.json")
    assert (status, complaint, "left out" in said, "--link" in said) == (0, "", False, False), said
    *unchanged, changed = json.loads((tmp_path / "trend.json").read_text())
    assert {(one["test"], len(one["runs"])) for one in unchanged if one["steps"]} == set(), said
    assert sum(one["low"] < 0 < one["high"] for one in unchanged) >= 6, "the links' errors are in the total"
    (step,) = changed["steps"]
    assert (step["commit"] in commits[48:53], step["low"] < -0.049 < step["high"]) == (True, True), said


def test_baselines_beside_the_history_are_no_code_of_a_release(tmp_path: Path) -> None:
    """All runs compare with v1, which has baselines in the directory `perf`."""
    first, *later = committed(tmp_path, 12)
    (tmp_path / "perf").mkdir()
    (tmp_path / "perf" / "base.json").write_text("{}")
    git(tmp_path, "reset", "-q", "--hard", first)
    git(tmp_path, "add", "perf")
    git(tmp_path, "commit", "-q", "-m", "x")
    git(tmp_path, "tag", "v1")
    tests = {"test_api.py::test_get": {"old": git(tmp_path, "rev-parse", f"{first}^{{tree}}")[:12], "work": "w"}}
    tests["test_api.py::test_get"]["ratios"] = {"rps": (-0.05, 0.01, 6)}  # type: ignore[assignment]
    lines = [line_of(day + 3000, commit, tests) for day, commit in enumerate(later)]
    (tmp_path / "perf" / "history.jsonl").write_text("".join(lines))
    status, said, complaint = trend(tmp_path, "--since=v1", "perf/history.jsonl", "--fail-over=3%")
    assert (status, "rps became worse by more than 3% since v1" in complaint) == (1, True), said + complaint


def test_wrong_words_are_refused(project: Path, tmp_path: Path) -> None:
    for words, status, complaint in (
        (
            ("--fail-over=5%", "--since=2027-01-01"),
            1,
            "the runs do not show how much test_api.py::test_upload, test_api.py::test_a, ",
        ),
        (("--fail-over=5%",), 2, "--fail-over needs a start, as in --since=v1.4"),
        (("--fail-over=3", "--since=v1"), 2, "would be 300%. Write a percentage, as in 3%"),
        (("--fail-over=much", "--since=v1"), 2, "--fail-over: 'much' isn't a share"),
        (("--since=v9",), 1, "--since=v9 is neither a commit nor a day such as 2026-11-20"),
        (("-k", "other"), 1, "no result in this history has this test and metric. Its tests are test_api.py::test_a, "),
        ((str(tmp_path / "none"),), 1, "Run pytest with --fileperf-history to write it"),
    ):
        found = trend(project, *words)
        assert (found[0], complaint in found[2]) == (status, True), found


def test_ten_jobs_push_to_one_branch_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "init", "-q", "--bare", str(bare))
    jobs = []
    for number in range(10):
        clone = tmp_path / str(number)
        git(tmp_path, "clone", "-q", str(bare), str(clone))
        if number == 0:
            (clone / "README.md").write_text("kept")
            git(clone, "checkout", "-q", "-b", "fileperf-history")
            git(clone, "add", "README.md")
            git(clone, "commit", "-qm", "x")
            git(clone, "push", "-q", "origin", "fileperf-history")
        (clone / "new.jsonl").write_text(f'{{"v":1,"number":{number}}}\n')
        jobs.append(subprocess.Popen([SCRIPT, "new.jsonl"], cwd=clone, env=ENV))
    assert [job.wait(timeout=60) for job in jobs] == [0] * 10
    again = subprocess.run([SCRIPT, "new.jsonl"], cwd=tmp_path / "3", env=ENV, check=False, timeout=60)
    assert again.returncode == 0
    kept = [json.loads(line)["number"] for line in git(bare, "show", "fileperf-history:history.jsonl").splitlines()]
    assert sorted(kept) == list(range(10))
    assert git(bare, "show", "fileperf-history:README.md") == "kept"


def test_a_page_takes_whatever_error_a_history_may_hold(tmp_path: Path) -> None:
    metrics = {"rps": (0.0, 1e-200, 6)}
    tests = {"test_api.py::test_get": {"old": "0" * 12, "work": "w", "ratios": metrics}}
    lines = [line_of(day, commit, tests) for day, commit in enumerate(committed(tmp_path, 4))]
    (tmp_path / "history.jsonl").write_text("".join(lines))
    status, said, complaint = trend(tmp_path, "history.jsonl", "--html=trend.html")
    assert (status, complaint) == (0, ""), said
    assert "Trend of rps" in (tmp_path / "trend.html").read_text()
