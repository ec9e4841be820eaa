"""Makes a virtual environment with exactly the packages that are asked for, by uv where there is one, else by pip.

Both read their own settings (indexes, `PIP_FIND_LINKS`, `UV_FIND_LINKS`, certificates, files). Dependencies are not
followed: the list has them all.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from itertools import takewhile
from pathlib import Path

from pytest_fileperf.errors import PlanError
from pytest_fileperf.versions.ending import end

__all__ = ("TOOLS", "env_for_tools", "install", "name_and_version", "packages_of", "python_of", "why_not_installed")

TOOLS = ("uv", "pip")
"""In the order in which they are tried. pip may know an index that uv does not know."""
_OF_ANOTHER_PLACE = frozenset((
    "PIP_PREFIX", "PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV",
    "__PYVENV_LAUNCHER__",
))  # fmt: skip
"""Environment variables that would have packages put, or found, outside the new environment."""
_FOR_UV = (
    ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    ("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"),
    ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
    ("PIP_NO_INDEX", "UV_NO_INDEX"),
)
"""Variables of pip, and those of uv for the same. uv does not read pip's: it is told them where it has none."""
_SYSTEM_CERTIFICATES = ("UV_NATIVE_TLS", "UV_SYSTEM_CERTS")
"""The old and the new name of one setting. A company's certificates are in the system's store, and not in uv's."""
_UNREACHABLE = re.compile(
    r"error sending request|tcp connect error|connection broken|network was disabled|name resolution|dns error"
    r"|newconnectionerror|ssl: certificate|invalid peer certificate|timed out",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"no matching distribution|no version of|not found in|no solution found", re.IGNORECASE)
_NOT_BUILT = re.compile(r"failed to build|failed building|failed-wheel-build|metadata-generation-failed", re.IGNORECASE)
_POLL_S = 0.05


def name_and_version(distribution: Distribution) -> tuple[str, str]:
    """Returns the name as PEP 503 has it (`typing-extensions`), and the version; empty texts where one is not known."""
    # `distribution.metadata` parses long descriptions, too: that took a fifth of a second for a hundred packages.
    text = next(filter(None, map(distribution.read_text, ("METADATA", "PKG-INFO", ""))), "")
    found = {"name": "", "version": ""}
    for line in takewhile(str.strip, text.splitlines()):
        key, _, value = line.partition(":")
        if not found.get(key.lower(), "known"):
            found[key.lower()] = value.strip()
    return re.sub(r"[-_.]+", "-", found["name"]).lower(), found["version"]


def python_of(environment: Path) -> Path:
    """Returns where the interpreter of a virtual environment is."""
    return _place(environment, "scripts") / ("python.exe" if os.name == "nt" else "python")


def packages_of(environment: Path) -> Path:
    """Returns the site-packages of a virtual environment."""
    return _place(environment, "purelib")


def install(
    packages: Mapping[str, str], environment: Path, *, timeout_s: float, tools: Sequence[str] | None = None
) -> None:
    """Makes the virtual environment, whose directory must not exist, with these versions and nothing else.

    Its Python is that of this process. Raises PlanError with one sentence when no tool can do it, or when it takes
    longer than `timeout_s`.
    """
    deadline_s = time.monotonic() + timeout_s
    problem = PlanError("there is neither uv nor pip to make an environment with: install one of them")
    environment.parent.mkdir(parents=True, exist_ok=True)
    listed = environment.parent / "packages.txt"
    listed.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()), encoding="utf-8")
    for tool in TOOLS if tools is None else tools:
        commands = _MADE_BY[tool](environment, packages, listed)
        try:
            for command in commands:
                _run(command, packages, log=environment.parent / "log.txt", deadline_s=deadline_s, timeout_s=timeout_s)
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
    """Returns one sentence about what uv or pip said when it failed; it names the package where that is known."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    complaints = [line for line in lines if line and not line.lower().startswith(("warning:", "hint:", "looking in"))]
    errors = [line for line in complaints if re.match(r"error|cause|[×╰│├]|caused by", line, re.IGNORECASE)]
    text = "\n".join(errors or complaints[-3:])
    ways = (_named_with_version, _named_alone)
    name = next((name for way in ways for name in packages if way(text, name, packages[name])), None)
    what = f"{name} {packages[name]}" if name else "the packages"
    if _UNREACHABLE.search(said):
        return f"{what} cannot be installed, as no package index can be reached"
    if name and _NOT_BUILT.search(said):
        return f"{what} cannot be installed, as it has no wheel for this Python and machine and cannot be built here"
    if name and _UNKNOWN.search(text):
        return f"{what} cannot be installed, as no package index has it for this Python and machine"
    last = re.sub(
        r"^(error|cause|caused by): ", "", (errors or complaints or ["no reason was given"])[-1], flags=re.IGNORECASE
    )
    return f"{what} cannot be installed ({last.rstrip('.')})"


def env_for_tools(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables of uv and pip for those of the test run."""
    result = {name: value for name, value in env.items() if name not in _OF_ANOTHER_PLACE}
    for of_pip, *of_uv in _FOR_UV:
        if of_pip in result and not any(name in result for name in of_uv):
            words = result[of_pip].split()
            result[of_uv[0]] = (",".join if of_pip == "PIP_FIND_LINKS" else " ".join)(words)
    if not any(name in result for name in _SYSTEM_CERTIFICATES):
        result |= dict.fromkeys(_SYSTEM_CERTIFICATES, "true")
    return result


def _named_with_version(text: str, name: str, version: str) -> bool:
    return (
        re.search(rf"(?<![\w.-]){_written(name)}(==|-|@| ){re.escape(version)}(?![\w-])", text, re.IGNORECASE)
        is not None
    )


def _named_alone(text: str, name: str, _version: str) -> bool:
    """Returns whether a package is named where these tools name one; some names are words, such as `build`."""
    return (
        re.search(rf"\b(for|build|because|simple)[ /]['`]?{_written(name)}(?![\w-])", text, re.IGNORECASE) is not None
    )


def _written(name: str) -> str:
    return "[-_.]+".join(map(re.escape, name.split("-")))


def _prove(environment: Path, packages: Mapping[str, str]) -> None:
    """Raises PlanError where something else was installed: settings of uv or pip may replace versions, or places."""
    path = {str(_place(environment, kind)) for kind in ("purelib", "platlib")}
    found = dict(map(name_and_version, distributions(path=[*path])))
    for name, version in packages.items():
        if found.get(name) != version:
            raise PlanError(
                f"{name} {version} cannot be installed, as the settings of uv or pip lead to "
                f"{found.get(name, 'none')} in its place"
            )


def _place(environment: Path, kind: str) -> Path:
    top = str(environment)
    return Path(sysconfig.get_path(kind, "venv", vars={"base": top, "platbase": top}))


def _by_uv(environment: Path, packages: Collection[str], listed: Path) -> list[list[str]]:
    # An environment that is not activated has its programs beside its Python.
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        return []
    make = [uv, "venv", "--no-project", "--python", sys.executable, str(environment)]
    # Compiled at once: a server that has to compile as it boots is laid out otherwise in memory.
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
        clear = [name for name in ("setuptools", "pip") if name not in packages]  # what came with pip
    else:
        return []
    fill = [*pip, "install", "--no-deps", "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
    return [
        make,
        *([[*fill, "--requirement", str(listed)]] if packages else []),
        *([[*pip, "uninstall", "--yes", *clear]] if clear else []),
    ]


_MADE_BY: Mapping[str, Callable[[Path, Collection[str], Path], list[list[str]]]] = {"uv": _by_uv, "pip": _by_pip}
"""The commands by which a tool makes an environment; none where it is not installed."""


def _run(
    command: Sequence[str], packages: Mapping[str, str], *, log: Path, deadline_s: float, timeout_s: float
) -> None:
    """Runs a command to its end; raises PlanError when it fails, cannot be started or is not done by the deadline."""
    with log.open("w+b") as stream:
        try:
            process = subprocess.Popen(
                command,
                env=env_for_tools(os.environ),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that what it starts can be ended with it
            )
        except OSError as error:
            raise PlanError(f"{command[0]} cannot be started ({error.strerror or error})") from error
        try:
            ended = process.wait(timeout=max(_POLL_S, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise PlanError(
                f"an environment with the packages ({len(packages)}) could not be made within {timeout_s:g} s"
            ) from None
        finally:
            end(process)
        if ended != 0:
            stream.seek(0)
            said = re.sub(r"\x1b\[[0-9;]*m", "", stream.read().decode("utf-8", "replace"))
            raise PlanError(why_not_installed(said, packages))
