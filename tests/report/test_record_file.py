"""The file of results: what other programs read of it, and the whole record, which is read again."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from report.samples import ERRORS, FAILURES, NEW, REGRESSED, one, process_use, recording, result, stored, watched

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.sample import ProcessUse, Sample, SocketQueues
from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.codec import Encoder, json_text, json_value
from pytest_fileperf.measure.recording import Boot
from pytest_fileperf.report.record_file import read_record, results_json, samples_series

# --- what other programs read: a whole file is compared in `test_goldens`

FREE = {
    "identity", "params", "environment", "versions", "statuses", "errors_by_kind", "limits", "seconds_for", "endpoints",
}  # fmt: skip
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
    for session in ("every_kind", "in_turn", "open_loops", "streams", "watched", "worlds"):
        document = json.loads(results_json(stored(session)))
        del document["record"]
        assert re.search(rf"^schema +{document['schema']}$", page, re.MULTILINE)
        assert set(fields_in(document)) - described == set()


def test_the_document_is_such_a_text_and_ends_with_a_line_break() -> None:
    text = results_json(stored("every_kind"))
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


# --- the whole record: what is read of it is equal, and so is every report of it


def whole_record(results: Sequence[Result], labels: Sequence[str] = DEFAULT_GROUP_BY) -> SessionRecord:
    return replace(
        session_record(results, labels),
        said=("fileperf: the checkout of main has no submodule", "2 stale baselines"),
        created="2026-11-21T09:30:00+00:00",
        asked=Asked(command="pytest --fileperf 'a b'", against="main", strict=True, group_by=("func", "param:size")),
        versions={"pytest-fileperf": "1.2", "python": "3.11.9"},
        commit={"id": "9a1e0473cfd0a9b9c1d2", "branch": "main", "dirty": True},
        environment={"system": "Linux", "cores": 2, "packages": {"uvicorn": "0.54.0"}},
    )


@pytest.fixture
def reread(tmp_path: Path) -> Callable[[SessionRecord], SessionRecord]:
    """Writes a record, and returns what is read of the file."""

    def through_a_file(record: SessionRecord) -> SessionRecord:
        path = tmp_path / "run.json"
        path.write_text(results_json(record), encoding="utf-8")
        return read_record(path)

    return through_a_file


@pytest.mark.parametrize(
    "session", ["by_loop", "capacity", "failed", "in_turn", "nothing", "odd", "streams", "watched"]
)
def test_what_is_read_is_equal(session: str, reread: Callable[[SessionRecord], SessionRecord]) -> None:
    record = stored(session)
    again = reread(record)
    if session != "odd":  # NaN is equal to nothing
        assert again == record
    assert results_json(again) == results_json(record)


def test_nothing_of_a_session_is_left_out(reread: Callable[[SessionRecord], SessionRecord]) -> None:
    seen = result("test_seen", recorded=watched(recording(failures=FAILURES), growing=1, busy=True))
    judged = result("test_judged", verdict=Verdict(comparisons=(REGRESSED, *NEW), limits=(ERRORS,)), params={"size": 3})
    profiled = Explanation(text="a line", details={"functions": [{"name": "f", "seconds": 0.5}]})
    record = whole_record([seen, judged, replace(result("test_profiled", smoke=True), explanation=profiled)])
    again = reread(record)
    assert again == record


def test_pairs_are_made_of_their_rounds_and_not_kept_besides() -> None:
    shown, others = one("in_turn", "test_slower"), one("in_turn", "test_url")
    of_boots, of_another = json.loads(results_json(session_record([shown, others])))["record"]["measured"]["results"]
    assert "pairs" not in of_boots["result"]
    assert of_boots["paired"] == [{}] * len(shown.pairs)
    assert "paired" not in of_another


# --- files that cannot be read


@cache
def to_be_damaged() -> SessionRecord:
    return whole_record([*stored("by_loop").results[:4], one("in_turn", "test_slower")], ("param:loop",))


@cache
def text_to_be_damaged() -> str:
    return results_json(to_be_damaged())


@pytest.fixture
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_to_be_damaged())
    return found


@pytest.mark.parametrize(
    "content, why",
    [
        (None, "cannot read {path}: No such file or directory"),
        ("", "{path} is damaged or isn't JSON: Expecting value: line 1 column 1 (char 0)"),
        ('{"schema": 4,', "{path} is damaged or isn't JSON: Expecting property name …"),
        ("[1]", "{path} was not written by --fileperf-json: it has no schema number"),
        ('{"machine_info": {}}', "{path} was not written by --fileperf-json: it has no schema number"),
        ('{"schema": 2}', "{path} has schema 2, not 4. These results are too old for a report. Run …"),
        ('{"schema": 5}', "{path} has schema 5, not 4. Read it with the version of pytest-fileperf that wrote it"),
        ('{"schema": "x"}', "{path} has schema 'x', not 4. Read it with the version of pytest-fileperf that wrote it"),
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
        ((*LAST, "recording", "boots", 0, "index"), 9, "tests/test_files.py::test_slower has rounds of the unknown"),
        (("record", "histograms"), KeyError, "histograms is None, not a list"),
        (("record", "histograms", 0, 0), "HISTF", "histograms[0]: not an HdrHistogram V2 text: "),
        (("record", "histograms", 0, 1), True, "histograms[0] is True, not of type int"),
        ((*FIRST, "work"), KeyError, "… has no 'work'"),
        ((*ROUND, "latency"), 10**6, "….recording.rounds[1].latency is 1000000, but there are "),
        ((*ROUND, "phase"), "REST", "….recording.rounds[1].phase is 'REST', not one of ROUND, HANDOVER, DRAIN"),
        ((*ROUND, "statuses", 0), [200], "….recording.rounds[1].statuses[0] has 1 items, not 2"),
        ((*FIRST, "measurement", "statuses"), {"ok": 1}, "….measurement.statuses has the key 'ok', "),
        ((*GROUP, "ranking", "metric"), "speed", "the group 'loop=uvloop' has a metric 'speed', but there are only "),
        ((*LAST, "verdict", "comparisons", 0, "metric"), "x", "tests/test_files.py::test_slower has a metric 'x'"),
        ((*GROUP, "members", 0), 99, "the group 'loop=uvloop' has members that aren't among its "),
        ((*GROUP, "ranking", "places", 0, "member"), 99, "the places of the group 'loop=uvloop' don't fit "),
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
    assert read_record(path) == to_be_damaged()


def test_a_field_that_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(TypeError, match="no field may be <class 'bytes'>"):
        Encoder().encode(b"", bytes)


# --- what happened on a boot over time

MS = 1_000_000


def use(pid: int, cpu_ms: int, *, rss: int = 1000, busy: int | None = None) -> ProcessUse:
    return replace(process_use(pid, cpu_ms * MS, threads=pid + 40, files=None, busy=busy), rss_bytes=rss)


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
