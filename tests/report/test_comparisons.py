"""What reports make of comparisons: two versions measured in turn, and stored baselines with what the world did."""

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
from report.samples import PASSED, result

from pytest_fileperf.errors import LimitExceededError, NotMeasuredError, RegressionError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import (
    LimitCheck,
    MetricComparison,
    Note,
    NoteKind,
    Outcome,
    Reason,
    ReasonKind,
    Verdict,
)
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart
from pytest_fileperf.report.page.gates import gate_table
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import brief_report, terminal_report, undecided_lines
from pytest_fileperf.report.wording import world_text

# --- what reports make of two versions that were measured in turn


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


# --- the two questions of a stored baseline in every report: whether the code is slower, and whether the world is

BASELINE = "its baseline (1a2b3c4 of 2026-11-20)"
THE_SAME = Note(kind=NoteKind.SAME_CODE, texts=(BASELINE,))
NO_PACKAGES = Note(kind=NoteKind.TOLD, texts=("its packages were not to be had",))
IN_TURN = f"measured in turn with the code of {BASELINE}"
CHANGED = Reason(kind=ReasonKind.WORLD, metric="rps", differences=("starlette 1.0 → 1.1",))
SLOWER_WORLD = MetricComparison(
    metric="rps", outcome=Outcome.REGRESSED, tolerance=0.03, base=5210.0, now=4324.0, change=-0.17, low=-0.20,
    high=-0.14, confidence=0.9, reason=CHANGED,
)  # fmt: skip
SAME_TAIL = MetricComparison(
    metric="p99", outcome=Outcome.PASS, tolerance=0.15, base=0.031, now=0.0316, change=0.0194, low=-0.04, high=0.08,
    confidence=0.9,
)  # fmt: skip
SLOWER_TEXT = (
    "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms):"
    " the machine, packages or environment changed, not your code; changed packages: starlette 1.0 → 1.1"
)
SAME = MetricComparison(
    metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=5210.0, now=4324.0, change=-0.17,
    reason=Reason(kind=ReasonKind.SAME_CODE, side="base"),
)  # fmt: skip


def in_turn(*world: MetricComparison, also: tuple[Note, ...] = ()) -> Result:
    """Returns a result whose stored baseline was measured in turn."""
    shown = compared()
    code_notes = (Note(kind=NoteKind.IN_TURN, texts=(BASELINE,)), *also)
    return shown.with_verdict(against=BASELINE, code_notes=code_notes, world=world)


def on_terminal(shown: Result, *, verbosity: int = 0) -> str:
    return terminal_report(session_record([shown]), width=80, colour=False, verbosity=verbosity)


# --- what the world did, in words


@pytest.mark.parametrize(
    "world,text",
    [
        ((SLOWER_WORLD, SAME_TAIL), SLOWER_TEXT),
        ((), ""),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.PASS, now=5158.0, change=-0.01, reason=None),),
            "your baseline's own code runs at 0.99 of what was stored (rps −1.0 % from 5,210/s)",
        ),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.WORLD_UNCLEAR)),),
            "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s),"
            " which may be how runs at other times differ",
        ),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.SATURATED)),),
            "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s): the load generator"
            " was saturated, so this is its own speed and not the server's: use fewer connections, or"
            " more generators",
        ),
        (
            (replace(SAME_TAIL, outcome=Outcome.IMPROVED, now=0.0248, change=-0.2, reason=CHANGED),),
            "your baseline's own code has 0.80 times the stored p99 (p99 −20.0 % from 31.0 ms):"
            " the machine, packages or environment changed; changed packages: starlette 1.0 → 1.1",
        ),
    ],
)
def test_the_sentence_of_the_world(world: tuple[MetricComparison, ...], text: str) -> None:
    assert world_text(Verdict(world=world)) == text


# --- which code was measured again

NOT_FOUND = "the baseline's code is not in the Git repository; fetch-depth: 0"


def test_why_its_code_was_not_measured_again_is_said_once() -> None:
    reason = Reason(kind=ReasonKind.NO_CODE, text=NOT_FOUND)
    unclear = replace(PASSED, outcome=Outcome.INCONCLUSIVE, reason=reason)
    code_notes = (Note(kind=NoteKind.FIGURES_ONLY, texts=(NOT_FOUND,)),)
    for comparison, verbosity in ((unclear, 0), (unclear, 1), (PASSED, 0), (PASSED, 1)):
        shown = result(verdict=Verdict(comparisons=(comparison,), code_notes=code_notes))
        assert " ".join(on_terminal(shown, verbosity=verbosity).split()).count(NOT_FOUND) == 1
    with pytest.raises(NotMeasuredError) as raised:
        raise_for(result(verdict=Verdict(comparisons=(unclear,), code_notes=code_notes)), strict=True, ci=False)
    assert " ".join(str(raised.value).split()).count(NOT_FOUND) == 1


def test_without_v_it_is_said_once_for_all_tests_that_have_it() -> None:
    why = Note(kind=NoteKind.FIGURES_ONLY, texts=(NOT_FOUND,))
    weaker = [
        result(name, verdict=Verdict(comparisons=(PASSED,), code_notes=(why,)))
        for name in ("test_upload", "test_form", "test_list")
    ]
    text = terminal_report(session_record([*weaker, result("test_all", verdict=Verdict(comparisons=(PASSED,)))]))
    said = f"only stored figures compare in test_upload (and in 2 other tests): {NOT_FOUND}"
    assert " ".join(text.split()).count(said) == 1
    assert text.count("only stored figures") == 1
    wanted = result(verdict=Verdict(comparisons=(PASSED,), code_notes=(Note(kind=NoteKind.NEVER_CONFIRMED),)))
    assert "only stored" not in on_terminal(wanted)


# --- in the reports


def test_on_the_terminal_the_world_has_lines_of_its_own() -> None:
    text = on_terminal(in_turn(SLOWER_WORLD, SAME_TAIL), verbosity=1)
    world = (
        "  the world: your baseline's own code runs at 0.83 of what was stored (rps\n"
        "    −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms): the machine, packages or\n"
        "    environment changed, not your code; changed packages: starlette 1.0 → 1.1\n"
    )
    assert (
        "  rps  8,760/s → 8,200/s  −6.4 % [−7.1, −5.7]  tolerance 1.5 %  REGRESSED\n"
        f"  p99  30.6 ms → 30.8 ms  +0.6 % [−2.0, +3.3]  tolerance 10 %   PASS\n{world}"
    ) in text
    assert f"  {IN_TURN}\n" in text
    assert "against its baseline" not in text
    assert text.endswith("1 measured: 1 REGRESSED\n")
    assert on_terminal(in_turn(SLOWER_WORLD, SAME_TAIL)) == (
        "test_upload  8,200/s  p99 30.8 ms  REGRESSED\n"
        f"  rps  8,760/s → 8,200/s  −6.4 % [−7.1, −5.7]  tolerance 1.5 %  REGRESSED\n{world}"
        "[in brackets]: the interval of a change, at 90 % confidence\n"
    )


def test_without_v_a_world_as_it_was_is_not_shown() -> None:
    assert "the world" not in on_terminal(in_turn(SAME_TAIL))


def test_without_v_a_world_that_may_be_slower_is_shown_where_packages_changed() -> None:
    unclear = replace(
        SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=replace(CHANGED, kind=ReasonKind.WORLD_UNCLEAR)
    )
    lines, _ = brief_report(session_record([in_turn(unclear)]), width=80)
    assert "changed packages: starlette 1.0 → 1.1" in " ".join("".join(lines).split())
    unchanged = replace(unclear, reason=Reason(kind=ReasonKind.WORLD_UNCLEAR, metric="rps"))
    lines, _ = brief_report(session_record([in_turn(unchanged)]), width=80)
    assert "the world" not in "".join(lines)


def test_where_the_code_is_the_same_only_the_world_has_figures() -> None:
    shown = result(verdict=Verdict(comparisons=(SAME,), world=(SLOWER_WORLD,), code_notes=(THE_SAME,)))
    text = on_terminal(shown, verbosity=1)
    assert "PASS rps: the code is that of the baseline" in text
    assert text.count("5,210/s") == 1
    assert "tolerance" not in text


def test_with_q_a_world_is_shown_of_failed_tests_only_where_it_is_slower() -> None:
    assert "the world" in on_terminal(in_turn(SLOWER_WORLD), verbosity=-1)
    assert "the world" not in on_terminal(in_turn(SAME_TAIL), verbosity=-1)


def test_the_short_summary_says_why_nothing_compares() -> None:
    other = Reason(kind=ReasonKind.OTHER_WORK, differences=("engine was replay, is client",))
    unknown = [
        replace(PASSED, metric=metric, outcome=Outcome.INCONCLUSIVE, change=None, reason=other)
        for metric in ("rps", "p99")
    ]
    unclear = replace(PASSED, metric="p50", outcome=Outcome.INCONCLUSIVE, base=0.017918, now=0.018006)
    shown = result(verdict=Verdict(comparisons=(*unknown, unclear)))
    assert undecided_lines("test_it.py::test_upload", [shown], width=80, colour=False) == [
        "INCONCLUSIVE test_it.py::test_upload - p50 +0.5 % [−1.1, +2.1], tolerance 5 %;",
        "  rps, p99: the baseline is of something else",
    ]


def test_the_message_of_a_regression_from_code_measured_in_turn() -> None:
    shown = in_turn(SLOWER_WORLD, SAME_TAIL, also=(NO_PACKAGES,))
    with pytest.raises(RegressionError) as raised:
        raise_for(with_limit(shown, THREAD_POOL), strict=False, ci=False)
    assert str(raised.value) == (
        "rps −6.4 % [−7.1, −5.7], worse than its baseline (1a2b3c4 of 2026-11-20)\n"
        "\n"
        "metric  baseline      now  change in % [90 %]  tolerance  outcome\n"
        "rps      8,760/s  8,200/s   −6.4 [−7.1, −5.7]      1.5 %  REGRESSED\n"
        "p99      30.6 ms  30.8 ms   +0.6 [−2.0, +3.3]       10 %  PASS\n"
        "\n"
        "limited by: thread pool\n"
        "the world: your baseline's own code runs at 0.83 of what was stored (rps\n"
        "  −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms): the machine, packages\n"
        "  or environment changed, not your code; changed packages: starlette 1.0\n"
        "  → 1.1\n"
        "its packages were not to be had\n"
        "if the new level is meant to stay, store it with --fileperf-update=all"
    )


def test_the_message_of_a_limit_shows_no_change_where_the_code_is_the_same() -> None:
    limit = LimitCheck(name="min_rps", metric="rps", limit=5000.0, value=4324.0, holds=False)
    with pytest.raises(LimitExceededError) as raised:
        raise_for(replace(result(), verdict=Verdict(comparisons=(SAME,), limits=(limit,))), strict=False, ci=False)
    assert "rps            –  4,324/s            –        3 %  PASS\n" in str(raised.value)


def test_the_json_file_has_both_questions() -> None:
    (told,) = json.loads(results_json(session_record([in_turn(SLOWER_WORLD)])))["results"]
    assert told["base"]["title"] == BASELINE
    assert told["verdict"]["code"] == IN_TURN
    assert told["verdict"]["world"] == [
        {
            "metric": "rps", "unit": "1/s", "outcome": "REGRESSED", "base": 5210.0, "now": 4324.0, "change": -0.17,
            "low": -0.2, "high": -0.14, "confidence": 0.9, "tolerance": 0.03, "typical": None, "detectable": None,
            "pairs": None, "after_requests": None,
            "reason": told["verdict"]["world"][0]["reason"],
        }
    ]  # fmt: skip
    assert "starlette 1.0 → 1.1" in told["verdict"]["world"][0]["reason"]
    assert IN_TURN in told["notes"]


def test_the_page_has_both_questions() -> None:
    page = results_html(session_record([in_turn(SLOWER_WORLD, SAME_TAIL)]))
    said = f"<b>the world</b>: {SLOWER_TEXT.replace(chr(39), '&#x27;')}"
    assert page.count(said) == 2, "below its row, and in its section"
    assert IN_TURN in page
