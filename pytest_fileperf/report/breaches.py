"""What servers did to connections without saying so, in words."""

from __future__ import annotations

from pytest_fileperf.measure.measurement import Measurement
from pytest_fileperf.units import format_count, format_share

__all__ = ("breach_texts",)


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
    return texts
