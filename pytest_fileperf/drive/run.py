"""Runs one load on one or two servers: connects, warms up, sends requests in rounds, waits for the last answers."""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from time import monotonic_ns

from pytest_fileperf.drive.preparation import PreparedLoad, Target
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Boot, Phase, Round, WarmUp, without_samples
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.request import SubjectName
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.wire.payload_files import PayloadFiles


@dataclass(frozen=True, kw_only=True)  # with slots CPython would keep a tuple of each one that was pickled, up to 2,000
class RunProgress:
    phase: str
    """`warm-up`, `round` or `drain`."""
    elapsed_ns: int
    """Time since the warm-up began."""
    requests: int
    """Successful requests in the rounds so far."""
    rps: float
    """Requests per second of the newest finished round; 0.0 before a round has finished."""
    p99_ns: int | None
    """The 99th percentile of response times in the newest finished round. None before a round, or without answers."""
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    plan: LoadPlan | Alternation
    boot: Boot
    """Data about the server's start-up. Most of its fields are set later, by the test process."""
    pinned: bool = False
    """Whether server and load generator ran on separate CPU cores."""
    rounds: tuple[Round, ...]
    subjects: Mapping[SubjectName, tuple[Round, ...]] = field(default_factory=dict)
    """The rounds of each part of the load, and of each step of users' journeys."""
    warm_ups: Mapping[str, WarmUp] = field(default_factory=dict)
    """The warm-up's results by the name of a part. In a load without parts, the name is empty."""
    engine: str
    why_engine: str
    attack: tuple[int, int]
    """When the first and the last request after the warm-up should be sent, on the monotonic clock. In a closed loop
    with a fixed duration: when the rounds begin and end."""
    last_end_ns: int = 0
    due: int | None = None
    """How many requests should be sent after the warm-up; None in a closed loop with a fixed duration."""
    uncounted_ns: int = 0
    """Time in users' journeys that no figure counts, such as pauses, in ns."""
    paths: frozenset[tuple[str, str]] = frozenset()
    """(method, path) of requests that an httpx client sent, as in users' journeys."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """Why load generators were lost, by their numbers (from 1 on)."""
    ends: tuple[tuple[array[int], ...], ...] = ()
    """For each round and part, the instants at which answers ended. Recorded only if `LoadPlan.close` is set, or if
    several generators compare an old and a new version."""

    def rounds_of(self, part: str = "", step: str = "") -> tuple[Round, ...]:
        """Returns the rounds of the whole load, a part or a step. If a step was never reached, they have no samples."""
        if not part and not step:
            return self.rounds
        return self.subjects.get((part, step)) or tuple(map(without_samples, self.rounds))

    @property
    def attack_ns(self) -> int:
        """The length of `attack`. If two versions are loaded alternately: one version's share of the time."""
        turns = self.plan.rounds(Side.NOW) if isinstance(self.plan, Alternation) else [self.attack]
        return sum(end - start for start, end in turns)

    @property
    def wait_ns(self) -> int:
        """Time from the end of `attack` to the last answer."""
        return max(0, self.last_end_ns - self.attack[1])


async def at_once() -> int:
    """Returns the present instant, to begin a load without waiting for other generators."""
    return monotonic_ns()


async def run_load(
    works: Sequence[Work],
    plan: LoadPlan | Alternation,
    targets: Sequence[Target],
    *,
    files: PayloadFiles,
    server_cpu: Sequence[Callable[[], int | None]],
    progress: Callable[[RunProgress], None],
    begin: Callable[[], Awaitable[int]] = at_once,
) -> tuple[Run, ...]:
    """Loads one server, or alternately an old and a new version. Returns one result for each server.

    When all is prepared, `begin` is awaited. It returns the instant at which the load begins, on the monotonic clock.
    Raises PlanError if a request cannot be built. Raises httpx.ConnectError or httpx.ConnectTimeout if the first
    connections cannot be opened. Later errors count as failed requests.
    """
    async with AsyncExitStack() as stack:
        loads = []
        for side, work, target, cpu in zip(Side, works, targets, server_cpu, strict=False):
            recorder = Recorder(
                boot=target.boot,
                stretches=_stretches(plan, side),
                server_cpu=cpu,
                connections=plan.connections if isinstance(plan, Alternation) else 0,
                keeps_ends=plan.share.of > 1 if isinstance(plan, Alternation) else plan.close,
                parts=[part.name for part in parts_of(work)],
            )
            pacing = plan.pacing(side) if isinstance(plan, Alternation) else plan.pacing()
            loads.append(PreparedLoad(work, plan, target, recorder, pacing, files, stack))
            await loads[-1].open()
        now = loads[-1]
        with quiet_memory(collect=now.engine != "replay"):  # httpx's responses are reference cycles
            origin_ns = await begin()
            zero_ns = origin_ns + plan.measured_from_ns
            for side, load in zip(Side, loads, strict=False):
                load.recorder.begin(zero_ns)
                # Without a warm-up, the server's CPU time counts from the first request on.
                load.recorder.advance(monotonic_ns())
                if edges := _idle_edges(plan, side):
                    _start(stack, _cut(load.recorder, [zero_ns + edge_ns for edge_ns in edges]))
            _start(stack, _tell(now, origin_ns, progress))
            await asyncio.gather(*[_start(stack, load.loop.run(load.slots, origin_ns=origin_ns)) for load in loads])
            ended_ns = monotonic_ns()
            if missing := 0 if plan.requests is None else plan.requests - now.loop.started:
                example = f"the time ended before the last {missing} of {plan.requests} requests. Use a longer duration"
                now.recorder.not_sent(example, ended_ns, count=missing)
            rounds = [load.recorder.finish(ended_ns) for load in loads]
    return tuple(_found(plan, load, own, origin_ns) for load, own in zip(loads, rounds, strict=True))


def _found(plan: LoadPlan | Alternation, load: PreparedLoad, rounds: tuple[Round, ...], origin_ns: int) -> Run:
    recorder, is_open = load.recorder, load.loop.pacing.open_loop
    attack = origin_ns + plan.measured_from_ns, origin_ns + plan.duration_ns
    if is_open:
        attack = recorder.first_due_ns or origin_ns, recorder.last_due_ns or origin_ns
    elif plan.requests is not None:
        attack = origin_ns, load.loop.last_start_ns
    return Run(
        plan=plan,
        boot=Boot(index=load.target.boot, leads=recorder.leads.taken()),
        rounds=rounds,
        subjects=recorder.subjects(),
        warm_ups=recorder.warm_ups(),
        engine=load.engine,
        why_engine=load.why_engine,
        attack=attack,
        last_end_ns=recorder.last_end_ns,
        due=recorder.due_count if is_open else plan.requests,
        uncounted_ns=recorder.uncounted_ns,
        paths=frozenset(recorder.paths),
        ends=tuple(recorder.ends),
    )


@contextmanager
def quiet_memory(*, collect: bool) -> Iterator[None]:
    """Keeps long garbage collections from pausing the load. If `collect`, new objects are still collected."""
    was_enabled, frozen_before = gc.isenabled(), gc.get_freeze_count() > 0
    gc.collect()
    if not frozen_before:
        gc.freeze()
    if not collect:
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        if not frozen_before:
            gc.unfreeze()


async def _tell(load: PreparedLoad, origin_ns: int, progress: Callable[[RunProgress], None]) -> None:
    """Calls `progress` a few times a second. If `progress` raises an error, the load ends with this error."""
    recorder, told, p99_ns = load.recorder, None, None
    while True:
        await asyncio.sleep(0.25)  # also at first: a message would delay requests that are due at once
        last = recorder.last_round
        if last is not None and last is not told:
            told, p99_ns = last, last.latency.percentile_ns(99) if last.latency.count else None
        seconds = last.duration_ns / 1e9 if last is not None else 0.0
        moment = RunProgress(
            phase=recorder.phase,
            elapsed_ns=monotonic_ns() - origin_ns,
            requests=recorder.finished_requests + (recorder.requests if recorder.phase != "warm-up" else 0),
            rps=last.requests / seconds if last is not None and seconds else 0.0,
            p99_ns=p99_ns,
            failed=recorder.failed,
        )
        try:
            progress(moment)
        except Exception as error:  # the listener's own: the load raises it
            load.loop.abort(error)
            return


# --- Cuts a load's time into rounds. In a comparison, the two servers get the load alternately


def _start(stack: AsyncExitStack, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    stack.callback(task.cancel)
    return task


def edges_of(plan: LoadPlan | Alternation, side: Side = Side.BASE) -> tuple[int, ...]:
    """Returns when rounds begin and end, in ns since the load began. In a comparison, only the rounds of `side`."""
    ends = dict.fromkeys((0, *(end for end, _ in _stretches(plan, side))))
    return tuple(plan.measured_from_ns + end for end in ends)


def _stretches(plan: LoadPlan | Alternation, side: Side) -> list[tuple[int, Phase]]:
    """Returns (end in ns after the warm-up, phase) of each section of the load. Empty for a fixed request number."""
    if isinstance(plan, LoadPlan):
        return [] if plan.counted else [(end * plan.round_ns, Phase.ROUND) for end in range(1, plan.rounds + 1)]
    own = [edge for start, end in plan.rounds(side) for edge in ((start, Phase.HANDOVER), (end, Phase.ROUND))]
    return sorted(own + [(at_ns, Phase.HANDOVER) for at_ns in _idle_edges(plan, side)])


def _idle_edges(plan: LoadPlan | Alternation, side: Side) -> list[int]:
    """Returns when the other version's turns begin, and when they have almost ended."""
    turns = plan.rounds(Side(1 - side)) if isinstance(plan, Alternation) else ()
    # A version's CPU time is read before its own next turn begins, and timers may be some milliseconds late.
    return [at_ns for start, end in turns for at_ns in (start, max(start, end - 3_000_000))]


async def _cut(recorder: Recorder, edges_ns: Sequence[int]) -> None:
    """Closes a version's rounds at these instants, while the other version gets the load."""
    for edge_ns in edges_ns:
        while (left_ns := edge_ns - monotonic_ns()) > 0:  # noqa: ASYNC110 - a timer may be early
            await asyncio.sleep(max(0.001, left_ns / 1e9))
        recorder.advance(monotonic_ns())
