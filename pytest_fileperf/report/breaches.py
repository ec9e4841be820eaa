"""What servers did to connections, in words."""

from __future__ import annotations

from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.units import format_count, format_share

__all__ = ("breach_texts", "reconnect_text")

_EACH, _FEW = 0.95, 0.01
"""Shares of answers: a server that closes from time to time, as after 1,000 requests, is usual."""


def breach_texts(run: Measurement) -> list[str]:
    """Returns a sentence for each kind, with how often; nothing for a server that keeps to what it says."""
    texts = []
    if run.cut_off:
        texts.append(f"cut off by the server: {run.cut_off:,} (it answered before it had taken the whole request)")
    if run.out_of_step:
        given_up = format_count(run.out_of_step, "connection")
        texts.append(f"the server sent more than the answer: {given_up} given up and opened anew")
    if run.closed_unsaid:
        share = run.closed_unsaid / max(1, run.requests + run.errors)
        texts.append(
            f"the server closed {format_count(run.closed_unsaid, 'connection')} without announcing it, "
            f"after {format_share(min(1.0, share))} of the answers"
        )
    if reconnects := reconnect_text(run):
        texts.append(reconnects)
    return texts


def reconnect_text(run: Measurement) -> str:
    """Returns how often the server closed a connection that was then opened anew; empty if that was seldom."""
    share = run.closed_said / max(1, run.http_requests)
    if share < _FEW:
        return ""
    if share < _EACH:
        closed = format_count(run.closed_said, "connection")
        return f"the server closed {closed}, after {format_share(share)} of the answers: new ones were opened"
    opened, requests = format_count(run.opened, "connection"), format_count(run.http_requests, "request")
    return f"the server closed the connection after each answer: {opened} were opened for {requests}"
