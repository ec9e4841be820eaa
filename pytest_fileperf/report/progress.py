"""Progress while a load runs: a line that a terminal rewrites, or a line in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pytest_fileperf.drive.run import RunProgress
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.report.text import cells, plain, quantity, shorten
from pytest_fileperf.units import format_duration

PLAIN_AFTER_S = 30.0
"""If a test takes longer than this, a log gets a line that says that the test still runs."""
_BAR_CELLS, _BAR_RANK = 12, 5
_PHASES = {"warm-up": "warming up", "round": "measuring", "drain": "waiting for last answers"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressLine:
    title: str
    run: RunProgress
    boot: int
    """The number of the current start-up, from 1 on. `boots` is the planned number of start-ups."""
    boots: int
    elapsed_s: float
    """Seconds since the measurement began, over all start-ups."""
    total_s: float | None
    """Planned time of the whole load; None if the load ends after a number of requests."""
    requests: int
    """Successful requests so far, over all start-ups."""


def progress_text(line: ProgressLine, width: int | None = None) -> str:
    """Returns a line for a log. With `width`, omits the least important parts until it fits a terminal."""
    run, boot = line.run, f" {line.boot}/{line.boots}" if line.boots > 1 else ""
    parts = [(0, _PHASES.get(run.phase, run.phase) + boot)]
    if line.total_s:
        share = min(1.0, max(0.0, line.elapsed_s / line.total_s))
        filled = round(share * _BAR_CELLS)
        parts.append((_BAR_RANK, "━" * filled + "╌" * (_BAR_CELLS - filled)))
        parts.append((1, f"{line.elapsed_s:.1f}/{line.total_s:.1f} s"))
    elif line.elapsed_s > 0:
        parts.append((1, f"{line.elapsed_s:.1f} s"))
    if line.requests:
        parts.append((2, quantity(run.rps, Unit.PER_SECOND)))
        if run.p99_ns is not None:
            parts.append((3, f"p99 {format_duration(run.p99_ns)}"))
        parts.append((4, f"{line.requests:,} requests"))
    if run.failed:
        parts.append((0, f"{run.failed:,} failed"))
    title = plain(line.title)
    if width is None:
        return "  ".join((title, *(text for rank, text in parts if rank != _BAR_RANK)))
    least = min(cells(title), 16)
    while len(parts) > 1 and least + sum(2 + cells(text) for _, text in parts) > width:
        parts.remove(max(parts))
    rest = "".join(f"  {text}" for _, text in parts)
    room = width - cells(rest)
    return shorten(shorten(title, room) + rest if room > 0 else rest.strip(), width)


class ProgressSink(Protocol):
    def update(self, line: ProgressLine) -> None:
        """Shows the progress. May be called as often as you like."""

    def done(self) -> None:
        """Ends the display when a load has succeeded or failed, because others may write to the same place."""


class LiveProgress:
    """Rewrites a terminal's line, at most ten times a second and at each new phase. Clears it at the end."""

    def __init__(
        self, write: Callable[[str], object], *, columns: Callable[[], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._columns = columns
        self._clock = clock
        self._due_s = float("-inf")
        self._stage: tuple[str, str, int] | None = None
        self._shown_cells = 0

    def update(self, line: ProgressLine) -> None:
        now_s = self._clock()
        stage = (line.title, line.run.phase, line.boot)
        if now_s < self._due_s and stage == self._stage:
            return
        # Ten updates a second look smooth. More would cost the machine under test.
        self._due_s, self._stage = now_s + 0.1, stage
        # The last column stays free, because some terminals wrap a full line.
        text = progress_text(line, self._columns() - 1)
        self._write("\r" + text + " " * (self._shown_cells - cells(text)))
        self._shown_cells = cells(text)

    def done(self) -> None:
        if self._stage is not None:
            self._write("\r" + " " * self._shown_cells + "\r")
        self._due_s, self._stage, self._shown_cells = float("-inf"), None, 0


class PlainProgress:
    """Writes a line to a log if a test takes long: at most one line for each test."""

    def __init__(self, write: Callable[[str], object], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._due_s: float | None = None
        """The time when the line is due; None before a test's load begins."""

    def update(self, line: ProgressLine) -> None:
        now_s = self._clock()
        if self._due_s is None:
            self._due_s = now_s + PLAIN_AFTER_S
        if now_s >= self._due_s:
            self._due_s = float("inf")
            self._write(f"fileperf: {progress_text(line)}\n")

    def done(self) -> None:
        self._due_s = None


class SilentProgress:
    def update(self, line: ProgressLine) -> None:
        pass

    def done(self) -> None:
        pass
