"""Stored baselines as a user meets them: real Git repositories, real servers, whole pytest runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from plugin.projects import MIX, UNTIL_IT_SHOWS, make_slower
from versions.repositories import Repo, git, needs_git

pytestmark = [needs_git, pytest.mark.timeout(300)]

Run = Callable[..., pytest.RunResult]
SHORT = (
    "--fileperf-server=uvicorn",
    "--fileperf-duration=0.3s",
    "--fileperf-rounds=3",
    "--fileperf-max-duration=2s",
    "--fileperf-connections=2",
)


def store(repo: Repo, run_load: Run) -> None:
    """Stores the baseline, also where others use the machine."""
    run_load("--fileperf-update=all", *SHORT).assert_outcomes(passed=1)


def change(top: Path) -> None:
    """Makes the code another one, which is as fast: nobody asks which outcome the noise allows."""
    app = top / "server_app.py"
    app.write_text(app.read_text() + "\n# another change\n")


def test_slower_code_fails_before_anything_is_committed(repo: Repo, run_load: Run) -> None:
    repo.write("test_it.py", MIX.format(gate="none"))
    (repo.top / "server_app.py").write_text((repo.top / "server_app.py").read_text() + "\n# not committed\n")
    store(repo, run_load)
    assert repo.git("for-each-ref", "refs/fileperf/")
    make_slower(repo, 0.1, "/wait/second")

    result = run_load("--fileperf-json=out.json", "--fileperf-html=out.html", *SHORT, UNTIL_IT_SHOWS)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*RegressionError: #second: p50 * worse than its *",
            "test_mix #second *REGRESSED",
            "FAILED *::test_mix - #second: p50 *",
        ]
    )
    entries = json.loads((repo.top / "out.json").read_text())["results"]
    regressed = [entry for entry in entries if entry["verdict"]["outcome"] == "REGRESSED"]
    assert [entry["test"]["part"] for entry in regressed] == ["second"]
    assert regressed[0]["verdict"]["comparisons"][0]["pairs"] >= 3
    assert entries[0]["verdict"]["code"].startswith("measured in turn with the code of its baseline")
    page = (repo.top / "out.html").read_text()
    assert "test_mix #second</a>" in page
    # What is stored leaves its code behind when it goes.
    (repo.top / "test_it.py").unlink()
    run_load("--fileperf-prune", *SHORT)
    assert not repo.git("for-each-ref", "refs/fileperf/")


def test_a_clone_has_the_code_of_a_baseline_that_was_committed_with_it(
    repo: Repo, run_load: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = repo.top / "server_app.py"
    app.write_text(app.read_text() + "\n# a change\n")
    store(repo, run_load)
    repo.commit()
    clone, shallow = tmp_path / "clone", tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", str(repo.top), str(clone))
    monkeypatch.chdir(clone)
    change(clone)
    run_load("--fileperf", f"--rootdir={clone}", f"--fileperf-json={clone}/out.json", *SHORT)
    (entry,) = json.loads((clone / "out.json").read_text())["results"]
    assert entry["verdict"]["code"].startswith("measured in turn with the code of its baseline")

    (repo.top / "README").write_text("Another commit\n")
    repo.commit()
    git(tmp_path, "clone", "--quiet", "--depth=1", repo.top.as_uri(), str(shallow))
    monkeypatch.chdir(shallow)
    change(shallow)
    result = run_load("--fileperf", f"--rootdir={shallow}", *SHORT)
    text = " ".join(re.sub(r"^E? *", "", line) for line in result.stdout.lines)
    assert "git fetch --unshallow" in text


def test_the_same_code_passes_and_is_not_measured_in_turn(repo: Repo, run_load: Run) -> None:
    store(repo, run_load)
    result = run_load("--fileperf-json=out.json", *SHORT)
    result.assert_outcomes(passed=1)
    (entry,) = json.loads((repo.top / "out.json").read_text())["results"]
    assert [item["outcome"] for item in entry["verdict"]["comparisons"]] == ["PASS"]
    assert entry["base"] is None
    assert entry["verdict"]["world"]
