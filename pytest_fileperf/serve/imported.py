"""One import of an app in a process of its own: what it gave, and the messages about it between processes."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_fileperf.errors import AppLoadError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.databases import Databases, databases_here
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.likeness import Likeness, likeness_of
from pytest_fileperf.serve.orphan_guard import follow_starter

__all__ = ("Imported", "answer_imports", "import_in", "imports_in", "is_answered", "report_import")

_FILE = "imported.pickle"
_ANSWER = "imports.pickle"
_POLL_S = 0.05
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What one import gave."""

    likeness: Likeness | None = None
    databases: Databases = field(default_factory=Databases)
    """Those that Django would use."""
    problem: str = ""
    """Why there is none."""


def report_import(run_directory: Path) -> None:
    """Imports the app of the job in the run directory, in this process, and leaves there what that gave."""
    follow_starter(run_directory, grace_s=_GRACE_S)
    job = Job.read(run_directory)
    try:
        likeness = likeness_of(AppSpec(job.target).load()) if job.target else None
        found = Imported(likeness=likeness, databases=databases_here(by_settings=True))
    except AppLoadError as error:
        found = Imported(problem=str(error).splitlines()[0])
    _write(run_directory / _FILE, found)


def answer_imports(run_directory: Path, found: Sequence[Imported]) -> None:
    """Leaves what imports gave for a server that waits for it."""
    _write(run_directory / _ANSWER, tuple(found))


def is_answered(run_directory: Path) -> bool:
    """Returns whether `answer_imports` has left something."""
    return (run_directory / _ANSWER).exists()


def imports_in(run_directory: Path, *, timeout_s: float) -> tuple[Imported, ...] | None:
    """Waits for what imports gave, in the server's process; returns None where it does not come."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if is_answered(run_directory):
            found: tuple[Imported, ...] = pickle.loads((run_directory / _ANSWER).read_bytes())  # noqa: S301 # by the test
            return found
        time.sleep(_POLL_S)
    return None


def import_in(run_directory: Path) -> Imported | None:
    """Returns what `report_import` has left; None where that is nothing."""
    try:
        found: Imported = pickle.loads((run_directory / _FILE).read_bytes())  # noqa: S301 # written by our own process
    except FileNotFoundError:
        return None
    return found


def _write(path: Path, value: object) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(pickle.dumps(value))
    unfinished.replace(path)
