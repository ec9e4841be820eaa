"""The file of results: what other programs read of it, and the whole record, which is read again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given
from hypothesis import strategies as st
from report.in_turn import compared, with_itself
from report.recordings import open_loop, watched
from report.samples import ERRORS, FAILURES, NEW, REGRESSED, SERVER_CPU, every_kind, recording, result
from report.variants import form_uploads, stacks, steady

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.sample import ProcessUse, Sample, SocketQueues, ThreadUse
from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import NoiseOf, Note, NoteKind, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.codec import Decoder, Encoder, JsonValue, json_text, json_value
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot, LeadTimes
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import leads_series, read_record, results_json, samples_series
from pytest_fileperf.report.terminal import session_text
from pytest_fileperf.report.wording import note_text

# --- what other programs read

CREATED = "2026-11-21T09:30:00+00:00"
ENVIRONMENT = {"system": "Linux", "machine": "x86_64", "cores": 2, "packages": {"uvicorn": "0.54.0"}}


def record_of(results: Iterable[Result], labels: Sequence[str] = ()) -> SessionRecord:
    record = session_record([*results], labels or DEFAULT_GROUP_BY)
    return replace(
        record,
        created=CREATED,
        environment=ENVIRONMENT,
        versions={"python": "3.11.9"},
        commit={"id": "9a1e0473cfd0a9b9c1d2", "branch": "main", "dirty": True},
        asked=Asked(command="pytest --fileperf", update="new"),
        said=("fileperf: a note",),
    )


def loaded(*results: Result) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(results_json(record_of(results)), parse_constant=refuse)
    del document["record"]
    return document


def loaded_results(*results: Result) -> Any:
    return loaded(*results)["results"]


def test_the_document_says_what_it_is_and_where_it_was_made() -> None:
    document = loaded()
    assert document == {
        "schema": 4,
        "created": CREATED,
        "versions": {"python": "3.11.9"},
        "commit": {"id": "9a1e0473cfd0a9b9c1d2", "branch": "main", "dirty": True},
        "asked": {
            "command": "pytest --fileperf",
            "against": "",
            "aa": False,
            "update": "new",
            "smoke": False,
            "strict": False,
            "profile": False,
            "group_by": ["group"],
        },
        "failed": [],
        "environment": ENVIRONMENT,
        "said": ["fileperf: a note"],
        "rankings": [],
        "results": [],
    }


def test_a_result_in_full() -> None:
    recorded = recording(requests=100, boots=1, rounds=1, slowest_ms=10.0, failures=FAILURES, stabilised=("hash seed",))
    slower = replace(REGRESSED, base=200 / 0.936, now=200.0)
    verdict = Verdict(limits=(ERRORS,), comparisons=(slower,))
    (entry,) = loaded_results(
        result("test_upload[256KiB]", recorded=recorded, verdict=verdict, params={"size": "256KiB"}, limit=SERVER_CPU)
    )
    histogram = HdrHistogram.decode(entry.pop("histogram"))
    assert histogram.get_total_count() == 100
    assert histogram.get_value_at_percentile(50) == pytest.approx(7.47e6, rel=1e-3)
    spread = {
        "min": 0.005, "mean": 0.0075, "stdev": 0.0014652, "p50": 0.007475, "p75": 0.008738, "p90": 0.009495,
        "p95": 0.009748, "p99": 0.00995, "p99.9": 0.01, "max": 0.01, "within_one_stdev": 0.58,
    }  # fmt: skip
    assert entry["summary"].pop("latency") == pytest.approx(spread, rel=1e-3)
    assert entry["summary"].pop("ttfb")["p50"] == pytest.approx(0.0037375, rel=1e-3)
    (round_,) = entry.pop("rounds")
    assert [round_.pop(name) for name in ("p50", "p99", "mean")] == pytest.approx([0.007475, 0.00995, 0.0075], rel=1e-3)
    (boot,) = entry["boots"]
    assert [boot.pop(name) for name in ("p50", "p99")] == pytest.approx([0.007475, 0.00995], rel=1e-3)
    assert round_ == {
        "boot": 0, "index": 0, "phase": "round", "duration": 0.5, "requests": 100, "failed": 14, "rps": 200.0,
        "typical_rps": None, "events": None, "http_requests": 100, "bytes_sent": 26_214_400, "bytes_received": 19_000,
        "server_cpu": 0.045, "generator_cpu": 0.305, "done": 100.0,
    }  # fmt: skip
    assert entry == {
        "test": {
            "nodeid": "tests/test_files.py::test_upload[256KiB]",
            "module": "tests/test_files.py",
            "name": "test_upload[256KiB]",
            "params": {"size": "256KiB"},
            "group": None,
            "label": None,
            "part": "",
            "step": "",
            "line": None,
        },
        "work": "POST /upload",
        "server": "uvicorn ×1 (uvloop, httptools)",
        "load": "32 connections, 6 s",
        "identity": {"work": {"method": "POST", "url": "/upload"}, "server": {"kind": "uvicorn", "workers": 1}},
        "standing": "REGRESSED",
        "smoke": False,
        "baseline_written": False,
        "not_stored": "",
        "engine": {"name": "replay", "reason": ""},
        "limit": {"kind": "server CPU", "evidence": "at 97 % of 1 core"},
        "summary": {
            "rps": 200.0,
            "requests": 100,
            "errors": 14,
            "success_ratio": 100 / 114,
            "duration": 0.5,
            "connections": 32,
            "http_requests": 100,
            "http_rps": 200.0,
            "open_loop": False,
            "due": None,
            "attack": 0.0,
            "wait": 0.0152,
            "late": 0,
            "dropped": 0,
            "service": None,
            "send_delay": None,
            "events": None,
            "statuses": {"200": 100},
            "cut_off": 0,
            "out_of_step": 0,
            "closed_unsaid": 0,
            "closed_said": 0,
            "opened": 0,
            "most_open": 0,
            "errors_by_kind": {"status 500": 12, "timeout": 2},
            "bytes_sent": 26_214_400,
            "bytes_received": 19_000,
            "bytes_sent_per_second": 52_428_800.0,
            "bytes_received_per_second": 38_000.0,
            "server": {
                "cpu_per_request": pytest.approx(0.00045),
                "cpu_share": 0.09,
                "worker_cpu_shares": [], "children_cpu_share": 0.0, "cores": None,
                "peak_rss": 68 << 20,
            },
            "generator": {"cpu_per_request": pytest.approx(0.00305), "cpu_share": 0.61, "saturated": False},
            "generators": [],
            "law": {
                "in_flight": pytest.approx(1.5), "latency": pytest.approx(0.0075), "by_law": pytest.approx(200.0),
                "error": pytest.approx(0.0586, rel=1e-2), "agrees": True, "is_short": False,
            },
            "busy": {"server": 0.0, "generator": 0.0, "host": 0.0},
        },
        "boots": [
            {
                "index": 0,
                "requests": 100,
                "peak_rss": 68 << 20,
                "stabilised": ["hash seed"],
                "tracer": "",
                "worker_pids": [],
                "processes_ended": 0,
                "processes_changed": "",
                "memory": {"requests": [], "peak_rss": []},
                "warm_up": {"requests": 0, "failed": 0, "failures": []},
                "left_share": 0.0,
                "leads": None,
                "thread_pools": {"pid": [], "threads": [], "active": [], "pool": []},
                "series": None,
            }
        ],
        "growth": None, "base": None, "capacity": None, "base_capacity": None, "background": None,
        "other_answers": [],
        "noise": [],
        "profile": None,
        "service_histogram": None,
        "stored_histogram": None,
        "failures": [
            {
                "kind": "status 500",
                "count": 12,
                "example": 'POST /upload answered 500: {"detail":\n "disk full"}',
            },
            {"kind": "timeout", "count": 2, "example": "no answer within 30 s"},
        ],
        "verdict": {
            "outcome": "REGRESSED",
            "saturated": False,
            "code": "",
            "world": [],
            "comparisons": [
                {
                    "metric": "rps", "unit": "1/s", "outcome": "REGRESSED", "base": pytest.approx(200 / 0.936),
                    "now": 200.0,
                    "change": pytest.approx(-0.064), "low": -0.081, "high": -0.047, "confidence": 0.95,
                    "tolerance": 0.05, "typical": None, "detectable": 0.035, "pairs": None, "after_requests": None,
                    "reason": "",
                }
            ],
            "limits": [
                {
                    "name": "max_error_rate", "metric": "error_rate", "unit": "share", "limit": 0.0, "value": 0.00113,
                    "holds": False, "reason": "",
                }
            ],
        },
        "pinned": True,
        "notes": ["boots stabilised in part, without: addresses"],
    }  # fmt: skip


def test_what_was_not_measured_is_null() -> None:
    nothing = recording(requests=0, server_known=False)
    not_a_number = replace(REGRESSED, change=math.nan, low=-math.inf, high=math.inf)
    (entry,) = loaded_results(result(recorded=nothing, verdict=Verdict(comparisons=(not_a_number, *NEW))))
    assert entry["summary"]["latency"] is None
    assert entry["summary"]["server"] == {
        "cpu_per_request": None, "cpu_share": None, "worker_cpu_shares": [],
        "children_cpu_share": None, "cores": None, "peak_rss": None,
    }  # fmt: skip
    assert entry["rounds"][0]["p99"] is None
    assert [entry["verdict"]["comparisons"][0][name] for name in ("change", "low", "high")] == [None] * 3
    assert HdrHistogram.decode(entry["histogram"]).get_total_count() == 0


def test_an_open_loop_in_full() -> None:
    (entry,) = loaded_results(*list(form_uploads())[:1])
    summary = entry["summary"]
    assert {name: summary[name] for name in ("open_loop", "due", "attack", "wait", "late", "dropped")} == {
        "open_loop": True, "due": 100, "attack": 9.9, "wait": 40.308, "late": 0, "dropped": 0,
    }  # fmt: skip
    assert summary["rps"] == pytest.approx(100 / 50.208)
    assert summary["service"] == summary["latency"]
    assert summary["send_delay"]["max"] == 0
    assert HdrHistogram.decode(entry["service_histogram"]).get_total_count() == 100
    leads = entry["boots"][0]["leads"]
    assert {name: len(column) for name, column in leads.items()} == dict.fromkeys(("due", "count", "mean", "max"), 100)
    assert leads["due"][-1] == 9.9


def test_rankings_have_a_list_a_column() -> None:
    down = result("test_down", recorded=recording(requests=0), group="bodies")
    fast = result("test_fast", recorded=steady(4000), group="bodies")
    slow = result("test_slow", recorded=steady(2000), group="bodies")
    (ranking,) = loaded(down, slow, fast)["rankings"]
    places = ranking.pop("places")
    assert ranking == {"group": "bodies", "metric": "rps", "unit": "1/s", "confidence": 0.95}
    assert places["nodeid"] == [f"tests/test_files.py::test_{name}" for name in ("fast", "slow", "down")]
    assert places["rank"] == [1, 2, None]
    assert places["shared"] == [False, False, False]
    assert places["value"] == pytest.approx([4000, 2000, None])
    assert places["ratio"] == pytest.approx([1, 0.5, None])
    assert places["low"][1] < 0.5 < places["high"][1]
    assert [places[name][at] for name in ("low", "high") for at in (0, 2)] == [None] * 4


def test_groups_are_made_as_asked_for() -> None:
    text = results_json(record_of(stacks(), ["param:loop"]))
    assert [ranking["group"] for ranking in json.loads(text)["rankings"]] == ["loop=uvloop", "loop=asyncio"]


FREE = {"identity", "params", "environment", "versions", "statuses", "errors_by_kind", "limits", "seconds_for"}
"""Objects whose keys are not fields of the format."""


def fields_in(value: Any) -> Iterator[str]:
    for key, item in value.items() if isinstance(value, dict) else ():
        yield key
        yield from () if key in FREE else fields_in(item)
    for item in value if isinstance(value, list) else ():
        yield from fields_in(item)


def test_the_page_about_the_format_has_its_number_and_every_field() -> None:
    page = (Path(__file__).parents[2] / "examples" / "json.md").read_text(encoding="utf-8")
    described = set(re.findall(r"[\w.]+\w", page))
    watched_run = result(recorded=watched(recording(boots=1)))
    document = loaded(*every_kind(), *form_uploads(), watched_run, compared(), with_itself())
    assert re.search(rf"^schema +{document['schema']}$", page, re.MULTILINE)
    assert set(fields_in(document)) - described == set()


def test_keys_are_sorted_and_lists_of_plain_values_are_on_one_line() -> None:
    value: JsonValue = {"b": [1, None, "é"], "a": [{"c": {}, "d": []}, [0.5]], "e": {"f": True}}
    assert json_text(value) == (
        '{\n  "a": [\n    {\n      "c": {},\n      "d": []\n    },\n    [0.5]\n  ],\n'
        '  "b": [1, null, "é"],\n  "e": {\n    "f": true\n  }\n}'
    )


def test_the_document_is_such_a_text_and_ends_with_a_line_break() -> None:
    text = results_json(record_of([*every_kind(), *form_uploads()]))
    document = json.loads(text)
    record = json.dumps(document.pop("record"), separators=(",", ":"))
    assert text == json_text(document).removesuffix("\n}") + f',\n  "record": {record}\n}}\n'


class Colour(StrEnum):
    RED = "red"


class Thing:
    def __repr__(self) -> str:
        return "<a thing>"


@pytest.mark.parametrize(
    "value, expected",
    [
        (True, True),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        (np.float64("nan"), None),
        ((1, [2.0, math.inf]), [1, [2.0, None]]),
        ({3: {"b", "a"}}, {"3": ["a", "b"]}),
        (PurePosixPath("a/b"), "a/b"),
        ("half \ud800", "half ?"),
        (b"raw", "b'raw'"),
        (Colour.RED, "red"),
        (Thing(), "<a thing>"),
    ],
)
def test_any_value_becomes_json(value: object, expected: object) -> None:
    assert json_value(value) == expected


@given(
    st.recursive(
        st.none() | st.floats() | st.integers() | st.text(),
        lambda item: st.lists(item) | st.dictionaries(st.text(), item),
    )
)
def test_whatever_comes_json_can_hold(value: object) -> None:
    held = json_value(value)
    assert json.loads(json_text(held)) == held


# --- the whole record: what is read of it is equal, and so is every report of it

REASON = Reason(
    kind=ReasonKind.PAIRS_STALLS, metric="rps", noise_of=NoiseOf.SESSIONS, jump=((50.0, 0.1), (99.0, math.inf)),
    differences=("cores was 2, is 4",), busy=Busy(server=0.26, host=0.1), ratio=math.nan,
)  # fmt: skip


def otherwise_paired() -> Result:
    """Returns a result whose pairs are not the boots of its recordings, as of a server that is not booted anew."""
    shown = compared()
    pairs = (replace(pair, base=pair.now, stabilised=("hash seed",), base_boots_anew=False) for pair in shown.pairs)
    return replace(shown, pairs=tuple(pairs))


def odd() -> Iterable[Result]:
    """Yields results with every kind of value that a record may hold."""
    boots = replace(recording(), rounds=recording().rounds[:1]).boots
    held = tuple(
        replace(
            boot,
            cores=frozenset({3, 1}),
            alone=Histogram.of([5, 7, 1_000_000]),
            thread_pools=(ThreadUse(pid=1, threads=4, active=2),),
        )
        for boot in boots
    )
    comparison = replace(REGRESSED, low=-math.inf, high=math.nan, reason=REASON)
    yield result(
        "test_odd[\ud800-1]",
        recorded=replace(recording(), boots=held),
        verdict=Verdict(
            comparisons=(comparison, *NEW),
            limits=(ERRORS,),
            world=(comparison,),
            code_notes=(Note(kind=NoteKind.ROUGHLY_KNOWN, share=0.021),),
        ),
        params={"size": 3, "other": None, "third": [1, "two"]},
    )
    profiled = Explanation(text="a line", details={"functions": [{"name": "f", "seconds": 0.5}]})
    yield replace(result("test_profiled", smoke=True), explanation=profiled)
    yield result("test_nothing", recorded=recording(requests=0, server_known=False))


RECORDS: dict[str, Callable[[], Sequence[Result]]] = {
    "nothing": tuple,
    "every kind": every_kind,
    "in turn": lambda: (compared(), with_itself(), otherwise_paired()),
    "open loop": lambda: (*form_uploads(), result(recorded=watched(open_loop(boots=2), growing=1, busy=True))),
    "groups": lambda: (*stacks(), result("test_alone")),
    "odd": lambda: tuple(odd()),
}


def whole_record(results: Sequence[Result]) -> SessionRecord:
    return replace(
        session_record(results),
        said=("fileperf: the checkout of main has no submodule", "2 stale baselines"),
        created="2026-11-21T09:30:00+00:00",
        asked=Asked(command="pytest --fileperf 'a b'", against="main", strict=True, group_by=("func", "param:size")),
        versions={"pytest-fileperf": "1.2", "python": "3.11.9"},
        commit={"id": "9a1e0473cfd0a9b9c1d2", "branch": "main", "dirty": True},
        environment={"system": "Linux", "cores": 2, "packages": {"uvicorn": "0.54.0"}},
    )


@pytest.fixture(autouse=True)
def _small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")


@pytest.fixture
def reread(tmp_path: Path) -> Callable[[SessionRecord], SessionRecord]:
    """Writes a record, and returns what is read of the file."""

    def through_a_file(record: SessionRecord) -> SessionRecord:
        path = tmp_path / "run.json"
        path.write_text(results_json(record), encoding="utf-8")
        return read_record(path)

    return through_a_file


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_read_is_equal(name: str, reread: Callable[[SessionRecord], SessionRecord]) -> None:
    record = whole_record(RECORDS[name]())
    again = reread(record)
    if name != "odd":  # NaN is equal to nothing
        assert again == record
    assert results_json(again) == results_json(record)
    for was, now in zip(record.results, again.results, strict=True):
        assert now.measurement.latency.histogram == was.measurement.latency.histogram
        assert now.measurement.latency.percentile(99.9) == was.measurement.latency.percentile(99.9)
        assert now.measurement.send_delay.histogram == was.measurement.send_delay.histogram


@pytest.mark.parametrize("name", RECORDS)
def test_reports_of_what_is_read_are_those_of_the_session(
    name: str, reread: Callable[[SessionRecord], SessionRecord]
) -> None:
    record = whole_record(RECORDS[name]())
    again = reread(record)
    assert results_html(again) == results_html(record)
    for verbosity in (-1, 0, 1):
        assert session_text(again, width=100, verbosity=verbosity) == session_text(
            record, width=100, verbosity=verbosity
        )


def test_pairs_are_made_of_their_rounds_and_not_kept_besides() -> None:
    shown = compared()
    (kept,) = json.loads(results_json(session_record([shown])))["record"]["measured"]["results"]
    assert "pairs" not in kept["result"]
    assert kept["paired"] == [{}] * len(shown.pairs)
    other = replace(shown, pairs=tuple(replace(pair, base=pair.now) for pair in shown.pairs))
    (kept,) = json.loads(results_json(session_record([other])))["record"]["measured"]["results"]
    assert "paired" not in kept


@given(st.lists(st.integers(0, 10**12), max_size=40))
def test_histograms_come_back_exactly(values_ns: list[int]) -> None:
    histogram, encoder = Histogram.of(values_ns), Encoder()
    places = encoder.encode((histogram, histogram), tuple[Histogram, ...])
    assert len(encoder.histograms) == 1
    decoder = Decoder(json.loads(json.dumps(encoder.histograms)))
    assert decoder.decode(places, tuple[Histogram, ...], "") == (histogram, histogram)


# --- files that cannot be read


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(results_json(whole_record([*stacks(), compared()])))
    return found


@pytest.mark.parametrize(
    "content, why",
    [
        (None, "cannot read {path}: No such file or directory"),
        ("", "{path} is damaged or no JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"schema": 4,', "{path} is damaged or no JSON: Expecting property name …"),
        ("[1]", "{path} was not written by --fileperf-json: it has no schema number"),
        ('{"machine_info": {}}', "{path} was not written by --fileperf-json: it has no schema number"),
        ('{"schema": 2}', "{path} has schema 2, not 4: no report can be made of results that old, run …"),
        ('{"schema": 5}', "{path} has schema 5, not 4: read it with the version of pytest-fileperf that wrote it"),
        ('{"schema": "x"}', "{path} has schema 'x', not 4: read it with the version of pytest-fileperf that wrote it"),
        ('{"schema": 4}', "{path} is damaged: record is None, not an object"),
    ],
)  # fmt: skip
def test_an_unreadable_file_is_told_in_a_sentence(content: str | None, why: str, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError) as told:
        read_record(path)
    start, cut, _ = why.format(path=path).partition(" …")
    assert str(told.value).startswith(start) if cut else str(told.value) == start


def changed(document: dict[str, Any], place: Sequence[str | int], value: object) -> dict[str, Any]:
    at: Any = document
    for key in place[:-1]:
        at = at[key]
    if value is KeyError:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return document


FIRST = ("record", "measured", "results", 0, "result")
LAST = ("record", "measured", "results", -1, "result")
GROUP = ("record", "measured", "groups", 0)
ROUND = (*FIRST, "recording", "rounds", 1)


@pytest.mark.parametrize(
    "place, value, why",
    [
        (("asked",), 3, "asked is 3, not an object"),
        (("asked", "group_by"), "func", "asked.group_by is 'func', not a list"),
        (("asked", "aa"), 1, "asked.aa is 1, not of type bool"),
        (("created",), KeyError, "it has no 'created'"),
        (("created",), "today", "created is 'today', not a time in ISO 8601"),
        ((*LAST, "recording", "boots", 0, "index"), 9, "tests/test_files.py::test_upload has rounds of the boot 0"),
        (("record", "histograms"), KeyError, "histograms is None, not a list"),
        (("record", "histograms", 0, 0), "HISTF", "histograms[0]: not an HdrHistogram V2 text: "),
        (("record", "histograms", 0, 1), True, "histograms[0] is True, not of type int"),
        ((*FIRST, "work"), KeyError, "… has no 'work'"),
        ((*ROUND, "latency"), 10**6, "….recording.rounds[1].latency is 1000000, and there are "),
        ((*ROUND, "phase"), "REST", "….recording.rounds[1].phase is 'REST', not one of ROUND, HANDOVER, DRAIN"),
        ((*ROUND, "statuses", 0), [200], "….recording.rounds[1].statuses[0] has 1 items, not 2"),
        ((*FIRST, "measurement", "statuses"), {"ok": 1}, "….measurement.statuses has the key 'ok', "),
        ((*GROUP, "ranking", "metric"), "speed", "the group 'event loops' has a metric 'speed', which there is not: "),
        ((*LAST, "verdict", "comparisons", 0, "metric"), "x", "tests/test_files.py::test_upload has a metric 'x'"),
        ((*GROUP, "members", 0), 99, "the group 'event loops' has members that are none of its "),
        ((*GROUP, "ranking", "places", 0, "member"), 99, "the places of the group 'event loops' are not those "),
    ],
)  # fmt: skip
def test_damage_is_told_with_its_place(
    document: dict[str, Any], place: Sequence[str | int], value: object, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps(changed(document, place, value)), encoding="utf-8")
    with pytest.raises(RecordError) as told:
        read_record(path)
    assert str(told.value).startswith(f"{path} is damaged: {why.replace('…', 'record.measured.results[0].result')}")


def test_fields_of_a_later_version_are_ignored(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({**document, "more": 1, "asked": {**document["asked"], "more": 2}}), encoding="utf-8")
    assert read_record(path) == whole_record([*stacks(), compared()])


def test_an_older_record_has_texts_for_notes(document: dict[str, Any], tmp_path: Path) -> None:
    code = (
        "measured in turn with the code of it",
        "changed packages: a 1 → 2, b",
        "the stored level is known to 2.1 % only, not to 1.5 %: the machine is noisy",
    )
    notes = (
        "served with what the test has set on the app: a is 1",
        "app.log changed while it was measured",
        "any text",
    )
    changed(document, (*LAST, "verdict", "code"), "; ".join(code))
    changed(document, (*LAST, "server_notes"), notes[:1])
    changed(document, (*LAST, "load_notes"), notes[1:])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    read = read_record(path).results[-1]
    assert [note.kind for note in read.verdict.code_notes] == [
        NoteKind.IN_TURN,
        NoteKind.PACKAGES,
        NoteKind.ROUGHLY_KNOWN,
    ]
    assert [note.kind for note in read.notes] == [NoteKind.SET_BY_TEST, NoteKind.CHANGED_MEANWHILE, NoteKind.TOLD]
    assert [*map(note_text, read.verdict.code_notes)] == [*code]
    assert [*map(note_text, read.notes)] == [*notes]
    assert read.verdict.code_notes[-1].share == pytest.approx(0.021)


def test_a_field_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(TypeError, match="no field may be <class 'bytes'>"):
        Encoder().encode(b"", bytes)


def test_a_record_keeps_what_has_its_default_out_of_the_file() -> None:
    assert Encoder().encode(Boot(index=1), Boot) == {"index": 1}


# --- what happened on a boot over time

MS = 1_000_000


def use(pid: int, cpu_ms: int, *, rss: int = 1000, busy: int | None = None) -> ProcessUse:
    return ProcessUse(
        pid=pid,
        cpu_ns=cpu_ms * MS,
        main_cpu_ns=None,
        waiting_ns=None,
        rss_bytes=rss,
        threads=pid + 40,
        files=None,
        written_bytes=None,
        read_bytes=None,
        busy_threads=busy,
    )


QUEUES = SocketQueues(
    connections=32, server_unread=1, server_unsent=2, client_unread=3, client_unsent=4, under_way=5
)  # fmt: skip


def test_looks_become_columns_with_shares_of_the_time_between_them() -> None:
    samples = (
        Sample(at_ns=7_000 * MS, server=(use(1, 0), use(2, 500)), generators=(use(9, 100),)),
        Sample(
            at_ns=7_250 * MS,
            server=(use(1, 5), use(2, 725, rss=2000, busy=3)),
            generators=(use(9, 200),),
            queues=QUEUES,
        ),
        Sample(at_ns=7_750 * MS, server=(use(2, 1_000), use(3, 10))),
    )
    series = samples_series(Boot(index=0, worker_pids=(2, 3), samples=samples))
    nothing = [None, None, None]
    assert series == {
        "at": [0.0, 0.25, 0.75],
        "processes": [
            {
                "pid": 1, "worker": False, "cpu": [None, 0.02, None], "rss": [1000, 1000, None],
                "threads": [41, 41, None], "files": nothing, "busy_threads": nothing,
            },
            {
                "pid": 2, "worker": True, "cpu": [None, 0.9, 0.55], "rss": [1000, 2000, 1000],
                "threads": [42, 42, 42], "files": nothing, "busy_threads": [None, 3, None],
            },
            {
                "pid": 3, "worker": True, "cpu": nothing, "rss": [None, None, 1000],
                "threads": [None, None, 43], "files": nothing, "busy_threads": nothing,
            },
        ],
        "generator": {
            "cpu": [None, 0.4, None], "rss": [1000, 1000, None],
            "threads": [49, 49, None], "files": nothing, "busy_threads": nothing,
        },
        "generators": [],
        "queues": {
            "connections": [None, 32, None], "server_unread": [None, 1, None], "server_unsent": [None, 2, None],
            "client_unread": [None, 3, None], "client_unsent": [None, 4, None], "under_way": [None, 5, None],
        },
    }  # fmt: skip


def test_what_was_never_seen_is_null() -> None:
    alone = Sample(at_ns=0, server=(use(1, 0),))
    series: Any = samples_series(Boot(index=0, samples=(alone, replace(alone, at_ns=0))))
    assert (series["generator"], series["generators"], series["queues"]) == (None, [], None)
    assert series["processes"][0]["cpu"] == [None, None]  # no time between them


def test_lead_times_are_in_seconds() -> None:
    leads = LeadTimes(due_ns=(0, 500 * MS), counts=(3, 4), mean_ns=(20 * MS, 30 * MS), max_ns=(25 * MS, 50 * MS))
    assert leads_series(leads) == {"due": [0.0, 0.5], "count": [3, 4], "mean": [0.02, 0.03], "max": [0.025, 0.05]}
