"""What is installed and where it came from; and environments in the cache, made without a process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from versions.wheels import install_at

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions import packages as module
from pytest_fileperf.versions.packages import (
    cache_directory,
    env_for_tools,
    installed_packages,
    python_of,
    python_with,
    why_not_installed,
)

GIT = {"url": "https://example.invalid/a.git", "vcs_info": {"vcs": "git", "commit_id": "1a2b3c4d5e6f"}}
WEB = {"url": "https://example.invalid/a.whl", "archive_info": {"hashes": {"sha256": "9f8e7d6c5b4a"}}}
ORIGINS: dict[str, tuple[dict[str, object] | None, str, str]] = {
    "a package index": (None, "pip", "1.0"),
    "an editable install": ({"url": "file:///code", "dir_info": {"editable": True}}, "uv", "1.0 (local)"),
    "a directory": ({"url": "file:///code", "dir_info": {}}, "pip", "1.0 (local)"),
    "a file": ({"url": "file:///a.whl", "archive_info": {}}, "pip", "1.0 (local)"),
    "Git": (dict(GIT), "pip", "1.0 (git 1a2b3c4)"),
    "an address": (dict(WEB), "pip", "1.0 (archive 9f8e7d6)"),
    "an address without a hash": ({**WEB, "archive_info": {}}, "pip", "1.0 (archive)"),
    "conda, with the directory of its own servers": ({"url": "file:///home/conda", "dir_info": {}}, "conda", "1.0"),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that counts as one of this Python's."""
    directory = tmp_path / "site-packages"
    monkeypatch.setattr("site.getsitepackages", lambda: [str(directory)])
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    return directory


def test_where_a_package_came_from(tmp_path: Path, site: Path) -> None:
    for case, (direct_url, installer, version) in enumerate(ORIGINS.values()):
        install_at(site / str(case), "a", "1.0", direct_url=direct_url, installer=installer)
        assert installed_packages([str(site / str(case))]) == {"a": version}
    install_at(site, "a", "1.0")
    (site / "a-1.0.dist-info" / "direct_url.json").write_text("{")  # damaged
    assert installed_packages([str(site)]) == {"a": "1.0"}
    install_at(tmp_path / "vendored", "a", "1.0")  # outside the interpreter's directories
    assert installed_packages([str(tmp_path / "vendored")]) == {"a": "1.0 (local)"}


def test_names_are_normalised_and_sorted_and_the_first_of_two_counts(site: Path) -> None:
    for directory, name, version in (("", "Some.Name_x", "2"), ("", "b", "1"), ("later", "some_name.X", "3")):
        install_at(site / directory, name, version)
    found = installed_packages([str(site), str(site / "later")])
    assert list(found.items()) == [("b", "1"), ("some-name-x", "2")]


@pytest.mark.parametrize(
    "system,variables,directory",
    [
        ("Linux", {}, "home/.cache"),
        ("Linux", {"XDG_CACHE_HOME": "{}/xdg"}, "xdg"),
        ("Linux", {"XDG_CACHE_HOME": "relative"}, "home/.cache"),
        ("Darwin", {}, "home/Library/Caches"),
        ("Windows", {}, "home/AppData/Local"),
        ("Windows", {"LOCALAPPDATA": "{}/local"}, "local"),
    ],
)
def test_the_cache_is_the_user_s(
    system: str, variables: dict[str, str], directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, variables.get(name, "").format(tmp_path))
    assert cache_directory() == tmp_path / directory / "pytest-fileperf" / "environments"


# Environments that another run has made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of environments, for a process that has no tool to make one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "TOOLS", {})
    return cache_directory()


def made(packages: dict[str, str], cache: Path, *, hours_ago: float = 0.0) -> Path:
    """Puts an environment with these packages into the cache."""
    environment = cache / module.environment_name(packages)
    python_of(environment).parent.mkdir(parents=True)
    python_of(environment).touch()
    os.utime(environment, (time.time() - hours_ago * 3600,) * 2)
    return environment


def test_an_environment_in_the_cache_is_used_and_marked_as_used(cache: Path) -> None:
    environment = made({"a": "1"}, cache, hours_ago=5)
    listed = {"a": "1", "pytest-fileperf": "9", "own": "3 (local)"}
    assert python_with(listed) == python_of(environment)
    assert time.time() - environment.stat().st_mtime < 3600


def test_why_there_is_no_environment(cache: Path) -> None:
    made({"a": "1"}, cache)
    without_tool = r"^the baseline's packages can be installed only by uv or pip. Install one"
    not_here = r"^a 1 \(git 1a2b3c4\) is in no package index, and no version is installed here"
    for packages, why in (
        ({"a": "2"}, without_tool),
        ({}, without_tool),
        ({"a": "1", "b": "1"}, without_tool),
        ({"a": "1 (git 1a2b3c4)"}, not_here),
    ):
        with pytest.raises(PlanError, match=why):
            python_with(packages)
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_said(cache: Path) -> None:
    cache.parent.touch()
    with pytest.raises(PlanError, match=r"the old packages cannot be installed in .*environments \("):
        python_with({"a": "1"})


def test_those_not_used_longest_are_removed_but_none_that_may_be_in_use(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 2.0, "e": 30.0, "f": 3.0}
    places = {name: made({name: "1"}, cache, hours_ago=ago) for name, ago in hours.items()}
    monkeypatch.setattr(module, "_KEPT", 4)
    python_with({"a": "1"})
    assert {name for name, place in places.items() if place.exists()} == {"a", "b", "c", "d"}
    monkeypatch.setattr(module, "_KEPT", 1)
    python_with({"a": "1"})
    assert set(cache.iterdir()) == {places[name] for name in "abc"}


# What uv 0.11 and pip 26.3 say when they fail, shortened

PIP_UNKNOWN = """Collecting h11==0.16.0
  Downloading h11-0.16.0-py3-none-any.whl (37 kB)
ERROR: Ignored the following yanked versions: 4.6.2
ERROR: Could not find a version that satisfies the requirement anyio==99.1 (from versions: 4.15.1, 4.16.0)
ERROR: No matching distribution found for anyio==99.1
"""
PIP_OFFLINE = """Looking in indexes: http://127.0.0.1:9/simple
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by \
'NewConnectionError("HTTPConnection(host='127.0.0.1', port=9): Failed to establish a new connection: [Errno 111] \
Connection refused")': /simple/anyio/
ERROR: Could not find a version that satisfies the requirement anyio==4.16.0 (from versions: none)
ERROR: No matching distribution found for anyio==4.16.0
"""
PIP_NOT_BUILT = """Processing ./bad/typing_extensions-1.0.tar.gz (from -r packages.txt (line 1))
  Getting requirements to build wheel: finished with status 'error'
  error: subprocess-exited-with-error
  × Getting requirements to build wheel did not run successfully.
  │ exit code: 1
  ╰─> [1 lines of output]
      no compiler here
ERROR: Failed to build 'typing_extensions' when getting requirements to build wheel
"""
UV_UNKNOWN = """Using Python 3.11.7 environment at: e1
error: No solution found when resolving dependencies
  cause: Because there is no version of anyio==99.1 and you require anyio==99.1, we can conclude that your requirements
are unsatisfiable.
"""
UV_OLDER_UNKNOWN = """  × No solution found when resolving dependencies:
  ╰─▶ Because there is no version of anyio==99.1 and you require anyio==99.1,
      we can conclude that your requirements are unsatisfiable.
"""
UV_OFFLINE = """Using Python 3.11.7 environment at: e1
error: Request failed after 3 retries in 10.6s
  cause: Failed to fetch: http://127.0.0.1:9/simple/anyio/
  cause: error sending request for url (http://127.0.0.1:9/simple/anyio/)
  cause: client error (Connect)
  cause: Connection refused (os error 111)
"""
UV_SWITCHED_OFF = """error: No solution found when resolving dependencies
  cause: Because anyio was not found in the cache and you require anyio==4.16.0, we can conclude that your requirements
are unsatisfiable.

hint: Packages were unavailable because the network was disabled. When the network is disabled, registry packages may
"""
UV_NOT_BUILT = """Using Python 3.11.7 environment at: e1
   Building typing-extensions==1.0
error: Failed to build `typing-extensions==1.0`
  cause: The build backend returned an error
  cause: Call to `setuptools.build_meta` failed (exit status: 1)

         [stderr]
         no compiler here
"""
UNKNOWN = "cannot be installed, because no package index has it for this Python and machine"
OFFLINE = "cannot be installed, because no package index can be reached"
NOT_BUILT = "cannot be installed, because it has no wheel for this Python and machine and cannot be built here"
FAILURES: dict[str, tuple[str, str]] = {
    "pip, unknown": (PIP_UNKNOWN, f"anyio 99.1 {UNKNOWN}"),
    "pip, offline": (PIP_OFFLINE, f"anyio 4.16.0 {OFFLINE}"),
    "pip, not built": (PIP_NOT_BUILT, f"typing-extensions 1.0 {NOT_BUILT}"),
    "uv, unknown": (UV_UNKNOWN, f"anyio 99.1 {UNKNOWN}"),
    "an older uv, unknown": (UV_OLDER_UNKNOWN, f"anyio 99.1 {UNKNOWN}"),
    "uv, offline": (UV_OFFLINE, f"anyio 4.16.0 {OFFLINE}"),
    "uv, switched off": (UV_SWITCHED_OFF, f"anyio 4.16.0 {OFFLINE}"),
    "uv, not built": (UV_NOT_BUILT, f"typing-extensions 1.0 {NOT_BUILT}"),
    "uv, not allowed": (
        "error: Failed to fetch: `https://a/simple/anyio/`\n  Caused by: HTTP status client error (403 Forbidden)",
        "anyio 4.16.0 cannot be installed (HTTP status client error (403 Forbidden))",
    ),
    "no room": (
        "Collecting anyio==4.16.0\nERROR: Could not install packages due to an OSError: [Errno 28] No space left\n",
        "the packages cannot be installed (Could not install packages due to an OSError: [Errno 28] No space left)",
    ),
    "silence": ("", "the packages cannot be installed (no reason given)"),
}


@pytest.mark.parametrize("said,why", FAILURES.values(), ids=FAILURES)
def test_why_packages_cannot_be_installed(said: str, why: str) -> None:
    anyio = "99.1" if "99.1" in said else "4.16.0"
    wanted = {"anyio": anyio, "build": "1.5", "h11": "0.16.0", "typing-extensions": "1.0", "wheel": "0.45"}
    assert why_not_installed(said, wanted) == why


CERTIFICATES = {"UV_NATIVE_TLS": "true", "UV_SYSTEM_CERTS": "true"}
BOTH = {"PIP_INDEX_URL": "a", "UV_INDEX_URL": "b", "PIP_NO_INDEX": "1", "UV_NO_INDEX": "0"}
VARIABLES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "none": ({}, CERTIFICATES),
    "of another place": ({"PYTHONPATH": "/a", "PIP_TARGET": "/b", "VIRTUAL_ENV": "/c", "HOME": "/d"}, {"HOME": "/d"}),
    "index": ({"PIP_INDEX_URL": "https://a"}, {"PIP_INDEX_URL": "https://a", "UV_DEFAULT_INDEX": "https://a"}),
    "indexes": ({"PIP_EXTRA_INDEX_URL": "a  b"}, {"PIP_EXTRA_INDEX_URL": "a  b", "UV_INDEX": "a b"}),
    "links": ({"PIP_FIND_LINKS": "/a /b"}, {"PIP_FIND_LINKS": "/a /b", "UV_FIND_LINKS": "/a,/b"}),
    "uv's own": (BOTH, BOTH),
    "certificates": ({"UV_NATIVE_TLS": "false"}, {"UV_NATIVE_TLS": "false"}),
}


@pytest.mark.parametrize("given,told", VARIABLES.values(), ids=VARIABLES)
def test_variables_that_uv_and_pip_get(given: dict[str, str], told: dict[str, str]) -> None:
    assert env_for_tools(given) == (told if "UV_NATIVE_TLS" in told else told | CERTIFICATES)
