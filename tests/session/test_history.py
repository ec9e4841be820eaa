"""What a run's results say of the newest release, by a history in a repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from report.samples import result

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.judge.history import Run, TestRatios, append, read
from pytest_fileperf.judge.verdict import MetricComparison, Outcome
from pytest_fileperf.report import story
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.session import history
from pytest_fileperf.session.history import ratios_of, with_release, work_of
from pytest_fileperf.versions.repository import GitError
from pytest_fileperf.versions.source import Source

BEGIN = datetime(2026, 10, 1, tzinfo=UTC)


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def run_of(day: int, commit: str, tests: Mapping[str, TestRatios]) -> Run:
    return Run(
        at=(BEGIN + timedelta(days=100)).isoformat(),
        made=(BEGIN + timedelta(days=day)).isoformat(),
        commit=commit,
        tree=f"{day + 1:012d}",
        machine="linux",
        packages="p",
        tests=tests,
    )


def test_a_report_tells_the_change_since_the_newest_tag(tmp_path: Path) -> None:
    """Ten runs before v1, and ten after it that lost 4 %, against the baseline "0"; this one against that of run 15."""
    for words in (("init", "-q"), *(("commit", "-q", "--allow-empty", "-m", str(day)) for day in range(21))):
        git(tmp_path, *words)
    commits, path = git(tmp_path, "rev-list", "--reverse", "HEAD").split(), tmp_path / "history.jsonl"
    found = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, pairs=6, change=-0.002, log_ratio=-0.002, log_error=0.005
    )
    seen = result().having(comparisons=(found,), old_tree=f"{16:012d}" + "0" * 28)
    nodeid, work = seen.test.nodeid, work_of(seen.identity)
    for day, commit in enumerate(commits[:20]):
        ratios = TestRatios(old="0" * 12, work=work, ratios={"rps": (-0.04 * (day >= 10), 0.005, 6)})
        append(path, run_of(day, commit, {nodeid: ratios}))
    git(tmp_path, "tag", "v0", commits[3])
    git(tmp_path, "tag", "v1", commits[9])
    git(tmp_path, "tag", "of-this-code", commits[20])
    run = run_of(20, commits[20], ratios_of([seen]))
    with Source(tmp_path, Path(".fileperf")) as source:
        (told,) = with_release([seen], path, run, source)
        (again,) = with_release([told], tmp_path / "none.jsonl", run, source)
    said = "rps −4.1 % since v1 [90 %: −6.6, −1.5], −0.2 % since the last baseline"
    assert said in story.notes(told)
    assert said in story.brief_notes(told)
    page = markdown_report(SessionRecord(results=(told,)))
    assert page.index("v1 \\[90 %") < page.index("<details>"), "a loss is not folded"
    assert again == told
    (values,) = json.loads(results_json(SessionRecord(results=(told,))))["results"]
    (comparison,) = values["verdict"]["comparisons"]
    assert (comparison["since_release"]["release"], round(comparison["since_release"]["low"], 3)) == ("v1", -0.066)
    gain = told.having(comparisons=(replace(found, since_release=("v1", 0.04, 0.03, 0.05)),))
    assert "rps +4.0 % since v1 [90 %: +3.0, +5.0], −0.2 % since the last baseline" in story.notes(gain)
    assert not any("since v1" in note for note in story.brief_notes(gain))


def test_a_line_stays_if_the_changes_since_the_newest_tag_cannot_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "app.py").write_text("")
    git(tmp_path, "add", "app.py")
    git(tmp_path, "commit", "-q", "-m", "x")
    found = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, pairs=6, log_ratio=-0.002, log_error=0.005
    )
    seen = result().having(comparisons=(found,), old_tree="a" * 40)

    def unknown(*_: object) -> None:
        raise GitError("the repository is damaged")

    monkeypatch.setattr(history, "with_release", unknown)
    with Source(tmp_path, Path(".fileperf")) as source:
        results, said = history.added([seen], tmp_path / "history.jsonl", source)
    assert results == [seen]
    assert said.endswith(
        "history.jsonl. How much tests changed since the newest Git tag is unknown: the repository is damaged"
    )
    assert len(read([tmp_path / "history.jsonl"])[0]) == 1
