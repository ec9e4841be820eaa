r"""The history of a project: a line of JSON for each run, appended to a file, and the series that its lines make.

    {"v":1,"id":"9b1f…","at":"2026-11-25T09:41:16+00:00","tree":"31af9e75bb0b","machine":"linux-x86_64-2-cpython3.11-359d",
     "packages":"91ac02d7","tests":{"test_api.py::test_upload":{"old":"e712d514755b","work":"c41f09d2","ratios":{"rps":
     [-0.0074,0.0164,6]},"stored":false}},"commit":"3cf8…","dirty":false,"made":"2026-11-25T09:38:26+00:00","branch":"main"}

    id         digest of the line without it: the same line twice is one line
    at, made   when it was measured; when its commit was made
    tree, old  the code here, and the code that it was compared with, as baselines name code
    work       digest of request, server and load: another load is another series

Only comparisons that measured both codes alternately have such ratios. Every outcome is written. Lines without a run,
such as a merge's conflict markers, are skipped with a sentence; the order of lines does not matter. A file that cannot
be read is an error, and never replaced. No host name, path, secret or value of a request is in it.

Others may have written the file: a line whose values are not of the right form is skipped as well.

History: 1 is the first.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge.baseline import slow_digest
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Course, Observed
from pytest_fileperf.judge.verdict import ReasonKind
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.units import format_count

SCHEMA = 1
_LOCK_S = 30.0
_TREE, _COMMIT = re.compile("[0-9a-f]{7,64}"), re.compile("(?:[0-9a-f]{40}|[0-9a-f]{64})?")
_MOST = 20.0
"""No log ratio is beyond: it would be a factor of half a billion."""
_VOID = frozenset(
    {
        ReasonKind.BASE_FAILED,
        ReasonKind.INCOMPARABLE,
        ReasonKind.LEFT_WORK,
        ReasonKind.LOST,
        ReasonKind.OTHER_ANSWERS,
        ReasonKind.SAME_FILES,
        ReasonKind.SATURATED,
    }
)
"""With such a reason the ratio is not that of both codes."""
_OF_THE_RUN = frozenset({"against", "engine", "pinned", "tracer", "load from"})
"""Keys of an identity that may differ between runs whose ratios compare; beside them how start-ups are stabilised."""
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
            if item.reason is None or item.reason.kind not in _VOID
        }
        if ratios and result.verdict.old_tree:
            found[result.test.nodeid] = TestRatios(
                old=result.verdict.old_tree[:12],
                work=work_of(result.identity),
                ratios=ratios,
                stored=result.baseline_written,
            )
    return found


def work_of(identity: Mapping[str, object]) -> str:
    """Returns a slow digest of what makes ratios of two runs compare: request, load, server and set-up."""
    held = {key: value for key, value in identity.items() if key not in _OF_THE_RUN}
    if isinstance(server := held.get("server"), Mapping):
        held["server"] = {key: value for key, value in server.items() if key != "stabilised"}
    return slow_digest(json.dumps(held, sort_keys=True, default=str), _SALT)[-8:]


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def line_of(run: Run) -> str:
    """Returns the run as one line, with its end."""
    content = asdict(run)
    return _text({"v": SCHEMA, "id": _id_of(content), **content}) + "\n"


def append(path: Path, run: Run) -> None:
    """Adds a run to the file, wholly or not at all. Raises RecordError for one that is no history or not writable."""
    line = line_of(run).encode()
    try:
        with locked(path, within_s=_LOCK_S), path.open("r+b") as file:
            there = file.read()
            if there.strip() and not any(map(_parsed, there.decode("utf-8", "replace").splitlines())):
                raise RecordError(f"{path} isn't a history: name another file with --fileperf-history=PATH")
            if line in there:
                return
            try:
                file.write(line if not there or there.endswith(b"\n") else b"\n" + line)
                file.flush()
            except OSError:
                file.truncate(len(there))
                raise
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
                except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                    bad.append(number)
        if bad:
            more = "" if len(bad) == 1 else f" and {len(bad) - 1} more"
            said.append(f"{path}: line {bad[0]}{more} left out: this is no run, maybe the rest of a merge")
        if newer:
            said.append(f"{path}: {format_count(newer, 'run')} left out: upgrade pytest-fileperf to read them")
    return sorted(found.values(), key=lambda run: (run.time, run.at)), said


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or not isinstance(content.get("tests"), dict) or "id" not in content:
        return None
    version = content.get("v")
    return content if isinstance(version, int) and not isinstance(version, bool) and version >= 1 else None


def _run_of(content: Mapping[str, Any]) -> Run:
    """Raises ValueError, TypeError, KeyError, AttributeError or OverflowError for a line of another form."""
    tests = {}
    for nodeid, own in content["tests"].items():
        ratios = {name: tuple(value) for name, value in own["ratios"].items() if name in METRICS}
        in_range = all(
            abs(ratio) < _MOST and 0 < error < _MOST and pairs >= 0 for ratio, error, pairs in ratios.values()
        )
        # A test's name goes to pytest and to terminals.
        if not in_range or not nodeid.isprintable() or nodeid.startswith("-"):
            raise ValueError(nodeid)
        tests[nodeid] = TestRatios(**{**own, "ratios": ratios})
    run = Run(**{**content, "tests": tests})
    times = [datetime.fromisoformat(text) for text in (run.at, run.made or run.at)]
    olds = [test.old for test in tests.values()]
    if (
        not isinstance(content.get("dirty", False), bool)
        or any(time.tzinfo is None for time in times)
        or not all(_TREE.fullmatch(tree) for tree in (run.tree, *olds))
        or not _COMMIT.fullmatch(run.commit)
        or not (run.machine + run.branch).isprintable()
        or not all(isinstance(test.work, str) for test in tests.values())
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
    def observed(self) -> Observed:
        return Observed(ratios=self.ratios, errors=self.errors, links=self.links, session_sd=_session_sd(self.metric))

    def change_since(self, begun: int, tree: str, course: Course) -> tuple[float, float] | None:
        """Returns the log ratio of the last level over the one before a run, and its error; None without runs.

        If the first old code is this `tree`, it is what the level is compared with.
        """
        if begun >= len(self.runs):
            return None
        if tree and tree == self.olds[0]:
            return course.levels[-1], math.hypot(course.errors[-1], math.sqrt(self.far))
        if begun == 0:
            return None
        between = math.sqrt(sum(self.links[begun:]))
        change = course.levels[-1] - course.levels[begun - 1]
        return change, math.hypot(course.errors[-1], course.errors[begun - 1], between)


def _session_sd(metric: str) -> float:
    return TREND.session_sd if METRICS[metric].percentile is None else TREND.tail_session_sd


def in_order(runs: Sequence[Run], commits: Sequence[str]) -> list[Run]:
    """Returns runs by the order of their commits, the oldest first; those of other commits by their time."""
    places = {commit: place for place, commit in enumerate(commits)}
    known = sorted((run for run in runs if run.commit in places), key=lambda run: (places[run.commit], run.at))
    times = accumulate((run.time for run in known), max)
    keys = {id(run): (time, places[run.commit], run.at) for run, time in zip(known, times, strict=True)}
    return sorted(runs, key=lambda run: keys.get(id(run), (run.time, -1, run.at)))


def series_of(runs: Sequence[Run], links: Sequence[Run] = ()) -> list[Series]:
    """Returns the series of runs in their order, of each test and metric, with the load that most recent runs made.

    `links` are more runs: they only tell how far two old codes are apart.
    """
    recent: dict[str, list[str]] = {}
    for run in runs:
        for nodeid, test in run.tests.items():
            recent.setdefault(nodeid, []).append(test.work)
    # The later one of two that are as frequent.
    works = {nodeid: Counter(made[: -TREND.first - 1 : -1]).most_common(1)[0][0] for nodeid, made in recent.items()}
    names = dict.fromkeys(
        (nodeid, name)
        for run in runs
        for nodeid, test in run.tests.items()
        for name in test.ratios
        if test.work == works[nodeid]
    )
    return [_series(nodeid, metric, works[nodeid], runs, links) for nodeid, metric in names]


def _series(nodeid: str, metric: str, work: str, runs: Sequence[Run], links: Sequence[Run]) -> Series:
    every = [(run, run.tests[nodeid]) for run in runs if metric in run.tests.get(nodeid, _NOTHING).ratios]
    own = [(run, test) for run, test in every if test.work == work]
    beside = [(run, run.tests[nodeid]) for run in links if metric in run.tests.get(nodeid, _NOTHING).ratios]
    offsets, ways = _offsets(own[0][1].old, metric, [*own, *(pair for pair in beside if pair[1].work == work)])
    ratios, variances, unlinked = [], [], []
    machines: list[str] = []
    before = own[0][1].old
    for run, test in own:
        if (old := test.old) not in offsets:
            offsets[old], ways[old] = offsets[before], ways[before] | {(old, _UNKNOWN_LINK)}
            unlinked.append(old)
        is_new = machines and run.machine not in machines[-TREND.machine_runs :]
        moved = sum(variance for _, variance in ways[old] ^ ways[before])
        variances.append(moved + (TREND.machine_sd**2 if is_new else 0.0))
        machines.append(run.machine)
        ratios.append(test.ratios[metric][0] + offsets[old])
        before = old
    return Series(
        nodeid=nodeid,
        metric=metric,
        runs=tuple(run for run, _ in own),
        ratios=tuple(ratios),
        errors=tuple(test.ratios[metric][1] for _, test in own),
        links=tuple(variances),
        olds=tuple(test.old for _, test in own),
        far=sum(variance for _, variance in ways[before]),
        unlinked=tuple(unlinked),
        others=len(every) - len(own),
    )


def _offsets(
    first: str, metric: str, measured: Iterable[tuple[Run, TestRatios]]
) -> tuple[dict[str, float], dict[str, frozenset[tuple[str, float]]]]:
    """Returns how far each code is from the first old one, as a log ratio, and the links on the way: names, variances.

    The way is the one that is known best (Dijkstra).
    """
    links: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for run, test in measured:
        ratio, stated, _ = test.ratios[metric]
        variance = (stated * (_LUCK if test.stored else 1)) ** 2 + _session_sd(metric) ** 2
        for between, sign in (((test.old, run.tree), 1), ((run.tree, test.old), -1)):
            links.setdefault(between, []).append((sign * ratio, variance))
    beside: dict[str, list[tuple[str, float, float]]] = {}
    for (one, other), own in links.items():
        weight = sum(1 / variance for _, variance in own)
        mean = sum(ratio / variance for ratio, variance in own) / weight
        beside.setdefault(one, []).append((other, mean, 1 / weight))
    offsets: dict[str, float] = {}
    ways: dict[str, frozenset[tuple[str, float]]] = {}
    ahead: list[tuple[float, str, float, frozenset[tuple[str, float]]]] = [(0.0, first, 0.0, frozenset())]
    while ahead:
        variance, code, offset, way = heapq.heappop(ahead)
        if code in offsets:
            continue
        offsets[code], ways[code] = offset, way
        for other, ratio, more in beside.get(code, ()):
            if other not in offsets:
                name = "…".join(sorted((code, other)))
                heapq.heappush(ahead, (variance + more, other, offset + ratio, way | {(name, more)}))
    return offsets, ways


_NOTHING = TestRatios(old="", work="", ratios={})
