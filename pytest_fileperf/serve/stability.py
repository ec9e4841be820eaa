"""What makes two boots of the same code behave alike: the environment to ask for it, and a look at what was really got.

On the machine this was measured on, two boots of one app differ by 4 to 5 %, and by 0.3 to 1 % with all three.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_fileperf.serve.settle import ADDR_NO_RANDOMIZE

__all__ = ("STABILISERS", "hash_seed", "stabilised_in", "stabilised_now", "stabilising_env")

STABILISERS = ("hash seed", "addresses", "allocator")
_ALLOCATOR_ENV = {
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""glibc then keeps what it got from the kernel, so that page faults do not depend on where the heap happens to end."""
_GLIBC = re.compile(r"/libc(\.so\.6|-2\.\d+\.so)")
_OTHER_ALLOCATORS = re.compile(r"/lib(jemalloc|tcmalloc|mimalloc)")
"""As the kernel lists what a process has loaded; what is linked into a program is not seen."""


def hash_seed(boot: int) -> str:
    """Returns PYTHONHASHSEED of a boot: boot number i of any two runs has the same one."""
    return str(boot + 1)


def stabilising_env(boot: int) -> dict[str, str]:
    """Returns the environment variables that stabilise a boot on this system."""
    return {"PYTHONHASHSEED": hash_seed(boot)} | (_ALLOCATOR_ENV if _is_glibc() else {})


def stabilised_now() -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in this process."""
    holds = (_has_seed(os.environ), _has_fixed_addresses("self"), _is_glibc() and _has_fixed_allocator(os.environ))
    return _named(holds)


def stabilised_in(pid: int) -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in a process of any program, as far as it can be seen from outside."""
    try:
        env = _env_of(pid)
        program = Path(f"/proc/{pid}/exe").readlink().name
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    is_glibc = bool(_GLIBC.search(maps)) and not _OTHER_ALLOCATORS.search(maps)
    holds = (
        program.startswith("python") and _has_seed(env),
        _has_fixed_addresses(pid),
        is_glibc and _has_fixed_allocator(env),
    )
    return _named(holds)


def _named(holds: Iterable[bool]) -> tuple[str, ...]:
    return tuple(name for name, held in zip(STABILISERS, holds, strict=True) if held)


def _env_of(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
    return {name: value for name, _, value in (entry.partition("=") for entry in entries)}


def _has_seed(env: Mapping[str, str]) -> bool:
    return env.get("PYTHONHASHSEED", "").isdecimal()


def _has_fixed_addresses(process: int | str) -> bool:
    try:
        personality = int(Path(f"/proc/{process}/personality").read_text(encoding="ascii"), 16)
    except OSError:
        return False
    return bool(personality & ADDR_NO_RANDOMIZE)


def _has_fixed_allocator(env: Mapping[str, str]) -> bool:
    replaced = "malloc" in env.get("LD_PRELOAD", "")  # jemalloc, tcmalloc, mimalloc read none of it
    return not replaced and all(env.get(name) == value for name, value in _ALLOCATOR_ENV.items())


def _is_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False
