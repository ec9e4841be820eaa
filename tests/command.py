"""`python -m pytest_fileperf` in this process: to start another one for each command would take most of the time."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import pytest_fileperf

__all__ = ("command",)

_MAIN = Path(pytest_fileperf.__file__).with_name("__main__.py")


def command(*arguments: str) -> int:
    """Runs it; returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["pytest_fileperf", *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(_MAIN), run_name="__main__")  # pytest rewrites modules, and finds none for runpy
    assert isinstance(ended.value.code, int)
    return ended.value.code
