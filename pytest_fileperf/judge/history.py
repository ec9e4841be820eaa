r"""A project's history, which is a file with a line of JSON for each run, and the trends in it.

    {"v":1,"id":"9b1f…","at":"2026-11-25T09:41:16+00:00","tree":"31af9e75bb0b","machine":"linux-x86_64-2-cpython3.11-359d",
     "packages":"91ac02d7","tests":{"test_api.py::test_upload":{"old":"e712d514755b","work":"c41f09d2","ratios":{"rps":
     [-0.0074,0.0164,6]},"stored":false}},"commit":"3cf8…","dirty":false,"made":"2026-11-25T09:38:26+00:00","branch":"main"}

    id         digest of the line without it
    at, made   when it was measured; when its commit was made
    tree, old  the code here, and the code that it was compared with, as baselines name code
    work       digest of request, server and load: another load is another series

A run is written, whatever its outcome, if both codes were measured alternately. Merges and other programs may change
the file. So a line may be there twice, in any place. A line that isn't a run is reported and skipped.

History of the format (`v`): 1 is the first.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeAlias

from pytest_fileperf.errors import PlanError, RecordError
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Course, Observed, Step, courses_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.units import as_share, format_count, format_names
from pytest_fileperf.versions.repository import Repository, find_repository

if TYPE_CHECKING:
    from pytest_fileperf.versions.source import Source

SCHEMA = 1
SURE = 1.6449
"""Half the width of a 90 % interval, in standard errors."""
_TREE, _COMMIT = re.compile("[0-9a-f]{7,64}"), re.compile("(?:[0-9a-f]{40}|[0-9a-f]{64})?")
_MOST = 20.0
"""Log ratios in a run must be below this: 20 is a factor of half a billion."""
_UNKNOWN_LINK = 1.0
"""Variance of the log ratio of two old codes if no runs connect them: nearly any ratio is possible."""
_LUCK = 2.0
"""Code that became the baseline because it was better may partly have been lucky. So the standard error of its ratio is
multiplied by this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRatios:
    """The comparison of one test's old and new code in one run."""

    __test__ = False

    old: str
    work: str
    ratios: Mapping[str, tuple[float, float, int]]
    """By metric: the log ratio of new to old code, its standard error, and the number of pairs of start-ups."""
    stored: bool = False
    """Whether the code here became the baseline in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, which is a line of the file. Times are ISO 8601, with their offset from UTC."""

    at: str
    tree: str
    machine: str
    packages: str
    tests: Mapping[str, TestRatios]
    commit: str = ""
    dirty: bool = False
    """Whether uncommitted code was measured."""
    made: str = ""
    branch: str = ""

    @property
    def time(self) -> datetime:
        """When the code was committed. For uncommitted code, when it was measured."""
        return datetime.fromisoformat(self.at if self.dirty or not self.made else self.made)


# --- Lines


_text = partial(json.dumps, separators=(",", ":"))


def line_of(run: Run) -> str:
    content = asdict(run)
    return _text({"v": SCHEMA, "id": sha256(_text(content).encode()).hexdigest()[:16], **content}) + "\n"


def append(path: Path, run: Run) -> None:
    """Adds a run to the file, wholly or not at all.

    Raises RecordError if the file isn't a history, or isn't writable.
    """
    try:
        # A buffer would write its rest when the file is closed.
        with locked(path, within_s=30.0), path.open("r+b", buffering=0) as file:
            there = file.read()
            if there.strip() and all(_run_of(own) is None for own in there.decode("utf-8", "replace").splitlines()):
                raise RecordError(f"{path} exists, but isn't a history. Name another file with --fileperf-history=PATH")
            left = (line_of(run) if not there or there.endswith(b"\n") else f"\n{line_of(run)}").encode()
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(len(there))
                raise
    except OSError as error:
        raise RecordError(f"history {path} cannot be written: {error.strerror or error}. Name another file") from error


def read(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Returns the runs of all files, and sentences about lines that are left out.

    The oldest code comes first. A run that is in several files or lines is returned once.
    """
    found: dict[str, Run] = {}
    said = []
    for path in paths:
        try:
            lines = path.read_bytes().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            why = "does not exist. Run pytest with --fileperf-history to write it, or name another file"
            raise RecordError(f"history {path} {why}") from None
        except OSError as error:
            raise RecordError(f"history {path} cannot be read: {error.strerror or error}. Name another file") from error
        runs = {number: _run_of(line) for number, line in enumerate(lines, 1) if line.strip() and line not in found}
        found |= {lines[number - 1]: run for number, run in runs.items() if isinstance(run, Run)}
        if bad := [number for number, run in runs.items() if run is None]:
            more = "" if len(bad) == 1 else f" and {len(bad) - 1} more"
            said.append(f"{path}: line {bad[0]}{more} left out, because it contains no run. Maybe a merge left it")
        if newer := sum(isinstance(run, int) for run in runs.values()):
            said.append(f"{path}: {format_count(newer, 'run')} of a newer version left out. Upgrade pytest-fileperf")
    return sorted(found.values(), key=lambda run: (run.time, run.at)), said


def _run_of(line: str) -> Run | int | None:
    """Returns the line's run. Returns a newer format's version as a number, and None if the line isn't a run."""
    try:
        content = json.loads(line)
        version, _ = content.pop("v"), content.pop("id")
        if type(version) is not int or version < 1 or not isinstance(content["tests"], dict):
            return None
        if version > SCHEMA:
            return version
        tests = {}
        for nodeid, own in content.pop("tests").items():
            known = {name: tuple(figures) for name, figures in own.pop("ratios").items() if name in METRICS}
            tests[nodeid] = TestRatios(**own, ratios=known)
        run = Run(**content, tests=tests)
        figures = (figures for test in tests.values() for figures in test.ratios.values())
        # A test's name goes to pytest and to terminals.
        words = (run.machine, run.branch, *tests, *(test.work for test in tests.values()))
        fits = (
            all(abs(ratio) < _MOST and 0 < error < _MOST and pairs >= 0 for ratio, error, pairs in figures)
            and all(map(_TREE.fullmatch, (run.tree, *(test.old for test in tests.values()))))
            and all(datetime.fromisoformat(text).tzinfo for text in (run.at, run.made or run.at))
            and _COMMIT.fullmatch(run.commit)
            and isinstance(content.get("dirty", False), bool)
            and "".join(words).isprintable()
            and not any(nodeid.startswith("-") for nodeid in tests)
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    return run if fits else None


# --- Series

Compared: TypeAlias = Sequence[tuple[Run, TestRatios]]
Ties: TypeAlias = defaultdict[str, defaultdict[str, list[tuple[float, float]]]]
"""`ties[one][other]` has all measured log ratios of the code `other` to the code `one`, each with its variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Observed):
    """One metric of one test, over all runs that made the same load. The run of the oldest code comes first."""

    nodeid: str
    metric: str
    runs: tuple[Run, ...]
    old: str
    """The old code of the first run. All ratios are to this code: ratios to other old codes are converted."""
    far: float
    """Variance of the log ratio between the first run's old code and the last run's old code."""
    unlinked: tuple[tuple[str, str], ...]
    """Pairs of successive old codes whose ratio is unknown, because no runs connect them."""
    others: int
    """Number of the test's runs that are left out, because they made another load."""

    def change_since(
        self, begun: int, course: Course, *, is_since_old: bool = False, is_last_alone: bool = False
    ) -> tuple[float, float] | None:
        """Returns a change as a log ratio, with its standard error. None if there are no runs to compare.

        It is the change from the mean before run `begun` to the mean at the end. With `is_since_old`, it starts at the
        first old code. With `is_last_alone`, it ends with the last run's ratio.
        """
        if begun >= len(self.runs) or not (begun or is_since_old):
            return None
        now, error = course.level(begun, len(self.runs))
        if is_last_alone:
            now, error = self.ratios[-1], math.hypot(self.errors[-1], self.session_sd)
        if is_since_old:
            return now, math.hypot(error, math.sqrt(self.far))
        before, error_before = course.level(0, begun)
        return now - before, math.hypot(error, error_before, math.sqrt(sum(self.links[begun:])))


def series_of(runs: Sequence[Run], beside: Sequence[Run] = ()) -> list[Series]:
    """Returns the series of each test and metric, from the runs with the test's most frequent recent load.

    The runs in `beside` belong to no series. They only show how much two old codes differ.
    """
    tests = dict.fromkeys(nodeid for run in runs for nodeid in run.tests)
    found = []
    for nodeid in tests:
        every, more = ([(run, run.tests[nodeid]) for run in some if nodeid in run.tests] for some in (runs, beside))
        # The later one of two loads that are as frequent.
        work = Counter([test.work for _, test in every][: -TREND.first - 1 : -1]).most_common(1)[0][0]
        own, also = ([(run, test) for run, test in some if test.work == work] for some in (every, more))
        for metric in dict.fromkeys(name for _, test in own for name in test.ratios):
            of_metric = ([(run, test) for run, test in some if metric in test.ratios] for some in (own, also))
            found.append(_series(nodeid, metric, *of_metric, others=len(every) - len(own)))
    return found


def _series(nodeid: str, metric: str, own: Compared, also: Compared, *, others: int) -> Series:
    session_sd = TREND.session_sd if METRICS[metric].percentile is None else TREND.tail_session_sd
    ties, turns = _ties_of(metric, own, also, session_sd)
    offsets, apart = _joined(ties, dict.fromkeys(test.old for _, test in (*own, *also)))
    olds, machines = [test.old for _, test in own], [run.machine for run, _ in own]
    # Machines that take turns come back to a link with the same error, so all their turns share it.
    links = [0.0, *(apart(*both) / turns.get(both, 1) for both in pairwise(olds))]
    for at in range(1, len(own)):
        if machines[at] not in machines[max(0, at - TREND.machine_runs) : at]:
            links[at] += TREND.machine_sd**2
    return Series(
        nodeid=nodeid,
        metric=metric,
        session_sd=session_sd,
        runs=tuple(run for run, _ in own),
        ratios=[test.ratios[metric][0] + offsets[test.old] for _, test in own],
        errors=[test.ratios[metric][1] for _, test in own],
        links=links,
        old=olds[0],
        far=apart(olds[0], olds[-1]),
        unlinked=tuple(both for both in pairwise(dict.fromkeys(olds)) if apart(*both) == _UNKNOWN_LINK),
        others=others,
    )


def _ties_of(metric: str, own: Compared, also: Compared, session_sd: float) -> tuple[Ties, dict[tuple[str, str], int]]:
    """Returns all measured ratios of two codes, and how often runs change from one old code to another.

    Changes that are rarer than `TREND.turns` are left out.
    """
    ties: Ties = defaultdict(lambda: defaultdict(list))
    turns: Ties = defaultdict(lambda: defaultdict(list))
    for run, test in (*own, *also):
        ratio, error, _ = test.ratios[metric]
        _tie(ties, test.old, run.tree, ratio, (error * (_LUCK if test.stored else 1)) ** 2 + session_sd**2)
    for (_, one), (_, other) in pairwise(own):
        if one.old != other.old:
            (ratio, error, _), (next_ratio, next_error, _) = one.ratios[metric], other.ratios[metric]
            _tie(turns, one.old, other.old, ratio - next_ratio, error**2 + next_error**2 + 2 * session_sd**2)
    # Machines with own baselines alternate. If they do so often, a step between two runs hardly matters.
    often = {(one, other): len(turns[one][other]) for one in turns for other in turns[one]}
    often = {both: count for both, count in often.items() if count >= TREND.turns}
    for (old, new), count in often.items():
        if old < new:
            changes, variances = zip(*turns[old][new], strict=True)
            _tie(ties, old, new, median(changes), 3 * fmean(variances) / count)  # neighbours share runs
    return ties, often


def _tie(ties: Ties, one: str, other: str, change: float, variance: float) -> None:
    ties[one][other].append((change, variance))
    ties[other][one].append((-change, variance))


def _joined(ties: Ties, olds: dict[str, None]) -> tuple[dict[str, float], Callable[[str, str], float]]:
    """Returns each old code's log ratio to the first, and a function for the variance of two old codes' ratio.

    The most certain ratios in `ties` form a tree (Prim's algorithm).
    """
    # Two successive old codes without a measured ratio count as equal, but this is very uncertain.
    for both in pairwise(olds):
        _tie(ties, *both, 0.0, 100 * _UNKNOWN_LINK)
    first = next(iter(olds))
    offsets, ahead = dict[str, float](), [(0.0, first, first, 0.0)]
    above = dict[str, tuple[str, float]]()  # each code's parent in the tree, and the variance between both
    while ahead:
        variance, code, parent, change = heappop(ahead)
        if code in offsets:
            continue
        offsets[code], above[code] = offsets.get(parent, 0.0) + change, (parent, variance)
        for following, seen in ties[code].items():
            # Code that was compared with only one old code does not connect two old codes.
            if following not in offsets and (following in olds or len(ties[following]) > 1):
                changes, variances = zip(*seen, strict=True)
                weights = [1 / each for each in variances]
                heappush(ahead, (1 / sum(weights), following, code, fmean(changes, weights)))
    places = {code: place for place, code in enumerate(offsets)}

    def apart(one: str, other: str) -> float:
        total = 0.0
        while one != other:
            one, other = sorted((one, other), key=places.__getitem__)
            other, variance = above[other]  # the one that joined later goes up
            total += variance
        return min(_UNKNOWN_LINK, total)

    return offsets, apart


# --- Trends


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A series with its steps and its noise (`course`)."""

    series: Series
    course: Course
    total: tuple[float, float]
    """Log ratio and standard error of the change since the first old code, or since a given commit or day."""
    begun: int
    """Number of the first run that reports show."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for step in self.course.steps if step.at >= self.begun)

    @property
    def sure_loss(self) -> float:
        """The share by which the metric became worse at least, with 95 %. Below 0 if it may be better."""
        change, error = self.total
        return as_share(METRICS[self.series.metric].worse_sign * change - SURE * error)

    @property
    def is_known(self) -> bool:
        """Whether `total` is known. Its error is at least 1 if no runs connect two of the old codes."""
        return self.total[1] < 1


def trends_of(
    paths: Sequence[Path],
    *,
    name: str = "",
    metric: str | None = None,
    since: str | None = None,
    now: Run | None = None,
    source: Source | None = None,
) -> tuple[list[Trend], list[str], list[str]]:
    """Returns the trend of each test and metric, sentences about runs left out, and tests with an unknown change.

    Only tests whose id contains `name` count. `since` is a commit, a name for a commit, or a day. If there is a run
    `now`, changes end with this run alone. Raises RecordError if a file cannot be read. Raises PlanError if `since` is
    neither a commit nor a day, or if no result has this test and metric.
    """
    every, said = read(paths)
    repository = find_repository(Path.cwd() if source is None else source.rootdir)
    listed = None if repository is None else repository.answers("rev-list", "--first-parent", "--reverse", "HEAD")
    places = {commit: place for place, commit in enumerate((listed or "").split())}
    clean = [run for run in every if not run.dirty and run != now]
    runs = sorted((run for run in clean if run.commit in places), key=lambda run: (places[run.commit], run.at)) or clean
    shown = set(map(id, runs))
    if beside := [run for run in every if id(run) not in shown and run != now]:
        said.append(f"{format_count(len(beside), 'run')} of uncommitted code or other branches left out")
    runs += [now] if now is not None else []
    found = [
        series
        for series in series_of(runs, beside)
        if name.lower() in series.nodeid.lower() and metric in (None, series.metric)
    ]
    if (name or metric) and runs and not found:
        known = sorted({test for run in runs for test in run.tests})
        raise PlanError(f"no result in this history has this test and metric. Its tests are {format_names(known)}")
    trees, is_later = None, None
    if since is not None:
        trees, is_later = _since(since, repository, places, source, paths[0].parent)
    trends, unknown = [], dict[str, None]()
    for series, course in zip(found, courses_of(found), strict=True):
        later = (at for at, run in enumerate(series.runs) if is_later is None or run is now or is_later(run))
        begun = next(later, len(series.runs))
        is_since_old = trees is None or series.old in trees
        total = series.change_since(begun, course, is_since_old=is_since_old, is_last_alone=series.runs[-1] is now)
        if total is None:
            said.append(f"{series.nodeid}: {series.metric} has no run before {since}, or none after it")
        else:
            trends.append(Trend(series=series, course=course, total=total, begun=begun))
            if series.others:
                others = format_count(series.others, "run")
                said.append(f"{series.nodeid}: {others} left out for {series.metric}: their load or request differs")
            if series.unlinked:
                renewed = "no run compared its renewed baseline with the one before"
                said.append(f"{series.nodeid}: {renewed}. `--link` measures the change")
        if total is None or not trends[-1].is_known:
            unknown[series.nodeid] = None
    return trends, list(dict.fromkeys(said)), list(unknown)


def _since(
    since: str, repository: Repository | None, places: Mapping[str, int], source: Source | None, beside: Path
) -> tuple[set[str], Callable[[Run], bool]]:
    """Returns the hashes that the tree of `since` may have, and a function that says whether a run is later.

    If `since` is a day, there are no hashes.
    """
    words = ("rev-parse", "--verify", "--quiet", f"{since}^{{commit}}")
    commit = None if repository is None else repository.answers(*words)
    if commit is None or repository is None:
        try:
            day = datetime.fromisoformat(since).astimezone(UTC)
        except ValueError:
            raise PlanError(f"--since={since} is neither a commit nor a day such as 2026-11-20") from None
        return set(), lambda run: run.time >= day
    if source is None:
        from pytest_fileperf.versions.source import Source  # loads much, and few ask for it

        # A tree's hash leaves the baselines' directory out, which may be either of two here.
        with Source(Path.cwd(), Path(".fileperf")) as usual, Source(Path.cwd(), beside) as other:
            trees = {usual.tree_of(commit)[:12], other.tree_of(commit)[:12]}
    else:
        trees = {source.tree_of(commit)[:12]}
    made, known = datetime.fromisoformat(repository.ask("show", "-s", "--format=%cI", commit)), places.keys()
    return trees, lambda run: places[run.commit] > places[commit] if {run.commit, commit} <= known else run.time > made
