"""Which kept code a baseline still names: in any working tree, and on any branch, of the repository."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.repository import GitError, Repository, find_repository

__all__ = ("needed_among",)

_PATIENCE_S = 10.0
_MOST_REFS = 100
_BASELINES = "*.json"
_GREP = ("grep", "-F", "-h", "-o", "--text", "--no-line-number", "--no-column", "--no-color")
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}


def needed_among(
    repository: Repository, trees: Iterable[str], baselines: Path, *, patience_s: float = _PATIENCE_S
) -> set[str]:
    """Returns those of the trees that a JSON file names, as each baseline does. In doubt all of them.

    Such a file may lie in the directory of the baselines, in any working tree (also ignored by Git), in the commit
    that is checked out there, in the stash, or on a branch, also of a remote.
    """
    trees = set(trees)
    ends_at = time.monotonic() + patience_s
    try:
        named = _in_directory(baselines, trees)
        if named == trees:
            return named
        tops, commits = _working_trees(repository)
        for top in tops:
            inside = find_repository(top)
            if inside is None:
                return trees
            named |= _grep(inside, trees, "--untracked", "--no-exclude-standard", ends_at=ends_at)
        refs = ("refs/heads", "refs/remotes", "refs/stash")
        commits.update(repository.ask("for-each-ref", "--format=%(objectname)", *refs).split())
        if len(commits) > _MOST_REFS:
            return trees
        if commits:
            named |= _grep(repository, trees, commits=sorted(commits), ends_at=ends_at)
    except (GitError, PlanError, OSError):
        return trees
    return named


def _in_directory(baselines: Path, trees: set[str]) -> set[str]:
    """Returns the trees that a file below the directory names: it may lie outside the repository."""
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in baselines.rglob(_BASELINES))
    return {tree for text in texts for tree in trees if tree in text}


def _working_trees(repository: Repository) -> tuple[list[Path], set[str]]:
    """Returns the top of each working tree that has not been removed, and the commits that are checked out there."""
    tops, commits = [], set()
    for facts in _blocks(repository.ask("worktree", "list", "--porcelain")):
        if "bare" in facts or "prunable" in facts:
            continue
        tops.append(Path(facts["worktree"]))
        if facts.get("HEAD", "").strip("0"):  # zeros stand for no commit
            commits.add(facts["HEAD"])
    return tops, commits


def _blocks(listed: str) -> Iterator[dict[str, str]]:
    for block in listed.split("\n\n"):
        lines = (line.partition(" ") for line in block.split("\n") if line)
        if facts := {key: value for key, _, value in lines}:
            yield facts


def _grep(
    repository: Repository, trees: Iterable[str], *words: str, commits: Iterable[str] = (), ends_at: float
) -> set[str]:
    """Returns the trees that JSON files name, of the files or of commits. Raises GitError, also out of time."""
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise GitError("no time left")
    trees = sorted(trees)
    patterns = (word for tree in trees for word in ("-e", tree))
    said = repository.ask(
        *_GREP, *words, *patterns, *commits, "--", _BASELINES, env=_NO_FETCH, timeout_s=left_s, fine=(0, 1)
    )
    return {tree for tree in trees if tree in said}
