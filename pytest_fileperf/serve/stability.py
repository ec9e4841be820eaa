"""Makes two start-ups of the same code behave alike, by environment variables, and checks the result.

Start-ups with the same number have the same hash seed and memory layout. Start-ups with different numbers have
different ones, so that a lucky layout does not favour all start-ups. Forks share the seed and layout of the process
from which they are forked (`preload`).

We leave the thresholds of glibc's allocator as they are. Other thresholds would make large bodies up to three times
cheaper than in production. In a comparison, we switch the allocator's thread caches off. By chance, blocks in these
caches keep glibc from returning memory to the system. With the caches, requests with 256 KiB had 25 ± 8 page faults
(mean and deviation of start-ups). Without the caches, they had 27 ± 5. Without a comparison, the caches stay on:
streams cost 15 % more without them.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fileperf.host.supervisor import ADDR_NO_RANDOMIZE

if TYPE_CHECKING:
    from pytest_fileperf.serve.spec import ProcessSpec

STABILISERS = ("hash seed", "addresses")
SEED = "PYTHONHASHSEED"
LAYOUT = "PYTEST_FILEPERF_LAYOUT"
"""An environment variable. The length of its value moves the stack, and is the seed for moving the heap."""
_TUNABLES = "GLIBC_TUNABLES"
_POOL_BYTES, _SMALL_BYTES = 16 << 10, 512
"""The size of pymalloc's pools, and of the largest objects in them. malloc makes larger objects."""
_BALLAST: list[bytes] = []
"""Objects that move the heap, for as long as this process lives."""


def stabilising_env(boot: int, *, in_turn: bool = False) -> dict[str, str]:
    """Returns the environment variables for start-up number `boot`. `in_turn` says that it belongs to a comparison.

    A memory layout may be fast or slow by luck. So each number has another layout, and several start-ups average the
    luck out.
    """
    moved = "-" * random.Random(boot).randrange(1, 4096)  # noqa: S311 # by less than a page; no secret
    alike = {SEED: str(boot + 1), LAYOUT: moved}
    # The user's own settings come last, because glibc takes the last value of a name.
    tunables = filter(None, ("glibc.malloc.tcache_count=0", os.environ.get(_TUNABLES)))
    return alike | {_TUNABLES: ":".join(tunables)} if in_turn else alike


def move_heap() -> None:
    """Moves the start of this process's heap, for pymalloc and malloc. Call it before the app is loaded."""
    moved = os.environ.get(LAYOUT)
    if moved is None:
        return
    chance = random.Random(len(moved))  # noqa: S311 # no secret
    for size in range(48, _SMALL_BYTES + 1, 16):  # pymalloc's sizes
        held = size - sys.getsizeof(b"")
        _BALLAST.extend(bytes(held) for _ in range(chance.randrange(_POOL_BYTES // size)))
    _BALLAST.append(bytes(chance.randrange(_SMALL_BYTES, 4 * _POOL_BYTES)))


def stabilised_now() -> tuple[str, ...]:
    return _stabilised("self", os.environ)


def stabilised_in(pid: int) -> tuple[str, ...]:
    """Returns which of the `STABILISERS` are fixed in a process. Empty on systems that do not report this."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8", errors="replace").split("\0")
        program = Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ()
    env = {name: value for name, _, value in (entry.partition("=") for entry in entries)}
    return _stabilised(pid, env if program.startswith("python") else {})


def _stabilised(process: int | str, env: Mapping[str, str]) -> tuple[str, ...]:
    try:
        personality = int(Path(f"/proc/{process}/personality").read_text(encoding="ascii"), 16)
    except OSError:
        personality = 0
    both = (env.get(SEED, "").isdecimal(), personality & ADDR_NO_RANDOMIZE)
    return tuple(name for name, works in zip(STABILISERS, both, strict=True) if works)


# --- Tracers: the environment variables that start a tracer, and the tracers of this process
#
# coverage and pytest-cov hand their settings to all child processes of pytest by environment variables. A `.pth` file
# reads them when Python starts. A traced server answers half as many requests. Python's own switches for developers
# (dev mode, tracing of allocations) cost as much.

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
_OF_DEVELOPERS = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME", "PYTHONTRACEMALLOC")
_BEGINS = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COV_CORE_DATAFILE")
"""Each of these variables starts coverage. The other variables in `_OF_COVERAGE` configure coverage."""


def untraced(env: Mapping[str, str], *, coverage: bool = False) -> dict[str, str]:
    """Returns the environment without variables that make Python slow; `coverage` keeps the variables for coverage."""
    left_out = _OF_DEVELOPERS if coverage else (*_OF_DEVELOPERS, *_OF_COVERAGE)
    return {name: value for name, value in env.items() if name not in left_out}


def tracer_in(env: Mapping[str, str]) -> str:
    """Returns `coverage` if these environment variables make a new Python process start coverage. Else empty."""
    return COVERAGE if any(env.get(name) for name in _BEGINS) else ""


def tracer_now() -> str:
    """Returns the packages that trace this thread, such as `coverage`, separated by commas; empty for none."""
    functions = (function for function in (sys.gettrace(), sys.getprofile()) if function is not None)
    names = [str(getattr(function, "__module__", type(function).__module__)) for function in functions]
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        names += filter(None, map(monitoring.get_tool, range(6)))  # at most six tools can be in use
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))


def base_env(spec: ProcessSpec, *, coverage: bool = False, stabilising: Mapping[str, str] = {}) -> dict[str, str]:
    """Returns the test run's environment without tracers, and adds `stabilising` and `spec.env`."""
    # PYTEST_CURRENT_TEST is left out: servers outlive tests, and the length of its value would move the stack.
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return {**untraced(env, coverage=coverage), **stabilising, **dict(spec.env)}
