"""Merges what several generators have measured of one load, as if one generator had measured all of it; pure.

Rounds of all generators begin and end at the same instants of one clock. Counts, bytes, CPU times and histograms add up
exactly: a histogram is counts of steps, and the least, the greatest and the sum of all values are exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from pytest_fileperf.measure.durations import stretches_of
from pytest_fileperf.measure.generators import GeneratorRound
from pytest_fileperf.measure.pace import typical_rps
from pytest_fileperf.measure.recording import LeadTimes, Phase, Round, merged_round

__all__ = ("Ends", "merged_leads", "merged_rounds", "paced")

Ends: TypeAlias = "Sequence[Sequence[array[int]]]"
"""When answers ended in each round, by parts of the load."""


def merged_rounds(shares: Mapping[int, Sequence[Round]]) -> tuple[Round, ...]:
    """Returns the rounds of a load whose generators, by their numbers, have had these.

    The CPU time of the server is that of the generator whose round was the longest: all of them have read it, and only
    the last round does not end at one instant.
    """
    indexes = dict.fromkeys(round_.index for rounds in shares.values() for round_ in rounds)
    at = {number: {round_.index: round_ for round_ in rounds} for number, rounds in shares.items()}
    return tuple(
        _merged({number: own[index] for number, own in at.items() if index in own}) for index in sorted(indexes)
    )


def _merged(shares: Mapping[int, Round]) -> Round:
    longest = max(shares.values(), key=lambda own: (own.server_cpu_ns is not None, own.ended_ns))
    return replace(
        merged_round(tuple(shares.values())),
        started_ns=min(own.started_ns for own in shares.values()),
        ended_ns=max(own.ended_ns for own in shares.values()),
        server_cpu_ns=longest.server_cpu_ns,
        client_cpu_ns=sum(own.client_cpu_ns for own in shares.values()),
        code_ns=sum(own.code_ns for own in shares.values()),
        most_open=sum(own.most_open for own in shares.values()),
        opened=sum(own.opened for own in shares.values()),
        closed_said=sum(own.closed_said for own in shares.values()),
        generators=tuple(
            GeneratorRound(number=number, requests=own.requests, failed=own.failed, cpu_ns=own.client_cpu_ns)
            for number, own in sorted(shares.items())
        ),
    )


def paced(rounds: Sequence[Round], ends: Sequence[Ends], *, over: int, together: int) -> tuple[Round, ...]:
    """Returns turns with their typical rates, by when the answers to all generators ended in them.

    `ends` are those of each generator; `over` and `together` are as in `pace`.
    """
    return tuple(
        round_
        if round_.phase is not Phase.ROUND
        else replace(
            round_,
            typical_rps=typical_rps(
                [part for own in ends if place < len(own) for part in own[place]], over=over, together=together
            ),
        )
        for place, round_ in enumerate(rounds)
    )


def merged_leads(leads: Sequence[LeadTimes], *, span_ns: int) -> LeadTimes | None:
    """Returns the lead times of all generators, of a load whose requests were due in `span_ns`; None of nothing."""
    if len(leads) < 2:
        return leads[0] if leads else None
    due, counts, mean, most = (
        np.array([value for own in leads for value in getattr(own, name)], dtype=np.int64)
        for name in ("due_ns", "counts", "mean_ns", "max_ns")
    )
    # All generators have the same stretches.
    stretches, where = np.unique(stretches_of(due, span_ns), return_inverse=True)
    first = np.full(stretches.size, np.iinfo(np.int64).max)
    highest, total = np.zeros(stretches.size, dtype=np.int64), np.zeros(stretches.size, dtype=np.int64)
    sums = np.zeros(stretches.size, dtype=np.float64)
    np.minimum.at(first, where, due)
    np.maximum.at(highest, where, most)
    np.add.at(total, where, counts)
    np.add.at(sums, where, mean * counts)
    return LeadTimes(
        due_ns=tuple(first.tolist()),
        counts=tuple(total.tolist()),
        mean_ns=tuple(np.rint(sums / total).astype(np.int64).tolist()),
        max_ns=tuple(highest.tolist()),
    )
