"""Tests that failed for another reason than a figure, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_fileperf.judge.result import FailedTest
from pytest_fileperf.report.text import plain
from pytest_fileperf.units import format_count

__all__ = ("failed_count", "failed_lines", "first_line", "where_failed")

_WHERE = {"setup": "before it ran", "teardown": "after it ran"}
"""In pytest's words a fixture's part before the test is its setup; a load test has a setup of its own."""


def failed_count(failed: Sequence[FailedTest], *, measured: bool) -> str:
    """Returns how many tests failed: `2 tests failed for other reasons`; empty for none."""
    count = len({test.nodeid for test in failed})
    if not count:
        return ""
    said = f"{format_count(count, 'test')} failed"
    if not measured:
        return said
    return f"{said} for another reason" if count == 1 else f"{said} for other reasons"


def where_failed(test: FailedTest) -> str:
    """Returns when it failed: `failed before it ran`."""
    return f"failed {_WHERE.get(test.phase, '')}".rstrip()


def first_line(test: FailedTest) -> str:
    """Returns the first line of what it said; with the error where that follows it, after the place in the code."""
    lines = test.message.strip().splitlines()
    if not lines:
        return ""
    error = next((line for line in lines[1:] if re.match(r"  \S", line)), "") if lines[0].endswith(":") else ""
    return plain(f"{lines[0]} {error.strip()}".rstrip())


def failed_lines(failed: Sequence[FailedTest]) -> list[str]:
    """Returns the lines for a terminal on which pytest did not tell them."""
    lines = []
    for test in failed:
        place = f" ({plain(test.module)}:{test.line})" if test.line is not None else ""
        lines.append(f"{plain(test.name)}{place} {where_failed(test)}")
        lines += [f"  {_indented(line)}".rstrip() for line in test.message.strip().splitlines()]
    return lines


def _indented(line: str) -> str:
    """Returns the line without control characters; its spaces at the beginning stay."""
    return " " * (len(line) - len(line.lstrip(" "))) + plain(line)
