"""What a recording says for a comparison, small enough to be stored: per boot its round values and its latencies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_fileperf.judge.stored import list_in, mapping_in, number_in, text_in, texts_in, whole_in
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, Recording, Round

__all__ = ("BootEvidence", "Evidence", "evidence_of")

STORED_DIGITS = 5
"""Significant digits of a stored value: finer than any noise here, and a diff stays readable."""


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
        return {**told, "variances": known} if known else told

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
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All boots of one side of a comparison."""

    boots: tuple[BootEvidence, ...]
    stabilised: tuple[str, ...] = ()
    """What was held equal between the boots: `hash seed`, `addresses`, `allocator`."""

    @property
    def requests(self) -> int:
        """Successful requests of all boots."""
        return sum(boot.requests for boot in self.boots)

    def to_json(self) -> dict[str, object]:
        """Returns it as JSON values, rounded to `STORED_DIGITS` significant digits."""
        return {"boots": [boot.to_json() for boot in self.boots], "stabilised": list(self.stabilised)}

    @classmethod
    def from_json(cls, stored: Mapping[str, object], where: str = "evidence") -> Evidence:
        """Returns what `to_json` gave; raises ValueError naming the first thing that is wrong."""
        boots = list_in(stored, "boots", where)
        return cls(
            boots=tuple(BootEvidence.from_json(boot, f"{where}.boots[{index}]") for index, boot in enumerate(boots)),
            stabilised=texts_in(stored, "stabilised", where),
        )


def evidence_of(recording: Recording) -> Evidence:
    """Returns what the recording says for a comparison; what was stabilised is what every boot had in common."""
    common = [set(boot.stabilised) for boot in recording.boots]
    first = recording.boots[0].stabilised if recording.boots else ()
    return Evidence(
        boots=tuple(_boot_evidence(recording, boot) for boot in recording.boots),
        stabilised=tuple(name for name in first if all(name in names for names in common)),
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
    )


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
