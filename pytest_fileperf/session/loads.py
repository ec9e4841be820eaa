"""Loads running servers, from generator processes or from this process, and observes the servers meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from time import monotonic, sleep
from typing import Any, TypeAlias
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx

from pytest_fileperf.drive.cluster import Cluster, Workers
from pytest_fileperf.drive.group import Generators, own_cores
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import Run, RunProgress, edges_of, run_load
from pytest_fileperf.errors import FilePerfError, LoadError, PlanError
from pytest_fileperf.host.cores import cores_of
from pytest_fileperf.host.cpu import CpuSeries, files_limit
from pytest_fileperf.host.sample import Sample
from pytest_fileperf.host.watch import Footprint, Watch
from pytest_fileperf.measure.growth import growth_of
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.limiting import may_queue
from pytest_fileperf.measure.recording import (
    Boot,
    GeneratorProcess,
    Recording,
    Round,
    Samples,
    WarmUp,
)
from pytest_fileperf.measure.usage import Usage, course_after, course_of
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side, split
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.plan.pacing import ClosedLoop
from pytest_fileperf.plan.request import WHOLE_LOAD
from pytest_fileperf.plan.work import Work
from pytest_fileperf.serve.databases import SLICE_NS
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.processes import STILL, TreeWatch
from pytest_fileperf.wire.payload_files import PayloadFiles

BothWorks: TypeAlias = tuple[Work, Work]
BothServers: TypeAlias = tuple[RunningServer, RunningServer]
"""The old version's server, then the new one's. `Side` has the indices."""
Cores: TypeAlias = frozenset[int] | None
"""CPU cores for the load generators; None if they may use any."""
_OF_ALL: Mapping[str, Any] = {
    "peak_rss_bytes": None, "memory": (), "growth": None, "samples": (), "alone": EMPTY, "leads": None,
    "thread_pools": (), "startup_ns": None, "queries": None,
}  # fmt: skip
"""`Boot` fields that only a whole load has. For a part or step, they have these values."""
Tell: TypeAlias = Callable[[RunProgress], None]
Load: TypeAlias = Callable[[LoadPlan], Run]


class Loader:
    """Loads servers from generator processes, or from this process if the app runs here. Its maker must close it."""

    def __init__(
        self, *, coverage: bool = False, network: Network = LOCAL, family: str = "httpx", cluster: Cluster | None = None
    ) -> None:
        """`family` is the client library for journeys that name none. A `cluster` has workers that make the load."""
        self._cluster = cluster
        self._generators = Generators(coverage=coverage, cluster=cluster)
        self._network = network
        self._family = family
        self._files = PayloadFiles()
        self.paths: set[tuple[str, str]] = set()
        """The (method, path) of each request that journeys made. The session clears this set."""
        self._idle: WeakKeyDictionary[RunningServer, float] = WeakKeyDictionary()
        """How many cores each server used before its first load."""
        self._at_work: WeakKeyDictionary[RunningServer, tuple[str, float]] = WeakKeyDictionary()
        """For servers still at work after their last load: (the load's name, cores in use beyond idle use)."""

    def close(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._files.close)
            if self._cluster is not None:
                closing.callback(self._cluster.close)
            closing.callback(self._generators.close)

    def workers(self) -> Workers | None:
        """Returns the cluster's workers; None without a cluster. Raises GeneratorError if they cannot make a load."""
        return None if self._cluster is None else self._cluster.workers()

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        """Loads a server, as start-up number `index`. Raises LoadError, PlanError, GeneratorError, ServerDiedError."""
        (run,) = self._runs((work,), plan, index, (server,), cores, tell)
        return run

    def alternate(
        self, works: BothWorks, plan: Alternation, index: int, servers: BothServers, cores: Cores, tell: Tell
    ) -> tuple[Run, Run]:
        base, now = self._runs(works, plan, index, servers, cores, tell)
        return base, now

    def _runs(
        self,
        works: tuple[Work, ...],
        plan: LoadPlan | Alternation,
        index: int,
        servers: tuple[RunningServer, ...],
        cores: Cores,
        tell: Tell,
    ) -> list[Run]:
        in_process = isinstance(servers[0], RunningInProcess)
        trees = TreeWatch(servers, all_cores=cores is not None)
        limits = [files_limit(tree.pids) for tree in trees.trees]
        before, left_before, watch = "", 0.0, None
        if isinstance(plan, LoadPlan):
            if servers[0] in self._at_work and _leaves_work(plan) and trees.idle()[0] >= self._idle[servers[0]] + STILL:
                before, left_before = self._at_work[servers[0]]
            watch = Watch(
                pids=lambda: trees.trees[0].pids,
                port=None if in_process or servers[0].uds else httpx.URL(servers[0].url).port,
                generators=tuple if in_process else lambda: self._generators.pids,
                interval_s=0.004 if plan.close else 0.25,  # frequent looks cost some percent of a core
            )
        with ExitStack() as looks:
            left = looks.enter_context(self._left(servers, works, trees, plan))
            looks.enter_context(trees)
            if watch is not None:
                looks.enter_context(watch)
            # Generators elsewhere cannot read the servers' CPU time.
            cpus = [
                None if self._cluster is None else looks.enter_context(CpuSeries(server.roots)) for server in servers
            ]
            held = [
                looks.enter_context(Footprint(tuple if in_process else partial(getattr, tree, "pids")))
                for tree in trees.trees
            ]
            results = self._loaded(works, plan, index, servers, cores, tell, cpus)
        if any(server.counts_queries for server in servers):
            sleep(2 * SLICE_NS / 1e9)
        _check(servers)
        base_path = urlsplit(servers[-1].url).path
        self.paths |= {(method, path.removeprefix(base_path)) for method, path in results[-1].paths}
        ended_ns = sum(tree.cpu.ended_ns for tree in trees.trees)
        runs = []
        for side, server, tree, result in zip(Side, servers, trees.trees, results, strict=False):
            cpu, samples, rounds = cpus[side], held[side].samples, result.rounds
            read = [own.server_cpu_ns if cpu is None else cpu.spent_ns(own.started_ns, own.ended_ns) for own in rounds]
            # Processes that ended took their CPU time with them.
            lost = tree.is_lost or (None in read and any(read))
            if lost or cpu is not None:
                rounds = tuple(
                    replace(own, server_cpu_ns=None if lost else spent_ns)
                    for own, spent_ns in zip(rounds, read, strict=True)
                )
            warmed = sum(warm_up.made for warm_up in result.warm_ups.values())
            boot = Boot(
                index=index,
                leads=result.boot.leads,
                pids=tree.pids or server.pids,
                peak_rss_bytes=None if lost else tree.peak_rss_bytes,
                memory=() if lost else course_of(held[side].peaks, rounds, warm=_warm(plan, side), warmed=warmed),
                startup_ns=server.startup_ns,
                queries=server.queries_since(min(own.started_ns for own in rounds)) if rounds else None,
                stabilised=_held_equal(server.stabilised, samples),
                tracer=server.tracer or ("" if in_process else self._generators.tracer),
                # After another load, nobody knows which of the two left the work.
                left_share=max(left[side], left_before) if before in ("", works[side].name) else 0.0,
                was_at_work=before not in ("", works[side].name),
                worker_pids=server.worker_pids,
                cores=tree.cores,
                children_share=tree.children_share,
                generator_cores=frozenset() if watch is None or in_process else cores_of(self._generators.pids),
                generators=self._processes(plan, result.lost, cores),
                samples=() if watch is None else Samples(watch.samples),
                core_delay=core_delay([own.samples for own in held], side, tree.cores, ended_ns=ended_ns)
                if watch is None
                else 1.0,
                thread_pools=() if watch is None else watch.thread_pools,
                growth=growth_of(samples, rounds, connections=plan.connections, files_limit=limits[side]),
                processes_ended=tree.ended,
                processes_changed="some ended, and their parent did not wait for them" if lost else "",
            )
            runs.append(replace(result, rounds=rounds, boot=boot, pinned=cores is not None))
        return runs

    @contextmanager
    def _left(
        self,
        servers: Sequence[RunningServer],
        works: Sequence[Work],
        trees: TreeWatch,
        plan: LoadPlan | Alternation,
    ) -> Iterator[list[float]]:
        """Yields a list that is filled after the block: how many cores each server still uses, without its idle use.

        0.0 means that the server soon finished its work.
        """
        left = [0.0] * len(servers)
        looks = _leaves_work(plan)
        if looks and any(server not in self._idle for server in servers):
            for server, share in zip(servers, trees.idle(), strict=True):
                self._idle.setdefault(server, share)
        began_s = monotonic()
        yield left
        if looks:
            left[:] = trees.left([self._idle[server] for server in servers], monotonic() - began_s)
        for server, work, share in zip(servers, works, left, strict=True):
            self._at_work.pop(server, None)
            if share:
                self._at_work[server] = work.name, share

    def _loaded(
        self,
        works: tuple[Work, ...],
        plan: LoadPlan | Alternation,
        index: int,
        servers: tuple[RunningServer, ...],
        cores: Cores,
        tell: Tell,
        cpus: Sequence[CpuSeries | None],
    ) -> tuple[Run, ...]:
        server = servers[0]
        target = partial(Target, boot=index, network=self._network, family=self._family)
        if isinstance(server, RunningInProcess):
            if self._cluster is not None:
                raise PlanError("a Dask cluster cannot reach an inprocess server. Use another server")
            here = target(url=server.url, transport=lambda: server.transport)
            return server.run(
                lambda: run_load(works, plan, (here,), files=self._files, server_cpu=(lambda: None,), progress=tell)
            )

        def begins(origin_ns: int) -> None:
            for side, cpu in zip(Side, cpus, strict=False):
                if cpu is not None:
                    cpu.read_at(origin_ns + edge_ns for edge_ns in edges_of(plan, side))

        try:
            return self._generators.run(
                works,
                plan,
                tuple(target(url=server.url, reach=server.reach, pids=server.roots) for server in servers),
                cores=cores,
                progress=tell,
                check=partial(_check, servers),
                begins=begins,
            )
        except httpx.ConnectError as error:
            _check(servers)
            where = " or ".join(server.url for server in servers)
            raise LoadError(f"no connection to {server.title} at {where}: {error}") from error

    def _processes(
        self, plan: LoadPlan | Alternation, lost: Mapping[int, str], cores: Cores
    ) -> tuple[GeneratorProcess, ...]:
        """Returns the last load's generators. Empty for a single generator on this machine.

        `lost` has the generators' errors by number.
        """
        shares = split(plan)
        if len(shares) == 1 and self._cluster is None:
            return ()
        members = [self._generators.member(number) for number in range(1, len(shares) + 1)]
        return tuple(
            GeneratorProcess(
                number=number,
                of=len(shares),
                connections=share.connections,
                pid=member.pid,
                cores=frozenset() if member.worker else own or frozenset(),
                lost=lost.get(number, ""),
                worker=member.worker,
                clock_error_ns=member.clock_error_ns,
                distance_ns=member.distance_ns,
            )
            for number, (share, own, member) in enumerate(
                zip(shares, own_cores(cores, len(shares)), members, strict=True), start=1
            )
        )


def _check(servers: Sequence[RunningServer]) -> None:
    for server in servers:
        server.check()


def _warm(plan: LoadPlan | Alternation, side: Side) -> list[tuple[int, int]]:
    """Returns when the warm-up loaded a version: (begin, end) in ns before the warm-up's end."""
    if isinstance(plan, LoadPlan):
        return [(plan.warmup_ns, 0)]
    before = [plan.measured_from_ns - edge for edge in plan.pacing(side).edges]
    return [(start, end) for start, end in zip(before[::2], before[1::2], strict=True) if end >= 0]


def core_delay(sides: Sequence[Sequence[Sample]], side: int, cores: Collection[int], *, ended_ns: int = 0) -> float:
    """Returns how many times longer a server's work took because other programs used its cores. 1.0 for no delay.

    `sides` has the samples of all servers that were loaded alternately, and `side` is this server's index. `ended_ns`
    is the CPU time of server processes that ended during the load.
    """
    if any(len(samples) < 2 for samples in sides):
        return 1.0
    ran_ns = [_growth(samples, lambda sample: sum(use.cpu_ns for use in sample.server)) for samples in sides]
    own = sides[side]
    main_ns = _growth(own, lambda sample: sum(use.main_cpu_ns or 0 for use in sample.server))
    waited_ns = _growth(own, lambda sample: sum(use.waiting_ns or 0 for use in sample.server))
    busy_ns = _growth(own, lambda sample: sum(core.busy_ns for core in sample.cores if core.core in cores))
    stolen_ns = _growth(own, lambda sample: sum(core.stolen_ns for core in sample.cores if core.core in cores))
    if min(*ran_ns, main_ns) <= 0:
        return 1.0
    others_ns = (busy_ns - sum(ran_ns) - ended_ns) / len(sides)
    # Both are upper bounds. Other programs also use the cores while the server is idle. And the main thread may wait
    # for the server's own threads.
    by_others = max(0.0, min(others_ns / ran_ns[side], waited_ns / main_ns))
    # The main thread's wait lacks the time that a virtual machine's host took. So that time is added in full.
    # A factor of 1.5 hid half of the time that nine test runs on two cores lost to each other.
    return 1 + stolen_ns / sum(ran_ns) + 3 * by_others


def _held_equal(stabilised: Sequence[str], samples: Sequence[Sample]) -> tuple[str, ...]:
    """Returns the properties that stayed equal during the load. Frequent page faults change memory `addresses`."""
    if len(samples) < 2:
        return tuple(stabilised)
    cpu_ns = _growth(samples, lambda sample: sum(use.cpu_ns for use in sample.server))
    faults = _growth(samples, lambda sample: sum(use.page_faults or 0 for use in sample.server))
    # A page fault costs some 3 µs. Faults are frequent if one comes in 40 µs (uploads of 256 KiB: 10 µs).
    return tuple(name for name in stabilised if name != "addresses" or faults * 40_000 <= cpu_ns)


def _growth(samples: Sequence[Sample], value: Callable[[Sample], int]) -> int:
    return value(samples[-1]) - value(samples[0])


def asked_alone(run: Run, load: Load, *, left_s: float = math.inf) -> Run:
    """Returns `run`, with latencies on one connection (`boot.alone`) if requests may have waited for each other.

    On a single connection, no request waits for another. `load` makes this short load, unless a request takes longer
    than `left_s`.
    """
    plan = run.plan
    if isinstance(plan, Alternation) or not isinstance(plan.pacing(), ClosedLoop):
        return run
    if plan.connections == 1 or plan.counted or plan.pause is not None:
        return run

    def with_alone(found: Run) -> Run:
        alone = Histogram.merged(round_.latency for round_ in found.rounds)
        return replace(run, boot=replace(run.boot, alone=alone))

    as_slow = with_alone(run)
    latency_ns = as_slow.boot.alone.mean_ns()
    if latency_ns > left_s * 1e9 or not may_queue(Usage(recording_of([as_slow]))):
        return run
    lasts_ns = min(max(150_000_000, 3 * round(latency_ns)), 1_000_000_000)  # besides that, the last answer
    try:
        # This connection's first request may also log in. A longer warm-up would only take time.
        warmup_ns, timeout_ns = min(plan.warmup_ns, 3_000_000_000), plan.timeout_ns
        return with_alone(
            load(LoadPlan(connections=1, warmup_ns=warmup_ns, round_ns=lasts_ns, rounds=1, timeout_ns=timeout_ns))
        )
    except FilePerfError:
        return run


def _leaves_work(plan: LoadPlan | Alternation) -> bool:
    """Returns whether a server may still work after this load. False for few requests, as in a smoke run."""
    asked = None if isinstance(plan, Alternation) else plan.requests or plan.burst
    return asked is None or asked >= 20


def after_probe(run: Run, probe: Run) -> Run:
    before, earlier = {WHOLE_LOAD: probe.rounds, **probe.subjects}, probe.warm_ups
    warm_ups = {
        name: reduce(WarmUp.__add__, before.get((name, ""), ()), earlier.get(name, WarmUp())) + warm_up
        for name, warm_up in run.warm_ups.items()
    }
    boot = replace(run.boot, memory=course_after(probe.boot.memory, run.boot.memory))
    return replace(run, warm_ups=warm_ups, boot=boot)


def recording_of(runs: Sequence[Run], part: str = "", step: str = "") -> Recording:
    """Joins runs of one load. For a part or step, the recording lacks facts about the whole load."""
    first, is_whole = runs[0], not part and not step
    rounds: list[Round] = []
    boots: dict[int, Boot] = {}
    due: list[int] = []
    for run in sorted(runs, key=lambda run: run.boot.index):
        index, known = run.boot.index, boots.get(run.boot.index)
        own = run.rounds_of(part, step)
        if is_whole:
            warm_up = sum(run.warm_ups.values(), WarmUp())
        else:
            warm_up = WarmUp() if step else run.warm_ups.get(part, WarmUp())
        boot = replace(run.boot, warm_up=warm_up, **({} if is_whole else _OF_ALL))
        before = sum(round_.boot == index for round_ in rounds)
        rounds += (replace(round_, index=before + place) for place, round_ in enumerate(own))
        if known is not None:
            boot = known.and_then(boot, memory=course_after(known.memory, boot.memory))
        boots[index] = boot
        if run.due is not None and not step:  # a step is never due: it begins when its journey gets there
            due.append(sum(round_.requests + round_.failed for round_ in own) if part else run.due)
    return Recording(
        rounds=tuple(rounds),
        boots=tuple(boots.values()),
        connections=first.plan.connections,
        engine=first.engine,
        why_engine=first.why_engine,
        wait_ns=sum(run.wait_ns for run in runs),
        attack_ns=sum(run.attack_ns for run in runs),
        open_loop=isinstance(first.plan, LoadPlan) and first.plan.pacing().open_loop,
        due=sum(due) if due else None,
        pinned=first.pinned,
    )
