"""Little's law: requests under way = requests/s × latency. It gives the rate of short runs, and checks every other one.

Where a run has time for many requests on each connection, requests/s are what was answered ÷ time. Where it has time
for few, they come in bunches, or began in a queue that had still to grow: then it is chance, or the beginning, how many
end in the time. Such a run's rate is the mean number of requests that were under way, ÷ the mean time of those that
began while it was measured. These are followed to their end, so slow ones are not left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.measure.recording import Recording, Round

__all__ = ("LittlesLaw", "littles_law", "rate_of")

_MANY = 50
"""Requests on each connection, one after the other: one bunch more or less is then 2 % at the most."""
_ERRORS = 3
"""Standard errors of the mean latency within which both rates agree."""
_ROUGH = 0.03
"""Both rates may differ by this share in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LittlesLaw:
    """What the law says of a closed loop."""

    in_flight: float
    """The mean number of successful requests under way while it was measured."""
    latency: float
    """Their mean latency, in seconds."""
    rps: float
    """Requests/s as they are shown."""
    error: float
    """By how much both may differ, as a share: what chance leaves of the mean latency, and 3 %."""
    is_short: bool
    """Whether a request takes longer than each start-up was measured."""

    @property
    def by_law(self) -> float:
        """Requests/s by the law."""
        return self.in_flight / self.latency

    @property
    def agrees(self) -> bool:
        """Whether the rate that is shown is that of the law, within its error."""
        return not self.is_short and abs(self.rps / self.by_law - 1) <= self.error


def rate_of(recording: Recording, count: Callable[[Round], float]) -> float | None:
    """Returns successful requests per second, or what else `count` tells of them in a round, by `Round.carried`."""
    counted = recording.counted()
    seconds = sum(round_.duration_ns for round_ in counted) / 1e9
    if seconds <= 0:
        return None
    return sum(map(count, counted)) / seconds * _correction(recording)


def littles_law(recording: Recording) -> LittlesLaw | None:
    """Returns what the law says of a closed loop for a time; None of other loads, and where nothing was answered."""
    if not _is_closed(recording):
        return None
    latency, measured = recording.latency(), recording.measured()
    seconds = sum(round_.duration_ns for round_ in measured) / 1e9
    in_flight = sum(round_.busy_ns for round_ in measured) / 1e9 / seconds
    mean = latency.mean_ns()
    return LittlesLaw(
        in_flight=in_flight,
        latency=mean / 1e9,
        rps=rate_of(recording, lambda round_: round_.done) or 0.0,
        error=max(_ROUGH, _ERRORS * latency.stdev_ns() / mean / math.sqrt(latency.count)),
        is_short=_each_ns(recording) < mean,
    )


def _is_closed(recording: Recording) -> bool:
    """Returns whether it is a closed loop for a time, without turns of another server, of which a request is known."""
    if recording.open_loop or recording.due is not None:
        return False
    if any(round_.phase == "handover" for round_ in recording.rounds):
        return False
    return any(round_.busy_ns > 0 for round_ in recording.measured())


def _each_ns(recording: Recording) -> float:
    """Returns how long each load was measured: between its warm-up and its drain."""
    measured_ns = sum(round_.duration_ns for round_ in recording.measured())
    return measured_ns / max(1, sum(round_.phase == "drain" for round_ in recording.rounds))


def _correction(recording: Recording) -> float:
    """Returns the rate of a short run by the law, as a share of the counted one; 1.0 for other runs."""
    if not _is_closed(recording):
        return 1.0
    measured = recording.measured()
    done, busy_ns = sum(round_.done for round_ in measured), sum(round_.busy_ns for round_ in measured)
    requests = sum(round_.requests for round_ in recording.rounds)
    took_ns = sum(round_.latency.sum_ns for round_ in recording.rounds)
    each_ns, mean_ns = _each_ns(recording), took_ns / requests
    if not done or each_ns >= _MANY * mean_ns:
        return 1.0
    early = sum(round_.carried.early for round_ in recording.rounds)
    if requests > early and each_ns >= mean_ns:  # else those of the warm-up are all there are
        requests -= early
        took_ns -= sum(round_.carried.early_ns for round_ in recording.rounds)
    return busy_ns * requests / took_ns / done
