"""The lines about baselines whose tests are gone: which ones, why, and what to do or what was done."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_fileperf.judge.stale import Stale
from pytest_fileperf.report.remarks import note_lines
from pytest_fileperf.report.text import Style, flow, plain, words
from pytest_fileperf.units import format_count

__all__ = ("stale_lines",)

_SHOWN = 10
"""Entries listed without `-v`: more would push the results off the screen."""


def stale_lines(
    stale: Sequence[Stale], *, entries: int, removed: bool, width: int, colour: bool, verbosity: int = 0
) -> list[str]:
    """Returns a heading and a line for each; with `-q` the heading alone. `entries` counts all machine profiles'."""
    counted = format_count(entries, "stale baseline")
    if removed:
        text, style = f"removed {counted}", Style.NONE
    else:
        text, style = f"{counted}; --fileperf-prune removes {'it' if entries == 1 else 'them'}", Style.WARNING
    lines = flow(words(text, style), width=width, indent=0, hanging=2, gap=1, colour=colour)
    if verbosity < 0:
        return lines
    shown = stale if verbosity > 0 else stale[:_SHOWN]
    texts = [f"{plain(item.key)}: {item.why}" for item in shown]
    if len(shown) < len(stale):
        texts.append(f"and of {len(stale) - len(shown)} more (-v shows all)")
    return [*lines, *(line for text in texts for line in note_lines(text, indent=2, width=width, colour=colour))]
