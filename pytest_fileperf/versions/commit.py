"""The commit that is checked out, as stored baselines and reports tell it. The keys are those of pytest-benchmark."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.repository import find_repository

__all__ = ("commit_info", "project_name")


def commit_info(directory: Path) -> dict[str, object] | None:
    """Returns what Git says of the code that a directory is in; None where it says nothing, or has no commit.

    `id` is the full hash, `time` and `author_time` are ISO 8601, `branch` is a name or `(detached head)`, and `dirty`
    is whether files that Git knows have changed since. Runs Git.
    """
    try:
        repository = find_repository(directory)
    except PlanError:
        return None
    shown = None if repository is None else repository.answers("show", "-s", "--format=%H%n%cI%n%aI", "HEAD")
    if repository is None or shown is None:
        return None
    commit, time, author_time = shown.splitlines()[-3:]  # a signature that is shown stands above
    branch = repository.answers("rev-parse", "--abbrev-ref", "HEAD")
    return {
        "id": commit,
        "time": time,
        "author_time": author_time,
        "dirty": bool(repository.answers("status", "--porcelain", "--untracked-files=no")),
        "branch": "(detached head)" if branch == "HEAD" else branch,
    }


def project_name(directory: Path) -> str:
    """Returns the name of the project in a directory: that of its remote repository, else of the directory.

    Runs Git.
    """
    try:
        repository = find_repository(directory)
    except PlanError:
        repository = None
    remote = "" if repository is None else repository.answers("config", "--local", "remote.origin.url") or ""
    # The host of a URL may have a login before it, and the path a token behind it.
    path = re.sub(r"^\w+://[^/]*|[?#].*|[/\s]+$", "", remote)
    name = re.split(r"[/:\\]", path)[-1].removesuffix(".git")
    return name if name and "@" not in name else directory.name
