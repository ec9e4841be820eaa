"""Whether two trees ask for the same packages. Both run with the installed ones, so a difference would not show."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ("dependency_notes",)

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
