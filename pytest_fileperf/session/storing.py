"""Measures what becomes a baseline: until its level is known well enough, and not while others use the machine.

A baseline is read for as long as it stands, so it is worth more time than a run that is compared once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_fileperf.judge.boots import precision_of
from pytest_fileperf.judge.evidence import evidence_of
from pytest_fileperf.measure.busy import busy_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.session.alone import Kept, measure_alone
from pytest_fileperf.session.loading import Record, Run
from pytest_fileperf.session.planning import AlonePlan
from pytest_fileperf.session.rig import Measured, Rig, Task

__all__ = ("measure_to_store", "precision_said")

KNOWN_TO = 0.015
"""Standard error of the log level of requests/s, and other metrics of rounds, that is good enough for a baseline."""
LONGEST_S, MOST_TIMES = 60.0, 12
"""A baseline takes so long at the most, and so many times as long as other measurements of the test; and no longer
than `max_duration`."""


def measure_to_store(task: Task, plan: AlonePlan, rig: Rig) -> Measured:
    """Measures the code here until its level is known; raises what booting and loading raise.

    What was measured while others used the machine does not count, unless there is nothing else when the time is over.
    """
    # A load that is made as a whole is made once, and a search ends by itself.
    if plan.load.counted or plan.load.ramp is not None or plan.capacity is not None:
        return measure_alone(task, plan, rig)
    limit_s = min(LONGEST_S, MOST_TIMES * task.settings.duration_ns / 1e9, plan.most_ns / 1e9)
    return measure_alone(task, plan, rig, _UntilKnown(task.settings.gate, rig.clock, limit_s).after)


def precision_said(gate: Sequence[str], recording: Recording) -> str:
    """Returns a sentence where the level is not known as well as a baseline's should be; else an empty text."""
    error = _error(gate, recording)
    if error <= KNOWN_TO:
        return ""
    return f"the stored level is known to {100 * error:.1f} % only, not to {100 * KNOWN_TO:g} %: the machine is noisy"


@dataclass(slots=True)
class _UntilKnown:
    """Decides after each run on every boot what to keep, and whether it is enough."""

    gate: Sequence[str]
    clock: Callable[[], float]
    limit_s: float
    begun_s: float = 0.0
    last_s: float = 0.0

    def __post_init__(self) -> None:
        self.begun_s = self.last_s = self.clock()

    def after(self, kept: Sequence[Run], new: Sequence[Run], record: Record) -> Kept:
        """Returns the runs to keep, and why others are needed."""
        now_s = self.clock()
        is_over = now_s - self.begun_s + (now_s - self.last_s) > self.limit_s
        self.last_s = now_s
        if busy_of(record(new)).is_busy:
            return Kept(runs=kept or new) if is_over else Kept(runs=kept, why_again="the machine was busy")
        kept = [*kept, *new]
        if is_over or _error(self.gate, record(kept)) <= KNOWN_TO:
            return Kept(runs=kept)
        return Kept(runs=kept, why_again="its level is not known well")


def _error(gate: Sequence[str], recording: Recording) -> float:
    """Returns the greatest standard error of the gated metrics that rounds tell; 0.0 where there is none."""
    evidence = evidence_of(recording)
    metrics = [METRICS[name] for name in gate if METRICS[name].percentile is None]
    return max(filter(math.isfinite, (precision_of(metric, evidence) for metric in metrics)), default=0.0)
