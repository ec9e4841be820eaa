"""The packages that are installed, and an interpreter that has exactly the versions of another day.

Such interpreters are kept in the user's cache, a virtual environment for each list of packages. One is built in a
temporary directory beside the others and renamed when it is complete, so that runs side by side can build it at once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.installing import install, name_and_version, packages_of, python_of
from pytest_fileperf.versions.tree import is_of_the_interpreter

__all__ = ("cache_directory", "environment_name", "from_no_index", "installed_packages", "python_with")

_LENT = "pytest-fileperf"
"""Every server gets the copy of this package that runs here: `serve.job.lend_package`."""
_TIMEOUT_S = 300.0
"""Some packages are built from source, and some lines are slow."""
_KEPT = 8
_IN_USE_S = 3600.0
"""An environment used within that time may be in use, and one that is being built is not left over."""
_BUILDING, _REMOVING = ".new-", ".old-"


def installed_packages(path: Sequence[str] | None = None) -> dict[str, str]:
    """Returns every installed distribution, normalised name (PEP 503) to version, sorted by name.

    `path` is where to look, by default `sys.path`; of two with one name the first counts. Behind the version of one
    that no package index gave stands what it came from, by PEP 610: `1.0 (local)`, `1.0 (git 1a2b3c4)`.
    """
    found: dict[str, str] = {}
    for distribution in distributions() if path is None else distributions(path=list(path)):
        name, version = name_and_version(distribution)
        if name and version and name not in found:
            origin = _origin(distribution)
            found[name] = f"{version} ({origin})" if origin else version
    return dict(sorted(found.items()))


def from_no_index(packages: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of those that no package index gave: `python_with` does not ask an index for them."""
    return tuple(name for name, version in packages.items() if " " in version)


def python_with(
    packages: Mapping[str, str],
    *,
    cache: Path | None = None,
    timeout_s: float = _TIMEOUT_S,
    kept: int = _KEPT,
    tools: Sequence[str] | None = None,
) -> Path:
    """Returns an interpreter like this one, with exactly these packages: what `installed_packages` returned one day.

    `cache` is the directory of such environments; beyond `kept` of them, those not used longest are removed. `tools`
    are those of `installing.TOOLS`.

    Without an index: packages `(local)` are left out, as their code comes from a tree or from `sys.path`. Others from
    no index are copied from here if they are the same here. pytest-fileperf is left out too, as servers get it anyway.

    Raises PlanError with one sentence that says what cannot be had.
    """
    outside = {name: version for name, version in packages.items() if name in from_no_index(packages)}
    copied = {name: version for name, version in outside.items() if not version.endswith("(local)") and name != _LENT}
    wanted = {name: packages[name] for name in sorted(packages) if name not in outside and name != _LENT}
    try:
        cache = cache or cache_directory()
    except RuntimeError as error:
        raise PlanError(f"there is no directory for environments ({error}): set XDG_CACHE_HOME") from error
    environment = cache / environment_name(wanted | copied)
    try:
        if not python_of(environment).exists():
            sources = _sources(copied)
            cache.mkdir(parents=True, exist_ok=True)
            _build(environment, wanted, sources, timeout_s=timeout_s, tools=tools)
    except OSError as error:
        raise PlanError(f"no environment can be made in {cache} ({error.strerror or error})") from error
    with suppress(OSError):  # one that was made ready, and that only others may change
        os.utime(environment)
        _bound(cache, kept)
    return python_of(environment)


def cache_directory(
    env: Mapping[str, str] = os.environ, *, system: str = sys.platform, home: Path | None = None
) -> Path:
    """Returns the directory for environments in the user's cache; raises RuntimeError where the user has no home."""
    named = env.get("XDG_CACHE_HOME", "")
    if Path(named).is_absolute():
        top = Path(named)
    elif system == "win32":
        top = Path(env.get("LOCALAPPDATA") or (home or Path.home()) / "AppData" / "Local")
    else:
        top = (home or Path.home()) / ("Library/Caches" if system == "darwin" else ".cache")
    return top / "pytest-fileperf" / "environments"


def environment_name(packages: Mapping[str, str]) -> str:
    """Returns the name of the directory for an environment: of its packages, its Python and the machine's kind."""
    python = f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}"
    exact = [sorted(packages.items()), sys.version, sys.base_prefix, sysconfig.get_platform()]
    return f"{python}-{hashlib.sha256(json.dumps(exact).encode()).hexdigest()[:16]}"


def _origin(distribution: Distribution) -> str:
    """Returns what a distribution came from; empty where that is a package index.

    See packaging.python.org/en/latest/specifications/direct-url/.
    """
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        return ""  # its packages name the directory in which conda's own servers built them
    about: Mapping[str, object] = {}
    with suppress(ValueError):
        about = json.loads(distribution.read_text("direct_url.json") or "{}")
    vcs, archive, url = about.get("vcs_info"), about.get("archive_info"), str(about.get("url") or "")
    if isinstance(vcs, dict):
        return f"{vcs.get('vcs')} {str(vcs.get('commit_id'))[:7]}"
    if isinstance(archive, dict) and not url.startswith("file:"):
        hashes = archive.get("hashes")
        digest = hashes.get("sha256") if isinstance(hashes, dict) else None
        return f"archive {str(digest)[:7]}" if digest else "archive"
    # What lies outside of the interpreter's directories is on `sys.path` by other means, which both sides have.
    return "local" if url or not is_of_the_interpreter(Path(str(distribution.locate_file("")))) else ""


def _sources(copied: Mapping[str, str]) -> list[Distribution]:
    """Returns the distributions here that are to be copied; raises PlanError for one that is not the same here."""
    here = installed_packages() if copied else {}
    for name, version in copied.items():
        if here.get(name) != version:
            raise PlanError(
                f"{name} {version} came from no package index, and here is {here.get(name, 'none')}: it cannot be had"
            )
    first: dict[str, Distribution] = {}
    for distribution in distributions() if copied else ():
        first.setdefault(name_and_version(distribution)[0], distribution)
    return [first[name] for name in copied]


def _build(
    environment: Path,
    packages: Mapping[str, str],
    sources: Iterable[Distribution],
    *,
    timeout_s: float,
    tools: Sequence[str] | None,
) -> None:
    if environment.exists():  # its Python is gone
        _remove(environment)
    with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=environment.parent, ignore_cleanup_errors=True) as temporary:
        fresh = Path(temporary) / "environment"
        install(packages, fresh, timeout_s=timeout_s, tools=tools)
        for distribution in sources:
            _copy(distribution, packages_of(fresh))
        _tell_programs(fresh, environment)
        try:
            fresh.rename(environment)
        except OSError:
            if not python_of(environment).exists():  # else another run was faster, and its is as good
                raise


def _copy(distribution: Distribution, packages: Path) -> None:
    """Copies the files of a distribution, but for its programs."""
    for file in distribution.files or ():
        if ".." not in file.parts and not file.is_absolute():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(distribution.locate_file(file)), target)


def _tell_programs(was: Path, now: Path) -> None:
    """Writes into the scripts of an environment where its Python will be once the environment is renamed."""
    before, after = os.fsencode(was), os.fsencode(now)
    for program in python_of(was).parent.iterdir():
        if program.is_symlink() or not program.is_file():
            continue
        content = program.read_bytes()
        if content.startswith(b"#!") and before in content:
            program.write_bytes(content.replace(before, after))


def _bound(cache: Path, kept: int) -> None:
    """Removes the environments not used longest beyond the number that is kept, and what ended runs left over."""
    ages_s: list[tuple[float, Path]] = []
    for path in cache.iterdir():
        with suppress(OSError):  # another run removed it
            ages_s.append((time.time() - path.stat().st_mtime, path))
    unused = [path for age_s, path in sorted(ages_s) if age_s > _IN_USE_S]
    left_over = [path for path in unused if path.name.startswith((_BUILDING, _REMOVING))]
    surplus = len(ages_s) - kept - sum(path.name.startswith((_BUILDING, _REMOVING)) for _, path in ages_s)
    environments = [path for path in unused if path not in left_over]
    for path in (*left_over, *environments[max(0, len(environments) - surplus) :]):
        _remove(path)


def _remove(directory: Path) -> None:
    """Removes a directory, under another name first, so that no run takes it for whole. What stays is no error."""
    doomed = Path(tempfile.mkdtemp(prefix=_REMOVING, dir=directory.parent))
    with suppress(OSError):
        directory.rename(doomed / directory.name)
    shutil.rmtree(doomed, ignore_errors=True)
