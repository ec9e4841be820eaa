"""Every error the package raises on purpose.

    FilePerfError
    ├── PlanError (ValueError)        wrong options, keys or arguments; lists every problem
    ├── SetupError                    a test's `setup` or `teardown` failed
    │   └── BaseSetupError            it failed with the old code of a comparison
    ├── ServerError
    │   ├── AppLoadError              the app cannot be imported, or is not an ASGI app
    │   │   └── AppMissingError       there is no such module, or it lacks this name
    │   ├── AppOriginError            the old version of a comparison would run the new code
    │   ├── ServerStartError          the server did not become ready
    │   └── ServerDiedError           the server ended, or stopped answering, under load
    │       └── BaseDiedError         the old version's server ended or stopped answering
    ├── LoadError
    │   ├── BaseFailedError           the old version answers no request with success
    │   ├── FileLimitError            more connections than open files allowed
    │   └── GeneratorError            the load generator's own process failed
    ├── BaselineError                 a stored baseline is damaged or too new
    ├── RecordError                   a file of results cannot be read
    └── NoTimeError                   the time of `--fileperf-budget` was used up before the measurement

    PerformanceError (AssertionError)
    ├── RequestsFailedError           more requests failed than allowed, or none succeeded
    ├── LimitExceededError            the test exceeds an absolute limit
    ├── RegressionError               slower than the baseline by more than the tolerance
    └── NotMeasuredError              NEW or INCONCLUSIVE with `--fileperf-strict`, or NEW in CI

Each message says what happened, where, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from pytest_fileperf.units import printable

__all__ = (
    "AppLoadError",
    "AppMissingError",
    "AppOriginError",
    "BaseDiedError",
    "BaseFailedError",
    "BaseSetupError",
    "BaselineError",
    "FileLimitError",
    "FilePerfError",
    "GeneratorError",
    "LimitExceededError",
    "LoadError",
    "NoTimeError",
    "NotMeasuredError",
    "PerformanceError",
    "PlanError",
    "RecordError",
    "RegressionError",
    "RequestsFailedError",
    "ServerDiedError",
    "ServerError",
    "ServerStartError",
    "SetupError",
    "log_block",
    "log_line",
)

_LONGEST_LINE = 500
"""In characters."""
_FULL = re.compile(r"No space left on device|Disk quota exceeded|disk is full|\bENOSPC\b", re.IGNORECASE)
"""How Python, SQLite and Node say that the disk is full."""
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""Escape sequences that colour text or move the cursor."""


class FilePerfError(Exception):
    """Base class of the errors that prevent a measurement."""


class PlanError(FilePerfError, ValueError):
    """Options, keys or arguments are wrong. `problems` names each mistake."""

    def __init__(self, *problems: str, where: str | None = None) -> None:
        self.problems: tuple[str, ...] = problems
        self.where = where
        prefix = f"{where}: " if where else ""
        if len(problems) == 1:
            super().__init__(prefix + problems[0])
        else:
            lines = "".join(f"\n  - {problem}" for problem in problems)
            super().__init__(f"{prefix}{len(problems)} problems:{lines}")


class _LoggedError(FilePerfError):
    """The message ends with the last lines of the server's log."""

    def __init__(self, what: str, *, log: Sequence[str] = ()) -> None:
        self.log: tuple[str, ...] = tuple(log)
        super().__init__(what + log_block(log))


class ServerError(FilePerfError):
    """A server under test could not be used."""


class AppLoadError(ServerError):
    """The app cannot be imported, or its name leads to an object that is not an ASGI app."""


class AppMissingError(AppLoadError):
    """The app's module does not exist, or has no attribute of that name.

    If the module exists but its import fails, the error is an AppLoadError.
    """


class AppOriginError(ServerError):
    """The old version of a comparison runs the new code."""

    def __init__(self, *, module: str, file: str, base: str, side: str) -> None:
        self.module = module
        self.file = file
        self.base = base
        super().__init__(
            f"{side}: {module} was loaded from {file} instead of {base}. Another copy hides it, which is "
            "installed or comes first on sys.path. Remove the installed copy, and run pytest at the top of the "
            "repository. Name the code's directory in pytest's setting `pythonpath` or in PYTHONPATH. Or install "
            "that version in its own environment, and use --fileperf-against=python:INTERPRETER"
        )


class ServerStartError(_LoggedError, ServerError):
    """The server did not become ready."""


class ServerDiedError(_LoggedError, ServerError):
    """The server ended or stopped answering under load."""


class BaseDiedError(ServerDiedError):
    """The old version's server ended or stopped answering under load."""


class SetupError(_LoggedError):
    """A test's `setup` or `teardown` failed at a start-up. The message contains the traceback."""


class BaseSetupError(SetupError):
    """A test's `setup` or `teardown` failed with the old code of a comparison."""


class LoadError(FilePerfError):
    """The load could not be made."""


class BaseFailedError(LoadError):
    """The old version answers no request with success."""

    def __init__(self, *, side: str, work: str, said: str, log: Sequence[str] = ()) -> None:
        self.side = side
        self.work = work
        self.said = said
        super().__init__(
            f"{side} fails every request of {work}, on two start-ups: {said}\nRepair the endpoint in that version, "
            'or exclude this test from comparisons with gate="none"' + log_block(log)
        )


class FileLimitError(LoadError):
    """The test needs more connections than this process may open. Each connection is an open file."""

    def __init__(self, *, connections: int, limit: int) -> None:
        self.connections = connections
        self.limit = limit
        super().__init__(
            f"{connections} connections need more open files than this process may have ({limit}). Raise the "
            f"limit (`ulimit -n {connections + 256}`) or use fewer connections"
        )

    def __reduce__(self) -> tuple[Callable[[], FileLimitError], tuple[()]]:
        """Lets pickle make the error again from its numbers, not from its message."""
        return partial(FileLimitError, connections=self.connections, limit=self.limit), ()


class GeneratorError(LoadError):
    """The load generator's own process failed. The message contains the traceback or last lines."""


class BaselineError(FilePerfError):
    """A stored baseline cannot be used as it is. The message names the file and the reason."""


class RecordError(FilePerfError):
    """A file of results cannot be read or written. The message names the file and the reason."""


class NoTimeError(FilePerfError):
    """The time of `--fileperf-budget` was used up before this measurement began."""


class PerformanceError(AssertionError):
    """Base class of the verdicts that fail a test."""


class RequestsFailedError(PerformanceError):
    """More requests failed than allowed, or none succeeded."""


class LimitExceededError(PerformanceError):
    """The test exceeds an absolute limit (`min_rps`, `max_p99` …)."""


class RegressionError(PerformanceError):
    """A metric is worse than its baseline by more than the tolerance."""


class NotMeasuredError(PerformanceError):
    """A metric is NEW or INCONCLUSIVE in a run with `--fileperf-strict`, or NEW in CI."""


def log_block(lines: Sequence[str]) -> str:
    """Returns the log's lines for the end of a message, below a hint if a disk was full."""
    if not lines:
        return ""
    full = "\nIts log says that a disk is full. Free some space on that disk" * any(map(_FULL.search, lines))
    return f"{full}\nLast lines of its log:\n" + "\n".join(f"  | {log_line(line)}" for line in lines)


def log_line(line: str) -> str:
    """Returns a log's line, at most 500 characters, without characters that change the terminal."""
    text = _ANSI.sub("", line).expandtabs()
    cut = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
    return printable(cut)
