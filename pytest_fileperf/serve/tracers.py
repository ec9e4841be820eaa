"""Tracers, such as coverage's: which variables make a process begin with one, and which trace this process.

coverage and pytest-cov hand their settings to every process below pytest, by environment variables that a `.pth` file
reads when Python starts. A traced server answers half as many requests. Python's own switches for developers (dev mode,
tracing of allocations) cost as much.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

__all__ = ("tracer_in", "tracer_now", "untraced")

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
"""Those of coverage and, up to its version 6, pytest-cov."""
_OF_DEVELOPERS = ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONPROFILEIMPORTTIME", "PYTHONTRACEMALLOC")
_BEGINS = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START", "COV_CORE_DATAFILE")
"""With one of these coverage begins by itself; the others say how."""
_TOOLS = 6
"""How many tools Python (3.12 and newer) lets watch a process at once."""


def untraced(env: Mapping[str, str], *, coverage: bool = False) -> dict[str, str]:
    """Returns the environment without what makes Python slower to watch it; with `coverage` it may trace."""
    left_out = _OF_DEVELOPERS if coverage else (*_OF_DEVELOPERS, *_OF_COVERAGE)
    return {name: value for name, value in env.items() if name not in left_out}


def tracer_in(env: Mapping[str, str]) -> str:
    """Returns the tracer that a Python with this environment begins with; empty for none."""
    return COVERAGE if any(env.get(name) for name in _BEGINS) else ""


def tracer_now() -> str:
    """Returns what traces this thread of this process: `coverage`; empty where nothing does."""
    functions = (function for function in (sys.gettrace(), sys.getprofile()) if function is not None)
    names = [str(getattr(function, "__module__", type(function).__module__)) for function in functions]
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is not None:
        names += filter(None, map(monitoring.get_tool, range(_TOOLS)))
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
