"""Finds out why requests got slower, or which functions use CPU time. For this, it observes further short loads.

Observation slows a server down, so no figure or verdict uses these loads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

from pytest_fileperf.drive.run import Run
from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.host.profiler import Profiler, ProfilerUnavailableError, Sampled
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Outcome
from pytest_fileperf.measure.blame import growth
from pytest_fileperf.measure.limiting import Limit, LimitKind, limit_of
from pytest_fileperf.measure.loss import A_GOOD_PART, Loss, Served, Stalls, held_by, loss_of, stalls_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.stacks import (
    SMALL_SHARE,
    Profile,
    Stack,
    costs,
    profile_of,
    threads_of,
    threads_work,
    with_threads,
)
from pytest_fileperf.measure.startup import ImportGrowth, ImportTimes, grown_imports
from pytest_fileperf.measure.usage import Usage
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.report.profiled import (
    costs_json,
    costs_text,
    growth_json,
    growth_text,
    limit_waited_for,
    loss_json,
    loss_text,
    others_text,
    short_stalls_text,
    stall_text,
    start_json,
    start_text,
)
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loads import Cores, Load, asked_alone, recording_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    server: RunningServer
    load: Load
    root: Path | None
    """The top directory of the server's code; None for the working directory."""
    cpu_per_request: float | None
    """The server's CPU seconds per request, measured without a profiler; None if unknown."""


def served_of(plan: LoadPlan | None, cores: int, recording: Recording, cpu_s: float | None) -> Served | None:
    """Returns the figures that `loss_of` needs. `cpu_s` is CPU seconds per request. None if a figure is unknown."""
    rounds, latency = recording.measured(), recording.latency()
    answered = sum(round_.requests + round_.failed for round_ in rounds)
    if plan is None or plan.burst is not None or plan.ramp is not None or not (cpu_s and answered and latency.count):
        return None
    seconds = sum(round_.duration_ns for round_ in rounds) / 1e9
    return Served(
        latency_s=latency.mean_ns() / 1e9 if recording.open_loop else plan.connections * seconds / answered,
        cpu_s=cpu_s,
        core_delay=fmean(boot.core_delay for boot in recording.boots),
        connections=plan.connections,
        rate=answered / seconds if recording.open_loop else None,
        cores=cores,
    )


def loss_between(base: Served | None, now: Served | None) -> tuple[Loss | None, float]:
    """Returns how much longer a request takes in `now`, and how much of this other programs may have caused.

    The second value is an upper bound, as a log ratio. Returns (None, 0.0) if the loss is unknown.
    """
    loss = None if base is None or now is None else loss_of(base, now)
    return (None, 0.0) if loss is None or base is None else (loss, math.log1p(loss.others_s / base.latency_s))


def explain_loss(
    plan: LoadPlan, sides: Sequence[Looked], cores: Cores, loss: Loss | None, changed: Mapping[str, str]
) -> Explanation:
    """Returns why the new version's requests are slower: they wait, or functions use more CPU time.

    `sides` are the old and the new version, and `cores` is where the profiler runs. `changed` maps import names of
    changed packages to texts: `{"yaml": "PyYAML 6.0.1 → 6.0.2"}`.
    """
    if loss is None:
        return _explain_growth(plan, sides, cores, changed)
    waiting = loss_text(loss)
    said, stalls, limit = _waited_for(plan, sides, cores, loss) if waiting else ("", None, None)
    computes = stalls is None or not stalls.waits
    if computes and limit is not None and limit.kind is LimitKind.SERVER_CPU:
        # The server always works, or waits for its core. So requests wait for nothing else, whatever the model says.
        return _explain_growth(plan, sides, cores, changed)
    lines = [waiting, said, others_text(loss)]
    details: dict[str, object] = {"loss": loss_json(loss, stalls, limit)}
    if loss.cpu_share >= A_GOOD_PART:
        grown = _explain_growth(plan, sides, cores, changed)
        lines.append(grown.text)
        details = {**(grown.details or {}), **details}
    named = limit.kind if said and limit is not None else None
    return Explanation(text="\n".join(filter(None, lines)), details=details, limit=named)


def _waited_for(
    plan: LoadPlan, sides: Sequence[Looked], cores: Cores, loss: Loss
) -> tuple[str, Stalls | None, Limit | None]:
    """Returns (a text about what requests waited for, the event loop's stalls, the server's limit).

    If the loads for this fail, the text is empty, and both other values are None. Stalls are None if they explain
    little of the loss.
    """
    seen: list[tuple[Run, Recording]] = []
    try:
        for side in sides:
            run = asked_alone(side.load(replace(plan, close=True)), side.load)
            if _failed_in(run):
                return "", None, None
            seen.append((run, recording_of([run])))
    except (FilePerfError, OSError):
        return "", None, None
    (before, base), (run, now) = seen
    was, stalls, limit = _stalls_in(before, base), _stalls_in(run, now), limit_of(Usage(now))
    if stalls is None or stalls.lost_s - (0.0 if was is None else was.lost_s) < loss.wait_s / 2:
        text, threads = limit_waited_for(limit), Usage(now).threads
        was_s, is_s = _stuck_s(base), _stuck_s(now)
        may_be = not text or limit.kind is LimitKind.EVENT_LOOP
        if threads is not None and may_be and is_s - was_s >= loss.wait_s / 2:
            # If the old version waited about as long, the code that waits need not be what changed.
            holder = _blocking_stack(plan, sides[-1], cores, waits=True) if was_s < is_s / 3 else None
            text = short_stalls_text(threads, holder, root=sides[-1].root or Path.cwd())
        return text, None, limit
    (main_before_s, others_before_s), (main_s, others_s) = _cpu_in(before, base), _cpu_in(run, now)
    moved_s = min(main_s - main_before_s, others_before_s - others_s)
    text = stall_text(
        stalls,
        _blocking_stack(plan, sides[-1], cores, waits=stalls.waits),
        root=sides[-1].root or Path.cwd(),
        before_in_thread=not stalls.waits and moved_s >= (main_s + others_s) * A_GOOD_PART,
    )
    return text, stalls, limit


def _stalls_in(run: Run, recording: Recording) -> Stalls | None:
    """Returns how long something blocked the worker's event loop. None without rounds, or with several workers."""
    rounds, workers = recording.measured(), run.boot.worker_pids
    if len(workers) != 1 or not rounds:
        return None
    return stalls_of(
        run.boot.samples,
        sorted(at_ns for in_round in run.ends for ends in in_round for at_ns in ends),
        worker=workers[0],
        connections=None if recording.open_loop else recording.connections,
        span_ns=(rounds[0].started_ns, rounds[-1].ended_ns),
    )


def _cpu_in(run: Run, recording: Recording) -> tuple[float, float]:
    """Returns CPU seconds per request: (in the workers' main threads, in their other threads)."""
    workers, samples = run.boot.worker_pids, run.boot.samples
    seen = [[use for use in sample.server if use.pid in workers] for sample in (*samples[:1], *samples[-1:])]
    mains = [sum(use.main_cpu_ns or 0 for use in uses) for uses in seen]
    alls = [sum(use.cpu_ns for use in uses) for uses in seen]
    seconds = (samples[-1].at_ns - samples[0].at_ns) / 1e9 if samples else 0.0
    requests = Usage(recording).rps * seconds
    main_s, all_s = ((each[-1] - each[0]) / 1e9 / requests if requests else 0.0 for each in (mains, alls))
    return main_s, all_s - main_s


def _failed_in(run: Run) -> str:
    """If over 1 % of requests failed, returns a text, because a profile would show failures. Else empty."""
    failed = sum(round_.failed for round_ in run.rounds)
    made = failed + sum(round_.requests for round_ in run.rounds)
    return f"{failed:,} of {made:,} requests failed during the profile" if failed > made / 100 else ""


def _stuck_s(recording: Recording) -> float:
    """Returns how long a request waits because calls block the event loop, in seconds on average."""
    usage = Usage(recording)
    return 0.0 if usage.threads is None or not usage.rps else usage.threads.stuck * usage.in_flight / usage.rps


def _blocking_stack(plan: LoadPlan, side: Looked, cores: Cores, *, waits: bool) -> Stack | None:
    """Returns the code that blocks the event loop; None if unknown. With `waits`, computing does not count."""
    collapsed: list[tuple[str, ...]] = []
    try:
        for all_time in (True, False)[: 1 + waits]:
            with Profiler(side.server.worker_pids, seconds=_lasts_s(plan), all_time=all_time, cores=cores) as profiler:
                side.load(plan)
                # Working child processes follow the workers, and only in one of the profiles.
                collapsed.append(profiler.stop().collapsed[: len(side.server.worker_pids)])
        return held_by(*collapsed)
    except (FilePerfError, OSError, ValueError):
        return None


def _lasts_s(plan: LoadPlan) -> float:
    return (plan.longest_ns if plan.counted else plan.duration_ns) / 1e9 + 1


def _explain_growth(plan: LoadPlan, sides: Sequence[Looked], cores: Cores, changed: Mapping[str, str]) -> Explanation:
    profiles = _profiles_or_why_not(plan, sides, cores)
    if isinstance(profiles, str):
        return Explanation(text=profiles)
    (base, bases), (now, nows) = profiles
    base_root, now_root = (side.root or Path.cwd() for side in sides)
    looks = list(zip(bases, nows, strict=True))
    grown = growth(base, now, base_root=base_root, now_root=now_root, looks=looks)
    text = growth_text(base, now, grown)
    tops = [each.frame.file.partition("/")[0] for each in grown if each.growth_s > 0 and not each.frame.own_code]
    if versions := dict.fromkeys(changed[top] for top in tops if top in changed):
        text += f"\nchanged packages: {', '.join(versions)}"
    return Explanation(text=text, details=growth_json(base, now, grown))


def explain_costs(plan: LoadPlan, side: Looked, cores: Cores) -> Explanation:
    profiles = _profiles_or_why_not(plan, (side,), cores)
    if isinstance(profiles, str):
        return Explanation(text=profiles)
    ((profile, _),) = profiles
    found = costs(profile, root=side.root or Path.cwd())
    details: Mapping[str, object] = costs_json(profile, found)
    return Explanation(text=costs_text(profile, found), details=details)


def with_slow_start(result: Result, look: Callable[[], tuple[list[ImportTimes], list[ImportTimes]]]) -> Result:
    """If start-ups are REGRESSED, adds the imports that made them longer. `look` measures each version's imports."""
    found = next((item for item in result.verdict.comparisons if METRICS[item.metric].of_start), None)
    if found is None or found.outcome is not Outcome.REGRESSED or found.base is None or found.now is None:
        return result
    grown: list[ImportGrowth] | None = None
    with suppress(FilePerfError, OSError):  # an error in a look only costs the names
        bases, nows = look()
        if all(each.seconds for each in (*bases, *nows)):  # else it is not Python
            grown = grown_imports(found.now - found.base, bases, nows)
    text, known = start_text(found.base, found.now, grown), result.explanation
    details: dict[str, object] = {"startup": start_json(found.base, found.now, grown)}
    if known is not None:
        text, details = f"{known.text}\n{text}", {**(known.details or {}), **details}
    return result.having(explanation=Explanation(text=text, details=details))


_Profiles: TypeAlias = list[tuple[Profile, tuple[Profile, ...]]]
"""For each version: its profile, and the profile of each look (a short load with a profiler). If only one version is
profiled, its tuple of looks is empty."""


def _profiles_or_why_not(plan: LoadPlan, sides: Sequence[Looked], cores: Cores) -> _Profiles | str:
    seen: list[list[tuple[Sampled, int]]] = [[] for _ in sides]
    try:
        # Two versions are loaded in the order A B B A.
        for index in (*range(len(sides)), *reversed(range(len(sides)))):
            sampled, requests = _look(plan, sides[index], cores)
            if threads_work(sampled):
                with suppress(ProfilerUnavailableError):  # the look without the lock remains
                    sampled = with_threads(sampled, _look(plan, sides[index], cores, by_lock=True)[0])
            seen[index].append((sampled, requests))
        threads = threads_of(sampled for looks in seen for sampled, _ in looks)
        has_unseen = any(fmean(sampled.unseen_share for sampled, _ in looks) >= SMALL_SHARE for looks in seen)

        def profile(side: Looked, looks: Sequence[tuple[Sampled, int]]) -> Profile:
            return profile_of(
                [sampled for sampled, _ in looks],
                requests=sum(requests for _, requests in looks),
                cpu_per_request=side.cpu_per_request,
                threads=threads,
                has_unseen=has_unseen,
            )

        return [
            (profile(side, looks), tuple(profile(side, (look,)) for look in looks) if len(seen) > 1 else ())
            for side, looks in zip(sides, seen, strict=True)
        ]
    except (FilePerfError, OSError, ValueError) as error:  # never costs the verdict
        return "no profile: " + str(error).partition("\n")[0]


def _look(plan: LoadPlan, side: Looked, cores: Cores, *, by_lock: bool = False) -> tuple[Sampled, int]:
    if not (plan.counted or plan.ramp or by_lock):
        # Brings a thread pool to its size before the profiler decides whether it may pause the process.
        side.load(replace(plan, warmup_ns=0, round_ns=250_000_000, rounds=1))
    pids = side.server.worker_pids or side.server.pids
    with Profiler(pids, seconds=_lasts_s(plan), by_lock=by_lock, cores=cores) as profiler:
        run = side.load(plan)
        if failed := _failed_in(run):
            raise ProfilerUnavailableError(failed)
        sampled = profiler.stop()
    return sampled, sum(round_.requests for round_ in run.rounds)
