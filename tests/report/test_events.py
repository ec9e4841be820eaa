"""The events of streams in every report, and no word of them where there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from report.samples import recording, result

from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import read_record, results_json
from pytest_fileperf.report.terminal import terminal_report

MS = 1_000_000
LINE = "998 events/s  first event p50 51.0 ms, p99 51.0 ms  gap p50 50.0 ms, p99 53.0 ms"


def streams() -> Result:
    """Returns a result of twelve rounds of half a second, each with 500 events but one that has 488."""
    recorded = recording(requests=25)
    first, gap = Histogram.of([51 * MS] * 25), Histogram.of([50 * MS] * 460 + [53 * MS] * 15)
    rounds = [replace(round_, events=500, first_event=first, event_gap=gap) for round_ in recorded.rounds]
    rounds[-1] = replace(rounds[-1], events=488)
    recorded = replace(recorded, rounds=tuple(rounds))
    return replace(result(), recording=recorded, measurement=measurement_of(recorded))


def test_the_line_below_a_row_has_rate_and_times() -> None:
    text = terminal_report(session_record([streams()]), width=120)
    assert LINE in text


def test_all_figures_stand_in_the_terminal_with_v() -> None:
    text = terminal_report(session_record([streams()]), width=160, verbosity=1)
    assert "5,988 in all" in text
    assert "first event" in text
    assert "event gap" in text


def test_markdown_has_the_same_line() -> None:
    text = markdown_report(session_record([streams()]))
    assert "gap p50 50.0 ms, p99 53.0 ms" in text


def test_the_page_has_times_and_charts() -> None:
    titles = [chart.title for chart in charts_of(streams())]
    assert "Events by percentile" in titles
    assert "Events per second over time" in titles
    page = results_html(session_record([streams()]))
    assert '<th scope="row">event gap</th>' in page


def test_json_has_the_figures_of_the_run_and_of_rounds() -> None:
    (found,) = json.loads(results_json(session_record([streams()])))["results"]
    events = found["summary"]["events"]
    assert (events["count"], events["rate"]) == (5988, pytest.approx(998.0))
    assert events["gap"]["p99"] == pytest.approx(0.053, rel=1e-3)
    assert [round_["events"] for round_ in found["rounds"]][-2:] == [500, 488]


def test_a_kept_session_comes_back_equal(tmp_path: Path) -> None:
    kept = tmp_path / "record.json"
    kept.write_text(results_json(session_record([streams()])))
    (found,) = read_record(kept).results
    assert found.measurement.events.gap.p50 == pytest.approx(0.050, rel=1e-3)
    assert found.recording == streams().recording


def test_without_streams_nothing_is_said_of_events() -> None:
    record = session_record([result()])
    for text in (terminal_report(record, verbosity=2, width=160), markdown_report(record), results_html(record)):
        assert "event gap" not in text
        assert "events/s" not in text
    assert json.loads(results_json(record))["results"][0]["summary"]["events"] is None
