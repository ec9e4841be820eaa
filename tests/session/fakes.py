"""Servers, loads, a clock and cores that behave as the real ones do, without a process, a socket or a wait."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import psutil

from pytest_fileperf.drive.cluster import Workers
from pytest_fileperf.drive.run import Run, RunProgress
from pytest_fileperf.errors import AppLoadError, AppMissingError, ServerDiedError
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, Failure, GeneratorProcess, GeneratorRound, Phase, Round
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side, generators_used
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.report.progress import ProgressLine
from pytest_fileperf.serve import launch
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.job import StartUp
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ServerSpec, Url
from pytest_fileperf.serve.workers import AsgiLaunch
from pytest_fileperf.session.loads import BothServers, BothWorks, Cores, Loader, Tell
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.versions.loaded import LoadedFiles
from pytest_fileperf.versions.source import Source
from pytest_fileperf.versions.tree import CodeTree

MS = 1_000_000
BOOT_S = 0.2
CPU_NS = 100_000
"""CPU of a request."""
STABILISED = ("addresses", "hash seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What one version of an app does."""

    latency_ns: int = 2 * MS
    latency_of_first_boot_ns: int | None = None
    paths: tuple[str, ...] = ("/",)
    """Requests to others fail."""
    failing: str = "status 404"
    """The kind of their failure."""
    good_of: int = 0
    """One of so many requests is answered well; 0 for all of them."""
    dies_after: int | None = None
    """Requests that a boot answers before it dies."""
    missing: bool = False
    """Nothing has its name."""
    breaks: bool = False
    """It cannot be imported."""
    background: float = 0.0
    """Share of a core that it uses while the other version has its turn."""
    noise: float = 0.01
    """Standard deviation of the logarithm of how many requests fit into a round."""
    client_cpu_ns: int = CPU_NS // 5
    """CPU that a request costs the generator."""
    slow_part: str = ""
    """The part of a load that gets half as many answers as others."""


class Clock:
    """Goes on only when somebody lets it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Server(RunningServer):
    """One boot of an app."""

    stabilised = STABILISED

    def __init__(self, app: App, *, latency_ns: int, number: int) -> None:
        self.app = app
        self.latency_ns = latency_ns
        self.number = number
        self.paths = set(app.paths)
        """Which a test may add to."""
        self.requests = 0
        self.is_dead = False
        self.is_over = False
        self.loaded = LoadedFiles()
        self.url = f"http://fake:{number}"
        self.title = f"fake {number}"

    @property
    def processes(self) -> tuple[psutil.Process, ...]:
        return ()

    def identity(self) -> dict[str, object]:
        return {"server": "fake"}

    def check(self) -> None:
        if self.is_dead or (self.app.dies_after is not None and self.requests > self.app.dies_after):
            self.is_dead = True
            raise ServerDiedError(f"{self.title} ended with exit status 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Booted:
    """How a server was asked for."""

    side: Side
    boot: int
    serial: int


@dataclass(slots=True, kw_only=True)
class Host:
    """The machine, with both versions of the app on it. Notes what it boots."""

    base: App = App()
    now: App = App()
    clock: Clock = field(default_factory=Clock)
    files: tuple[str, ...] = ()
    """What servers have loaded."""
    is_known: bool = False
    """Whether they have loaded nothing else."""
    booted: list[Booted] = field(default_factory=list)
    servers: list[Server] = field(default_factory=list)
    most_alive: int = 0
    """How many of them served at the same time."""

    def boot(self, asked: Booted, code_tree: CodeTree) -> Server:
        self.clock.now_s += BOOT_S
        app = self.now if asked.side is Side.NOW else self.base
        if app.missing:
            raise AppMissingError(f"{code_tree.title}: there is no module of this name")
        if app.breaks:
            raise AppLoadError(f"{code_tree.title}: No module named 'a_module_that_is_not_there'")
        first = all(booted.side is not asked.side for booted in self.booted)
        latency_ns = app.latency_of_first_boot_ns if first and app.latency_of_first_boot_ns else app.latency_ns
        self.most_alive = max(self.most_alive, 1 + sum(not server.is_over for server in self.servers))
        made = Server(app, latency_ns=latency_ns, number=len(self.servers))
        modules = tuple(_in_tree(file, code_tree) for file in self.files)
        made.loaded = LoadedFiles(modules=modules, is_known=self.is_known)
        self.booted.append(asked)
        self.servers.append(made)
        return made


class Pool(ServerPool):
    """Boots on a host what could be booted."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host

    def launch(self, spec: ServerSpec, app: AppSpec | None, start_up: StartUp) -> launch.Launch:
        real = super().launch(spec, app, start_up)
        if isinstance(spec, Url):
            return real
        assert isinstance(real, AsgiLaunch)
        side = Side.NOW if start_up.code_tree.is_here else Side.BASE
        asked = Booted(side=side, boot=start_up.number, serial=real.start_up.serial)
        return Launch(self._host, asked, start_up.code_tree)


def _in_tree(file: str, tree: CodeTree) -> str:
    """Returns where a file of the code here is in a tree."""
    if tree.here is None or tree.there is None or not Path(file).is_relative_to(tree.here):
        return file
    return str(tree.there / Path(file).relative_to(tree.here))


class Launch:
    """The steps of one boot."""

    def __init__(self, host: Host, asked: Booted, code_tree: CodeTree) -> None:
        self._host = host
        self._asked = asked
        self._code_tree = code_tree
        self._server: Server | None = None

    def start(self) -> None:
        pass

    def ready(self) -> RunningServer:
        self._server = self._host.boot(self._asked, self._code_tree)
        return self._server

    def ask_to_stop(self) -> None:
        pass

    def stop(self) -> str:
        if self._server is not None:
            self._server.is_over = True
        return ""


class Loads(Loader):
    """Loads servers: as many requests as fit into the time, with the noise of a quiet machine. Notes what it loads."""

    def __init__(self, clock: Clock, *, needed: float | None = None, lost: Mapping[int, str] | None = None) -> None:
        """`needed` are the cores that generators use, where that is asked; `lost` are those that end, and why."""
        self.clock = clock
        self.needed = needed
        self.lost = lost or {}
        self.made: list[int] = []
        """With how many generators loads were made."""
        self.rng = np.random.default_rng(1)
        self.turns: list[Alternation] = []
        self.is_closed = False
        self.cluster: Workers | None = None
        self.paths = set()

    def close(self) -> None:
        self.is_closed = True

    def workers(self) -> Workers | None:
        return self.cluster

    def make(self, work: Work, plan: LoadPlan, index: int, server: RunningServer, cores: Cores, tell: Tell) -> Run:
        assert isinstance(server, Server)
        begun_ns = round(self.clock() * 1e9) + plan.warmup_ns
        rounds: list[Round] = []
        for place in range(plan.rounds):
            count, long_ns = self._count(plan, server), plan.round_ns
            if plan.counted:
                long_ns = round(count * server.latency_ns / plan.connections * self.rng.lognormal(0, 0.01))
            rounds.append(self._round(server, work, place, Phase.ROUND, begun_ns + place * long_ns, long_ns, count))
        taken_ns = plan.warmup_ns + sum(round_.duration_ns for round_ in rounds)
        run = self._ended(server, work, plan, index, rounds, taken_ns, cores, tell)
        due = sum(round_.requests + round_.failed for round_ in rounds)
        is_due = plan.counted or plan.pacing().open_loop
        return replace(run, due=due) if is_due else run

    def alternate(
        self, works: BothWorks, plan: Alternation, index: int, servers: BothServers, cores: Cores, tell: Tell
    ) -> tuple[Run, Run]:
        self.turns.append(plan)
        begun_ns = round(self.clock() * 1e9) + plan.measured_from_ns
        made = []
        for side, server, work in zip(Side, servers, works, strict=True):
            assert isinstance(server, Server)
            rounds: list[Round] = []
            for starts_ns, ends_ns in plan.rounds(side):
                handover_ns = plan.handover_ns
                for phase, start_ns, long_ns in (
                    (Phase.HANDOVER, starts_ns - handover_ns, handover_ns),
                    (Phase.ROUND, starts_ns, ends_ns - starts_ns),
                ):
                    count = self._fitting(server, plan.connections, long_ns)
                    rounds.append(self._round(server, work, len(rounds), phase, begun_ns + start_ns, long_ns, count))
            for starts_ns, ends_ns in plan.rounds(Side(1 - side)):
                idle_ns = ends_ns - starts_ns
                idle = self._round(server, work, len(rounds), Phase.HANDOVER, begun_ns + starts_ns, idle_ns, 0)
                rounds.append(replace(idle, server_cpu_ns=round(idle_ns * server.app.background)))
            in_order = sorted(rounds, key=lambda round_: round_.started_ns)
            rounds = [replace(round_, index=place) for place, round_ in enumerate(in_order)]
            made.append((server, work, rounds))
        base, now = (self._ended(*own[:2], plan, index, own[2], plan.duration_ns // 2, cores, tell) for own in made)
        return base, now

    def _count(self, plan: LoadPlan, server: RunningServer) -> int:
        if plan.rate is not None:
            return round(plan.rate * plan.round_ns / 1e9)
        return plan.requests or plan.burst or self._fitting(server, plan.connections, plan.round_ns)

    def _fitting(self, server: RunningServer, connections: int, long_ns: int) -> int:
        assert isinstance(server, Server)
        return round(connections * long_ns / server.latency_ns * self.rng.lognormal(0, server.app.noise))

    def _round(
        self, server: RunningServer, work: Work, index: int, phase: Phase, begun_ns: int, long_ns: int, count: int
    ) -> Round:
        assert isinstance(server, Server)
        works = tuple(part.work for part in parts_of(work)) or (work,)
        there = all(isinstance(own, Operation) and own.url in server.paths for own in works)
        good = 0 if not there else count // server.app.good_of if server.app.good_of else count
        server.requests += count
        kind = server.app.failing
        failed = (Failure(kind=kind, count=count - good, example="no such path"),) if count > good else ()
        latency = Histogram.of((server.latency_ns * self.rng.lognormal(0, 0.05, good)).astype(np.int64))
        return Round(
            boot=0,
            index=index,
            phase=phase,
            started_ns=begun_ns,
            ended_ns=begun_ns + long_ns,
            requests=good,
            latency=latency,
            ttfb=latency,
            bytes_sent=0,
            bytes_received=good * 1000,
            statuses=tuple(
                (status, many) for status, many in ((200, good), (_status_of(kind), count - good)) if many and status
            ),
            failures=failed,
            server_cpu_ns=count * CPU_NS,
            client_cpu_ns=count * server.app.client_cpu_ns,
            typical_rps=good / long_ns * 1e9 if phase is Phase.ROUND and good else None,
        )

    def _ended(
        self,
        server: RunningServer,
        work: Work,
        plan: LoadPlan | Alternation,
        index: int,
        rounds: Sequence[Round],
        taken_ns: int,
        cores: Cores,
        tell: Tell,
    ) -> Run:
        assert isinstance(server, Server)
        assert not server.is_over
        self.clock.now_s += taken_ns / 1e9
        requests = sum(round_.requests for round_ in rounds)
        tell(RunProgress(phase="round", elapsed_ns=taken_ns, requests=requests, rps=0.0, p99_ns=None, failed=0))
        server.check()
        count = generators_used(plan)
        self.made.append(count)
        rounds = tuple(self._by_generators(replace(round_, boot=index), count) for round_ in rounds)
        generators = [
            GeneratorProcess(number=number, of=count, connections=4, lost=self.lost.get(number, ""))
            for number in range(1, count + 1)
        ]
        names = [part.name for part in parts_of(work)]
        shares = {name: (0.5 if name == server.app.slow_part else 1.0) / len(names) for name in names}
        return Run(
            plan=plan,
            pinned=cores is not None,
            rounds=rounds,
            engine="replay",
            why_engine="",
            attack=(0, taken_ns),
            subjects={(name, ""): tuple(_of_part(own, share) for own in rounds) for name, share in shares.items()},
            boot=Boot(
                index=index,
                pids=(server.number,),
                peak_rss_bytes=50 << 20,
                stabilised=server.stabilised,
                tracer=server.tracer,
                worker_pids=(server.number,),
                generators=tuple(generators) if count > 1 else (),
            ),
        )

    def _by_generators(self, round_: Round, count: int) -> Round:
        if self.needed is None:
            return round_
        each_ns = round(min(1.0, self.needed / count) * round_.duration_ns)
        own = tuple(
            GeneratorRound(number=number, requests=round_.requests // count, failed=0, cpu_ns=each_ns - number)
            for number in range(1, count + 1)
            if number not in self.lost
        )
        return replace(round_, client_cpu_ns=each_ns * count, generators=own if count > 1 else ())


def _of_part(round_: Round, share: float) -> Round:
    """Returns the round of a part that has this share of the requests."""
    typical = None if round_.typical_rps is None else share * round_.typical_rps
    requests = round(share * round_.requests)
    return replace(round_, requests=requests, bytes_received=requests * 1000, typical_rps=typical)


def _status_of(kind: str) -> int:
    """Returns the status of an answer that fails; 0 where there was none."""
    return int(kind.partition(" ")[2] or 0) if kind.startswith("status") else 200 * (kind in ("size", "assertion"))


class Sink:
    """Takes progress down."""

    def __init__(self) -> None:
        self.lines: list[ProgressLine] = []
        self.is_done = False

    def update(self, line: ProgressLine) -> None:
        self.lines.append(line)

    def done(self) -> None:
        self.is_done = True


GET = Operation(method="GET", url="/")
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


NOWHERE = Path("/nowhere")
"""A directory without code: the baseline's cannot be found."""


def rig_of(host: Host, *, seed: int = 1) -> tuple[Rig, Loads, Sink]:
    """Returns a rig whose servers are those of the host, and what it loads and tells with."""
    loads, sink = Loads(host.clock), Sink()
    rig = Rig(
        progress=sink,
        servers=Pool(host),
        loads=loads,
        clock=host.clock,
        chance=random.Random(seed),
        source=Source(NOWHERE, NOWHERE),
    )
    return rig, loads, sink
