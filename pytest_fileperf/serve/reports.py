"""Server processes tell the test process how their start went: by a small JSON file for each kind and process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

__all__ = ("Asked", "Failed", "Preloaded", "Ready", "Started", "reports_of", "write_report")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A process begins to load the app. More of these than workers: one has died and was replaced."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A process has imported an app that differs from the test's, and waits for what other imports give."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Preloaded:
    """A process has imported the app, and forks for each boot."""

    pid: int
    why_fresh: str
    """Why it cannot be forked, in words; empty if it can."""
    stamps: Mapping[str, Sequence[int]]
    """Size and time of each file that it has read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A process answers requests, and says what it runs on."""

    pid: int
    port: int
    loop: str
    http: str
    stabilised: Sequence[str]
    tracer: str
    """What traces it, such as `coverage`; empty for nothing."""
    app_file: str | None
    """Where the module of the app was loaded from; None for an app that was sent as an object."""
    files: Sequence[str]
    """Where its modules were loaded from, without those of this package and of the interpreter."""
    installed: Sequence[str]
    """The same of installed packages."""
    read: Sequence[str]
    """Other files that were read while the app was imported and started."""
    changed: Sequence[Sequence[str]] = ()
    """What the test has set on the app that was imported: the name of each part, and what it holds."""
    own: Sequence[Sequence[str]] = ()
    """What differs from the test's app, and is left as it was imported: the name of each part, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A process gave up before it was ready, or failed as it ended."""

    pid: int
    stage: str
    """`packages` (its Python lacks some), `port` (it is taken), `missing` (there is no such app), `app` (it does not
    load), `lifespan` (the app's start-up failed) or `shutdown` (its end did)."""
    message: str


_Report = TypeVar("_Report", Started, Asked, Preloaded, Ready, Failed)


def write_report(run_directory: Path, report: Started | Asked | Preloaded | Ready | Failed) -> None:
    """Writes the report under a name of its own, so that no reader sees a part of it.

    Does nothing where the run directory is gone: then no test process waits.
    """
    path = run_directory / f"{type(report).__name__.lower()}.{report.pid}"
    unfinished = path.with_name(f"unfinished.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(asdict(report)), encoding="utf-8")
        unfinished.replace(path)
    except FileNotFoundError:
        return


def reports_of(kind: type[_Report], run_directory: Path) -> tuple[_Report, ...]:
    """Returns the reports of a kind, by process id."""
    paths = run_directory.glob(f"{kind.__name__.lower()}.*")
    return tuple(sorted((kind(**json.loads(path.read_text(encoding="utf-8"))) for path in paths), key=lambda r: r.pid))
