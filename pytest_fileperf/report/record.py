"""The record of a session as JSON values, and the record that is made of them again: an equal one.

A file of `--fileperf-json` has it beside what other programs read. Neither is all of the record: what is plain enough
is only in the part for other programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pytest_fileperf.errors import RecordError
from pytest_fileperf.judge.groups import Asked, RankedGroup, SessionRecord
from pytest_fileperf.judge.pair import Pair, pairs_alike, sides_by_boot
from pytest_fileperf.judge.ranking import Ranking
from pytest_fileperf.judge.result import FailedTest, Result
from pytest_fileperf.measure.measurement import with_histograms
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.report.codec import Decoder, Encoder

__all__ = ("SCHEMA", "read_record", "record_to_json")

SCHEMA = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What a record has besides measurements, as other programs read it."""

    said: tuple[str, ...]
    created: str
    asked: Asked
    versions: Mapping[str, str]
    commit: Mapping[str, object] | None
    environment: Mapping[str, object]
    failed: tuple[FailedTest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """A ranked group, with the places of its results among all of them."""

    title: str
    members: tuple[int, ...]
    ranking: Ranking


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paired:
    """What the rounds do not tell of a pair of boots."""

    stabilised: tuple[str, ...] = ()
    base_boots_anew: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A result without what is made of its rounds: it would double the file."""

    result: Result
    paired: tuple[_Paired, ...] = ()
    """Of pairs whose sides are the boots of both recordings; others are in the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """What a session measured."""

    results: tuple[_Kept, ...]
    groups: tuple[_Group, ...] = ()
    unknown_params: tuple[str, ...] = ()


def record_to_json(record: SessionRecord) -> dict[str, object]:
    """Returns what was measured, as values for `json.dumps`."""
    places = {id(result): place for place, result in enumerate(record.results)}
    measured = _Measured(
        results=tuple(map(_kept, record.results)),
        groups=tuple(
            _Group(title=group.title, members=tuple(places[id(one)] for one in group.results), ranking=group.ranking)
            for group in record.groups
        ),
        unknown_params=record.unknown_params,
    )
    encoder = Encoder()
    return {"measured": encoder.encode(measured, _Measured), "histograms": encoder.histograms}


def read_record(path: Path) -> SessionRecord:
    """Returns the record in a file of `--fileperf-json`; raises RecordError that names the file and what is wrong."""
    try:
        document: object = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged or no JSON: {error}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise RecordError(f"{path} was not written by --fileperf-json: it has no schema number")
    if document["schema"] != SCHEMA:
        raise RecordError(f"{path} has schema {document['schema']!r}, not {SCHEMA}: {_what_to_do(document['schema'])}")
    try:
        return _record(document)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:  # what a value that does not fit leads to
        raise RecordError(f"{path} is damaged: {error}") from error


def _what_to_do(schema: object) -> str:
    if isinstance(schema, int) and schema < SCHEMA:
        return "no report can be made of results that old, run the tests again with --fileperf-json"
    return "read it with the version of pytest-fileperf that wrote it"


def _record(document: Mapping[str, object]) -> SessionRecord:
    held = Decoder([]).decode(document.get("record"), Mapping[str, object], "record")
    decoder = Decoder(held.get("histograms"))
    facts: _Facts = decoder.decode(document, _Facts, "")
    measured: _Measured = decoder.decode(held.get("measured"), _Measured, "record.measured")
    results = tuple(map(_whole, measured.results))
    groups = tuple(_group(group, results) for group in measured.groups)
    _require_metrics(results, groups)
    for result in results:
        _require_boots(result)
    if facts.created and not _is_time(facts.created):
        raise ValueError(f"created is {facts.created!r}, not a time in ISO 8601")
    ranked = {id(result) for group in groups for result in group.results}
    return SessionRecord(
        results=results,
        alone=tuple(result for result in results if id(result) not in ranked),
        groups=groups,
        unknown_params=measured.unknown_params,
        failed=facts.failed,
        said=facts.said,
        created=facts.created,
        asked=facts.asked,
        versions=facts.versions,
        commit=facts.commit,
        environment=facts.environment,
    )


def _require_metrics(results: Iterable[Result], groups: Iterable[RankedGroup]) -> None:
    """Raises ValueError for a metric that there is not: every report looks metrics up by their names."""
    for result in results:
        verdict = result.verdict
        comparisons = (*verdict.comparisons, *verdict.world)
        names = [item.metric for item in comparisons] + [check.metric for check in verdict.limits]
        names += [floor.metric for floor in result.noise]
        names += [item.reason.metric for item in comparisons if item.reason is not None and item.reason.metric]
        for name in names:
            _require_metric(name, result.test.nodeid)
    for group in groups:
        _require_metric(group.ranking.metric, f"the group {group.title!r}")


def _require_metric(name: str, where: str) -> None:
    if name not in METRICS:
        raise ValueError(f"{where} has a metric {name!r}, which there is not: it is one of {', '.join(METRICS)}")


def _require_boots(result: Result) -> None:
    """Raises ValueError for a round of a boot that there is not."""
    for recording in filter(None, (result.recording, result.base)):
        if unknown := {round_.boot for round_ in recording.rounds} - {boot.index for boot in recording.boots}:
            raise ValueError(f"{result.test.nodeid} has rounds of the boot {min(unknown)}, which there is not")


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _kept(result: Result) -> _Kept:
    paired = tuple(_Paired(stabilised=pair.stabilised, base_boots_anew=pair.base_boots_anew) for pair in result.pairs)
    if not paired or _pairs(result, paired) != result.pairs:
        return _Kept(result=result)
    return _Kept(result=replace(result, pairs=()), paired=paired)


def _whole(kept: _Kept) -> Result:
    result = kept.result
    return replace(
        result,
        measurement=with_histograms(result.measurement, result.recording),
        pairs=_pairs(result, kept.paired) if kept.paired else result.pairs,
    )


def _pairs(result: Result, paired: Sequence[_Paired]) -> tuple[Pair, ...]:
    """Returns the pairs that the boots of both recordings make."""
    sides = ((), ()) if result.base is None else (sides_by_boot(result.base), sides_by_boot(result.recording))
    return tuple(
        pairs_alike(
            Pair(base=base, now=now, stabilised=each.stabilised, base_boots_anew=each.base_boots_anew)
            for base, now, each in zip(*sides, paired, strict=False)
        )
    )


def _group(group: _Group, results: tuple[Result, ...]) -> RankedGroup:
    count = len(results)
    if not all(0 <= member < count for member in group.members):
        raise ValueError(f"the group {group.title!r} has members that are none of its {count} results")
    if sorted(place.member for place in group.ranking.places) != list(range(len(group.members))):
        raise ValueError(f"the places of the group {group.title!r} are not those of its members")
    return RankedGroup(
        title=group.title, results=tuple(results[member] for member in group.members), ranking=group.ranking
    )
