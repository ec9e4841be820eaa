"""One run: connects to one boot of the server, warms up, makes the rounds, drains. Runs on the current event loop."""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from time import monotonic_ns

from pytest_fileperf.drive.loop import LoadLoop
from pytest_fileperf.drive.preparation import Target, prepared
from pytest_fileperf.measure.recorder import Recorder
from pytest_fileperf.measure.recording import LeadTimes, Phase, Round, WarmUp
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.work import Work, parts_of
from pytest_fileperf.wire.payload_files import PayloadFiles

__all__ = ("RunProgress", "RunResult", "at_once", "quiet_memory", "run_load", "tell")

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
