"""The sentence of each reason: why an outcome is what it is, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_fileperf.judge.verdict import NoiseOf, Reason, ReasonKind
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.units import format_duration, format_share

__all__ = ("SATURATED", "names_package", "sentence")

SATURATED = (
    "the load generator was saturated, so this is its own speed and not the server's: use fewer connections, or more"
    " generators"
)
_LONGER = "give it a longer max_duration"
_IN_TURN = (
    "this machine differs from session to session, so more boots do not help:"
    " compare in turn, with a baseline whose code is found or with --fileperf-against"
)
_APART = "measure with the packages of then, by --fileperf-base-packages=stored, to see what they cost"
_AGAIN = "find what changed, or store a new baseline with --fileperf-update=all"
_SIDES = {"base": "the baseline", "now": "this run"}
_PAIR_SIDES = {"base": "the base", "now": "this side"}
_SENTENCES: Mapping[ReasonKind, str] = {
    ReasonKind.NO_BASELINE: "there is no baseline: store one with --fileperf-update",
    ReasonKind.NO_BASELINE_SATURATED: f"there is no baseline, and this run makes none: {SATURATED}",
    ReasonKind.SATURATED: SATURATED,
    ReasonKind.LOST: "a part of the load is missing, as {text}: measure again",
    ReasonKind.LEFT_WORK: "{whose} still used {share} of a core after its last answer, so it cannot sustain this",
    ReasonKind.OTHER_MACHINE: "the baseline is of another machine ({differences}){because}:"
    " store one of this machine with --fileperf-update",
    ReasonKind.OTHER_WORK: "the baseline is of something else ({differences}):"
    " store a new baseline with --fileperf-update",
    ReasonKind.MEMORY_COURSE: "the baseline does not say after how many requests it had this memory:"
    " store a new one with --fileperf-update=all",
    ReasonKind.OTHER_ROWS: "the rows of the feed are others than those of the baseline: give the same rows each time,"
    " or let setup make them; for these rows, store a new baseline with --fileperf-update",
    ReasonKind.OTHER_ANSWERS: "better, but its answers are other ones than before: check them",
    ReasonKind.SAME_CODE: "the code is that of {side}",
    ReasonKind.SAME_FILES: "both sides ran {differences}, which Git does not have, so a change of it cannot be seen:"
    " commit it, or compare with a directory that has the old one (--fileperf-against=DIR)",
    ReasonKind.NO_CODE: "stored figures alone do not tell it on this machine, and the baseline's code was not measured"
    " again: {text}",
    ReasonKind.WORLD: "{metric} of the baseline's own code is {ratio:.2f} times what is stored: the machine, the"
    " packages or the environment changed, not your code{changed}",
    ReasonKind.WORLD_UNCLEAR: "{metric} of the baseline's own code is {ratio:.2f} times what is stored, which may be"
    " how sessions differ on this machine{changed}",
    ReasonKind.ENVIRONMENT: "the baseline's own code runs at {ratio:.2f} of what was stored ({metric}), more than"
    " sessions differ: packages, files that Git ignores, or the machine changed{changed}; {apart}",
    ReasonKind.ABSENT: "{text}",
    ReasonKind.BASE_FAILED: "{count:,} of {total:,} requests failed on {side}: its good ones alone are no measure",
    ReasonKind.BUSY: "worse, but {busy}, which may be why: measure again with nothing else running",
    ReasonKind.BUSY_FIGURES: "{busy} when the baseline was stored, so as fast as then shows nothing: store a new"
    " baseline with nothing else running",
    ReasonKind.IMPROVED: "better than its baseline: store the new level with --fileperf-update=all",
    ReasonKind.NOISE: "may be worse by more than its tolerance of {share}, but the noise hides it: {remedy}",
    ReasonKind.UNSEEN: "only a worsening of {share} could have been seen: {remedy}, or use a tolerance of {tolerance}",
    ReasonKind.NOTHING_TOLD: "nothing can be told, as even a worsening of {share} could not have been seen: {remedy}",
    ReasonKind.FEW_REQUESTS: "{metric} needs {needed:,} requests and {side} has {count:,}: use a longer duration"
    " or gate a lower percentile",
    ReasonKind.NO_REQUEST: "{side} has no successful request",
    ReasonKind.WAS_ZERO: "{metric} was 0 in {side}, and a change from or to 0 has no ratio: set a limit instead",
    ReasonKind.NOT_MEASURED: "{metric} was not measured in {side}{why}",
    ReasonKind.FEW_FOR_PERCENTILE: "{metric} of only {count:,} requests: it takes {needed:,} to tell it from the"
    " maximum",
    ReasonKind.FEW_EVENTS: "{metric} of only {count:,} events: it takes {needed:,} to tell it from the maximum",
    ReasonKind.PAIRS_NO_RATIO: "{metric} was 0 or not measured on {pair_side}, and a change from or to 0 has no ratio",
    ReasonKind.PAIRS_FEW: "it takes {needed} pairs of boots with answers on both sides, and there were {count}:"
    f" {_LONGER}",
    ReasonKind.PAIRS_FEW_REQUESTS: "{metric} needs {needed:,} requests a side, and there were {count:,}:"
    f" {_LONGER}, or gate a lower percentile",
    ReasonKind.PAIRS_CLUSTERED: "{metric} cannot be told of {count:,} requests a side, as {bunches} slow ones come"
    f" together: {_LONGER}, or gate a lower percentile",
    ReasonKind.PAIRS_CALM_WORSE: "shown by the requests that do not wait together with many others:"
    " worse by at least {share}",
    ReasonKind.PAIRS_STALLS: "the typical turn is not worse, the total over all turns is: it stalls now and then",
    ReasonKind.PAIRS_CALM_UNCLEAR: "not shown to be worse, but requests that do not wait together with many others"
    " may be, by {share}: {more_time}",
    ReasonKind.PAIRS_TOTAL_UNCLEAR: "the typical turn is not worse, but the total over all turns may be, by {share}:"
    " {more_time}",
    ReasonKind.PAIRS_TOTAL_UNSEEN: "the typical turn is not worse, but the total over all turns may be,"
    " by up to {share}: {more_time}",
    ReasonKind.PAIRS_NEARLY: "most likely worse by more than {share}, but a failure takes more certainty than the"
    " interval shows, so that it is no false alarm: {more_time}",
    ReasonKind.PAIRS_NOISE: "may be worse by more than {share}, but the noise hides it: {more_time}",
    ReasonKind.PAIRS_UNSEEN: "only a worsening of {share} could have been seen in the time there was: {more_time}",
}


def sentence(reason: Reason | None) -> str:
    """Returns the reason in words, without a full stop; empty for None."""
    if reason is None:
        return ""
    if reason.kind is ReasonKind.SINCE_BASELINE:
        return _since_baseline(reason)
    return _SENTENCES[reason.kind].format(
        metric=METRICS[reason.metric].title if reason.metric else "",
        side=_SIDES.get(reason.side, reason.side),
        pair_side=_PAIR_SIDES.get(reason.side, ""),
        whose={"base": "the old code", "now": "the code here"}.get(reason.side, ""),
        count=reason.count,
        needed=reason.needed,
        total=reason.total,
        share=format_share(reason.share),
        tolerance=format_share(reason.tolerance),
        bunches=f"about {reason.together:.2g}" if reason.together >= 2 else "some",
        ratio=reason.ratio,
        differences="; ".join(reason.differences),
        changed=f"; {'; '.join(reason.differences)}" if reason.differences else "",
        because=f", and its code was not measured again: {reason.text}" if reason.text else "",
        apart=_APART if any(map(names_package, reason.differences)) else _AGAIN,
        busy=reason.busy,
        text=reason.text,
        why=f": processes of the server changed ({reason.text})" if reason.text else "",
        remedy=_remedy(reason),
        more_time=_more_time(reason),
    )


def names_package(difference: str) -> bool:
    """Returns whether a difference of two environments is of a package, and not of Python or the machine."""
    return not difference.startswith(("CPU limit ", "Python ", "python was "))


def _since_baseline(reason: Reason) -> str:
    parts = [
        f"{reason.busy}, which explains less than this" if reason.busy else "",
        f"since the baseline, {'; '.join(reason.differences)}" if reason.differences else "",
        f"the baseline of {reason.day} was stored because: {reason.text}" if reason.text else "",
    ]
    return "; ".join(filter(None, parts))


def _remedy(reason: Reason) -> str:
    """Returns what helps against the noise that hides an answer."""
    if reason.noise_of is NoiseOf.SESSIONS:
        return _IN_TURN
    return _more_time(reason) if reason.noise_of is NoiseOf.TURNS else "use more boots or a longer duration"


def _more_time(reason: Reason) -> str:
    """Returns what helps to decide a comparison in turn that was not decided in the time there was."""
    if reason.jump is None:
        return f"{_LONGER}, or a quieter machine"
    before, after = (f"{format_duration(seconds * 1e9)} at p{percentile:g}" for percentile, seconds in reason.jump)
    return (
        f"latency jumps there, from {before} to {after}, and chance decides on which side it is:"
        " gate a percentile beside it"
    )
