"""What a recording says for a comparison, small enough to be stored: per boot its round values and its latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_fileperf.judge.answers import Answers, answers_of
from pytest_fileperf.judge.stored import list_in, mapping_in, number_in, text_in, texts_in, whole_in
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.memory import Course, memory_after, thinned
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Recording, Round

__all__ = ("BootEvidence", "Evidence", "alike", "evidence_of")

STORED_DIGITS = 5
"""Significant digits of a stored value: finer than any noise here, and a diff stays readable."""
STORED_POINTS = 12
"""Of the course of a boot's memory, for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootEvidence:
    """One boot of the server: the unit that comparisons count."""

    rounds: tuple[Mapping[str, float], ...]
    """For each round the known metrics, by name, in SI units. A percentile needs its least number of requests."""
    latency: Histogram
    """Nanoseconds of all successful requests of the boot, drain included."""
    requests: int
    """Their number."""
    runs: Mapping[str, float] = field(default_factory=dict)
    """Metrics that are known only of a whole run, such as `rss`."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """What is uncertain about the logarithms of some of `runs`."""
    memory: Course = ()
    """How its peak of memory grew with its requests; baselines of before have none."""
    sizes: tuple[float, ...] = ()
    """Bytes of the body of a good answer, as the mean of each round; baselines of before have none."""

    def to_json(self) -> dict[str, object]:
        """Returns it as JSON values: a list of round values per metric, `null` where a round has none."""
        names = sorted({name for values in self.rounds for name in values})
        told: dict[str, object] = {
            "latency": self.latency.encode(),
            "requests": self.requests,
            "rounds": {name: [_short(values.get(name)) for values in self.rounds] for name in names},
            "runs": {name: _short(value) for name, value in sorted(self.runs.items())},
        }
        known = {name: _short(value) for name, value in sorted(self.variances.items())}
        told |= {"variances": known} if known else {}
        told |= {"memory": [list(point) for point in self.memory]} if self.memory else {}
        return told | ({"sizes": [_short(size) for size in self.sizes]} if self.sizes else {})

    @classmethod
    def from_json(cls, stored: object, where: str) -> BootEvidence:
        """Returns what `to_json` gave; raises ValueError naming the first thing that is wrong."""
        if not isinstance(stored, dict):
            raise ValueError(f"{where} is not an object")
        runs = mapping_in(stored, "runs", where)
        known = mapping_in(stored, "variances", where) if "variances" in stored else {}
        try:
            latency = Histogram.decode(text_in(stored, "latency", where))
        except ValueError as error:
            raise ValueError(f"{where}.latency: {error}") from error
        return cls(
            rounds=_rounds_from(mapping_in(stored, "rounds", where), f"{where}.rounds"),
            latency=latency,
            requests=whole_in(stored, "requests", where),
            runs={name: number_in(runs, name, f"{where}.runs") for name in runs},
            variances={name: number_in(known, name, f"{where}.variances") for name in known},
            memory=_course_from(list_in(stored, "memory", where), f"{where}.memory") if "memory" in stored else (),
            sizes=_sizes_from(list_in(stored, "sizes", where), f"{where}.sizes") if "sizes" in stored else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All boots of one side of a comparison."""

    boots: tuple[BootEvidence, ...]
    stabilised: tuple[str, ...] = ()
    """What was held equal between the boots: `hash seed`, `addresses`; before 0.2 also `allocator`."""
    statuses: Mapping[int, int] = field(default_factory=dict)
    """How often each status was answered; baselines of before have none."""

    @property
    def answers(self) -> Answers:
        """What was answered, as far as it is known."""
        return Answers(sizes=tuple(boot.sizes for boot in self.boots if boot.sizes), statuses=self.statuses)

    @property
    def requests(self) -> int:
        """Successful requests of all boots."""
        return sum(boot.requests for boot in self.boots)

    def to_json(self) -> dict[str, object]:
        """Returns it as JSON values, rounded to `STORED_DIGITS` significant digits."""
        told = {"boots": [boot.to_json() for boot in self.boots], "stabilised": list(self.stabilised)}
        known = {str(status): count for status, count in self.statuses.items()}
        return {**told, "statuses": known} if known else told

    @classmethod
    def from_json(cls, stored: Mapping[str, object], where: str = "evidence") -> Evidence:
        """Returns what `to_json` gave; raises ValueError naming the first thing that is wrong."""
        boots = list_in(stored, "boots", where)
        return cls(
            boots=tuple(BootEvidence.from_json(boot, f"{where}.boots[{index}]") for index, boot in enumerate(boots)),
            stabilised=texts_in(stored, "stabilised", where),
            statuses=_statuses_from(mapping_in(stored, "statuses", where), f"{where}.statuses")
            if "statuses" in stored
            else {},
        )


def evidence_of(recording: Recording) -> Evidence:
    """Returns what the recording says for a comparison; what was stabilised is what every boot had in common."""
    common = [set(boot.stabilised) for boot in recording.boots]
    first = recording.boots[0].stabilised if recording.boots else ()
    return Evidence(
        boots=tuple(_boot_evidence(recording, boot) for boot in recording.boots),
        stabilised=tuple(name for name in first if all(name in names for names in common)),
        statuses=answers_of(recording).statuses,
    )


def _boot_evidence(recording: Recording, boot: Boot) -> BootEvidence:
    own = replace(
        recording, boots=(boot,), rounds=tuple(round_ for round_ in recording.rounds if round_.boot == boot.index)
    )
    rounds = tuple(_values_of(round_) for round_ in own.measured())
    # A rate that is 0 in every round is known from the run: all ended in the drain.
    known = {name for values in rounds for name, value in values.items() if value}
    runs = {}
    for name, metric in METRICS.items():
        value = metric.of_run(own) if metric.percentile is None and name not in known else None
        if value:
            runs[name] = value
    latency = own.latency()
    return BootEvidence(
        rounds=rounds,
        latency=latency,
        requests=latency.count,
        runs=runs,
        variances={} if boot.capacity is None else {"capacity": boot.capacity.variance},
        memory=thinned(boot.memory, STORED_POINTS),
        sizes=next(iter(answers_of(own).sizes), ()),
    )


def alike(*sides: Evidence) -> tuple[int | None, tuple[Evidence, ...]]:
    """Returns how many requests all boots reached, and the sides with the memory (`rss`) of all boots after so many.

    None, and the sides as they are, where a boot does not say after how many it was what.
    """
    courses = [boot.memory for side in sides for boot in side.boots]
    if not courses or not all(courses):
        return None, sides
    requests = min(course[-1][0] for course in courses)

    def after(boot: BootEvidence) -> BootEvidence:
        return replace(boot, runs={**boot.runs, "rss": memory_after(boot.memory, requests)})

    return requests, tuple(replace(side, boots=tuple(map(after, side.boots))) for side in sides)


def _values_of(round_: Round) -> dict[str, float]:
    values = {}
    for name, metric in METRICS.items():
        enough = metric.percentile is None or round_.latency.count >= metric.least_requests
        value = metric.of_round(round_) if enough else None
        if value is not None:
            values[name] = value
    return values


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{STORED_DIGITS}g}")


def _sizes_from(sizes: Sequence[object], where: str) -> tuple[float, ...]:
    return tuple(number_in({f"[{at}]": size}, f"[{at}]", where) for at, size in enumerate(sizes))


def _statuses_from(counts: Mapping[str, object], where: str) -> Mapping[int, int]:
    if not all(status.isdecimal() for status in counts):
        raise ValueError(f"{where} has a name that is no status")
    return {int(status): whole_in(counts, status, where) for status in counts}


def _course_from(points: Sequence[object], where: str) -> Course:
    found = []
    for at, point in enumerate(points):
        if not (isinstance(point, list) and len(point) == 2 and all(type(value) is int for value in point)):
            raise ValueError(f"{where}[{at}] is not a pair of whole numbers")
        found.append((point[0], point[1]))
    if found != sorted(found) or any(value < 0 for point in found for value in point):
        raise ValueError(f"{where} does not ascend from 0 on")
    return tuple(found)


def _rounds_from(columns: Mapping[str, object], where: str) -> tuple[Mapping[str, float], ...]:
    lengths = {len(list_in(columns, name, where)) for name in columns}
    if len(lengths) > 1:
        raise ValueError(f"{where} has lists of different lengths: {', '.join(map(str, sorted(lengths)))}")
    rounds: list[dict[str, float]] = [{} for _ in range(max(lengths, default=0))]
    for name in columns:
        for index, value in enumerate(list_in(columns, name, where)):
            if value is not None:
                place = f"{name}[{index}]"
                rounds[index][name] = number_in({place: value}, place, where)
    return tuple(rounds)
