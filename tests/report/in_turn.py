"""Results of two versions measured in turn, made by hand."""

from __future__ import annotations

from dataclasses import replace

from report.samples import recording, result

from pytest_fileperf.judge.evidence import BootEvidence, Pair, pair_side
from pytest_fileperf.judge.paired import NoiseFloor
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Verdict
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.recording import Phase, Recording

MS = 1_000_000
TITLE = "origin/main (1a2b3c4)"
SLOWER = MetricComparison(
    metric="rps", outcome=Outcome.REGRESSED, tolerance=0.015, base=2190.0, now=2050.0, change=-0.064, low=-0.071,
    high=-0.057, confidence=0.9, detectable=0.031, pairs=3,
)  # fmt: skip
TAIL_SAME = MetricComparison(
    metric="p99", outcome=Outcome.PASS, tolerance=0.10, base=0.0308, now=0.031, change=0.0065, low=-0.02, high=0.033,
    confidence=0.9, detectable=0.14, pairs=3,
)  # fmt: skip
THREAD_POOL = Limit(kind=LimitKind.THREAD_POOL, evidence="")
FLOORS = (
    NoiseFloor(metric="rps", seconds=60.4, smallest=0.041, seconds_for={0.05: 42.3, 0.02: 211.8}),
    NoiseFloor(metric="p99", seconds=60.4, smallest=None, seconds_for={}),
)


def turns(
    *, requests: int = 410, boots: int = 3, rounds: int = 4, first: int = 0, slowest_ms: float = 31.0
) -> Recording:
    """Returns one side's turns of 50 ms, each after a handover as long; with `first=1` the second of each cycle."""
    whole = recording(requests=requests, boots=boots, rounds=rounds, client_cpu_share=0.06, slowest_ms=slowest_ms)
    made = []
    for round_ in whole.rounds:
        start_ns = (round_.boot * 1000 + round_.index * 100 + first * 50) * MS
        handover = replace(
            round_, index=2 * round_.index, phase=Phase.HANDOVER, started_ns=start_ns - 50 * MS, ended_ns=start_ns
        )
        turn = replace(round_, index=2 * round_.index + 1, started_ns=start_ns, ended_ns=start_ns + 50 * MS)
        made += [handover, turn]
    return replace(whole, rounds=tuple(made))


def compared(*, boots: int = 3, rounds: int = 4, requests: int = 410) -> Result:
    """Returns a regression of requests/s as `SLOWER` and `TAIL_SAME` tell: now has `requests` in a turn, base more."""
    base = turns(requests=round(requests * 2190 / 2050), boots=boots, rounds=rounds, slowest_ms=30.8)
    measured = result(
        recorded=turns(requests=requests, boots=boots, rounds=rounds, first=1),
        base=base,
        verdict=Verdict(comparisons=(SLOWER, TAIL_SAME), against=TITLE),
        load="32 connections in turn, 3 pairs of boots, 18.0 s",
    )
    return with_base(measured, base)


def with_base(measured: Result, base: Recording) -> Result:
    """Returns the result as one of a comparison with these turns."""
    pairs = (Pair(base=one, now=other) for one, other in zip(sides(base), sides(measured.recording), strict=True))
    return replace(measured, base=base, pairs=tuple(pairs))


def with_limit(measured: Result, limit: Limit) -> Result:
    """Returns the result as one of a run that this limited."""
    return replace(measured, measurement=replace(measured.measurement, limit=limit))


def sides(recorded: Recording) -> list[BootEvidence]:
    """Returns what each boot has shown."""
    rounds = recorded.rounds
    return [pair_side((each for each in rounds if each.boot == boot.index), boot.memory) for boot in recorded.boots]


def slowed_by_the_base() -> Result:
    """Returns a comparison whose base uses 7 % of a core in the other side's turns, besides its late answers."""
    shown = compared()
    assert shown.base is not None
    rounds = tuple(
        replace(round_, server_cpu_ns=(round_.server_cpu_ns or 0) + 3_500_000)
        if round_.phase is Phase.HANDOVER
        else round_
        for round_ in shown.base.rounds
    )
    return with_base(shown, replace(shown.base, rounds=rounds))


def with_itself() -> Result:
    """Returns what `--fileperf-aa` makes."""
    return replace(compared(), verdict=Verdict(against="itself"), noise=FLOORS)
