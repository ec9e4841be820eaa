"""A recording's evidence: the part that comparisons need, and that is small enough to store.

It has each start-up's rounds and latencies. The modules `paired`, `ranks` and `gate` judge by this evidence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from operator import mul
from statistics import fmean, median, variance

import numpy as np

from pytest_fileperf.judge.difference import moderated
from pytest_fileperf.judge.rules import RULES, usual_sd
from pytest_fileperf.measure.codec import Placed
from pytest_fileperf.measure.histogram import EMPTY, Histogram, step_of
from pytest_fileperf.measure.metrics import METRICS, Metric
from pytest_fileperf.measure.recording import Boot, Phase, Recording, Round
from pytest_fileperf.measure.usage import Course, thinned

# --- Whether two versions give the same answers, by statuses and sizes: other answers are other work
#
# An error page of 28 bytes in place of a table of 12 KB is fast, but no improvement. Bodies are not read here, so equal
# sizes prove nothing.
#
# Statuses  The shares of a status differ by more than 2 %, and by more than chance.
# Sizes     The mean sizes of good answers differ by more than 2 % and some bytes, because a counter may get longer by a
#           digit. If sizes vary, the means must also differ by more than chance, and the rounds by more than sizes grow
#           within a start-up: a list that grows with each request is longer in a faster version.


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAnswers:
    """How the answers of two versions differ. Fields without a difference are empty."""

    of: str = ""
    """The part of a load, or the step of a journey, whose answers differ; empty for the whole load."""
    sizes: tuple[float, ...] = ()
    """Mean bytes of a good answer: for the old, then the new version."""
    base_statuses: Mapping[int, float]
    """By HTTP status: its share of the old version's answers."""
    now_statuses: Mapping[int, float]


def differing(base: Recording | Evidence, now: Recording | Evidence) -> tuple[OtherAnswers, ...]:
    """Returns how the answers differ. Empty if they don't differ, or if too little is known."""
    (base_sizes, base_statuses), (now_sizes, now_statuses) = map(_answers_of, (base, now))
    sizes = _other_sizes(base_sizes, now_sizes)
    if not _other_statuses(base_statuses, now_statuses):
        base_statuses = now_statuses = {}
    if not sizes and not base_statuses:
        return ()
    return (OtherAnswers(sizes=sizes, base_statuses=_shares(base_statuses), now_statuses=_shares(now_statuses)),)


def _answers_of(side: Recording | Evidence) -> tuple[Sequence[Sequence[float]], Mapping[int, int]]:
    if isinstance(side, Evidence):
        return [boot.sizes for boot in side.boots if boot.sizes], side.statuses
    return _sizes_of(side), _statuses_of(side)


def _sizes_of(recording: Recording) -> list[tuple[float, ...]]:
    """Returns the mean bytes of a good answer: for each start-up, a value per round."""
    rounds = recording.measured() if any(round_.requests for round_ in recording.measured()) else recording.rounds
    by_boot: dict[int, list[float]] = {}
    for round_ in rounds:
        if round_.requests:
            by_boot.setdefault(round_.boot, []).append(round_.bytes_received / round_.requests)
    return list(map(tuple, by_boot.values()))


def _statuses_of(recording: Recording) -> dict[int, int]:
    statuses: Counter[int] = Counter()
    for round_ in recording.rounds:
        statuses.update({status: count for status, count in round_.statuses if status})
    return dict(sorted(statuses.items()))


def _other_sizes(*sides: Sequence[Sequence[float]]) -> tuple[float, ...]:
    base, now = ([size for boot in side for size in boot] for side in sides)
    if not base or not now:
        return ()
    means = fmean(base), fmean(now)
    apart = abs(means[0] - means[1]) - RULES.answers_share * max(means)
    # Sizes that are constant in both versions may differ by a few bytes; stored ones are rounded.
    if all(max(own) - min(own) <= 1e-4 * max(own) for own in (base, now)):
        return means if apart > 4 else ()
    gap = max(min(base), min(now)) - min(max(base), max(now))
    # Fewer than four rounds do not show how much sizes vary.
    if min(len(base), len(now)) < 4 or gap <= 2 * max(map(_growth, sides)):
        return ()
    error = math.sqrt(sum(variance(own) / len(own) for own in (base, now)))
    # If sizes vary, some numbers and dates have other lengths.
    return means if apart > 64 + RULES.answers_errors * error else ()


def _growth(boots: Sequence[Sequence[float]]) -> float:
    """Returns how many bytes answers grow, on average, from the first to the second half of a start-up.

    `boots` has each start-up's mean sizes, by round.
    """
    halves = [(boot[: len(boot) // 2], boot[len(boot) // 2 :]) for boot in boots if len(boot) > 1]
    return abs(fmean(fmean(late) - fmean(early) for early, late in halves)) if halves else 0.0


def _other_statuses(base: Mapping[int, int], now: Mapping[int, int]) -> bool:
    made = sum(base.values()), sum(now.values())
    if not all(made):
        return False
    for status in base.keys() | now.keys():
        counts = base.get(status, 0), now.get(status, 0)
        pooled = sum(counts) / sum(made)
        error = math.sqrt(pooled * (1 - pooled) * (1 / made[0] + 1 / made[1]))
        if abs(counts[0] / made[0] - counts[1] / made[1]) > RULES.answers_share + RULES.answers_errors * error:
            return True
    return False


def _shares(statuses: Mapping[int, int]) -> dict[int, float]:
    made = sum(statuses.values())
    return {status: count / made for status, count in statuses.items()}


# --- evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class BootEvidence:
    """The figures of one start-up of one version."""

    turns: tuple[Mapping[str, float], ...]
    """For each round: its known metrics by name, in SI units. If two versions are loaded alternately, a round is called
    a turn."""
    latency: Histogram
    """Latencies of all successful requests, even if they end after the last round."""
    stretches: tuple[Histogram, ...] = ()
    """If two versions are loaded alternately: the latencies in each turn. Requests that end between two turns count in
    the later turn."""
    typical: tuple[Mapping[str, float], ...] = ()
    """If two versions are loaded alternately: each turn's rates without stalls, by metric (`Round.typical_rps`). Empty
    for a turn with hardly any answers."""
    runs: Mapping[str, float]
    """By name: metrics that have one value for the whole load, such as `rss`, in SI units."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """For some metrics in `runs`: the variance of the value's logarithm."""
    memory: Course = ()
    """(answered requests so far, peak memory so far in bytes), in order of time. Empty in older baselines."""
    sizes: tuple[float, ...] = ()
    """Mean bytes of a good answer in each round. Empty if two versions are loaded alternately, and in older
    baselines."""

    @property
    def requests(self) -> int:
        return self.latency.count

    def rate(self, name: str) -> float | None:
        """Returns a metric's mean over all turns. None if no turn has the metric."""
        known = [turn[name] for turn in self.turns if name in turn]
        return fmean(known) if known else None  # all turns are equally long

    def after(self, requests: int) -> BootEvidence:
        """Returns a copy whose memory (`rss`) is the peak memory after this number of requests."""
        served, peaks = zip(*self.memory, strict=True)
        return replace(self, runs={**self.runs, "rss": float(np.interp(requests, served, peaks))})

    def to_json(self) -> dict[str, object]:
        names = sorted({name for values in self.turns for name in values})
        told = {
            "latency": self.latency.encode(),
            "requests": self.requests,
            "rounds": {
                name: [significant(values[name]) if name in values else None for values in self.turns] for name in names
            },
            "runs": {name: significant(value) for name, value in sorted(self.runs.items())},
        }
        more = {
            "variances": {name: significant(value) for name, value in sorted(self.variances.items())},
            "memory": [list(point) for point in self.memory],
            "sizes": [significant(size) for size in self.sizes],
        }
        return told | {name: value for name, value in more.items() if value}

    @classmethod
    def from_json(cls, stored: Placed) -> BootEvidence:
        """Raises ValueError that names the first wrong place."""
        if not isinstance(stored.value, dict):
            raise ValueError(f"{stored.where} is not an object")
        try:
            latency = Histogram.decode(stored["latency"].text())
        except ValueError as error:
            raise ValueError(f"{stored.where}.latency: {error}") from error
        stored["requests"].whole()  # for reviewers: the latencies contain it
        return cls(
            turns=_turns_from(stored["rounds"]),
            latency=latency,
            runs=stored["runs"].numbers(),
            variances=stored.given("variances", {}).numbers(),
            memory=_course_from(stored.given("memory", [])),
            sizes=tuple(size.number() for size in stored.given("sizes", []).items()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The figures of one version, from all of its start-ups."""

    boots: tuple[BootEvidence, ...]
    stabilised: tuple[str, ...] = ()
    """Sources of chance that were fixed in every start-up: `hash seed`, `addresses`. Baselines from before version 0.2
    may also have `allocator`."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """By HTTP status: the number of answers. Empty in older baselines."""

    @property
    def requests(self) -> int:
        return sum(boot.requests for boot in self.boots)

    def after(self, requests: int) -> Evidence:
        return replace(self, boots=tuple(boot.after(requests) for boot in self.boots))

    def to_json(self) -> dict[str, object]:
        told = {"boots": [boot.to_json() for boot in self.boots], "stabilised": list(self.stabilised)}
        known = {str(status): count for status, count in self.statuses.items()}
        return {**told, "statuses": known} if known else told

    @classmethod
    def from_json(cls, stored: Placed) -> Evidence:
        """Raises ValueError that names the first wrong place."""
        statuses = stored.given("statuses", {})
        if not all(status.isdecimal() for status in statuses.mapping()):
            raise ValueError(f"{statuses.where} has a key that isn't an HTTP status")
        return cls(
            boots=tuple(map(BootEvidence.from_json, stored["boots"].items())),
            stabilised=stored["stabilised"].list_of_texts(),
            statuses={int(status): statuses[status].whole() for status in statuses.mapping()},
        )


def evidence_of(recording: Recording) -> Evidence:
    """Returns the part of a recording that comparisons need."""
    first = recording.boots[0].stabilised if recording.boots else ()
    return Evidence(
        boots=tuple(_boot_evidence(recording, boot) for boot in recording.boots),
        stabilised=tuple(name for name in first if all(name in boot.stabilised for boot in recording.boots)),
        statuses=_statuses_of(recording),
    )


def _boot_evidence(recording: Recording, boot: Boot) -> BootEvidence:
    own = recording.of_boot(boot)
    rounds = tuple(_values_of(round_, percentiles=True) for round_ in own.measured())
    # A rate that is 0 in every round comes from the whole load: all requests ended in the drain.
    known = {name for values in rounds for name, value in values.items() if value}
    runs = {}
    for name, metric in METRICS.items():
        value = metric.of_run(own) if metric.percentile is None and name not in known else None
        if value or (metric.is_counted and value is not None):
            runs[name] = value
    capacity = {} if boot.capacity is None else {"capacity": boot.capacity.variance}
    return BootEvidence(
        turns=rounds,
        latency=own.latency(),
        runs=runs,
        variances=capacity | _counted(boot)[1],
        memory=thinned(boot.memory, 12),  # few, so that a diff stays readable
        sizes=next(iter(_sizes_of(own)), ()),
    )


def reached_by_all(boots: Iterable[BootEvidence]) -> int | None:
    """Returns a number of requests that all start-ups reached. None if a start-up has no `memory`."""
    courses = [boot.memory for boot in boots]
    return min(course[-1][0] for course in courses) if courses and all(courses) else None


def _values_of(round_: Round, *, percentiles: bool) -> dict[str, float]:
    values = {}
    for name, metric in METRICS.items():
        enough = metric.percentile is None or (percentiles and round_.latency.count >= metric.least_requests)
        value = metric.of_round(round_) if enough else None
        if value is not None:
            values[name] = value
    return values


def significant(value: float, digits: int = 5) -> float:
    """Rounds to significant digits. Five are finer than any noise, and keep diffs readable."""
    return float(f"{value:.{digits}g}")


def _course_from(stored: Placed) -> Course:
    found = []
    for item in stored.items():
        point = item.value
        if not (isinstance(point, list) and len(point) == 2 and all(type(value) is int for value in point)):
            raise ValueError(f"{item.where} isn't a pair of whole numbers")
        found.append((point[0], point[1]))
    if found != sorted(found) or any(value < 0 for point in found for value in point):
        raise ValueError(f"{stored.where} has numbers below 0, or in the wrong order")
    return tuple(found)


def _turns_from(stored: Placed) -> tuple[Mapping[str, float], ...]:
    columns = {name: stored[name].items() for name in stored.mapping()}
    lengths = set(map(len, columns.values()))
    if len(lengths) > 1:
        raise ValueError(f"{stored.where} has lists of different lengths: {', '.join(map(str, sorted(lengths)))}")
    turns: list[dict[str, float]] = [{} for _ in range(max(lengths, default=0))]
    for name, column in columns.items():
        for turn, item in zip(turns, column, strict=True):
            if item.value is not None:
                turn[name] = item.number()
    return tuple(turns)


# --- A version's mean of one metric: a value per start-up, and how certain each value is
#
# On the log scale a change is a ratio, whatever the unit, and relative noise becomes even.

HODGES_LEHMANN_COST = math.pi / 3
"""The variance of `hodges_lehmann` over the variance of the mean, for normally distributed values. If a few values are
far off, the ratio is below 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A metric's values for one version, as natural logarithms. The values are in SI units."""

    boots: tuple[float, ...]
    """One value per start-up; never empty."""
    rounds: tuple[tuple[float, ...], ...]
    """For each start-up in `boots`: the known values of its rounds."""
    sampling: float | None
    """Mean variance of a start-up's percentile or capacity that comes from few requests or few loads. None for other
    metrics."""

    @property
    def mean(self) -> float:
        return fmean(self.boots)

    @property
    def value(self) -> float:
        """The version's value in the metric's unit, from the mean of `boots`."""
        return math.exp(self.mean)


def level_of(metric: Metric, evidence: Evidence) -> Level | None:
    """Returns the metric's value in each start-up. None if no start-up has a value above 0.

    A percentile comes from all latencies of a start-up, because single rounds have few requests.
    """
    values, rounds, sampling = [], [], []
    for boot in evidence.boots:
        logs = tuple(math.log(of[metric.name]) for of in boot.turns if of.get(metric.name, 0.0) > 0)
        value = _boot_value(metric, boot, logs)
        if value is None:
            continue
        values.append(value)
        rounds.append(logs)
        if metric.name in boot.variances:
            sampling.append(boot.variances[metric.name])
        elif metric.percentile is not None:
            sampling.append(quantile_variance(boot.latency, metric.percentile))
    if not values:
        return None
    return Level(boots=tuple(values), rounds=tuple(rounds), sampling=fmean(sampling) if sampling else None)


def _boot_value(metric: Metric, boot: BootEvidence, logs: tuple[float, ...]) -> float | None:
    if metric.percentile is not None:
        value_ns = boot.latency.percentile_ns(metric.percentile)
        return math.log(value_ns / 1e9) if value_ns > 0 else None
    if not logs:
        value = boot.runs.get(metric.name, 0.0)
        return math.log(value) if value > 0 else None
    known = [values[metric.name] for values in boot.turns if metric.name in values]
    # A few rounds are far off, so this isn't a mean. But if nothing ended in a round (long requests), it has no
    # logarithm, and only a mean counts it.
    return hodges_lehmann(logs) if len(logs) == len(known) else math.log(fmean(known))


def counts_of(metric: Metric, boots: Iterable[BootEvidence]) -> list[tuple[float, float]]:
    """Returns (count, variance) for each start-up that has this metric."""
    known = [boot for boot in boots if metric.name in boot.runs]
    return [(value := boot.runs[metric.name], boot.variances.get(metric.name, 0.0) * value**2) for boot in known]


def value_of(metric: Metric, evidence: Evidence) -> float | None:
    """Returns the metric's value as `gate.compare` judges it. None if no start-up has a value."""
    if metric.is_counted:
        return measured_of(metric, evidence)
    return None if (level := level_of(metric, evidence)) is None else level.value


def measured_of(metric: Metric, evidence: Evidence) -> float | None:
    """Returns the metric's value as reports show it. None if the metric was not measured."""
    if metric.percentile is not None:
        return percentile_of(evidence.boots, metric.percentile)
    found = []
    for boot in evidence.boots:
        rounds = [values.get(metric.name, 0.0) for values in boot.turns]
        found.append(fmean(rounds) if any(rounds) else boot.runs.get(metric.name))
    known = [value for value in found if value is not None]
    return fmean(known) if known else None


def percentile_of(boots: Iterable[BootEvidence], percent: float) -> float | None:
    """Returns a percentile of the latencies of all start-ups together, in seconds. None without latencies."""
    latency = Histogram.merged(boot.latency for boot in boots)
    return latency.percentile_ns(percent) / 1e9 if latency.count else None


def hodges_lehmann(values: Sequence[float]) -> float:
    """Returns the Hodges–Lehmann estimate: the mean of every two values, and these means' median.

    Hodges and Lehmann, "Estimates of location based on rank tests", Ann. Math. Statist. 34 (1963) 598–611. For normally
    distributed values it is nearly as exact as the mean. If up to 29 % of the values are far off, it hardly moves.
    """
    ordered = sorted(values)
    return median((low + high) / 2 for index, low in enumerate(ordered) for high in ordered[index:])


def biweight(values: Sequence[float]) -> float:
    """Returns Tukey's biweight: a mean in which values that are far off count less, or not at all.

    Mosteller and Tukey, "Data Analysis and Regression" (1977), chapter 10, with a reach of six median absolute
    deviations. For normally distributed values it is nearly as exact as the mean. If up to half of the values are far
    off on both sides, it hardly moves.
    """
    location = centre = median(values)
    reach = 6 * median(abs(value - centre) for value in values)
    if reach <= 0:
        return centre
    for _ in range(50):
        weights = [max(0.0, 1 - ((value - location) / reach) ** 2) ** 2 for value in values]
        before, location = location, math.fsum(map(mul, values, weights)) / math.fsum(weights)
        if abs(location - before) < 1e-9 * reach:
            break
    return location


def spread_of(levels: Sequence[Level]) -> tuple[float, int]:
    """Returns the variance of rounds within a start-up, and its degrees of freedom.

    Both are 0 if no start-up has two rounds.
    """
    # Two rounds of one start-up are compared, because a variance around a mean of few rounds would be too small. The
    # median is taken, because rounds that are far off hardly change it.
    boots = [rounds for level in levels for rounds in level.rounds]
    gaps = [abs(one - other) for rounds in boots for one, other in combinations(rounds, 2)]
    if not gaps:
        return 0.0, 0
    # The median absolute difference of two values of a normal distribution, in standard deviations.
    normal = 0.6744897501960817 * math.sqrt(2)
    return (median(gaps) / normal) ** 2, sum(len(rounds) - 1 for rounds in boots if rounds)


def variance_of_location(round_variance: float, levels: Sequence[Level]) -> float:
    """Returns the variance of a start-up's value that comes from its few rounds, as a mean over start-ups.

    `round_variance` is the variance of one round.
    """
    return fmean(
        HODGES_LEHMANN_COST * round_variance / max(1, len(rounds)) for level in levels for rounds in level.rounds
    )


def quantile_variance(latency: Histogram, percent: float, *, clustering: float = 1.0) -> float:
    """Returns how uncertain a measured percentile is: the variance of its logarithm.

    `clustering` says how many requests are slow together, for example in the same pause (`clustering_of`).
    """
    # The number of requests below the true percentile is binomial. So the ranks n·q ± 2 sqrt(n·q·(1-q)) contain it with
    # 95 % (Hahn and Meeker, "Statistical Intervals", 1991, section 5.2). Their values are four deviations apart. Ranks
    # for 68 % might miss a jump of the latency just beside the percentile.
    count, share = latency.count, percent / 100
    half = 2 * math.sqrt(clustering * count * share * (1 - share))
    low, high = (
        latency.percentile_ns(100 * min(max(rank, 1.0), count) / count)
        for rank in (count * share - half, count * share + half)
    )
    return (math.log(max(high, 1) / max(low, 1)) / 4) ** 2


def excess_of(
    stretches: Sequence[Histogram], percent: float, *, most: Callable[[float], float] | None = None
) -> tuple[float, float]:
    """Returns how unevenly slow requests are spread over the stretches of a load, and the value expected by chance.

    Both are sums of squares. A request is slow if it is beyond the percentile of all stretches. `most` takes the number
    of requests in a stretch, and returns how many of them may count as slow.
    """
    if not stretches:
        return 0.0, 0.0
    counts = np.array([stretch.count for stretch in stretches], dtype=np.float64)
    (slow,) = step_of(np.array([Histogram.merged(stretches).percentile_ns(percent)]))
    each = [stretch.held.arrays() for stretch in stretches]
    which = np.repeat(np.arange(len(stretches)), [steps.size for steps, _ in each])
    beyond = np.concatenate([hits * (steps > slow) for steps, hits in each])
    above = np.bincount(which, weights=beyond, minlength=len(stretches))
    if most is not None:
        above = np.minimum(above, [most(stretch.count) for stretch in stretches])
    share = float(above.sum() / max(1.0, counts.sum()))
    return float(((above - share * counts) ** 2).sum()), share * (1 - share) * float(counts.sum())


def clustering_of(excesses: Iterable[tuple[float, float]]) -> float:
    """Returns how many slow requests come together on average, from results of `excess_of`; at least 1.

    In statistics this is the design effect of a share in cluster samples. (Woodruff, "Confidence intervals for medians
    and other position measures", J. Am. Stat. Assoc. 47 (1952) 635–646, turns a share's interval into a percentile's
    interval.)
    """
    found, expected = (math.fsum(parts) for parts in zip((0.0, 0.0), *excesses, strict=True))
    return max(1.0, found / expected) if expected > 0 else 1.0


def tail_factor(metric: Metric) -> float:
    """Returns how many times as much as a rate the metric varies.

    This is a percentile's number of nines, squared: 4 for p99 and 9 for p99.9, but 1.7 for p95. It is at least 1. This
    rule of thumb comes from measurements: if p50 varied by 2 to 10 %, p99 varied by 12 to 39 %.
    """
    if metric.percentile is None:
        return 1.0
    return float(max(1.0, math.log10(1 - metric.percentile / 100) ** 2))


# --- How certain a version's mean is, from its start-ups
#
# A start-up's log value is   version's value + its own offset + chance in its rounds or requests.
#
# The variance s² of this value is the observed variance, pooled over versions and moderated by the usual variance. The
# usual variance has two parts: the offset's variance, and the uncertainty within a start-up, which its rounds show.
# s² is never below this uncertainty.


def precision_of(metric: Metric, evidence: Evidence) -> float:
    """Returns the standard error of the metric's logarithm. Infinite if no start-up has a value."""
    level = level_of(metric, evidence)
    if level is None:
        return math.inf
    variance, _ = variance_of_boots(metric, [level], evidence.stabilised)
    return math.sqrt(variance / len(level.boots))


def variance_of_boots(metric: Metric, levels: Sequence[Level], held: Collection[str]) -> tuple[float, float]:
    """Returns the variance of a start-up's log value, and its degrees of freedom.

    `levels` has one or two versions. `held` names the sources of chance that were fixed, such as `hash seed`.
    """
    boot_sd = usual_sd(RULES.boot_sd, held) * tail_factor(metric)
    within = _within(levels, usual_sd(RULES.round_sd, held))
    squares = math.fsum((value - level.mean) ** 2 for level in levels for value in level.boots)
    seen = sum(len(level.boots) - 1 for level in levels)
    df = RULES.boot_prior_df + seen
    return max(moderated(squares, seen, usual=boot_sd**2 + within, weight=RULES.boot_prior_df), within), df


def _within(levels: Sequence[Level], usual_sd: float) -> float:
    sampling = [level.sampling for level in levels if level.sampling is not None]
    variance, df = spread_of(levels)
    if sampling:
        # Rounds differ by more than independent requests would, because requests depend on each other: the greater
        # variance counts.
        return max(fmean(sampling), variance_of_location(variance, levels))
    if not any(rounds for level in levels for rounds in level.rounds):
        return 0.0  # a metric of whole loads: only start-ups make it uncertain
    round_variance = moderated(df * variance, df, usual=usual_sd**2, weight=RULES.round_prior_df)
    return variance_of_location(round_variance, levels)


# --- Two start-ups that were loaded alternately: the unit that `paired` compares


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A start-up of each version. Both were loaded alternately."""

    base: BootEvidence
    now: BootEvidence
    stabilised: tuple[str, ...] = ()
    base_boots_anew: bool = True
    """Whether each pair has its own start-up of the old version. False if one start-up serves all pairs."""


def sides_of(pairs: Iterable[Pair]) -> tuple[list[BootEvidence], list[BootEvidence]]:
    """Returns two lists: all old start-ups and all new start-ups."""
    both = [(pair.base, pair.now) for pair in pairs]
    return [base for base, _ in both], [now for _, now in both]


def boots_of(pairs: Iterable[Pair]) -> list[BootEvidence]:
    return [boot for pair in pairs for boot in (pair.base, pair.now)]


def pairs_alike(pairs: Iterable[Pair]) -> list[Pair]:
    """Returns copies that have each start-up's memory (`rss`) after the same number of requests.

    Otherwise a faster version would seem to need more memory, because it answers more requests.
    """
    pairs = list(pairs)
    requests = reached_by_all(boots_of(pairs))
    if requests is None:
        return pairs
    return [replace(pair, base=pair.base.after(requests), now=pair.now.after(requests)) for pair in pairs]


def pair_side(rounds: Iterable[Round], boot: Boot | None = None) -> BootEvidence:
    """Returns the evidence on one version from its rounds in a pair.

    `boot` is None for a part or step of a load, because start-ups belong to whole loads.
    """
    rounds = tuple(rounds)
    runs, variances = ({}, {}) if boot is None else _counted(boot)
    if boot is not None and boot.startup_ns is not None:
        runs["startup"] = boot.startup_ns / 1e9
    turns = [round_ for round_ in rounds if round_.phase is Phase.ROUND]
    return BootEvidence(
        turns=tuple(_values_of(turn, percentiles=False) for turn in turns),
        typical=tuple(
            {}
            if (rps := turn.typical_rps) is None
            else {"rps": rps, "throughput": rps * (turn.bytes_sent + turn.bytes_received) / turn.requests}
            for turn in turns
        ),
        latency=Histogram.merged(round_.latency for round_ in rounds),
        stretches=_stretches(rounds),
        runs=runs,
        variances=variances,
        memory=() if boot is None else boot.memory,
    )


def sides_by_boot(recording: Recording) -> tuple[BootEvidence, ...]:
    return tuple(pair_side(recording.of_boot(boot).rounds, boot) for boot in recording.boots)


def _counted(boot: Boot) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the queries per request and the variance of their logarithm. Empty if nobody counted them."""
    if boot.queries is None:
        return {}, {}
    mean, uncertain = boot.queries.mean()
    return {"queries": mean}, {"queries": uncertain / mean**2} if uncertain else {}


def _stretches(rounds: Iterable[Round]) -> tuple[Histogram, ...]:
    found: list[Histogram] = []
    handover = EMPTY
    for round_ in rounds:
        if round_.phase is Phase.HANDOVER:
            handover = Histogram.merged((handover, round_.latency))
            continue
        if round_.phase is Phase.ROUND:
            found.append(Histogram.merged((handover, round_.latency)))
        elif found:
            found[-1] = Histogram.merged((found[-1], handover, round_.latency))
        handover = EMPTY
    return tuple(found)
