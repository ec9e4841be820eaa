"""The environment of a run: machine, operating system and Python. Reads files, starts no process."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.versions.packages import installed_packages

SERVER_PACKAGES = (
    "fastapi", "h11", "httptools", "pytest-fileperf", "python-multipart", "starlette", "uvicorn", "uvloop",
)  # fmt: skip
"""Packages that usually answer requests. Reports show these, and list their changes first."""
_CPUINFO = Path("/proc/cpuinfo")
_NUMBERS = {
    "cpu family": "family",
    "model": "model",
    "stepping": "stepping",
    "cpu variant": "variant",
    "cpu revision": "revision",
}
"""Fields of `/proc/cpuinfo` that tell generations of a processor apart: x86, then ARM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Machine and Python of a run.

    Two runs can be compared only if all fields but `packages` and `conditions` are equal.
    """

    system: str
    """`Linux`, `Darwin`, `Windows`."""
    machine: str
    """`x86_64`, `arm64`."""
    cpu: str
    """The processor's model, as the system names it, with the numbers of its generation."""
    cores: int
    """Logical processors that this process may use."""
    python: str
    """Such as `CPython 3.11`. Runs on different patch releases can be compared."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The version of every installed package, by name. Compared runs may have different packages, to find slow
    upgrades."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Other causes of slowness, by name: the exact Python version and the container's CPU limit. They may differ
    between compared runs."""

    @classmethod
    def current(cls, cpuinfo: Path = _CPUINFO) -> Environment:
        machine = platform.machine()
        debug = " with checks for debugging" if hasattr(sys, "gettotalrefcount") else ""
        return cls(
            system=platform.system(),
            machine=machine,
            cpu=_cpu_model(machine, cpuinfo),
            cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            python=f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}",
            packages=installed_packages(),
            conditions={"Python": f"{platform.python_version()}{debug}", "CPU limit": cpu_limit()},
        )

    @property
    def profile(self) -> str:
        """The name of the directory for this environment's baselines: `linux-x86_64-2-cpython3.11-1f0c9a2b`."""
        exact = "\n".join(str(value) for value in self.to_json().values())
        words = f"{self.system}-{self.machine}-{self.cores}-{self.python.replace(' ', '')}".lower()
        readable = re.sub(r"[^a-z0-9_.-]+", "_", words)
        return f"{readable}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"

    def differences(self, other: Environment) -> dict[str, str]:
        """Returns the differences from an earlier environment: `{"cores": "cores was 2, is 4"}`."""
        return differences(other.to_json(), self.to_json())

    def to_json(self) -> dict[str, object]:
        """Returns the fields, by name, that must be equal for two runs to compare."""
        own = (item.name for item in fields(self) if item.name not in ("packages", "conditions"))
        return {name: getattr(self, name) for name in own}

    @classmethod
    def from_json(cls, stored: Placed) -> Environment:
        """Raises ValueError that names the first wrong place."""
        return cls(
            system=stored["system"].text(),
            machine=stored["machine"].text(),
            cpu=stored["cpu"].text(),
            cores=stored["cores"].whole(),
            python=stored["python"].text(),
        )


def was_is(key: str, before: Mapping[str, object], after: Mapping[str, object]) -> str:
    return f"{key} was {_shown(before, key)}, is {_shown(after, key)}"


def differences(
    was: Mapping[str, object],
    now: Mapping[str, object],
    *,
    said: Callable[[str, Mapping[str, object], Mapping[str, object]], str] = was_is,
) -> dict[str, str]:
    """Returns a text for each key whose JSON values differ in two mappings: `load.rounds was 4, is 8`.

    `said` makes the text from the key and both mappings. Dots join the keys of nested objects.
    """
    before, after = dict(_flat(was)), dict(_flat(now))
    return {
        key: said(key, before, after)
        for key in sorted(before.keys() | after.keys())
        if key not in before or key not in after or before[key] != after[key]
    }


def package_changes(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a text per changed package: `starlette 1.0 → 1.1`, `added x 1`, `removed y 2`.

    The server's packages come first. The last text may be `and 12 more`.
    """
    # The first baselines contain only server packages.
    if set(was) <= set(SERVER_PACKAGES):
        now = server_packages(now)
    changed = [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]
    changed.sort(key=lambda name: name not in SERVER_PACKAGES)  # within both kinds they stay sorted
    named = changed if len(changed) <= 9 else changed[:8]
    said = tuple(_package_change(name, was.get(name), now.get(name)) for name in named)
    return said if named == changed else (*said, f"and {len(changed) - len(named)} more")


def condition_changes(was: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Returns texts such as `CPU limit none → 0.5 cores`, for changed conditions that are in both mappings."""
    return tuple(
        f"{name} {was[name]} → {now[name]}" for name in sorted(was.keys() & now.keys()) if was[name] != now[name]
    )


def server_packages(packages: Mapping[str, str]) -> dict[str, str]:
    return {name: packages[name] for name in SERVER_PACKAGES if name in packages}


def _package_change(name: str, was: str | None, now: str | None) -> str:
    if was is None:
        return f"added {name} {now}"
    return f"removed {name} {was}" if now is None else f"{name} {was} → {now}"


def _flat(value: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Returns each plain JSON value as (place, value). A place has the keys to the value: `load.rounds`.

    Objects in a list have their `name`, or else their number, as key.
    """
    pairs: list[tuple[str, object]] = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            pairs.extend(_flat(item, f"{prefix}{key}."))
        elif isinstance(item, list | tuple) and item and all(isinstance(one, Mapping) for one in item):
            named = {str(one.get("name", number)): one for number, one in enumerate(item)}
            pairs.extend(_flat(named, f"{prefix}{key}."))
        else:
            pairs.append((prefix + key, list(item) if isinstance(item, tuple) else item))
    return pairs


def _shown(values: Mapping[str, object], key: str) -> str:
    if key not in values:
        return "not set"
    value = values[key]
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def cpu_limit(cgroups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> str:
    """Returns how many cores Linux control groups allow this process: `0.5 cores`, or `none` without a limit."""
    try:
        listed = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return "none"
    limits = []
    for _, controllers, path in listed:
        if controllers and "cpu" not in controllers.split(","):
            continue
        tops = (cgroups, cgroups / "unified") if not controllers else (cgroups / controllers, cgroups / "cpu")
        for top in tops:
            group = top / path.lstrip("/")
            for directory in (group, *group.parents):
                limits += _quota_in(directory)
                if directory == top:
                    break
    return f"{min(limits):.3g} cores" if limits else "none"


def _quota_in(group: Path) -> list[float]:
    """Returns the control group's limit in cores, as a list; empty if the group has no limit."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = " ".join((group / name).read_text(encoding="utf-8") for name in files).split()
            return [int(quota) / int(period)] if int(quota) > 0 else []
        except (OSError, ValueError, ZeroDivisionError):  # `max` isn't a number
            continue
    return []


def _cpu_model(machine: str, cpuinfo: Path) -> str:
    if platform.system() == "Windows":
        return platform.processor() or machine
    # Elsewhere `platform.processor()` would start `uname -p`, which only knows the machine's architecture.
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return machine
    # If cores differ, as on many ARM processors, each kind counts once.
    return " + ".join(dict.fromkeys(filter(None, map(_model_of, text.split("\n\n"))))) or machine


def _model_of(block: str) -> str:
    """Returns the processor's model from its block of lines in `/proc/cpuinfo`; empty if no line has a model.

    A name such as `AMD EPYC` may stand for many generations, so the generation's numbers follow.
    """
    facts = (line.partition(":") for line in block.splitlines())
    processor = {key.strip().lower(): " ".join(value.split()) for key, _, value in facts}
    name = next((processor[key] for key in ("model name", "cpu model", "cpu") if processor.get(key)), "")
    # ARM kernels name no model, but the numbers of designer and design identify it.
    design = " ".join(processor[key] for key in ("cpu implementer", "cpu part") if processor.get(key))
    name = " ".join(filter(None, [name or ("ARM" if design else ""), design]))
    numbers = [f"{word} {processor[key]}" for key, word in _NUMBERS.items() if processor.get(key)]
    return f"{name} ({', '.join(numbers)})" if name and numbers else name
