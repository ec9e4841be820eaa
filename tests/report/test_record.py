"""A file of results is the whole record: what is read of it is equal, and so is every report of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.in_turn import compared, with_itself
from report.recordings import open_loop, watched
from report.samples import ERRORS, NEW, REGRESSED, every_kind, recording, result
from report.variants import form_uploads, stacks

from pytest_fileperf.errors import RecordError
from pytest_fileperf.host.sample import ThreadUse
from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import NoiseOf, Note, NoteKind, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.codec import Decoder, Encoder
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import Boot
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import read_record, results_json
from pytest_fileperf.report.terminal import session_text
from pytest_fileperf.report.wording import note_text

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


def record_of(results: Sequence[Result]) -> SessionRecord:
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
    record = record_of(RECORDS[name]())
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
    record = record_of(RECORDS[name]())
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
    found: dict[str, Any] = json.loads(results_json(record_of([*stacks(), compared()])))
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
    assert read_record(path) == record_of([*stacks(), compared()])


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
