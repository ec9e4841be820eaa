r"""The history of a project: a file with a line of JSON for each run, and series made from it.

    {"v":1,"id":"9b1f…","at":"2026-11-25T09:41:16+00:00","tree":"31af9e75bb0b","machine":"linux-x86_64-2-cpython3.11-359d",
     "packages":"91ac02d7","tests":{"test_api.py::test_upload":{"old":"e712d514755b","work":"c41f09d2","ratios":{"rps":
     [-0.0074,0.0164,6]},"stored":false}},"commit":"3cf8…","dirty":false,"made":"2026-11-25T09:38:26+00:00","branch":"main"}

    id         digest of the line without it: the same line twice is one line
    at, made   when it was measured; when its commit was made
    tree, old  the code here, and the code that it was compared with, as baselines name code
    work       digest of request, server and load: another load is another series

Only comparisons that measured both codes alternately have such ratios. Every outcome is written. Lines without a run,
such as a merge's conflict markers, are skipped with a sentence. The order of lines does not matter. A file that cannot
be read is an error, and never replaced. No host name, path, secret or value of a request is in it.

Others may have written the file, so a line with values of a wrong form is skipped.

History: 1 is the first.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.scratch import locked
from pytest_fileperf.judge.baseline import slow_digest
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Course, Floats, Observed
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
"""With such a reason, something other than the code may have made the ratio."""
_OF_THE_RUN = frozenset({"against", "engine", "pinned", "tracer", "load from"})
"""Keys of an identity that may differ between comparable runs. So may their stabilised properties."""
_SALT = hashlib.sha256(b"pytest-fileperf history").hexdigest()[:32]
_UNKNOWN_LINK = 1.0
"""Variance of a link that nobody has measured: the ratios behind it may be any."""
_LUCK = 2.0
"""A baseline that was stored because it was better was partly lucky. So its link's errors count this many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRatios:
    """The comparison of one test in one run."""

    __test__ = False

    old: str
    work: str
    ratios: Mapping[str, tuple[float, float, int]]
    """By metric: the log ratio of new to old code, its standard error, and the pairs of start-ups."""
    stored: bool = False
    """The code here became the baseline in this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One line. Times are ISO 8601, with their offset from UTC."""

    at: str
    tree: str
    machine: str
    packages: str
    tests: Mapping[str, TestRatios]
    commit: str = ""
    dirty: bool = False
    """Uncommitted code was measured."""
    made: str = ""
    branch: str = ""

    @property
    def time(self) -> datetime:
        """When its code was made: of uncommitted code, when it was measured."""
        return datetime.fromisoformat(self.at if self.dirty or not self.made else self.made)


# --- Lines


def ratios_of(results: Iterable[Result]) -> dict[str, TestRatios]:
    """Returns the comparisons for a history, which measured two known codes alternately."""
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
    """Returns a slow digest of request, load, server and set-up: runs compare only if it is the same."""
    held = {key: value for key, value in identity.items() if key not in _OF_THE_RUN}
    if isinstance(server := held.get("server"), Mapping):
        held["server"] = {key: value for key, value in server.items() if key != "stabilised"}
    return slow_digest(json.dumps(held, sort_keys=True, default=str), _SALT)[-8:]


def line_of(run: Run) -> str:
    """Returns the run as one line, with its end."""
    content = asdict(run)
    return _text({"v": SCHEMA, "id": _id_of(content), **content}) + "\n"


def append(path: Path, run: Run) -> None:
    """Adds a run to the file, wholly or not at all. Raises RecordError if it isn't a history, or isn't writable."""
    line = line_of(run).encode()
    try:
        # A buffer would write its rest when the file is closed.
        with locked(path, within_s=_LOCK_S), path.open("r+b", buffering=0) as file:
            there = file.read()
            if there.strip() and not any(_parsed(own)[0] for own in there.decode("utf-8", "replace").splitlines()):
                raise RecordError(f"{path} isn't a history. Name another file with --fileperf-history=PATH")
            left = memoryview(line if not there or there.endswith(b"\n") else b"\n" + line)
            try:
                while left:
                    left = left[file.write(left) :]
            except OSError:
                file.truncate(len(there))
                raise
    except OSError as error:
        raise RecordError(f"the history {path} cannot be written: {error.strerror or error}. Name another") from error


def read(paths: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """Returns the runs of all files, each once, the oldest code first; and sentences about lines that are left out."""
    found: dict[str, Run] = {}
    said = []
    for path in paths:
        try:
            lines = path.read_bytes().decode("utf-8", "replace").splitlines()
        except FileNotFoundError:
            why = "does not exist. Runs with --fileperf-history write it. Or name another file"
            raise RecordError(f"the history {path} {why}") from None
        except OSError as error:
            raise RecordError(f"the history {path} cannot be read: {error.strerror or error}. Name another") from error
        newer, bad = 0, []
        for number, line in enumerate(lines, 1):
            version, content = _parsed(line)
            if version > SCHEMA:
                newer += 1
            elif (run := _run_of(content)) is not None:
                found[_id_of(content)] = run
            elif line.strip():
                bad.append(number)
        if bad:
            more = "" if len(bad) == 1 else f" and {len(bad) - 1} more"
            said.append(f"{path}: line {bad[0]}{more} left out, because it isn't a run. Maybe a merge left it")
        if newer:
            said.append(f"{path}: {format_count(newer, 'run')} left out. Upgrade pytest-fileperf to read them")
    return sorted(found.values(), key=lambda run: (run.time, run.at)), said


def _parsed(line: str) -> tuple[int, dict[str, Any]]:
    """Returns the version of a line's format, and its content; 0 and nothing for a line without a run."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("tests"), dict) or "id" not in content:
        return 0, {}
    version = content.pop("v", None)
    del content["id"]
    is_known = isinstance(version, int) and not isinstance(version, bool) and version >= 1
    return (version, content) if is_known else (0, {})


def _run_of(content: Mapping[str, Any]) -> Run | None:
    """Returns the run; None if a value has a wrong form."""
    try:
        tests = {}
        for nodeid, own in content["tests"].items():
            ratios = {name: tuple(value) for name, value in own["ratios"].items() if name in METRICS}
            tests[nodeid] = TestRatios(**{**own, "ratios": ratios})
        run = Run(**{**content, "tests": tests})
        figures = [figures for test in tests.values() for figures in test.ratios.values()]
        fits = (
            all(abs(ratio) < _MOST and 0 < error < _MOST and pairs >= 0 for ratio, error, pairs in figures)
            and isinstance(content.get("dirty", False), bool)
            and all(datetime.fromisoformat(text).tzinfo for text in (run.at, run.made or run.at))
            and all(_TREE.fullmatch(code) for code in (run.tree, *(test.old for test in tests.values())))
            and _COMMIT.fullmatch(run.commit)
            # A test's name goes to pytest and to terminals.
            and "".join((run.machine, run.branch, *tests, *(test.work for test in tests.values()))).isprintable()
            and not any(nodeid.startswith("-") for nodeid in tests)
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    return run if fits else None


def _id_of(content: Mapping[str, object]) -> str:
    return hashlib.sha256(_text(content).encode()).hexdigest()[:16]


def _text(content: Mapping[str, object]) -> str:
    return json.dumps(content, ensure_ascii=True, separators=(",", ":"))


# --- Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Series(Observed):
    """One metric of one test over all runs that made the same load, the oldest code first."""

    nodeid: str
    metric: str
    runs: tuple[Run, ...]
    olds: tuple[str, ...]
    """The old code of each run. All ratios are to the first old code: links convert the others."""
    far: float
    """Variance of the links between the first old code and the last."""
    unlinked: tuple[tuple[str, str], ...]
    """Pairs of successive old codes that no runs link."""
    others: int
    """Runs of the same test that made another load."""

    def change_since(
        self, begun: int, tree: str, course: Course, *, of_last_run: bool = False
    ) -> tuple[float, float] | None:
        """Returns the change from runs before run `begun` to runs since then, or to the last run. None without runs.

        It is a log ratio with its standard error. If the first old code is this `tree`, the change is since that code.
        """
        if begun >= len(self.runs):
            return None
        now, error = course.level(begun, len(self.runs))
        if of_last_run:
            now, error = self.ratios[-1], math.hypot(self.errors[-1], self.session_sd)
        if tree and tree == self.olds[0]:
            return now, math.hypot(error, math.sqrt(self.far))
        if begun == 0:
            return None
        before, error_before = course.level(0, begun)
        return now - before, math.hypot(error, error_before, math.sqrt(sum(self.links[begun:])))


def series_of(runs: Sequence[Run], links: Sequence[Run] = ()) -> list[Series]:
    """Returns the series of each test and metric. Only runs with a test's most frequent recent load count.

    `links` are more runs, which only show how much two old versions differ.
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
    def of_test(some: Sequence[Run]) -> list[tuple[Run, TestRatios]]:
        return [(run, run.tests[nodeid]) for run in some if metric in run.tests.get(nodeid, _NOTHING).ratios]

    every = of_test(runs)
    own = [(run, test) for run, test in every if test.work == work]
    olds = [test.old for _, test in own]
    session_sd = TREND.session_sd if METRICS[metric].percentile is None else TREND.tail_session_sd
    beside = [(run, test) for run, test in of_test(links) if test.work == work]
    turns = _turns(metric, [test for _, test in own], session_sd)
    places, offsets, spread = _linked(metric, [*own, *beside], session_sd, turns)

    def apart(old: str, new: str) -> float:
        """Returns the variance of the link between two old codes."""
        one, other = places[old], places[new]
        return max(0.0, min(_UNKNOWN_LINK, float(spread[one, one] + spread[other, other] - 2 * spread[one, other])))

    # Machines that take turns come back to a link with the same error, so all their turns share it.
    variances = [0.0, *(apart(*both) / (len(turns[both]) if both in turns else 1) for both in pairwise(olds))]
    for at, (run, _) in enumerate(own):
        if at and all(run.machine != before.machine for before, _ in own[max(0, at - TREND.machine_runs) : at]):
            variances[at] += TREND.machine_sd**2
    return Series(
        nodeid=nodeid,
        metric=metric,
        session_sd=session_sd,
        runs=tuple(run for run, _ in own),
        ratios=tuple(test.ratios[metric][0] + float(offsets[places[test.old]]) for _, test in own),
        errors=tuple(test.ratios[metric][1] for _, test in own),
        links=tuple(variances),
        olds=tuple(olds),
        far=apart(olds[0], olds[-1]),
        unlinked=tuple(both for both in pairwise(dict.fromkeys(olds)) if apart(*both) == _UNKNOWN_LINK),
        others=len(every) - len(own),
    )


def _turns(
    metric: str, tests: Sequence[TestRatios], session_sd: float
) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Returns how runs differ from their neighbours with another old code, as machines with own baselines make them.

    By both old codes, in either order; only if that happened often: then a step between two runs hardly matters.
    """
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one, other in pairwise(tests):
        if one.old != other.old:
            (ratio, error, _), (next_ratio, next_error, _) = one.ratios[metric], other.ratios[metric]
            variance = error**2 + next_error**2 + 2 * session_sd**2
            found.setdefault((one.old, other.old), []).append((ratio - next_ratio, variance))
            found.setdefault((other.old, one.old), []).append((next_ratio - ratio, variance))
    return {both: turns for both, turns in found.items() if len(turns) >= TREND.turns}


def _linked(
    metric: str,
    measured: Sequence[tuple[Run, TestRatios]],
    session_sd: float,
    turns: Mapping[tuple[str, str], Sequence[tuple[float, float]]],
) -> tuple[dict[str, int], Floats, Floats]:
    """Returns places of codes, and by these their log ratios to the first old code, with covariances.

    Weighted least squares over all runs. A tie with hardly any weight stands for a link that nobody has measured.
    """
    ties = []
    for run, test in measured:
        ratio, stated, _ = test.ratios[metric]
        ties.append((test.old, run.tree, ratio, (stated * (_LUCK if test.stored else 1)) ** 2 + session_sd**2))
    for (old, new), own in turns.items():
        if old < new:
            # A median, of differences that share runs.
            variance = 3 * fmean(variance for _, variance in own) / len(own)
            ties.append((old, new, median(ratio for ratio, _ in own), variance))
    olds = dict.fromkeys(test.old for _, test in measured)
    ties += [(old, new, 0.0, 100 * _UNKNOWN_LINK) for old, new in pairwise(olds)]
    beside: dict[str, set[str]] = {}
    for old, new, *_ in ties:
        beside.setdefault(new, set()).add(old)
    # Code that was compared with one other only tells nothing about old codes.
    ties = [tie for tie in ties if tie[1] in olds or len(beside[tie[1]]) > 1]
    places = {code: at for at, code in enumerate(dict.fromkeys((*olds, *(new for _, new, *_ in ties))))}
    normal, moment = np.zeros((len(places),) * 2), np.zeros(len(places))
    for old, new, ratio, variance in ties:
        for one, other, sign in ((places[old], places[new], -1), (places[new], places[old], 1)):
            normal[one, one] += 1 / variance
            normal[one, other] -= 1 / variance
            moment[one] += sign * ratio / variance
    spread = np.zeros_like(normal)
    spread[1:, 1:] = np.linalg.inv(normal[1:, 1:])
    return places, spread @ moment, spread


_NOTHING = TestRatios(old="", work="", ratios={})
