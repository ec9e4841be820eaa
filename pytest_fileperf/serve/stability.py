"""Makes two start-ups of the same code behave alike, by their environment, and checks the result.

Start-ups with the same number have the same hash seed and memory layout. These change from number to number, so that no
start-up's luck is common to all. Forks share their import's seed and layout (`preload`).

The allocator keeps its thresholds. With others, large bodies cost up to three times less than in production. Changes
that cost page faults look smaller. In a comparison its thread caches are off. Blocks in them keep glibc from giving
memory back, by chance and for as long as the process lives. So requests with a body of 256 KiB met 7 to 39 page faults,
depending on the start-up. Their deviation was 8, and is 5 without the caches; the means are 25 and 27. A start-up that
is measured alone keeps them: streams cost 15 % more without.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_fileperf.host.supervisor import ADDR_NO_RANDOMIZE

STABILISERS = ("hash seed", "addresses")
SEED = "PYTHONHASHSEED"
LAYOUT = "PYTEST_FILEPERF_LAYOUT"
"""Its length moves the stack, and seeds how the heap is moved."""
_TUNABLES, _NO_CACHES = "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0"
_POOL_BYTES = 16 << 10
"""pymalloc takes objects of one size from a pool this large; objects above `_SMALL_BYTES` come from malloc."""
_SMALL_BYTES = 512
_STEP_BYTES = 16
_BALLAST: list[bytes] = []
"""Moves the heap, for as long as this process lives."""


def stabilising_env(boot: int, *, in_turn: bool = False) -> dict[str, str]:
    """Returns the environment variables that stabilise a start-up; `in_turn` for a comparison.

    A memory layout may be fast or slow, and with fixed addresses it would be the same in every start-up. So it is
    moved, by the same steps in start-up number i of any two runs. More start-ups then average it out.
    """
    moved = "-" * random.Random(boot).randrange(1, 4096)  # noqa: S311 # by less than a page; no secret
    alike = {SEED: str(boot + 1), LAYOUT: moved}
    tunables = filter(None, (_NO_CACHES, os.environ.get(_TUNABLES)))  # of two values for one name the last one counts
    return alike | {_TUNABLES: ":".join(tunables)} if in_turn else alike


def move_heap() -> None:
    """Moves this process's heap, both pymalloc's pools and malloc's blocks. Call it before the app is loaded."""
    moved = os.environ.get(LAYOUT)
    if moved is None:
        return
    chance = random.Random(len(moved))  # noqa: S311 # no secret
    for size in range(3 * _STEP_BYTES, _SMALL_BYTES + 1, _STEP_BYTES):
        held = size - sys.getsizeof(b"")
        _BALLAST.extend(bytes(held) for _ in range(chance.randrange(_POOL_BYTES // size)))
    _BALLAST.append(bytes(chance.randrange(_SMALL_BYTES, 4 * _POOL_BYTES)))


def stabilised_now() -> tuple[str, ...]:
    return _held_by("self", os.environ)


def stabilised_in(pid: int) -> tuple[str, ...]:
    """Returns which of `STABILISERS` work in any program's process, as far as the system shows it."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace").split("\0")
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ()
    env = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    return _held_by(pid, env if program.startswith("python") else {})


def _held_by(process: int | str, env: Mapping[str, str]) -> tuple[str, ...]:
    try:
        personality = int(Path(f"/proc/{process}/personality").read_text(encoding="ascii"), 16)
    except OSError:
        personality = 0
    both = (env.get(SEED, "").isdecimal(), personality & ADDR_NO_RANDOMIZE)
    return tuple(name for name, held in zip(STABILISERS, both, strict=True) if held)


# --- Tracers, such as coverage's: which variables make a process begin with one, and which trace this process
#
# coverage and pytest-cov hand their settings to every process below pytest. A `.pth` file reads them from environment
# variables when Python starts. A traced server answers half as many requests. Python's own switches for developers (dev
# mode, tracing of allocations) cost as much.

COVERAGE = "coverage"
_OF_COVERAGE = (
    "COVERAGE_PROCESS_CONFIG",
    "COVERAGE_PROCESS_START",
    "COV_CORE_BRANCH",
    "COV_CORE_CONFIG",
    "COV_CORE_CONTEXT",
    "COV_CORE_DATAFILE",
    "COV_CORE_SOURCE",
)
"""For coverage and, up to its version 6, pytest-cov."""
_OF_DEVELOPERS = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME", "PYTHONTRACEMALLOC")
_BEGINS = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COV_CORE_DATAFILE")
"""With one of these coverage begins by itself; the others configure it."""


def untraced(env: Mapping[str, str], *, coverage: bool = False) -> dict[str, str]:
    """Returns the environment without variables that slow Python down to watch it; with `coverage` it may trace."""
    left_out = _OF_DEVELOPERS if coverage else (*_OF_DEVELOPERS, *_OF_COVERAGE)
    return {name: value for name, value in env.items() if name not in left_out}


def tracer_in(env: Mapping[str, str]) -> str:
    """Returns the tracer, such as coverage, that starts with Python in this environment; empty without one."""
    return COVERAGE if any(env.get(name) for name in _BEGINS) else ""


def tracer_now() -> str:
    """Returns this thread's tracer: `coverage`; empty for none."""
    functions = (function for function in (sys.gettrace(), sys.getprofile()) if function is not None)
    names = [str(getattr(function, "__module__", type(function).__module__)) for function in functions]
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        names += filter(None, map(monitoring.get_tool, range(6)))  # so many may watch a process at once
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
