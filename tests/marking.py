"""Marks whole files as `hostile`, as single tests elsewhere mark themselves; and begins with the longest tests."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ("HOSTILE", "TESTS")

TESTS = Path(__file__).parent
HOSTILE = (
    "hostile",
    "serve/test_orphans.py",
    "test_files.py",
    "wire/test_fuzz.py",
)
"""Files and directories below `tests`."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / place for place in HOSTILE}
    hostile = {path for path in {item.path for item in items} if not places.isdisjoint((path, *path.parents))}
    for item in items:
        if item.path in hostile:
            item.add_marker("hostile")
    # One process of xdist gets them all, one after the other, while the others have the rest: none is left for the end,
    # where the others would wait for it.
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)
