"""Whether two trees ask for the same packages, and which packages differ between two environments."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

from pytest_fileperf.versions.installing import name_and_version, packages_of
from pytest_fileperf.versions.packages import installed_packages

__all__ = ("changed_packages", "dependency_notes", "environment_notes")

_SHOWN = 8
_IMPORTED = re.compile(r"\w+(\.py|\.so)?")
"""A directory or file at the top of site-packages that is imported."""

_FILES = (
    "pyproject.toml", "requirements*.txt", "setup.cfg", "setup.py",
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock",
)  # fmt: skip


def dependency_notes(here: Path, there: Path) -> tuple[str, ...]:
    """Returns a sentence for each file at the top of both trees that names other dependencies there than here.

    In pyproject.toml only the tables that name dependencies count, in the other files every byte.
    """
    return tuple(
        f"{name} differs between the sides, and both run with the packages installed here: "
        "use --fileperf-against=python:… to compare dependencies"
        for name in _names(here)
        if (there / name).is_file() and _differs(here / name, there / name)
    )


def environment_notes(python: Path) -> tuple[str, ...]:
    """Returns a sentence that lists the packages with another version in an interpreter's environment than here."""
    changed = sorted(set(changed_packages(python).values()))
    more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    return (f"packages that differ: {', '.join(changed[:_SHOWN])}{more}",) if changed else ()


def changed_packages(python: Path) -> dict[str, str]:
    """Returns `name old → new` of packages with another version in an interpreter's environment than here.

    The keys are the files and directories that they are imported from. Empty if that environment is not one for this
    version of Python.
    """
    there = packages_of(python.parent.parent)
    if not there.is_dir():
        return {}
    old, new = dict(map(name_and_version, distributions(path=[str(there)]))), installed_packages()
    changed: dict[str, str] = {}
    for distribution in (*distributions(path=[str(there)]), *distributions()):
        name, _ = name_and_version(distribution)
        was, now = old.get(name), new.get(name, "").partition(" ")[0]
        if was and now and was != now and name != "pytest-fileperf":  # each side is served by the copy here
            tops = {file.parts[0] for file in distribution.files or () if file.parts}
            changed |= dict.fromkeys(sorted(top for top in tops if _IMPORTED.fullmatch(top)), f"{name} {was} → {now}")
    return changed


def _differs(path: Path, other: Path) -> bool:
    try:
        return _content(path) != _content(other)
    except OSError:  # it cannot be read, so nothing that is installed came from it
        return False


def _names(top: Path) -> Iterator[str]:
    for pattern in _FILES:
        yield from sorted(path.name for path in top.glob(pattern) if path.is_file())


def _content(path: Path) -> object:
    """Returns what has to be equal: the bytes of a file, or certain tables of a pyproject.toml."""
    content = path.read_bytes()
    if path.name != "pyproject.toml":
        return content
    try:
        tables = tomllib.loads(content.decode("utf-8"))
    except ValueError:
        return content
    project, poetry = _table(tables, "project"), _table(_table(tables, "tool"), "poetry")
    return (
        [project.get(name) for name in ("dependencies", "optional-dependencies")],
        [poetry.get(name) for name in ("dependencies", "dev-dependencies", "group", "extras")],
        tables.get("build-system"),
    )


def _table(tables: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Returns a table, empty where there is none or it is something else."""
    table = tables.get(name)
    return table if isinstance(table, dict) else {}
