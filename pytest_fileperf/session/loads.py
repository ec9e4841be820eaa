"""Makes runs on running servers, looked at while they are loaded: from the generator's process, or in this one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from time import monotonic, monotonic_ns, sleep
from typing import Protocol, Self, TypeAlias
from weakref import WeakKeyDictionary

import httpx

from pytest_fileperf.drive.cluster import Cluster, Workers
from pytest_fileperf.drive.group import Generators, MadeLoad, own_cores
from pytest_fileperf.drive.preparation import Target
from pytest_fileperf.drive.run import RunProgress, RunResult, edges_of, run_load
from pytest_fileperf.errors import FilePerfError, LoadError, PlanError
from pytest_fileperf.host.cpu import CpuSeries, TreeCpu, files_limit, peak_rss_bytes, process_use, reset_peak_rss
from pytest_fileperf.host.profiler import Profiler, ProfilerUnavailable, Sampled
from pytest_fileperf.host.sample import CoreTime, Sample, cores_of
from pytest_fileperf.host.watch import Footprint, Watch
from pytest_fileperf.judge.record import Explanation
from pytest_fileperf.measure.blame import Profile, Stack, costs, growth, profile_of, threads_of
from pytest_fileperf.measure.histogram import EMPTY, Histogram
from pytest_fileperf.measure.limiting import (
    A_GOOD_PART,
    Limit,
    LimitKind,
    Loss,
    Served,
    Stalls,
    held_by,
    limit_of,
    loss_of,
    may_queue,
    stalls_of,
)
from pytest_fileperf.measure.recording import (
    Boot,
    GeneratorProcess,
    Recording,
    Round,
    WarmUp,
    growth_of,
    merged_warm_up,
    warm_up_of,
    without_samples,
)
from pytest_fileperf.measure.usage import course_after, course_of, usage_of
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side, split
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.plan.pacing import ClosedLoop
from pytest_fileperf.plan.work import Work
from pytest_fileperf.report.profiled import (
    costs_json,
    costs_text,
    growth_json,
    growth_text,
    limit_waited_for,
    loss_json,
    loss_text,
    stall_text,
)
from pytest_fileperf.report.progress import ProgressLine, ProgressSink
from pytest_fileperf.serve.inprocess import RunningInProcess
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import give_all_cores
from pytest_fileperf.wire.payload_files import PayloadFiles

__all__ = (
    "STILL",
    "BothServers",
    "BothWorks",
    "Cores",
    "Loader",
    "Loads",
    "Looked",
    "Record",
    "Run",
    "ServerTree",
    "Tell",
    "Teller",
    "TreeWatch",
    "after_probe",
    "asked_alone",
    "explain_costs",
    "explain_loss",
    "of_part",
    "reading",
    "recording_of",
    "served_of",
    "with_cpu",
    "without_cpu",
)


# --- What a server's processes used in a run: looked at beside it, with children that begin and end meanwhile

_SOON_S = 0.02
_LATER_S = 0.1
"""How often trees are looked at, in the first second of a load and later. Until then a child has its parent's cores."""
_FIRST_S = 1.0
_MUCH = 0.1
"""Share of a server's CPU time in children that have ended from which on the server itself may use all cores: such
children are too short-lived to be given them one by one."""
_LEAST_NS = 50_000_000
_IDLE_S = 0.1
"""How long a server is looked at before its first load, to see what it uses without any."""
_SLICE_S = 0.05
STILL = 0.2
"""Cores beyond that from which a server is still at work."""
_LEFT = 0.05
"""Work that goes on after a load is told from this share of the load's time on: a server that has to do it as well
answers so much less."""
_LEAST_LEFT_S = 0.15
_LEAST_SPENT_S = 0.1
"""CPU time from which it is more than what the last requests left, one for each connection."""
_MOST_LEFT_S = 3.0
"""It is looked at for so long, at least and at most: a moment after its last answer a server may close connections."""


class ServerTree:
    """The processes of one server during one load."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._cpu = TreeCpu(server.roots)
        self._own: frozenset[int] = frozenset()
        """Its workers, with what is above them: all others are children that do work for it."""
        self._before_ns: Mapping[int, int] = {}
        self._began_ns = self._cpu.spent_ns()
        self._most_bytes = 0
        self._find_own()
        self._before_ns = self._cpu.own_ns()
        self._first = frozenset(self.pids)
        self._seen = set(self._first)
        reset_peak_rss(self.pids)

    @property
    def pids(self) -> tuple[int, ...]:
        """Its processes, as they were last seen."""
        if not self._cpu.roots:
            return self._server.pids
        return tuple(pid for pid in self._cpu.pids if pid != self._server.supervisor)

    @property
    def children(self) -> tuple[int, ...]:
        """Those of its processes that are no workers, and not above one."""
        return tuple(pid for pid in self.pids if pid not in self._own)

    @property
    def is_watched(self) -> bool:
        """Whether there are processes of its own to look at."""
        return self._began_ns is not None

    def look(self) -> None:
        """Sees which processes there are now, and how much memory they have together."""
        if not self.is_watched:
            return
        self._cpu.spent_ns()
        self._seen.update(self.pids)
        if not self._own <= set(self.pids):
            self._find_own()
        uses = filter(None, map(process_use, self.pids)) if self._cpu.ended_ns else ()
        self._most_bytes = max(self._most_bytes, sum(use.rss_bytes for use in uses))

    def spent_ns(self) -> int:
        """Returns its CPU time so far; 0 if that is unknown."""
        return (self._cpu.spent_ns() or 0) if self.is_watched else 0

    @property
    def ended(self) -> int:
        """How many of its processes were seen to end, if some were there before the load; children come and go."""
        now = set(self.pids)
        return len(self._seen - now) if self._first - now else 0

    @property
    def has_passing_children(self) -> bool:
        """Whether children did much of the work that have ended already."""
        return self._cpu.ended_ns >= max(_LEAST_NS, _MUCH * (self._grown_ns() or 0))

    @property
    def is_lost(self) -> bool:
        """Whether processes ended whose CPU time nobody knows."""
        return self.is_watched and not self._cpu.is_complete

    @property
    def children_share(self) -> float:
        """The share of the server's CPU time that its children used; 0.0 if that is unknown."""
        grown_ns = self._grown_ns()
        if not grown_ns:
            return 0.0
        now_ns = self._cpu.own_ns()
        own_ns = sum(now_ns[pid] - self._before_ns.get(pid, 0) for pid in self._own & now_ns.keys())
        return min(1.0, max(0.0, 1 - own_ns / grown_ns))

    @property
    def peak_rss_bytes(self) -> int | None:
        """The most memory that its processes had; with children that ended, at least what was seen at one instant."""
        lasting = peak_rss_bytes(self.pids)
        return None if lasting is None or self.is_lost else max(lasting, self._most_bytes)

    @property
    def cores(self) -> frozenset[int]:
        """The cores that its processes may run on."""
        return cores_of(self.pids)

    def _grown_ns(self) -> int | None:
        now_ns = self._cpu.total_ns
        return None if now_ns is None or self._began_ns is None else now_ns - self._began_ns

    def _find_own(self) -> None:
        """Finds its workers; what ended until now was one of these, and no child that does work."""
        workers = set(self._server.worker_pids)
        self._own = frozenset(workers | self._cpu.above(workers)) & set(self.pids)
        self._cpu.ended_ns = 0


class TreeWatch:
    """Looks at the processes of servers within the `with` block, in a thread.

    Workers of a server stay on the cores that it was started with. If `all_cores`, children that do work for them get
    all cores that the test run may use, as they would without it. A child is seen a moment after it begins. Where
    children end too soon for that, the servers get all cores as well, so that their children begin there: all of the
    servers, as they are compared.
    """

    def __init__(self, servers: Sequence[RunningServer], *, all_cores: bool) -> None:
        self.trees = tuple(map(ServerTree, servers))
        self._all_cores = all_cores
        self._given: set[int] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fileperf process trees", daemon=True)

    def __enter__(self) -> Self:
        self._look()
        if any(tree.is_watched for tree in self.trees):
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
            self._look()

    def _main(self) -> None:
        began_s = monotonic()
        while not self._over.wait(_SOON_S if monotonic() < began_s + _FIRST_S else _LATER_S):
            self._look()

    def idle(self) -> tuple[float, ...]:
        """Returns how many cores each server uses without a load; call it before the block."""
        return self._used(_IDLE_S)

    def left(self, idle: Sequence[float], load_s: float) -> tuple[float, ...]:
        """Returns how many cores each server uses after a load, beyond those; 0.0 where that soon ends.

        Call it after the block. It takes a moment, and longer only if a server is still at work.
        """
        least_s = min(_MOST_LEFT_S, max(_LEAST_LEFT_S, _LEFT * load_s))
        still, looks = set(range(len(self.trees))), list[tuple[float, ...]]()
        while still and len(looks) * _SLICE_S < _MOST_LEFT_S:
            spent_s = [_SLICE_S * (sum(used[place] for used in looks) - idle[place] * len(looks)) for place in still]
            if len(looks) * _SLICE_S >= least_s and min(spent_s) >= _LEAST_SPENT_S:
                break
            looks.append(self._used(_SLICE_S))
            still = {place for place in still if looks[-1][place] >= idle[place] + STILL}
        return tuple(
            sum(used[place] for used in looks) / len(looks) - idle[place] if place in still else 0.0
            for place in range(len(self.trees))
        )

    def _used(self, seconds: float) -> tuple[float, ...]:
        """Returns how many cores each server uses in so many seconds; 0.0 if that is unknown."""
        began_ns, before = monotonic_ns(), [tree.spent_ns() for tree in self.trees]
        sleep(seconds if any(before) else 0)
        length_ns, after = max(1, monotonic_ns() - began_ns), [tree.spent_ns() for tree in self.trees]
        return tuple((later - earlier) / length_ns for earlier, later in zip(before, after, strict=True))

    def _look(self) -> None:
        for tree in self.trees:
            tree.look()
        if not self._all_cores:
            return
        with_servers = any(tree.has_passing_children for tree in self.trees)
        wanted = {pid for tree in self.trees for pid in (tree.pids if with_servers else tree.children)}
        give_all_cores(wanted - self._given)
        self._given |= wanted


def reading(plan: LoadPlan | Alternation, series: Sequence[CpuSeries | None]) -> Callable[[int], None]:
    """Returns what has the CPU time read where rounds begin and end, once it is known when the load begins."""

    def begins(origin_ns: int) -> None:
        for side, own in zip(Side, series, strict=False):
            if own is not None:
                own.read_at(origin_ns + edge_ns for edge_ns in edges_of(plan, side))

    return begins


def with_cpu(result: RunResult, cpu: CpuSeries | None) -> RunResult:
    """Returns what a run found, with the server's CPU time that was read here meanwhile."""
    if cpu is None:
        return result
    rounds = (replace(own, server_cpu_ns=cpu.spent_ns(own.started_ns, own.ended_ns)) for own in result.rounds)
    return replace(result, rounds=tuple(rounds))


def without_cpu(result: RunResult) -> RunResult:
    """Returns what a run found, without the server's CPU time: processes that ended took theirs with them."""
    return replace(result, rounds=tuple(replace(round_, server_cpu_ns=None) for round_ in result.rounds))


# --- loading

BothWorks: TypeAlias = tuple[Work, Work]
BothServers: TypeAlias = tuple[RunningServer, RunningServer]
"""Base and now: `Side` is the place of each."""
Cores: TypeAlias = frozenset[int] | None
"""None for any."""
_FAULT_NS = 40_000
"""A page fault in so much CPU time is often: it costs some 3 µs. Uploads of 256 KiB have one in 10 µs."""
_AT_MOST = 3.0
"""So many times what others had of a core is not called waiting. With nine test runs on two cores half of the time that
requests lost to the others was not seen."""
_ALONE_NS, _MOST_ALONE_NS, _ALONE_LATENCIES = 150_000_000, 1_000_000_000, 3
"""How long requests are sent one after the other; the last one is waited for."""
_USUAL_S, _CLOSE_S = 0.25, 0.004
"""Between two looks at the server: the latter costs some percent of a core."""
Tell: TypeAlias = Callable[[RunProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run left: its rounds, and facts about the boot that it loaded."""

    result: RunResult
    boot: Boot


_FEW_REQUESTS = 20
"""Of a load of fewer, as in a smoke run, nobody waits for what it leaves."""
Record: TypeAlias = Callable[[Sequence[Run]], Recording]
"""Makes a recording of runs."""


class Loads(Protocol):
    """Makes runs. Whoever made it closes it."""

    def workers(self) -> Workers | None:
        """Returns the workers of a cluster, each of which can have a generator; None where they are processes here.

        Raises GeneratorError where the cluster cannot make a load.
        """

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        """Loads one boot. Raises LoadError, PlanError, GeneratorError, and ServerDiedError when it died under it."""

    def alternate(
        self, works: BothWorks, plan: Alternation, index: int, servers: BothServers, cores: Cores, tell: Tell
    ) -> tuple[Run, Run]:
        """Loads two boots in turn, base and now, each with its work; raises what `make` raises."""

    def close(self) -> None:
        """Ends what makes the load."""


class Loader:
    """Makes runs from generator processes, and on apps in this process from here."""

    def __init__(self, *, coverage: bool = False, network: Network = LOCAL, cluster: Cluster | None = None) -> None:
        """With `coverage`, what traces the test run may trace the generators too.

        `network` says where load may go. `cluster` has the workers that make it, in place of processes here.
        """
        self._cluster = cluster
        self._generators = Generators(coverage=coverage, cluster=cluster)
        self._reach = network.reach
        self._files = PayloadFiles()
        self._idle: WeakKeyDictionary[RunningServer, float] = WeakKeyDictionary()
        """How many cores each server used before its first load."""
        self._at_work: WeakKeyDictionary[RunningServer, tuple[str, float]] = WeakKeyDictionary()
        """Servers whose last load left work behind: the name of that load, and the cores that were still used."""

    def close(self) -> None:
        """Ends the generators and removes their files."""
        with ExitStack() as closing:
            closing.callback(self._files.close)
            if self._cluster is not None:
                closing.callback(self._cluster.close)
            closing.callback(self._generators.close)

    def workers(self) -> Workers | None:
        """Returns the workers of the cluster; None without one."""
        return None if self._cluster is None else self._cluster.workers()

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        """Loads one boot, looked at from outside."""
        in_process = isinstance(server, RunningInProcess)
        trees = TreeWatch((server,), all_cores=cores is not None)
        (tree,) = trees.trees
        limit = files_limit(tree.pids)
        earlier, left_before = self._left_before(server, trees, plan)
        with (
            self._left((server,), (work,), trees, plan) as left,
            trees,
            self._watch(server, tree, _CLOSE_S if plan.close else _USUAL_S) as watch,
            self._server_cpu(server.roots) as cpu,
            Footprint(tuple if in_process else partial(getattr, tree, "pids")) as held,
        ):
            made = self._loaded(work, plan, index, server, cores, tell, reading(plan, (cpu,)))
        result = with_cpu(made.results[0], cpu)
        server.check()
        boot = replace(
            self._boot(index, server, tree, result, plan, held, limit),
            # Of another load before this one it is not known what this one left.
            left_share=max(left[0], left_before) if earlier in ("", work.name) else 0.0,
            was_at_work=earlier not in ("", work.name),
            generator_cores=frozenset() if in_process else cores_of(self._generators.pids),
            generators=self._processes(plan, made, cores),
            samples=watch.samples,
            leads=result.leads,
            thread_pools=watch.thread_pools,
        )
        return Run(result=without_cpu(result) if boot.processes_changed else result, boot=boot)

    def alternate(
        self, works: BothWorks, plan: Alternation, index: int, servers: BothServers, cores: Cores, tell: Tell
    ) -> tuple[Run, Run]:
        """Loads two boots in turn, base and now."""
        base, now = servers
        trees = TreeWatch(servers, all_cores=cores is not None)
        limits = [files_limit(tree.pids) for tree in trees.trees]

        def check() -> None:
            base.check()
            now.check()

        targets = tuple(Target(boot=index, url=server.url, reach=self._reach) for server in servers)
        try:
            with (
                self._left(servers, works, trees, plan) as left,
                trees,
                self._server_cpu(base.roots) as of_base,
                self._server_cpu(now.roots) as of_now,
                Footprint(partial(getattr, trees.trees[Side.BASE], "pids")) as held_by_base,
                Footprint(partial(getattr, trees.trees[Side.NOW], "pids")) as held_by_now,
            ):
                made = self._generators.run(
                    works,
                    plan,
                    targets,
                    pids=(base.roots, now.roots),
                    cores=cores,
                    progress=tell,
                    check=check,
                    begins=reading(plan, (of_base, of_now)),
                )
        except httpx.ConnectError as error:
            check()
            raise LoadError(f"no connection to {base.title} at {base.url} or {now.url}: {error}") from error
        check()
        runs = []
        results = map(with_cpu, made.results, (of_base, of_now))
        for side, server, tree, result, held, limit, share in zip(
            Side, servers, trees.trees, results, (held_by_base, held_by_now), limits, left, strict=True
        ):
            boot = replace(
                self._boot(index, server, tree, result, plan, held, limit, side=side),
                generators=self._processes(plan, made, cores),
                left_share=share,
                core_delay=_core_delay((held_by_base.samples, held_by_now.samples), side, tree.cores),
            )
            runs.append(Run(result=without_cpu(result) if boot.processes_changed else result, boot=boot))
        return runs[0], runs[1]

    def _boot(
        self,
        index: int,
        server: RunningServer,
        tree: ServerTree,
        result: RunResult,
        plan: LoadPlan | Alternation,
        held: Footprint,
        limit: int | None,
        *,
        side: Side = Side.NOW,
    ) -> Boot:
        """Returns what is known of a boot after any load; `limit` is that of its open files."""
        read = [round_.server_cpu_ns for round_ in result.rounds]
        served = [(own.started_ns, own.ended_ns, own.requests + own.failed) for own in result.rounds]
        warmed = sum(warm_up.made for warm_up in result.warm_ups.values())
        lost = tree.is_lost or (None in read and any(read))
        return Boot(
            index=index,
            pids=tree.pids or server.pids,
            peak_rss_bytes=None if lost else tree.peak_rss_bytes,
            memory=() if lost else course_of(held.peaks, result.rounds, warm=_warm(plan, side), warmed=warmed),
            growth=growth_of(held.samples, served, connections=plan.connections, files_limit=limit),
            processes_changed="some ended, and nobody waited for them" if lost else "",
            processes_ended=tree.ended,
            stabilised=_held_equal(server.stabilised, held.samples),
            tracer=self._tracer(server),
            worker_pids=server.worker_pids,
            cores=tree.cores,
            children_share=tree.children_share,
        )

    def _left_before(self, server: RunningServer, trees: TreeWatch, plan: LoadPlan) -> tuple[str, float]:
        """Returns which earlier load left work that a server is still busy with, and its cores; `""` for none."""
        if server not in self._at_work or not _leaves_work(plan):
            return "", 0.0
        (share,) = trees.idle()
        return self._at_work[server] if share >= self._idle[server] + STILL else ("", 0.0)

    @contextmanager
    def _left(
        self,
        servers: Sequence[RunningServer],
        works: Sequence[Work],
        trees: TreeWatch,
        plan: LoadPlan | Alternation,
    ) -> Iterator[list[float]]:
        """Looks before and after the load in the block; then the list has the cores that each server still uses."""
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
        work: Work,
        plan: LoadPlan,
        index: int,
        server: RunningServer,
        cores: Cores,
        tell: Tell,
        begins: Callable[[int], None],
    ) -> MadeLoad:
        if isinstance(server, RunningInProcess):
            if self._cluster is not None:
                raise PlanError("a cluster cannot load an app in this process: boot it with another server")
            target = Target(boot=index, url=server.url, reach=self._reach, transport=lambda: server.transport)
            results = server.run(
                lambda: run_load((work,), plan, (target,), files=self._files, server_cpu=(lambda: None,), progress=tell)
            )
            return MadeLoad(results=results, lost={})
        target = Target(boot=index, url=server.url, reach=self._reach)
        try:
            return self._generators.run(
                (work,),
                plan,
                (target,),
                pids=(server.roots,),
                cores=cores,
                progress=tell,
                check=server.check,
                begins=begins,
            )
        except httpx.ConnectError as error:
            server.check()
            raise LoadError(f"no connection to {server.title} at {server.url}: {error}") from error

    def _processes(self, plan: LoadPlan | Alternation, made: MadeLoad, cores: Cores) -> tuple[GeneratorProcess, ...]:
        """Returns the generators that have just made a load; nothing where it was one process here."""
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
                lost=made.lost.get(number, ""),
                worker=member.worker,
                clock_error_ns=member.clock.error_ns,
                distance_ns=member.clock.distance_ns,
            )
            for number, (share, own, member) in enumerate(
                zip(shares, own_cores(cores, len(shares)), members, strict=True), start=1
            )
        )

    def _tracer(self, server: RunningServer) -> str:
        """Returns what traced the server that was just loaded, or the generator."""
        return server.tracer or ("" if isinstance(server, RunningInProcess) else self._generators.tracer)

    @contextmanager
    def _server_cpu(self, roots: Sequence[int]) -> Iterator[CpuSeries | None]:
        """Reads the server's CPU time meanwhile, where generators elsewhere cannot; gives None where they do."""
        if self._cluster is None:
            yield None
            return
        with CpuSeries(roots) as series:
            yield series

    def _watch(self, server: RunningServer, tree: ServerTree, interval_s: float) -> Watch:
        """Returns what looks at the server, and at the generators where they are processes of their own."""
        in_process = isinstance(server, RunningInProcess)
        return Watch(
            pids=(lambda: server.pids) if in_process else (lambda: tree.pids),
            port=None if in_process else httpx.URL(server.url).port,
            generators=tuple if in_process else lambda: self._generators.pids,
            interval_s=interval_s,
        )


def _warm(plan: LoadPlan | Alternation, side: Side) -> list[tuple[int, int]]:
    """Returns from when to when a side was loaded in the warm-up, in ns before that was over."""
    if isinstance(plan, LoadPlan):
        return [(plan.warmup_ns, 0)]
    before = [plan.measured_from_ns - edge for edge in plan.pacing(side).edges]
    return [(start, end) for start, end in zip(before[::2], before[1::2], strict=True) if end >= 0]


def _core_delay(sides: Sequence[Sequence[Sample]], side: int, cores: Collection[int]) -> float:
    """Returns how much longer than its CPU time a server took for its work, since others had its core meanwhile.

    `sides` are the samples of all servers that were loaded in turn. Both bounds are too high: what others did on the
    core, which was partly while the server had nothing to do, and what its main thread waited for a core, which was
    partly behind threads of its own. The lower one counts.
    """
    if any(len(samples) < 2 for samples in sides):
        return 1.0
    ran_ns = [_growth(samples, lambda sample: sum(use.cpu_ns for use in sample.server)) for samples in sides]
    own = sides[side]
    main_ns = _growth(own, lambda sample: sum(use.main_cpu_ns or 0 for use in sample.server))
    waited_ns = _growth(own, lambda sample: sum(use.waiting_ns or 0 for use in sample.server))
    had_ns = _growth(own, lambda sample: sum(_had_ns(core) for core in sample.cores if core.core in cores))
    if min(ran_ns[side], main_ns) <= 0:
        return 1.0
    others_ns = (had_ns - sum(ran_ns)) / len(sides)
    return 1 + _AT_MOST * max(0.0, min(others_ns / ran_ns[side], waited_ns / main_ns))


def _held_equal(stabilised: Sequence[str], samples: Sequence[Sample]) -> tuple[str, ...]:
    """Returns what was held equal between boots: not memory, where its pages are given back and taken again.

    How often that happens is chance, and differs from boot to boot.
    """
    if len(samples) < 2:
        return tuple(stabilised)
    cpu_ns = _growth(samples, lambda sample: sum(use.cpu_ns for use in sample.server))
    faults = _growth(samples, lambda sample: sum(use.page_faults or 0 for use in sample.server))
    return tuple(name for name in stabilised if name != "addresses" or faults * _FAULT_NS <= cpu_ns)


def _growth(samples: Sequence[Sample], value: Callable[[Sample], int]) -> int:
    return value(samples[-1]) - value(samples[0])


def _had_ns(core: CoreTime) -> int:
    return core.busy_ns + core.stolen_ns


def asked_alone(run: Run, plan: LoadPlan, load: Callable[[LoadPlan], Run], record: Record) -> Run:
    """Returns the run with how long requests take one after the other, where connections seem to limit it.

    Only so does it show whether requests wait for each other. `load` makes a further run on its boot: a short one, that
    counts nowhere. A load of a fixed number of requests, or at a rate, gets no request more than the test asks for.
    """
    closed = isinstance(plan.pacing(), ClosedLoop) and not plan.counted and plan.pause is None
    latency = Histogram.merged(round_.latency for round_ in run.result.rounds)
    as_slow = replace(run, boot=replace(run.boot, alone=latency))
    if not closed or plan.connections == 1 or not may_queue(record([as_slow])):
        return run
    lasts_ns = min(max(_ALONE_NS, _ALONE_LATENCIES * round(latency.mean_ns())), _MOST_ALONE_NS)
    try:
        alone = load(replace(plan, connections=1, generators=1, warmup_ns=0, round_ns=lasts_ns, rounds=1, close=False))
    except FilePerfError:
        return run
    return replace(
        run, boot=replace(run.boot, alone=Histogram.merged(round_.latency for round_ in alone.result.rounds))
    )


def _leaves_work(plan: LoadPlan | Alternation) -> bool:
    """Returns whether so much is asked of a server that work which it leaves would be noticed."""
    asked = None if isinstance(plan, Alternation) else plan.requests or plan.burst
    return asked is None or asked >= _FEW_REQUESTS


def of_part(run: Run, part: str, step: str = "") -> Run:
    """Returns what a run shows of one part of its load, or of a step: its rounds, without what is the whole load's."""
    if step:
        rounds = run.result.subjects.get(f"{part}#{step}") or tuple(map(without_samples, run.result.rounds))
    else:
        rounds = run.result.subjects[part]
    # A step is never due: it begins when its journey comes to it.
    counted = run.result.due is not None and not step
    due = sum(round_.requests + round_.failed for round_ in rounds) if counted else None
    boot = replace(
        run.boot,
        peak_rss_bytes=None,
        memory=(),
        growth=None,
        samples=(),
        alone=EMPTY,
        leads=None,
        thread_pools=(),
    )
    warm_ups = {} if step else {name: own for name, own in run.result.warm_ups.items() if name == part}
    result = replace(run.result, rounds=rounds, due=due, leads=None, subjects={}, warm_ups=warm_ups)
    return Run(result=result, boot=boot)


def after_probe(run: Run, probe: Run) -> Run:
    """Returns a run with the requests of the run before it on the same boot, that are in no figure: a warm-up, too."""
    before = {"": probe.result.rounds, **probe.result.subjects}
    earlier = probe.result.warm_ups
    warm_ups = {
        name: merged_warm_up((earlier.get(name, WarmUp()), warm_up_of(before.get(name, ())), warm_up))
        for name, warm_up in run.result.warm_ups.items()
    }
    boot = replace(run.boot, memory=course_after(probe.boot.memory, run.boot.memory))
    return Run(result=replace(run.result, warm_ups=warm_ups), boot=boot)


def recording_of(runs: Sequence[Run], *, connections: int, open_loop: bool, pinned: bool) -> Recording:
    """Returns everything measured in one or more runs; runs on one boot continue the numbers of its rounds."""
    results = [run.result for run in runs]
    rounds: list[Round] = []
    boots: dict[int, Boot] = {}
    for run in sorted(runs, key=lambda run: run.boot.index):
        index, known = run.boot.index, boots.get(run.boot.index)
        before = sum(round_.boot == index for round_ in rounds)
        rounds += (replace(round_, index=before + place) for place, round_ in enumerate(run.result.rounds))
        boot = replace(run.boot, warm_up=merged_warm_up(run.result.warm_ups.values()))
        if known is not None:
            boot = replace(known.and_then(boot), memory=course_after(known.memory, boot.memory))
        boots[index] = boot
    due = [result.due for result in results if result.due is not None]
    return Recording(
        rounds=tuple(rounds),
        boots=tuple(boots.values()),
        connections=connections,
        engine=results[0].engine,
        why_engine=results[0].why_engine,
        wait_ns=sum(result.wait_ns for result in results),
        attack_ns=sum(result.attack_ns for result in results),
        open_loop=open_loop,
        due=sum(due) if due else None,
        pinned=pinned,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Turns the progress of a run into a line about the whole measurement."""

    sink: ProgressSink
    clock: Callable[[], float]
    title: str
    begun_s: float
    """When the measurement began, by the clock."""
    total_s: float | None
    """How long it is planned to take; None where it ends by a count."""
    boots: int = 1

    def tell(self, progress: RunProgress, *, boot: int, requests: int) -> None:
        """Tells how far a run is. `boot` counts from 1; `requests` are those of earlier runs."""
        self.sink.update(
            ProgressLine(
                title=self.title,
                phase=progress.phase,
                boot=boot,
                boots=self.boots,
                elapsed_s=self.clock() - self.begun_s,
                total_s=self.total_s,
                requests=requests + progress.requests,
                rps=progress.rps,
                p99_s=progress.p99_ns / 1e9 if progress.p99_ns is not None else None,
                failures=progress.failed,
            )
        )


# --- Says what requests lost their time to, or where their CPU goes: further short loads that are looked at closely
#
# Outside of everything that is measured and judged: looking slows a server down.


class Load(Protocol):
    """Makes a run by the plan on a server."""

    def __call__(self, plan: LoadPlan, server: RunningServer) -> Run: ...


_MOST = 0.5
"""Share of the waiting that a cause has to account for."""
_FEW_FAILED = 0.01
"""Share of requests that may fail in a look: more show what failures cost, as that of a server without open files."""
_WARM_NS = 250_000_000
"""Brings a pool of threads to its size before the profiler chooses whether it may pause the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A side to look at."""

    server: RunningServer
    root: Path | None
    """The top of its code; None for the working directory."""
    cpu_per_request: float | None
    """As it was measured without a profiler, in seconds."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """`name old → new` of the packages that differ from this side to the code here, by what they import as."""
    served: Served | None = None
    """How it answered the load, of two sides; None where that is not known."""


def served_of(plan: LoadPlan | None, cores: int, recording: Recording, cpu_s: float | None) -> Served | None:
    """Returns how a version answered a load; None where it is not known, or the load is not the same all the time."""
    rounds, latency = recording.measured(), recording.latency()
    answered = sum(round_.requests + round_.failed for round_ in rounds)
    if plan is None or plan.burst is not None or plan.ramp is not None or not (cpu_s and answered and latency.count):
        return None
    seconds = sum(round_.duration_ns for round_ in rounds) / 1e9
    return Served(
        latency_s=latency.mean_ns() / 1e9 if recording.open_loop else plan.connections * seconds / answered,
        cpu_s=cpu_s * fmean(boot.core_delay for boot in recording.boots),
        connections=plan.connections,
        rate=answered / seconds if recording.open_loop else None,
        cores=cores,
    )


def explain_loss(
    load: Load, plan: LoadPlan, sides: Sequence[Looked], cores: frozenset[int] | None, record: Record
) -> Explanation:
    """Returns what made requests of the second side slower than those of the first: waiting, or functions' CPU.

    `load` makes a run by the plan on a server; `cores` are those of the profiler. Functions are looked for only where
    their CPU is a good part of what was lost, or where that is not known.
    """
    base, now = (side.served for side in sides)
    loss = None if base is None or now is None else loss_of(base, now)
    if loss is None:
        return _explain_growth(load, plan, sides, cores)
    waiting = loss_text(loss)
    found = _waited_for(load, plan, sides, cores, record, loss) if waiting else _Waited()
    if found.stalls is None and found.limit is not None and found.limit.kind is LimitKind.SERVER_CPU:
        # It works, or waits for its core, all the time: requests wait for nothing else, though the model says so.
        return _explain_growth(load, plan, sides, cores)
    lines, details = [waiting, found.text], loss_json(loss, found.stalls, found.limit)
    if loss.cpu_share >= A_GOOD_PART:
        grown = _explain_growth(load, plan, sides, cores)
        lines.append(grown.text)
        details = {**(grown.details or {}), "loss": details}
    else:
        details = {"loss": details}
    return Explanation(text="\n".join(filter(None, lines)), details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waited:
    """What requests waited for."""

    text: str = ""
    stalls: Stalls | None = None
    limit: Limit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Close:
    """What a close look at one side showed."""

    stalls: Stalls | None
    limit: Limit
    main_s: float
    """CPU time of main threads per request."""
    others_s: float
    """CPU time of all other threads per request."""


def _waited_for(
    load: Load,
    plan: LoadPlan,
    sides: Sequence[Looked],
    cores: frozenset[int] | None,
    record: Record,
    loss: Loss,
) -> _Waited:
    """Looks closely at both sides. What goes wrong costs the explanation, never the verdict."""
    try:
        base, now = (_looked_closely(partial(load, server=side.server), plan, record) for side in sides)
    except (FilePerfError, OSError):
        return _Waited()
    lost_s = now.stalls.lost_s - (0.0 if base.stalls is None else base.stalls.lost_s) if now.stalls else 0.0
    if now.stalls is None or lost_s < loss.wait_s * _MOST:
        return _Waited(text=limit_waited_for(now.limit), limit=now.limit)
    moved_s = min(now.main_s - base.main_s, base.others_s - now.others_s)
    text = stall_text(
        now.stalls,
        _holder(load, plan, sides[-1].server, cores),
        root=sides[-1].root or Path.cwd(),
        before_in_thread=not now.stalls.waits and moved_s >= (now.main_s + now.others_s) * A_GOOD_PART,
    )
    return _Waited(text=text, stalls=now.stalls, limit=now.limit)


def _looked_closely(load: Callable[[LoadPlan], Run], plan: LoadPlan, record: Record) -> _Close:
    run = asked_alone(load(replace(plan, close=True)), plan, load, record)
    if failed := _failed_in(run):
        raise LoadError(failed)
    recording = record((run,))
    spans = [(round_.started_ns, round_.ended_ns) for round_ in recording.measured()]
    workers, samples = run.boot.worker_pids, run.boot.samples
    ends_ns = sorted(at_ns for in_round in run.result.ends for ends in in_round for at_ns in ends)
    stalls = None
    if len(workers) == 1 and spans:
        stalls = stalls_of(
            samples,
            ends_ns,
            worker=workers[0],
            connections=None if recording.open_loop else recording.connections,
            span_ns=(spans[0][0], spans[-1][1]),
        )
    seen = [[use for use in sample.server if use.pid in workers] for sample in (*samples[:1], *samples[-1:])]
    mains = [sum(use.main_cpu_ns or 0 for use in uses) for uses in seen]
    alls = [sum(use.cpu_ns for use in uses) for uses in seen]
    seconds = (samples[-1].at_ns - samples[0].at_ns) / 1e9 if samples else 0.0
    usage = usage_of(recording)
    requests = usage.rps * seconds
    main_s, all_s = ((each[-1] - each[0]) / 1e9 / requests if requests else 0.0 for each in (mains, alls))
    return _Close(stalls=stalls, limit=limit_of(recording), main_s=main_s, others_s=all_s - main_s)


def _failed_in(run: Run) -> str:
    """Returns what failed in a look at a server, where it is so much that it shows another thing; else nothing."""
    failed = sum(round_.failed for round_ in run.result.rounds)
    made = failed + sum(round_.requests for round_ in run.result.rounds)
    return f"{failed:,} of {made:,} requests failed while it was looked" if failed > _FEW_FAILED * made else ""


def _holder(load: Load, plan: LoadPlan, server: RunningServer, cores: frozenset[int] | None) -> Stack | None:
    """Returns which functions hold the server's event loop; None where no profiler can tell."""
    try:
        with Profiler(server.worker_pids, seconds=_lasts_s(plan), all_time=True, cores=cores) as profiler:
            if profiler.unavailable is None:
                load(plan, server)
            sampled = profiler.stop()
        return None if isinstance(sampled, ProfilerUnavailable) else held_by(sampled.collapsed)
    except (FilePerfError, OSError, ValueError):
        return None


def _lasts_s(plan: LoadPlan) -> float:
    return (plan.longest_ns if plan.counted else plan.duration_ns) / 1e9 + 1


def _explain_growth(load: Load, plan: LoadPlan, sides: Sequence[Looked], cores: frozenset[int] | None) -> Explanation:
    """Returns which functions' CPU per request grew from the first side to the second; one line where none can tell."""
    profiles = _profiles_or_why_not(load, plan, sides, cores)
    if isinstance(profiles, ProfilerUnavailable):
        return Explanation(text=str(profiles))
    base, now = profiles
    base_root, now_root = (side.root or Path.cwd() for side in sides)
    grown = growth(base, now, base_root=base_root, now_root=now_root)
    text = growth_text(base, now, grown)
    tops = [each.file.partition("/")[0] for each in grown if each.growth_s > 0 and not each.own_code]
    if versions := dict.fromkeys(sides[0].changed[top] for top in tops if top in sides[0].changed):
        text += f"\nof another version: {', '.join(versions)}"
    return Explanation(text=text, details=growth_json(base, now, grown))


def explain_costs(load: Load, plan: LoadPlan, side: Looked, cores: frozenset[int] | None) -> Explanation:
    """Returns which functions cost most CPU per request; arguments as above."""
    profiles = _profiles_or_why_not(load, plan, (side,), cores)
    if isinstance(profiles, ProfilerUnavailable):
        return Explanation(text=str(profiles))
    (profile,) = profiles
    found = costs(profile, root=side.root or Path.cwd())
    details: Mapping[str, object] = costs_json(profile, found)
    return Explanation(text=costs_text(profile, found), details=details)


def _profiles_or_why_not(
    load: Load, plan: LoadPlan, sides: Sequence[Looked], cores: frozenset[int] | None
) -> list[Profile] | ProfilerUnavailable:
    """Returns the profiles; what goes wrong with the load, files or py-spy costs the explanation, never the verdict."""
    try:
        return _profiles(load, plan, sides, cores)
    except (FilePerfError, OSError, ValueError) as error:
        return ProfilerUnavailable(reason=str(error).partition("\n")[0])


def _profiles(
    load: Load, plan: LoadPlan, sides: Sequence[Looked], cores: frozenset[int] | None
) -> list[Profile] | ProfilerUnavailable:
    """Returns a profile of each side, from two looks in the order A B B A; or why there is none."""
    seen: list[list[tuple[Sampled, int]]] = [[] for _ in sides]
    for index in (*range(len(sides)), *reversed(range(len(sides)))):
        server = sides[index].server
        if not plan.counted and plan.ramp is None:
            load(replace(plan, warmup_ns=0, round_ns=_WARM_NS, rounds=1), server)
        with Profiler(server.worker_pids or server.pids, seconds=_lasts_s(plan), cores=cores) as profiler:
            if profiler.unavailable is not None:
                return profiler.unavailable
            run = load(plan, server)
            sampled = profiler.stop()
        if failed := _failed_in(run):
            return ProfilerUnavailable(reason=failed)
        if isinstance(sampled, ProfilerUnavailable):
            return sampled
        seen[index].append((sampled, sum(round_.requests for round_ in run.result.rounds)))
    texts = [[text for sampled, _ in looks for text in sampled.collapsed] for looks in seen]
    shares = [[share for sampled, _ in looks for share in sampled.main_shares] for looks in seen]
    threads = threads_of([*chain(*texts)], [*chain(*shares)])
    return [
        profile_of(
            texts[index],
            rate_hz=looks[0][0].rate_hz,
            requests=sum(requests for _, requests in looks),
            cpu_per_request=side.cpu_per_request,
            main_shares=shares[index],
            threads=threads,
            torn=any(sampled.torn for sampled, _ in looks),
            notes=tuple(dict.fromkeys(note for sampled, _ in looks for note in sampled.notes)),
        )
        for index, (side, looks) in enumerate(zip(sides, seen, strict=True))
    ]
