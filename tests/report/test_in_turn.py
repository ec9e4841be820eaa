"""What reports make of two versions that were measured in turn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from report.in_turn import (
    SLOWER,
    THREAD_POOL,
    TITLE,
    compared,
    slowed_by_the_base,
    turns,
    with_base,
    with_itself,
    with_limit,
)
from report.samples import result

from pytest_fileperf.errors import NotMeasuredError, RegressionError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import MetricComparison, Note, NoteKind, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart
from pytest_fileperf.report.page.gates import gate_table
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import terminal_report


def chart_of(shown: Result, title: str) -> Chart:
    (chart,) = (chart for chart in charts_of(shown) if chart.title == title)
    return chart


def trace_of(chart: Chart, name: str) -> Any:
    (trace,) = (trace for trace in chart.traces if trace["name"] == name)
    return trace


# --- the terminal


def test_the_table_of_a_comparison() -> None:
    lines = terminal_report(session_record([compared()]), width=90, verbosity=1).splitlines()
    assert lines[:2] == [
        "against origin/main (1a2b3c4)  uvicorn ×1 (uvloop, httptools)",
        "  32 connections in turn, 3 pairs of boots, 18.0 s  boots stabilised: hash seed, addresses",
    ]
    assert "  rps  8,760/s → 8,200/s  −6.4 % [−7.1, −5.7]  tolerance 1.5 %  REGRESSED" in lines
    assert "  p99  30.6 ms → 30.8 ms  +0.6 % [−2.0, +3.3]  tolerance 10 %   PASS" in lines
    assert lines[-1] == "1 measured: 1 REGRESSED"


def test_what_could_be_seen_is_a_line_for_each_gate() -> None:
    lines = terminal_report(session_record([with_itself()]), width=90, colour=False).splitlines()
    assert "  rps: 4.1 % slower shows in 60.0 s; 5 % needs 42.0 s, 2 % needs 212 s" in lines
    assert "  p99: too little was measured to tell what could be seen" in lines


# --- background work

SLOWED = "the base used 7 % of a core while the other side had its turn: background work of one side slows the other"


def test_background_work_of_a_side_is_said_wherever_remarks_are() -> None:
    shown = slowed_by_the_base()
    record = session_record([shown])
    assert SLOWED in " ".join(terminal_report(record, width=90, colour=False).split())
    assert SLOWED in results_html(record)
    (told,) = json.loads(results_json(record))["results"]
    assert SLOWED in told["notes"]
    assert told["background"] == {"base": pytest.approx(0.07), "now": 0.0}


def test_without_background_work_nothing_is_said_of_it() -> None:
    assert "background work" not in terminal_report(session_record([compared()]), width=90, colour=False)


def test_a_failure_says_which_side_slowed_the_other() -> None:
    with pytest.raises(RegressionError) as raised:
        raise_for(slowed_by_the_base(), strict=False, ci=False)
    assert " ".join(str(raised.value).split()).endswith(SLOWED)


# --- the message


def test_the_message_says_against_what_and_advises_no_update() -> None:
    with pytest.raises(RegressionError) as raised:
        raise_for(with_limit(compared(), THREAD_POOL), strict=False, ci=False)
    assert str(raised.value) == (
        "rps −6.4 % [−7.1, −5.7], worse than origin/main (1a2b3c4)\n"
        "\n"
        "metric     base      now  change in % [90 %]  tolerance  outcome\n"
        "rps     8,760/s  8,200/s   −6.4 [−7.1, −5.7]      1.5 %  REGRESSED\n"
        "p99     30.6 ms  30.8 ms   +0.6 [−2.0, +3.3]       10 %  PASS\n"
        "\n"
        "limited by: thread pool"
    )


def test_the_message_of_what_is_new() -> None:
    reason = f"{TITLE} has no good answer to GET /more: status 404"
    new = MetricComparison(
        metric="rps",
        outcome=Outcome.NEW,
        tolerance=0.015,
        now=2050.0,
        reason=Reason(kind=ReasonKind.ABSENT, text=reason),
    )
    with pytest.raises(NotMeasuredError, match="not compared, which fails in CI") as raised:
        raise_for(result(verdict=Verdict(comparisons=(new,), against=TITLE)), strict=False, ci=True)
    assert reason in " ".join(str(raised.value).split())
    assert "--fileperf-update" not in str(raised.value)


# --- JSON


def test_the_file_has_both_sides_and_what_could_be_seen() -> None:
    text = results_json(session_record([compared(), with_itself()]))
    one, other = json.loads(text)["results"]
    assert one["base"]["title"] == TITLE
    for side in (one, one["base"]):
        assert [round_["phase"] for round_ in side["rounds"][:4]] == ["handover", "round"] * 2
        assert len(side["rounds"]) == 24
        assert [boot["index"] for boot in side["boots"]] == [0, 1, 2]
    assert (one["boots"][0]["requests"], one["base"]["boots"][0]["requests"]) == (3280, 3504)
    assert [item["pairs"] for item in one["verdict"]["comparisons"]] == [3, 3]
    assert (one["noise"], other["verdict"]["comparisons"]) == ([], [])
    assert other["noise"] == [
        {"metric": "rps", "seconds": 60.4, "smallest": 0.041, "seconds_for": {"5.0 %": 42.3, "2.0 %": 211.8}},
        {"metric": "p99", "seconds": 60.4, "smallest": None, "seconds_for": {}},
    ]


# --- the page


def test_gates_stand_against_the_other_version() -> None:
    text = gate_table(compared()).text
    assert "Against <b>origin/main (1a2b3c4)</b>, measured in turn on 3 pairs of boots" in text
    assert ">base<" in text
    assert "baseline" not in text


def test_gates_of_a_stored_baseline_stand_against_that() -> None:
    text = gate_table(result(verdict=Verdict(comparisons=(SLOWER,)))).text
    assert ">baseline<" in text
    assert "Against" not in text


def test_names_of_versions_are_text() -> None:
    evil = compared().with_verdict(against="<script>")
    assert "<script>" not in gate_table(evil).text


def test_pairs_are_drawn_and_no_rounds() -> None:
    assert [chart.title for chart in charts_of(compared())] == [
        "Latency by percentile",
        "Change of requests/s by pair of boots",
        "Change of p99 by pair of boots",
        "Requests per second by pair of boots",
        "Latency by pair of boots",
    ]


def test_what_could_be_seen_has_the_changes_of_the_same_code() -> None:
    chart = chart_of(with_itself(), "Change of requests/s by pair of boots")
    assert [trace["name"] for trace in chart.traces] == ["pair", "no change"]


def test_each_pair_is_a_mark_of_its_change() -> None:
    chart = chart_of(compared(), "Change of requests/s by pair of boots")
    assert trace_of(chart, "pair")["x"] == [1, 2, 3]
    assert trace_of(chart, "pair")["y"] == pytest.approx([100 * (410 / 438 - 1)] * 3, abs=0.01)
    assert trace_of(chart, "pair")["error_y"]["array"] == pytest.approx([0, 0, 0], abs=0.01)
    assert trace_of(chart, "all pairs")["y"] == pytest.approx([100 * (410 / 438 - 1)] * 2, abs=0.001)
    assert trace_of(chart, "tolerance")["y"] == pytest.approx([-1.478, -1.478], abs=0.001)
    assert "higher is better" in chart.says


def test_pairs_that_have_too_few_requests_alone_are_a_mark_together() -> None:
    chart = chart_of(compared(boots=5, requests=20), "Change of p99 by pair of boots")
    assert trace_of(chart, "pair")["x"] == [1.5, 4]
    assert "or of some together" in chart.says


def test_a_percentile_that_no_pairs_can_carry_has_no_chart() -> None:
    titles = [chart.title for chart in charts_of(compared(requests=4))]
    assert "Change of p99 by pair of boots" not in titles
    assert "Change of requests/s by pair of boots" in titles


def test_both_sides_of_each_pair_have_their_level() -> None:
    rates = chart_of(compared(), "Requests per second by pair of boots")
    assert [(trace["name"], trace["y"]) for trace in rates.traces] == [
        ("base", [8760] * 3),
        ("now", [8200] * 3),
    ]
    latencies = chart_of(compared(), "Latency by pair of boots")
    assert [trace["name"] for trace in latencies.traces] == ["p50 base", "p50 now", "p99 base", "p99 now"]


@pytest.mark.parametrize(
    "code_notes,base",
    [((), "latency of base"), ((Note(kind=NoteKind.IN_TURN, texts=("1a2b3c4",)),), "latency of baseline")],
)
def test_both_sides_have_a_curve_of_percentiles_that_tell_themselves_apart(
    code_notes: tuple[Note, ...], base: str
) -> None:
    shown = compared()
    chart = chart_of(shown.with_verdict(code_notes=code_notes), "Latency by percentile")
    assert [trace["name"] for trace in chart.traces] == ["latency now", "to the first byte", base]
    lines: list[Any] = [trace["line"] for trace in chart.traces]
    assert len({each["color"] for each in lines}) == len({each["dash"] for each in lines}) == 3


@pytest.mark.parametrize("boots, requests", [(3, 410), (5, 20)], ids=["pairs alone", "some pairs together"])
def test_both_sides_stand_below_their_change_with_what_was_counted(boots: int, requests: int) -> None:
    """A mark of change is that of typical turns: one stall moves the level of a side, and not the change."""
    shown = compared(boots=boots, requests=requests)
    first = shown.pairs[0].base
    levels = (9000.0, 9000.0, 4000.0, 4100.0)
    stalled = replace(first, turns=tuple({**turn, "rps": rps} for turn, rps in zip(first.turns, levels, strict=True)))
    shown = replace(shown, pairs=(replace(shown.pairs[0], base=stalled), *shown.pairs[1:]))
    for metric, title, name in (("requests/s", "Requests per second", ""), ("p99", "Latency", "p99 ")):
        change = trace_of(chart_of(shown, f"Change of {metric} by pair of boots"), "pair")
        chart = chart_of(shown, f"{title} by pair of boots")
        base, now = trace_of(chart, f"{name}base"), trace_of(chart, f"{name}now")
        assert base["x"] == now["x"] == change["x"]
        if metric == "p99":
            for before, after, percent in zip(base["y"], now["y"], change["y"], strict=True):
                assert 100 * (after / before - 1) == pytest.approx(percent, abs=0.1)
        else:
            others = round(requests * 2190 / 2050) / 0.05
            assert base["y"] == pytest.approx([sum(levels) / 4] + [others] * (boots - 1))
            assert now["y"] == pytest.approx([requests / 0.05] * boots)


def test_many_pairs_of_many_turns_do_not_drown_the_page() -> None:
    charts = charts_of(compared(boots=60, rounds=30, requests=25))
    for chart in charts:
        for trace in chart.traces:
            drawn: Any = trace
            assert len(drawn["x"]) <= MOST_POINTS + 10


def test_a_side_without_an_answer_does_not_break_it() -> None:
    dead = with_base(compared(), turns(requests=0))
    assert [chart.title for chart in charts_of(dead)] == [
        "Latency by percentile",
        "Requests per second by pair of boots",
        "Latency by pair of boots",
    ]
    silent = with_base(replace(dead, recording=turns(requests=0)), turns(requests=0))
    assert [chart.title for chart in charts_of(silent)] == ["Requests per second by pair of boots"]


def test_the_whole_page_of_both_kinds() -> None:
    text = results_html(session_record([compared(), with_itself()]))
    assert "rps: 4.1 % slower shows in 60.0 s" in text
    assert text.count("measured in turn on 3 pairs of boots") == 1
