"""What makes two boots of the same code behave alike: the environment to ask for it, and a look at what was really got.

Boots of one number are alike in all of it; from number to number the hash seed and the layout of memory change, so that
neither is the same luck in every boot.

On the machine this was measured on, two boots of one app differ by 4 to 5 %, and by 0.3 to 1 % with all three.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_fileperf.serve.stage1 import ADDR_NO_RANDOMIZE

__all__ = ("STABILISERS", "hash_seed", "move_heap", "stabilised_in", "stabilised_now", "stabilising_env")

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
"""What pymalloc takes its objects of one size from; larger ones than `_SMALL_BYTES` come from malloc."""
_SMALL_BYTES = 512
_STEP_BYTES = 16
_BALLAST: list[bytes] = []
"""What moves the heap, for as long as this process lives."""
_GLIBC = re.compile(r"/libc(\.so\.6|-2\.\d+\.so)")
_OTHER_ALLOCATORS = re.compile(r"/lib(jemalloc|tcmalloc|mimalloc)")
"""As the kernel lists what a process has loaded; what is linked into a program is not seen."""


def hash_seed(boot: int) -> str:
    """Returns PYTHONHASHSEED of a boot: boot number i of any two runs has the same one."""
    return str(boot + 1)


def stabilising_env(boot: int) -> dict[str, str]:
    """Returns the environment variables that stabilise a boot on this system.

    Where things lie in memory may be worth something, and with fixed addresses the same in every boot. So it is
    moved, by the same steps in boot number i of any two runs: then it is noise that further boots average out.
    """
    moved = "-" * random.Random(boot).randrange(1, _STACK_BYTES)  # noqa: S311 # no secret
    return {"PYTHONHASHSEED": hash_seed(boot), _LAYOUT: moved} | (_ALLOCATOR_ENV if _is_glibc() else {})


def move_heap() -> None:
    """Moves what this process will take from the heap by as much as its boot asks for; to be called before the app.

    The pools of objects from 48 bytes on begin somewhere else, with no gaps in them, and so does what malloc gives.
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
