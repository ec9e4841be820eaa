"""Finds steps and slow changes in a history of log ratios.

Each run measured old and new code alternately. So its ratio does not depend on the machine, and its error is known.

Steps
    The cheapest division of all runs into segments, each with one mean. Each further segment costs a penalty. Runs
    weigh by their errors. If the old code of the comparisons changes, the mean may move as far as the link between both
    codes is uncertain, because a renewed baseline is not a step. The result is exact, and the same each time.
    Source: optimal partitioning (Jackson et al., "An algorithm for optimal partitioning of data on an interval", IEEE
    Signal Processing Letters 12 (2005) 105-108), with a local level model in each segment.
Slow changes
    One step, or several of one sign in a row, become a slow change if a straight line between both means fits the runs
    clearly better.
Noise
    Sessions differ by more than they state (`session_sd`), and neighbours tell how much (Birge's ratio). An odd run is
    drawn towards the median of the runs around it.

`benchmarks/trend.py` has its rates of false alarms, and the number of runs after which it finds a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.judge.rules import TREND

Floats = NDArray[np.float64]
_PLACE = 2.7055
"""The 90 % interval has all places that cost at most this much more than the best (chi squared, one degree)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change of the mean. Changes are log ratios: -0.05 is about 5 % less."""

    at: int
    """The first run after it. For a slow change, the first run that has a part of it."""
    earliest: int
    latest: int
    """The 90 % interval of `at`. For a slow change, its first and its last run."""
    change: float
    error: float
    """Standard error of `change`."""
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The steps and the noise of a series."""

    steps: tuple[Step, ...]
    levels: tuple[float, ...]
    """The mean at each run, as a log ratio to the first run's old code."""
    noise: float
    """Standard deviation of one run, as a log ratio."""
    begins: tuple[int, ...]
    """The first run after each step, and run 0."""
    judged: tuple[Floats, Floats, Floats]
    """Ratios, variances and links, with odd runs drawn to the others."""

    def level(self, begun: int, end: int) -> tuple[float, float]:
        """Returns the mean log ratio before `end`, by runs since `begun` and the last step, and its standard error."""
        first = max(begun, *(each for each in self.begins if each < end))
        _, levels, variances = _filtered(*(each[first:end] for each in self.judged))
        return float(levels[-1]), math.sqrt(variances[-1])

    def runs_to_show(self, change: float) -> int | None:
        """Returns after how many runs a step of this log ratio shows in 8 of 10 cases. None means over 100."""
        begun = max((step.at for step in self.steps), default=0)
        before, needed = len(self.levels) - begun, (math.sqrt(TREND.penalty) + 0.84) ** 2 * (self.noise / change) ** 2
        after = math.inf if before <= needed else needed * before / (before - needed)
        return None if after > 100 else max(TREND.least, math.ceil(after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A series of runs in their order."""

    ratios: Sequence[float]
    """Log ratios of new code over the first run's old code."""
    errors: Sequence[float]
    """Their standard errors, as each run states them."""
    links: Sequence[float]
    """Variances of the link that ends before each run: 0 if the old code stays the same."""
    session_sd: float


def courses_of(every: Sequence[Observed]) -> list[Course]:
    found: dict[int, Course] = {}
    by_length: dict[int, list[int]] = {}
    for at, one in enumerate(every):
        by_length.setdefault(len(one.ratios), []).append(at)
    for length, places in by_length.items():
        own = [every[at] for at in places]
        y, errors, link = (
            np.array([getattr(one, name) for one in own], float) for name in ("ratios", "errors", "links")
        )
        v = errors**2 + np.array([[one.session_sd**2] for one in own])
        scale = scale_of(y, v, link)
        z = clipped(y, np.sqrt(v * scale[:, None]))
        back = np.zeros((len(own), 1), np.int64)
        if length >= TREND.first:
            back = partition(z, v, link, TREND.penalty * scale)
        for row, at in enumerate(places):
            found[at] = _course(z[row], v[row] * scale[row], link[row], [0, *points(back[row])])
    return [found[at] for at in range(len(every))]


def _course(y: Floats, v: Floats, link: Floats, begins: Sequence[int]) -> Course:
    """Returns the course of runs with these steps. `begins` are the first run, and the first one after each step."""
    ends = (*begins, len(y))

    def part(first: int, last: int) -> _Segment:
        """Returns the runs between two of these steps as one segment."""
        runs = slice(ends[first], ends[last])
        return _Segment(y[runs], v[runs], link[runs])

    segments = [part(place, place + 1) for place in range(len(begins))]
    steps = []
    for place, (before, after) in enumerate(pairwise(segments)):
        begun, at = ends[place : place + 2]
        earliest, latest = part(place, place + 2).places(at - begun)
        error = math.sqrt(before.variances[-1] + after.variances[0] + link[at])
        change = float(after.levels[0] - before.levels[-1])
        steps.append(Step(at=at, earliest=begun + earliest, latest=begun + latest, change=change, error=error))
    return Course(
        steps=tuple(_with_slow_changes(steps, begins, part)),
        levels=tuple(float(level) for segment in segments for level in segment.levels),
        noise=math.sqrt(float(np.median(v))),
        begins=tuple(begins),
        judged=(y, v, link),
    )


def _with_slow_changes(
    steps: Sequence[Step], begins: Sequence[int], part: Callable[[int, int], _Segment]
) -> Iterator[Step]:
    """Yields the steps. A slow change replaces the steps that it explains, as many as it can."""
    at = 0
    while at < len(steps):
        last = at
        while (
            last + 1 < len(steps)
            and steps[last + 1].change * steps[at].change > 0
            and steps[last + 1].at - steps[last].at <= TREND.slow_runs
        ):
            last += 1
        found, begun = steps[at], begins[at]
        for end in range(last, at - 1, -1):
            slow = part(at, end + 2).slow_change(steps[at].at - begun, steps[end].at - begun)
            cost = sum(part(place, place + 1).cost for place in range(at, end + 2))
            if slow is not None and slow[0] <= cost - TREND.slow_gain:
                _, first, final, change, error = slow
                first, final = first + begun, final + begun
                found = Step(at=first, earliest=first, latest=final, change=change, error=error, is_slow=True)
                break
        yield found
        at = end + 1


# --- The detector; rows are series of the same length


def scale_of(y: Floats, v: Floats, link: Floats) -> Floats:
    """Returns how much more neighbours differ than their variances say, at least 1; steps do not enter (a median)."""
    pairs = y.shape[1] - 1
    if pairs < 1:
        return np.ones(len(y))
    squares = np.diff(y) ** 2 / (v[:, 1:] + v[:, :-1] + link[:, 1:])
    seen = np.median(squares, axis=1) / 0.4549  # the median of chi squared
    scale: Floats = np.maximum(1.0, (TREND.prior_runs + pairs * seen) / (TREND.prior_runs + pairs))
    return scale


def clipped(y: Floats, sd: Floats) -> Floats:
    """Draws odd runs towards the median of the runs around them. A step of four runs stays."""
    around = np.pad(y, ((0, 0), (TREND.window // 2,) * 2), constant_values=np.nan)
    middle = np.nanmedian(np.lib.stride_tricks.sliding_window_view(around, TREND.window, axis=1), axis=2)
    return middle + np.clip(y - middle, -TREND.clip * sd, TREND.clip * sd)


def partition(y: Floats, v: Floats, link: Floats, penalty: Floats) -> NDArray[np.int64]:
    """Returns the beginning of the cheapest division's last segment, for each end. It takes n² / 2 updates.

    A segment costs the squared innovations of its mean, in its variances.
    """
    rows, n = y.shape
    best, back = np.full((rows, n + 1), np.inf), np.zeros((rows, n + 1), np.int64)
    best[:, 0] = 0
    level, sure, cost = np.zeros((3, rows, n))  # of the segments that begin at each run; `sure` is the mean's variance
    for j in range(n):
        sure[:, :j] += link[:, j : j + 1]
        total, off = sure[:, :j] + v[:, j : j + 1], y[:, j : j + 1] - level[:, :j]
        cost[:, :j] += off**2 / total
        level[:, :j] += sure[:, :j] / total * off
        sure[:, :j] *= 1 - sure[:, :j] / total
        level[:, j], sure[:, j] = y[:, j], v[:, j]
        if (k := j + 2 - TREND.least) > 0:
            whole = best[:, :k] + cost[:, :k] + np.where(np.arange(k) > 0, np.reshape(penalty, (-1, 1)), 0)
            back[:, j + 1], best[:, j + 1] = whole.argmin(1), whole.min(1)
    return back


def points(back: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """Returns the first run of each segment but the first, in the cheapest division of all runs."""
    found: list[int] = []
    end = len(back) - 1
    while (end := int(back[end])) > 0:
        found.insert(0, end)
    return found


class _Segment:
    """Runs between two steps: their `levels`, which only links move, with the `variances` of these."""

    def __init__(self, y: Floats, v: Floats, link: Floats) -> None:
        self._runs = y, v, link
        self._ahead, ahead, sure = _filtered(y, v, link)
        moves = np.append(link[1:], 0.0)
        costs, back, back_sure = (one[::-1] for one in _filtered(y[::-1], v[::-1], moves[::-1]))
        self._behind = costs
        # Later runs add to the estimate of each mean, except the last.
        later = np.append(back[1:], 0.0)
        weight = np.append(1 / (back_sure[1:] + link[1:]), 0.0)
        self.variances = 1 / (1 / sure + weight)
        self.levels = self.variances * (ahead / sure + weight * later)

    @property
    def cost(self) -> float:
        return float(self._ahead[-1])

    def slow_change(self, first: int, last: int) -> tuple[float, int, int, float, float] | None:
        """Returns a straight line between two means: its cost, first and last run, change and the change's error.

        It begins at `first` or some runs before, and ends at `last` or some runs later. None if links matter.
        """
        y, v, link = self._runs
        if link[1:].sum() > 0.25 * v.min():
            return None
        begins = np.arange(max(1, first - TREND.slow_runs), first + 1)
        ends = np.arange(max(last, first + TREND.slow_least - 1), min(len(y) - 1, last + TREND.slow_runs) + 1)
        begin, end = (one.reshape(-1, 1) for one in np.meshgrid(begins, ends))
        if not begin.size:
            return None
        new = np.clip((np.arange(len(y)) - begin + 1) / (end - begin + 1), 0, 1)
        old = 1 - new
        # Least squares with two weights, in closed form.
        a, b, c = ((one * other / v).sum(1) for one, other in ((old, old), (old, new), (new, new)))
        d, e, whole = (old * y / v).sum(1), (new * y / v).sum(1), float((y * y / v).sum())
        determinant = a * c - b * b
        levels = (c * d - b * e) / determinant, (a * e - b * d) / determinant
        costs = whole - levels[0] * d - levels[1] * e
        best = int(costs.argmin())
        error = math.sqrt(float((a + 2 * b + c)[best] / determinant[best]))
        change = float(levels[1][best] - levels[0][best])
        return float(costs[best]), int(begin[best, 0]), int(end[best, 0]), change, error

    def places(self, best: int) -> tuple[int, int]:
        """Returns the first and the last place at which a division costs little more than the best one."""
        places = np.arange(TREND.least, len(self._ahead) - TREND.least + 1)
        whole = self._ahead[places - 1] + self._behind[places]
        near = places[whole <= whole.min() + _PLACE]
        return min(best, int(near[0])), max(best, int(near[-1]))


def _filtered(y: Floats, v: Floats, link: Floats) -> tuple[Floats, Floats, Floats]:
    """Returns the cost of the runs up to each run, and their mean with its variance (a Kalman filter)."""
    costs, levels, variances = np.zeros(len(y)), np.array(y), np.array(v)
    for at in range(1, len(y)):
        sure = variances[at - 1] + link[at]
        total, off = sure + v[at], y[at] - levels[at - 1]
        costs[at] = costs[at - 1] + off**2 / total
        levels[at] = levels[at - 1] + sure / total * off
        variances[at] = sure * (1 - sure / total)
    return costs, levels, variances
