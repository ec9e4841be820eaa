"""What each session showed of this machine: local files, one a session, which Git ignores.

    <baselines>/.local/<profile>/<nanoseconds since 1970>-<random>.json    {schema, changes: {metric: log change}}

A session adds a file of its own and changes no other, so that two runs may write at the same time. What cannot be read
is left out, and what cannot be written is not kept: a history only makes verdicts sharper.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pytest_fileperf.files import put_text
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.steadiness import Steadiness
from pytest_fileperf.judge.stored import mapping_in, number_in, whole_in
from pytest_fileperf.measure.metrics import METRICS

__all__ = ("MOST_SESSIONS", "History")

SCHEMA = 1
MOST_SESSIONS = 50
"""Older sessions are forgotten: machines change, and these tell a spread to a tenth."""
_LOCAL = ".local"
_DIGITS = 4
"""Significant digits of a stored change."""


class History:
    """The sessions that were kept of one machine profile."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """`directory` is that of the baselines."""
        self._local = directory / _LOCAL
        self._directory = self._local / environment.profile

    def read(self) -> Steadiness:
        """Returns what the kept sessions have shown, the oldest first."""
        found = (_changes_in(path) for path in self._files()[-MOST_SESSIONS:])
        return Steadiness(changes=tuple(changes for changes in found if changes is not None))

    def add(self, changes: Mapping[str, float]) -> None:
        """Keeps what a session has shown, where it has shown anything, and forgets the oldest beyond `MOST_SESSIONS`.

        Does nothing where the directory cannot be written.
        """
        if not changes:
            return
        shown = {name: float(f"{change:.{_DIGITS}g}") for name, change in sorted(changes.items())}
        path = self._directory / f"{time.time_ns():020d}-{secrets.token_hex(4)}.json"
        with suppress(OSError):
            ignored = self._local / ".gitignore"
            if not ignored.exists():
                put_text(ignored, "*\n")
            put_text(path, json.dumps({"schema": SCHEMA, "changes": shown}) + "\n")
            for old in self._files()[:-MOST_SESSIONS]:
                old.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        """Returns the files of all sessions, the oldest first."""
        try:
            return sorted(self._directory.glob("*.json"))
        except OSError:
            return []


def _changes_in(path: Path) -> dict[str, float] | None:
    """Returns what the file says of known metrics; None where it cannot be read."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or whole_in(content, "schema", "") != SCHEMA:
            return None
        changes = mapping_in(content, "changes", "")
        return {name: number_in(changes, name, "changes") for name in changes if name in METRICS}
    except (OSError, ValueError, RecursionError):
        return None
