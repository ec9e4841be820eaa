"""The packages with another version in another interpreter's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf.versions.checkout import changed_packages, environment_notes
from pytest_fileperf.versions.packages import packages_of


def installed(packages: Path, name: str, version: str, files: str) -> None:
    about = packages / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n", encoding="utf-8")
    (about / "RECORD").write_text(f"{files},,\n{about.name}/METADATA,,\n", encoding="utf-8")
    # importlib_metadata, which Dask brings, tells only of files that are there.
    (packages / files).parent.mkdir(exist_ok=True)
    (packages / files).touch()


def test_packages_that_differ_are_listed_by_what_they_import_as(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(packages_of(tmp_path / "old"), "slow-lib", "1.0", "slow/parse.py")
    installed(packages_of(tmp_path / "old"), "same", "1.0", "same.py")
    installed(packages_of(tmp_path / "old"), "only-there", "1.0", "there.py")
    installed(tmp_path / "here", "slow-lib", "2.0", "slow_lib/parse.py")
    installed(tmp_path / "here", "same", "1.0", "same.py")
    monkeypatch.syspath_prepend(tmp_path / "here")
    python = tmp_path / "old" / "bin" / "python"

    assert changed_packages(python) == {"slow": "slow-lib 1.0 → 2.0", "slow_lib": "slow-lib 1.0 → 2.0"}
    assert environment_notes(python) == ("packages that differ: slow-lib 1.0 → 2.0",)
    assert environment_notes(tmp_path / "bin" / "python") == ()
