"""Where a process runs, so that another one can tell what the two share: machine, network, processes, clock, code."""

from __future__ import annotations

import platform
import socket
import uuid
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Self

__all__ = ("Whereabouts",)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACES = Path("/proc/self/ns")
_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a process runs. Two of them compare; alone they mean nothing.

    On Linux containers may share a machine and nothing else: network, processes and clock are those of the namespace.
    """

    host: str
    """The machine's name."""
    python: str
    """`3.11.7`."""
    machine: str
    network: str
    processes: str
    clock: str
    code: str
    """A digest of this package's source files."""

    @classmethod
    def here(cls) -> Self:
        """Returns where this process runs."""
        machine = _boot_id()
        return cls(
            host=socket.gethostname(),
            python=platform.python_version(),
            machine=machine,
            network=f"{machine} {_namespace('net')}",
            processes=f"{machine} {_namespace('pid')}",
            clock=f"{machine} {_namespace('time')}",
            code=_code(),
        )


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:  # other systems
        return f"{socket.gethostname()} {uuid.getnode():x}"


def _namespace(kind: str) -> str:
    try:
        return str((_NAMESPACES / kind).readlink())
    except OSError:  # other systems, and Linux before it had this kind
        return ""


@cache
def _code() -> str:
    """Returns a digest of the names and contents of this package's source files, read once: some milliseconds."""
    digest = blake2b(digest_size=16)
    for name, path in sorted((path.relative_to(_PACKAGE).as_posix(), path) for path in _PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
