"""Finds the code of stored baselines, and the packages that they were stored with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.baseline import Entry
from pytest_fileperf.judge.environment import Environment, package_changes
from pytest_fileperf.session.sides import Base
from pytest_fileperf.versions.packages import python_with
from pytest_fileperf.versions.source import Source
from pytest_fileperf.versions.tree import CodeTree

__all__ = ("BaselineCode", "CodeFound", "title_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFound:
    """The code of a baseline, as far as it can be measured again."""

    base: Base | None = None
    """None where there is nothing to measure in turn."""
    here: CodeTree | None = None
    """The code here, where that is the baseline's, with the same packages on both sides."""
    said: str = ""
    """Why it is not to be found, or what differs from when it was stored; in a sentence."""


class BaselineCode:
    """Finds the code of baselines. What cannot be had is tried once in a session."""

    def __init__(
        self,
        source: Source | None,
        environment: Environment,
        *,
        stored_packages: bool = False,
        python_with: Callable[[Mapping[str, str]], Path] = python_with,
    ) -> None:
        """With `stored_packages` it runs with the packages that it was stored with, else with those of now."""
        self._source = source
        self._packages = environment.packages
        self._stored_packages = stored_packages
        self._python_with = python_with
        self._pythons: dict[frozenset[tuple[str, str]], Path | PlanError] = {}

    def of(self, entry: Entry) -> CodeFound:
        """Returns the code of a baseline."""
        if self._source is None:
            return CodeFound(said="this session does not look for its code")
        commit = None if entry.commit is None else entry.commit.get("id")
        found = self._source.find(entry.tree, commit if isinstance(commit, str) else None)
        if isinstance(found, str):
            return CodeFound(said=found)
        title = title_of(entry, found.title)
        python, said = None, ""
        if self._stored_packages and package_changes(entry.packages, self._packages):
            try:
                python = str(self._python_of(entry.packages))
            except PlanError as error:
                said = f"{error}: it runs with the packages installed here"
        try:
            code_tree = self._source.check_out(found)
        except PlanError as error:
            return CodeFound(said=str(error))
        if found.is_here and python is None:
            return CodeFound(here=code_tree, said=said)
        code_tree = replace(code_tree, title=title, python=python)
        return CodeFound(base=Base(title=title, code_tree=code_tree, may_fail=True), said=said)

    def _python_of(self, packages: Mapping[str, str]) -> Path:
        key = frozenset(packages.items())
        if key not in self._pythons:
            try:
                self._pythons[key] = self._python_with(packages)
            except PlanError as error:
                self._pythons[key] = error
        made = self._pythons[key]
        if isinstance(made, PlanError):
            raise made
        return made


def title_of(entry: Entry, code: str = "") -> str:
    """Returns how messages call a baseline: `its baseline (1a2b3c4 of 2026-11-20)`."""
    day = entry.captured.partition("T")[0]
    return f"its baseline ({code} of {day})" if code else f"its baseline of {day}"
