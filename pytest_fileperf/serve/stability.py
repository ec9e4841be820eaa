"""What makes two boots of the same code behave alike: the environment that asks for it, and what really holds.

Boots with the same number are alike in all three. From number to number the hash seed and the layout of memory change,
so that no boot's luck is that of all boots.

Measured: two boots of one app differ by 4 to 5 %, and by 0.3 to 1 % with all three.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_fileperf.supervisor import ADDR_NO_RANDOMIZE

__all__ = ("STABILISERS", "hash_seed", "held_by", "move_heap", "stabilised_in", "stabilised_now", "stabilising_env")

STABILISERS = ("hash seed", "addresses", "allocator")
_ALLOCATOR_ENV = {
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_MMAP_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}
"""glibc then keeps what it got from the kernel, so that page faults do not depend on where the heap happens to end."""
_LAYOUT = "PYTEST_FILEPERF_LAYOUT"
"""Its length moves the stack, and seeds how the heap is moved."""
_STACK_BYTES = 4096
_POOL_BYTES = 16 << 10
"""pymalloc takes objects of one size from a pool this large; objects above `_SMALL_BYTES` come from malloc."""
_SMALL_BYTES = 512
_STEP_BYTES = 16
_BALLAST: list[bytes] = []
"""What moves the heap, for as long as this process lives."""
_GLIBC = re.compile(r"/libc(\.so\.6|-2\.\d+\.so)")
_OTHER_ALLOCATORS = re.compile(r"/lib(jemalloc|tcmalloc|mimalloc)")
"""In the kernel's list of what a process has loaded. What is linked into a program is not seen."""


def hash_seed(boot: int) -> str:
    """Returns PYTHONHASHSEED of a boot: boot number i of any two runs has the same one."""
    return str(boot + 1)


def stabilising_env(boot: int, *, glibc: bool | None = None) -> dict[str, str]:
    """Returns the environment variables that stabilise a boot, with or without glibc (None: as this process has it).

    A layout of memory may be fast or slow, and with fixed addresses it would be the same in every boot. So it is moved,
    by the same steps in boot number i of any two runs: further boots then average it out.
    """
    moved = "-" * random.Random(boot).randrange(1, _STACK_BYTES)  # noqa: S311 # no secret
    has_glibc = _is_glibc() if glibc is None else glibc
    return {"PYTHONHASHSEED": hash_seed(boot), _LAYOUT: moved} | (_ALLOCATOR_ENV if has_glibc else {})


def move_heap() -> None:
    """Moves what this process will take from the heap, by as much as its boot asks for; to be called before the app.

    The pools of objects from 48 bytes on then begin somewhere else, without gaps, and so does what malloc gives.
    """
    moved = os.environ.get(_LAYOUT)
    if moved is None:
        return
    chance = random.Random(len(moved))  # noqa: S311 # no secret
    for size in range(3 * _STEP_BYTES, _SMALL_BYTES + 1, _STEP_BYTES):
        held = size - sys.getsizeof(b"")
        _BALLAST.extend(bytes(held) for _ in range(chance.randrange(_POOL_BYTES // size)))
    _BALLAST.append(bytes(chance.randrange(_SMALL_BYTES, 4 * _POOL_BYTES)))


def stabilised_now() -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in this process."""
    return held_by(os.environ, is_python=True, addresses=_has_fixed_addresses("self"), glibc=_is_glibc())


def stabilised_in(pid: int) -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in a process of any program, as far as that is seen from outside."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace").split("\0")
        program = Path(f"/proc/{pid}/exe").readlink().name
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    env = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    glibc = bool(_GLIBC.search(maps)) and not _OTHER_ALLOCATORS.search(maps)
    is_python = program.startswith("python")
    return held_by(env, is_python=is_python, addresses=_has_fixed_addresses(pid), glibc=glibc)


def held_by(env: Mapping[str, str], *, is_python: bool, addresses: bool, glibc: bool) -> tuple[str, ...]:
    """Returns which of `STABILISERS` hold in a process with this environment, fixed addresses, and glibc's malloc."""
    seed = is_python and env.get("PYTHONHASHSEED", "").isdecimal()
    replaced = "malloc" in env.get("LD_PRELOAD", "")  # jemalloc, tcmalloc and mimalloc read none of the variables
    allocator = glibc and not replaced and all(env.get(name) == value for name, value in _ALLOCATOR_ENV.items())
    return tuple(name for name, held in zip(STABILISERS, (seed, addresses, allocator), strict=True) if held)


def _has_fixed_addresses(process: int | str) -> bool:
    try:
        personality = int(Path(f"/proc/{process}/personality").read_text(encoding="ascii"), 16)
    except OSError:
        return False
    return bool(personality & ADDR_NO_RANDOMIZE)


def _is_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (ValueError, OSError):
        return False
