"""Charts as values: which there are, and that they show what was measured, no more of it than can be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.recordings import SECOND_NS, open_loop, watched
from report.samples import (
    FAILURES,
    PASSED,
    TAIL_IMPROVED,
    TOO_FEW,
    every_kind,
    recording,
    result,
)

from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import PARTS, Carried, LeadTimes, Recording
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart, thinned


def titles_of(charts: Sequence[Chart]) -> list[str]:
    return [chart.title for chart in charts]


def chart_of(result: Result, title: str) -> Chart:
    (chart,) = (chart for chart in charts_of(result) if chart.title.startswith(title))
    return chart


def trace_of(chart: Chart, name: str) -> Any:
    (trace,) = (trace for trace in chart.traces if trace["name"] == name)
    return trace


CLOSED = ["Latency by percentile", "Requests per second over time", "Latency over time"]
WATCHED = ["CPU over time, shares of a core", "Memory of the server over time"]
COUNTS = ["Threads of the server over time", "Open files of the server over time"]
LEADS = "Lead time by when a request was due"
FEW = recording(requests=4, boots=1, rounds=1)


@pytest.mark.parametrize(
    "recorded,titles",
    [
        (recording(), CLOSED),
        (watched(recording()), CLOSED + WATCHED),
        (watched(recording(), growing=1), [*CLOSED, *WATCHED, *COUNTS]),
        (open_loop(), [CLOSED[0], LEADS, *CLOSED[1:]]),
        (recording(boots=1, rounds=1), CLOSED[:1]),
        (FEW, []),
        (recording(requests=0), CLOSED[1:2]),
        (watched(recording(boots=1, rounds=1), looks=2), CLOSED[:1]),
        (replace(FEW, rounds=()), []),
    ],
)
def test_only_what_says_something_is_drawn(recorded: Recording, titles: list[str]) -> None:
    assert titles_of(charts_of(result(recorded=recorded))) == titles


@given(st.lists(st.integers(1_000, 10**10), min_size=20, max_size=400), st.floats(0.1, 99.99))
def test_the_curve_of_percentiles_tells_each_of_them(latencies_ns: list[int], percent: float) -> None:
    histogram = Histogram.of(latencies_ns)
    (round_,) = FEW.rounds
    shown = result(recorded=replace(FEW, rounds=(replace(round_, requests=histogram.count, latency=histogram),)))
    trace = trace_of(chart_of(shown, "Latency by percentile"), "latency")
    assert len(trace["x"]) <= MOST_POINTS + 2
    place = 100 / (100 - percent)
    # Between two points of the curve, which may stand for many steps, lies the value itself. A step at this very
    # percentile may be on either side of it.
    steps = [y for x, y in zip(trace["x"], trace["y"], strict=True) if x <= place * 0.9999]
    following = next((y for x, y in zip(trace["x"], trace["y"], strict=True) if x > place * 1.0001), trace["y"][-1])
    size = {"s": 1e9, "ms": 1e6, "µs": 1e3}[str(trace["hovertemplate"]).rpartition(" ")[2]]
    assert steps[-1] * 0.999 <= histogram.percentile_ns(percent) / size <= following * 1.001


def test_the_curve_of_few_requests_is_exact() -> None:
    (round_,) = FEW.rounds
    histogram = Histogram.of([index * 1_000_000 for index in range(1, 21)])
    trace = trace_of(
        chart_of(result(recorded=replace(FEW, rounds=(replace(round_, latency=histogram),))), "Latency"), "latency"
    )
    assert trace["x"][:3] == pytest.approx([1, 20 / 19, 20 / 18], rel=1e-3)
    assert trace["y"][:3] == pytest.approx([1, 2, 3], rel=1e-3)
    assert (trace["x"][-1], trace["y"][-1]) == (20, 20)
    assert trace["line"]["shape"] == "hv"
    assert trace["text"][-1] == "p95"


def test_service_times_have_a_curve_where_requests_waited_before_they_were_sent() -> None:
    waited = open_loop()
    prompt = replace(waited, rounds=tuple(replace(round_, service=round_.latency) for round_ in waited.rounds))
    names = [
        [trace["name"] for trace in chart_of(result(recorded=each), "Latency by").traces][:2]
        for each in (prompt, waited)
    ]
    assert names == [["latency", "to the first byte"], ["latency", "service time"]]


def test_first_bytes_that_come_early_have_a_curve() -> None:
    (round_,) = FEW.rounds
    histogram = Histogram.of([10_000_000] * 20)
    late, early = (replace(round_, latency=histogram, ttfb=Histogram.of([at] * 20)) for at in (9_900_000, 2_000_000))
    names = [
        [trace["name"] for trace in chart_of(result(recorded=replace(FEW, rounds=(each,))), "Latency").traces]
        for each in (late, early)
    ]
    assert names == [["latency"], ["latency", "to the first byte"]]


def test_stored_latencies_have_a_curve_beside_those_of_the_run() -> None:
    stored = replace(result(), stored_latency=Histogram.of([10_000_000] * 40))
    chart = chart_of(stored, "Latency by")
    assert [trace["name"] for trace in chart.traces] == ["latency now", "to the first byte", "latency of baseline"]
    assert set(trace_of(chart, "latency of baseline")["y"]) == {10}


def test_a_long_tail_has_a_logarithmic_axis() -> None:
    (round_,) = FEW.rounds
    steady, stalled = (
        replace(FEW, rounds=(replace(round_, latency=Histogram.of([1_000_000] * 99 + [slowest_ns])),))
        for slowest_ns in (20_000_000, 40_000_000)
    )
    kinds = [chart_of(result(recorded=each), "Latency").layout["yaxis"] for each in (steady, stalled)]
    assert ["log" in str(kind) for kind in kinds] == [False, True]


def test_rounds_are_drawn_when_they_were_and_boots_are_marked() -> None:
    recorded = recording(boots=2, rounds=2, requests=100)
    chart = chart_of(result(recorded=recorded), "Requests per second")
    trace = trace_of(chart, "requests/s")
    assert trace["x"] == [0.25, 0.75, 1.25, 1.75]
    assert trace["y"] == [200] * 4
    assert trace["error_x"]["array"] == [0.25] * 4
    shapes: Any = chart.layout["shapes"]
    names: Any = chart.layout["annotations"]
    assert [(shape["x0"], shape["x1"]) for shape in shapes] == [(0, 1), (1, 2)]
    assert [name["text"] for name in names] == ["boot 1", "boot 2"]


def test_boots_are_numbered_as_they_ran() -> None:
    recorded = recording(boots=3, rounds=2)
    order = {0: 2, 1: 0, 2: 1}  # which boot comes when is drawn by chance
    rounds = tuple(replace(round_, boot=order[round_.boot]) for round_ in recorded.rounds)
    names: Any = chart_of(result(recorded=replace(recorded, rounds=rounds)), "Requests").layout["annotations"]
    assert [(name["text"], name["x"]) for name in names] == [("boot 1", 0), ("boot 2", 1), ("boot 3", 2)]


def test_rounds_stand_against_baseline_limit_and_the_rate_that_was_due() -> None:
    verdict = Verdict(limits=(TOO_FEW,), comparisons=(PASSED, TAIL_IMPROVED))
    shown = replace(result(recorded=recording(), verdict=verdict), identity={"load": {"rate": 2500}})
    rates, latencies = chart_of(shown, "Requests per second"), chart_of(shown, "Latency over time")
    assert [trace["name"] for trace in rates.traces] == ["requests/s", "due", "baseline rps", "min_rps"]
    assert trace_of(rates, "due")["y"] == [2500, 2500]
    assert trace_of(rates, "min_rps")["y"] == [2400, 2400]
    assert trace_of(latencies, "baseline p99")["y"] == [42.162, 42.162]


def test_failures_have_marks_of_their_own() -> None:
    chart = chart_of(result(recorded=recording(failures=FAILURES)), "Requests per second")
    assert trace_of(chart, "failed/s")["y"][:2] == [28, 0]


def test_percentiles_of_few_requests_are_hollow() -> None:
    chart = chart_of(result(recorded=recording(requests=100)), "Latency over time")
    assert set(trace_of(chart, "p50")["marker"]["symbol"]) == {"circle"}
    assert set(trace_of(chart, "p99")["marker"]["symbol"]) == {"diamond-open"}


@pytest.mark.parametrize("drain_s,rounds", [(40.0, 5), (0.1, 4)])
def test_a_drain_is_drawn_where_it_is_as_long_as_a_round(drain_s: float, rounds: int) -> None:
    chart = chart_of(result(recorded=open_loop(drain_s=drain_s)), "Requests per second")
    assert len(trace_of(chart, "requests/s")["x"]) == rounds


def test_lead_times_of_single_requests_are_points() -> None:
    trace = trace_of(chart_of(result(recorded=open_loop()), "Lead time"), "request")
    assert trace["mode"] == "markers"
    assert trace["x"][:3] == [0, 0.1, 0.2]
    assert trace["y"][:3] == [1, 1.2, 1.4]


def test_lead_times_of_many_requests_are_lines_of_fewer_stretches() -> None:
    count = 500
    leads = LeadTimes(
        due_ns=tuple(range(count)),
        counts=(3,) * count,
        mean_ns=(2 * SECOND_NS,) * count,
        max_ns=(3 * SECOND_NS,) * count,
    )
    recorded = open_loop()
    recorded = replace(recorded, boots=tuple(replace(boot, leads=leads) for boot in recorded.boots))
    chart = chart_of(result(recorded=recorded), "Lead time")
    assert [trace["name"] for trace in chart.traces] == ["slowest", "mean"]
    for trace, lead in zip(chart.traces, (3, 2), strict=True):
        drawn: Any = trace
        assert len(drawn["y"]) <= 120
        assert set(drawn["y"]) == {lead}


def test_cpu_is_drawn_for_each_worker_and_the_generator() -> None:
    chart = chart_of(result(recorded=watched(recording(boots=2), workers=2)), "CPU")
    assert [trace["name"] for trace in chart.traces] == ["worker 1", "worker 2", "generator"]
    for name, share in (("worker 1", 90), ("worker 2", 80), ("generator", 50)):
        drawn = trace_of(chart, name)["y"]
        assert drawn.count(None) == 1  # between the boots
        assert [each for each in drawn if each is not None] == pytest.approx([share] * 14, abs=0.01)


@pytest.mark.parametrize("workers", [4, 5])
def test_lines_do_not_differ_in_colour_alone(workers: int) -> None:
    recorded = watched(recording(boots=1), workers=workers, growing=1, busy=True)
    for title in ("CPU", "Threads"):
        lines: list[Any] = [trace["line"] for trace in chart_of(result(recorded=recorded), title).traces]
        assert len({line["dash"] for line in lines}) == len(lines)


def test_many_workers_are_drawn_as_the_busiest_the_mean_and_the_idlest() -> None:
    chart = chart_of(result(recorded=watched(recording(boots=1), workers=5)), "CPU")
    shares = {str(trace["name"]): trace_of(chart, str(trace["name"]))["y"][0] for trace in chart.traces}
    assert shares == pytest.approx(
        {"busiest worker": 90, "mean of the workers": 70, "idlest worker": 50, "generator": 50}, abs=0.01
    )


def test_without_known_workers_the_server_is_drawn_as_a_whole() -> None:
    recorded = watched(recording(boots=1), workers=2)
    recorded = replace(recorded, boots=tuple(replace(boot, worker_pids=()) for boot in recorded.boots))
    trace = trace_of(chart_of(result(recorded=recorded), "CPU"), "server")
    assert trace["y"][0] == pytest.approx(170, abs=0.01)


def test_memory_stands_against_its_limit() -> None:
    limit = replace(TOO_FEW, name="max_rss", metric="rss", limit=float(512 << 20))
    chart = chart_of(result(recorded=watched(recording()), verdict=Verdict(limits=(limit,))), "Memory")
    assert trace_of(chart, "memory")["y"][0] == 100
    assert trace_of(chart, "max_rss")["y"] == [512, 512]


def test_threads_and_files_are_drawn_where_they_change() -> None:
    recorded = watched(recording(boots=1), growing=1, busy=True)
    threads, files = (chart_of(result(recorded=recorded), title) for title in ("Threads", "Open files"))
    assert trace_of(threads, "threads")["y"][:3] == [10, 11, 12]
    assert trace_of(threads, "busy threads")["y"][:3] == [0, 1, 2]
    assert trace_of(files, "open files")["y"][:3] == [80, 81, 82]


def test_data_does_not_grow_with_the_length_of_a_run() -> None:
    recorded = watched(recording(requests=30, boots=2, rounds=3 * MOST_POINTS), looks=3 * MOST_POINTS, growing=1)
    charts = charts_of(result(recorded=recorded))
    assert len(charts) == 7
    for chart in charts:
        for trace in chart.traces:
            drawn: Any = trace
            assert len(drawn["x"]) <= MOST_POINTS + 10
    whole = trace_of(chart_of(result(recorded=recorded), "Requests per second"), "requests/s")
    assert set(whole["y"]) == {60}


def test_a_mark_of_several_rounds_has_what_each_of_them_gains_and_loses() -> None:
    """A request that ends in a round and began in the one before is shared out between both."""
    recorded = recording(requests=30, boots=1, rounds=2 * MOST_POINTS)
    shifts = cycle([Carried(parts=9 * PARTS), Carried(parts=-9 * PARTS)])
    rounds = tuple(replace(round_, carried=carried) for round_, carried in zip(recorded.rounds, shifts, strict=False))
    shown = result(recorded=replace(recorded, rounds=rounds))
    assert set(trace_of(chart_of(shown, "Requests per second"), "requests/s")["y"]) == {60}


@given(st.integers(0, 1000), st.integers(2, 300))
def test_thinning_keeps_the_ends_and_the_order(count: int, most: int) -> None:
    kept = thinned(range(count), most)
    assert len(kept) == min(count, most)
    assert all(earlier < later for earlier, later in pairwise(kept))
    assert not count or (kept[0], kept[-1]) == (0, count - 1)


def test_charts_hold_numbers_that_json_can_hold() -> None:
    for each in (*every_kind(), result(recorded=watched(open_loop(boots=3)))):
        for chart in charts_of(each):
            drawn: Any = chart.traces
            assert all(number is None or math.isfinite(number) for trace in drawn for number in trace["y"])
