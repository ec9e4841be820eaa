"""What makes two boots of the same code behave alike: the environment to ask for it, and a look at what was really got.

On the machine this was measured on, two boots of one app differ by 4 to 5 %, and by 0.3 to 1 % with all three.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pytest_fileperf.serve.settle import ADDR_NO_RANDOMIZE

__all__ = ("STABILISERS", "hash_seed", "stabilised_now", "stabilising_env")

STABILISERS = ("hash seed", "addresses", "allocator")
_ALLOCATOR_ENV = {
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""glibc then keeps what it got from the kernel, so that page faults do not depend on where the heap happens to end."""


def hash_seed(boot: int) -> str:
    """Returns PYTHONHASHSEED of a boot: boot number i of any two runs has the same one."""
    return str(boot + 1)


def stabilising_env(boot: int) -> dict[str, str]:
    """Returns the environment variables that stabilise a boot on this system."""
    return {"PYTHONHASHSEED": hash_seed(boot)} | (_ALLOCATOR_ENV if _is_glibc() else {})


def stabilised_now() -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in this process."""
    holds = (
        os.environ.get("PYTHONHASHSEED", "").isdecimal(),
        _has_fixed_addresses(),
        _has_fixed_allocator(),
    )
    return tuple(name for name, held in zip(STABILISERS, holds, strict=True) if held)


def _has_fixed_addresses() -> bool:
    try:
        personality = int(Path("/proc/self/personality").read_text(encoding="ascii"), 16)
    except OSError:
        return False
    return bool(personality & ADDR_NO_RANDOMIZE)


def _has_fixed_allocator() -> bool:
    replaced = re.search(r"malloc", os.environ.get("LD_PRELOAD", ""))  # jemalloc, tcmalloc, mimalloc read none of it
    asked = all(os.environ.get(name) == value for name, value in _ALLOCATOR_ENV.items())
    return asked and _is_glibc() and not replaced


def _is_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False
