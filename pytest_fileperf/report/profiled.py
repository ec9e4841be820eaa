"""The causes of a regression as text and JSON: functions, waits and imports. Texts have lines of at most 72 cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_fileperf.measure.blame import GREW, FunctionGrowth
from pytest_fileperf.measure.codec import named
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.loss import A_GOOD_PART, Loss, Stalls
from pytest_fileperf.measure.stacks import CHILD_PROCESSES, Frame, FunctionCost, Profile, Stack, place_of
from pytest_fileperf.measure.startup import ImportGrowth
from pytest_fileperf.measure.usage import ThreadShares
from pytest_fileperf.report.message import WIDTH
from pytest_fileperf.report.text import Screen, cells, pad, shorten, time_text
from pytest_fileperf.units import format_change

NAMED = 3
_WORTH_SAYING = 0.1
"""The text mentions the unnamed functions together if they cause at least this share of the growth."""
_PLACE = ("function", "file", "line")


def growth_text(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> str:
    """Returns the growth of CPU time per request, and the functions that grew most.

        CPU per request grew by 18.2 µs (+22.0 %):
          15.1 µs in slow_digest (app/main.py:31)
          2.05 µs in dumps (json/__init__.py:183), called by Cart.total (app/cart.py:9)
        the other 3.10 µs are spread over many functions
        2.00 µs were saved in dump_json (pydantic/type_adapter.py:599)

    If the profiler missed a process for some time, further lines say so.
    """
    return "\n".join((*_growth(base, now, growths), *_unseen(base, now)))


def costs_text(profile: Profile, costs: Sequence[FunctionCost]) -> str:
    shown = (cost for cost in costs if cost.frame.own_code or cost.frame == CHILD_PROCESSES)
    own = [cost for cost in shown if cost.frame.function != "<module>"][:NAMED]
    head = f"CPU per request {time_text(profile.cost)}"
    if not profile.samples:
        lines = [wrapped("CPU per request: the profiler got no samples of the server's processes")]
    elif not own:
        lines = [wrapped(f"{head}, but none of {profile.samples:,} samples shows a function of the project")]
    else:
        lines = _listed(f"{head}, calls included:", own, [cost.cost_s for cost in own])
    return "\n".join((*lines, *_unseen(profile)))


def _growth(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> list[str]:
    grown_s = now.cost - base.cost
    if not (base.samples and now.samples):
        return [wrapped("CPU per request: the profiler got no samples of at least one version")]
    if grown_s <= GREW * base.cost:
        return [wrapped(f"CPU per request did not grow ({time_text(base.cost)} before, {time_text(now.cost)} now)")]
    head = f"CPU per request grew by {time_text(grown_s)} ({format_change(grown_s / base.cost)})"
    grown = [growth for growth in growths if growth.growth_s > 0]
    if not grown:
        noise = f" from the sampling noise ({base.samples:,} samples before, {now.samples:,} now)"
        torn = any(side.torn or side.torn_stacks for side in (base, now))
        running = ": threads ran on while they were sampled, so their stacks are unreliable. Try fewer connections"
        why = running if torn else noise
        return [wrapped(f"{head}, but no function stands out{why}")]
    shown = grown[:NAMED]
    saved = [growth for growth in reversed(growths) if growth.growth_s < 0][:NAMED]
    rest_s = grown_s - sum(growth.growth_s for growth in (*shown, *saved))
    lines = _listed(f"{head}:", shown, [growth.growth_s for growth in shown])
    if rest_s >= _WORTH_SAYING * grown_s:
        where = "spread over many functions" if shown == grown else "in other functions"
        lines.append(f"the other {time_text(rest_s)} are {where}")
    for growth in saved:
        lines += _lines_of(f"{time_text(-growth.growth_s)} were saved in ", growth)
    if rest_s <= -_WORTH_SAYING * grown_s:
        lines.append(f"{time_text(-rest_s)} were saved in {'other' if saved else 'many'} functions")
    return lines


def _listed(head: str, functions: Sequence[FunctionGrowth | FunctionCost], seconds: Sequence[float]) -> list[str]:
    times = [time_text(second) for second in seconds]
    widest = max(map(cells, times))
    found = (
        _lines_of(f"  {pad(time, widest, right=True)} in ", each) for time, each in zip(times, functions, strict=True)
    )
    return [head, *(line for lines in found for line in lines)]


def growth_json(base: Profile, now: Profile, growths: Sequence[FunctionGrowth]) -> dict[str, object]:
    """Returns both profiles, and each function's growth in CPU seconds per request (below 0 if it costs less)."""
    times = ("growth_s", "share", "base_s", "now_s", "base_self_s", "now_self_s")
    return {
        "base": _profile_json(base),
        "now": _profile_json(now),
        "growth_s": now.cost - base.cost,
        "functions": [
            {
                **named(growth.frame, *_PLACE, "own_code"),
                **named(growth, *times),
                "caller": None if growth.caller is None else named(growth.caller, *_PLACE),
            }
            for growth in growths
        ],
    }


def costs_json(profile: Profile, costs: Sequence[FunctionCost]) -> dict[str, object]:
    functions = [{**named(cost.frame, *_PLACE, "own_code"), **named(cost, "cost_s", "self_s")} for cost in costs]
    return {**_profile_json(profile), "functions": functions}


def _profile_json(profile: Profile) -> dict[str, object]:
    return {
        "cpu_per_request_s": profile.cost,
        "notes": list(profile.notes),
        **named(profile, "samples", "seconds", "requests", "torn"),
    }


def _unseen(*profiles: Profile) -> list[str]:
    notes = dict.fromkeys(note for profile in profiles for note in profile.notes)
    return [wrapped(f"one process could not be sampled all the time: {note}") for note in notes]


def _placed(frame: Frame, room: int) -> str:
    """Returns `name (file:line)` in at most `room` cells."""
    if frame.file == _RUNS_LOOP:
        return "the event loop itself"
    place = f"{frame.file}:{frame.line}" if frame.line else frame.file
    if not place:
        return shorten(frame.function, room, tail=0.8)
    # At least 16 cells of the function's name stay, even if the file's path is then cut.
    name = shorten(frame.function, max(16, room - cells(place) - 3), tail=0.8)
    return f"{name} ({shorten(place, room - cells(name) - 3, tail=1.0)})"


def _lines_of(lead: str, each: FunctionGrowth | FunctionCost) -> list[str]:
    first = lead + _placed(each.frame, WIDTH - cells(lead))
    caller = each.caller if isinstance(each, FunctionGrowth) else None
    if caller is None:
        return [first]
    called = "called by "
    whole = f"{first}, {called}{_placed(caller, WIDTH)}"
    if cells(whole) <= WIDTH and "…" not in whole:
        return [whole]
    indent = " " * (len(lead) - len(lead.lstrip()) + 4) + called
    return [first, indent + _placed(caller, WIDTH - cells(indent))]


def wrapped(sentence: str) -> str:
    return "\n".join(Screen(width=WIDTH).prose(sentence))


_RUNS_LOOP = "asyncio/runners.py"
"""While C code such as uvloop runs, the innermost Python function is in this file."""


# --- The time that requests lost by waiting

_WAITED_FOR = {
    LimitKind.THREAD_POOL: "the thread pool",
    LimitKind.EVENT_LOOP: "the event loop",
    LimitKind.DISK: "storage",
    LimitKind.NETWORK: "the network",
}


def loss_text(loss: Loss) -> str:
    """If a good part of the requests' lost time is waiting, returns how much. Else empty."""
    if loss.wait_s < A_GOOD_PART * loss.total_s:
        return ""
    return wrapped(f"Requests take longer: {_of_total(loss.wait_s, loss)} are waiting, not CPU")


def others_text(loss: Loss) -> str:
    if loss.others_s < A_GOOD_PART * loss.total_s:
        return ""
    part = _of_total(loss.others_s, loss)
    return wrapped(f"Up to {part} may be waits for a core that other programs used")


def _of_total(part_s: float, loss: Loss) -> str:
    """Returns `4.9 of the extra 5.1 ms`, or `900 µs of the extra 1.2 ms`."""
    total, part = time_text(loss.total_s), time_text(part_s)
    number, unit = part.split()
    return f"{number} of the extra {total}" if total.endswith(f" {unit}") else f"{part} of the extra {total}"


def limit_waited_for(limit: Limit) -> str:
    """If requests waited for a limit, such as the thread pool, returns a sentence about it. Else empty."""
    if limit.kind in _WAITED_FOR:
        return wrapped(f"Requests waited for {_WAITED_FOR[limit.kind]}: {limit.evidence}")
    return wrapped(f"Waiting: {limit.evidence}") if limit.queues else ""


def stall_text(stalls: Stalls, holder: Stack | None, *, root: Path, before_in_thread: bool) -> str:
    """Returns how long code blocked the event loop, and which code. `holder` is that code's stack, if known."""
    why = "code that waits" if stalls.waits else "code that computes"
    tail = "; it ran in a thread before" if before_in_thread else ""
    return _blocked_text(f"for {time_text(stalls.typical_s)} at a time", f"{why}{tail}", holder, root=root)


def short_stalls_text(threads: ThreadShares, holder: Stack | None, *, root: Path) -> str:
    """Returns for how much of the time code blocked the event loop, each time only briefly."""
    why = "code that waits" if threads.blocked >= threads.storage else "code that waits for storage"
    return _blocked_text(f"{threads.stuck * 100:.0f} % of the time", why, holder, root=root)


def _blocked_text(how_long: str, why: str, holder: Stack | None, *, root: Path) -> str:
    head = f"Requests waited for the event loop, blocked {how_long} by"
    if holder is None:
        return wrapped(f"{head} {why}")
    places = [place_of(frame, root) for frame in holder]
    own = [index for index, place in enumerate(places) if place.own_code and place.function != "<module>"]
    chosen = dict.fromkeys((len(places) - 1, *own[-1:]))
    shown = ", in ".join(_placed(places[at], WIDTH - 2) for at in chosen)
    return wrapped(f"{head} {shown}, {why}")


def loss_json(loss: Loss, stalls: Stalls | None, limit: Limit | None) -> dict[str, object]:
    return {
        **named(loss, "total_s", "cpu_s", "others_s", "wait_s"),
        "stalls": None if stalls is None else named(stalls, "typical_s", "lost_s", "waits"),
        "limited_by": None if limit is None else str(limit),
    }


# --- Longer start-ups


def start_text(base_s: float, now_s: float, grown: Sequence[ImportGrowth] | None) -> str:
    """Returns how much longer start-ups take, and which imports cause it.

        start-up grew by 462 ms (+61.3 %) because of longer imports:
          301 ms in pandas (not imported before), imported by app.reports
          124 ms in numpy (not imported before), imported by pandas

    `grown` is None if nobody measured imports.
    """
    head = f"start-up grew by {time_text(now_s - base_s)} ({format_change(now_s / base_s - 1)})"
    if grown is None:
        return wrapped(head)
    if not grown:
        return wrapped(f"{head}, but imports do not account for it")
    lines = [f"{head} because of longer imports:"]
    for each in grown:
        place = f"  {time_text(each.growth_s)} in {each.name}"
        place += " (not imported before)" if not each.base_s else ""
        lines.append(shorten(place + (f", imported by {each.importer}" if each.importer else ""), WIDTH, tail=0.2))
    return "\n".join(lines)


def start_json(base_s: float, now_s: float, grown: Sequence[ImportGrowth] | None) -> dict[str, object]:
    imports = None if grown is None else [named(each, "name", "base_s", "now_s", "importer") for each in grown]
    return {"base_s": base_s, "now_s": now_s, "imports": imports}
