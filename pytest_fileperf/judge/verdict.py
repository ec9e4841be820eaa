"""The outcomes of a measurement: limits that hold or do not, comparisons with a baseline, and the worst of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ("LimitCheck", "MetricComparison", "Outcome", "Verdict")


class Outcome(StrEnum):
    """What a gate found for one metric."""

    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    """There is no baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric against its baseline. Changes are shares: 0.05 is 5 % more than the baseline."""

    metric: str
    """A name in `measure.metrics.METRICS`."""
    outcome: Outcome
    tolerance: float
    """The worsening, as a share, that is let pass: a rate may fall, a duration grow, by a factor of 1 + tolerance."""
    base: float | None = None
    now: float | None = None
    change: float | None = None
    """now / base - 1; where both sides were measured in turn that of moments that follow each other, not of all."""
    low: float | None = None
    high: float | None = None
    """Interval of the change at `confidence`, low < high."""
    confidence: float | None = None
    detectable: float | None = None
    """The smallest worsening, as a share like the tolerance, that this evidence would have shown in 8 of 10 runs."""
    reason: str = ""
    """Why INCONCLUSIVE, NEW or IMPROVED, in a sentence that says what to do."""
    pairs: int | None = None
    """Pairs of boots that it rests on, where both sides were measured in turn; None against a stored baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    """One absolute limit, in the metric's SI unit."""

    name: str
    """As the user wrote it: `min_rps`, `max_p99`."""
    metric: str
    limit: float
    value: float | None
    """None where it was not measured, which does not hold."""
    holds: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything judged about one measurement."""

    limits: tuple[LimitCheck, ...] = ()
    comparisons: tuple[MetricComparison, ...] = ()
    saturated: bool = False
    """The generator, not the server, set the pace: never a PASS."""
    against: str = ""
    """What was measured in turn with it: `origin/main (1a2b3c4)`; empty where comparisons are with stored baselines."""

    @property
    def outcome(self) -> Outcome | None:
        """The worst outcome of all comparisons; None when nothing was compared."""
        found = {comparison.outcome for comparison in self.comparisons}
        order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.NEW, Outcome.PASS, Outcome.IMPROVED)
        return next((outcome for outcome in order if outcome in found), None)
