"""Names the bottleneck that limits a load, with the figures that show it. If unsure, it says `unclear`.

Each rule below looks for one bottleneck. The first rule that is sure decides. Rules for cores come first, because a
busy core also makes threads and queues look busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from pytest_fileperf.measure.backlog import keeps_up
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.loss import Served, latency_of
from pytest_fileperf.measure.usage import BUSY_CORE, CHILDREN_WORK, CoreUse, ThreadShares, Usage, busiest_title
from pytest_fileperf.units import format_duration, format_rate

WANTED_CORE = 0.95
"""A process is saturated if it runs, or waits for a core, during at least this share of the time."""
NEARLY_BUSY_CORE = 0.85
"""As `WANTED_CORE`, for a process whose event loop was never idle."""
ROOM_ON_CORE = 0.75
"""A process that wants a core for a smaller share of the time could serve more requests. Between this share and
`BUSY_CORE`, nobody can tell."""
NEVER_IDLE = 0.10
"""An event loop counts as never idle if at most this share of the samples found it idle."""
FULL_POOL = 0.85
"""From this mean share of busy threads on, a thread pool counts as full. Threads that end together get new work one
after the other, so a full pool's share dips. A pool with spare threads has a far lower mean."""
QUEUE_FOR_POOL = 1.10
"""From this many requests in flight per busy thread on, some requests wait for a thread. A smaller excess may be
chance."""
SPARE_POOL = 0.70
"""If a smaller share of a pool's threads is busy, the next request always finds a free thread."""
MOST = 0.50
"""If a cause has at least this share of threads, samples or connections, it explains a limit."""
FEW = 0.25
"""A cause with a smaller share of threads, samples or connections explains nothing."""
IN_USE = 0.80
"""If the server limits a closed loop, at least this share of connections has a request in flight."""
SAME_LATENCY = 0.80
"""Requests sent one by one, together with waits for cores, predict the median latency under load. If the prediction is
less than this share of the real median, requests wait for each other."""
LIKE_LATENCY = 0.60
"""If `Boot.alone` has a mean below this share of the latency under load, some requests may wait. It is smaller than
`SAME_LATENCY`, because a few slow requests change a mean."""
CLEARLY_MORE = 1.2
"""If two processes want a core all the time, the one that ran longer by this factor is the bottleneck."""
MANY_LOOKS = 10
"""If this many samples all show one state, it lasts for at least 75 % of the time, with 95 % confidence."""


class LimitKind(StrEnum):
    """The bottleneck that limits a load."""

    GENERATOR = "load generator"
    JOURNEY = "journey"
    """The journey's own code blocks the load generator's event loop, for example with `time.sleep`."""
    SERVER_CPU = "server CPU"
    EVENT_LOOP = "event loop"
    """A call in an `async def` blocks the server's loop: the call should be awaited, or run in a thread."""
    THREAD_POOL = "thread pool"
    CONCURRENCY = "concurrency"
    """The server mostly waits, so more requests at once would get more answers per second. A hidden limit, such as a
    semaphore or a database, may prevent this."""
    DISK = "disk"
    NETWORK = "network"
    RATE = "rate"
    """The server answered all requests that the load asked for."""
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The bottleneck of a load. Its text: `thread pool: 40 threads busy, 200 requests in flight, server CPU 6 %`."""

    kind: LimitKind
    evidence: str
    """The figures that show the limit. May be empty if `kind` is unclear."""
    queues: bool = field(default=False, compare=False)
    """Whether requests wait for each other, for example for a lock."""

    def __str__(self) -> str:
        joint = ", " if self.evidence.startswith("at ") else ": "
        return f"{self.kind}{joint}{self.evidence}" if self.evidence else self.kind.value


def limit_of(usage: Usage) -> Limit:
    if usage.rps == 0:
        return Limit(kind=LimitKind.UNCLEAR, evidence="no request succeeded")
    rules = _RULES if usage.recording.engine != "in-process" else _IN_PROCESS_RULES
    return next(filter(None, (rule(usage) for rule in rules)), _unclear(usage))


def may_queue(usage: Usage) -> bool:
    """Returns whether requests may wait for each other or for a thread. If so, requests sent one by one are faster."""
    kind, threads = limit_of(usage).kind, usage.threads
    for_thread = threads is not None and threads.pool_busy >= 1 - FEW
    return kind is LimitKind.CONCURRENCY or (kind is LimitKind.UNCLEAR and for_thread)


def _rate(usage: Usage) -> Limit | None:
    """Finds an open loop that reached its rate: neither latencies nor backlog grew, and no request was given up."""
    recording = usage.recording
    kinds = {failure.kind for round_ in recording.rounds for failure in round_.failures}
    if kinds & {"dropped", "timeout"} or recording.due is None or recording.attack_ns <= 0 or not keeps_up(recording):
        return None
    asked = (recording.due - len(recording.boots)) / recording.attack_ns * 1e9  # from the first to the last
    return Limit(kind=LimitKind.RATE, evidence=f"{format_rate(asked)}/s requested, {_server_cpu(usage)}")


def _busy_core(usage: Usage) -> Limit | None:
    generator, workers, mean = usage.generator, usage.workers, _mean_ran(usage.workers)
    if generator.ran >= BUSY_CORE:
        return _generator_limit(usage, f"at {_percent(generator.ran)} of its core")
    if children := _busy_children(usage):
        return _server_limit(children)
    if mean > 1.05:  # several cores each: their threads share no lock
        return _server_limit(f"at {mean * len(workers):.1f} cores")
    if mean >= BUSY_CORE:
        return _server_limit(f"at {_percent(mean)} of {_count(len(workers), 'core')}")
    if workers and workers[0].ran >= BUSY_CORE:
        busiest = f"at {_percent(workers[0].ran)} of 1 core in the busiest of {len(workers)} workers"
        return _server_limit(f"{busiest}, the least busy one at {_percent(workers[-1].ran)}")
    return None


def _busy_process(usage: Usage) -> Limit | None:
    if usage.generator.ran < BUSY_CORE:
        return None
    return _server_limit(f"at {_percent(usage.generator.ran)} of 1 core, including the load generator")


def _busy_children(usage: Usage) -> str:
    """Returns evidence if busy child processes limit the server; else empty."""
    if usage.children_ran < CHILDREN_WORK:
        return ""
    if usage.cores_used >= BUSY_CORE:
        ran = f"{usage.server_ran or 0.0:.1f} of {_count(usage.cores, 'core')}"
        return f"at {ran}, of which its child processes use {usage.children_ran:.1f}"
    children = usage.busiest_children
    if children and fmean(children) >= BUSY_CORE:
        return f"at {_percent(fmean(children))} of a core on average in {_count(len(children), 'child process')}"
    return ""


def _journey(usage: Usage) -> Limit | None:
    if usage.code_blocked < MOST:
        return None
    blocked = f"its own code blocked the load generator's event loop for {_percent(usage.code_blocked)} of the time"
    return Limit(kind=LimitKind.JOURNEY, evidence=f"{blocked}. Await the calls that block it, or run them in a thread")


def _too_few_cores(usage: Usage) -> Limit | None:
    """Finds a process that always has work, but has to wait for a core."""
    generator, busiest = usage.generator, usage.workers[0] if usage.workers else CoreUse(ran=0.0)
    if max(generator.wanted, busiest.wanted) < WANTED_CORE:
        return None
    if generator.wanted < WANTED_CORE or (
        busiest.wanted >= WANTED_CORE and busiest.ran >= generator.ran * CLEARLY_MORE
    ):
        return _server_limit(_worker_waits(usage.workers))
    if busiest.wanted <= ROOM_ON_CORE or generator.ran >= busiest.ran * CLEARLY_MORE:
        return _generator_limit(usage, _waits(generator.main_ran, generator.main_waited), alone="it ")
    return _unclear(usage, "every core is in use")


def _never_idle(usage: Usage) -> Limit | None:
    """Finds a server that was busy in every sample, on a core or waiting for one."""
    threads, workers = usage.threads, usage.workers
    if threads is None or not workers:
        return None
    if threads.idle <= NEVER_IDLE and workers[0].wanted >= NEARLY_BUSY_CORE:
        return _server_limit(f"{_worker_waits(workers[:1])}, and was never idle")
    if threads.running >= WANTED_CORE and threads.looks >= MANY_LOOKS:
        ran = f"it ran {_percent(_mean_ran(workers))} of the time"
        return _server_limit(f"{ran}, and always had work")
    return None


def _event_loop(usage: Usage) -> Limit | None:
    """Finds an event loop that is never idle, but mostly waits inside calls: it serves one request at a time."""
    threads = usage.threads
    if threads is None or not usage.workers:
        return None
    waits = 1 - fmean(worker.wanted for worker in usage.workers)
    if threads.idle > NEVER_IDLE or waits < MOST:
        return None
    # A look often misses short waits. Then the machine's account of waits for storage decides.
    stuck = threads.stuck
    of_machine = usage.storage_stalled / waits
    if usage.storage_used and threads.storage > 0 and max(threads.storage / stuck, of_machine) >= MOST:
        evidence = f"the event loop waits for it {_percent(waits)} of the time, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.DISK, evidence=evidence)
    if stuck >= waits * MOST and threads.storage <= stuck * FEW and not (usage.storage_used and of_machine > FEW):
        each = format_duration(waits * len(usage.workers) / usage.rps * 1e9)
        by = f"blocked {_percent(waits)} of the time by calls that are not awaited"
        evidence = f"{by}, {each} per request, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.EVENT_LOOP, evidence=evidence)
    return _unclear(usage, "the event loop is never idle")


def _no_room(usage: Usage) -> Limit | None:
    """Finds a process that may be the bottleneck, but not surely."""
    if max(_wanted(usage), usage.generator.wanted) > ROOM_ON_CORE:
        return _unclear(usage)
    return None


def _thread_pool(usage: Usage) -> Limit | None:
    """Finds a pool whose threads are all busy while requests wait, or the disk that these threads wait for."""
    threads = usage.threads
    if threads is None:
        return None
    busy, in_flight = threads.pool_busy, usage.in_flight
    # A single thread is not a pool: it may be an event loop of its own.
    full = threads.pool >= 2 and busy >= threads.pool * FULL_POOL and threads.pool_full >= MOST
    full = full and in_flight >= busy * QUEUE_FOR_POOL + 1
    if threads.pool_storage >= max(busy, 1) * MOST and usage.storage_used and (full or busy >= in_flight * MOST):
        evidence = f"{threads.pool_storage:.0f} of {busy:.0f} busy threads wait for it, {_server_cpu(usage)}"
        return Limit(kind=LimitKind.DISK, evidence=evidence)
    if not full:
        return None
    if threads.pool_lock >= busy * MOST:
        return _unclear(usage, _locked(threads))
    evidence = f"{busy:.0f} threads busy, {_in_flight(usage)}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.THREAD_POOL, evidence=evidence)


def _network(usage: Usage) -> Limit | None:
    """Finds connections whose bytes are stuck between generator and server."""
    if len(usage.queues) < 2 or usage.under_way < max(1.0, usage.in_flight * MOST):
        return None
    evidence = f"bytes wait to be sent on {usage.under_way:.0f} connections, {_in_flight(usage)}, {_server_cpu(usage)}"
    return Limit(kind=LimitKind.NETWORK, evidence=evidence)


def _concurrency(usage: Usage) -> Limit | None:
    """Finds a server with idle cores, event loop and threads, while every connection waits for it."""
    threads = usage.threads
    if threads is None or usage.in_flight < usage.recording.connections * IN_USE:
        return None
    elsewhere = max(threads.stuck, usage.under_way / usage.in_flight)
    if elsewhere > FEW or threads.running > ROOM_ON_CORE or threads.idle < (1 - _wanted(usage)) * MOST:
        return None
    queue = _queue(usage)
    if queue is not None:
        return _unclear(usage, queue, queues=bool(queue))
    a_thread_each = threads.pool_busy >= usage.in_flight * IN_USE
    if threads.pool_busy >= 1 and threads.pool_lock >= threads.pool_busy * MOST:
        return _unclear(usage, _locked(threads))
    if threads.pool_busy > threads.pool * SPARE_POOL and threads.pool_busy > FEW and not a_thread_each:
        return None
    where = ", each in a thread of its own" if a_thread_each else ""
    return Limit(kind=LimitKind.CONCURRENCY, evidence=_known(usage, where))


_IN_PROCESS_RULES = (_rate, _busy_process, _no_room, _network, _concurrency)
"""Rules for an app in the load generator's process, whose threads say nothing about the app alone."""
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


def _unclear(usage: Usage, why: str = "", *, queues: bool = False) -> Limit:
    return Limit(kind=LimitKind.UNCLEAR, evidence=f"{why}, {_known(usage)}" if why else _known(usage), queues=queues)


def _known(usage: Usage, where: str = "") -> str:
    connections = _count(usage.recording.connections, "connection")
    return f"{_in_flight(usage)} on {connections}{where}, {_server_cpu(usage)}"


def _queue(usage: Usage) -> str | None:
    """Returns how requests wait for each other, as text. Empty if unclear; None if they do not wait.

    Requests that were sent one by one met no queue. If they took clearly less time, requests queue under load.
    """
    recording = usage.recording
    alone = Histogram.merged(boot.alone for boot in recording.boots)
    loaded = recording.merged("service" if recording.open_loop else "latency")
    if recording.connections == 1:
        return None
    if not alone.count:
        return ""
    alone_s, loaded_s = alone.percentile_ns(50) / 1e9, loaded.percentile_ns(50) / 1e9
    cores = max(1, len(usage.workers))
    cpu_s = min(alone_s, _wanted(usage) * cores / usage.rps)
    served = Served(latency_s=loaded_s, cpu_s=cpu_s, connections=recording.connections, cores=cores)
    if latency_of(served, wait_s=alone_s - cpu_s) < SAME_LATENCY * loaded_s:
        served_at_once = max(1, round(usage.rps * alone_s))  # Little's law
        return f"requests wait for each other, and the server handles about {served_at_once} at a time"
    # If requests differ, a few may wait while most do not.
    return "" if alone.mean_ns() < LIKE_LATENCY * loaded.mean_ns() else None


def _generator_limit(usage: Usage, evidence: str, *, alone: str = "") -> Limit:
    title = busiest_title(usage.recording)
    return Limit(kind=LimitKind.GENERATOR, evidence=f"{title} {evidence}" if title else f"{alone}{evidence}")


def _server_limit(evidence: str) -> Limit:
    return Limit(kind=LimitKind.SERVER_CPU, evidence=evidence)


def _worker_waits(workers: Sequence[CoreUse]) -> str:
    """Returns `its 2 workers ran 62 % and waited 36 % of the time for a core`. Workers with spare time are left out."""
    short = [worker for worker in workers if worker.wanted >= WANTED_CORE] or workers
    who = "its worker" if len(workers) == 1 else f"its {len(workers)} workers"
    if len(short) < len(workers):
        who = f"{len(short)} of {who}"
    ran, waited = (fmean(value) for value in zip(*((use.main_ran, use.main_waited) for use in short), strict=True))
    return f"{who} {_waits(ran, waited)}"


def _waits(ran: float, waited: float) -> str:
    return f"ran {_percent(ran)} and waited {_percent(waited)} of the time for a core"


def _wanted(usage: Usage) -> float:
    """Returns the share of the time in which the server's busiest process wanted a core; 1.0 if unknown."""
    if usage.recording.engine == "in-process":
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
