"""Lists installed packages, and makes virtual environments with exactly the packages of an earlier list.

The user's cache directory keeps these environments.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import Distribution, distributions
from itertools import takewhile
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.host.child import run
from pytest_fileperf.versions.tree import is_of_the_interpreter

# --- Makes a virtual environment by uv or pip, which read their own settings, such as indexes

_TIMEOUT_S = 300.0
"""The longest time for an installation: some packages are built from source, and some networks are slow."""
_OF_ANOTHER_PLACE = frozenset((
    "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
))  # fmt: skip
"""Environment variables that would lead to packages outside the new environment."""
_FOR_UV = (
    ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"),
    ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
    ("PIP_NO_INDEX", "UV_NO_INDEX"),
)
"""Each row: pip's variable, then uv's variables with the same meaning. If they are not set, uv gets pip's value."""
_SYSTEM_CERTIFICATES = ("UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
"""Old and new name of uv's setting to trust the system's certificates, which may include a company's own."""
_UNREACHABLE = re.compile(
    r"error sending request|tcp connect error|connection broken|network was disabled|name resolution|dns error"
    r"|newconnectionerror|ssl: certificate|invalid peer certificate|timed out",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"no matching distribution|no version of|not found in|no solution found", re.IGNORECASE)
_NOT_BUILT = re.compile(r"failed to build|failed building|failed-wheel-build|metadata-generation-failed", re.IGNORECASE)
_NAMED = (
    r"(?<![\w.-]){name}(==|-|@| ){version}(?![\w-])",
    r"\b(for|build|because|simple)[ /]['`]?{name}(?![\w-])",
)
"""Patterns that find a package's name in uv's and pip's messages. Some names are common words (`build`)."""


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Returns (name, version). The name is normalized by PEP 503, as in `typing-extensions`. Both may be empty."""
    # `distribution.metadata` also parses long descriptions, which takes 0.2 s for a hundred packages.
    text = next(filter(None, map(distribution.read_text, ("METADATA", "PKG-INFO", ""))), "")
    found = {"name": "", "version": ""}
    for line in takewhile(str.strip, text.splitlines()):
        key, _, value = line.partition(":")
        if not found.get(key.lower(), "known"):
            found[key.lower()] = value.strip()
    return re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"]


def python_of(environment: Path) -> Path:
    return _place(environment, "scripts") / ("python.exe" if os.name == "nt" else "python")


def packages_of(environment: Path) -> Path:
    return _place(environment, "purelib")


def install(packages: Mapping[str, str], environment: Path) -> None:
    """Makes a virtual environment with exactly these `packages` (versions by name), and with this process's Python.

    The path `environment` must not exist. Raises PlanError.
    """
    deadline_s = time.monotonic() + _TIMEOUT_S
    problem = PlanError("the baseline's packages can be installed only by uv or pip. Install one of these tools")
    listed = environment.parent / "packages.txt"
    listed.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()), encoding="utf-8")
    for commands_of in TOOLS.values():
        commands = commands_of(environment, packages, listed)
        try:
            for command in commands:
                _run(command, packages, deadline_s=deadline_s)
            if commands:
                _prove(environment, packages)
                return
        except PlanError as error:
            problem = error
            shutil.rmtree(environment, ignore_errors=True)
            if time.monotonic() >= deadline_s:
                break
    raise problem


def why_not_installed(said: str, packages: Mapping[str, str]) -> str:
    """Returns a sentence about why uv or pip failed. `said` is the tool's output."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    complaints = [line for line in lines if line and not line.lower().startswith(("warning:", "hint:", "looking in"))]
    errors = [line for line in complaints if re.match(r"error|cause|[×╰│├]|caused by", line, re.IGNORECASE)]
    text = "\n".join(errors or complaints[-3:])
    name = next((name for way in _NAMED for name in packages if _is_named(way, name, packages[name], text)), None)
    what = f"{name} {packages[name]}" if name else "the packages"
    if _UNREACHABLE.search(said):
        return f"{what} cannot be installed, because no package index can be reached"
    if name and _NOT_BUILT.search(said):
        return (
            f"{what} cannot be installed, because it has no wheel for this Python and machine and cannot be built here"
        )
    if name and _UNKNOWN.search(text):
        return f"{what} cannot be installed, because no package index has it for this Python and machine"
    last = re.sub(
        r"^(error|cause|caused by): ", "", (errors or complaints or ["no reason given"])[-1], flags=re.IGNORECASE
    )
    return f"{what} cannot be installed ({last.rstrip('.')})"


def env_for_tools(env: Mapping[str, str]) -> dict[str, str]:
    result = {name: value for name, value in env.items() if name not in _OF_ANOTHER_PLACE}
    for of_pip, *of_uv in _FOR_UV:
        if of_pip in result and not any(name in result for name in of_uv):
            words = result[of_pip].split()
            result[of_uv[0]] = (",".join if of_pip == "PIP_FIND_LINKS" else " ".join)(words)
    if not any(name in result for name in _SYSTEM_CERTIFICATES):
        result |= dict.fromkeys(_SYSTEM_CERTIFICATES, "true")
    return result


def _is_named(way: str, name: str, version: str, text: str) -> bool:
    written = "[-_.]+".join(map(re.escape, name.split("-")))
    return re.search(way.format(name=written, version=re.escape(version)), text, re.IGNORECASE) is not None


def _prove(environment: Path, packages: Mapping[str, str]) -> None:
    """Raises PlanError if a package has another version, because of settings of uv or pip."""
    path = {str(_place(environment, kind)) for kind in ("purelib", "platlib")}
    found = dict(map(name_and_version, distributions(path=[*path])))
    for name, version in packages.items():
        if found.get(name) != version:
            raise PlanError(
                f"{name} {version} cannot be installed, because the settings of uv or pip lead to "
                f"{found.get(name, 'none')} instead"
            )


def _place(environment: Path, kind: str) -> Path:
    top = str(environment)
    return Path(sysconfig.get_path(kind, "venv", vars={"base": top, "platbase": top}))


def _by_uv(environment: Path, packages: Collection[str], listed: Path) -> list[list[str]]:
    # Without activation, an environment's programs are beside its Python.
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        return []
    make = [uv, "venv", "--no-project", "--python", sys.executable, str(environment)]
    # The packages are compiled, because a server that compiles them at start-up has another memory layout.
    fill = [uv, "pip", "install", "--no-deps", "--compile-bytecode", "--python", str(python_of(environment))]
    return [make, [*fill, "--requirement", str(listed)]] if packages else [make]


def _by_pip(environment: Path, packages: Collection[str], listed: Path) -> list[list[str]]:
    make = [sys.executable, "-I", "-m", "venv", str(environment)]
    python = str(python_of(environment))
    if importlib.util.find_spec("pip") is not None:
        pip, make = [sys.executable, "-I", "-m", "pip", "--python", python], [*make, "--without-pip"]
        clear = []
    elif importlib.util.find_spec("ensurepip") is not None:
        pip = [python, "-I", "-m", "pip"]
        clear = [name for name in ("setuptools", "pip") if name not in packages]  # they came with pip
    else:
        return []
    fill = [*pip, "install", "--no-deps", "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    return [
        make,
        *([[*fill, "--requirement", str(listed)]] if packages else []),
        *([[*pip, "uninstall", "--yes", *clear]] if clear else []),
    ]


TOOLS: Mapping[str, Callable[[Path, Collection[str], Path], list[list[str]]]] = {"uv": _by_uv, "pip": _by_pip}
"""Each function returns the commands that make an environment. Without the tool, it returns []."""


def _run(command: Sequence[str], packages: Mapping[str, str], *, deadline_s: float) -> None:
    """Raises PlanError if the command fails, cannot start or misses the deadline."""
    left_s, env = max(0.05, deadline_s - time.monotonic()), env_for_tools(os.environ)
    try:
        # A file, because a daemon of a build, such as a compiler's cache, would keep a pipe open.
        with tempfile.TemporaryFile() as log:
            done = run(command, env=env, timeout_s=left_s, stdout=log, stderr=subprocess.STDOUT)
            log.seek(0)
            output = log.read().decode("utf-8", "replace")
    except OSError as error:
        raise PlanError(f"{command[0]} cannot be started ({error.strerror or error})") from error
    except subprocess.TimeoutExpired:
        raise PlanError(
            f"the baseline's packages ({len(packages)}) could not be installed within {_TIMEOUT_S:g} s"
        ) from None
    if done.returncode != 0:
        raise PlanError(why_not_installed(re.sub(r"\x1b\[[0-9;]*m", "", output), packages))


# --- Lists an interpreter's packages, and finds an interpreter with the packages of an earlier list

_LENT = "pytest-fileperf"
"""This package's name. The package is never installed, because every server gets the copy that runs here."""
_KEPT = 8
_BUILDING, _REMOVING = ".new-", ".old-"


def installed_packages(path: Sequence[str] | None = None) -> dict[str, str]:
    """Returns the installed packages' versions by name, sorted. The default `path` is `sys.path`.

    If a package isn't from a package index, its version names the origin: `1.0 (local)`, `1.0 (git 1a2b3c4)`.
    """
    entries = tuple(sys.path if path is None else path)
    return dict(_packages_on(entries, tuple(map(_changed_ns, entries))))


def _changed_ns(entry: str) -> int:
    """Returns when something in a directory was last added or removed. 0 if unknown."""
    try:
        return os.stat(entry or os.curdir).st_mtime_ns  # noqa: PTH116 # at each call
    except OSError:
        return 0


@cache
def _packages_on(path: Sequence[str], changed_ns: Sequence[int]) -> Mapping[str, str]:
    """Lists the packages again only after `changed_ns` has changed, because a list takes 0.2 ms per package."""
    found: dict[str, str] = {}
    is_ours = cache(is_of_the_interpreter)
    for distribution in distributions(path=list(path)):
        name, version = name_and_version(distribution)
        if name and version and name not in found:
            origin = _origin(distribution, is_ours)
            found[name] = f"{version} ({origin})" if origin else version
    return dict(sorted(found.items()))


def python_with(packages: Mapping[str, str]) -> Path:
    """Returns an interpreter whose environment has these packages, an earlier result of `installed_packages`.

    The environment lacks pytest-fileperf and `(local)` packages. Packages from other origins, such as Git, are copied
    from this environment. Raises PlanError.
    """
    outside = {name: version for name, version in packages.items() if " " in version}
    copied = {name: version for name, version in outside.items() if not version.endswith("(local)") and name != _LENT}
    wanted = {name: packages[name] for name in sorted(packages) if name not in outside and name != _LENT}
    try:
        cache = cache_directory()
    except RuntimeError as error:
        raise PlanError(f"there is no cache directory for packages ({error}). Set XDG_CACHE_HOME") from error
    environment = cache / environment_name(wanted | copied)
    try:
        if not python_of(environment).exists():
            sources = _sources(copied)
            cache.mkdir(parents=True, exist_ok=True)
            _build(environment, wanted, sources)
    except OSError as error:
        raise PlanError(f"the old packages cannot be installed in {cache} ({error.strerror or error})") from error
    with suppress(OSError):  # another user's environment cannot be touched
        os.utime(environment)
        _bound(cache)
    return python_of(environment)


def cache_directory() -> Path:
    """Returns the directory for environments. Raises RuntimeError if the user has no home."""
    named, system = os.environ.get("XDG_CACHE_HOME", ""), platform.system()
    if Path(named).is_absolute():
        top = Path(named)
    elif system == "Windows":
        top = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        top = Path.home() / ("Library/Caches" if system == "Darwin" else ".cache")
    return top / "pytest-fileperf" / "environments"


def environment_name(packages: Mapping[str, str]) -> str:
    """Returns a directory name that depends on the packages, the Python and the platform."""
    python = f"{sys.implementation.name}{sys.version_info.major}.{sys.version_info.minor}"
    exact = [sorted(packages.items()), sys.version, sys.base_prefix, sysconfig.get_platform()]
    return f"{python}-{hashlib.sha256(json.dumps(exact).encode()).hexdigest()[:16]}"


def _origin(distribution: Distribution, is_ours: Callable[[Path], bool]) -> str:
    """Returns where a distribution came from (PEP 610): `local`, `git 1a2b3c4` … Empty if from a package index."""
    if (distribution.read_text("INSTALLER") or "").strip() == "conda":
        return ""  # it names the directory in which conda's own servers built it
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
    # Packages on `sys.path` outside the interpreter's directories are the user's code.
    return "local" if url or not is_ours(Path(str(distribution.locate_file("")))) else ""


def _sources(copied: Mapping[str, str]) -> list[Distribution]:
    """Returns the packages' distributions. Raises PlanError if another version is installed here."""
    here = installed_packages() if copied else {}
    for name, version in copied.items():
        if here.get(name) != version:
            raise PlanError(
                f"{name} {version} is in no package index, and {here.get(name, 'no version')} is installed here. "
                f"To measure with the old packages, install {name} {version} here"
            )
    first: dict[str, Distribution] = {}
    for distribution in distributions() if copied else ():
        first.setdefault(name_and_version(distribution)[0], distribution)
    return [first[name] for name in copied]


def _build(environment: Path, packages: Mapping[str, str], sources: Iterable[Distribution]) -> None:
    if environment.exists():  # its Python is gone
        _remove(environment)
    # Several runs may build the same environment at once, so each builds its own and then renames it.
    with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=environment.parent, ignore_cleanup_errors=True) as temporary:
        fresh = Path(temporary) / "environment"
        install(packages, fresh)
        for distribution in sources:
            for file in distribution.files or ():
                if ".." not in file.parts and not file.is_absolute():  # programs are not copied
                    target = packages_of(fresh) / file
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(str(distribution.locate_file(file)), target)
        _tell_programs(fresh, environment)
        try:
            fresh.rename(environment)
        except OSError:
            if not python_of(environment).exists():  # else another run was faster
                raise


def _tell_programs(was: Path, now: Path) -> None:
    """In the environment's scripts, replaces the environment's path `was` by `now`."""
    before, after = os.fsencode(was), os.fsencode(now)
    for program in python_of(was).parent.iterdir():
        if program.is_symlink() or not program.is_file():
            continue
        content = program.read_bytes()
        if content.startswith(b"#!") and before in content:
            program.write_bytes(content.replace(before, after))


def _bound(cache: Path) -> None:
    """Removes old environments and leftovers of ended runs. Keeps the `_KEPT` last used environments."""
    ages_s: list[tuple[float, Path]] = []
    for path in cache.iterdir():
        with suppress(OSError):  # another run removed it
            ages_s.append((time.time() - path.stat().st_mtime, path))
    environments = [each for each in sorted(ages_s) if not each[1].name.startswith((_BUILDING, _REMOVING))]
    for age_s, path in ages_s:
        # An environment used in the last hour may still be in use, or another run may still build it.
        if age_s > 3600 and (age_s, path) not in environments[:_KEPT]:
            _remove(path)


def _remove(directory: Path) -> None:
    """Renames a directory before removing it, so that no other run finds it half removed."""
    doomed = Path(tempfile.mkdtemp(prefix=_REMOVING, dir=directory.parent))
    with suppress(OSError):
        directory.rename(doomed / directory.name)
    shutil.rmtree(doomed, ignore_errors=True)
