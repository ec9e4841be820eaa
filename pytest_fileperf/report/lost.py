"""What requests lost, in words: how much of it was waiting and not CPU time, and what they waited for."""

from __future__ import annotations

from pathlib import Path

from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.loss import A_GOOD_PART, Loss
from pytest_fileperf.measure.stacks import Stack, place_of
from pytest_fileperf.measure.stalls import Stalls
from pytest_fileperf.report.profiled import placed, told
from pytest_fileperf.report.values import named
from pytest_fileperf.report.verdict_text import WIDTH
from pytest_fileperf.units import format_duration

__all__ = ("limit_waited_for", "loss_json", "loss_text", "stall_text")

_WAITED_FOR = {
    LimitKind.THREAD_POOL: "the thread pool",
    LimitKind.EVENT_LOOP: "the event loop",
    LimitKind.DISK: "storage",
    LimitKind.NETWORK: "the network",
}


def loss_text(loss: Loss) -> str:
    """Returns how much of the loss is waiting; empty where nearly all of it is CPU time."""
    waited = loss.wait_s / loss.total_s
    if waited < A_GOOD_PART:
        return ""
    total, wait = format_duration(loss.total_s * 1e9), format_duration(loss.wait_s * 1e9)
    number, unit = wait.split()
    of = f"{number} of {total}" if total.endswith(f" {unit}") else f"{wait} of {total}"
    return told(f"Requests take longer: {of} more are waiting, not CPU")


def limit_waited_for(limit: Limit) -> str:
    """Returns what requests wait for, by what limits the server; empty where that does not say it."""
    if limit.kind in _WAITED_FOR:
        return told(f"Requests waited for {_WAITED_FOR[limit.kind]}: {limit.evidence}")
    return told(f"Waiting: {limit.evidence}") if limit.evidence.startswith("requests wait for each other") else ""


def stall_text(stalls: Stalls, holder: Stack | None, *, root: Path, before_in_thread: bool) -> str:
    """Returns that requests waited for the event loop, for how long, and for which code."""
    length = format_duration(stalls.typical_s * 1e9)
    why = "code that waits" if stalls.waits else "code that computes"
    head = f"Requests waited for the event loop: blocked for {length} at a time by"
    tail = "; it ran in a thread before" if before_in_thread else ""
    if holder is None:
        return told(f"{head} {why}{tail}")
    places = [place_of(frame, root) for frame in holder]
    own = [index for index, place in enumerate(places) if place.own_code and place.function != "<module>"]
    chosen = dict.fromkeys((len(places) - 1, *own[-1:]))
    shown = ", in ".join(placed(places[at].function, places[at].file, holder[at].line, WIDTH - 2) for at in chosen)
    return told(f"{head} {shown}, {why}{tail}")


def loss_json(loss: Loss, stalls: Stalls | None, limit: Limit | None) -> dict[str, object]:
    """Returns the loss and what is known of its cause, as JSON values; times in seconds per request."""
    return {
        **named(loss, "total_s", "cpu_s", "wait_s"),
        "stalls": None if stalls is None else named(stalls, "typical_s", "lost_s", "waits"),
        "limited_by": None if limit is None else str(limit),
    }
