"""Splits the time that requests lost, between two versions under the same load, into CPU time and waiting.

A request needs a core for some time, and waits for other things for some time. Where requests share cores they also
wait for each other's CPU time, so 0.1 ms more of CPU time can make 8 requests in flight 0.8 ms slower. A queue model
says how much: one station, with that much CPU time, and a delay that needs no core.

Closed loop: mean-value analysis by Bard and Schweitzer (Schweitzer, "Approximate analysis of multiclass closed networks
of queues", 1979), several cores by Seidmann's approximation (1987). Open loop: M/D/1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ("A_GOOD_PART", "Loss", "Served", "latency_of", "loss_of")

A_GOOD_PART = 0.25
"""Share of a loss from which on a cause is worth a word. The model is good to about a tenth."""
_BUSY_CORE = 0.9
"""Share of the time on a core from which on it sets the pace: the rest goes into waking up, and hides other waits."""
_LEAST_LOSS = 0.01
"""Share of the latency before. Less is how counts of requests differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How one version answered a load; per request."""

    latency_s: float
    """The mean. In a closed loop the time between two requests of a connection, pauses among it."""
    cpu_s: float
    """How long it needs a core: CPU time of the whole server, and how long others had the core meanwhile."""
    connections: int
    rate: float | None = None
    """Open loop: answers per second. None in a closed loop."""
    cores: int = 1
    """Those that the server can use."""

    @property
    def per_second(self) -> float:
        """Answers per second."""
        return self.connections / self.latency_s if self.rate is None else self.rate

    @property
    def wait_s(self) -> float:
        """The part of the latency that needs no core: neither for this request, nor for others before it."""
        own_s, apart_s = self._demand()
        if self.is_busy:
            return 0.0
        if self.rate is None:
            cpu_s = own_s / (1 - (self.connections - 1) * own_s / self.latency_s)
        else:
            cpu_s = _queued_s(own_s, self.rate)
        return max(0.0, self.latency_s - cpu_s - apart_s)

    @property
    def is_busy(self) -> bool:
        """Whether the cores set the pace."""
        return self.cpu_s * self.per_second >= _BUSY_CORE * self.cores

    def _demand(self) -> tuple[float, float]:
        """Returns how long a request holds the station of all cores, and what else of its CPU time it takes."""
        return self.cpu_s / self.cores, self.cpu_s * (self.cores - 1) / self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a request takes longer than before, in seconds on average."""

    total_s: float
    cpu_s: float
    """Of it, because requests need more CPU time, their own and that of those before them."""

    @property
    def wait_s(self) -> float:
        """Of it, waiting for anything but a core."""
        return self.total_s - self.cpu_s

    @property
    def cpu_share(self) -> float:
        """The share that is CPU time."""
        return self.cpu_s / self.total_s


def latency_of(served: Served, *, wait_s: float) -> float:
    """Returns the latency by the model, for that CPU time and load, and so long a wait."""
    own_s, apart_s = served._demand()
    wait_s += apart_s
    if served.rate is not None:
        return _queued_s(own_s, served.rate) + wait_s
    over_s = own_s * served.connections - wait_s
    return (over_s + math.sqrt(over_s**2 + 4 * own_s * wait_s)) / 2 + wait_s


def loss_of(base: Served, now: Served) -> Loss | None:
    """Returns what was lost from base to now; None where requests do not take longer.

    More CPU time costs more where there is no wait, and less where there is one. The CPU part is the mean of both.
    """
    total_s = now.latency_s - base.latency_s
    if total_s < _LEAST_LOSS * base.latency_s:
        return None
    cores = max(math.ceil(side.cpu_s * side.per_second - 0.5) for side in (base, now))
    base, now = (replace(side, cores=max(side.cores, cores)) for side in (base, now))
    if now.rate is not None and now.is_busy and not base.is_busy:
        return Loss(total_s=total_s, cpu_s=total_s)  # a queue that grows without end is as long as the load lasts
    before_s, after_s = base.wait_s, now.wait_s
    cpu_first_s = latency_of(now, wait_s=before_s) - latency_of(base, wait_s=before_s)
    cpu_last_s = latency_of(now, wait_s=after_s) - latency_of(base, wait_s=after_s)
    cpu_s = (cpu_first_s + cpu_last_s) / 2
    return Loss(total_s=total_s, cpu_s=min(max(0.0, cpu_s), total_s))


def _queued_s(cpu_s: float, rate: float) -> float:
    """Returns how long requests take that come by chance and need a core for so long; very long for too many."""
    busy = min(cpu_s * rate, 0.999)
    return cpu_s * (1 + busy / (2 * (1 - busy)))
