"""Splits a load over several generators, so that all of them together make exactly what was asked for; pure.

connections, requests, burst   are divided, the first generators have one more where that leaves a rest
rate, ramp of a rate           generator k of n has every n-th due time, from the k-th on
ramp of connections            generator k of n has every n-th connection, from the k-th on
turns of two servers           are the same instants for all of them
"""

from __future__ import annotations

from dataclasses import replace

from pytest_fileperf.plan.alternation import Alternation
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.share import Share

__all__ = ("generators_used", "split")


def generators_used(plan: LoadPlan | Alternation) -> int:
    """Returns how many generators make the load: each one has a connection."""
    return min(plan.generators, plan.connections)


def split(plan: LoadPlan | Alternation) -> tuple[LoadPlan | Alternation, ...]:
    """Returns what each generator makes of the load; the plan itself where it is one."""
    count = generators_used(plan)
    if count == 1:
        return (plan,)
    shares = [Share(place=place, of=count, connections=plan.connections) for place in range(count)]
    if isinstance(plan, Alternation):
        return tuple(replace(plan, connections=share.part_of(plan.connections), share=share) for share in shares)
    return tuple(_part(plan, share) for share in shares)


def _part(plan: LoadPlan, share: Share) -> LoadPlan:
    made = plan.requests if plan.requests is not None else plan.burst
    if made is not None:
        before = sum(replace(share, place=place).part_of(made) for place in range(share.place))
        share = replace(share, before=before)
    return replace(
        plan,
        connections=share.part_of(plan.connections),
        requests=None if plan.requests is None else share.part_of(plan.requests),
        burst=None if plan.burst is None else share.part_of(plan.burst),
        share=share,
    )
