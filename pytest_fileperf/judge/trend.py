"""Start-ups that get slower, or faster, one after another: their mean is then the figure of none of them.

It takes an order without an exception, steps of about one size, and a change that neither start-ups of the same code
nor their own rounds differ by. Of the same code on a quiet or a noisy machine at most 0.5 % have such an order
(`tests/judge/test_unit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev

from pytest_fileperf.measure.recording import Phase, Recording, Round
from pytest_fileperf.measure.usage import busy_of


def trend_of(recording: Recording) -> tuple[float, ...]:
    """Returns the levels of start-ups that get slower, or faster, one after another; nothing without such a trend.

    They are requests/s, or latencies in seconds where the load has a rate of its own.
    """
    values = [
        [
            value
            for round_ in recording.of_boot(boot).rounds
            if (value := _value(round_, recording.open_loop)) is not None
        ]
        for boot in recording.boots
    ]
    if len(values) < 3 or not all(values):
        return ()
    levels = [fmean(map(math.log, own)) for own in values]
    # Standard errors of these means; of a single round what rounds usually have.
    errors = [stdev(map(math.log, own)) / math.sqrt(len(own)) if len(own) > 1 else 0.05 for own in values]
    return tuple(map(math.exp, levels)) if _is_trend(levels, errors) else ()


def may_be_machine(recording: Recording, levels: Sequence[float]) -> bool:
    """Returns whether a machine that changed meanwhile may be the cause of a trend.

    Its own use tells, and the CPU time of requests: that it changed too, or is not known.
    """
    if not any(boot.samples for boot in recording.boots) or busy_of(recording).is_busy:
        return True
    costs = []
    for boot in (recording.boots[0], recording.boots[-1]):
        rounds = recording.of_boot(boot).rounds
        known = [(round_.server_cpu_ns, round_.requests) for round_ in rounds if round_.server_cpu_ns is not None]
        cpu, requests = (sum(values) for values in zip(*known, strict=True)) if known else (0, 0)
        if not cpu or not requests:
            return True
        costs.append(cpu / requests)
    # Where the machine's speed is not the cause, CPU per request may show 0.3 of a change.
    return abs(math.log(costs[1] / costs[0])) > 0.3 * abs(math.log(levels[-1] / levels[0]))


def _value(round_: Round, open_loop: bool) -> float | None:
    if round_.phase is not Phase.ROUND or not round_.requests or round_.duration_ns <= 0:
        return None
    return round_.latency.mean_ns() / 1e9 if open_loop else round_.requests / (round_.duration_ns / 1e9)


def _is_trend(levels: Sequence[float], errors: Sequence[float]) -> bool:
    total, steps = levels[-1] - levels[0], [after - before for before, after in pairwise(levels)]
    # Log ratios of first and last, by how many there are: start-ups of the same code differ by 1 to 6 % each.
    if abs(total) < {3: 0.3, 4: 0.25}.get(len(levels), 0.2):
        return False
    # Every step is a good part of an even one, as one jump is no trend, and three standard errors by its rounds.
    least, sign = 0.3 * abs(total) / len(steps), math.copysign(1, total)
    return all(
        sign * step >= max(least, 3 * math.hypot(*both)) for step, both in zip(steps, pairwise(errors), strict=True)
    )
