"""Makes Git trees from the current files and from commits.

These trees leave out the baselines, so that a committed baseline doesn't count as changed code. They also leave out
files that Python and pytest write, such as `__pycache__`.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.units import format_bytes, format_names
from pytest_fileperf.versions.repository import SUBMODULE, GitError, GitTimeoutError, Repository, find_repository

_NO_CODE = (
    r"(?:^|/)(?:__pycache__|\.(?:fileperf|benchmarks|hypothesis|tox|(?:pytest|mypy|ruff)_cache|coverage(?:\.[^/]*)?))"
    r"(?:/|\Z)|\.pyc\Z"
)
"""Paths that are never code, such as caches, and other projects' baselines (`.fileperf`)."""
_SOURCES = frozenset((
    ".c", ".cc", ".cfg", ".cjs", ".cpp", ".css", ".go", ".h", ".hpp", ".htm", ".html", ".java", ".jinja", ".jinja2",
    ".js", ".kt", ".lua", ".mjs", ".php", ".proto", ".pxd", ".py", ".pyi", ".pyx", ".rb", ".rs", ".sh", ".so", ".sql",
    ".toml", ".ts", ".tsx",
))  # fmt: skip
"""Suffixes of untracked files that are code. Other files may be logs, data or secrets."""
_ADVICE = "List files that are not code in .gitignore, or compare only stored figures (`fileperf_confirm = never`)"
_FAST = ("-c", "core.looseCompression=0", "-c", "core.fsync=none", "-c", "core.safecrlf=false")
"""Git settings that save time, because the objects are temporary. The last one avoids warnings about line ends."""
_PATIENCE_S = 30.0
"""The longest time for Git to read the files. 20,000 source files take less than a second."""
_MOST_BYTES = 256 << 20
"""Limit for all new files together, because more would delay each session by seconds."""
_LARGEST_BYTES = 16 << 20
"""Limit for each untracked file to copy. Settings and compiled modules are smaller, most data is larger."""
_MOST_BESIDE_BYTES = 64 << 20


class Snapshots:
    """Makes Git trees, and returns their hashes. Most methods raise GitError.

    New Git objects go into `directory`, which the caller makes and removes.
    """

    def __init__(
        self, repository: Repository, directory: Path, *, left_out: Iterable[str], outputs: Iterable[str]
    ) -> None:
        """Trees take no files from the paths `left_out`, and only Python files from the paths `outputs`.

        These paths are relative to the repository's top directory.
        """
        self.repository = repository
        self.left_out = tuple(left_out)
        baselines = "|".join(map(re.escape, self.left_out)) or r"\Z."
        written = "|".join(map(re.escape, outputs)) or r"\Z."
        self._no_code = re.compile(rf"(?s){_NO_CODE}|^(?:{baselines})(?:/|\Z)|^(?:{written})(?:/.*)?\Z(?<!\.py)")
        self._code_beside = re.compile(rf"(?s)^(?:{baselines})/.*\.py\Z")
        self._directory = directory
        self._objects = directory / "objects"
        self._index = directory / "index"
        self._env = {"GIT_INDEX_FILE": str(self._index), "GIT_OBJECT_DIRECTORY": str(self._objects)}
        self._env["GIT_LITERAL_PATHSPECS"] = "1"
        information = self._objects / "info"
        information.mkdir(parents=True, exist_ok=True)
        shared = str(repository.shared.resolve() / "objects")
        (information / "alternates").write_bytes(os.fsencode(shared) + b"\n")
        self._of_commits: dict[str, str] = {}

    def of_commit(self, commit: str) -> str:
        if commit not in self._of_commits:
            self.ask("read-tree", commit)
            self._remove(self.ask("ls-files", "-z").split("\0"))
            self._of_commits[commit] = self.ask("write-tree", "--missing-ok")
        return self._of_commits[commit]

    def of_files(self, also: Collection[str] = ()) -> str:
        """Returns the tree of the current files: tracked files, untracked sources, and the untracked files in `also`.

        Raises PlanError if Git cannot read the files, or takes too long.
        """
        ends_at = time.monotonic() + _PATIENCE_S
        largest = ""
        try:
            tracked = self._take_index()
            self.ask(*_FAST, "add", "--update", ends_at=ends_at)
            untracked = self._untracked(also)
            largest = self._largest(untracked)
            self._update(untracked, "--add", "--remove", ends_at=ends_at)
            repositories = [path for path in untracked if (self.repository.top / path).is_dir()]
            for path in (*(path for mode, path in tracked if mode == SUBMODULE), *repositories):
                self._check_submodule(path)
            return self.ask("write-tree", "--missing-ok")
        except GitTimeoutError:
            self._index.with_name("index.lock").unlink(missing_ok=True)  # the killed Git has left it
            within = f"within {_PATIENCE_S:g} s{largest}"
            raise PlanError(f"Git did not read the files of {self.repository.top} {within}. {_ADVICE}") from None
        except GitError as error:
            said = str(error).splitlines()[0].removeprefix("error: ")
            raise PlanError(f"Git cannot read the files of {self.repository.top} ({said}). {_ADVICE}") from error

    def paths_in(self, tree: str) -> frozenset[str]:
        return frozenset(self.ask("ls-tree", "-r", "--name-only", "-z", "--full-tree", tree).split("\0"))

    def changed_between(self, one: str, other: str) -> dict[str, str]:
        """Returns the paths in which two trees differ, each with Git's letter, such as `A` for added."""
        listed = self.ask("diff-tree", "-r", "--name-status", "--no-renames", "-z", one, other).split("\0")
        return dict(zip(listed[1::2], listed[::2], strict=False))

    def ask(self, *words: str, given: bytes = b"", ends_at: float | None = None) -> str:
        """Runs `git WORDS…` with our own index, and returns the output. Raises GitError."""
        left_s = _PATIENCE_S if ends_at is None else max(0.1, ends_at - time.monotonic())
        return self.repository.ask(*words, env=self._env, given=given, timeout_s=left_s)

    def keep(self, tree: str) -> None:
        """Writes a tree from `of_files` into the user's repository. Raises PlanError if the tree is too large."""
        size_bytes = sum(file.stat().st_size for file in self._objects.rglob("*") if file.is_file())
        if size_bytes > _MOST_BYTES:
            raise PlanError(f"{format_bytes(size_bytes)} of files are neither committed nor ignored")
        packs = self._directory / "packs"
        packs.mkdir(exist_ok=True)
        words = ("pack-objects", "--quiet", "--revs", "--local", "--missing=allow-any", str(packs / "kept"))
        self.ask("-c", "pack.packSizeLimit=0", *words, given=tree.encode() + b"\n")
        for pack in packs.glob("*.pack"):
            self.repository.ask("unpack-objects", "-q", given=pack.read_bytes())

    def _take_index(self) -> list[tuple[str, str]]:
        """Copies the user's Git index. Returns (Git's mode, path) for each file that is code."""
        self._index.unlink(missing_ok=True)
        users = self.repository.directory / "index"
        head = self.repository.head()
        if users.exists():
            # The copy keeps the index's time, because Git needs it to find files that changed in the same second.
            times = users.stat()
            shutil.copyfile(users, self._index)
            os.utime(self._index, ns=(times.st_atime_ns, times.st_mtime_ns))
        elif head is not None:
            self.ask("read-tree", head)
        lines = self.ask("ls-files", "-v", "--stage", "-z").split("\0")
        split = [line.partition("\t")[::2] for line in lines if line]
        paths = [path for _, path in split]
        self._check_baselines(paths)
        self._remove(paths)
        split = [(facts, path) for facts, path in split if not self._no_code.search(path)]
        # Flags of `ls-files`: H, M if unmerged, S in sparse checkouts, lower case if assumed to be unchanged.
        hidden = [(facts[0], path) for facts, path in split if facts[0] not in "HM"]
        hidden = [(flag, path) for flag, path in hidden if os.path.lexists(self.repository.top / path)]
        self._update((path for flag, path in hidden if flag in "Ss"), "--no-skip-worktree")
        self._update((path for flag, path in hidden if flag.islower()), "--no-assume-unchanged")
        return [(facts[2:8], path) for facts, path in split]

    def _remove(self, paths: Iterable[str]) -> None:
        self._update({path for path in paths if self._no_code.search(path)}, "--force-remove")

    def _untracked(self, also: Collection[str]) -> list[str]:
        """Returns untracked files for a tree: sources, and the files in `also`. Ignored files are left out.

        A repository within this one is a single path.
        """
        listed = self.ask("ls-files", "--others", "--exclude-standard", "-z").split("\0")
        found = [path.removesuffix("/") for path in listed if path]
        self._check_baselines(found)
        code = (path for path in found if path in also or not self._is_data(path))
        return [path for path in code if not self._no_code.search(path)]

    def _is_data(self, path: str) -> bool:
        here = self.repository.top / path
        return Path(path).suffix not in _SOURCES and not here.is_dir() and not here.is_symlink()

    def _check_baselines(self, paths: Iterable[str]) -> None:
        """Raises PlanError if the baselines' directory contains code, because trees leave out this directory."""
        if beside := next(filter(self._code_beside.search, paths), None):
            raise PlanError(
                f"the directory of the baselines also contains code, {beside}. Give the baselines their own "
                "directory (`fileperf_baselines`)"
            )

    def _largest(self, paths: Iterable[str]) -> str:
        """Returns words about the largest file, for a message. Raises PlanError if the files are too large together."""
        sizes = {}
        for path in paths:
            with suppress(OSError):
                sizes[path] = (self.repository.top / path).lstat().st_size
        if not sizes:
            return ""
        path, total = max(sizes, key=sizes.__getitem__), sum(sizes.values())
        if total > _MOST_BYTES:
            raise PlanError(
                f"{format_bytes(total)} of files in {self.repository.top} are neither committed nor ignored, "
                f"{format_bytes(sizes[path])} of them in {path}. {_ADVICE}"
            )
        return f" (the largest new file is {path}, {format_bytes(sizes[path])})"

    def _check_submodule(self, path: str) -> None:
        """Raises PlanError if a submodule has uncommitted changes, because a tree has only the submodule's commit."""
        top = self.repository.top / path
        if not (top / ".git").exists() or (inner := find_repository(top)) is None:
            return
        words = ("status", "--porcelain", "--no-renames", "--untracked-files=all", "--ignore-submodules=none", "-z")
        changed = [line[3:] for line in inner.ask(*words).split("\0") if line]
        if not all(self._no_code.search(f"{path}/{inside}") for inside in changed):
            raise PlanError(
                f"the repository {path} within {self.repository.top} has uncommitted changes. Commit them "
                "there, so that Git can find this code"
            )

    def _update(self, paths: Iterable[str], *words: str, ends_at: float | None = None) -> None:
        if given := b"".join(os.fsencode(path) + b"\0" for path in paths):
            self.ask(*_FAST, "update-index", *words, "-z", "--stdin", given=given, ends_at=ends_at)

    # --- Files beside the code: no tree has them, but code may read them, such as `.env` and `_version.py`

    def new_files(self) -> dict[str, object]:
        """Returns the untracked files by path, without sources and ignored files. Raises GitError.

        A file's value changes when the file changes.
        """
        listed = self.repository.ask("ls-files", "--others", "--exclude-standard", "-z", timeout_s=_PATIENCE_S)
        found: dict[str, object] = {}
        for path in listed.split("\0"):
            if path[-1:] not in ("", "/") and self._is_data(path) and not self._no_code.search(path):
                with suppress(OSError):
                    status = (self.repository.top / path).lstat()
                    found[path] = (status.st_mtime_ns, status.st_size)
        return found

    def changed_since(self, when: datetime) -> tuple[str, ...]:
        """Returns up to five untracked files that were written after `when`. Empty if Git cannot list them."""
        try:
            since_s = when.timestamp()
            later = [path for path, status in self._beside() if status.st_mtime > since_s]
        except (GitError, OSError, OverflowError, ValueError):
            return ()
        return tuple(later[:5])

    def share(self, there: Path) -> tuple[str, ...]:
        """Copies untracked files into the old code's directory `there`, but replaces no file.

        Returns sentences about files that could not be copied.
        """
        missing = "the old code lacks untracked files of the new code"
        left_bytes = _MOST_BESIDE_BYTES
        large, failed = [], []
        try:
            for path, status in self._beside():
                if not _is_free(there, path):
                    continue
                if status.st_size > min(_LARGEST_BYTES, left_bytes):
                    large.append(path)
                    continue
                left_bytes -= status.st_size
                try:
                    (there / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(self.repository.top / path, there / path, follow_symlinks=False)
                except OSError:
                    failed.append(path)
        except GitError as error:
            return (f"{missing}, because Git failed to list them ({error})",)
        sizes = f"{format_bytes(_LARGEST_BYTES)} each or {format_bytes(_MOST_BESIDE_BYTES)} together"
        reasons = (
            (large, f"because they have more than {sizes}. Commit the ones that the code reads"),
            (failed, "because they cannot be copied. Make them readable"),
        )
        return tuple(f"{missing} ({format_names(paths)}), {reason}" for paths, reason in reasons if paths)

    def _beside(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yields (path, status) of ignored files and `new_files`. Leaves out ignored directories. Raises GitError."""
        words = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
        listed = self.repository.ask(*words, timeout_s=_PATIENCE_S).split("\0")
        ignored = (path for path in listed if path and not path.endswith("/") and not self._no_code.search(path))
        for path in sorted({*ignored, *self.new_files()}):
            try:
                status = (self.repository.top / path).lstat()
            except OSError:  # gone meanwhile
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status


def _is_free(there: Path, path: str) -> bool:
    """Returns whether nothing exists at `path`, and no directory above it is a link."""
    file = there / path
    above = (there / directory for directory in Path(path).parents)
    return not os.path.lexists(file) and all(
        not directory.is_symlink() and (directory.is_dir() or not directory.exists()) for directory in above
    )
