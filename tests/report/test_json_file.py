from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
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
from report.recordings import watched
from report.samples import ERRORS, FAILURES, NEW, REGRESSED, SERVER_CPU, every_kind, recording, result
from report.variants import form_uploads, stacks, steady

from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.codec import JsonValue, json_text, json_value
from pytest_fileperf.report.record_file import results_json

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
    del document["record"]  # which test_record is about
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
