"""Both families of clients, for tests that hold for either: `family` is a fixture with the name of each."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ("FAMILIES", "module_of")

FAMILIES = ("httpx", "httpx2")


def module_of(family: str) -> Any:
    """Returns the package; skips the test if it is not installed."""
    return pytest.importorskip(family, reason=f"needs the extra {family}")
