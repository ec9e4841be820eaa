"""Names what limited a run, with the figures that say so, or says that it is unclear: better no name than a wrong one.

Each rule below knows one limit and asks for evidence of its own; the first that is sure has the word. Their order
matters: a busy core also makes threads, queues and latencies look busy, so it is asked for first.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pytest_fileperf.host.sample import MainThread, Sample
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, LeadTimes, Recording
from pytest_fileperf.measure.stacks import Frame, Stack, stacks_in
from pytest_fileperf.measure.usage import CHILDREN_WORK, CoreUse, ThreadShares, Usage, busiest_title, usage_of
from pytest_fileperf.units import format_duration, format_rate

# --- Splits the time that requests lost, between two versions under the same load, into CPU time and waiting
#
# A request needs a core for some time, and waits for other things for some time. Where requests share cores they also
# wait for each other's CPU time, so 0.1 ms more of CPU time can make 8 requests in flight 0.8 ms slower. A queue model
# says how much: one station, with that much CPU time, and a delay that needs no core.
#
# Closed loop: mean-value analysis by Bard and Schweitzer (Schweitzer, "Approximate analysis of multiclass closed
# networks of queues", 1979), several cores by Seidmann's approximation (1987). Open loop: M/D/1.

A_GOOD_PART = 0.25
"""Share of a loss from which on a cause is worth a word. The model is good to about a tenth."""
_LEAST_LOSS = 0.01
"""Share of the latency before. Less is how counts of requests differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """How one version answered a load; per request."""

    latency_s: float
    """The mean. In a closed loop the time between two requests of a connection, pauses among it."""
    cpu_s: float
    """CPU time of the whole server."""
    connections: int
    rate: float | None = None
    """Open loop: answers per second. None in a closed loop."""
    cores: int = 1
    """Those that the server can use."""
    core_delay: float = 1.0
    """How many times that CPU time its cores may have been needed, as others had them meanwhile."""

    @property
    def core_s(self) -> float:
        """How long it needs a core, with what others had of it."""
        return self.cpu_s * self.core_delay

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
        return self.core_s * self.per_second >= BUSY_CORE * self.cores

    def _demand(self) -> tuple[float, float]:
        """Returns how long a request holds the station of all cores, and what else of its CPU time it takes."""
        return self.core_s / self.cores, self.core_s * (self.cores - 1) / self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a request takes longer than before, in seconds on average."""

    total_s: float
    cpu_s: float
    """Of it, because requests need more CPU time, their own and that of those before them."""
    others_s: float = 0.0
    """Of it, as much as may be waiting for a core that other processes of the machine had."""

    @property
    def wait_s(self) -> float:
        """Of it, waiting for anything but a core."""
        return self.total_s - self.cpu_s - self.others_s

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

    More CPU time costs more where there is no wait, and less where there is one. The CPU part is the mean of both. What
    others have of the cores makes each CPU second longer on both sides: what more they had of one side may be theirs.
    """
    total_s = now.latency_s - base.latency_s
    if total_s < _LEAST_LOSS * base.latency_s:
        return None
    both = min(base.core_delay, now.core_delay)
    cpu_s = _by_cores(((base, both), (now, both)), total_s)
    by_cores_s = _by_cores(((base, base.core_delay), (now, now.core_delay)), total_s)
    others_s = min(max(0.0, by_cores_s - cpu_s), now.latency_s * (1 - both / now.core_delay))
    return Loss(total_s=total_s, cpu_s=max(cpu_s, by_cores_s - others_s), others_s=others_s)


def _by_cores(sides: Sequence[tuple[Served, float]], total_s: float) -> float:
    """Returns how much of the total it is that requests need their cores for longer; sides are with their delays."""
    cores = max(math.ceil(side.cpu_s * delay * side.per_second - 0.5) for side, delay in sides)
    base, now = (replace(side, core_delay=delay, cores=max(side.cores, cores)) for side, delay in sides)
    if now.rate is not None and now.is_busy and not base.is_busy:
        return total_s  # a queue that grows without end is as long as the load lasts
    before_s, after_s = base.wait_s, now.wait_s
    first_s = latency_of(now, wait_s=before_s) - latency_of(base, wait_s=before_s)
    last_s = latency_of(now, wait_s=after_s) - latency_of(base, wait_s=after_s)
    return min(max(0.0, (first_s + last_s) / 2), total_s)


def _queued_s(cpu_s: float, rate: float) -> float:
    """Returns how long requests take that come by chance and need a core for so long; very long for too many."""
    busy = min(cpu_s * rate, 0.999)
    return cpu_s * (1 + busy / (2 * (1 - busy)))


# --- limiting

BUSY_CORE = 0.90
"""A process that runs for this share of the time has none left for more requests: the rest goes into waking it up."""
MORE_THAN_ONE = 1.05
"""Cores that a worker uses which can use several: a process of threads without a lock between them."""
WANTED_CORE = 0.95
"""Share of the time in which a process without room runs or waits for a core: no time goes into waking up then."""
NEARLY_BUSY_CORE = 0.85
"""Share of the time on a core that is enough where an event loop was not found idle either."""
ROOM_ON_CORE = 0.75
"""Below it a process has time for more requests; between this and BUSY_CORE who can tell."""
NEVER_IDLE = 0.10
"""An event loop that is found idle in at most this share of the looks sets the pace."""
FULL_POOL = 0.85
"""Mean share of a pool's threads that is busy where requests queue for them, while all are busy in MOST looks. Threads
that end together are handed their next work one after the other, which shows as a dip. A pool that requests need for
half of their time has grown to the most it ever needed at once, which lies well above its mean."""
QUEUE_FOR_POOL = 1.10
"""From this many requests for each busy thread some wait for one; fewer may be an error of the mean."""
SPARE_POOL = 0.70
"""A pool with a smaller busy share always has a thread to spare when a request comes."""
MOST = 0.50
"""Share of threads, looks or connections from which on one cause explains the rest."""
FEW = 0.25
"""Share up to which a cause explains nothing."""
IN_USE = 0.80
"""Requests in flight for each connection, in a closed loop that leaves the pace to the server."""
SAME_LATENCY = 0.80
"""Requests that take less than this share of the time when they are alone wait for each other when they are not."""
LIKE_LATENCY = 0.60
"""The same for the mean, which a few requests and stalls of the machine change."""
KEPT_UP = 0.03
"""By at most this share of the time may latencies grow in an open loop whose rate is reached, and by at most this
share of what is due the backlog."""
LEAST_ROUNDS = 3
"""Fewer do not show whether a backlog grows."""
A_FEW = 2
"""Requests that may be under way at the end of one round and not at that of another."""
CLEARLY_MORE = 1.2
"""Of two processes that both want a core all the time, the one that ran so much more is the one to wait for."""
LEAST_POOL = 2
"""Threads that make a pool; a single one may be an event loop of its own."""
MANY_LOOKS = 10
"""Looks from which on one state in all of them means that it lasts for 0.75 of the time, or more (95 % sure)."""
LEAST_QUEUE_LOOKS = 2
"""At the sockets, where each look counts all connections."""


class LimitKind(StrEnum):
    """What sets the pace; the text is for a column."""

    GENERATOR = "load generator"
    JOURNEY = "journey"
    """Its own code blocks the load generator's event loop: a call that should be awaited, such as `time.sleep`."""
    SERVER_CPU = "server CPU"
    EVENT_LOOP = "event loop"
    """Blocked by something that waits: a call in an `async def` that should be awaited, or be in a thread."""
    THREAD_POOL = "thread pool"
    CONCURRENCY = "concurrency"
    """The server waits: more requests in flight would be answered in the same time. Where they share what they wait
    for, such as a semaphore or a database, that may have a limit of its own, which cannot be seen from here."""
    DISK = "disk"
    NETWORK = "network"
    RATE = "rate"
    """The load asked for no more than it got."""
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What limited a run; as text `thread pool: 40 threads busy, 200 requests in flight, server CPU 6 %`."""

    kind: LimitKind
    evidence: str
    """The figures that say so, or all there is to say; may be empty where it is unclear."""
    queues: bool = field(default=False, compare=False)
    """Requests wait for each other, as where they share a lock. It is no part of a stored record."""

    def __str__(self) -> str:
        joint = ", " if self.evidence.startswith("at ") else ": "
        return f"{self.kind}{joint}{self.evidence}" if self.evidence else self.kind.value


def limit_of(recording: Recording) -> Limit:
    """Returns what set the pace of a run."""
    usage = usage_of(recording)
    if usage.rps == 0:
        return Limit(kind=LimitKind.UNCLEAR, evidence="no request succeeded")
    rules = _RULES if recording.engine != "in-process" else _IN_PROCESS_RULES
    return next(filter(None, (rule(recording, usage) for rule in rules)), _unclear(recording, usage))


def may_queue(recording: Recording) -> bool:
    """Returns whether requests may wait for each other, or for a thread: how long one takes alone would tell."""
    kind, threads = limit_of(recording).kind, usage_of(recording).threads
    for_thread = threads is not None and threads.pool_busy >= 1 - FEW
    return kind is LimitKind.CONCURRENCY or (kind is LimitKind.UNCLEAR and for_thread)


def _rate(recording: Recording, usage: Usage) -> Limit | None:
    """An open loop whose latencies and backlog do not grow, and in which no request was given up."""
    kinds = {failure.kind for round_ in recording.rounds for failure in round_.failures}
    slopes = [_latency_slope(boot.leads) for boot in recording.boots if boot.leads is not None]
    known = [slope for slope in slopes if slope is not None]
    if (
        kinds & {"dropped", "timeout"}
        or recording.due is None
        or recording.attack_ns <= 0
        or not known
        or fmean(known) > KEPT_UP
    ):
        return None
    if any(_falls_behind(recording, boot) for boot in recording.boots):
        return None
    asked = (recording.due - len(recording.boots)) / recording.attack_ns * 1e9  # from the first to the last
    return Limit(kind=LimitKind.RATE, evidence=f"{format_rate(asked)}/s were asked for, {_server_cpu(usage)}")


def _falls_behind(recording: Recording, boot: Boot) -> bool:
    """Returns whether ever more requests wait: a server that takes the newest first hides it from most latencies."""
    rounds = recording.of_boot(boot).measured()
    if boot.leads is None or len(rounds) < LEAST_ROUNDS:
        return False
    due_ns, counts = np.array(boot.leads.due_ns), np.array(boot.leads.counts)
    due = [int(counts[due_ns < round_.ended_ns - rounds[0].started_ns].sum()) for round_ in rounds]
    ended = list(accumulate(round_.requests for round_ in rounds))
    first = len(rounds) // 3
    growth = (due[-1] - ended[-1]) - (due[first] - ended[first])
    return growth > KEPT_UP * (due[-1] - due[first]) + A_FEW


def _busy_core(recording: Recording, usage: Usage) -> Limit | None:
    """A core that is used up: the generator's, or that of a worker of the server."""
    generator, workers = usage.generator, usage.workers
    if generator.ran >= BUSY_CORE:
        return _generator_limit(recording, f"at {_percent(generator.ran)} of its core")
    if children := _busy_children(usage):
        return _server_limit(children)
    mean = _mean_ran(workers)
    if mean >= BUSY_CORE:
        if mean > MORE_THAN_ONE:
            return _server_limit(f"at {mean * len(workers):.1f} cores")
        return _server_limit(f"at {_percent(mean)} of {_count(len(workers), 'core')}")
    if workers and workers[0].ran >= BUSY_CORE:
        rest = f"the least busy one at {_percent(workers[-1].ran)}"
        return _server_limit(
            f"at {_percent(workers[0].ran)} of 1 core in the busiest of {len(workers)} workers, {rest}"
        )
    return None


def _busy_process(_: Recording, usage: Usage) -> Limit | None:
    """The core of the test process, in which the app runs."""
    if usage.generator.ran < BUSY_CORE:
        return None
    return _server_limit(f"at {_percent(usage.generator.ran)} of 1 core, the load generator's part among it")


def _busy_children(usage: Usage) -> str:
    """Returns that children of the server leave none of its cores, or each of them none of its own; empty if not so."""
    if usage.children_ran < CHILDREN_WORK:
        return ""
    if usage.cores_used >= BUSY_CORE:
        ran = f"{usage.server_ran or 0.0:.1f} of {_count(usage.cores, 'core')}"
        return f"at {ran}, its child processes at {usage.children_ran:.1f}"
    children = usage.busiest_children
    if children and fmean(children) >= BUSY_CORE:
        return f"at {_percent(fmean(children))} of a core in {_count(len(children), 'child process')}"
    return ""


def _journey(recording: Recording, usage: Usage) -> Limit | None:
    """A journey that holds the generator's event loop for most of the time without computing: nobody else goes on."""
    if usage.code_blocked < MOST:
        return None
    blocked = f"its own code blocked the load generator's event loop for {_percent(usage.code_blocked)} of the time"
    return Limit(kind=LimitKind.JOURNEY, evidence=f"{blocked}: await what waits, or run it in a thread")


def _too_few_cores(recording: Recording, usage: Usage) -> Limit | None:
    """A process that always has something to do for a core, and has to share it with others."""
    generator, busiest = usage.generator, usage.workers[0] if usage.workers else CoreUse(ran=0.0)
    if max(generator.wanted, busiest.wanted) < WANTED_CORE:
        return None
    if generator.wanted < WANTED_CORE or (
        busiest.wanted >= WANTED_CORE and busiest.ran >= generator.ran * CLEARLY_MORE
    ):
        return _server_limit(_worker_waits(usage.workers))
    if busiest.wanted <= ROOM_ON_CORE or generator.ran >= busiest.ran * CLEARLY_MORE:
        return _generator_limit(recording, _waits(generator.main_ran, generator.main_waited), alone="it ")
    return _unclear(recording, usage, "every core is taken")


def _never_idle(recording: Recording, usage: Usage) -> Limit | None:
    """A server that was busy whenever it was looked at, on a core or waiting for one."""
    threads, workers = usage.threads, usage.workers
    if threads is None or not workers:
        return None
    if threads.idle <= NEVER_IDLE and workers[0].wanted >= NEARLY_BUSY_CORE:
        return _server_limit(f"{_worker_waits(workers[:1])}, and was not found idle")
    if threads.running >= WANTED_CORE and threads.looks >= MANY_LOOKS:
        return _server_limit(
            f"it ran {_percent(_mean_ran(workers))} of the time, and had something to run all the time"
        )
    return None


def _event_loop(recording: Recording, usage: Usage) -> Limit | None:
    """An event loop that is never idle, and spends most of its time in calls that wait: one request at a time."""
    threads = usage.threads
    if threads is None or not usage.workers:
        return None
    waits = 1 - fmean(worker.wanted for worker in usage.workers)
    if threads.idle > NEVER_IDLE or waits < MOST:
        return None
    # Short waits are often over when a look comes to them: then the machine's account of waits for storage decides.
    stuck = threads.blocked + threads.storage
    of_machine = usage.storage_stalled / waits
    if usage.storage_used and threads.storage > 0 and max(threads.storage / stuck, of_machine) >= MOST:
        evidence = f"the event loop waits for it, blocked {_percent(waits)} of the time, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.DISK, evidence=evidence)
    if stuck >= waits * MOST and threads.storage <= stuck * FEW and not (usage.storage_used and of_machine > FEW):
        each = format_duration(waits * len(usage.workers) / usage.rps * 1e9)
        evidence = f"blocked {_percent(waits)} of the time, {each} a request, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.EVENT_LOOP, evidence=evidence)
    return _unclear(recording, usage, "the event loop is never idle")


def _no_room(recording: Recording, usage: Usage) -> Limit | None:
    """A core that is too busy to be ruled out and not busy enough to be blamed, or about which nothing is known."""
    if max(_wanted(recording, usage), usage.generator.wanted) > ROOM_ON_CORE:
        return _unclear(recording, usage)
    return None


def _thread_pool(recording: Recording, usage: Usage) -> Limit | None:
    """A pool whose threads are all busy while requests wait for one; or the disk, where its threads wait for that."""
    threads = usage.threads
    if threads is None:
        return None
    busy, in_flight = threads.pool_busy, usage.in_flight
    full = threads.pool >= LEAST_POOL and busy >= threads.pool * FULL_POOL and threads.pool_full >= MOST
    full = full and in_flight >= busy * QUEUE_FOR_POOL + 1
    if threads.pool_storage >= max(busy, 1) * MOST and usage.storage_used and (full or busy >= in_flight * MOST):
        evidence = f"{threads.pool_storage:.0f} of {busy:.0f} busy threads wait for it, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.DISK, evidence=evidence)
    if not full:
        return None
    if threads.pool_lock >= busy * MOST:
        return _unclear(recording, usage, _locked(threads))
    evidence = f"{busy:.0f} threads busy, {_in_flight(usage)}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.THREAD_POOL, evidence=evidence)


def _network(_: Recording, usage: Usage) -> Limit | None:
    """Bytes that one side has written and the other has not got, though it read all that came."""
    if usage.queue_looks < LEAST_QUEUE_LOOKS or usage.under_way < max(1.0, usage.in_flight * MOST):
        return None
    evidence = f"bytes wait to be sent on {usage.under_way:.0f} connections, {_in_flight(usage)}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.NETWORK, evidence=evidence)


def _concurrency(recording: Recording, usage: Usage) -> Limit | None:
    """A server that has time left on its cores, its event loop and its threads, while every connection waits for it."""
    threads = usage.threads
    if threads is None or usage.in_flight < recording.connections * IN_USE:
        return None
    elsewhere = max(threads.blocked + threads.storage, usage.under_way / usage.in_flight)
    if elsewhere > FEW or threads.running > ROOM_ON_CORE or threads.idle < (1 - _wanted(recording, usage)) * MOST:
        return None
    queue = _queue(recording, usage)
    if queue is not None:
        return _unclear(recording, usage, queue, queues=bool(queue))
    a_thread_each = threads.pool_busy >= usage.in_flight * IN_USE
    if threads.pool_busy >= 1 and threads.pool_lock >= threads.pool_busy * MOST:
        return _unclear(recording, usage, _locked(threads))
    if threads.pool_busy > threads.pool * SPARE_POOL and threads.pool_busy > FEW and not a_thread_each:
        return None
    where = ", each in a thread of its own" if a_thread_each else ""
    evidence = f"{_in_flight(usage)} on {_count(recording.connections, 'connection')}{where}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.CONCURRENCY, evidence=evidence)


_IN_PROCESS_RULES = (_rate, _busy_process, _no_room, _network, _concurrency)
"""The process of such an app is its load generator, too: what its threads do says nothing about one of the two."""
_RULES = (
    _rate,
    _busy_core,
    _journey,
    _too_few_cores,
    _never_idle,
    _event_loop,
    _no_room,
    _thread_pool,
    _network,
    _concurrency,
)


def _unclear(recording: Recording, usage: Usage, why: str = "", *, queues: bool = False) -> Limit:
    known = f"{_in_flight(usage)} on {_count(recording.connections, 'connection')}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.UNCLEAR, evidence=f"{why}, {known}" if why else known, queues=queues)


def _queue(recording: Recording, usage: Usage) -> str | None:
    """Returns how requests wait for each other, or nothing where that is not clear; None where they do not.

    A request that is alone meets no queue. By Little's law the answers per second, times how long it takes, are the
    requests that are served at a time. What all of them need of the cores they wait for in any case.
    """
    alone = Histogram.merged(boot.alone for boot in recording.boots)
    loaded = recording.service() if recording.open_loop else recording.latency()
    if recording.connections == 1:
        return None
    if not alone.count:
        return ""
    alone_s, loaded_s = alone.percentile_ns(50) / 1e9, loaded.percentile_ns(50) / 1e9
    cores = max(1, len(usage.workers))
    cpu_s = min(alone_s, _wanted(recording, usage) * cores / usage.rps)
    served = Served(latency_s=loaded_s, cpu_s=cpu_s, connections=recording.connections, cores=cores)
    if latency_of(served, wait_s=alone_s - cpu_s) < SAME_LATENCY * loaded_s:
        served_at_once = max(1, round(usage.rps * alone_s))
        verb = "is" if served_at_once == 1 else "are"
        return f"requests wait for each other, about {served_at_once} {verb} served at a time"
    # Of requests that differ a few may wait while most do not.
    return "" if alone.mean_ns() < LIKE_LATENCY * loaded.mean_ns() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Third:
    """The requests of an open loop that were due in its first or its last third; means of all of them."""

    due_ns: float
    latency_ns: float
    error_ns: float
    """Standard error of the latency; infinite for a single one."""
    number: float
    """Place among all requests of the load."""


def _latency_slope(leads: LeadTimes) -> float | None:
    """Returns by how much latencies grew per time, from the first to the last third of when requests were due.

    It is 0 where a server keeps up, and the share that it cannot keep up with where it does not. None where all
    requests were due at once.
    """
    if (thirds := _thirds(leads)) is None:
        return None
    early, late = thirds
    return (late.latency_ns - early.latency_ns) / (late.due_ns - early.due_ns)


def backlog_growth(leads: LeadTimes, rate: float, *, errors: float) -> float:
    """Returns by which share of its requests a load's backlog grew, at the least; 0.0 or less if the server kept up.

    Latencies grow by that share of the time, and answers come slower by it than requests at this `rate` (per second).
    A crowd of requests makes latencies grow too, but its answers come faster. Where few requests came by chance, few
    answers come, but latencies do not grow. A rise of less than so many standard `errors` is none.
    """
    if (thirds := _thirds(leads)) is None:
        return 0.0
    early, late = thirds
    rise_ns, run_ns = late.latency_ns - early.latency_ns, late.due_ns - early.due_ns
    if rise_ns <= errors * math.hypot(early.error_ns, late.error_ns):
        return 0.0
    expected = rate * (rise_ns + run_ns) / 1e9
    return min(rise_ns / run_ns, expected / (late.number - early.number) - 1)


def _thirds(leads: LeadTimes) -> tuple[_Third, _Third] | None:
    """Returns the first and the last third of the time in which requests were due; None where that was no time."""
    due, mean, counts = (np.array(column, dtype=np.float64) for column in (leads.due_ns, leads.mean_ns, leads.counts))
    early, late = due <= due[-1] / 3, due >= due[-1] * 2 / 3
    if due[-1] == 0 or not early.any():
        return None
    numbers = np.cumsum(counts) - counts / 2

    def third(own: NDArray[np.bool_]) -> _Third:
        weights, df = counts[own], np.count_nonzero(own) - 1
        latency_ns = np.average(mean[own], weights=weights)
        variance = np.average((mean[own] - latency_ns) ** 2, weights=weights)
        return _Third(
            due_ns=float(np.average(due[own], weights=weights)),
            latency_ns=float(latency_ns),
            error_ns=math.sqrt(variance / df) if df else math.inf,
            number=float(np.average(numbers[own], weights=weights)),
        )

    return third(early), third(late)


def _generator_limit(recording: Recording, evidence: str, *, alone: str = "") -> Limit:
    """Returns that the generator sets the pace; of several, which one."""
    title = busiest_title(recording)
    return Limit(kind=LimitKind.GENERATOR, evidence=f"{title} {evidence}" if title else f"{alone}{evidence}")


def _server_limit(evidence: str) -> Limit:
    return Limit(kind=LimitKind.SERVER_CPU, evidence=evidence)


def _worker_waits(workers: Sequence[CoreUse]) -> str:
    """Returns `its 2 workers ran 62 % and waited 36 % of the time for a core`, of those that want one all the time."""
    short = [worker for worker in workers if worker.wanted >= WANTED_CORE] or workers
    who = "its worker" if len(workers) == 1 else f"its {len(workers)} workers"
    if len(short) < len(workers):
        who = f"{len(short)} of {who}"
    ran, waited = (fmean(value) for value in zip(*((use.main_ran, use.main_waited) for use in short), strict=True))
    return f"{who} {_waits(ran, waited)}"


def _waits(ran: float, waited: float) -> str:
    return f"ran {_percent(ran)} and waited {_percent(waited)} of the time for a core"


def _wanted(recording: Recording, usage: Usage) -> float:
    """Returns the share of the time in which the busiest worker had something to do for a core; 1.0 if not known."""
    if recording.engine == "in-process":
        return usage.generator.ran
    if usage.children_ran >= CHILDREN_WORK:
        return max(usage.cores_used, *(worker.wanted for worker in usage.workers), *usage.busiest_children)
    if usage.workers:
        return usage.workers[0].wanted
    return 1.0 if usage.server_ran is None else usage.server_ran


def _mean_ran(workers: Sequence[CoreUse]) -> float:
    return fmean(worker.ran for worker in workers) if workers else 0.0


def _locked(threads: ThreadShares) -> str:
    return f"{threads.pool_lock:.0f} of {threads.pool_busy:.0f} busy threads wait for a lock or another thread"


def _in_flight(usage: Usage) -> str:
    return f"{_count(usage.in_flight, 'request')} in flight"


def _server_cpu(usage: Usage) -> str:
    """Returns `server CPU 6 %`, of all workers' cores together."""
    ran = sum(worker.ran for worker in usage.workers) if usage.workers else usage.server_ran
    if ran is None:
        return "server CPU unknown"
    cores = len(usage.workers) or 1
    if usage.children_ran >= CHILDREN_WORK:
        return f"server CPU {usage.server_ran or 0.0:.2f} of {_count(usage.cores, 'core')}"
    return f"server CPU {_percent(ran / cores)}{f' of {cores} cores' if cores > 1 else ''}"


def _count(number: float, what: str) -> str:
    plural = "es" if what.endswith("s") else "s"
    return f"{number:.0f} {what}{'' if round(number) == 1 else plural}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %"


# --- Finds the times in which an event loop was blocked: one thing ran or waited on it, and no request was answered
#
# Seen from outside, in a load that is looked at closely. A loop that answers request after request is busy, not
# blocked. Which code blocks it is found in stacks of the main thread, those of all its time.

LEAST_STALL_NS = 10_000_000
"""Shorter ones are not told from a loop that has much to do, by looks that are some milliseconds apart."""
_LEAST_LOOKS = 2
_HOLDS = 0.5
"""Share of the time of a blocked loop that makes a function its holder."""
_LOOP = re.compile(r".*/(?:selectors|asyncio/(?:runners|base_events|events)|uvloop/\w+|uvicorn/\w+|trio/_core/\w+)\.py")
"""Where the innermost function is while a loop has nothing to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """How an event loop was blocked in a load."""

    typical_s: float
    """Half of all blocked time is in stalls of this length or longer."""
    lost_s: float
    """What requests waited for it, each on average."""
    waits: bool
    """Whether the loop waited in them for most of the time; else it computed."""


def stalls_of(
    samples: Sequence[Sample], ends_ns: Sequence[int], *, worker: int, connections: int | None, span_ns: tuple[int, int]
) -> Stalls | None:
    """Returns the stalls of a worker's loop; None without any.

    `ends_ns` says when answers ended, ascending, and `span_ns` from when to when all are known. `connections` are those
    of a closed loop, which wait in every stall; None in an open loop, where requests come while it lasts.
    """
    start_ns, end_ns = span_ns
    looks = [
        (sample.at_ns, process.main)
        for sample in samples
        for process in sample.server
        if process.pid == worker and process.main is not None and start_ns <= sample.at_ns <= end_ns
    ]
    found = [stall for stall in _stretches(looks, ends_ns, span_ns) if stall[0] >= LEAST_STALL_NS]
    if not found or not ends_ns:
        return None
    lengths = sorted((length / 1e9 for length, _ in found), reverse=True)
    total_s = sum(lengths)
    if connections is None:
        lost_s = sum(length**2 for length in lengths) / 2 / ((end_ns - start_ns) / 1e9)
    else:
        lost_s = total_s * connections / len(ends_ns)
    waited_s = sum(length * waited for length, waited in found) / 1e9
    passed = zip(lengths, accumulate(lengths), strict=True)
    typical_s = next(length for length, sum_s in passed if sum_s >= total_s / 2)
    return Stalls(typical_s=typical_s, lost_s=lost_s, waits=waited_s >= total_s / 2)


def held_by(collapsed: Iterable[str]) -> Stack | None:
    """Returns the functions that hold the loop for half of the time in which it is not idle, outermost first.

    Takes texts of py-spy with threads and idle time. None where nothing holds it for so long, or only what runs it: a
    thread that holds Python's lock is not on its stack.
    """
    seen: Counter[Stack] = Counter()
    for is_main, stack, count in (found for text in collapsed for found in stacks_in(text)):
        if is_main and not _LOOP.fullmatch(stack[-1].file.replace("\\", "/")):
            seen[stack] += count
    held: list[Frame] = []
    while True:
        next_: Counter[Frame] = Counter()
        for stack, count in seen.items():
            if len(stack) > len(held) and list(stack[: len(held)]) == held:
                next_[stack[len(held)]] += count
        most = next_.most_common(1)
        if not most or most[0][1] < seen.total() * _HOLDS:
            is_held = held and not _LOOP.fullmatch(held[-1].file.replace("\\", "/"))
            return tuple(held) if is_held else None
        held.append(most[0][0])


def _stretches(
    looks: Sequence[tuple[int, MainThread]], ends_ns: Sequence[int], span_ns: tuple[int, int]
) -> list[tuple[int, float]]:
    """Returns times without an answer in which every look found the loop at something: length, and share that waits."""
    found = []
    edges = [span_ns[0], *ends_ns, span_ns[1]]
    at = 0
    for before, after in pairwise(edges):
        busy: list[tuple[int, MainThread]] = []
        begins_ns = before
        while at < len(looks) and looks[at][0] <= after:
            look = looks[at]
            at += 1
            if look[1] is not MainThread.IDLE:
                busy.append(look)
                continue
            if busy:
                found += _stall(busy, begins_ns, (busy[-1][0] + look[0]) // 2)
            # On average something between two looks began half way.
            busy, begins_ns = [], look[0] + ((looks[at][0] - look[0]) // 2 if at < len(looks) else 0)
        found += _stall(busy, begins_ns, after)
    return found


def _stall(busy: Sequence[tuple[int, MainThread]], begins_ns: int, ends_ns: int) -> list[tuple[int, float]]:
    """Returns the stall that these looks show; nothing where there are too few."""
    if len(busy) < _LEAST_LOOKS:
        return []
    waited = sum(state is not MainThread.RUNNING for _, state in busy) / len(busy)
    return [(ends_ns - begins_ns, waited)]
