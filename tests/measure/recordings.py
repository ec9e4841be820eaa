"""Rounds and recordings made by hand; for what is judged from samples, two seconds of load and ten looks in each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pytest_fileperf.host.sample import CoreTime, MainThread, ProcessUse, Sample, SocketQueues, ThreadUse
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, Failure, LeadTimes, Phase, Recording, Round

MS, SECOND = 1_000_000, 1_000_000_000
LENGTH_NS = 2 * SECOND
LOOK_NS = SECOND // 10
GENERATOR = 900
STATES = {
    "i": MainThread.IDLE,
    "r": MainThread.RUNNING,
    "b": MainThread.BLOCKED,
    "s": MainThread.STORAGE,
}


def in_ms(*values_ms: float, times: int = 1) -> Histogram:
    return Histogram.of([round(value * MS) for value in values_ms] * times)


@cache
def alike(latency_ms: int, requests: int) -> Histogram:
    return in_ms(latency_ms, times=requests)


def round_of(
    requests: int | None = None,
    *,
    latency: Histogram | None = None,
    boot: int = 0,
    index: int = 0,
    phase: Phase = Phase.ROUND,
    start_ns: int | None = None,
    length_ns: int = SECOND,
    **more: Any,
) -> Round:
    """A round whose requests take 5 ms, each with a thousand bytes; it begins in the second of its index."""
    latency = alike(5, requests or 0) if latency is None else latency
    requests = latency.count if requests is None else requests
    start_ns = index * SECOND if start_ns is None else start_ns
    told = {"requests": requests, "ttfb": latency, "bytes_sent": 0, "bytes_received": 1000 * requests}
    return Round(
        boot=boot,
        index=index,
        phase=phase,
        started_ns=start_ns,
        ended_ns=start_ns + length_ns,
        latency=latency,
        **{**told, **more},
    )


def recording_of(
    *rounds: Round, boots: tuple[Boot, ...] = (Boot(index=0),), connections: int = 4, open_loop: bool = False
) -> Recording:
    return Recording(rounds=rounds, boots=boots, connections=connections, engine="replay", open_loop=open_loop)


def use(pid: int = 1, *, cpu_s: float = 0.0, **more: Any) -> ProcessUse:
    """A process of which nothing but its CPU time is known."""
    unknown: dict[str, Any] = dict.fromkeys(("main_cpu_ns", "waiting_ns", "files", "written_bytes", "read_bytes"))
    told = {"rss_bytes": 0, "threads": 1, **unknown, **more}
    return ProcessUse(pid=pid, cpu_ns=round(cpu_s * SECOND), **told)


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What a process does in each second, as shares."""

    ran: float = 0.05
    waited: float = 0.0
    main_ran: float | None = None
    """Of the whole; None for all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Everything a recording is made of; as it stands, a server that waits, as with `asyncio.sleep`."""

    connections: int = 32
    in_flight: float = 32.0
    requests: int = 200
    """In the round."""
    workers: Sequence[Core] = (Core(),)
    generator: Core = Core()
    main: str = "i"
    """What the main threads do at the looks, one letter each, over and over."""
    looks: int = 21
    """How many samples there are, from the beginning."""
    running: int = 0
    """Threads besides the main one that are on a core."""
    busy: Sequence[int] = (0,)
    """Busy threads at the looks, over and over, in the first worker."""
    pool: int = 0
    storage: int = 0
    """Of the busy threads."""
    lock: int = 0
    written: int = 0
    """Bytes written to storage in each second."""
    stalled: float = 0.0
    """Share of the time in which something on the machine waits for storage."""
    bytes_known: bool = True
    under_way: int = 0
    """Connections with bytes under way; -1 for no looks at the sockets."""
    threads_known: bool = True
    code_held: float = 0.0
    """Share of the time in which a journey's code holds the generator's event loop."""
    engine: str = "replay"
    leads: LeadTimes | None = None
    due: int | None = None
    failures: tuple[Failure, ...] = ()
    workers_known: bool = True
    server_cpu_known: bool = True
    cores: frozenset[int] = frozenset({0})
    generator_cores: frozenset[int] = frozenset({1})
    core_busy: Mapping[int, float] = field(default_factory=dict)
    """What each core of the machine does in each second, as a share; empty where the system does not tell."""
    core_stolen: Mapping[int, float] = field(default_factory=dict)
    """What the host takes of it."""

    def recording(self) -> Recording:
        """Returns it as it would have been measured."""
        pids = tuple(range(1, len(self.workers) + 1))
        latencies = Histogram.of([round(self.in_flight * LENGTH_NS / max(1, self.requests))] * self.requests)
        open_loop = self.leads is not None
        return Recording(
            rounds=(
                round_of(
                    latency=latencies,
                    length_ns=LENGTH_NS,
                    service=latencies if open_loop else Histogram.of(()),
                    failures=self.failures,
                    server_cpu_ns=self._server_cpu_ns(),
                    client_cpu_ns=round(self.generator.ran * LENGTH_NS),
                    code_ns=round(self.code_held * LENGTH_NS),
                ),
            ),
            boots=(
                Boot(
                    index=0,
                    pids=pids,
                    worker_pids=pids if self.workers_known else (),
                    cores=self.cores,
                    generator_cores=self.generator_cores if self.engine != "in-process" else frozenset(),
                    samples=tuple(self._sample(number) for number in range(self.looks)),
                    leads=self.leads,
                    alone=latencies,
                    thread_pools=(ThreadUse(pid=1, threads=self.pool + 1, active=self.pool, pool=self.pool),),
                ),
            ),
            connections=self.connections,
            engine=self.engine,
            open_loop=open_loop,
            due=self.due,
            attack_ns=LENGTH_NS,
        )

    def _server_cpu_ns(self) -> int | None:
        return round(sum(core.ran for core in self.workers) * LENGTH_NS) if self.server_cpu_known else None

    def _sample(self, number: int) -> Sample:
        at_ns = number * LOOK_NS
        queues = SocketQueues(
            connections=self.connections,
            server_unread=0,
            server_unsent=self.under_way,
            client_unread=0,
            client_unsent=0,
            under_way=self.under_way,
        )
        return Sample(
            at_ns=at_ns,
            server=tuple(self._process(index + 1, core, number) for index, core in enumerate(self.workers)),
            generators=(self._process(GENERATOR, self.generator, number),) if self.engine != "in-process" else (),
            queues=queues if self.under_way >= 0 else None,
            io_stalled_ns=round(self.stalled * at_ns),
            cores=tuple(
                CoreTime(
                    core=core,
                    busy_ns=round(share * at_ns),
                    stolen_ns=round(self.core_stolen.get(core, 0.0) * at_ns),
                )
                for core, share in self.core_busy.items()
            ),
        )

    def _process(self, pid: int, core: Core, number: int) -> ProcessUse:
        at_ns = number * LOOK_NS
        main_ran = core.ran if core.main_ran is None else core.main_ran
        main = STATES[self.main[number % len(self.main)]]
        busy = self.busy[number % len(self.busy)] if pid == 1 else 0
        return ProcessUse(
            pid=pid,
            cpu_ns=round(core.ran * at_ns),
            main_cpu_ns=round(main_ran * at_ns),
            waiting_ns=round(core.waited * at_ns),
            rss_bytes=1 << 20,
            threads=1,
            files=10,
            written_bytes=round(self.written * at_ns / SECOND) if self.bytes_known else None,
            read_bytes=0 if self.bytes_known else None,
            main=main if self.threads_known else None,
            running_threads=self.running + (main is MainThread.RUNNING) if self.threads_known else None,
            busy_threads=busy if self.threads_known else None,
            storage_threads=min(self.storage, busy),
            lock_threads=min(self.lock, busy),
        )
