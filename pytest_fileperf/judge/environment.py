"""Where a run was made: the machine, its operating system and its Python. Reads files, starts no process."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pytest_fileperf.judge.stored import text_in, whole_in

__all__ = ("PACKAGES", "Environment", "differences")

PACKAGES = ("fastapi", "h11", "httptools", "pytest-fileperf", "python-multipart", "starlette", "uvicorn", "uvloop")
"""Recorded with a baseline. Runs compare although these differ: an upgrade that slows an app is for gates to find."""
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Two runs compare only where all of this is equal, except the packages."""

    system: str
    """`Linux`, `Darwin`, `Windows`."""
    machine: str
    """`x86_64`, `arm64`."""
    cpu: str
    """The processor's model, as the system names it."""
    cores: int
    """Logical processors this process may use."""
    python: str
    """`CPython 3.11`: the patch release does not count."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the installed ones of `PACKAGES`."""

    @classmethod
    def current(cls, cpuinfo: Path = CPUINFO) -> Environment:
        """Returns where this process runs; `cpuinfo` is the file that names the processor."""
        machine = platform.machine()
        return cls(
            system=platform.system(),
            machine=machine,
            cpu=_cpu_model(machine, cpuinfo),
            cores=_usable_cores(),
            python=f"{platform.python_implementation()} {sys.version_info.major}.{sys.version_info.minor}",
            packages=_installed(),
        )

    @property
    def profile(self) -> str:
        """The directory for this machine: `linux-x86_64-2-cpython3.11-1f0c9a2b`, in words and as a digest."""
        exact = "\n".join(str(value) for value in self.to_json().values())
        words = f"{self.system}-{self.machine}-{self.cores}-{self.python.replace(' ', '')}".lower()
        readable = re.sub(r"[^a-z0-9_.-]+", "_", words)
        return f"{readable}-{hashlib.sha256(exact.encode()).hexdigest()[:8]}"

    def differences(self, other: Environment) -> tuple[str, ...]:
        """Returns how this environment differs from an earlier one, without packages: `cores was 2, is 4`."""
        return differences(other.to_json(), self.to_json())

    def to_json(self) -> dict[str, object]:
        """Returns all but the packages, as JSON values."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "packages"}

    @classmethod
    def from_json(cls, stored: Mapping[str, object], where: str = "environment") -> Environment:
        """Reads what `to_json` returned; raises ValueError that names the first thing wrong."""
        return cls(
            system=text_in(stored, "system", where),
            machine=text_in(stored, "machine", where),
            cpu=text_in(stored, "cpu", where),
            cores=whole_in(stored, "cores", where),
            python=text_in(stored, "python", where),
        )


def differences(was: Mapping[str, object], now: Mapping[str, object]) -> tuple[str, ...]:
    """Returns what differs between two mappings of JSON values; nested keys have dots: `load.rounds was 4, is 8`."""
    before, after = dict(_flat(was)), dict(_flat(now))
    return tuple(
        f"{key} was {_shown(before, key)}, is {_shown(after, key)}"
        for key in sorted(before.keys() | after.keys())
        if key not in before or key not in after or before[key] != after[key]
    )


def _flat(value: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            pairs.extend(_flat(item, f"{prefix}{key}."))
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


def _cpu_model(machine: str, cpuinfo: Path) -> str:
    if platform.system() == "Windows":
        return platform.processor() or machine
    # Elsewhere `platform.processor()` would start `uname -p`, which knows no more than the machine's architecture.
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return machine
    return _model_in(text) or machine


def _model_in(cpuinfo: str) -> str:
    """Returns the first processor's model from the text of `/proc/cpuinfo`; empty where it names none."""
    found: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip().lower(), " ".join(value.split()))
    named = next((found[key] for key in ("model name", "cpu model", "cpu") if found.get(key)), "")
    # ARM kernels name no model: the numbers of its designer and design tell it as well.
    numbers = [found[key] for key in ("cpu implementer", "cpu part", "cpu variant") if found.get(key)]
    return named or (f"ARM {' '.join(numbers)}" if numbers else "")


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _installed() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
