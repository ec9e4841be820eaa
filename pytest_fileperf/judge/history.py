"""What each session showed of this machine: local files, one a session, which Git ignores.

    <baselines>/.local/<profile>/<nanoseconds since 1970>-<random>.json    {schema, changes: {metric: log change}}

A session adds a file of its own and changes no other, so that two runs may write at the same time. What cannot be read
is left out, and what cannot be written is not kept: a history only makes verdicts sharper.

Files that lie within `SPAN_NS` of the first of them count as one session. A machine changes over hours and days: ten
runs within one hour show what that hour was like, not how steady the machine is.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from pytest_fileperf.files import put_text
from pytest_fileperf.judge.baseline import LOCAL, keep_local
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.steadiness import Steadiness
from pytest_fileperf.judge.stored import mapping_in, number_in, whole_in
from pytest_fileperf.measure.metrics import METRICS

__all__ = ("MOST_FILES", "SPAN_NS", "History")

SCHEMA = 1
MOST_FILES = 50
"""More are not kept: machines change, and so many sessions tell a spread to a tenth."""
SPAN_NS = 4 * 3_600 * 10**9
"""Files that are less apart than this are of one session: what holds for one hour may not hold for the next day."""
_DIGITS = 4
"""Significant digits of a stored change."""
_MOST_CHANGE = 20.0
"""A greater log change, of a factor of 500 million, is damage: its square may not even be a number."""


class History:
    """The sessions that were kept of one machine profile."""

    def __init__(self, directory: Path, environment: Environment) -> None:
        """`directory` is that of the baselines."""
        self._local = directory / LOCAL
        self._directory = self._local / environment.profile

    def read(self) -> Steadiness:
        """Returns what the kept sessions have shown, the oldest first."""
        found = (_merged(filter(None, map(_changes_in, files))) for files in self._sessions())
        return Steadiness(changes=tuple(filter(None, found)))

    def add(self, changes: Mapping[str, float], at_ns: int | None = None) -> None:
        """Keeps what a run has shown, where it has shown anything; at most `MOST_FILES` are kept.

        `at_ns` is when that was, in nanoseconds since 1970; now, if it is None. Does nothing where the directory cannot
        be written.
        """
        if not changes:
            return
        shown = {name: float(f"{change:.{_DIGITS}g}") for name, change in sorted(changes.items())}
        time_ns = time.time_ns() if at_ns is None else at_ns
        path = self._directory / f"{time_ns:020d}-{secrets.token_hex(4)}.json"
        with suppress(OSError):
            keep_local(self._local)
            put_text(path, json.dumps({"schema": SCHEMA, "changes": shown}) + "\n")
            for old in _too_many(self._sessions()):
                old.unlink(missing_ok=True)

    def _sessions(self) -> list[list[Path]]:
        """Returns the files of each session, the oldest first. A file without a time in its name is not of them."""
        try:
            timed = ((_time_of(path), path) for path in self._directory.glob("*.json"))
            return _sessions_of(sorted((time_ns, path) for time_ns, path in timed if time_ns is not None))
        except OSError:
            return []


def _time_of(path: Path) -> int | None:
    time_ns, _, _ = path.name.partition("-")
    return int(time_ns) if time_ns.isdecimal() else None


def _sessions_of(timed: Iterable[tuple[int, Path]]) -> list[list[Path]]:
    """Returns files of one session together; `timed` has the time of each in nanoseconds, the oldest first."""
    sessions: list[list[Path]] = []
    start_ns = -SPAN_NS
    for time_ns, path in timed:
        if time_ns - start_ns >= SPAN_NS:
            sessions.append([])
            start_ns = time_ns
        sessions[-1].append(path)
    return sessions


def _too_many(sessions: list[list[Path]]) -> list[Path]:
    """Returns the files beyond `MOST_FILES`, each from the session that has most: an hour of runs ends no other day.

    The first of a session stays, as it tells when the session began. Where each session has one file, the oldest go.
    """
    left, beyond = [list(files) for files in sessions], []
    for _ in range(sum(map(len, sessions)) - MOST_FILES):
        fullest = max(left, key=len)
        if len(fullest) > 1:
            beyond.append(fullest.pop(1))
        else:
            beyond += left.pop(0)
    return beyond


def _merged(runs: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Returns what the runs of one session have shown together: the root mean square by metric."""
    squares: dict[str, list[float]] = {}
    for changes in runs:
        for name, change in changes.items():
            squares.setdefault(name, []).append(change * change)
    return {name: math.sqrt(math.fsum(values) / len(values)) for name, values in sorted(squares.items())}


def _changes_in(path: Path) -> dict[str, float] | None:
    """Returns what the file says of known metrics; None where it cannot be read or cannot be true."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or whole_in(content, "schema", "") != SCHEMA:
            return None
        changes = mapping_in(content, "changes", "")
        found = {name: number_in(changes, name, "changes") for name in changes if name in METRICS}
        return found if all(change <= _MOST_CHANGE for change in found.values()) else None
    except (OSError, ValueError, RecursionError):
        return None
