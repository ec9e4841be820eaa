"""Pages of a few characters, for tests that are not about Plotly."""

from __future__ import annotations

import pytest


@pytest.fixture
def small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a few characters in place of its megabytes."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")
