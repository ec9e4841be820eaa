"""Progress on pytest's terminal while a test runs, also where pytest captures the test's output."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from typing import TextIO

    from pytest_fileperf.report.progress import ProgressLine, ProgressSink

__all__ = ("GivenUpError", "ScreenProgress")


class GivenUpError(Exception):
    """Nobody waits for the measurement any more."""


class ScreenProgress:
    """Shows progress: one line that is rewritten on a terminal, whole lines in a log, nothing with `-q`.

    Raises GivenUpError to end a measurement that was given up: `update` is called all through a run.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._given_up: Event | None = None
        self._sink: ProgressSink | None = None

    @contextmanager
    def until(self, given_up: Event | None) -> Iterator[None]:
        """Returns a context in which a measurement ends once `given_up` is set."""
        self._given_up = given_up
        try:
            yield
        finally:
            self._given_up = None

    def update(self, line: ProgressLine) -> None:
        """Shows the moment; raises GivenUpError."""
        if self._given_up is not None and self._given_up.is_set():
            raise GivenUpError
        if self._sink is None:
            self._sink = _sink_of(self._config)
        self._sink.update(line)

    def done(self) -> None:
        """Leaves the terminal ready for pytest."""
        if self._sink is not None:
            self._sink.done()


def _sink_of(config: pytest.Config) -> ProgressSink:
    from pytest_fileperf.report.progress import LiveProgress, PlainProgress, SilentProgress

    reporter: pytest.TerminalReporter | None = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None or config.get_verbosity() < 0 or hasattr(config, "workerinput"):
        return SilentProgress()
    stream = cast("TextIO", _Screen(config, reporter))
    if bool(reporter.isatty):  # a plain bool before pytest 9, and one that can be called since
        return LiveProgress(stream, columns=lambda: config.get_terminal_writer().fullwidth)
    return PlainProgress(stream)


class _Screen(io.TextIOBase):
    """The terminal as a stream: each write lifts the capture of the test's output for that moment."""

    def __init__(self, config: pytest.Config, reporter: pytest.TerminalReporter) -> None:
        self._writer = config.get_terminal_writer()
        self._reporter = reporter
        self._capture = config.pluginmanager.getplugin("capturemanager")

    def write(self, text: str) -> int:
        with self._uncaptured():
            self._reporter.ensure_newline()  # pytest may have begun a line for the test that runs
            self._writer.write(text, flush=True)
        return len(text)

    def _uncaptured(self) -> AbstractContextManager[None]:
        if self._capture is None:
            return nullcontext()
        lifted: AbstractContextManager[None] = self._capture.global_and_fixture_disabled()
        return lifted
