"""One run: connects to one boot of the server, warms up, makes the rounds, drains. Runs on the current event loop."""

from __future__ import annotations

import asyncio
import gc
import math
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic_ns

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.preparation import Target, prepared
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import LeadTimes, Phase, Round, WarmUp
from pytest_fileperf.plan.load import Alternation, LoadPlan, Side
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.wire.payload_files import PayloadFiles

__all__ = (
    "RunProgress",
    "RunResult",
    "answers_a_pace",
    "at_once",
    "edges_of",
    "quiet_memory",
    "run_alternating",
    "run_load",
    "tell",
)

_PROGRESS_S = 0.25


@dataclass(frozen=True, kw_only=True)  # with slots CPython would keep a tuple of each one that was pickled, up to 2,000
class RunProgress:
    """How far a run has come; sent while it runs."""

    phase: str
    elapsed_ns: int
    """Since the run's warm-up began."""
    requests: int
    """Successful ones in the rounds so far."""
    rps: float
    """Of the newest finished round; 0.0 before there is one."""
    p99_ns: int | None
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What one run found."""

    boot: int
    rounds: tuple[Round, ...]
    engine: str
    why_engine: str
    attack_ns: int
    """Open loop: from the first to the last request due; a fixed count: to its last start; else the rounds."""
    wait_ns: int
    """From the end of the attack, or of the last round, to the last answer."""
    due: int | None
    """How many requests should have been sent after the warm-up; None in a closed loop for a time."""
    leads: LeadTimes | None
    """Open loop only."""
    uncounted_ns: int = 0
    """What of the time of its journeys did not count, such as pauses."""
    parts: tuple[tuple[str, tuple[Round, ...]], ...] = ()
    """The rounds of each part by its name; none for a load without parts."""
    steps: tuple[tuple[str, str, tuple[Round, ...]], ...] = ()
    """The rounds of each step of journeys, with the part that its journey is (or an empty name) and its own name."""
    warm_ups: tuple[tuple[str, WarmUp], ...] = ()
    """What came of the requests of the warm-up, of each part by its name; by an empty one without parts."""
    attack: tuple[int, int] | None = None
    """From when to when `attack_ns` is, on the monotonic clock; None for turns, and where nothing was due."""
    last_end_ns: int = 0
    """When the last request ended."""
    ends: tuple[tuple[array[int], ...], ...] = ()
    """When answers ended in each round, by parts: of a `close` load, and of one of several generators that load two
    servers in turn."""


async def at_once() -> int:
    """Returns now as the beginning of a load that need not wait for others."""
    return monotonic_ns()


async def run_load(
    work: Work,
    plan: LoadPlan,
    target: Target,
    *,
    files: PayloadFiles,
    server_cpu: Callable[[], int | None],
    progress: Callable[[RunProgress], None],
    begin: Callable[[], Awaitable[int]] = at_once,
) -> RunResult:
    """Makes one run and returns its rounds.

    `begin` is called when all is ready; it returns when the load begins, on the monotonic clock, and not before that.

    Raises PlanError when the request cannot be built, and httpx.ConnectError or httpx.ConnectTimeout when the first
    connections cannot be opened; what goes wrong later is a failure in the rounds.
    """
    async with AsyncExitStack() as stack:
        ends = () if plan.counted else range(1, plan.rounds + 1)
        recorder = Recorder(
            boot=target.boot,
            stretches=[(end * plan.round_ns, Phase.ROUND) for end in ends],
            server_cpu=server_cpu,
            keeps_ends=plan.close,
            parts=[part.name for part in parts_of(work)],
        )
        load = await prepared(
            work, plan, target, recorder, plan.pacing(), opened=plan.opened_first, files=files, stack=stack
        )
        with quiet_memory(collect=load.engine != "replay"):
            origin_ns = await begin()
            recorder.begin(origin_ns + plan.warmup_ns)
            recorder.advance(monotonic_ns())  # without a warm-up the server's CPU time counts from the first request on
            stack.callback(asyncio.create_task(tell(load.loop, recorder, origin_ns, progress)).cancel)
            await load.run(origin_ns)
            ended_ns = monotonic_ns()
            missing = plan.requests - load.loop.started if plan.requests is not None else 0
            if missing:
                example = f"the time was over before {missing} of {plan.requests} requests: give them a longer duration"
                recorder.not_sent("not sent", example, ended_ns, count=missing)
            rounds = recorder.finish(ended_ns)
    attack_from_ns, attack_to_ns = _attack(plan, load.loop, recorder, origin_ns)
    return RunResult(
        boot=target.boot,
        rounds=rounds,
        engine=load.engine,
        why_engine=load.why_engine,
        attack_ns=attack_to_ns - attack_from_ns,
        wait_ns=max(0, recorder.last_end_ns - attack_to_ns),
        due=recorder.due_count if plan.pacing().open_loop else plan.requests,
        leads=recorder.lead_times(),
        uncounted_ns=recorder.uncounted_ns,
        parts=recorder.parts(),
        warm_ups=recorder.warm_ups(),
        attack=None if plan.pacing().open_loop and not recorder.due_count else (attack_from_ns, attack_to_ns),
        last_end_ns=recorder.last_end_ns,
        steps=recorder.steps(),
        ends=tuple(recorder.ends),
    )


def _attack(plan: LoadPlan, load: LoadLoop, recorder: Recorder, origin_ns: int) -> tuple[int, int]:
    """Returns from when to when requests were sent, or had to be, after the warm-up."""
    if plan.pacing().open_loop:
        return recorder.first_due_ns or origin_ns, recorder.last_due_ns or origin_ns
    if plan.requests is not None:
        return origin_ns, load.last_start_ns
    return origin_ns + plan.warmup_ns, origin_ns + plan.duration_ns


@contextmanager
def quiet_memory(*, collect: bool) -> Iterator[None]:
    """Keeps the garbage collector from stopping the load: what exists is frozen.

    With `collect` new garbage is still collected: httpx's responses are reference cycles. Where the process has frozen
    objects itself nothing more is, as what thaws ours would thaw those.
    """
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


async def tell(load: LoadLoop, recorder: Recorder, origin_ns: int, progress: Callable[[RunProgress], None]) -> None:
    """Reports how far the run has come, a few times a second; the listener may end it by raising.

    It says nothing at first: a message would delay requests that are due at once.
    """
    told, p99_ns = None, None
    while True:
        await asyncio.sleep(_PROGRESS_S)
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
        except Exception as error:  # the listener's own: the run raises it
            load.abort(error)
            return


# --- Loads two servers in turn, on one event loop with open connections to both. Runs on the current event loop

_LEAST_PACE = 16
"""The time of fewer answers is more chance than pace, above all where requests differ. It is rounded up to whole
bunches of one answer for each connection: one bunch and a part take the time of one bunch, or of two."""
_CUT_BEFORE_NS = 3_000_000
_LEAST_SLEEP_S = 0.001
"""Timers of event loops are good to a millisecond. A side's CPU time is read before its own next turn can be in it."""


async def run_alternating(
    works: Sequence[Work],
    plan: Alternation,
    targets: Sequence[Target],
    *,
    files: PayloadFiles,
    server_cpu: Sequence[Callable[[], int | None]],
    progress: Callable[[RunProgress], None],
    begin: Callable[[], Awaitable[int]] = at_once,
) -> tuple[RunResult, RunResult]:
    """Makes the cycles and returns what each side, base and now, has shown of its work: a round for each of its turns.

    `begin` is called when all is ready; it returns when the load begins, on the monotonic clock, and not before that.
    Raises what `run_load` raises.
    """
    recorders = [_recorder(plan, side, works[side], targets[side].boot, server_cpu[side]) for side in Side]
    async with AsyncExitStack() as stack:
        loads = [
            await prepared(
                works[side],
                plan,
                target,
                recorder,
                plan.pacing(side),
                opened=plan.connections,
                files=files,
                stack=stack,
            )
            for side, target, recorder in zip(Side, targets, recorders, strict=True)
        ]
        now = loads[Side.NOW]
        with quiet_memory(collect=now.engine != "replay"):
            origin_ns = await begin()
            zero_ns = origin_ns + plan.measured_from_ns
            for side, load in zip(Side, loads, strict=True):
                load.recorder.begin(zero_ns)
                _start(stack, _cut(load.recorder, [zero_ns + edge_ns for edge_ns in _idle_edges(plan, side)]))
            _start(stack, tell(now.loop, now.recorder, origin_ns, progress))
            await asyncio.gather(*[_start(stack, load.run(origin_ns)) for load in loads])
            ended_ns = monotonic_ns()
            rounds = [load.recorder.finish(ended_ns) for load in loads]
    base_result, now_result = (
        RunResult(
            boot=targets[side].boot,
            rounds=rounds[side],
            engine=load.engine,
            why_engine=load.why_engine,
            attack_ns=sum(end - start for start, end in plan.rounds(side)),
            wait_ns=max(0, load.recorder.last_end_ns - origin_ns - plan.duration_ns),
            due=None,
            leads=None,
            uncounted_ns=load.recorder.uncounted_ns,
            parts=load.recorder.parts(),
            warm_ups=load.recorder.warm_ups(),
            last_end_ns=load.recorder.last_end_ns,
            ends=tuple(load.recorder.ends),
            steps=load.recorder.steps(),
        )
        for side, load in zip(Side, loads, strict=True)
    )
    return base_result, now_result


def _start(stack: AsyncExitStack, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    """Returns the task that does the work, until the stack ends it."""
    task = asyncio.create_task(work)
    stack.callback(task.cancel)
    return task


def _recorder(plan: Alternation, side: Side, work: Work, boot: int, server_cpu: Callable[[], int | None]) -> Recorder:
    return Recorder(
        parts=[part.name for part in parts_of(work)],
        boot=boot,
        stretches=_stretches(plan, side),
        server_cpu=server_cpu,
        pace_over=answers_a_pace(plan.connections),
        together=plan.connections,
        keeps_ends=plan.share.of > 1,
    )


def edges_of(plan: LoadPlan | Alternation, side: Side = Side.BASE) -> tuple[int, ...]:
    """Returns when rounds begin and end, in ns since the load began, ascending; of one side of two in turn."""
    if isinstance(plan, Alternation):
        ends = dict.fromkeys((0, *(end for end, _ in _stretches(plan, side))))
        return tuple(plan.measured_from_ns + end for end in ends)
    rounds = 0 if plan.counted else plan.rounds  # what is counted ends with its last answer
    return tuple(plan.warmup_ns + place * plan.round_ns for place in range(rounds + 1))


def answers_a_pace(connections: int) -> int:
    """Returns how many answers a typical rate is measured by, with so many connections."""
    return connections * math.ceil(_LEAST_PACE / connections)


def _stretches(plan: Alternation, side: Side) -> list[tuple[int, Phase]]:
    """Returns the turns of a side; what is between them is cut where turns of the other side begin and end."""
    own = [edge for start, end in plan.rounds(side) for edge in ((start, Phase.HANDOVER), (end, Phase.ROUND))]
    return sorted(own + [(at_ns, Phase.HANDOVER) for at_ns in _idle_edges(plan, side)])


def _idle_edges(plan: Alternation, side: Side) -> list[int]:
    """Returns when each turn of the other side begins, and a little before it ends."""
    turns = plan.rounds(Side(1 - side))
    return [at_ns for start, end in turns for at_ns in (start, max(start, end - _CUT_BEFORE_NS))]


async def _cut(recorder: Recorder, edges_ns: Sequence[int]) -> None:
    """Closes the rounds of a side in the other side's turns: nothing ends then that would do it."""
    for edge_ns in edges_ns:
        while (left_ns := edge_ns - monotonic_ns()) > 0:  # noqa: ASYNC110 - a timer may be early
            await asyncio.sleep(max(_LEAST_SLEEP_S, left_ns / 1e9))
        recorder.advance(monotonic_ns())
