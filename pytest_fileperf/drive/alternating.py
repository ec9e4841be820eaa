"""Loads two servers in turn, on one event loop with open connections to both. Runs on the current event loop."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from time import monotonic_ns

from pytest_fileperf.drive.preparation import Target, prepared
from pytest_fileperf.drive.run import RunProgress, RunResult, at_once, quiet_memory, tell
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import Phase
from pytest_fileperf.plan.alternation import Alternation, Side
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.wire.payload_files import PayloadFiles

__all__ = ("answers_a_pace", "edges_of", "run_alternating")

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
