"""What sessions on fake servers share."""

from __future__ import annotations

from functools import cache

import pytest

from pytest_fileperf.versions.packages import installed_packages

_installed = cache(installed_packages)


@pytest.fixture(autouse=True)
def _packages_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of some hundred sessions would read what all that are installed are called."""
    monkeypatch.setattr("pytest_fileperf.judge.environment.installed_packages", _installed)
