"""Says where the CPU of a request goes, or what made it grow: a further short load while a profiler looks on.

Outside of everything that is measured and judged: looking slows a server down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_fileperf.drive.stint import Progress
from pytest_fileperf.measure.blame import growth
from pytest_fileperf.measure.stacks import Profile, costs, profile_of
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.operation import Work
from pytest_fileperf.report.profiled import costs_json, costs_text, growth_json, growth_text
from pytest_fileperf.report.result import Explanation
from pytest_fileperf.serve.profiler import Profiler, ProfilerUnavailable
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.stints import Stints

__all__ = ("Looked", "explain_costs", "explain_growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """A side to look at."""

    server: RunningServer
    root: Path | None
    """The top of its code; None for the working directory."""
    cpu_per_request: float | None
    """As it was measured without a profiler, in seconds."""


def explain_growth(
    stints: Stints,
    work: Work,
    plan: LoadPlan,
    sides: Sequence[Looked],
    cores: frozenset[int] | None,
    tell: Callable[[Progress], None],
) -> Explanation:
    """Returns which functions' CPU per request grew from the first side to the second; one line where none can tell."""
    base, now = (_profile(stints, work, plan, side, cores, tell) for side in sides)
    for profile in (base, now):
        if isinstance(profile, ProfilerUnavailable):
            return Explanation(text=str(profile))
    assert isinstance(base, Profile)
    assert isinstance(now, Profile)
    base_root, now_root = (side.root or Path.cwd() for side in sides)
    grown = growth(base, now, base_root=base_root, now_root=now_root)
    return Explanation(text=growth_text(base, now, grown), details=growth_json(base, now, grown))


def explain_costs(
    stints: Stints,
    work: Work,
    plan: LoadPlan,
    side: Looked,
    cores: frozenset[int] | None,
    tell: Callable[[Progress], None],
) -> Explanation:
    """Returns which functions cost most CPU per request."""
    profile = _profile(stints, work, plan, side, cores, tell)
    if isinstance(profile, ProfilerUnavailable):
        return Explanation(text=str(profile))
    found = costs(profile, root=side.root or Path.cwd())
    details: Mapping[str, object] = costs_json(profile, found)
    return Explanation(text=costs_text(profile, found), details=details)


def _profile(
    stints: Stints,
    work: Work,
    plan: LoadPlan,
    side: Looked,
    cores: frozenset[int] | None,
    tell: Callable[[Progress], None],
) -> Profile | ProfilerUnavailable:
    server = side.server
    with Profiler(server.worker_pids or server.pids, seconds=plan.longest_ns / 1e9, cores=cores) as profiler:
        if profiler.unavailable is not None:
            return profiler.unavailable
        stint = stints.make(work, plan, 0, server, cores, tell)
        seen = profiler.stop()
    if isinstance(seen, ProfilerUnavailable):
        return seen
    return profile_of(
        seen.collapsed,
        rate_hz=seen.rate_hz,
        requests=sum(round_.requests for round_ in stint.result.rounds),
        cpu_per_request=side.cpu_per_request,
        torn=seen.torn,
    )
