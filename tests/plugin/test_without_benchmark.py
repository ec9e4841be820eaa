"""Without pytest-benchmark everything works but `--fileperf-save`, which says how to get it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from versions.repositories import Repo, needs_git

Run = Callable[..., pytest.RunResult]

SHORT = (
    "--fileperf-server=inprocess",
    "--fileperf-duration=0.3s",
    "--fileperf-rounds=3",
    "--fileperf-max-duration=2s",
    "--fileperf-connections=2",
)
NOT_INSTALLED = """
import sys

assert "pytest_benchmark" not in sys.modules
sys.modules["pytest_benchmark"] = None  # as if it were not installed
"""


@needs_git
def test_baselines_and_reports_have_commit_and_machine(repo: Repo, run_apart: Run) -> None:
    repo.write("conftest.py", NOT_INSTALLED)
    commit = repo.commit()
    files = ("--fileperf-html=x.html", "--fileperf-json=x.json")
    result = run_apart("--fileperf-update=all", *SHORT, *files)
    result.assert_outcomes(passed=1)
    (baseline,) = repo.top.glob(".fileperf/*/*.json")
    (entry,) = json.loads(baseline.read_text(encoding="utf-8"))["tests"].values()
    assert entry["commit"]["id"] == commit
    assert entry["commit"]["branch"] == repo.git("rev-parse", "--abbrev-ref", "HEAD")
    assert json.loads((repo.top / "x.json").read_text(encoding="utf-8"))["environment"]["cpu"]
    assert commit[:7] in (repo.top / "x.html").read_text(encoding="utf-8")


def test_saving_says_how_to_get_it(pytester: pytest.Pytester, run_apart: Run) -> None:
    pytester.makeconftest(NOT_INSTALLED)
    result = run_apart("--fileperf-save=one")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: fileperf: --fileperf-save: it writes pytest-benchmark's files, install it with pip install"
            ' "pytest-fileperf?benchmark?"'
        ]
    )
