"""Git repositories for tests, and everything about one that a comparison must leave as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ("Repo", "git", "needs_git")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs Git")

_SETTINGS = (
    "user.name=A Tester", "user.email=tester@example.invalid", "init.defaultBranch=main", "commit.gpgSign=false",
    "protocol.file.allow=always", "core.autocrlf=false", "gc.auto=0",
)  # fmt: skip


def git(directory: Path, *words: str) -> str:
    """Runs Git without anybody's settings."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
    settings = (word for setting in _SETTINGS for word in ("-c", setting))
    done = subprocess.run(["git", *settings, *words], cwd=directory, env=env, check=True, capture_output=True)
    return os.fsdecode(done.stdout).rstrip("\n")


@dataclass(frozen=True)
class Repo:
    """A repository with a working tree."""

    top: Path

    @classmethod
    def make(cls, top: Path) -> Repo:
        """Returns an empty one in a new directory."""
        top.mkdir(parents=True)
        git(top, "init", "--quiet", "--template=")
        return cls(top)

    def copied(self, top: Path) -> Repo:
        """Returns a copy with its submodules, which is much faster than making one."""
        shutil.copytree(self.top, top, symlinks=True)
        return Repo(top)

    def git(self, *words: str) -> str:
        return git(self.top, *words)

    def write(self, path: str, content: str | bytes) -> Path:
        file = self.top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def commit(self, **files: str) -> str:
        """Commits everything after writing files whose names have `_` for the last dot; returns the full hash."""
        for name, content in files.items():
            self.write(".".join(name.rsplit("_", 1)), content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "a change")
        return self.git("rev-parse", "HEAD")

    @property
    def shared(self) -> Path:
        """Where Git keeps all about the repository: for each of its working trees, too."""
        inside = self.top / ".git"
        own = inside if inside.is_dir() else self.top / inside.read_text().removeprefix("gitdir: ").rstrip("\n")
        common = own / "commondir"
        return own / common.read_text().rstrip("\n") if common.exists() else own

    def state(self) -> dict[str, object]:
        """Returns what has to be the same before and after, without Git, which could change it."""
        kept = {
            str(path.relative_to(self.shared)): path.read_bytes()
            for path in self.shared.rglob("*")
            if path.is_file() and "objects" not in path.relative_to(self.shared).parts
        }
        refs = {name: kept.pop(name) for name in list(kept) if name.startswith("refs/") or name == "packed-refs"}
        files = {
            str(path.relative_to(self.top)): (each.st_mode, each.st_size, each.st_mtime_ns if path.is_file() else None)
            for path in self.top.rglob("*")
            if ".git" not in path.parts
            for each in [path.lstat()]
        }
        return {"in .git": kept, "refs": refs, "files": files}
