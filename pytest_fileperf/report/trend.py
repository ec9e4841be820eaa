"""The trend of a history as text for a terminal, and as JSON values.

upload    rps ▇▇▇▇▇▆▇▇▇▆▅▅▅▅▄▅▅▄▄▄  −4.1 % [−5.2, −3.0]
−2.9 % [−3.9, −1.9] by 4d5e6f7 of 2026-10-12, after 0a1b2c3
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean

from pytest_fileperf.judge.difference import as_share
from pytest_fileperf.judge.history import Run, Series
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Course, Step
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.text import Screen, Style, cells, pad, paint, plain, shorten
from pytest_fileperf.units import format_change, format_count, format_share

_MOST_LINES = 12
_BARS = "▁▂▃▄▅▆▇█"
_CELLS = 20
_LEAST_SCALE = 0.03
"""A sparkline spans at least this much on both sides of its middle, so that noise looks flat."""
SURE = 1.6449
"""Standard errors on each side of a 90 % interval."""
_ASKED = (0.01, 0.02, 0.05, 0.1, 0.2)
_SOON = 20
"""Texts name the smallest of the asked changes that would show within this many runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """One series with its course, as reports show it."""

    series: Series
    course: Course
    total: tuple[float, float]
    """The change since the first old code, or since a given commit or day: log ratio and standard error."""
    begun: int = 0
    """The first run that is shown."""

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(step for step in self.course.steps if step.at >= self.begun)

    @property
    def newest(self) -> datetime:
        """When the code of its last step was made; the beginning of time without a step."""
        return max((self.series.runs[step.at].time for step in self.steps), default=datetime.min.replace(tzinfo=UTC))

    @property
    def is_known(self) -> bool:
        """Whether runs link all old codes in it: a link that nobody measured has an error of 1."""
        return self.total[1] < 1

    def loses(self, share: float) -> bool:
        """Returns whether a loss beyond this share is sure, at 95 %."""
        change, error = self.total
        return METRICS[self.series.metric].worse_sign * change - SURE * error > math.log1p(share)


def trend_text(trends: Sequence[Trend], screen: Screen, *, since: str = "", said: Sequence[str] = ()) -> str:
    """Returns a report of at most twelve lines, followed by the lines `said`.

    `since` names the beginning of the total changes for the heading; empty means the first baseline.
    """
    runs = {id(run): run for trend in trends for run in trend.series.runs}
    if not runs:
        return "".join(f"{plain(line)}\n" for line in (*said, "no runs to show"))
    begun = min(run.time for run in runs.values())
    counted = f"trend of {format_count(len(runs), 'run')} since {begun:%Y-%m-%d}"
    lines = [f"{counted}; change [90 %] since {since or 'the first baseline'}", ""]
    names = titles([trend.series.nodeid for trend in trends])
    width = min(max(map(cells, names.values())), max(8, screen.width - 56))
    metric_width = max(len(trend.series.metric) for trend in trends)
    scales = _scales(trends)
    # The most recent changes come first.
    order = sorted(trends, key=lambda trend: trend.newest, reverse=True)
    folded: list[Trend] = []
    for trend in order:
        rows = [f"  {step_text(step, trend.series)}" for step in trend.steps[-3:]] or [f"  {_quiet_text(trend)}"]
        if len(lines) + 1 + len(rows) > _MOST_LINES - 1:
            folded.append(trend)
            continue
        name = pad(plain(names[trend.series.nodeid]), width)
        is_worse = METRICS[trend.series.metric].worse_sign * trend.total[0] > 0
        style = Style.BAD if trend.steps and is_worse else Style.NONE
        bars = _bars(trend, scales[trend.series.metric])
        total = paint(change_text(*trend.total), style, colour=screen.colour)
        lines += [f"{name}  {trend.series.metric:{metric_width}} {bars}  {total}", *rows]
    if folded:
        changed = sum(bool(trend.steps) for trend in folded)
        unchanged = len(folded) - changed
        parts = [f"{unchanged} without a step"] * bool(unchanged) + [f"{changed} with steps"] * bool(changed)
        lines.append(f"{len(folded)} more: {', '.join(parts)}; -k and --metric select them")
    if any(trend.steps for trend in trends):
        lines += ["To check it: python -m pytest_fileperf trend --check measures both commits again"]
    shown = [line if screen.colour else shorten(line, screen.width) for line in lines]
    return "".join(f"{line}\n" for line in (*shown, *map(plain, said)))


def trend_values(trends: Sequence[Trend]) -> list[dict[str, object]]:
    """Returns JSON values: changes are shares, intervals are 90 %."""
    return [
        {
            "test": trend.series.nodeid,
            "metric": trend.series.metric,
            **_values(*trend.total),
            "noise": trend.course.noise,
            "steps": [
                {
                    **_values(step.change, step.error),
                    "slow": step.is_slow,
                    "commit": trend.series.runs[step.at].commit,
                    "after": trend.series.runs[step.at - 1].commit,
                    "at": trend.series.runs[step.at].time.isoformat(),
                    "first_run": step.earliest,
                    "last_run": step.latest,
                }
                for step in trend.steps
            ],
            "runs": [
                {"commit": run.commit, "at": run.at, "log_ratio": ratio, "error": error, "level": level}
                for run, ratio, error, level in zip(
                    trend.series.runs, trend.series.ratios, trend.series.errors, trend.course.levels, strict=True
                )
            ],
        }
        for trend in trends
    ]


def commit_text(run: Run) -> str:
    """Returns `1a2b3c4 of 2026-10-12`."""
    return f"{_code(run)} of {run.time:%Y-%m-%d}"


def _code(run: Run) -> str:
    return run.commit[:7] or run.tree[:7]


def step_text(step: Step, series: Series) -> str:
    text, first = change_text(step.change, step.error), commit_text(series.runs[step.at])
    if step.is_slow:
        runs = format_count(step.latest - step.at + 1, "run")
        return f"{text} slowly, in {runs} from {first} to {_code(series.runs[step.latest])}"
    unsure = max(step.at - step.earliest, step.latest - step.at)
    about = f", ±{format_count(unsure, 'run')}" if unsure else ""
    return f"{text} by {first}, after {_code(series.runs[step.at - 1])}{about}"


def _quiet_text(trend: Trend) -> str:
    if len(trend.series.runs) < TREND.first:
        return f"{format_count(len(trend.series.runs), 'run')} so far; steps are looked for from {TREND.first} runs on"
    for change in _ASKED:
        runs = trend.course.runs_to_show(math.log1p(change))
        if runs is not None and runs <= _SOON:
            return f"no step; one of {format_share(change)} would show within {format_count(runs, 'run')}"
    return f"no step; one of {format_share(_ASKED[-1])} may not show within {_SOON} runs"


def shares(change: float, error: float) -> tuple[float, float, float]:
    """Returns a change and its 90 % interval, as shares of a log ratio and its standard error."""
    low, middle, high = (as_share(change + sign * SURE * error) for sign in (-1, 0, 1))
    return middle, low, high


def change_text(change: float, error: float) -> str:
    middle, *interval = shares(change, error)
    low, high = (format_change(bound, unit=False) for bound in interval)
    return f"{format_change(middle)} [{low}, {high}]"


def _values(change: float, error: float) -> dict[str, float]:
    return dict(zip(("change", "low", "high"), shares(change, error), strict=True))


def _scales(trends: Sequence[Trend]) -> dict[str, tuple[float, float]]:
    """Returns the lowest and highest mean that the sparklines of each metric show."""
    found: dict[str, tuple[float, float]] = {}
    for trend in trends:
        means = _means(trend)
        low, high = found.get(trend.series.metric, (math.inf, -math.inf))
        found[trend.series.metric] = min(low, *means), max(high, *means)
    return {
        name: (min(low, (low + high) / 2 - _LEAST_SCALE), max(high, (low + high) / 2 + _LEAST_SCALE))
        for name, (low, high) in found.items()
    }


def _means(trend: Trend) -> list[float]:
    values = trend.series.ratios[trend.begun :]
    weights = [1 / (error**2 + trend.series.session_sd**2) for error in trend.series.errors[trend.begun :]]
    count = min(_CELLS, len(values))
    edges = [round(len(values) * at / count) for at in range(count + 1)]
    return [fmean(values[a:b], weights[a:b]) for a, b in pairwise(edges)]


def _bars(trend: Trend, scale: tuple[float, float]) -> str:
    low, high = scale
    places = (round((mean - low) / (high - low) * (len(_BARS) - 1)) for mean in _means(trend))
    return "".join(_BARS[place] for place in places).ljust(_CELLS)


def titles(nodeids: Sequence[str]) -> dict[str, str]:
    """Returns the names of tests, with their module if two names are equal."""
    short = {nodeid: nodeid.rpartition("::")[2] for nodeid in nodeids}
    counts = Counter(short.values())
    return {nodeid: nodeid if counts[name] > 1 else name for nodeid, name in short.items()}
