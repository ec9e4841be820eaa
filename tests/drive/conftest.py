"""Lets loads of a test give their journeys clients of either family."""

from __future__ import annotations

import pytest
from drive import scripted


@pytest.fixture
def of_family(family: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(scripted, "FAMILY", family)
    return family
