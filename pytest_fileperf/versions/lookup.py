"""Where a repository may have the tree of a baseline: as objects, or as the files of a commit."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_fileperf.versions.repository import GitError, Repository
from pytest_fileperf.versions.snapshot import Snapshots

__all__ = ("candidates", "is_whole", "tree_of")

_MOST_CHANGES = 20
"""How many commits that changed an entry are looked at."""
_MOST_LATER = 20
"""How many commits after the one that an entry names are looked at, each for up to 0.1 s (20,000 files)."""
_PLAIN_LOG = ("-c", "log.follow=false", "-c", "log.showRoot=true", "-c", "log.showSignature=false", "log")
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
"""Looking for code does not download it (Git 2.44 and newer)."""


def candidates(snapshots: Snapshots, tree: str, commit: str | None) -> Iterator[str]:
    """Yields commits that may have the tree, the likeliest first, some repeatedly."""
    head = snapshots.repository.head()
    yield from filter(None, (commit, head))
    if head is None:
        return
    if inside := snapshots.left_out:
        changes = ("--format=%H", f"--max-count={_MOST_CHANGES}", f"-S{tree}", "--no-renames", "--no-textconv", head)
        yield from snapshots.ask(*_PLAIN_LOG, *changes, "--", *inside).split()
    if commit is not None and _kind(snapshots.repository, commit) == "commit":
        yield from snapshots.ask("rev-list", "--reverse", head, f"^{commit}").split()[:_MOST_LATER]


def tree_of(snapshots: Snapshots, commit: str) -> str | None:
    """Returns the tree of a commit without the baselines; None where the commit is not here."""
    return snapshots.of_commit(commit) if _kind(snapshots.repository, commit) == "commit" else None


def _kind(repository: Repository, name: str) -> str | None:
    """Returns the kind of an object; None where it is not here."""
    try:
        return repository.ask("cat-file", "-t", name, env=_NO_FETCH)
    except GitError:
        return None


def is_whole(repository: Repository, tree: str) -> bool:
    """Returns whether the repository has a tree with everything in it. Partial clones lack some, and fetch it late."""
    try:
        # First what fetches nothing in any version of Git.
        listed = repository.ask("rev-list", "--objects", "--no-walk", "--missing=print", tree, env=_NO_FETCH)
    except GitError:
        return False
    return not any(line.startswith("?") for line in listed.split("\n")) and _kind(repository, tree) == "tree"
