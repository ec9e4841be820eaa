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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

from pytest_fileperf.host.files import put_text
from pytest_fileperf.judge.baseline import LOCAL, keep_local
from pytest_fileperf.judge.environment import Environment
from pytest_fileperf.judge.gate import Steadiness
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.measure.usage import busy_of

__all__ = ("SPAN_NS", "History", "Trend", "trend_of")

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
        found = []
        for files in self._sessions():
            squares: dict[str, list[float]] = {}
            for changes in filter(None, map(_changes_in, files)):
                for name, change in changes.items():
                    squares.setdefault(name, []).append(change * change)
            found.append({name: math.sqrt(math.fsum(own) / len(own)) for name, own in sorted(squares.items())})
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
            names = ((path.name.partition("-")[0], path) for path in self._directory.glob("*.json"))
            timed = sorted((int(time_ns), path) for time_ns, path in names if time_ns.isdecimal())
        except OSError:
            return []
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


def _changes_in(path: Path) -> dict[str, float] | None:
    """Returns what the file says of known metrics; None where it cannot be read or cannot be true."""
    try:
        content = Placed(json.loads(path.read_text(encoding="utf-8")))
        if content["schema"].whole() != SCHEMA:
            return None
        changes = content["changes"]
        found = {name: changes[name].number() for name in changes.mapping() if name in METRICS}
        return found if all(change <= _MOST_CHANGE for change in found.values()) else None
    except (OSError, ValueError, RecursionError):
        return None


# --- Start-ups that get slower, or faster, one after another: their mean is then the figure of none of them
#
# It takes an order without an exception, steps of about one size, and a change that neither start-ups of the same code
# nor their own rounds differ by. Of the same code on a quiet or a noisy machine at most 0.5 % have such an order
# (`tests/judge/test_trend.py`).

_LEAST_BOOTS = 3
_LEAST_CHANGE = {3: 0.3, 4: 0.25}
_LEAST_OF_MORE = 0.2
"""Log ratios of first and last, by how many there are: start-ups of the same code differ by 1 to 6 % each."""
_LEAST_STEP = 0.3
"""The part of an even step that every step has to be: one jump is no trend."""
_ERRORS = 3.0
"""Standard errors, by its rounds, that every step has to be."""
_CPU_PART = 0.3
"""The part of a change that CPU per request may show, where the machine's speed is not its cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """The levels of start-ups, each worse or each better than the one before."""

    of_rate: bool
    """Whether levels are requests/s; else they are latencies in seconds."""
    levels: tuple[float, ...]
    by_machine: bool
    """Whether a machine that changed meanwhile may be the cause, by its own use and the CPU time of requests."""

    @property
    def falls(self) -> bool:
        """Whether levels fall."""
        return self.levels[-1] < self.levels[0]


def trend_of(recording: Recording) -> Trend | None:
    """Returns the trend of the start-ups of one side, in the order of time; None without one.

    It goes by requests/s, or by latencies where the load has a rate of its own.
    """
    of_boots = [recording.of_boot(boot).rounds for boot in recording.boots]
    values = [
        [value for round_ in own if (value := _value(round_, recording.open_loop)) is not None] for own in of_boots
    ]
    if len(values) < _LEAST_BOOTS or not all(values):
        return None
    levels = [fmean(map(math.log, own)) for own in values]
    # Standard errors of these means; of a single round what rounds usually have.
    errors = [stdev(map(math.log, own)) / math.sqrt(len(own)) if len(own) > 1 else 0.05 for own in values]
    if not _is_trend(levels, errors):
        return None
    return Trend(
        of_rate=not recording.open_loop,
        levels=tuple(map(math.exp, levels)),
        by_machine=not any(boot.samples for boot in recording.boots)
        or busy_of(recording).is_busy
        or _costs_more(of_boots, abs(levels[-1] - levels[0])),
    )


def _value(round_: Round, open_loop: bool) -> float | None:
    if round_.phase is not Phase.ROUND or not round_.requests or round_.duration_ns <= 0:
        return None
    return round_.latency.mean_ns() / 1e9 if open_loop else round_.requests / (round_.duration_ns / 1e9)


def _is_trend(levels: Sequence[float], errors: Sequence[float]) -> bool:
    total, steps = levels[-1] - levels[0], [after - before for before, after in pairwise(levels)]
    if abs(total) < _LEAST_CHANGE.get(len(levels), _LEAST_OF_MORE):
        return False
    least, sign = _LEAST_STEP * abs(total) / len(steps), math.copysign(1, total)
    return all(
        sign * step >= max(least, _ERRORS * math.hypot(*both))
        for step, both in zip(steps, pairwise(errors), strict=True)
    )


def _costs_more(of_boots: Sequence[Sequence[Round]], change: float) -> bool:
    """Returns whether requests cost the more CPU the slower they were, or nobody knows."""
    costs = []
    for rounds in (of_boots[0], of_boots[-1]):
        known = [(round_.server_cpu_ns, round_.requests) for round_ in rounds if round_.server_cpu_ns is not None]
        cpu, requests = (sum(values) for values in zip(*known, strict=True)) if known else (0, 0)
        if not cpu or not requests:
            return True
        costs.append(cpu / requests)
    return abs(math.log(costs[1] / costs[0])) > _CPU_PART * change
