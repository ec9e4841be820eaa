"""The code that is tested, as a tree of Git, and the code of a stored baseline, found again.

A baseline names the tree of its code and the commit that was checked out. Code is found where a tree is equal to the
one stored: as objects in this repository, as that commit, or as the one that brought the baseline. It is never guessed.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.checkout import Against, Checkout, remove_directory
from pytest_fileperf.versions.repository import NO_GIT, GitError, Repository, find_repository, is_git_installed
from pytest_fileperf.versions.snapshot import Snapshots
from pytest_fileperf.versions.tree import CodeTree

__all__ = ("FoundCode", "Source", "SourceState")

_REFS = "refs/fileperf/"
_HASH = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PATIENCE_S = 30.0
"""A source tree of 20,000 files takes under a second. What takes longer is mostly data that nobody ignores."""
_MOST_COMMITS = 20
"""How many commits that changed an entry are looked at."""
_NOBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "pytest-fileperf"), ("EMAIL", "pytest-fileperf@localhost"), ("DATE", "@0 +0000"))
}
"""Who commits what is kept, and when: the same code is the same commit."""
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
"""Looking for code does not download it (Git 2.44 and newer)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """Which code is here."""

    tree: str
    """The hash of the repository's tree as the files are now, without the baselines."""
    commit: str | None
    """The full hash of the commit that is checked out; None where there is none yet."""
    dirty: bool
    """Whether the tree is not that of the commit."""
    title: str
    """`1a2b3c4`, `uncommitted code of 1a2b3c4`, or `uncommitted code`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCode:
    """The code of a baseline, which `Source.check_out` can put on disk."""

    tree: str
    title: str
    """`1a2b3c4` or `uncommitted code of 1a2b3c4`."""
    is_here: bool
    """Whether it is the code that is here."""


class Source:
    """Finds the code of baselines, and keeps the code of new ones.

        with Source(rootdir, baselines) as source:
            code = source.find(entry.tree, entry.commit)
            if isinstance(code, FoundCode):
                code_tree = source.check_out(code)
                ...  # end every server that runs there before the block ends

    Only `keep` and `forget` change the repository: objects and refs below `refs/fileperf/`, nothing else.
    """

    def __init__(
        self, rootdir: Path, baselines: Path, *, keeps_trees: bool = True, patience_s: float = _PATIENCE_S
    ) -> None:
        """Takes the directory of the test run and that of the baselines. Git has so long to read the files."""
        self._rootdir = rootdir
        self._baselines = baselines
        self._keeps_trees = keeps_trees
        self._patience_s = patience_s
        self._open = ExitStack()
        self._found: dict[tuple[str | None, str | None], FoundCode | str] = {}
        self._places: dict[str, str] = {}
        self._checked_out: dict[str, CodeTree] = {}
        self._notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was checked out. Can be repeated."""
        self._open.close()
        self._checked_out.clear()
        self.__dict__.pop("_snapshots", None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what could not be had, or kept, so far."""
        return tuple(dict.fromkeys(self._notes))

    @cached_property
    def here(self) -> SourceState | str:
        """Which code is here, found out once; a sentence why that cannot be told, and what to do."""
        repository = self._repository
        if isinstance(repository, str):
            return repository
        if isinstance(self._left_out, str):
            return self._left_out
        commit = repository.head()
        try:
            tree = self._snapshots.of_files()
            dirty = commit is None or tree != self._snapshots.of_commit(commit)
        except (PlanError, GitError, OSError) as error:
            return str(error)
        return SourceState(tree=tree, commit=commit, dirty=dirty, title=_title(commit, dirty=dirty))

    def find(self, tree: str | None, commit: str | None) -> FoundCode | str:
        """Returns the code of a baseline: of the tree stored with it, by the commit stored with it (a full hash).

        A text is a sentence: why it cannot be found, and what to do.
        """
        key = (tree, commit)
        if key not in self._found:
            self._found[key] = self._find(tree, commit)
        return self._found[key]

    def check_out(self, code: FoundCode) -> CodeTree:
        """Returns where the code lies, until this is closed. Raises PlanError where it cannot be put there."""
        if code.is_here:
            return CodeTree(title=code.title)
        if code.tree not in self._checked_out:
            repository = self._repository
            if isinstance(repository, str):
                raise PlanError(repository)
            there = CodeTree(title=code.title, here=repository.top)
            place = self._places.get(code.tree, code.tree)
            checkout = Checkout(Against(code_tree=there, commit=place, repository=repository))
            self._checked_out[code.tree] = self._open.enter_context(checkout)
            self._notes += checkout.notes
        return self._checked_out[code.tree]

    def keep(self) -> None:
        """Keeps the code that is here in this repository, where no commit has it; for a baseline that was just stored.

        Where that fails, `notes` say why.
        """
        here, repository = self.here, self._repository
        if not self._keeps_trees or isinstance(here, str) or isinstance(repository, str) or not here.dirty:
            return
        ref = _REFS + here.tree
        if repository.answers("rev-parse", "--verify", "--quiet", ref) is not None:
            return
        try:
            self._snapshots.keep(here.tree)
            parent = () if here.commit is None else ("-p", here.commit)
            words = ("commit-tree", here.tree, *parent, "-m", f"{here.title}, kept for a baseline of pytest-fileperf")
            repository.ask("update-ref", ref, repository.ask(*words, env=_NOBODY))
        except (PlanError, GitError, OSError) as error:
            self._notes.append(
                f"the {here.title} is not kept for its baseline ({error}): commit source and baseline together"
            )

    def forget(self, trees: Iterable[str]) -> None:
        """Lets Git remove the code of these trees some day, unless a commit has it. No baseline may need them."""
        repository = self._repository
        refs = {_REFS + tree for tree in trees}
        if not refs or isinstance(repository, str):
            return
        kept = (repository.answers("for-each-ref", "--format=%(refname)", _REFS) or "").split("\n")
        for ref in sorted(refs.intersection(kept)):
            repository.answers("update-ref", "-d", ref)

    @cached_property
    def _repository(self) -> Repository | str:
        if not is_git_installed():
            return f"{NO_GIT}, and the code of a baseline is found with it: install Git"
        try:
            found = find_repository(self._rootdir)
        except PlanError as error:
            return str(error)
        if found is None:
            return f"{self._rootdir} is in no Git repository, which would have the code of a baseline: `git init`"
        return found

    @cached_property
    def _left_out(self) -> tuple[str, ...] | str:
        """The baselines' directory from the top of the repository on, as it is written and with links followed."""
        repository = self._repository
        assert not isinstance(repository, str)
        top, written = repository.top.resolve(), Path(os.path.abspath(self._baselines))  # noqa: PTH100 # keeps links
        if self._rootdir.resolve().is_relative_to(written.resolve()):
            return (
                f"the baselines' directory {self._baselines} holds the code too: "
                "give the baselines a directory of their own (fileperf_baselines)"
            )
        paths = (written.parent.resolve() / written.name, written.resolve())
        return tuple({path.relative_to(top).as_posix() for path in paths if path.is_relative_to(top)})

    @cached_property
    def _snapshots(self) -> Snapshots:
        repository, left_out = self._repository, self._left_out
        assert not isinstance(repository, str)
        directory = Path(tempfile.mkdtemp(prefix="fileperf-source-")).resolve()
        self._open.callback(remove_directory, directory)
        own = (directory.relative_to(top).as_posix() for top in (repository.top.resolve(),) if top in directory.parents)
        return Snapshots(repository, directory, left_out=(*left_out, *own), patience_s=self._patience_s)

    def _find(self, tree: str | None, commit: str | None) -> FoundCode | str:
        repository = self._repository
        if isinstance(repository, str):
            return repository
        if tree is None:
            return "the baseline does not say which code it is of: store it again, in a Git repository"
        if not _HASH.fullmatch(tree) or (commit is not None and not _HASH.fullmatch(commit)):
            return f"{tree!r} of commit {commit!r} is no name of code in Git: the baseline is damaged, store it again"
        here = self.here
        if isinstance(self._left_out, str):
            return self._left_out
        if not isinstance(here, str) and here.tree == tree:
            return FoundCode(tree=tree, title=here.title, is_here=True)
        try:
            if _is_whole(repository, tree):
                dirty = commit is None or self._tree_of(commit) != tree
                return FoundCode(tree=tree, title=_title(commit, dirty=dirty), is_here=False)
            for candidate in self._candidates(repository, tree, commit):
                if self._tree_of(candidate) == tree:
                    self._places[tree] = candidate
                    return FoundCode(tree=tree, title=_title(candidate, dirty=False), is_here=False)
        except (GitError, OSError) as error:
            return f"Git cannot look for the baseline's code ({error}): store the baseline again"
        return _why_not_found(repository)

    def _candidates(self, repository: Repository, tree: str, commit: str | None) -> Iterator[str]:
        """Yields commits that may have the tree: the one stored, the one here, and those that brought the baseline."""
        head = repository.head()
        yield from filter(None, (commit, head))
        baselines = [path for path in self._left_out if path]
        if head is not None and baselines:
            words = ("log", "--format=%H", f"--max-count={_MOST_COMMITS}", f"-S{tree}", "--no-renames", head)
            literal = {"GIT_LITERAL_PATHSPECS": "1", **_NO_FETCH}
            yield from repository.ask(*words, "--", *baselines, env=literal).split()

    def _tree_of(self, commit: str) -> str | None:
        """Returns the tree of a commit without the baselines; None where the commit is not here."""
        repository = self._repository
        assert not isinstance(repository, str)
        if _kind(repository, commit) != "commit":
            return None
        return self._snapshots.of_commit(commit)


def _title(commit: str | None, *, dirty: bool) -> str:
    if commit is None:
        return "uncommitted code"
    return f"uncommitted code of {commit[:7]}" if dirty else commit[:7]


def _kind(repository: Repository, name: str) -> str | None:
    """Returns the kind of an object; None where it is not here."""
    try:
        return repository.ask("cat-file", "-t", name, env=_NO_FETCH)
    except GitError:
        return None


def _is_whole(repository: Repository, tree: str) -> bool:
    """Returns whether the repository has a tree with everything in it. Partial clones lack some, and fetch it late."""
    if _kind(repository, tree) != "tree":
        return False
    try:
        listed = repository.ask("rev-list", "--objects", "--missing=print", tree, env=_NO_FETCH)
    except GitError:
        return False
    return not any(line.startswith("?") for line in listed.split("\n"))


def _why_not_found(repository: Repository) -> str:
    where = f"the baseline's code is not in the Git repository {repository.top}"
    if advice := repository.how_to_get_history():
        return f"{where}; {advice}"
    return (
        f"{where} (its history was rewritten, or it was never committed): "
        "commit source and baseline together, or store the baseline again"
    )
