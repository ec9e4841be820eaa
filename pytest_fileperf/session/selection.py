"""Finds the tests that a change can affect, because their servers loaded a changed file.

A test is left out only if everything that it runs is known and unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pytest_fileperf.errors import BaselineError, PlanError
from pytest_fileperf.judge.baseline import BaselineStore, Entry
from pytest_fileperf.judge.environment import Environment, condition_changes, package_changes
from pytest_fileperf.versions.loaded import changed_beside
from pytest_fileperf.versions.source import Source
from pytest_fileperf.versions.tree import CodeTree

_OF_DIRECTORIES = ("conftest.py", "__init__.py", "pytest.ini", "pytest.toml")
"""Files that pytest reads in a test's directory and above. This includes settings files, because a new settings file
may hide another."""


class Selection:
    def __init__(self, since: CodeTree, source: Source, baselines: Path, rootdir: Path, ini: Path | None) -> None:
        """Finds files changed since a commit. `ini` is pytest's settings file. Raises PlanError without a commit."""
        if since.commit is None:
            raise PlanError("it isn't a Git ref. Name a branch, a tag or a commit")
        self._store = BaselineStore(baselines)
        self._environment = Environment.current()
        self._rootdir, self._ini = rootdir, ini
        self._change = source.change_since(since.commit)
        begun = self._change.begun
        self.title = since.title if begun == since.commit else f"{begun[:7]}, the last commit shared with {since.title}"
        """The commit, in words. Changes since this commit cannot affect the tests that are left out."""

    def why(self, nodeid: str) -> str:
        """Returns why the test must be measured. Empty if no change since the commit can affect it."""
        try:
            return next(self._whys(nodeid), "")
        except BaselineError:  # the test itself reports it
            return "its baseline cannot be read"

    def _whys(self, nodeid: str) -> Iterator[str]:
        module = nodeid.partition("::")[0]
        files = self._files_of(module)
        found = self._store.find(module, nodeid, self._environment)
        if found is None:
            yield "it has no baseline"
        number = 1
        while found is not None:
            yield from self._changed(found, files)
            number += 1
            found = self._store.find(module, f"{nodeid}#{number}", self._environment)

    def _files_of(self, module: str) -> tuple[str, ...]:
        """Returns the repository's files that pytest would read for a test module."""
        top, file = self._change.top, (self._rootdir / module).resolve()
        if not file.is_relative_to(top):
            return ()
        places = (file, (self._ini or file).resolve())
        names = [place.relative_to(top).as_posix() for place in places if place.is_relative_to(top)]
        above = PurePosixPath(names[0]).parents
        return (*names, *(str(directory / name) for directory in above for name in _OF_DIRECTORIES))

    def _changed(self, entry: Entry, files: tuple[str, ...]) -> Iterator[str]:
        if entry.files is None or entry.loaded is None:
            yield "its baseline does not say which files the server loaded"
            return
        yield from (f"{name} is not in the repository" for name in entry.loaded if name.startswith("…/"))
        if not files or not any(name.endswith(".py") for name in entry.files):
            yield "its code is not in the repository"
        yield from package_changes(_from_index(entry.packages), _from_index(self._environment.packages))
        changes = condition_changes(entry.conditions, self._environment.conditions)
        yield from (said for said in changes if said.startswith("Python "))
        if path := changed_beside(entry.loaded, self._change.top) or self._change.touching(entry.files, files):
            yield f"{path} changed"


def _from_index(packages: Mapping[str, str]) -> dict[str, str]:
    """Leaves out packages from local directories, because their files are compared instead."""
    return {name: version for name, version in packages.items() if not version.endswith("(local)")}
