"""All that a session says on the terminal: its results, other failures, and lines about the whole of it."""

from __future__ import annotations

from pytest_fileperf.judge.groups import SessionRecord
from pytest_fileperf.report.failed import failed_lines
from pytest_fileperf.report.terminal import terminal_report

__all__ = ("session_text",)


def session_text(record: SessionRecord, *, width: int = 80, colour: bool = False, verbosity: int = 0) -> str:
    """Returns the text, with arguments as those of `terminal_report`; the lines about the session are not wrapped."""
    said = "".join(f"{line}\n" for line in (*failed_lines(record.failed), *record.said))
    return terminal_report(record, width=width, colour=colour, verbosity=verbosity) + said
