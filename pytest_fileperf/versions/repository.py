"""Asks Git about repositories, and copies their commits. The user's files, index and branches stay as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host import scratch
from pytest_fileperf.host.child import run
from pytest_fileperf.units import exit_text, format_bytes

NO_GIT = "Git is not installed (no `git` on the PATH)"
_QUESTION_S = 60.0
"""The longest time for most commands. Only slow file systems need as much."""
_COPY_S = 900.0
"""The longest time for a copy. Partial clones and LFS may download a large tree's files during the copy."""
_OF_ONE_REPOSITORY = frozenset((
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_ATTR_SOURCE", "GIT_COMMON_DIR", "GIT_CONFIG", "GIT_DIR", "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_INDEX_VERSION", "GIT_INTERNAL_SUPER_PREFIX", "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
))  # fmt: skip
"""Variables that Git sets for hooks (`git rev-parse --local-env-vars`).

They are removed, because pytest may run in a hook.
"""
_QUIET = (
    "-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "core.sparseCheckout=false",
    "-c", "core.splitIndex=false",
)  # fmt: skip
"""With these settings no hook runs, and Git writes all files of a tree."""
_SAID_LINES = 3
SUBMODULE = "160000"
"""Git's mode of a submodule in a tree."""


class GitError(Exception):
    """Git failed. The text is its complaint."""


class GitTimeoutError(GitError):
    """Git did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    top: Path
    directory: Path
    """Git's directory for this working tree: `.git`, or `.git/worktrees/NAME`."""
    shared: Path
    """Git's directory for all working trees."""

    def ask(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        given: bytes = b"",
        timeout_s: float = _QUESTION_S,
        fine: Collection[int] = (0,),
    ) -> str:
        """Returns the output of `git WORDS…` without the final newline. `given` is Git's input.

        Raises GitError if Git's exit code is not in `fine`.
        """
        where = {"GIT_DIR": str(self.directory), "GIT_WORK_TREE": str(self.top), **(env or {})}
        return _git(*words, directory=self.top, where=where, given=given, timeout_s=timeout_s, fine=fine)

    def answers(self, *words: str) -> str | None:
        try:
            return self.ask(*words)
        except GitError:
            return None

    def has_commits(self) -> bool:
        """Returns whether the user has made a commit. Raises PlanError if the repository is damaged."""
        try:
            return bool(self.ask("rev-list", "--max-count=1", "--exclude=refs/fileperf/*", "--all"))
        except GitError as error:
            raise PlanError(_damaged(self.top, error)) from error

    def head(self) -> str | None:
        """Returns the full hash of the commit that is checked out. None before the first commit."""
        return self.answers("rev-parse", "--verify", "--quiet", "HEAD^{commit}")

    def how_to_get_history(self, fetch: str = "") -> str | None:
        """Returns advice on how to get a shallow clone's missing history. None if the history is complete.

        `fetch` is text before the advice: another command that helps, and `, or `.
        """
        if self.answers("rev-parse", "--is-shallow-repository") != "true":
            return None
        in_ci = ""
        if os.environ.get("GITHUB_ACTIONS") == "true":
            in_ci = ", or set `fetch-depth: 0` for actions/checkout"
        elif os.environ.get("GITLAB_CI") == "true":
            in_ci = ", or set `GIT_DEPTH: 0` among the job's variables"
        return f"this clone's history is cut off (a shallow clone). Run {fetch}`git fetch --unshallow`{in_ci}"

    def clone(self, commit: str, place: Path) -> None:
        """Makes a clone at `place`, in which `commit` is checked out. Raises GitError."""
        _git("clone", "--quiet", "--shared", "--no-checkout", str(self.top), str(place), directory=self.top)
        _git("checkout", "--quiet", "--detach", commit, directory=place)

    def copy(self, commit: str, tree: Path, *, index: Path) -> tuple[str, ...]:
        """Writes a commit's files to the directory `tree`, and a Git index to the file `index`.

        Returns the paths of submodules that stay empty, because this repository lacks their files. Raises PlanError.
        """
        tree.mkdir(exist_ok=True)
        # With `tree` as its working tree, Git reads attributes (line ends, LFS) from the commit.
        where = {"GIT_DIR": str(self.directory), "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": str(index)}
        try:
            _git("read-tree", commit, directory=tree, where=where, timeout_s=_COPY_S)
            # A filter, such as one that fetches files, may never end.
            _git("checkout-index", "--all", directory=tree, where=where, timeout_s=_COPY_S, made=index.parent)
            entries = _git("ls-files", "--stage", "-z", directory=tree, where=where).split("\0")
        except GitError as error:
            no_room = _why_no_room(tree)
            said = f"{_first_lines(str(error))}\n{no_room}" if no_room else str(error)
            raise PlanError(f"the files of {commit} cannot be written to {tree}: {said}") from error
        empty = []
        for entry in entries:
            facts, _, path = entry.partition("\t")
            if facts.startswith(SUBMODULE):
                copied = self._copy_submodule(commit, path, facts.split()[1], tree, index)
                empty += [path] if copied is None else [f"{path}/{inner}" for inner in copied]
        return tuple(empty)

    def _copy_submodule(self, commit: str, path: str, wanted: str, tree: Path, index: Path) -> tuple[str, ...] | None:
        """Copies the submodule `path` at its commit `wanted`. Returns the submodules within it that stay empty.

        Returns None if this repository lacks the submodule's files. Raises PlanError if only the commit is missing.
        """
        submodule = self._submodule(commit, path)
        if submodule is None:
            return None
        if submodule.answers("cat-file", "-e", f"{wanted}^{{commit}}") is not None:
            return submodule.copy(wanted, tree / path, index=index.with_name(f"index-{wanted}"))
        here = self.top / path
        if here.is_dir() and not (here / ".git").exists():
            return None
        raise PlanError(
            f"the submodule {path} lacks commit {wanted[:12]}, which {commit[:12]} needs. Run `git -C {here} "
            f"fetch origin {wanted}`, or `git submodule update --init {path}` if it has no files yet"
        )

    def _submodule(self, commit: str, path: str) -> Repository | None:
        top = self.top / path
        if (top / ".git").exists():
            return find_repository(top)
        # A submodule's name is usually its path.
        words = ("config", "--null", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        pairs = (entry.partition("\n")[::2] for entry in (self.answers(*words) or "").split("\0"))
        names = (key.removeprefix("submodule.").removesuffix(".path") for key, value in pairs if value == path)
        name = next((name for name in names if not {"..", "/"}.intersection(Path(name).parts)), path)
        for directory in (self.directory / "modules" / name, self.shared / "modules" / name):
            if (directory / "HEAD").is_file():
                return Repository(top=top if top.is_dir() else self.top, directory=directory, shared=directory)
        return None


def is_git_installed() -> bool:
    return shutil.which("git") is not None


def find_repository(directory: Path) -> Repository | None:
    """Returns the repository that contains the directory. None if no repository does, or if Git isn't installed.

    Raises PlanError for a repository that is bare, or that Git refuses to read.
    """
    if not is_git_installed():
        return None
    try:
        answer = _git("rev-parse", "--is-inside-work-tree", directory=directory)
        if answer != "true":
            raise PlanError(
                f"{directory} is in a bare Git repository, without files. Run pytest in a clone of it, or "
                "compare with a directory"
            )
        words = ("rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
        top, own, shared = _git(*words, directory=directory).split("\n")
    except GitError as error:
        said = str(error)
        if "not a git repository" in said.lower():
            if broken := next((top for top in (directory, *directory.parents) if (top / ".git").exists()), None):
                raise PlanError(_damaged(broken, error)) from error
            return None
        # If another user owns the files, one line of Git's message is a command that helps.
        if command := next((line.strip() for line in said.splitlines() if "safe.directory" in line), ""):
            said = f"{said.splitlines()[0]}. If you trust whoever owns that directory, run `{command}`"
        raise PlanError(f"Git does not read the repository of {directory}: {said}") from error
    return Repository(top=Path(top), directory=Path(own), shared=directory / shared)


def _damaged(top: Path, error: GitError) -> str:
    return f"the Git repository {top} is damaged (`git fsck` may show more): {_first_lines(str(error))}"


def _first_lines(said: str) -> str:
    # On a full disk, Git writes a line for each file.
    lines = said.splitlines()
    more = f"\n… and {len(lines) - _SAID_LINES} more lines" if len(lines) > _SAID_LINES else ""
    return "\n".join(lines[:_SAID_LINES]) + more


def _why_no_room(tree: Path) -> str:
    """Returns a sentence if the disk is almost full, because Git does not name this cause. Otherwise empty."""
    try:
        free_bytes = shutil.disk_usage(tree).free
    except OSError:
        return ""
    if free_bytes >= 64 << 20:
        return ""
    return f"only {format_bytes(free_bytes)} are free there. Free some space, or set TMPDIR to a directory with more"


def _git(
    *words: str,
    directory: Path,
    where: dict[str, str] | None = None,
    given: bytes = b"",
    timeout_s: float = _QUESTION_S,
    fine: Collection[int] = (0,),
    made: Path | None = None,
) -> str:
    """Returns the output of `git WORDS…`, run in `directory`. `where` are environment variables. Raises GitError.

    With a directory `made` by `scratch.make`, Git ends when this process ends.
    """
    env = {name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LANGUAGE": "C", **(where or {})}
    command = ("git", *_QUIET, *words)
    if made is not None:
        command = scratch.supervised(command, made, program=shutil.which("git"))
    try:
        done = run(command, cwd=directory, env=env, given=given, timeout_s=timeout_s)
    except OSError as error:
        raise GitError(f"`git` cannot be started in {directory}: {error}") from error
    except subprocess.TimeoutExpired:
        raise GitTimeoutError(f"`git {_command_of(words)}` did not end within {timeout_s:g} s") from None
    if done.returncode not in fine:
        said = os.fsdecode(done.stderr).strip().removeprefix("fatal: ")
        raise GitError(said or f"`git {_command_of(words)}` ended with {exit_text(done.returncode)}")
    return os.fsdecode(done.stdout).removesuffix("\n")


def _command_of(words: tuple[str, ...]) -> str:
    """Returns the name of Git's command, such as `checkout`."""
    return _command_of(words[2:]) if words[0] == "-c" else words[0]
