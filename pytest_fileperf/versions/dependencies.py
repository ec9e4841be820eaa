"""Whether two trees ask for the same packages: both run with those that are installed, so it would not show."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ("dependency_notes",)

_FILES = (
    "pyproject.toml", "requirements*.txt", "setup.cfg", "setup.py",
    "uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock",
)  # fmt: skip


def dependency_notes(root: Path, base: Path) -> tuple[str, ...]:
    """Returns a sentence for each file at the top of both trees in which other dependencies stand.

    Of pyproject.toml only the tables that name dependencies count, of the others every byte.
    """
    return tuple(
        f"{name} differs between the sides, and both run with the packages installed here: "
        "use --fileperf-against=python:… to compare dependencies"
        for name in _names(root)
        if (base / name).is_file() and _differs(root / name, base / name)
    )


def _differs(path: Path, other: Path) -> bool:
    try:
        return _content(path) != _content(other)
    except OSError:  # it cannot be read, so nothing that is installed came from it
        return False


def _names(root: Path) -> Iterator[str]:
    for pattern in _FILES:
        yield from sorted(path.name for path in root.glob(pattern) if path.is_file())


def _content(path: Path) -> object:
    """Returns what has to be equal: the bytes of a file, or the tables of a pyproject.toml that can be read."""
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
