"""The trend of a history as text for a terminal, and as JSON values.

upload    rps ▇▇▇▇▇▆▇▇▇▆▅▅▅▅▄▅▅▄▄▄  −4.1 % [−5.2, −3.0]
−2.9 % [−3.9, −1.9] by 4d5e6f7 of 2026-10-12, after 0a1b2c3
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from pytest_fileperf.judge.history import SURE, Run, Trend
from pytest_fileperf.judge.rules import TREND
from pytest_fileperf.judge.trend import Step
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.text import Screen, Style, cells, pad, paint, plain, shorten
from pytest_fileperf.units import as_share, format_change, format_count, format_share

_MOST_LINES = 12
_BARS = "▁▂▃▄▅▆▇█"
_CELLS = 20
LEAST_SCALE = 0.03
"""Charts span at least this much on both sides of their middle, so that noise looks flat."""
_ASKED = (0.01, 0.02, 0.05, 0.1, 0.2)
_SOON = 20
"""The text names the smallest change in `_ASKED` that would show within this many further runs."""


def trend_text(trends: Sequence[Trend], screen: Screen, *, since: str | None = None, said: Sequence[str] = ()) -> str:
    """Returns a report of at most twelve lines, followed by the lines `said`.

    The heading says since when changes count: since the version `since`, or since the first baseline.
    """
    runs = {id(run): run for trend in trends for run in trend.series.runs}
    if not runs:
        return "".join(f"{plain(line)}\n" for line in (*said, "no runs to show"))
    counted = f"trend of {format_count(len(runs), 'run')} since {min(run.time for run in runs.values()):%Y-%m-%d}"
    lines = [f"{counted}; change [90 %] since {since or 'the first baseline'}", ""]
    names, means = titles(trends), {id(trend): _means(trend) for trend in trends}
    width = min(max(map(cells, names.values())), max(8, screen.width - 56))
    metric_width = max(len(trend.series.metric) for trend in trends)
    folded: list[Trend] = []
    for trend in newest_first(trends):
        series = trend.series
        rows = [f"  {step_text(step, series.runs)}" for step in trend.steps[-3:]] or [f"  {_quiet_text(trend)}"]
        if len(lines) + 1 + len(rows) > _MOST_LINES - 1:
            folded.append(trend)
            continue
        # All sparklines of a metric have the same scale.
        shown = [mean for other in trends if other.series.metric == series.metric for mean in means[id(other)]]
        middle, half = (max(shown) + min(shown)) / 2, max(LEAST_SCALE, (max(shown) - min(shown)) / 2)
        places = (round((mean - middle + half) / (2 * half) * (len(_BARS) - 1)) for mean in means[id(trend)])
        bars = "".join(_BARS[place] for place in places).ljust(_CELLS)
        is_worse = METRICS[series.metric].worse_sign * trend.total[0] > 0
        style = Style.BAD if trend.steps and is_worse else Style.NONE
        total = paint(change_text(*trend.total), style, colour=screen.colour)
        name = pad(plain(names[series.nodeid]), width)
        lines += [f"{name}  {series.metric:{metric_width}} {bars}  {total}", *rows]
    if folded:
        changed = sum(bool(trend.steps) for trend in folded) or "none"
        lines.append(f"{len(folded)} more, {changed} of them with lasting changes. Show them with -k and --metric")
    if any(trend.steps for trend in trends):
        lines.append("To check it: python -m pytest_fileperf trend --check measures both commits again")
    text = [line if screen.colour else shorten(line, screen.width) for line in lines]
    return "".join(f"{line}\n" for line in (*text, *map(plain, said)))


def trend_values(trends: Sequence[Trend]) -> list[dict[str, object]]:
    """Returns a JSON object for each trend. Changes are shares, and intervals have 90 % confidence."""
    return [_values(trend) for trend in trends]


def _values(trend: Trend) -> dict[str, object]:
    series = trend.series
    interval = "change", "low", "high"
    steps = [
        {
            **dict(zip(interval, shares(step.change, step.error), strict=True)),
            "slow": step.is_slow,
            "commit": series.runs[step.at].commit,
            "after": series.runs[step.at - 1].commit,
            "at": series.runs[step.at].time.isoformat(),
            "first_run": step.earliest,
            "last_run": step.latest,
        }
        for step in trend.steps
    ]
    runs = [
        {"commit": run.commit, "at": run.at, "log_ratio": ratio, "error": error, "level": level}
        for run, ratio, error, level in zip(series.runs, series.ratios, series.errors, trend.course.levels, strict=True)
    ]
    total = dict(zip(interval, shares(*trend.total), strict=True))
    named = {"test": series.nodeid, "metric": series.metric}
    return {**named, **total, "noise": trend.course.noise, "steps": steps, "runs": runs}


def newest_first(trends: Sequence[Trend]) -> list[Trend]:
    """Returns the trends by their last step (lasting change), the newest first. Trends without a step come last."""
    changed = [own for own in trends if own.steps]
    changed.sort(key=lambda own: own.series.runs[own.steps[-1].at].time, reverse=True)
    return [*changed, *(own for own in trends if not own.steps)]


def titles(trends: Sequence[Trend]) -> dict[str, str]:
    """Returns each test's name by its node id. Tests with equal names have their node ids instead."""
    short = {trend.series.nodeid: trend.series.nodeid.rpartition("::")[2] for trend in trends}
    counts = Counter(short.values())
    return {nodeid: nodeid if counts[name] > 1 else name for nodeid, name in short.items()}


def _code(run: Run) -> str:
    return run.commit[:7] or run.tree[:7]


def commit_text(run: Run) -> str:
    return f"{_code(run)} of {run.time:%Y-%m-%d}"


def step_text(step: Step, runs: Sequence[Run]) -> str:
    text, first, before = change_text(step.change, step.error), commit_text(runs[step.at]), runs[step.at - 1]
    if step.is_slow:
        lasted = format_count(step.latest - step.at + 1, "run")
        return f"{text} slowly, in {lasted} from {first} to {_code(runs[step.latest])}"
    unsure = max(step.at - step.earliest, step.latest - step.at)
    about = f", ±{format_count(unsure, 'run')}" if unsure else ""
    packages = ", with other packages" if before.packages != runs[step.at].packages else ""
    return f"{text} by {first}, after {_code(before)}{about}{packages}"


def _quiet_text(trend: Trend) -> str:
    count = len(trend.series.runs)
    if count < TREND.first:
        return f"mean of {format_count(count, 'run')} so far; steps are looked for from {TREND.first} runs on"
    for change in _ASKED:
        runs = trend.course.runs_to_show(math.log1p(change))
        if runs is not None and runs <= _SOON:
            return (
                f"no lasting change; a change of {format_share(change)} would show within {format_count(runs, 'run')}"
            )
    return f"no lasting change; even a change of {format_share(_ASKED[-1])} may not show within {_SOON} runs"


def shares(change: float, error: float) -> tuple[float, float, float]:
    """Returns a change and both ends of its 90 % interval, as shares. `change` and `error` are in logarithms."""
    return as_share(change), as_share(change - SURE * error), as_share(change + SURE * error)


def change_text(change: float, error: float) -> str:
    middle, *interval = shares(change, error)
    low, high = (format_change(bound, unit=False) for bound in interval)
    return f"{format_change(middle)} [{low}, {high}]"


def _means(trend: Trend) -> list[float]:
    """Returns at most 20 means of neighbouring runs, for the sparkline."""
    series, count = trend.series, min(_CELLS, len(trend.series.ratios) - trend.begun)
    edges = [trend.begun + round((len(series.ratios) - trend.begun) * at / count) for at in range(count + 1)]
    weights = [1 / (error**2 + series.session_sd**2) for error in series.errors]
    return [fmean(series.ratios[a:b], weights[a:b]) for a, b in pairwise(edges)]
