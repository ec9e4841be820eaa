"""What is compared with where the commit that is checked out was named: what was there before."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from versions.repositories import Repo, git, needs_git

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.checkout import Against, parse_against
from pytest_fileperf.versions.source import Source, instead_of_itself

pytestmark = needs_git


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Three commits on main; a remote branch of that name is there too."""
    repo = Repo.make(tmp_path / "repo")
    for number in range(3):
        repo.commit(app_py=f"{number}")
    repo.git("update-ref", "refs/remotes/origin/main", "main")
    return repo


def found(name: str, repo: Repo, env: Mapping[str, str] | None = None) -> Against:
    against = parse_against(name, cwd=repo.top, rootdir=repo.top)
    with Source(repo.top, Path(".fileperf")) as source:
        return instead_of_itself(against, name, source, env or {})


def test_the_commit_before_the_one_that_is_checked_out(repo: Repo) -> None:
    parent = repo.git("rev-parse", "HEAD~1")
    repo.write(".fileperf/test_it.json", "{}")
    repo.write("__pycache__/app.pyc", "")
    for name in ("origin/main", "HEAD"):
        against = found(name, repo)
        assert (against.commit, against.title) == (parent, f"{parent[:7]} (the commit before {name})")
        said = f"{name} is the commit that is checked out, so it is compared with the commit before it, {parent[:7]}"
        assert against.notes == (said,)


def test_of_a_merge_it_is_the_first_parent(repo: Repo) -> None:
    repo.git("checkout", "--quiet", "-b", "side", "HEAD~1")
    repo.commit(other_py="")
    repo.git("checkout", "--quiet", "main")
    before = repo.git("rev-parse", "HEAD")
    repo.git("merge", "--quiet", "--no-ff", "--no-edit", "side")
    assert found("main", repo).commit == before


def test_files_that_changed_are_compared_with_the_commit_itself(repo: Repo) -> None:
    repo.write("app.py", "changed")
    against = found("HEAD", repo)
    assert (against.commit, against.notes) == (repo.git("rev-parse", "HEAD"), ())


def test_another_commit_and_a_first_one_stay(repo: Repo) -> None:
    first = repo.git("rev-parse", "HEAD~2")
    assert found("HEAD~2", repo).commit == first
    repo.git("checkout", "--quiet", first)
    assert found("HEAD", repo).commit == first


def of_github(repo: Repo, before: object) -> dict[str, str]:
    event = repo.write(".git/event.json", json.dumps({"before": before}))
    sha = repo.git("rev-parse", "HEAD")
    return {"GITHUB_EVENT_NAME": "push", "GITHUB_SHA": sha, "GITHUB_EVENT_PATH": str(event)}


def of_gitlab(repo: Repo, before: str) -> dict[str, str]:
    return {"CI_COMMIT_SHA": repo.git("rev-parse", "HEAD"), "CI_COMMIT_BEFORE_SHA": before}


@pytest.mark.parametrize("service", [of_github, of_gitlab])
def test_what_ci_says_was_there_before_the_push(service: object, repo: Repo) -> None:
    assert callable(service)
    first = repo.git("rev-parse", "HEAD~2")
    against = found("origin/main", repo, service(repo, first))
    assert (against.commit, against.title) == (first, f"{first[:7]} (origin/main before this push)")
    assert against.notes[0].endswith(f"so it is compared with what was there before this push, {first[:7]}")


def test_what_ci_says_is_left_where_it_is_no_use(repo: Repo) -> None:
    head, parent, first = (repo.git("rev-parse", f"HEAD~{back}") for back in range(3))
    repo.git("checkout", "--quiet", "--orphan", "elsewhere")
    rewritten = repo.commit()
    repo.git("checkout", "--quiet", "main")
    for before in ("0" * 40, "f" * 40, head, rewritten, "HEAD~2", None, 1):
        assert found("main", repo, of_github(repo, before)).commit == parent
    assert found("main", repo, {**of_gitlab(repo, first), "CI_COMMIT_SHA": first}).commit == parent
    assert found("main", repo, {**of_github(repo, first), "GITHUB_EVENT_PATH": "nowhere"}).commit == parent
    assert found("main", repo, {**of_github(repo, first), "GITHUB_EVENT_NAME": "schedule"}).commit == parent


@pytest.mark.parametrize(
    "variable,advice", [("GITHUB_ACTIONS", "`fetch-depth: 0` at actions/checkout"), ("GITLAB_CI", "`GIT_DEPTH: 0`")]
)
def test_a_clone_without_it_is_told_how_to_get_it(
    variable: str, advice: str, repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", repo.top.as_uri(), "shallow")
    monkeypatch.setenv(variable, "true")
    with pytest.raises(PlanError) as raised:
        found("origin/main", Repo(tmp_path / "shallow"))
    said = str(raised.value)
    assert "the commit before it is not here" in said
    assert "`git fetch --depth=2`" in said
    assert advice in said


def test_the_same_code_is_recognised(repo: Repo) -> None:
    repo.commit()
    with Source(repo.top, Path(".fileperf")) as source:
        assert source.is_that_of("HEAD~1")
        assert not source.is_that_of("HEAD~2")
        assert not source.is_that_of("f" * 40)
    repo.write("app.py", "changed")
    with Source(repo.top, Path(".fileperf")) as source:
        assert not source.is_that_of("HEAD")
