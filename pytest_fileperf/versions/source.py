"""Finds the code that a stored baseline was measured with, by the hash of its Git tree.

A baseline names this hash, and the commit that was checked out.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Self

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host import scratch
from pytest_fileperf.versions.changed import Change
from pytest_fileperf.versions.checkout import Checkout, commit_info
from pytest_fileperf.versions.loaded import Digests, LoadedFiles, is_code, loaded_beside, loaded_inside
from pytest_fileperf.versions.repository import NO_GIT, GitError, Repository, find_repository, is_git_installed
from pytest_fileperf.versions.snapshot import Snapshots
from pytest_fileperf.versions.tree import CodeTree

# --- Where a repository may have a baseline's tree: as objects, or as a commit's files

_MOST_COMMITS = 20
"""The most commits that a search checks, because one check takes up to 0.1 s (20,000 files)."""
_PLAIN_LOG = ("-c", "log.follow=false", "-c", "log.showRoot=true", "-c", "log.showSignature=false", "log")
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1"}
"""With this environment variable, Git downloads nothing (Git 2.44 and newer)."""


def _candidates(snapshots: Snapshots, tree: str, commit: str | None) -> Iterator[str]:
    """Yields commits that may contain the baseline's code, first `commit`, which the baseline names."""
    head = snapshots.repository.head()
    yield from filter(None, (commit, head))
    if head is None:
        return
    if baselines := snapshots.left_out:
        changes = ("--format=%H", f"--max-count={_MOST_COMMITS}", f"-S{tree}", "--no-renames", "--no-textconv", head)
        yield from snapshots.ask(*_PLAIN_LOG, *changes, "--", *baselines).split()
    if commit is not None and _is_a(snapshots.repository, "commit", commit):
        yield from snapshots.ask("rev-list", "--reverse", head, f"^{commit}").split()[:_MOST_COMMITS]


def _tree_of(snapshots: Snapshots, commit: str) -> str | None:
    return snapshots.of_commit(commit) if _is_a(snapshots.repository, "commit", commit) else None


def _is_a(repository: Repository, kind: str, name: str) -> bool:
    """Returns whether the repository has an object with this name and Git's type, such as `tree`."""
    try:
        return repository.ask("cat-file", "-t", name, env=_NO_FETCH) == kind
    except GitError:
        return False


def _is_whole(repository: Repository, tree: str) -> bool:
    """Returns whether the repository has all of the tree's files. A partial clone may lack some."""
    try:
        # First a command that fetches nothing in any version of Git.
        listed = repository.ask("rev-list", "--objects", "--no-walk", "--missing=print", tree, env=_NO_FETCH)
    except GitError:
        return False
    return not any(line.startswith("?") for line in listed.split("\n")) and _is_a(repository, "tree", tree)


# --- Finds the kept code that baselines still name

_NEEDED_PATIENCE_S = 10.0


def needed_among(repository: Repository, trees: set[str], baselines: Path) -> set[str]:
    """Returns the `trees` that a baseline still names. If in doubt, returns all of them.

    Searches JSON files in the directory `baselines`, in all working trees, in the stash and in all branches.
    """
    ends_at = time.monotonic() + _NEEDED_PATIENCE_S
    try:
        # The directory may lie outside the repository.
        texts = (file.read_text(encoding="utf-8", errors="replace") for file in baselines.rglob("*.json"))
        named = {tree for text in texts for tree in trees if tree in text}
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
        if len(commits) > 100:
            return trees
        if commits:
            named |= _grep(repository, trees, commits=sorted(commits), ends_at=ends_at)
    except (GitError, PlanError, OSError):
        return trees
    return named


def _working_trees(repository: Repository) -> tuple[list[Path], set[str]]:
    tops, commits = [], set()
    for block in repository.ask("worktree", "list", "--porcelain").split("\n\n"):
        facts = {key: value for key, _, value in (line.partition(" ") for line in block.split("\n") if line)}
        if not facts or "bare" in facts or "prunable" in facts:
            continue
        tops.append(Path(facts["worktree"]))
        if facts.get("HEAD", "").strip("0"):  # zeros stand for no commit
            commits.add(facts["HEAD"])
    return tops, commits


def _grep(
    repository: Repository, trees: Collection[str], *words: str, commits: Iterable[str] = (), ends_at: float
) -> set[str]:
    """Returns the trees whose hashes occur in the commits' JSON files. Without commits, searches the working tree.

    Raises GitError, for example after `ends_at`, which is a time of `time.monotonic`.
    """
    left_s = ends_at - time.monotonic()
    if left_s <= 0:
        raise GitError("no time left")
    how = ("-F", "-h", "-o", "--text", "--no-line-number", "--no-column", "--no-color", *words)
    asked = ("grep", *how, *(word for tree in trees for word in ("-e", tree)), *commits, "--", "*.json")
    found = repository.ask(*asked, env=_NO_FETCH, timeout_s=left_s, fine=(0, 1))
    return {tree for tree in trees if tree in found}


# --- The tested code, and the code of baselines

_REFS = "refs/fileperf/"
_HASH = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SECRET = re.compile(r"(?:^|/)\.env[^/]*\Z|\.(?:key|p12|pem|pfx)\Z")
"""Untracked files that are never kept in the repository, because they may contain secrets."""
_STORE_AGAIN = "store the baseline again with `--fileperf-update=all`"
_NOBODY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "pytest-fileperf"), ("EMAIL", "pytest-fileperf@localhost"), ("DATE", "@0 +0000"))
}
"""A fixed author and date, so that the same code always gives the same commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    tree: str
    """The hash of the current files' Git tree, without the baselines."""
    commit: str | None
    """The full hash of the commit that is checked out. None before the first commit."""
    dirty: bool

    @property
    def title(self) -> str:
        if self.commit is None:
            return "uncommitted code"
        return f"{self.commit[:7]} with uncommitted changes" if self.dirty else self.commit[:7]


class Source:
    """Finds stored baselines' code, and keeps new baselines' code in the user's Git repository.

    `close` removes checked-out files. Only `keep` and `forget` change the repository: Git objects, and refs below
    `refs/fileperf/`.
    """

    def __init__(
        self, rootdir: Path, baselines: Path, *, keeps_trees: bool = True, outputs: Iterable[Path] = ()
    ) -> None:
        """Relative paths start at `rootdir`. Without `keeps_trees`, `keep` does nothing.

        The run writes its reports to the paths `outputs`. There, only Python files count as code.
        """
        self.rootdir = rootdir
        self._baselines = baselines
        self._keeps_trees = keeps_trees
        self._outputs = tuple(outputs)
        self._open = ExitStack()
        self._codes: dict[tuple[str | None, str | None], CodeTree | PlanError] = {}
        self._checked_out: dict[str, Path | None] = {}
        self._notes: list[str] = []
        self._new: Mapping[str, object] = {}
        """The untracked files that aren't sources, by path, at the first use of `here`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._open.close()
        self._codes.clear()
        self._checked_out.clear()
        self.__dict__.pop("_snapshots", None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user, such as about code that could not be kept."""
        return tuple(dict.fromkeys(self._notes))

    @cached_property
    def here(self) -> SourceState | str:
        """The current code's state, read only once. If it cannot be read, a sentence with the reason and advice."""
        try:
            snapshots = self._snapshots
        except PlanError as error:
            return str(error)
        commit = snapshots.repository.head()
        try:
            tree = snapshots.of_files()
            self._new = snapshots.new_files()
            dirty = commit is None or tree != snapshots.of_commit(commit)
        except (PlanError, GitError, OSError) as error:
            return _said(error)
        return SourceState(tree=tree, commit=commit, dirty=dirty)

    def commit_info(self) -> Mapping[str, object] | None:
        return commit_info(self.rootdir)

    def changed(self) -> tuple[str, ...]:
        """Returns the files that have changed since the first use of `here`."""
        here = self.here
        if isinstance(here, str):
            return ()
        try:
            tree = self._snapshots.of_files()
            of_tree = {} if tree == here.tree else self._snapshots.changed_between(here.tree, tree)
            new = self._snapshots.new_files()
            return *of_tree, *sorted(path for path in {*new, *self._new} if new.get(path) != self._new.get(path))
        except (PlanError, GitError, OSError) as error:
            return (f"the code ({_said(error)})",)

    def loaded_beside(self, loaded: LoadedFiles, code_tree: CodeTree | None = None, tree: str = "") -> Digests | None:
        """Returns digests of the loaded files that a Git tree lacks. The default tree is the current code's.

        None if the loaded files or the tree are unknown.
        """
        here = self.here
        paths = None if isinstance(here, str) or not loaded.is_known else self._paths_in(tree or here.tree)
        if paths is None:
            return None
        return loaded_beside(loaded, code_tree or CodeTree(here=self._snapshots.repository.top), paths)

    def loaded_inside(self, loaded: LoadedFiles, tree: str) -> tuple[str, ...] | None:
        """Returns the loaded files that the Git tree contains. None if the loaded files or the tree are unknown."""
        paths = self._paths_in(tree) if loaded.is_known else None
        return None if paths is None else loaded_inside(loaded, self._snapshots.repository.top.resolve(), paths)

    def _paths_in(self, tree: str) -> frozenset[str] | None:
        try:
            return self._snapshots.paths_in(tree)
        except (GitError, OSError):
            return None

    def change_since(self, commit: str) -> Change:
        """Returns the changes since the newest commit that the current code and `commit` share. Raises PlanError."""
        here = self.here
        if isinstance(here, str):
            raise PlanError(here)
        repository = self._snapshots.repository
        begun = repository.answers("merge-base", commit, "HEAD")
        if begun is None:
            why = repository.how_to_get_history() or "their histories are separate"
            raise PlanError(f"{commit[:7]} and the new code have no known common commit: {why}")
        try:
            changed = self._snapshots.changed_between(self._snapshots.of_commit(begun), here.tree)
            paths = self._snapshots.paths_in(here.tree)
        except (GitError, OSError) as error:
            raise PlanError(_said(error)) from error
        return Change(begun, {**changed, **dict.fromkeys(self._new, "A")}, paths, repository.top.resolve())

    def here_with(self, loaded: LoadedFiles) -> SourceState | str:
        """Returns `here` with a tree that also contains loaded, untracked data files. Secrets are left out."""
        here = self.here
        found = loaded.among(map(self.path, self._new))
        read = [name for name in self._new if self.path(name) in found and not _SECRET.search(name)]
        if isinstance(here, str) or not read:
            return here
        try:
            return SourceState(tree=self._snapshots.of_files(read), commit=here.commit, dirty=True)
        except (PlanError, GitError, OSError):
            return here

    def path(self, name: str) -> Path:
        return self._snapshots.repository.top / name

    def is_that_of(self, commit: str) -> bool:
        """Returns whether the current code equals the commit's code. False if unknown."""
        here = self.here
        return not isinstance(here, str) and self.tree_of(commit) == here.tree

    def tree_of(self, commit: str) -> str:
        """Returns the hash of a commit's tree without the baselines. Empty if unknown."""
        try:
            return self._snapshots.of_commit(commit)
        except (PlanError, GitError, OSError):
            return ""

    def ignored_since(self, when: datetime) -> tuple[str, ...]:
        return () if isinstance(self.here, str) else self._snapshots.changed_since(when)

    def share_with(self, there: Path) -> tuple[str, ...]:
        try:
            return self._snapshots.share(there)
        except PlanError:
            return ()

    def shared_modules(self, loaded: LoadedFiles, code_tree: CodeTree) -> tuple[str, ...]:
        """Returns the relative paths of the untracked modules that the old code has loaded."""
        here, there = self.here, code_tree.there
        if isinstance(here, str) or there is None or (paths := self._paths_in(here.tree)) is None:
            return ()
        top, files = there.resolve(), (Path(file).resolve() for file in loaded.modules)
        names = (file.relative_to(top).as_posix() for file in files if file.is_relative_to(top) and not file.is_dir())
        return tuple(sorted(name for name in names if name not in paths and self.path(name).exists() and is_code(name)))

    def code(self, tree: str | None, commit: str | None) -> CodeTree:
        """Returns the code of a baseline that names this tree and commit.

        The code's files exist until `close`. Raises PlanError if the code is not found.
        """
        key = (tree, commit)
        if key not in self._codes:
            try:
                self._codes[key] = self._found(tree, commit)
            except PlanError as error:
                self._codes[key] = error
        found = self._codes[key]
        if isinstance(found, PlanError):
            raise PlanError(*found.problems) from found.__cause__
        return found

    def keep(self, here: SourceState) -> None:
        """Keeps code with uncommitted changes in the Git repository. If that fails, `notes` say why."""
        if not self._keeps_trees or not here.dirty:
            return
        repository, ref = self._snapshots.repository, _REFS + here.tree
        if repository.answers("rev-parse", "--verify", "--quiet", ref) is not None:
            return
        try:
            self._snapshots.keep(here.tree)
            parent = () if here.commit is None else ("-p", here.commit)
            words = ("commit-tree", here.tree, *parent, "-m", f"{here.title}, kept for a baseline of pytest-fileperf")
            repository.ask("update-ref", ref, repository.ask(*words, env=_NOBODY))
        except (PlanError, GitError, OSError) as error:
            if repository.answers("rev-parse", "--verify", "--quiet", ref) is None:  # no other session has kept it
                why = f"cannot be kept for its baseline ({_said(error)}). Commit source and baseline together"
                self._notes.append(f"the {here.title} {why}")

    def forget(self, trees: Iterable[str]) -> None:
        """Allows Git to remove these trees, except trees that a baseline still names."""
        trees = set(trees)
        if not trees:  # then ask Git nothing
            return
        try:
            repository = self._snapshots.repository
        except PlanError:
            return
        refs = (repository.answers("for-each-ref", "--format=%(refname)", _REFS) or "").split("\n")
        if kept := trees.intersection(ref.removeprefix(_REFS) for ref in refs):
            for tree in sorted(kept - needed_among(repository, kept, self.rootdir / self._baselines)):
                repository.answers("update-ref", "-d", _REFS + tree)

    @cached_property
    def _snapshots(self) -> Snapshots:
        """Raises PlanError, for example if no Git repository contains the code."""
        if not is_git_installed():
            raise PlanError(f"{NO_GIT}, but only Git can find a baseline's code. Install Git")
        repository = find_repository(self.rootdir)
        if repository is None:
            raise PlanError(
                f"{self.rootdir} isn't in a Git repository, so a baseline's code cannot be found again. Run `git init`"
            )
        top, rootdir = repository.top.resolve(), self.rootdir.resolve()
        if not top.samefile(rootdir) and repository.answers("check-ignore", "--quiet", "--", str(rootdir)) is not None:
            raise PlanError(
                f"the Git repository {repository.top} ignores {rootdir}, so no commit contains its code. Run "
                "`git init` there"
            )
        if rootdir.is_relative_to((rootdir / self._baselines).resolve()):
            raise PlanError(
                f"the directory of the baselines, {self._baselines}, also contains the code. Give the "
                "baselines their own directory (`fileperf_baselines`)"
            )
        try:
            directory = scratch.make("source")
        except OSError as error:
            raise PlanError(
                f"there is no room for Git's temporary files ({error}). Set TMPDIR to a directory with free space"
            ) from error
        self._open.callback(scratch.remove, directory)
        outputs = (path for path in self._outputs if not rootdir.is_relative_to((rootdir / path).resolve()))
        return Snapshots(
            repository,
            directory,
            left_out=self._inside(top, (self._baselines, directory)),
            outputs=self._inside(top, outputs),
        )

    def _inside(self, top: Path, paths: Iterable[Path]) -> list[str]:
        """Returns the paths below `top`, relative to `top`. A symbolic link also gives its target's path."""
        written = [Path(os.path.abspath(self.rootdir / path)) for path in paths]  # noqa: PTH100 # absolute keeps `..`
        found = {real for path in written for real in (path.parent.resolve() / path.name, path.resolve())}
        return [path.relative_to(top).as_posix() for path in sorted(found) if path != top and path.is_relative_to(top)]

    def _found(self, tree: str | None, commit: str | None) -> CodeTree:
        snapshots = self._snapshots
        if tree is None:
            raise PlanError(f"the baseline does not say which code it belongs to. In a Git repository, {_STORE_AGAIN}")
        if not _HASH.fullmatch(tree):
            raise PlanError(f"{tree!r} isn't a Git hash, so the baseline is damaged. To replace it, {_STORE_AGAIN}")
        if commit is not None and not _HASH.fullmatch(commit):  # pytest-benchmark's "unknown"
            commit = None
        here, repository = self.here, snapshots.repository
        try:
            if not isinstance(here, str) and self._is_here(here, tree, snapshots):
                return CodeTree(title=here.title, here=repository.top)
            if _is_whole(repository, tree):
                place, dirty = tree, commit is None or _tree_of(snapshots, commit) != tree
            else:
                likely = _candidates(snapshots, tree, commit)
                place = commit = next((one for one in likely if _tree_of(snapshots, one) == tree), "")
                dirty = False
        except (GitError, OSError) as error:
            raise PlanError(f"Git cannot look for the baseline's code ({_said(error)}): {_STORE_AGAIN}") from error
        if not place:
            raise PlanError(_why_not_found(repository))
        title = SourceState(tree=tree, commit=commit, dirty=dirty).title
        if tree not in self._checked_out:
            checkout = Checkout(CodeTree(title=title, here=repository.top, commit=place), self.rootdir)
            found = self._open.enter_context(checkout)
            self._checked_out[tree] = found.there
            self._notes += found.notes
            if found.there is not None:
                self._notes += snapshots.share(found.there)
        return CodeTree(title=title, here=repository.top, there=self._checked_out[tree])

    def _is_here(self, here: SourceState, tree: str, snapshots: Snapshots) -> bool:
        """Returns whether a tree is the current code. The tree may also contain untracked data files."""
        if tree == here.tree:
            return True
        if not self._new or not _is_whole(snapshots.repository, tree):
            return False
        also = snapshots.paths_in(tree).intersection(self._new)
        return bool(also) and snapshots.of_files(also) == tree


def _why_not_found(repository: Repository) -> str:
    where = f"the baseline's code is not in the Git repository {repository.top}"
    if advice := repository.how_to_get_history():
        return f"{where}; {advice}"
    return (
        f"{where} (its history was rewritten, or some files were never committed). Commit source and baseline "
        f"together, or {_STORE_AGAIN}"
    )


def _said(error: Exception) -> str:
    """Returns an error's first line, because Git writes a line for each file that fails."""
    return str(error).split("\n", 1)[0]


# --- The commit before the current one, for comparisons that would compare the current code with itself


def instead_of_itself(against: CodeTree, name: str, source: Source, env: Mapping[str, str] = os.environ) -> CodeTree:
    """If `against` is the commit that is checked out, returns the commit before. Otherwise returns `against`.

    Without this, a run on main would compare main with itself. If CI reports the commit before the push, returns that
    commit, and otherwise the first parent. `name` is the user's text for `against`. Raises PlanError if the clone lacks
    the commit before.
    """
    commit = against.commit
    repository = None if commit is None else find_repository(source.rootdir)
    if repository is None or commit is None or commit != repository.head():
        return against
    here = source.here
    if isinstance(here, str) or here.dirty:
        return against
    found = f"{name} is the commit that is checked out"
    if (before := _pushed_over(repository, commit, env)) is not None:
        which, title = "before this push", f"{name} before this push"
    elif (before := repository.answers("rev-parse", "--verify", "--quiet", f"{commit}^1^{{commit}}")) is not None:
        which, title = "before it", f"the commit before {name}"
    elif advice := repository.how_to_get_history("`git fetch --depth=2`, or "):
        raise PlanError(f"{found}, and the commit before it is missing: {advice}")
    else:
        return against
    note = f"{found}, so the comparison uses the commit {which}, {before[:7]}"
    return CodeTree(title=f"{before[:7]} ({title})", here=against.here, commit=before, notes=(*against.notes, note))


def other_branch(env: Mapping[str, str]) -> str:
    """Returns `the branch x`, `the tag x` or `a pull request`. Empty for the default branch and outside of CI."""
    branch, default = env.get("CI_COMMIT_BRANCH"), env.get("CI_DEFAULT_BRANCH")
    if tag := env.get("CI_COMMIT_TAG") or (env.get("GITHUB_REF_TYPE") == "tag" and env.get("GITHUB_REF_NAME")):
        return f"the tag {tag}"
    if "CI_MERGE_REQUEST_IID" in env or env.get("GITHUB_EVENT_NAME", "").startswith("pull_request"):
        return "a pull request"
    if env.get("GITHUB_ACTIONS") == "true":
        branch, repository = env.get("GITHUB_REF_NAME"), _github_event(env).get("repository")
        default = repository.get("default_branch") if isinstance(repository, dict) else None
    return f"the branch {branch}" if branch and default and branch != default else ""


def _pushed_over(repository: Repository, commit: str, env: Mapping[str, str]) -> str | None:
    """Returns the branch's commit before a push. None if CI does not report that commit, or the clone lacks it."""
    is_githubs = env.get("GITHUB_EVENT_NAME") == "push"
    pushed = env.get("GITHUB_SHA" if is_githubs else "CI_COMMIT_SHA")
    before = _github_event(env).get("before") if is_githubs else env.get("CI_COMMIT_BEFORE_SHA")
    # Zeros stand for a new branch, which had no commit before. A rewritten branch has lost its old commit.
    if pushed != commit or not isinstance(before, str) or not _HASH.fullmatch(before) or before == commit:
        return None
    return None if repository.answers("merge-base", "--is-ancestor", before, commit) is None else before


def _github_event(env: Mapping[str, str]) -> dict[str, object]:
    """Returns GitHub's JSON about the event that started this CI job. Empty outside of GitHub."""
    with suppress(OSError, ValueError):
        event = json.loads(Path(env.get("GITHUB_EVENT_PATH", "")).read_bytes())
        return event if isinstance(event, dict) else {}
    return {}
