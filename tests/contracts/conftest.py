"""What every contract starts from."""

from __future__ import annotations

from pathlib import Path

import pytest
from contracts.project import Project

__all__ = ("project",)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """An empty project, outside of this one's repository."""
    return Project(top=tmp_path)
