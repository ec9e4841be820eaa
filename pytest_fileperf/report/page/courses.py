"""Charts of CPU, memory, threads and open files over the time of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import fmean
from typing import TypeAlias

from pytest_fileperf.host.sample import Sample
from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.recording import Boot, Recording
from pytest_fileperf.report.page.drawing import (
    BAD,
    COLOURS,
    FIRST,
    MOST_POINTS,
    QUIET,
    SECOND,
    THIRD,
    Axis,
    Chart,
    Line,
    axis,
    level,
    thinned,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The time axis that a run's charts share, in seconds since its first round or sample."""

    origin_ns: int
    x: Axis
    bands: Sequence[tuple[float, float]]
    """Begin and end of each shaded part, in which a start-up was loaded."""
    notes: Sequence[tuple[float, str]]

    def seconds(self, at_ns: float) -> float:
        return (at_ns - self.origin_ns) / 1e9

    def chart(self, title: str, says: str, lines: Sequence[Line], unit: Unit) -> Chart:
        y = axis([value for line in lines for _, value in line.points], unit)
        return Chart(title=title, says=says, lines=lines, x=self.x, y=y, bands=self.bands, notes=self.notes)


def timeline_of(recording: Recording, base: Recording | None = None) -> Timeline:
    """Returns the time axis for a recording with rounds. `base` is the old code's recording, if there is one."""
    sides = (recording,) if base is None else (recording, base)
    seen = [sample.at_ns for side in sides for boot in side.boots for sample in boot.samples]
    seen += (at_ns for side in sides for round_ in side.counted() for at_ns in (round_.started_ns, round_.ended_ns))
    origin_ns, end_s = min(seen), (max(seen) - min(seen)) / 1e9
    rounds = sorted(recording.measured(), key=lambda round_: round_.started_ns)
    # Start-ups are numbered in the order of their first loads, because they are loaded in random order.
    numbers = {boot: number for number, boot in enumerate(dict.fromkeys(round_.boot for round_ in rounds), 1)}
    bands, notes = [], []
    for boot, group in groupby(rounds, key=lambda round_: round_.boot):
        of_boot = list(group)
        start, end = ((at_ns - origin_ns) / 1e9 for at_ns in (of_boot[0].started_ns, of_boot[-1].ended_ns))
        bands.append((start, end))
        notes.append((start, f"start-up {numbers[boot]}"))
    x = axis([end_s], Unit.SECONDS, ends=True)
    return Timeline(origin_ns=origin_ns, x=x, bands=bands, notes=notes if 1 < len(notes) <= 4 else [])


_Use: TypeAlias = tuple[Sequence[float | None], float, float | None]
"""Cores used by (each worker, the server's other processes together, the busiest load generator)."""
_Course: TypeAlias = list[tuple[float, float | None]]


def process_charts(result: Result, timeline: Timeline) -> tuple[Chart, ...]:
    boots = sorted(
        (boot for boot in result.recording.boots if len(boot.samples) > 1), key=lambda boot: boot.samples[0].at_ns
    )
    if sum(len(boot.samples) for boot in boots) < 4:  # there is no course to draw
        return ()
    threads = _of_samples(boots, timeline, lambda sample: sum(use.threads for use in sample.server))
    busy = _of_samples(boots, timeline, lambda sample: _sum_known(use.busy_threads for use in sample.server))
    files = _of_samples(boots, timeline, lambda sample: _sum_known(use.files for use in sample.server))
    of_threads = "Busy threads compute, or wait in the middle of their work. Main threads don't count as busy."
    made = (
        _cpu(boots, timeline),
        _memory(result, boots, timeline),
        _counts("Threads", of_threads, (("threads", threads, FIRST), ("busy threads", busy, SECOND)), timeline),
        _counts("Open files", "Sockets count as open files.", (("open files", files, FIRST),), timeline),
    )
    return tuple(chart for chart in made if chart is not None)


# --- CPU


def _cpu(boots: Sequence[Boot], timeline: Timeline) -> Chart:
    stretches = [_stretches(boot, timeline, _points_for_each(boots)) for boot in boots]
    count = max(len(boot.worker_pids) for boot in boots)

    def course(pick: Callable[[_Use], float | None]) -> _Course:
        return _interrupted([[(middle_s, pick(use)) for middle_s, use in of_boot] for of_boot in stretches])

    def of_workers(pick: Callable[[Iterable[float]], float], places: slice = slice(None)) -> _Course:
        def picked(use: _Use) -> float | None:
            known = [share for share in use[0][places] if share is not None]
            return pick(known) if known else None

        return course(picked)

    others = course(lambda use: use[1])
    if not count:
        says = "All processes of the server together; 100 % is a whole core."
        lines = [("server", others, FIRST)]
    elif count <= len(COLOURS):  # more lines would cover each other
        says = "100 % is a whole core: all that one worker can use for Python code."
        names = [f"worker {place + 1}" for place in range(count)] if count > 1 else ["worker"]
        lines = [(name, of_workers(sum, slice(at, at + 1)), COLOURS[at]) for at, name in enumerate(names)]
    else:
        says = f"The busiest and the idlest of {count} workers, and the mean of all. 100 % is a whole core."
        lines = [
            ("busiest worker", of_workers(max), SECOND),
            ("mean of the workers", of_workers(fmean), FIRST),
            ("idlest worker", of_workers(min), THIRD),
        ]
    if count and any(share is not None and share >= 0.05 for _, share in others):  # of a core
        lines.append(("other processes of the server", others, f"{QUIET} level"))
    if generator := course(lambda use: use[2]):
        several = any(len(sample.generators) > 1 for boot in boots for sample in boot.samples)
        lines.append(("busiest load generator" if several else "load generator", generator, QUIET))
    drawn = [Line(name=name, points=points, colour=colour) for name, points, colour in lines]
    return timeline.chart("CPU over time, shares of a core", says, drawn, Unit.SHARE)


def _stretches(boot: Boot, timeline: Timeline, most: int) -> list[tuple[float, _Use]]:
    """Returns (its middle in seconds, cores used in it) for each interval between two samples."""
    found: list[tuple[float, _Use]] = []
    for before, after in pairwise(thinned(boot.samples, most)):
        if (length_ns := after.at_ns - before.at_ns) > 0:
            used_ns = {use.pid: use.cpu_ns for use in before.server}
            shares = {
                use.pid: (use.cpu_ns - used_ns[use.pid]) / length_ns for use in after.server if use.pid in used_ns
            }
            # Generators are matched by position, because their process ids may not be unique.
            generators = [
                (now.cpu_ns - then.cpu_ns) / length_ns
                for then, now in zip(before.generators, after.generators, strict=False)
            ]
            workers = [shares.pop(pid, None) for pid in boot.worker_pids]
            middle_s = timeline.seconds(before.at_ns + length_ns / 2)
            found.append((middle_s, (workers, sum(shares.values()), max(generators, default=None))))
    return found


# --- memory, threads, files


def _memory(result: Result, boots: Sequence[Boot], timeline: Timeline) -> Chart:
    used = _of_samples(boots, timeline, lambda sample: sum(use.rss_bytes for use in sample.server))
    limits = [check for check in result.verdict.limits if check.metric == "rss"]
    lines = [Line(name="memory", points=used, colour=FIRST)]
    lines += (level(check.name, check.limit, timeline.x, BAD) for check in limits)
    says = "Resident memory of all the server's processes together."
    return timeline.chart("Memory of the server over time", says, lines, Unit.BYTES)


def _counts(title: str, says: str, lines: Sequence[tuple[str, _Course, str]], timeline: Timeline) -> Chart | None:
    known = [(name, course, colour) for name, course, colour in lines if any(y is not None for _, y in course)]
    if all(len({y for _, y in course} - {None}) == 1 for _, course, _ in known):
        return None
    drawn = [Line(name=name, points=course, colour=colour) for name, course, colour in known]
    return timeline.chart(f"{title} of the server over time", says, drawn, Unit.COUNT)


def _points_for_each(boots: Sequence[Boot]) -> int:
    return max(2, MOST_POINTS // len(boots))


def _sum_known(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _of_samples(boots: Sequence[Boot], timeline: Timeline, pick: Callable[[Sample], int | None]) -> _Course:
    shown = [thinned(boot.samples, _points_for_each(boots)) for boot in boots]
    return _interrupted([[(timeline.seconds(sample.at_ns), pick(sample)) for sample in samples] for samples in shown])


def _interrupted(courses: Sequence[Sequence[tuple[float, float | None]]]) -> _Course:
    """Joins the curves of all start-ups. Between start-ups, None interrupts the curve."""
    joined: _Course = []
    for course in courses:
        if joined and course:
            joined.append((course[0][0], None))
        joined += course
    return joined
