"""Which files of two trees say that they need other packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf.versions.checkout import dependency_notes

PROJECT = '[project]\nname = "a"\nversion = "{version}"\ndependencies = ["fastapi{bound}"]\n'
POETRY = '[tool.poetry]\nversion = "{version}"\n[tool.poetry.group.dev.dependencies]\nfastapi = "{bound}"\n'

FILES = {
    "equal": ("requirements.txt", "a==1", "a==1", False),
    "requirements": ("requirements.txt", "a==1", "a==2", True),
    "more requirements": ("requirements-dev.txt", "a==1", "a==2", True),
    "lock": ("uv.lock", "1", "2", True),
    "setup": ("setup.py", "1", "2", True),
    "another file": ("notes.txt", "1", "2", False),
    "version": ("pyproject.toml", PROJECT.format(version=1, bound=""), PROJECT.format(version=2, bound=""), False),
    "dependency": ("pyproject.toml", PROJECT.format(version=1, bound=""), PROJECT.format(version=1, bound=">1"), True),
    "poetry version": ("pyproject.toml", POETRY.format(version=1, bound=1), POETRY.format(version=2, bound=1), False),
    "poetry group": ("pyproject.toml", POETRY.format(version=1, bound=1), POETRY.format(version=1, bound=2), True),
    "build system": ("pyproject.toml", "", '[build-system]\nrequires = ["hatchling"]\n', True),
    "extra": ("pyproject.toml", "", "[project.optional-dependencies]\na = []\n", True),
    "settings": ("pyproject.toml", "", "[tool.ruff]\nline-length = 9\n", False),
    "other settings than expected": ("pyproject.toml", "tool = 1\nproject = 2", "tool = 1\nproject = 2\n", False),
    "damaged": ("pyproject.toml", "=", "==", True),
}


@pytest.mark.parametrize("name,here,there,differs", FILES.values(), ids=FILES)
def test_differences(name: str, here: str, there: str, differs: bool, tmp_path: Path) -> None:
    for tree, content in (("here", here), ("there", there)):
        (tmp_path / tree).mkdir()
        (tmp_path / tree / name).write_text(content)
    note = (
        f"{name} differs between the sides, and both run with the packages installed here: "
        "use --fileperf-against=python:… to compare dependencies"
    )
    assert dependency_notes(tmp_path / "here", tmp_path / "there") == ((note,) if differs else ())


def test_a_file_of_one_side_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "uv.lock").touch()
    (tmp_path / "here" / "requirements.txt").mkdir()
    assert dependency_notes(tmp_path / "here", tmp_path) == ()
    assert dependency_notes(tmp_path, tmp_path / "here") == ()
