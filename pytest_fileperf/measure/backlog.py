"""Decides whether a server keeps up with an open loop: its latencies and its backlog of requests must not grow."""

from __future__ import annotations

import math
from itertools import accumulate
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.measure.recording import Boot, LeadTimes, Recording

_KEPT_UP = 0.03
"""A server keeps up if its latencies grow by at most this share of the time that passes. Its backlog may grow by at
most this share of the requests that become due."""


def keeps_up(recording: Recording) -> bool:
    """Returns whether the server keeps up with an open loop's rate. False if the requests are too few to decide."""
    grown = [_between_thirds(boot.leads) for boot in recording.boots if boot.leads is not None]
    slopes = [rise_ns / run_ns for rise_ns, _, run_ns, _ in filter(None, grown)]
    if not slopes or fmean(slopes) > _KEPT_UP:
        return False
    return not any(_falls_behind(recording, boot) for boot in recording.boots)


def _falls_behind(recording: Recording, boot: Boot) -> bool:
    """Returns whether more and more requests wait. Latencies hide this if the server answers new requests first."""
    rounds = recording.of_boot(boot).measured()
    if boot.leads is None or len(rounds) < 3:
        return False
    due_ns, counts = np.array(boot.leads.due_ns), np.array(boot.leads.counts)
    due = [int(counts[due_ns < round_.ended_ns - rounds[0].started_ns].sum()) for round_ in rounds]
    ended = list(accumulate(round_.requests for round_ in rounds))
    first = len(rounds) // 3
    growth = (due[-1] - ended[-1]) - (due[first] - ended[first])
    # Two requests may be under way at the end of one round, and none at the end of another.
    return growth > _KEPT_UP * (due[-1] - due[first]) + 2


def backlog_growth(leads: LeadTimes, rate: float, *, errors: float) -> float:
    """Returns how fast waiting requests grow at least, as a share of all requests. 0 or less without growth.

    The result is the smaller of two shares, because either one alone can mislead. One is the growth of latencies ÷ the
    time that passed. The other says how far answers per second fall short of `rate`. A rise of latencies below `errors`
    standard errors does not count.
    """
    if (growth := _between_thirds(leads)) is None:
        return 0.0
    rise_ns, error_ns, run_ns, requests = growth
    if rise_ns <= errors * error_ns:
        return 0.0
    expected = rate * (rise_ns + run_ns) / 1e9
    return min(rise_ns / run_ns, expected / requests - 1)


def _between_thirds(leads: LeadTimes) -> tuple[float, float, float, float] | None:
    """Compares the first and the last third of the time when requests were due: (growth, error, time, requests).

    `growth` is the mean latency's growth between the thirds, and `error` its standard error. `time` lies between the
    thirds' mean instants, and `requests` were due in it. Times are in ns. None if all requests were due at once, or
    none in the first third.
    """
    due, mean, counts = (np.array(column, dtype=np.float64) for column in (leads.due_ns, leads.mean_ns, leads.counts))
    thirds = due <= due[-1] / 3, due >= due[-1] * 2 / 3
    if due[-1] == 0 or not thirds[0].any():
        return None

    def growth(values: NDArray[np.float64]) -> float:
        early, late = (float(np.average(values[own], weights=counts[own])) for own in thirds)
        return late - early

    def error_ns(own: NDArray[np.bool_]) -> float:
        weights, df = counts[own], np.count_nonzero(own) - 1
        variance = np.average((mean[own] - np.average(mean[own], weights=weights)) ** 2, weights=weights)
        return math.sqrt(variance / df) if df else math.inf

    return growth(mean), math.hypot(*map(error_ns, thirds)), growth(due), growth(np.cumsum(counts) - counts / 2)
