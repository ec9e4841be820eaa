"""Finds steps and slow changes in a series of log ratios. `judge/history.py` makes the series from a file.

Steps
    All runs are divided into segments, each with one mean. The cheapest division wins: runs cost more the farther they
    are from their mean, and each further segment costs a penalty. Runs with smaller errors weigh more. A run may be
    compared with other old code than the run before. Then the mean may move as far as the ratio of both old codes (the
    link) is uncertain. So a renewed baseline isn't a step.
    Source: optimal partitioning (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE
    Signal Processing Letters 12 (2005) 105-108), with a local level model in each segment.
Slow changes
    A straight line between two means, if it fits the runs clearly better than one step or several.
Noise
    Neighbouring runs show how much runs differ beyond their stated errors (Birge's ratio).

`benchmarks/trend.py` prints the rates of false alarms, and the number of runs after which a step is found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.rules import TREND

Floats = NDArray[np.float64]
_PLACE = 2.7055
"""A step's 90 % interval has all places that cost at most this much more than the best one (chi squared)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of the mean in a series of runs. Changes are log ratios: -0.05 is about 5 % less."""

    at: int
    """Number of the first run after the step. For a slow change, the number of its first run."""
    earliest: int
    latest: int
    """`earliest` and `latest` are the 90 % interval of `at`. For a slow change, they are its first and its last run."""
    change: float
    error: float
    """Standard error of `change`."""
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A series of runs, in the order of their code."""

    ratios: Sequence[float]
    """For each run: the log ratio of its new code to the first run's old code."""
    errors: Sequence[float]
    """Standard errors of `ratios`, as each run states them."""
    links: Sequence[float]
    """For each run: the variance of the log ratio between its old code and the previous run's old code. 0 if both are
    the same. A new kind of machine adds to it."""
    session_sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The steps and the noise of a series."""

    steps: tuple[Step, ...]
    levels: tuple[float, ...]
    """The mean at each run, as a log ratio to the first run's old code."""
    noise: float
    """How much the ratio of a single run deviates by chance: a standard deviation, as a log ratio."""
    begins: tuple[int, ...]
    """Run 0, and the first run after each step."""
    judged: tuple[Floats, Floats, Floats]
    """Ratios, variances and links of all runs. Outliers are moved towards the ratios around them."""

    def level(self, begun: int, end: int) -> tuple[float, float]:
        """Returns the mean log ratio just before run `end`, and its standard error.

        Only runs count that come after `begun` and after the last step.
        """
        first = max(begun, *(each for each in self.begins if each < end))
        _, levels, variances = _filtered(*(each[first:end] for each in self.judged))
        return float(levels[-1]), math.sqrt(variances[-1])

    def runs_to_show(self, change: float) -> int | None:
        """Returns how many runs must follow a step by this log ratio to show it in 8 of 10 cases.

        None if over 100.
        """
        before = len(self.levels) - self.begins[-1]
        needed = (TREND.penalty**0.5 + 0.84) ** 2 * (self.noise / change) ** 2
        after = math.inf if before <= needed else needed * before / (before - needed)
        return None if after > 100 else max(TREND.least, math.ceil(after))


def courses_of(every: Sequence[Observed]) -> list[Course]:
    judged = [_judged(one) for one in every]
    # Rows are series. Short ones have ones at their ends, which change no earlier division.
    rows = np.ones((3, len(every), max((len(one.ratios) for one in every), default=0)))
    for row, own in enumerate(judged):
        rows[:, row, : len(own[0])] = own
    backs = partition(*rows)
    return [_course(*own, _begins(back[: len(own[0]) + 1])) for own, back in zip(judged, backs, strict=True)]


def _judged(one: Observed) -> tuple[Floats, Floats, Floats]:
    """Returns a series' ratios, variances and links. Outliers are moved towards the median of the ratios around them.

    If neighbouring runs differ by more than their errors say, all variances and links grow.
    """
    y, link = np.array(one.ratios, float), np.array(one.links, float)
    v = np.array(one.errors, float) ** 2 + one.session_sd**2
    # A median, because steps should not count; 0.4549 is the median of chi squared.
    squares = np.diff(y) ** 2 / (v[1:] + v[:-1] + link[1:]) / 0.4549
    seen = len(squares) * float(np.median(squares)) if squares.size else 0.0
    scale = max(1.0, (TREND.prior_runs + seen) / (TREND.prior_runs + len(squares)))
    beside, values = TREND.window // 2, [float(value) for value in one.ratios]
    middle = np.array([median(values[max(0, at - beside) : at + beside + 1]) for at in range(len(values))])
    most = TREND.clip * np.sqrt(scale * v)
    return middle + np.clip(y - middle, -most, most), scale * v, scale * link


def partition(y: Floats, v: Floats, link: Floats) -> NDArray[np.int64]:
    """Divides each series (row) into the cheapest segments, each with one mean.

    `y` has the ratios, `v` their variances, and `link` the variance by which the mean may move before a run. Column k
    of the result is for a series' first k runs. It has the first run of their last segment.
    """
    y, v, link = y.T, v.T, link.T
    n, rows = y.shape
    best, back = np.full((n + 1, rows), np.inf), np.zeros((n + 1, rows), np.int64)
    best[0] = 0
    level, sure, cost = np.zeros((3, n, rows))  # of the segments that begin at each run; `sure` is the mean's variance
    # A run costs its squared distance from its segment's mean so far, over this distance's variance.
    for at in range(n):
        means, variances = level[:at], sure[:at]
        if link[at].any():
            variances += link[at]
        total, off = variances + v[at], y[at] - means
        gain = variances / total
        means += gain * off
        variances[:] = gain * v[at]
        off *= off
        off /= total
        cost[:at] += off
        level[at], sure[at], cost[at] = y[at], v[at], best[at] + TREND.penalty * (at > 0)
        if at + 1 >= TREND.least:
            whole = cost[: at + 2 - TREND.least]
            back[at + 1] = whole.argmin(0)
            best[at + 1] = whole.min(0)
    return back.T


def _begins(back: NDArray[np.int64]) -> tuple[int, ...]:
    """Returns the first run of each segment. `back` is a series' row in the result of `partition`."""
    found = [int(back[-1])] if len(back) > TREND.first else [0]
    while found[0]:
        found.insert(0, int(back[found[0]]))
    return tuple(found)


def _course(y: Floats, v: Floats, link: Floats, begins: tuple[int, ...]) -> Course:
    ends = (*begins, len(y))

    def part(first: int, last: int) -> _Segment:
        runs = slice(ends[first], ends[last])
        return _Segment(y[runs], v[runs], link[runs])

    segments = [part(place, place + 1) for place in range(len(begins))]
    jumps = []
    for place, (before, after) in enumerate(pairwise(segments)):
        begun, at = ends[place : place + 2]
        earliest, latest = part(place, place + 2).places(at - begun)
        error = math.sqrt(before.variances[-1] + after.variances[0] + link[at])
        change = float(after.levels[0] - before.levels[-1])
        jumps.append(Step(at=at, earliest=begun + earliest, latest=begun + latest, change=change, error=error))
    steps, place = [], 0
    while place < len(jumps):
        step = None
        # First tries to explain all further steps by one slow change, then fewer and fewer of them.
        for last in range(len(jumps) - 1, place - 1, -1):
            costs = sum(segment.cost for segment in segments[place : last + 2])
            if step := part(place, last + 2).slow_change(begins[place], jumps[place].at, jumps[last].at, costs):
                break
        steps.append(step or jumps[place])
        place = last + 1
    return Course(
        steps=tuple(steps),
        levels=tuple(float(level) for segment in segments for level in segment.levels),
        noise=math.sqrt(float(np.median(v))),
        begins=begins,
        judged=(y, v, link),
    )


class _Segment:
    """The runs between two steps. `levels` has the mean at each run, and `variances` how uncertain these means are.

    The mean moves only before a run with other old code. `link` is the variance of this move.
    """

    def __init__(self, y: Floats, v: Floats, link: Floats) -> None:
        self._runs = y, v, link
        self._ahead, ahead, sure = _filtered(y, v, link)
        moves = np.append(link[1:], 0.0)
        self._behind, back, back_sure = (one[::-1] for one in _filtered(y[::-1], v[::-1], moves[::-1]))
        # Later runs improve the estimate of each mean, except the last mean.
        weight = np.append(1 / (back_sure[1:] + link[1:]), 0.0)
        self.variances = 1 / (1 / sure + weight)
        self.levels = self.variances * (ahead / sure + weight * np.append(back[1:], 0.0))
        self.cost = float(self._ahead[-1])

    def slow_change(self, begun: int, first: int, last: int, costs: float) -> Step | None:
        """Returns a slow change: a straight line between two means.

        None if it does not fit clearly better than steps, whose misfit is `costs`. The line begins at the run `first`
        or before, and ends at `last` or later. `begun` is the segment's first run.
        """
        y, v, link = self._runs
        first, last = first - begun, last - begun
        begins = np.arange(max(1, first - TREND.slow_runs), first + 1)
        ends = np.arange(max(last, first + TREND.slow_least - 1), min(len(y) - 1, last + TREND.slow_runs) + 1)
        # Not if it is uncertain how the runs' old codes differ.
        if link[1:].sum() > 0.25 * v.min() or not begins.size * ends.size:
            return None
        begin, end = (grid.reshape(-1, 1) for grid in np.meshgrid(begins, ends))
        share = np.clip((np.arange(len(y)) - begin + 1) / (end - begin + 1), 0, 1)
        lines = np.stack((np.ones_like(share), share), axis=1)  # least squares: a mean, and a change
        normal, moment = lines / v @ lines.transpose(0, 2, 1), lines @ (y / v)
        found = np.linalg.solve(normal, moment[..., None])[..., 0]
        whole = (y * y / v).sum() - (found * moment).sum(1)
        best = int(whole.argmin())
        if whole[best] > costs - TREND.slow_gain:
            return None
        at, error = begun + int(begin[best, 0]), math.sqrt(np.linalg.inv(normal[best])[1, 1])
        latest = begun + int(end[best, 0])
        return Step(at=at, earliest=at, latest=latest, change=float(found[best, 1]), error=error, is_slow=True)

    def places(self, best: int) -> tuple[int, int]:
        """Returns the first and the last run at which a step fits nearly as well as at `best`, where it fits best."""
        places = np.arange(TREND.least, len(self._ahead) - TREND.least + 1)
        whole = self._ahead[places - 1] + self._behind[places]
        near = places[whole <= whole.min() + _PLACE]
        return min(best, int(near[0])), max(best, int(near[-1]))


def _filtered(y: Floats, v: Floats, link: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns for each run: the cost of all runs so far, their mean, and the mean's variance (a Kalman filter)."""
    found = [(0.0, float(y[0]), float(v[0]))]
    for value, variance, moved in zip(y[1:].tolist(), v[1:].tolist(), link[1:].tolist(), strict=True):
        cost, level, sure = found[-1]
        total, off = sure + moved + variance, value - level
        gain = (sure + moved) / total
        found.append((cost + off * off / total, level + gain * off, gain * variance))
    costs, levels, variances = np.array(found).T
    return costs, levels, variances
