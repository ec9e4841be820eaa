"""What a run writes where it measures nothing or cannot write, and what it asks Git; the rest is in contracts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from plugin.conftest import Run
from versions.repositories import Repo, needs_git

from pytest_fileperf.plugin.written import commit_of


def test_a_run_that_measures_nothing_writes_only_what_failed(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/')")
    path = project.path / "run.json"
    path.write_text('{\n  "asked": of an earlier run')
    files = ("--fileperf-json=run.json", "--fileperf-html=run.html", "--fileperf-markdown=run.md")
    run_load("--fileperf-smoke", "--fileperf-app=no.such:app", *files).assert_outcomes(failed=1)
    assert [one["name"] for one in json.loads(path.read_text(encoding="utf-8"))["failed"]] == ["test_it"]
    for name in ("run.html", "run.md"):
        assert "no measurement; 1 test failed" in (project.path / name).read_text(encoding="utf-8")

    project.makepyfile("def test_of_other_things(): assert False")
    nothing = f"fileperf: nothing was measured, so {path} was not written"
    run_load("--fileperf-json=run.json").stdout.fnmatch_lines([f"{nothing}. The existing file comes from an *"])
    path.unlink()
    run_load("--fileperf-json=run.json").stdout.fnmatch_lines([nothing])
    assert not path.exists()
    run_load("--fileperf-json=run.json", "--collect-only").stdout.no_fnmatch_line("*no measurement*")


def test_a_summary_of_a_step_that_cannot_be_written_fails_no_run(
    project: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project.makepyfile("def test_it(fileperf): fileperf.get('/', connections=1, requests=50, warmup=0, gate='none')")
    full = tmp_path / "full"
    full.write_bytes(b"x" * (1 << 20))
    for path, said in (
        (full, "the CI step's summary is full. *"),
        (tmp_path, f"cannot add the report to the CI step's summary {tmp_path}: *"),
    ):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
        result = run_load("--fileperf")
        assert result.ret == pytest.ExitCode.OK
        result.stdout.fnmatch_lines([f"fileperf: {said}"])


@needs_git
@pytest.mark.skipif(os.name == "nt", reason="the hook is a shell script")
def test_facts_about_the_commit_run_no_hook_and_leave_the_index(repo: Repo, run_load: Run) -> None:
    hook = repo.write(".git/hooks/fsmonitor", "#!/bin/sh\necho called >> .git/called\nexit 1\n")
    hook.chmod(0o755)
    repo.git("config", "core.fsmonitor", str(hook))
    os.utime(repo.top / "server_app.py", (1e9, 1e9))  # Git would note it in the index
    (repo.top / ".git" / "called").unlink(missing_ok=True)
    before = (repo.top / ".git" / "index").read_bytes()
    run_load("--fileperf-smoke", "--fileperf-save", "--fileperf-html=out.html").assert_outcomes(passed=1)
    assert not (repo.top / ".git" / "called").exists()
    assert (repo.top / ".git" / "index").read_bytes() == before


@needs_git
@pytest.mark.parametrize(
    "named,page",
    [
        ({}, None),
        ({"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "a/b"}, "https://github.com/a/b/commit/"),
        ({"CI_PROJECT_URL": "https://gitlab.com/a/b"}, "https://gitlab.com/a/b/-/commit/"),
        ({"GITHUB_SERVER_URL": "https://git.intranet", "GITHUB_REPOSITORY": "a/b"}, None),
        ({"CI_PROJECT_URL": "https://gitlab.com.intranet/a/b"}, None),
    ],
)
def test_a_commit_has_its_page_on_public_services_only(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, named: dict[str, str], page: str | None
) -> None:
    for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "CI_PROJECT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    commit = commit_of(repo.top)
    assert commit is not None
    assert commit.get("url") == (page and f"{page}{commit['id']}")


NOT_INSTALLED = """
import sys

assert "pytest_benchmark" not in sys.modules
sys.modules["pytest_benchmark"] = None  # as if it were not installed
"""


@needs_git
def test_without_pytest_benchmark_only_saving_is_missed(repo: Repo, run_apart: Run) -> None:
    repo.write("conftest.py", NOT_INSTALLED)
    commit = repo.commit()
    short = ("--fileperf-server=inprocess", "--fileperf-duration=0.3s", "--fileperf-rounds=3")
    result = run_apart("--fileperf-update=all", *short, "--fileperf-html=x.html", "--fileperf-json=x.json")
    result.assert_outcomes(passed=1)
    (baseline,) = repo.top.glob(".fileperf/*/*.json")
    (entry,) = json.loads(baseline.read_text(encoding="utf-8"))["tests"].values()
    assert entry["commit"]["id"] == commit
    assert entry["commit"]["branch"] == repo.git("rev-parse", "--abbrev-ref", "HEAD")
    assert json.loads((repo.top / "x.json").read_text(encoding="utf-8"))["environment"]["cpu"]
    assert commit[:7] in (repo.top / "x.html").read_text(encoding="utf-8")

    result = run_apart("--fileperf-save=one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    install = 'pip install "pytest-fileperf?benchmark?"'
    result.stdout.fnmatch_lines([f"ERROR: fileperf: --fileperf-save needs pytest-benchmark: {install}"])
