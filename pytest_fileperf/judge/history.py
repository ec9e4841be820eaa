r"""The history of a project: a line of JSON for each run, appended to a file, and the series that its lines make.

    {"v":1,"id":"9b1f…","at":"2026-11-25T09:41:16+00:00","tree":"31af9e75bb0b","machine":"linux-x86_64-2-cpython3.11-359d",
     "packages":"91ac02d7","tests":{"test_api.py::test_upload":{"old":"e712d514755b","work":"c41f09d2","ratios":{"rps":
     [-0.0074,0.0164,6]},"stored":false}},"commit":"3cf8…","dirty":false,"made":"2026-11-25T09:38:26+00:00","branch":"main"}

    id         digest of the line without it: the same line twice is one line
    at, made   when it was measured; when its commit was made
    tree, old  the code here, and the code that it was compared with, as baselines name code
    work       digest of request, server and load: another load is another series

Only comparisons that measured both codes alternately have such ratios. Every outcome is written. Lines without JSON,
such as a merge's conflict markers, are skipped with a sentence; the order of lines does not matter. A file that cannot
be read is an error, and never replaced. No host name, path, secret or value of a request is in it.

History: 1 is the first.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.files import put_bytes
from pytest_fileperf.judge.baseline import slow_digest, storing_in
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Observed
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.units import format_count

SCHEMA = 1
_SALT = hashlib.sha256(b"pytest-fileperf history").hexdigest()[:32]
_UNKNOWN_LINK = 1.0
"""Standard error of a link that nobody has measured: the level behind it may be any."""
_LUCK = 2.0
"""A baseline that was stored because it was better carries luck: the errors of its link count so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRatios:
    """What one run shows of one test."""

    __test__ = False

    old: str
    work: str
    ratios: Mapping[str, tuple[float, float, int]]
    """By metric: the log ratio of new to old code, its standard error, and the pairs of start-ups."""
    stored: bool = False
    """The code here became the baseline in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One line. Times are ISO 8601, in UTC."""

    at: str
    tree: str
    machine: str
    packages: str
    tests: Mapping[str, TestRatios]
    commit: str = ""
    dirty: bool = False
    """The code here is not that of the commit."""
    made: str = ""
    branch: str = ""

    @property
    def time(self) -> datetime:
        """When its code was made: of uncommitted code, when it was measured."""
        return datetime.fromisoformat(self.at if self.dirty or not self.made else self.made)


# --- Lines


def ratios_of(results: Iterable[Result]) -> dict[str, TestRatios]:
    """Returns what belongs into a history: comparisons that measured two known codes alternately."""
    found = {}
    for result in results:
        ratios = {
            item.metric: (round(item.log_ratio, 4), max(round(item.log_error, 4), 0.0001), item.pairs)
            for item in result.verdict.comparisons
            if item.log_ratio is not None and item.log_error is not None and item.pairs is not None
        }
        if ratios and result.verdict.old_tree:
            text = json.dumps(result.identity, sort_keys=True, default=str)
            found[result.test.nodeid] = TestRatios(
                old=result.verdict.old_tree[:12],
                work=slow_digest(text, _SALT)[-8:],
                ratios=ratios,
                stored=result.baseline_written,
            )
    return found


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def line_of(run: Run) -> str:
    """Returns the run as one line, with its end."""
    content = asdict(run)
    return _text({"v": SCHEMA, "id": _id_of(content), **content}) + "\n"


def append(path: Path, run: Run) -> None:
    """Adds a run to the file, wholly or not at all. Raises RecordError for one that is no history or not writable."""
    line = line_of(run).encode()
    with storing_in(path.parent):
        try:
            there = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise RecordError(f"the history {path} cannot be read: {error.strerror or error}") from error
        if there.strip() and not any(map(_parsed, there.decode("utf-8", "replace").splitlines())):
            raise RecordError(f"{path} holds no history: name another file with --fileperf-history=PATH")
        if there and not there.endswith(b"\n"):
            there += b"\n"
        if line not in there:
            try:
                put_bytes(path, there + line)
            except OSError as error:
                raise RecordError(f"the history {path} cannot be written: {error.strerror or error}") from error


def read(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Returns the runs of all files, each once, the oldest code first; and sentences about lines that are left out."""
    found: dict[str, Run] = {}
    said = []
    for path in paths:
        try:
            lines = path.read_bytes().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            why = "is not there: runs with --fileperf-history write it, or name another file"
            raise RecordError(f"the history {path} {why}") from None
        except OSError as error:
            raise RecordError(f"the history {path} cannot be read: {error.strerror or error}") from error
        newer, bad = 0, []
        for number, line in enumerate(lines, 1):
            content = _parsed(line)
            if content is None:
                bad += [number] if line.strip() else []
            elif content["v"] > SCHEMA:
                newer += 1
            else:
                own = {key: value for key, value in content.items() if key not in ("v", "id")}
                try:
                    found[_id_of(own)] = _run_of(own)
                except (ValueError, TypeError, KeyError, AttributeError):
                    bad.append(number)
        if bad:
            more = "" if len(bad) == 1 else f" and {len(bad) - 1} more"
            said.append(f"{path}: line {bad[0]}{more} left out, as it holds no run (a merge may have left it)")
        if newer:
            said.append(f"{path}: {format_count(newer, 'run')} left out: upgrade pytest-fileperf to read them")
    return sorted(found.values(), key=lambda run: (run.time, run.at)), said


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    version = content.get("v") if isinstance(content, dict) else None
    return content if isinstance(version, int) and not isinstance(version, bool) and version >= 1 else None


def _run_of(content: Mapping[str, Any]) -> Run:
    """Raises ValueError, TypeError, KeyError or AttributeError for a line of another form."""
    tests = {}
    for nodeid, own in content["tests"].items():
        ratios = {name: tuple(value) for name, value in own["ratios"].items() if name in METRICS}
        if not all(math.isfinite(ratio) and 0 < error < math.inf for ratio, error, _ in ratios.values()):
            raise ValueError(nodeid)
        tests[nodeid] = TestRatios(**{**own, "ratios": ratios})
    run = Run(**{**content, "tests": tests})
    times = [datetime.fromisoformat(text) for text in (run.at, run.made or run.at)]
    if any(time.tzinfo is None for time in times) or not all(
        isinstance(one, str) for one in (run.tree, run.machine, run.commit)
    ):
        raise ValueError(run.at)
    return run


def _id_of(content: Mapping[str, object]) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()[:16]


def _text(content: Mapping[str, object]) -> str:
    return json.dumps(content, ensure_ascii=True, separators=(",", ":"))


# --- Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One metric of one test over all runs that made the same load, the oldest code first."""

    nodeid: str
    metric: str
    runs: tuple[Run, ...]
    ratios: tuple[float, ...]
    """Log ratios to the first old code: those to later ones are linked to it."""
    errors: tuple[float, ...]
    links: tuple[float, ...]
    """Variances, as `Observed` has them."""
    olds: tuple[str, ...]
    """The old code of each run."""
    far: float
    """Variance of the links between the first old code and the last."""
    unlinked: tuple[str, ...]
    """Old codes that no run compares with one before."""
    others: int
    """Runs of the same test that made another load."""

    @property
    def session_sd(self) -> float:
        return TREND.session_sd if METRICS[self.metric].percentile is None else TREND.tail_session_sd

    @property
    def observed(self) -> Observed:
        return Observed(ratios=self.ratios, errors=self.errors, links=self.links, session_sd=self.session_sd)

    def change_since(self, begun: int, tree: str = "") -> tuple[float, float] | None:
        """Returns the log ratio of the last ten runs over the ten before a run, and its error; None without runs.

        If the first old code is this `tree`, it is what they are compared with.
        """
        last = self._mean(range(max(begun, len(self.runs) - TREND.first), len(self.runs)))
        if last is None or (tree and tree == self.olds[0]):
            return last and (last[0], math.sqrt(last[1] + self.far))
        before = self._mean(range(max(0, begun - TREND.first), begun))
        if before is None:
            return None
        return last[0] - before[0], math.sqrt(last[1] + before[1] + sum(self.links[begun:]))

    def _mean(self, runs: Sequence[int]) -> tuple[float, float] | None:
        """Returns the weighted mean of runs, with its variance."""
        if not runs:
            return None
        weights = [1 / (self.errors[at] ** 2 + self.session_sd**2) for at in runs]
        mean = sum(weight * self.ratios[at] for weight, at in zip(weights, runs, strict=True)) / sum(weights)
        return mean, 1 / sum(weights)


def in_order(runs: Sequence[Run], commits: Sequence[str]) -> list[Run]:
    """Returns runs by the order of their commits, the oldest first; those of other commits by their time."""
    places = {commit: place for place, commit in enumerate(commits)}
    known = sorted((run for run in runs if run.commit in places), key=lambda run: (places[run.commit], run.at))
    times = accumulate((run.time for run in known), max)
    keys = {id(run): (time, places[run.commit], run.at) for run, time in zip(known, times, strict=True)}
    return sorted(runs, key=lambda run: keys.get(id(run), (run.time, -1, run.at)))


def series_of(runs: Sequence[Run]) -> list[Series]:
    """Returns the series of runs in their order, of each test and metric, with the load that the test has now."""
    works = {nodeid: test.work for run in runs for nodeid, test in run.tests.items()}
    names = dict.fromkeys(
        (nodeid, name)
        for run in runs
        for nodeid, test in run.tests.items()
        for name in test.ratios
        if test.work == works[nodeid]
    )
    return [_series(nodeid, metric, works[nodeid], runs) for nodeid, metric in names]


def _series(nodeid: str, metric: str, work: str, runs: Sequence[Run]) -> Series:
    every = [(run, run.tests[nodeid]) for run in runs if metric in run.tests.get(nodeid, _NOTHING).ratios]
    own = [(run, test) for run, test in every if test.work == work]
    measured: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run, test in own:
        ratio, stated, _ = test.ratios[metric]
        error = stated * (_LUCK if test.stored else 1)
        for between, sign in (((test.old, run.tree), 1), ((run.tree, test.old), -1)):
            measured.setdefault(between, []).append((sign * ratio, error**2 + TREND.session_sd**2))
    first = own[0][1].old
    offsets, ways = {first: 0.0}, {first: frozenset[tuple[str, float]]()}
    ratios, links, unlinked = [], [], []
    machines: list[str] = []
    before = first
    for run, test in own:
        if (old := test.old) not in offsets:
            link, variance, other = _link(measured, offsets, old, before)
            offsets[old] = offsets[other] + link
            ways[old] = ways[other] | {(old, variance)}
            unlinked += [old] if variance == _UNKNOWN_LINK else []
        moved = sum(variance for _, variance in ways[old] ^ ways[before])
        is_new = machines and run.machine not in machines[-TREND.machine_runs :]
        links.append(moved + (TREND.machine_sd**2 if is_new else 0.0))
        machines.append(run.machine)
        ratios.append(test.ratios[metric][0] + offsets[old])
        before = old
    return Series(
        nodeid=nodeid,
        metric=metric,
        runs=tuple(run for run, _ in own),
        ratios=tuple(ratios),
        errors=tuple(test.ratios[metric][1] for _, test in own),
        links=tuple(links),
        olds=tuple(test.old for _, test in own),
        far=sum(variance for _, variance in ways[before]),
        unlinked=tuple(unlinked),
        others=len(every) - len(own),
    )


def _link(
    measured: Mapping[tuple[str, str], Sequence[tuple[float, float]]],
    known: Iterable[str],
    new: str,
    before: str,
) -> tuple[float, float, str]:
    """Returns the log ratio of new old code over a known one, its variance, and which: the one known best."""
    found = []
    for other in known:
        pairs = measured.get((other, new), ())
        if total := sum(1 / variance for _, variance in pairs):
            found.append((sum(ratio / variance for ratio, variance in pairs) / total, 1 / total, other))
    return min(found, key=lambda one: one[1], default=(0.0, _UNKNOWN_LINK, before))


_NOTHING = TestRatios(old="", work="", ratios={})
