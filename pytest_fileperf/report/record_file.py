"""The file of `--fileperf-json`: measurements and verdicts in SI units. From its `record`, reports can be made again.

`examples/json.md` describes every field. A new field does not change the schema number, so readers must ignore unknown
fields. A number is never NaN or Infinity; an unmeasured figure is null.

History of the schema: 4 added memory, warm_up, after_requests and other_answers. 3 added versions, commit, asked,
failed, said and record. 2 added `verdict.code`, `verdict.world`, and `base` for stored baselines. 1 is the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.sample import ProcessUse, Sample
from pytest_fileperf.judge.evidence import OtherAnswers, Pair, pairs_alike, sides_by_boot
from pytest_fileperf.judge.groups import RankedGroup, SessionRecord
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import LimitCheck, MetricComparison
from pytest_fileperf.measure.capacity import Capacity
from pytest_fileperf.measure.codec import Decoder, Encoder, Placed, json_text, json_value, named
from pytest_fileperf.measure.measurement import LatencySummary, Measurement
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Boot, LeadTimes, Phase, Recording, Round
from pytest_fileperf.report.figures import spread
from pytest_fileperf.report.story import notes
from pytest_fileperf.report.text import plain
from pytest_fileperf.report.wording import notes_text, sentence
from pytest_fileperf.serve.databases import Queries

# --- The record: values that only this package reads
#
# The fields in `_FACTS` are only in the part for other programs.

SCHEMA = 4
_FACTS = ("said", "created", "asked", "versions", "commit", "environment", "failed")
"""A record's fields that the file's part for other programs has. `record` doesn't repeat them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Paired:
    """Facts about two start-ups (one of each version) that neither version's recording has."""

    stabilised: tuple[str, ...] = ()
    base_boots_anew: bool = True


def record_to_json(record: SessionRecord) -> dict[str, object]:
    encoder = Encoder()
    measured: dict[str, object] = {"results": [_kept(result, encoder) for result in record.results]}
    if record.groups:
        places = {id(result): place for place, result in enumerate(record.results)}
        measured["groups"] = [
            {
                "title": group.title,
                "members": [places[id(one)] for one in group.results],
                "ranking": encoder.encode(replace(group, title="", results=()), RankedGroup),
            }
            for group in record.groups
        ]
    if record.unknown_params:
        measured["unknown_params"] = list(record.unknown_params)
    return {"measured": measured, "histograms": encoder.histograms}


def read_record(path: Path) -> SessionRecord:
    """Reads a file from `--fileperf-json`. Raises RecordError, with the file's name and the problem."""
    try:
        document: object = json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged or isn't JSON: {error}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise RecordError(f"{path} was not written by --fileperf-json: it has no schema number")
    if (schema := document["schema"]) != SCHEMA:
        to_do = "Read it with the version of pytest-fileperf that wrote it"
        if isinstance(schema, int) and schema < SCHEMA:
            to_do = "These results are too old for a report. Run the tests again with --fileperf-json"
        raise RecordError(f"{path} has schema {schema!r}, not {SCHEMA}. {to_do}")
    try:
        return _record(document)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:  # values that do not fit lead to these
        raise RecordError(f"{path} is damaged: {plain(str(error))}") from error  # it may quote the file


def _record(document: Mapping[str, object]) -> SessionRecord:
    held = Placed(document.get("record"), "record")
    decoder = Decoder(Placed(held.mapping().get("histograms"), "histograms"))
    facts = {name: Placed(document)[name].value for name in _FACTS} | {"endpoints": document.get("endpoints", {})}
    record: SessionRecord = decoder.decode(Placed(facts), SessionRecord)
    measured = held["measured"]
    results = tuple(_whole(kept, decoder) for kept in measured["results"].items())
    groups = tuple(_group(group, results, decoder) for group in measured.given("groups", []).items())
    _require_metrics(results, groups)
    for result in results:
        for recording in filter(None, (result.recording, result.base)):
            if unknown := {round_.boot for round_ in recording.rounds} - {boot.index for boot in recording.boots}:
                raise ValueError(f"{result.test.nodeid} has rounds of the unknown start-up {min(unknown)}")
    if record.created:
        try:
            datetime.fromisoformat(record.created)
        except ValueError:
            raise ValueError(f"created is {record.created!r}, not a time in ISO 8601") from None
    params = measured.given("unknown_params", []).list_of_texts()
    return replace(record, results=results, groups=groups, unknown_params=params)


def _require_metrics(results: Iterable[Result], groups: Iterable[RankedGroup]) -> None:
    """Raises ValueError for an unknown metric, because reports look up each metric by its name."""
    found = [(group.metric, f"the group {group.title!r}") for group in groups]
    for result in results:
        comparisons = (*result.verdict.comparisons, *result.verdict.world)
        names = (
            *(item.metric for item in comparisons),
            *(floor.metric for floor in result.noise),
            *(check.metric for check in result.verdict.limits),
            *(item.reason.metric for item in comparisons if item.reason is not None and item.reason.metric),
        )
        found += [(name, result.test.nodeid) for name in names]
    for name, where in found:
        if name not in METRICS:
            raise ValueError(f"{where} has a metric {name!r}, but there are only {', '.join(METRICS)}")


def _kept(result: Result, encoder: Encoder) -> dict[str, object]:
    """Returns a result as JSON. Leaves out `pairs` if `_pairs` can make them again: they would double the file."""
    paired = tuple(_Paired(stabilised=pair.stabilised, base_boots_anew=pair.base_boots_anew) for pair in result.pairs)
    if not paired or _pairs(result, paired) != result.pairs:
        return {"result": encoder.encode(result, Result)}
    kept = encoder.encode(result.having(pairs=()), Result)
    return {"result": kept, "paired": encoder.encode(paired, tuple[_Paired, ...])}


def _whole(kept: Placed, decoder: Decoder) -> Result:
    result: Result = decoder.decode(kept["result"], Result)
    paired = decoder.decode(kept.given("paired", []), tuple[_Paired, ...])
    return result.having(pairs=_pairs(result, paired)) if paired else result


def _pairs(result: Result, paired: Sequence[_Paired]) -> tuple[Pair, ...]:
    """Pairs the start-ups in both versions' recordings. `paired` has facts that no recording has."""
    sides = ((), ()) if result.base is None else (sides_by_boot(result.base), sides_by_boot(result.recording))
    return tuple(
        pairs_alike(
            Pair(base=base, now=now, stabilised=each.stabilised, base_boots_anew=each.base_boots_anew)
            for base, now, each in zip(*sides, paired, strict=False)
        )
    )


def _group(group: Placed, results: tuple[Result, ...], decoder: Decoder) -> RankedGroup:
    title, members = decoder.decode(group["title"], str), decoder.decode(group["members"], tuple[int, ...])
    ranked: RankedGroup = decoder.decode(group["ranking"], RankedGroup)
    if not all(0 <= member < len(results) for member in members):
        raise ValueError(f"the group {title!r} has members that aren't among its {len(results)} results")
    if sorted(place.member for place in ranked.places) != list(range(len(members))):
        raise ValueError(f"the places of the group {title!r} don't fit its members")
    return replace(ranked, title=title, results=tuple(results[member] for member in members))


# --- A start-up over time, as JSON: columns, which are lists with a value for each sample or stretch of time

_QUEUES = ("connections", "server_unread", "server_unsent", "client_unread", "client_unsent", "under_way")


def _lead_series(leads: LeadTimes) -> dict[str, list[float] | list[int]]:
    """Returns columns, with times in seconds. `due` counts from the end of the warm-up."""
    return {
        "due": [due_ns / 1e9 for due_ns in leads.due_ns],
        "count": list(leads.counts),
        "mean": [mean_ns / 1e9 for mean_ns in leads.mean_ns],
        "max": [max_ns / 1e9 for max_ns in leads.max_ns],
    }


def samples_series(boot: Boot) -> dict[str, object]:
    """Returns columns with a value for each sample. `boot` must have at least one sample."""
    samples = tuple(boot.samples)
    processes = [
        {"pid": pid, "worker": pid in boot.worker_pids, **columns}
        for pid, columns in _by_process(samples, [sample.server for sample in samples]).items()
    ]
    generators = [*_by_process(samples, [sample.generators for sample in samples]).values()]
    queues = {
        name: [None if sample.queues is None else getattr(sample.queues, name) for sample in samples]
        for name in _QUEUES
    }
    return {
        # More digits would only be noise, and make files large.
        "at": [round((sample.at_ns - samples[0].at_ns) / 1e9, 3) for sample in samples],
        "processes": processes,
        "generator": generators[0] if len(generators) == 1 else None,
        "generators": generators if len(generators) > 1 else [],
        "queues": queues if any(sample.queues for sample in samples) else None,
    }


def _by_process(samples: Sequence[Sample], seen: Sequence[Sequence[ProcessUse]]) -> dict[int, dict[str, object]]:
    """Returns each process's columns by its id. `seen` has each sample's processes."""
    found: dict[int, dict[str, object]] = {}
    for pid in dict.fromkeys(use.pid for uses in seen for use in uses):
        own = [next((use for use in uses if use.pid == pid), None) for uses in seen]
        columns: dict[str, list[int | None]] = {
            name: [None if use is None else getattr(use, name) for use in own]
            for name in ("cpu_ns", "rss_bytes", "threads", "files", "busy_threads")
        }
        cpu = _cpu_shares([sample.at_ns for sample in samples], columns.pop("cpu_ns"))
        found[pid] = {"cpu": cpu, "rss": columns.pop("rss_bytes"), **columns}
    return found


def _cpu_shares(times_ns: Sequence[int], cpu_ns: Sequence[int | None]) -> list[float | None]:
    """Returns the cores used since the previous sample; None if unknown, as for the first sample."""
    return [None] + [
        None
        if before_ns is None or after_ns is None or end_ns <= start_ns
        else round((after_ns - before_ns) / (end_ns - start_ns), 4)
        for (start_ns, before_ns), (end_ns, after_ns) in pairwise(zip(times_ns, cpu_ns, strict=True))
    ]


# --- The part for other programs


def results_json(record: SessionRecord) -> str:
    """Returns the text of the file for `--fileperf-json`."""
    document = {
        "schema": SCHEMA,
        **named(record, "created", "versions", "environment", "commit", "said", "endpoints"),
        "asked": asdict(record.asked),
        "failed": [named(test, "nodeid", "module", "name", "line", "phase", "message") for test in record.failed],
        "rankings": [_ranking(group) for group in record.groups],
        "results": [_result(result) for result in record.results],
    }
    told = json_text(json_value(document)).removesuffix("\n}")
    kept = json.dumps(record_to_json(record), allow_nan=False, separators=(",", ":"))
    return f'{told},\n  "record": {kept}\n}}\n'


def _columns(values: Sequence[object], *names: str) -> dict[str, object]:
    return {name: [getattr(value, name) for value in values] for name in names}


def _ranking(group: RankedGroup) -> dict[str, object]:
    places = _columns(group.places, "rank", "shared", "value", "ratio", "low", "high")
    return {
        "group": group.title,
        "unit": METRICS[group.metric].unit,
        "places": {"nodeid": [result.test.nodeid for result, _ in group.ordered()], **places},
        **named(group, "metric", "confidence"),
    }


_COMPARED = (
    *("outcome", "base", "now", "change", "low", "high", "confidence", "tolerance", "floor"),
    *("typical", "detectable", "pairs", "after_requests"),
)


def _result(result: Result) -> dict[str, object]:
    recording, measurement, verdict = result.recording, result.measurement, result.verdict
    service, explanation = recording.merged("service"), result.explanation
    return {
        "test": named(result.test, "nodeid", "module", "name", "line", "params", "group", "label", "part", "step"),
        **named(result, "work", "server", "load", "identity", "standing", "smoke", "baseline_written", "not_stored"),
        "engine": {"name": recording.engine, "reason": recording.why_engine},
        "limit": named(measurement.limit, "kind", "evidence"),
        "summary": _summary(measurement),
        **_measured(recording),
        "base": result.base and {"title": verdict.against, "seconds": result.base_seconds, **_measured(result.base)},
        "capacity": _capacity(result.capacity),
        "base_capacity": _capacity(result.base_capacity),
        "background": None if result.background is None else named(result.background, "base", "now"),
        "other_answers": [_other_answers(other) for other in result.other_answers],
        "noise": [
            {
                **named(floor, "metric", "seconds", "smallest"),
                "seconds_for": {f"{change * 100:.1f} %": seconds for change, seconds in floor.seconds_for.items()},
            }
            for floor in result.noise
        ],
        "profile": None if explanation is None else explanation.details,
        "histogram": recording.latency().encode(),
        "service_histogram": service.encode() if service.count else None,
        "stored_histogram": None if result.stored_latency is None else result.stored_latency.encode(),
        "failures": [named(failure, "kind", "count", "example") for failure in measurement.failures],
        "verdict": {
            "outcome": verdict.outcome,
            "saturated": measurement.saturated,
            "code": notes_text(verdict.code_notes),
            "comparisons": [_judged(item, *_COMPARED) | _since_release(item) for item in verdict.comparisons],
            "world": [_judged(comparison, *_COMPARED) for comparison in verdict.world],
            "limits": [_judged(check, "name", "limit", "value", "holds") for check in verdict.limits],
        },
        "pinned": recording.pinned,
        "notes": notes(result),
    }


def _capacity(found: Capacity | None) -> dict[str, object] | None:
    if found is None:
        return None
    of_load = ("rate", "boot", "seconds", "requests", "failed", "beyond", "holds", "falls_behind", "by_generator")
    return {
        **named(found, "rate", "low", "high", "confidence", "limits", "broken", "closed_rps", "ended"),
        "limit": named(found.limit, "kind", "evidence"),
        "tried": _columns(found.tried, *of_load, "p50", "p99"),
    }


def _measured(recording: Recording) -> dict[str, object]:
    growth = recording.growth
    return {
        "rounds": [
            _round(round_)
            for round_ in recording.rounds
            if round_.phase is not Phase.HANDOVER or round_.requests or round_.failed
        ],
        "boots": [_boot(boot, recording) for boot in recording.boots],
        "growth": growth
        and {
            **named(growth, "open_files", "threads", "memory_bytes", "files_limit"),
            "lasting": sorted(growth.lasting),
        },
    }


def _other_answers(other: OtherAnswers) -> dict[str, object]:
    sides = zip(("base", "now"), other.sizes or (None, None), (other.base_statuses, other.now_statuses), strict=True)
    return {"of": other.of, **{side: {"size": size, "statuses": shares} for side, size, shares in sides}}


def _summary(run: Measurement) -> dict[str, object]:
    timed = {"first": _latency(run.events.first), "gap": _latency(run.events.gap)}
    events = {**named(run.events, "count", "rate"), **timed}
    return {
        **named(run, "rps", "requests", "errors", "success_ratio", "duration", "connections", "open_loop", "due"),
        **named(run, "http_requests", "http_rps"),
        **named(run, "attack", "wait", "late", "dropped", "statuses", "bytes_sent", "bytes_received"),
        **named(run, "cut_off", "out_of_step", "closed_unsaid", "closed_said", "opened", "most_open"),
        **named(run, "bytes_sent_per_second", "bytes_received_per_second"),
        "errors_by_kind": run.error_kinds,
        "latency": _latency(run.latency),
        "ttfb": _latency(run.ttfb),
        "service": _latency(run.service),
        "send_delay": _latency(run.send_delay),
        "events": events if run.events.count else None,
        "server": {
            **named(run.server, "cpu_per_request", "cpu_share", "worker_cpu_shares", "children_cpu_share"),
            **named(run.server, "cores", "peak_rss"),
            **({} if run.server.queries is None else named(run.server, "queries")),
        },
        "generator": {**named(run.client, "cpu_per_request", "cpu_share"), "saturated": run.saturated},
        "generators": [asdict(use) for use in run.client.generators],
        "busy": named(run.busy, "server", "generator", "host"),
        "law": run.law and named(run.law, "in_flight", "latency", "by_law", "error", "is_short", "agrees"),
    }


def _latency(summary: LatencySummary) -> dict[str, float] | None:
    return {**spread(summary), "within_one_stdev": summary.within_one_stdev} if summary.count else None


def _round(round_: Round) -> dict[str, object]:
    return {
        **named(round_, "boot", "index", "phase", "requests", "failed", "typical_rps", "events"),
        **named(round_, "http_requests", "bytes_sent", "bytes_received", "done"),
        "duration": round_.duration_ns / 1e9,
        **{name: METRICS[name].of_round(round_) for name in ("rps", "p50", "p99", "mean")},
        "server_cpu": None if round_.server_cpu_ns is None else round_.server_cpu_ns / 1e9,
        "generator_cpu": round_.client_cpu_ns / 1e9,
    }


def _boot(boot: Boot, recording: Recording) -> dict[str, object]:
    latency = recording.of_boot(boot).latency()
    return {
        **named(boot, "index", "stabilised", "tracer", "worker_pids", "processes_ended", "processes_changed"),
        "left_share": boot.left_share,
        "requests": latency.count,
        "p50": latency.percentile_ns(50) / 1e9 if latency.count else None,
        "p99": latency.percentile_ns(99) / 1e9 if latency.count else None,
        "peak_rss": boot.peak_rss_bytes,
        **({} if boot.startup_ns is None else {"startup": boot.startup_ns / 1e9}),
        **({} if boot.queries is None else {"queries": _queries(boot.queries)}),
        "memory": {"requests": [at for at, _ in boot.memory], "peak_rss": [size for _, size in boot.memory]},
        "warm_up": {
            **named(boot.warm_up, "requests", "failed"),
            "failures": [named(failure, "kind", "count", "example") for failure in boot.warm_up.failures],
        },
        "leads": None if boot.leads is None else _lead_series(boot.leads),
        "thread_pools": _columns(boot.thread_pools, "pid", "threads", "active", "pool"),
        "series": samples_series(boot) if boot.samples else None,
    }


def _queries(queries: Queries) -> dict[str, object]:
    return {
        "mean": queries.mean()[0],
        "counts": {str(count): made for count, made in queries.counts},
        "statements": [named(one, "text", "place", "count") for one in queries.statements],
        "outside": queries.outside,
    }


def _since_release(item: MetricComparison) -> dict[str, object]:
    if item.since_release is None:
        return {}
    return {"since_release": dict(zip(("release", "change", "low", "high"), item.since_release, strict=True))}


def _judged(item: MetricComparison | LimitCheck, *names: str) -> dict[str, object]:
    unit = METRICS[item.metric].unit
    return {**named(item, "metric", *names), "unit": unit, "reason": sentence(item.reason)}
