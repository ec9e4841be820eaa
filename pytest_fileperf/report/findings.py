"""What a reader must not miss about how figures came to be: every report and the message of a failed test say it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_fileperf.judge.answers import OtherAnswers
from pytest_fileperf.judge.result import Result
from pytest_fileperf.judge.trend import Trend, trend_of
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.recording import Recording, merged_warm_up
from pytest_fileperf.report.comparisons import base_name
from pytest_fileperf.report.text import plain, quantity
from pytest_fileperf.units import format_bytes, format_count, format_share

__all__ = ("findings",)

_KINDS = 3
_UNLIKE = 1.5
"""From this ratio on it is said how many more requests one side has answered than the other."""


def findings(result: Result) -> tuple[str, ...]:
    """Returns sentences about a result, without a full stop."""
    if result.smoke:
        return ()
    return (
        *map(_other_answers, result.other_answers),
        *_warm_ups(result),
        *_restarts(result),
        *_trends(result),
        *_memory(result),
    )


def _other_answers(other: OtherAnswers) -> str:
    whose = f"answers of {plain(other.of)}" if other.of else "answers"
    texts = []
    if other.sizes:
        base, now = map(_size, other.sizes)
        texts.append(f"{whose} have other sizes: {base} before, {now} now")
    if other.base_statuses or other.now_statuses:
        base, now = map(_statuses, (other.base_statuses, other.now_statuses))
        texts.append(f"{whose} have other statuses: {base} before, {now} now")
    return "; ".join(texts)


def _size(size: float) -> str:
    return format_bytes(round(size))


def _statuses(shares: Mapping[int, float]) -> str:
    return " and ".join(f"{status} in {format_share(share)}" for status, share in shares.items())


def _warm_ups(result: Result) -> Iterator[str]:
    """Yields what failed in the warm-up, of each side."""
    for recording, whose in _sides(result):
        warm_up = merged_warm_up(boot.warm_up for boot in recording.boots)
        if not warm_up.failed:
            continue
        kinds = [f"{failure.count:,} × {plain(failure.kind)}" for failure in warm_up.failures[:_KINDS]]
        if rest := sum(failure.count for failure in warm_up.failures[_KINDS:]):
            kinds.append(f"{rest:,} others")
        boots = f", in {format_count(len(recording.boots), 'start-up')}" if len(recording.boots) > 1 else ""
        counts = f"{warm_up.failed:,} of {warm_up.made:,} warm-up requests{whose} failed{boots}"
        yield f"{counts}: {', '.join(kinds)}"


def _restarts(result: Result) -> Iterator[str]:
    """Yields how many processes of each side ended during the load."""
    for recording, whose in _sides(result):
        if ended := sum(boot.processes_ended for boot in recording.boots):
            yield f"{ended:,} process{'es' * (ended != 1)} of the server{whose} ended during the load"


def _sides(result: Result) -> list[tuple[Recording, str]]:
    """Returns the recordings of a result, and whose they are if there are two."""
    if result.base is None:
        return [(result.recording, "")]
    return [(result.base, f" of the {base_name(result.verdict)}"), (result.recording, " of the code here")]


def _trends(result: Result) -> Iterator[str]:
    """Yields that start-ups got slower or faster one after another; of both sides in one sentence."""
    if result.test.own or result.capacity is not None:
        return
    now = trend_of(result.recording)
    base = None if result.base is None else trend_of(result.base)
    trends = [trend for trend in (base, now) if trend is not None]
    if not trends:
        return
    first = trends[0]
    if len(trends) == 2 and base is not None and now is not None and base.falls == now.falls:
        where, courses = " on both sides", f"{_course(base)} before, {_course(now)} now"
    else:
        whose = f"the {base_name(result.verdict)}" if first is base else "the code here"
        where, courses = "" if result.base is None else f" of {whose}", _course(first)
    moved = "fell" if first.falls else "rose" if first.of_rate else "grew"
    why = "something is kept between start-ups" + (", or the machine changed" if first.by_machine else "")
    yield f"{'requests/s' if first.of_rate else 'latency'} {moved} from start-up to start-up{where} ({courses}): {why}"


def _course(trend: Trend) -> str:
    unit = Unit.PER_SECOND if trend.of_rate else Unit.SECONDS
    return f"{quantity(trend.levels[0], unit)} → {quantity(trend.levels[-1], unit)} over {len(trend.levels)} start-ups"


def _memory(result: Result) -> Iterator[str]:
    """Yields after how many requests memory was compared."""
    for comparison in result.verdict.comparisons:
        if comparison.after_requests is None:
            continue
        text = f"{comparison.metric} is memory after {comparison.after_requests:,} requests each"
        if result.base is not None:
            reached = [_reached(recording) for recording in (result.base, result.recording)]
            if min(reached) * _UNLIKE < max(reached):
                text += f", though start-ups answered up to {reached[0]:,} before and {reached[1]:,} now"
        yield text


def _reached(recording: Recording) -> int:
    return max((boot.memory[-1][0] for boot in recording.boots if boot.memory), default=0)
