"""Every error the package raises on purpose.

    FilePerfError
    ├── PlanError (ValueError)        what was asked for makes no sense; lists every problem
    ├── SetupError                    what a test does before or after a load, `setup` or `teardown`, failed
    │   └── BaseSetupError            it failed on the other side of a comparison
    ├── ServerError
    │   ├── AppLoadError              the app cannot be imported, or is not an ASGI app
    │   │   └── AppMissingError       there is no such module, or nothing of this name in it
    │   ├── AppOriginError            the other side of a comparison runs code that is not its own
    │   ├── ServerStartError          the server did not become ready
    │   └── ServerDiedError           the server ended, or stopped answering, under load
    │       └── BaseDiedError         that of the other side of a comparison did
    ├── LoadError
    │   ├── BaseFailedError           the other side of a comparison is broken: it answers no request well
    │   ├── FileLimitError            more connections than open files allowed
    │   └── GeneratorError            the load generator's own process failed
    ├── BaselineError                 a stored baseline is damaged or too new
    ├── RecordError                   a file of results cannot be read
    └── NoTimeError                   the budget of the session was used up before the measurement began

    PerformanceError (AssertionError)
    ├── RequestsFailedError           requests failed, or none was made
    ├── LimitExceededError            an absolute limit does not hold
    ├── RegressionError               slower than the baseline by more than the tolerance
    └── NotMeasuredError              NEW or INCONCLUSIVE where that must fail

A class builds its message from facts: what happened, where, and what to do.
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
"""Characters of a line of a log that are shown."""
_FULL = re.compile(r"No space left on device|Disk quota exceeded|disk is full|\bENOSPC\b", re.IGNORECASE)
"""How programs say that there is no more room, as Python, SQLite and Node do."""
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""What a program writes to colour its output, or to move the cursor."""


class FilePerfError(Exception):
    """Base of everything that keeps a measurement from being made."""


class PlanError(FilePerfError, ValueError):
    """What was asked for makes no sense; `problems` names each thing that is wrong."""

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
    """The app cannot be imported, or what was found is not an ASGI app."""


class AppMissingError(AppLoadError):
    """There is no module of the app's name, or the module has no attribute of that name.

    A module that exists and fails to import is an AppLoadError, also where it needs a module that does not exist.
    """


class AppOriginError(ServerError):
    """The other side of a comparison runs code of this side, which would be compared with itself."""

    def __init__(self, *, module: str, file: str, base: str, side: str) -> None:
        self.module = module
        self.file = file
        self.base = base
        super().__init__(
            f"{side}: {module} was loaded from {file}, and not from {base}, whose code was asked for. "
            "A copy that is installed, or that comes before it on sys.path, hides it. Let it be imported from the "
            "tree: no installed copy, pytest run at the top of the tree, the directory of the code in `pythonpath` or "
            "PYTHONPATH. Or install that version in an environment of its own, and use "
            "--fileperf-against=python:INTERPRETER"
        )


class ServerStartError(_LoggedError, ServerError):
    """The server did not become ready."""


class ServerDiedError(_LoggedError, ServerError):
    """The server ended or stopped answering under load."""


class BaseDiedError(ServerDiedError):
    """The other side of a comparison ended or stopped answering under load."""


class SetupError(_LoggedError):
    """What a test does on each boot failed; the message has its traceback too."""


class BaseSetupError(SetupError):
    """The setup or teardown of a test failed on the other side of a comparison."""


class LoadError(FilePerfError):
    """The load could not be made."""


class BaseFailedError(LoadError):
    """The other side of a comparison is broken: it answers no request well, which does not show that it lacks it."""

    def __init__(self, *, side: str, work: str, said: str, log: Sequence[str] = ()) -> None:
        self.side = side
        self.work = work
        self.said = said
        super().__init__(
            f"{side} fails in every request of {work}: {said}\n"
            'It did so on two boots. Mend it there, or leave this test out of comparisons with gate="none"'
            + log_block(log)
        )


class FileLimitError(LoadError):
    """More connections were asked for than this process may open files."""

    def __init__(self, *, connections: int, limit: int) -> None:
        self.connections = connections
        self.limit = limit
        super().__init__(
            f"{connections} connections need more open files than the {limit} this process may have; "
            f"raise the limit (`ulimit -n {connections + 256}`) or ask for fewer connections"
        )

    def __reduce__(self) -> tuple[Callable[[], FileLimitError], tuple[()]]:
        """Takes it from the generator's process to the test's: as a rule an exception is made anew of its message."""
        return partial(FileLimitError, connections=self.connections, limit=self.limit), ()


class GeneratorError(LoadError):
    """The load generator's own process failed; the message holds its traceback or last lines."""


class BaselineError(FilePerfError):
    """A stored baseline cannot be used as it is; the message names the file and the reason."""


class RecordError(FilePerfError):
    """A file of results cannot be read, or a history written; the message names the file and the reason."""


class NoTimeError(FilePerfError):
    """The time of `--fileperf-budget` was used up before this measurement began."""


class PerformanceError(AssertionError):
    """Base of the verdicts that fail a test."""


class RequestsFailedError(PerformanceError):
    """More requests failed than allowed, or none succeeded."""


class LimitExceededError(PerformanceError):
    """An absolute limit (`min_rps`, `max_p99` …) does not hold."""


class RegressionError(PerformanceError):
    """A metric is worse than its baseline by more than the tolerance."""


class NotMeasuredError(PerformanceError):
    """A metric is NEW or INCONCLUSIVE where that must fail (`--fileperf-strict`, or NEW in CI)."""


def log_block(lines: Sequence[str]) -> str:
    """Returns the lines as an indented block for the end of a message; empty for none.

    Before it a sentence says that a disk is full, where one of the lines does.
    """
    if not lines:
        return ""
    full = "\na disk that it writes to is full, as its log says: make room there" * any(map(_FULL.search, lines))
    return f"{full}\nlast lines of its log:\n" + "\n".join(f"  | {log_line(line)}" for line in lines)


def log_line(line: str) -> str:
    """Returns the line as it is shown: cut where it is long, without what colours, moves or turns text around it."""
    text = _ANSI.sub("", line).expandtabs()
    cut = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
    return printable(cut)
