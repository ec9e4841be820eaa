"""The record of a session with its ranked groups. Every report is made from it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from pytest_fileperf.judge.evidence import BootEvidence, Evidence, Level, evidence_of, level_of, tail_factor
from pytest_fileperf.judge.gate import difference_of
from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY, grouped, unknown_params
from pytest_fileperf.judge.record import FailedTest, Result
from pytest_fileperf.judge.rules import RULES
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.measure.recording import Recording

# --- Ranks the variants of a group, best first; variants that the evidence cannot tell apart share a rank
#
# Ranked by
#     Requests per second as in the gate: the robust location of the rounds, over the start-ups. In an open loop and a
#     burst, all due requests depend on each other. So the whole load is a single round: its successful requests over
#     attack and wait. The same holds if rounds are hardly longer than latencies: answers to many connections come in
#     waves, and a short round only shows which wave it caught. If every variant is an open loop that got its rate,
#     rates say nothing, and the lowest p50 wins.
#
# Told apart
#     Every two variants are compared as in the gate, with the same spread of start-ups and rounds. The drift from one
#     test to the next (`Rules.drift_sd`) replaces the spread of sessions. A single start-up cannot show its spread, so
#     it gets the gate's usual one. Each pair gets Bonferroni's share of `Rules.ranking_alpha`, not only pairs with the
#     best one, because which one looks best is chance too. So with 95 % confidence no two equal variants of a group are
#     told apart, and all intervals hold.
#
# A variant's rank is 1 + the number of certainly better variants. This is the lower end of a simultaneous confidence
# interval for its true rank.
#
#     Source: Al Mohamad, Goeman and van Zwet, "Simultaneous confidence intervals for ranks with application to ranking
#     institutions", Biometrics 78 (2022) 238–247, with Bonferroni's bounds in place of Tukey's, as variances differ.
#
# So the second line of a table has rank 1 if it may be the best. Ranks may have gaps.


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A variant's place in the ranking of its group."""

    member: int
    """The variant's index in `RankedGroup.results`."""
    rank: int | None
    """1 + the number of members that are certainly better. None if the member has no value."""
    shared: bool = False
    value: float | None = None
    """The metric's value in SI units."""
    ratio: float | None = None
    """`value` over the best member's value: at most 1 for a rate, at least 1 for a duration."""
    low: float | None = None
    high: float | None = None
    """`low` and `high` are the interval of `ratio` at the ranking's confidence. None for the best member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedGroup:
    metric: str
    """A name in `measure.metrics.METRICS`."""
    places: tuple[Place, ...]
    """A place for each member, best first. Members without a value come last."""
    title: str = ""
    results: tuple[Result, ...] = ()
    """The members in the order of their measurement: `Place.member` is an index into them."""

    @property
    def confidence(self) -> float:
        """The probability that all ranks and intervals of the group are right."""
        return 1 - RULES.ranking_alpha

    def ordered(self) -> Iterator[tuple[Result, Place]]:
        for place in self.places:
            yield self.results[place.member], place


def ranked_by(recordings: Sequence[Recording], limits: Sequence[Limit]) -> tuple[Metric, list[Evidence]]:
    """Returns the metric that ranks the loads, and each load's evidence.

    The metric is `p50` if each load reached its fixed rate with enough requests. Otherwise it is `rps`. `limits` says
    what limited each load.
    """
    rate, median = METRICS["rps"], METRICS["p50"]
    sides = [evidence_of(recording) for recording in recordings]
    if all(limit.kind is LimitKind.RATE for limit in limits) and all(
        side.requests >= median.least_requests for side in sides
    ):
        return median, sides
    return rate, [_rate_evidence(rate, *pair) for pair in zip(recordings, sides, strict=True)]


def rank(
    metric: Metric, sides: Sequence[Evidence], *, title: str = "", results: tuple[Result, ...] = ()
) -> RankedGroup:
    """Ranks a group's variants by the metric. `sides` has each variant's evidence, `results` each variant's result."""
    known = {at: level for at, side in enumerate(sides) if (level := level_of(metric, side)) is not None}
    order = sorted(known, key=lambda at: known[at].mean, reverse=metric.worse_sign < 0)
    margins = _margins(metric, sides, known, order)
    ranks = {
        at: 1 + sum(abs(known[at].mean - known[other].mean) > margins[other, at] for other in order[:place])
        for place, at in enumerate(order)
    }
    bearers = Counter(ranks.values())
    best, places = known[order[0]].mean if order else 0.0, []
    for at in order:
        ratio, margin = known[at].mean - best, margins.get((order[0], at))
        places.append(
            Place(
                member=at,
                rank=ranks[at],
                shared=bearers[ranks[at]] > 1,
                value=known[at].value,
                ratio=_exp(ratio),
                low=None if margin is None else _exp(ratio - margin),
                high=None if margin is None else _exp(ratio + margin),
            )
        )
    # A member with a wide interval may rank before one with a better value.
    places.sort(key=lambda place: ranks[place.member])
    unknown = [Place(member=at, rank=None) for at in range(len(sides)) if at not in known]
    return RankedGroup(metric=metric.name, places=(*places, *unknown), title=title, results=results)


def _rate_evidence(metric: Metric, recording: Recording, side: Evidence) -> Evidence:
    """Returns evidence for a rate: `side`, or evidence in which each start-up's whole load is one round.

    Rounds of open loops, and rounds hardly longer than latencies, show no rate by themselves.
    """
    shortest_ns = min((round_.duration_ns for round_ in recording.measured()), default=0)
    in_waves = shortest_ns < RULES.latencies_a_round * recording.latency().mean_ns()
    if not recording.open_loop and not in_waves:
        return side
    boots = []
    for boot, known in zip(recording.boots, side.boots, strict=True):
        value = metric.of_run(recording.of_boot(boot))
        turns = () if value is None else ({metric.name: value},)
        boots.append(BootEvidence(turns=turns, latency=known.latency, runs={}))
    return Evidence(boots=tuple(boots), stabilised=side.stabilised)


def _margins(
    metric: Metric, sides: Sequence[Evidence], levels: Mapping[int, Level], order: Sequence[int]
) -> dict[tuple[int, int], float]:
    """Returns the least difference of log values that tells two members apart, by (better member, other member).

    `order` has the members, best first.
    """
    pairs = list(combinations(order, 2))
    error = RULES.ranking_alpha / 2 / max(1, len(pairs))  # of a bound on either side
    sd, df = RULES.drift_sd * math.sqrt(2) * tail_factor(metric), RULES.drift_df
    return {
        (better, other): difference_of(
            metric, sides[better], sides[other], (levels[better], levels[other]), sd=sd, df=df
        ).margin(error)
        for better, other in pairs
    }


def _exp(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))  # a float's range ends near 709


# --- groups


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The session options that appear in reports."""

    command: str = ""
    """The command line as typed into a shell."""
    against: str = ""
    """The other version to compare with, as the user wrote it. Empty if stored baselines were compared."""
    aa: bool = False
    """Whether the code was compared with itself."""
    update: str = ""
    """Which baselines were stored: `passed`, `all` or `new`. Empty if none were stored."""
    smoke: bool = False
    strict: bool = False
    profile: bool = False
    group_by: tuple[str, ...] = DEFAULT_GROUP_BY


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """Everything that reports show about a session, and their only input."""

    results: tuple[Result, ...] = ()
    """The measurements' results, in the order of their measurement."""
    groups: tuple[RankedGroup, ...] = ()
    unknown_params: tuple[str, ...] = ()
    """Parameters by which the user groups tests, but which no test has."""
    failed: tuple[FailedTest, ...] = ()
    """Tests that failed for another reason than a measured figure, in order. They may also have results."""
    said: tuple[str, ...] = ()
    """Lines about the whole session: checkouts, packages, baselines whose tests are gone."""
    endpoints: Mapping[str, Mapping[str, bool]] = field(default_factory=dict)
    """By app and endpoint, such as `GET /items/{item_id}`: whether it has a load test. Empty if only some load tests
    ran."""
    created: str = ""
    """When the session ended, in ISO 8601; empty if unknown."""
    asked: Asked = Asked()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of `pytest-fileperf`, `pytest` and `python`, by name."""
    commit: Mapping[str, object] | None = None
    """Facts about the commit of the code here, as JSON values. None if unknown, or if no report needs them."""
    environment: Mapping[str, object] = field(default_factory=dict)
    """Machine, system, Python and packages, as JSON values; empty if no report needs it."""

    @property
    def alone(self) -> tuple[Result, ...]:
        ranked = {id(result) for group in self.groups for result in group.results}
        return tuple(result for result in self.results if id(result) not in ranked)


def session_record(results: Sequence[Result], labels: Sequence[str] = DEFAULT_GROUP_BY) -> SessionRecord:
    """Returns a record of the results and their groups by `labels`, which come from `parse_group_by`.

    A group is ranked if at least two of its results have a successful request. Results of smoke runs are not ranked.
    Nor are searches for a capacity, because they choose their own rates.
    """
    groups = []
    comparable = [result for result in results if not result.smoke and result.capacity is None]
    for title, members in grouped(comparable, labels).items():
        if title and sum(result.measurement.requests > 0 for result in members) > 1:
            limits = [result.measurement.limit for result in members]
            metric, sides = ranked_by([result.recording for result in members], limits)
            groups.append(rank(metric, sides, title=title, results=tuple(members)))
    unknown = unknown_params(results, labels)
    return SessionRecord(results=tuple(results), groups=tuple(groups), unknown_params=unknown)
