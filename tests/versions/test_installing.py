"""Environments that uv and pip make, of wheels in a directory; and what is said when they cannot."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from versions.wheels import install_at, wheel

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions import packages as module
from pytest_fileperf.versions.packages import cache_directory, installed_packages, python_with

needs_uv = pytest.mark.skipif(
    shutil.which("uv") is None and shutil.which("uv", path=str(Path(sys.executable).parent)) is None, reason="needs uv"
)


@pytest.fixture(autouse=True)
def index(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels that stands for every package index: `some-tool`, which has a program, and `other`."""
    directory = tmp_path_factory.mktemp("wheels")
    for version in ("1.0", "1.1"):
        wheel(directory, "some_tool", version, program="some-tool")
    wheel(directory, "other", "3.0")
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    for name in ("PIP_FIND_LINKS", "UV_FIND_LINKS"):
        monkeypatch.setenv(name, str(directory))
    return directory


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the environments."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return cache_directory()


def only(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOOLS", {tool: module.TOOLS[tool]})


def said(python: Path, code: str) -> str:
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def assert_has(interpreter: Path, version: str) -> None:
    """Proves that its packages are some-tool in this version and `other`, and nothing else, on this Python."""
    about = "import sys, other, some_tool; print(some_tool.VERSION, other.VERSION, *sys.version_info[:3])"
    python = " ".join(map(str, sys.version_info[:3]))
    assert said(interpreter, about) == f"{version} 3.0 {python}"
    program = interpreter.with_name("some-tool")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == f"{version}\n"
    names = "from importlib.metadata import distributions; print(sorted(d.name for d in distributions()))"
    assert said(interpreter, names) in ("['other', 'some-tool']", "['other', 'some_tool']")


@needs_uv
def test_each_version_of_a_package_has_an_interpreter_that_is_used_again(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only("uv", monkeypatch)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "of another place"))
    install_at(tmp_path / "of another place", "other", "3.0")  # must not be taken for installed
    lists = {version: {"some-tool": version, "other": "3.0", "pytest-fileperf": "9"} for version in ("1.0", "1.1")}
    found = {version: python_with(listed) for version, listed in lists.items()}
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(module, "TOOLS", {})
    for version, interpreter in found.items():
        assert_has(interpreter, version)
        assert python_with(lists[version]) == interpreter
    assert set(cache.iterdir()) == {interpreter.parents[1] for interpreter in found.values()}


@needs_uv
def test_two_runs_can_build_one_environment_at_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("uv", monkeypatch)
    found: list[Path] = []

    def build() -> None:
        found.append(python_with({"other": "3.0"}))

    runs = [threading.Thread(target=build) for _ in range(2)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert len(found) == 2
    assert len(set(found)) == 1
    assert said(found[0], "import other; print(other.VERSION)") == "3.0"
    assert list(cache.iterdir()) == [found[0].parents[1]]


@needs_uv
def test_a_version_that_no_index_has_is_named_and_nothing_is_left(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("uv", monkeypatch)
    with pytest.raises(PlanError) as caught:
        python_with({"other": "3.0", "some-tool": "7.0"})
    assert str(caught.value).startswith("some-tool 7.0 cannot be installed, because no package index has it for this")
    assert list(cache.iterdir()) == []


@needs_uv
def test_a_setting_that_replaces_a_version_is_noticed_and_pip_tried(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.uv]\noverride-dependencies = ["some-tool==1.1"]\n')
    monkeypatch.chdir(tmp_path)
    wanted, lead = {"some-tool": "1.0", "other": "3.0"}, "because the settings of uv or pip lead to"
    tools = module.TOOLS
    only("uv", monkeypatch)
    with monkeypatch.context() as patch:
        for name in ("UV_FIND_LINKS", "UV_NO_INDEX"):  # uv is told pip's
            patch.delenv(name)
        with pytest.raises(PlanError, match=rf"^some-tool 1.0 cannot be installed, {lead} 1\.1"):
            python_with(wanted)
    monkeypatch.setattr(module, "TOOLS", tools)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "of another place"))
    install_at(tmp_path / "of another place", "other", "3.0")  # must not be taken for installed by pip either
    python = python_with(wanted)
    monkeypatch.delenv("PYTHONPATH")
    assert_has(python, "1.0")
    assert list(cache.iterdir()) == [python.parents[1]]


def test_it_takes_no_longer_than_it_may(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only("pip", monkeypatch)
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.01)
    with pytest.raises(PlanError, match=r"the baseline's packages \(1\) could not be installed within 0.01 s"):
        python_with({"other": "3.0"})
    assert list(cache.iterdir()) == []


@needs_uv
def test_what_came_from_git_is_copied_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs are not: only its modules are imported."""
    only("uv", monkeypatch)
    here = tmp_path / "site-packages"
    monkeypatch.setattr("site.getsitepackages", lambda: [str(here)])
    monkeypatch.syspath_prepend(here)
    git: dict[str, object] = {"url": "https://example.invalid", "vcs_info": {"vcs": "git", "commit_id": "1a2b3c4d5"}}
    install_at(here, "from_git", "2.0", direct_url=git)
    version = installed_packages()["from-git"]
    assert version == "2.0 (git 1a2b3c4)"
    python = python_with({"from-git": version, "other": "3.0"})
    assert said(python, "import from_git, other; print(from_git.VERSION, other.VERSION)") == "2.0 3.0"
