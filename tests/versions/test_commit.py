"""The commit that stored baselines and reports name."""

from __future__ import annotations

from pathlib import Path

import pytest
from versions.repositories import Repo, needs_git

from pytest_fileperf.versions.checkout import commit_info, project_name


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo.make(tmp_path / "project")


@needs_git
@pytest.mark.once
def test_all_of_a_commit_is_told(repo: Repo) -> None:
    commit = repo.commit(app_py="one")
    (repo.top / "below").mkdir()
    told = commit_info(repo.top / "below")
    assert told is not None
    times = repo.git("show", "-s", "--format=%cI %aI").split()
    assert told == {"id": commit, "time": times[0], "author_time": times[1], "dirty": False, "branch": "main"}


@needs_git
@pytest.mark.once
def test_changes_count_and_new_files_do_not(repo: Repo) -> None:
    repo.commit(app_py="one")
    repo.write("new.py", "new")
    told = commit_info(repo.top)
    assert told is not None
    assert told["dirty"] is False
    repo.write("app.py", "two")
    told = commit_info(repo.top)
    assert told is not None
    assert told["dirty"] is True


@needs_git
@pytest.mark.once
def test_a_detached_head_is_no_branch(repo: Repo) -> None:
    repo.git("checkout", "--quiet", repo.commit(app_py="one"))
    told = commit_info(repo.top)
    assert told is not None
    assert told["branch"] == "(detached head)"


@needs_git
@pytest.mark.once
def test_nothing_is_told_where_there_is_no_commit(repo: Repo, tmp_path: Path) -> None:
    assert commit_info(repo.top) is None
    (tmp_path / "elsewhere").mkdir()
    assert commit_info(tmp_path / "elsewhere") is None


def test_nothing_is_told_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_info(tmp_path) is None


REMOTES = {
    "https://user:canary@host.invalid/group/files.git": "files",
    "https://host.invalid/files.git?token=canary": "files",
    "https://user:canary@host.invalid": "project",
    "https://canary@host.invalid/": "project",
    "canary@host.invalid": "project",
    "/srv/git/files.git/": "files",
    "file:///srv/files": "files",
}


@needs_git
@pytest.mark.once
def test_a_project_has_the_name_of_its_remote_repository_or_of_its_directory(repo: Repo, tmp_path: Path) -> None:
    assert project_name(repo.top) == "project"
    repo.git("remote", "add", "origin", "git@example.invalid:someone/files.git")
    assert project_name(repo.top) == "files"
    for url, name in REMOTES.items():
        repo.git("remote", "set-url", "origin", url)
        assert project_name(repo.top) == name
    assert project_name(tmp_path) == tmp_path.name
