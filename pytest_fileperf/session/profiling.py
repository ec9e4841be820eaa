"""Says where the CPU of a request goes, or what made it grow: a further short load while a profiler looks on.

Outside of everything that is measured and judged: looking slows a server down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.judge.result import Explanation
from pytest_fileperf.measure.blame import growth
from pytest_fileperf.measure.stacks import Profile, costs, profile_of
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.report.profiled import costs_json, costs_text, growth_json, growth_text
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.session.loading import Run
from pytest_fileperf.watch.profiler import Profiler, ProfilerUnavailable, Sampled

__all__ = ("Looked", "explain_costs", "explain_growth")

Load: TypeAlias = Callable[[LoadPlan, RunningServer], Run]

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


def explain_growth(load: Load, plan: LoadPlan, sides: Sequence[Looked], cores: frozenset[int] | None) -> Explanation:
    """Returns which functions' CPU per request grew from the first side to the second; one line where none can tell.

    `load` makes a run by the plan on a server; `cores` are those of the profiler.
    """
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
        lasts_ns = plan.longest_ns if plan.counted else plan.duration_ns
        with Profiler(server.worker_pids or server.pids, seconds=lasts_ns / 1e9 + 1, cores=cores) as profiler:
            if profiler.unavailable is not None:
                return profiler.unavailable
            run = load(plan, server)
            sampled = profiler.stop()
        if isinstance(sampled, ProfilerUnavailable):
            return sampled
        seen[index].append((sampled, sum(round_.requests for round_ in run.result.rounds)))
    return [
        profile_of(
            [text for sampled, _ in looks for text in sampled.collapsed],
            rate_hz=looks[0][0].rate_hz,
            requests=sum(requests for _, requests in looks),
            cpu_per_request=side.cpu_per_request,
            torn=any(sampled.torn for sampled, _ in looks),
            notes=tuple(dict.fromkeys(note for sampled, _ in looks for note in sampled.notes)),
        )
        for side, looks in zip(sides, seen, strict=True)
    ]
