"""What to compare with in place of the commit that is checked out: the commit before it.

After a push to main, `--fileperf-against=origin/main` names the very commit that CI has checked out. What was there
before is meant then: the branch before the push, where CI says what that was, or else the commit's first parent.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.checkout import Against
from pytest_fileperf.versions.repository import Repository
from pytest_fileperf.versions.source import Source

__all__ = ("instead_of_itself",)

_HASH = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


def instead_of_itself(against: Against, name: str, source: Source, env: Mapping[str, str] = os.environ) -> Against:
    """Returns the commit before the one that is checked out, where that one is compared with and no file has changed.

    All else is returned as it is, and a first commit too. `name` is how the user wrote it. Raises PlanError where the
    clone does not have the commit before.
    """
    repository, commit = against.repository, against.commit
    if repository is None or commit is None or commit != repository.head():
        return against
    here = source.here
    if isinstance(here, str) or here.dirty:
        return against
    found = f"{name} is the commit that is checked out"
    pushed_over = _pushed_over(repository, commit, env)
    if pushed_over is not None:
        title, before = f"{pushed_over[:7]} ({name} before this push)", pushed_over
        note = f"{found}, so it is compared with what was there before this push, {before[:7]}"
    elif (parent := repository.answers("rev-parse", "--verify", "--quiet", f"{commit}^1^{{commit}}")) is not None:
        title, before = f"{parent[:7]} (the commit before {name})", parent
        note = f"{found}, so it is compared with the commit before it, {before[:7]}"
    elif advice := repository.how_to_get_history("`git fetch --depth=2`, "):
        raise PlanError(f"{found}, and the commit before it is not here; {advice}", where=f"--fileperf-against={name}")
    else:
        return against
    return replace(
        against, commit=before, code_tree=replace(against.code_tree, title=title), notes=(*against.notes, note)
    )


def _pushed_over(repository: Repository, commit: str, env: Mapping[str, str]) -> str | None:
    """Returns what the branch was before the push of a commit; None where CI does not say it, or it is not here."""
    if env.get("GITHUB_EVENT_NAME") == "push":
        pushed, before = env.get("GITHUB_SHA"), _of_event(env.get("GITHUB_EVENT_PATH", ""))
    else:
        pushed, before = env.get("CI_COMMIT_SHA"), env.get("CI_COMMIT_BEFORE_SHA")
    # A new branch was nothing before, which is written as zeros; one that was rewritten has lost what it was.
    if pushed != commit or not isinstance(before, str) or not _HASH.fullmatch(before) or before == commit:
        return None
    return None if repository.answers("merge-base", "--is-ancestor", before, commit) is None else before


def _of_event(path: str) -> object:
    """Returns what the file about the event that started a workflow says of the branch before it."""
    try:
        event = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return event.get("before") if isinstance(event, dict) else None
