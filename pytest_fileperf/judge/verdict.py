"""The verdict on a measurement: limits, comparisons with a baseline, and their reasons as facts without words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, StrEnum, auto
from typing import Any

from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.measure.recording import Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.plan.request import Tolerance


class Outcome(StrEnum):
    PASS = "PASS"  # noqa: S105 - an outcome, not a password
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NEW = "NEW"
    WATCHED = "WATCHED"
    """The metric is compared and shown, but never judged."""


class ReasonKind(Enum):
    """Why a metric or a limit has its outcome. `report.wording` has a sentence for each kind."""

    NO_BASELINE = auto()
    NO_BASELINE_SATURATED = auto()
    SATURATED = auto()
    LOST = auto()
    """A load generator failed, so its part of the load is missing."""
    LEFT_WORK = auto()
    """A server was still at work after its last answer."""
    OTHER_MACHINE = auto()
    OTHER_WORK = auto()
    MEMORY_COURSE = auto()
    """The baseline's memory is known, but not after how many requests it was measured."""
    OTHER_ROWS = auto()
    """The requests are the same, but were filled from other rows of data."""
    OTHER_ANSWERS = auto()
    """The new version seems better, but gives other answers."""
    SAME_CODE = auto()
    SAME_FILES = auto()
    """Both versions ran the same files, because Git ignores them."""
    NO_CODE = auto()
    """Stored figures alone show too little, and the baseline's code was not measured again."""
    # The baseline's own code now, compared with its stored figures:
    WORLD = auto()
    WORLD_UNCLEAR = auto()
    """The baseline's own code has other figures now, but differences between sessions may explain this."""
    ENVIRONMENT = auto()
    """The baseline's code is now so much worse that differences between sessions do not explain it."""
    ABSENT = auto()
    """One version lacks the measured endpoint or figure."""
    NO_APP = auto()
    """The old version lacks the whole app, or does not start."""
    INCOMPARABLE = auto()
    """One version does not give the expected answers, or too few of them in the time for a comparison."""
    BASE_FAILED = auto()
    BUSY = auto()
    BUSY_FIGURES = auto()
    """Other programs were busy when the baseline was stored. Its slow figures may hide a loss."""
    SINCE_BASELINE = auto()
    IMPROVED = auto()
    NOISE = auto()
    UNSEEN = auto()
    NOTHING_TOLD = auto()
    """Even a great worsening (`Rules.nothing_told`) might not have been found."""
    FEW_REQUESTS = auto()
    NO_REQUEST = auto()
    WAS_ZERO = auto()
    NOT_MEASURED = auto()
    FEW_FOR_PERCENTILE = auto()
    FEW_EVENTS = auto()
    CAPACITY_BOUND = auto()
    """No load of a capacity search broke a limit: the capacity is at least the highest rate."""
    COUNTS_VARY = auto()
    """The count per request may have grown, but requests differ too much to tell."""
    STATEMENT = auto()
    """A database statement that requests run, and how often."""
    # If both versions were measured alternately:
    PAIRS_NO_RATIO = auto()
    PAIRS_FEW = auto()
    PAIRS_FEW_REQUESTS = auto()
    PAIRS_CLUSTERED = auto()
    PAIRS_CALM_WORSE = auto()
    PAIRS_STALLS = auto()
    PAIRS_CALM_UNCLEAR = auto()
    PAIRS_TOTAL_UNCLEAR = auto()
    PAIRS_TOTAL_UNSEEN = auto()
    PAIRS_NEARLY = auto()
    PAIRS_NOISE = auto()
    PAIRS_UNSEEN = auto()
    PAIRS_PASS = auto()
    """The pairs of start-ups show a PASS, but the whole load's figures are worse by more than the tolerance."""


class NoiseOf(Enum):
    """The source of most of the noise."""

    BOOTS = auto()
    """Differences between start-ups, in this session or in the baseline's: more start-ups help."""
    SESSIONS = auto()
    """Differences between sessions: more start-ups in one session do not help."""
    TURNS = auto()
    """Differences between the short loads by which two versions are measured alternately: more time helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """The reason for an outcome: its kind, and the facts that this kind needs. Other fields keep their defaults."""

    kind: ReasonKind
    metric: str = ""
    side: str = ""
    """`base` (old) or `now` (new), or the title of another version."""
    count: int = 0
    """The number of requests, or of start-up pairs. `needed` is the least number that decides. `total` is the number of
    all requests."""
    needed: int = 0
    total: int = 0
    share: float = 0.0
    """An actual or detectable worsening, or the tolerance that a worsening exceeds."""
    tolerance: float = 0.0
    """The least tolerance that would PASS in spite of the noise."""
    ratio: float = 0.0
    """The figure of the baseline's own code now, divided by its stored figure."""
    seconds: float = 0.0
    """How long the comparison would have to take to decide; 0 if unknown."""
    budgeted: bool = False
    """Whether the comparison ended because the session's time was over, not the test's."""
    noise_of: NoiseOf = NoiseOf.BOOTS
    together: float = 0.0
    """How many slow requests come together on average."""
    jump: tuple[tuple[float, float], tuple[float, float]] | None = None
    """If latency jumps between two percentiles: each percentile with its seconds."""
    differences: tuple[str, ...] = ()
    """A text such as `cores was 2, is 4` for each difference from the baseline, without packages. For some kinds, wrong
    answers or files."""
    packages: tuple[str, ...] = ()
    """A text for each package that changed since the baseline: `starlette 1.0 → 1.1`."""
    busy: Busy | None = None
    """How much other programs used the machine."""
    text: str = ""
    """A text from a user or another program, or why code was not measured again."""
    times: tuple[float, ...] = ()
    """How often a request runs the statement in `text`: in the old version, if it was measured, and now."""
    place: str = ""
    """The line of the user's code that runs the statement, if known."""
    day: str = ""
    """The day on which a baseline was stored, in ISO 8601."""


class NoteKind(Enum):
    """Further facts that a reader must know. `report.wording` has a sentence for each kind."""

    TOLD = auto()
    """`Note.texts` is a whole sentence."""
    # The served app:
    SET_BY_TEST = auto()
    """The test has set something on the imported app that the server serves."""
    NOT_AS_MADE = auto()
    """How the server's app, which the server itself imported, differs from the test's app."""
    IMPORTS_ANEW = auto()
    """Why each start-up imports the app again."""
    ELSEWHERE = auto()
    """Code outside of the compared source, which both versions run."""
    CHANGED_MEANWHILE = auto()
    """Files that changed during the measurement, but that no server loaded."""
    # Which code of a stored baseline was measured, or why none was:
    NEVER_CONFIRMED = auto()
    FIGURES_ONLY = auto()
    """Why the baseline's code was not measured again, although the user asked for that."""
    FILES_CHANGED = auto()
    """Like `FIGURES_ONLY`, because files changed. Each test may name other files."""
    SAME_CODE = auto()
    IN_TURN = auto()
    PACKAGES_HERE = auto()
    """Why the baseline's code ran with the packages that are installed here."""
    PACKAGES = auto()
    """The packages that changed since the baseline was stored."""
    # The new baseline:
    ROUGHLY_KNOWN = auto()
    """The new baseline's figure is less certain than it should be."""
    PROVISIONAL = auto()
    """The new baseline was stored on a busy machine, so only its code counts, not its figures."""
    NO_CODE_STORED = auto()
    """Why the new baseline's code cannot be found again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    kind: NoteKind
    texts: tuple[str, ...] = ()
    """Names and other texts to put into the note's sentence, such as a file's name."""
    share: float = 0.0
    """The standard error of a figure's logarithm, for `ROUGHLY_KNOWN`."""

    @property
    def why_no_code(self) -> str:
        """Why the baseline's code was not measured again; empty if the user did not ask for that."""
        return next(iter(self.texts), "") if self.kind in (NoteKind.FIGURES_ONLY, NoteKind.FILES_CHANGED) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricComparison:
    """One metric, compared with its baseline or another version. Changes are shares: 0.05 is 5 % more."""

    metric: str
    """A name in `measure.metrics.METRICS`."""
    outcome: Outcome
    tolerance: float
    """The worsening that passes: a rate or duration may get worse by a factor of 1 + `tolerance`."""
    floor: float = 0.0
    """The worsening that passes in the metric's own unit, such as 2 ms, if `tolerance` was computed from it. Else 0."""
    base: float | None = None
    now: float | None = None
    change: float | None = None
    """now / base - 1. Before `as_the_run_shows`, it is the judge's estimate instead."""
    low: float | None = None
    high: float | None = None
    """`low` and `high` are the interval of the change at `confidence`."""
    total: tuple[float, float] | None = None
    """The interval for all requests, including stalls, if `low` and `high` are for typical moments."""
    typical: float | None = None
    """The change in typical moments, if `change` lies outside of the interval for typical moments."""
    confidence: float | None = None
    detectable: float | None = None
    """The smallest worsening, as a share, that this evidence would have shown in 8 of 10 runs. None if it is too great
    to be of use (`Rules.most_told`)."""
    reason: Reason | None = None
    """Why the outcome is INCONCLUSIVE, NEW or IMPROVED, or another possible explanation of a regression."""
    pairs: int | None = None
    """How many pairs of start-ups were measured alternately. None if the baseline's stored figures were compared."""
    log_ratio: float | None = None
    """Logarithm of the new value over the old one, by all pairs of start-ups. None unless versions were measured
    alternately."""
    log_error: float | None = None
    """Standard error of `log_ratio`."""
    after_requests: int | None = None
    """For memory: each start-up's memory counts after this number of requests. None if unknown."""
    since_release: tuple[str, float, float, float] | None = None
    """The newest tag before this code, the change since then, and the interval's two ends (90 %). None if no history
    knows it."""

    @classmethod
    def of(
        cls, metric: Metric, tolerance: float, outcome: Outcome = Outcome.INCONCLUSIVE, **facts: Any
    ) -> MetricComparison:
        """Makes a comparison. Its tolerance includes the floor. A metric that is only watched is WATCHED.

        A floor is a worsening in the metric's unit that passes. For example, 2 ms of 10 ms are 20 %, more than a
        tolerance of 15 %.
        """
        found = cls(metric=metric.name, outcome=outcome, tolerance=float(tolerance), **facts)
        if not isinstance(tolerance, Tolerance):
            return found
        if tolerance.watched:
            return replace(found, outcome=Outcome.WATCHED)
        if not tolerance.floor or found.base is None or found.base < 0:
            return found
        if not found.base:  # a floor isn't a share of 0, which counts may be
            return replace(found, floor=tolerance.floor)
        # If the old value is too low by chance, both the loss and the tolerance look larger. So the error of the
        # difference covers both.
        share = tolerance.floor / found.base
        if metric.worse_sign < 0:  # a rate may fall to 1 / (1 + tolerance)
            share = share / (1 - share) if share < 1 else math.inf
        share = min(share, 1000.0)  # infinite bounds could not be subtracted
        return found if share <= tolerance else replace(found, tolerance=share, floor=tolerance.floor)

    def with_outcome(self, outcome: Outcome, reason: Reason | None) -> MetricComparison:
        """Returns a copy with this outcome. A comparison that is WATCHED stays so."""
        if self.outcome is Outcome.WATCHED:
            return self if self.change is not None else replace(self, reason=reason)
        return replace(self, outcome=outcome, reason=reason)

    def undecided(self, reason: Reason) -> MetricComparison:
        return self.with_outcome(Outcome.INCONCLUSIVE, reason)

    @property
    def is_beyond(self) -> bool:
        """Whether the shown change is worse by more than the tolerance."""
        metric = METRICS[self.metric]
        return self.change is not None and not metric.is_counted and metric.worse_sign * (self.change - self.edge) > 0

    @property
    def edge(self) -> float:
        """The `change` that just reaches the tolerance.

        With 5 %, this is 0.05 for a duration and -0.0476 for a rate.
        """
        return math.pow(1 + self.tolerance, METRICS[self.metric].worse_sign) - 1


def within_budget(comparison: MetricComparison) -> MetricComparison:
    """Returns a copy whose reason says that the session's time ended the comparison."""
    reason = comparison.reason
    return comparison if reason is None else replace(comparison, reason=replace(reason, budgeted=True))


def unless_far_worse(comparison: MetricComparison) -> MetricComparison:
    """Makes an INCONCLUSIVE comparison REGRESSED if its whole interval is beyond `Rules.far_worse` tolerances."""
    worst = RULES.far_worse * comparison.tolerance
    if METRICS[comparison.metric].worse_sign > 0:
        is_far = comparison.low is not None and comparison.low > worst
    else:
        is_far = comparison.high is not None and comparison.high < 1 / (1 + worst) - 1
    if worst > 0 and is_far and comparison.outcome is Outcome.INCONCLUSIVE:
        return comparison.with_outcome(Outcome.REGRESSED, None)
    return comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCheck:
    name: str
    """As the user wrote it: `min_rps`, `max_p99`."""
    metric: str
    limit: float
    value: float | None
    """The measured value. None if it was not measured; then the limit counts as broken."""
    holds: bool
    reason: Reason | None = None
    """Why the limit is broken, or why the evidence is weak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    limits: tuple[LimitCheck, ...] = ()
    comparisons: tuple[MetricComparison, ...] = ()
    against: str = ""
    """The other version, such as `origin/main (1a2b3c4)`. Empty if stored baselines were compared."""
    old_tree: str = ""
    """Git's hash of the old version's tree, if known."""
    since: str = ""
    """The baseline whose stored figures were compared, such as `its baseline of 2026-11-20`. Empty without such a
    baseline."""
    world: tuple[MetricComparison, ...] = ()
    """The baseline's own code as it runs now, compared with its stored figures. The environment causes these
    changes."""
    code_notes: tuple[Note, ...] = ()
    """Notes about code: whether a baseline's code was measured again, whether the code here was stored, and why."""

    @property
    def broken(self) -> tuple[LimitCheck, ...]:
        return tuple(check for check in self.limits if not check.holds)

    @property
    def pairs(self) -> int:
        """The number of pairs of start-ups; 0 with stored baselines."""
        return max((comparison.pairs or 0 for comparison in self.comparisons), default=0)

    @property
    def outcome(self) -> Outcome | None:
        """The worst outcome of all comparisons. None if nothing was compared."""
        found = {comparison.outcome for comparison in self.comparisons}
        order = (Outcome.REGRESSED, Outcome.INCONCLUSIVE, Outcome.NEW, Outcome.PASS, Outcome.IMPROVED)
        return next((outcome for outcome in order if outcome in found), None)


# --- Makes a comparison's figures agree with the load's
#
# `now` is the load's figure, as in its row, its limits and the test's own asserts. `base` is the old version's figure,
# measured alternately, or the stored one. `change` is between these two. The interval is the judge's for typical
# moments. If the change lies beyond it, the interval is the one for all requests, which includes stalls. In that case
# `typical` keeps the judge's own estimate.


def as_the_run_shows(
    comparisons: Iterable[MetricComparison], now: Recording, base: Recording | None
) -> tuple[MetricComparison, ...]:
    """Returns the comparisons with the figures of the whole run.

    If the whole run is worse by more than the tolerance, PASS and IMPROVED become INCONCLUSIVE. `base` is the old
    version, if it was measured alternately with `now`, else None.
    """
    found = []
    for item in comparisons:
        metric = METRICS[item.metric]
        measured = metric.of_run(base) if base is not None and item.pairs is not None else None
        shown = agreeing(item, metric.of_run(now), item.base if measured is None else measured)
        if shown.outcome in (Outcome.PASS, Outcome.IMPROVED) and shown.pairs is not None and shown.is_beyond:
            shown = shown.undecided(Reason(kind=ReasonKind.PAIRS_PASS, tolerance=shown.tolerance))
        if metric.is_counted and shown.outcome is Outcome.REGRESSED and shown.reason is None:
            shown = replace(shown, reason=_most_run(now, base))
        found.append(shown)
    return tuple(found)


def _most_run(now: Recording, base: Recording | None = None) -> Reason | None:
    """Returns the database statement that requests run most often. None if statements are unknown.

    With `base`, returns the statement whose runs per request grew most since the old version.
    """
    sides = [side.queries for side in (base, now) if side is not None]
    times = [
        {one.text: one.count / side.requests for one in side.statements} for side in sides if side and side.statements
    ]
    if len(times) < len(sides):
        return None
    *before, after = times
    text = max(after, key=lambda text: after[text] - sum(side.get(text, 0.0) for side in before))
    place = next(one.place for one in sides[-1].statements if one.text == text) if sides[-1] else ""
    return Reason(kind=ReasonKind.STATEMENT, text=text, place=place, times=tuple(side.get(text, 0.0) for side in times))


def agreeing(comparison: MetricComparison, now: float | None, base: float | None) -> MetricComparison:
    """Returns a copy with the measured figures of both versions, and the change between these.

    Memory keeps its figures, because it is compared after a fixed number of requests and not after the whole run.
    """
    if comparison.now is None or now is None or comparison.after_requests is not None:
        return comparison
    change, low, high, typical = comparison.change, comparison.low, comparison.high, comparison.typical
    if change is not None and base is not None and base > 0 and now > 0:
        estimate, change = change, now / base - 1
        if low is not None and high is not None and math.isfinite(estimate) and not low <= change <= high:
            low, high = comparison.total or (low, high)
            low, high, typical = min(low, change), max(high, change), estimate
    return replace(comparison, base=base, now=now, change=change, low=low, high=high, typical=typical)


# --- Checks limits such as `min_rps` and `max_p99`


def check_limits(
    limits: Mapping[str, float], recording: Recording, least_capacity: float | None = None
) -> tuple[LimitCheck, ...]:
    """Returns one check per limit. Names are `min_` or `max_` and a metric; limits are in SI units.

    `least_capacity` is the highest rate of a capacity search, if no load broke a limit. A missing value breaks a limit.
    """
    checks = []
    for name, limit in limits.items():
        metric = METRICS[name.partition("_")[2]]
        value = metric.of_run(recording)
        reason = _reason(metric, value, recording)
        if value is None and metric.name == "capacity" and least_capacity:
            value, reason = least_capacity, Reason(kind=ReasonKind.CAPACITY_BOUND, metric=metric.name)
        holds = value is not None and metric.worse_sign * value <= metric.worse_sign * limit
        if metric.is_counted and value is not None and not holds:
            reason = _most_run(recording)
        checks.append(LimitCheck(name=name, metric=metric.name, limit=limit, value=value, holds=holds, reason=reason))
    return tuple(checks)


def _reason(metric: Metric, value: float | None, recording: Recording) -> Reason | None:
    if value is None:
        why = recording.processes_changed if metric.of_processes else ""
        return Reason(kind=ReasonKind.NOT_MEASURED, metric=metric.name, side="now", text=why)
    if metric.events is not None:
        kind, count, needed = ReasonKind.FEW_EVENTS, metric.events(recording), metric.least_events
    elif metric.percentile is not None:
        requests = sum(round_.requests for round_ in recording.rounds)
        kind, count, needed = ReasonKind.FEW_FOR_PERCENTILE, requests, metric.least_requests
    else:
        return None
    return Reason(kind=kind, metric=metric.name, count=count, needed=needed) if count < needed else None
