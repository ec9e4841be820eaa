"""What every report shows alike: figures that agree, events of streams, and tests that failed for another reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import PASSED, recording, result

from pytest_fileperf.errors import RegressionError
from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import FailedTest, Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Verdict, agreeing, as_the_run_shows
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.measurement import measurement_of
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.plugin.measuring import properties
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import read_record, results_json
from pytest_fileperf.report.story import summary_line
from pytest_fileperf.report.terminal import session_text, terminal_report
from pytest_fileperf.report.wording import typical_text, world_text

# --- before, after and the change between them agree in every report, to the digits shown, and with the run's own row

SIZES = {
    "ns": 1e-9,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "B": 1.0,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "": 1.0,
}
FIGURE = r"(\d[\d,]*(?:\.\d+)?)(?: ?(ns|µs|ms|s|B|KiB|MiB|GiB))?(?:/s)?"
CHANGE = r"([+−]\d+(?:\.\d+)?)"


def span(digits: str, unit: str) -> tuple[float, float]:
    """Returns between which values a figure lies that is shown with these digits."""
    decimals = len(digits.partition(".")[2])
    value, half = float(digits.replace(",", "")), 0.5 * 10.0**-decimals
    return (value - half) * SIZES.get(unit, 1.0), (value + half) * SIZES.get(unit, 1.0)


def assert_agrees(base: tuple[str, str], now: tuple[str, str], change: str) -> None:
    """Some values of both sides that are shown like this have a change that is shown like this."""
    (base_low, base_high), (now_low, now_high) = span(*base), span(*now)
    told, half = float(change.replace("−", "-")), 0.5 * 10.0 ** -len(change.partition(".")[2])
    lowest = 100 * (now_low / base_high - 1)
    highest = 100 * (now_high / base_low - 1) if base_low > 0 else float("inf")
    assert lowest <= told + half * 1.000001
    assert told - half * 1.000001 <= highest


def assert_all_agree(found: Iterable[tuple[str, ...]], expected: int) -> None:
    found = list(found)
    assert len(found) == expected
    for base, base_unit, now, now_unit, change in found:
        assert_agrees((base, base_unit), (now, now_unit), change)


comparisons = st.builds(
    MetricComparison,
    metric=st.sampled_from(
        [name for name, each in METRICS.items() if name not in ("capacity", "error_rate") and each.events is None]
    ),
    outcome=st.just(Outcome.REGRESSED),
    tolerance=st.just(0.03),
    base=st.floats(1e-3, 1e6),
    now=st.floats(1e-3, 1e6),
    change=st.floats(-0.9, 9.0),
    low=st.just(-0.95),
    high=st.just(10.0),
    confidence=st.just(0.9),
)


@given(comparison=comparisons, now=st.floats(1e-6, 1e9), base=st.floats(1e-6, 1e9))
def test_both_sides_are_those_measured_and_the_change_is_theirs(
    comparison: MetricComparison, now: float, base: float
) -> None:
    agreed = agreeing(comparison, now, base)
    assert (agreed.base, agreed.now) == (base, now)
    assert agreed.change == pytest.approx(now / base - 1, rel=1e-9, abs=1e-12)
    assert agreed.low is not None
    assert agreed.high is not None
    assert agreed.change is not None
    assert agreed.low <= agreed.change <= agreed.high


@pytest.mark.parametrize(
    "measured,low,high,typical",
    [
        (985.0, -0.02, 0.005, None),
        (900.0, -0.12, 0.01, 0.002),  # the interval of the counts, in which the stalls are
        (800.0, -0.2, 0.01, 0.002),  # beyond that one as well
    ],
)
def test_the_interval_is_one_that_has_the_change(
    measured: float, low: float, high: float, typical: float | None
) -> None:
    judged = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=1.0, now=1.0, change=0.002, low=-0.02, high=0.005,
        total=(-0.12, 0.01),
    )  # fmt: skip
    found = agreeing(judged, measured, 1000.0)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.typical == typical
    assert bool(typical_text(found)) == (typical is not None)


@pytest.mark.parametrize(
    "pairs,measured,outcome",
    [
        (8, 985.0, Outcome.PASS),
        (8, 960.0, Outcome.INCONCLUSIVE),
        (None, 960.0, Outcome.PASS),
        (8, 1200.0, Outcome.PASS),
    ],
)
def test_no_pass_has_a_figure_that_is_worse_by_more_than_its_tolerance(
    pairs: int | None, measured: float, outcome: Outcome
) -> None:
    judged = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=1000.0, now=1.0, change=0.0, low=-0.02, high=0.02,
        pairs=pairs,
    )  # fmt: skip
    now, base = (recording(requests=round(rate), boots=1, rounds=1) for rate in (measured, 1000.0))
    (seen,) = as_the_run_shows((judged,), now, base)
    assert seen.outcome is outcome


@pytest.mark.parametrize(
    "base,now,change,own,agreed",
    [
        (2189.0, 1928.0, -0.156, 1915.0, (2189.0, 1915.0)),
        (0.0648, 0.0627, None, 0.0630, (0.0648, 0.0630)),
        (None, 2050.0, None, 2040.0, (None, 2040.0)),
        (2190.0, None, None, 2040.0, (2190.0, None)),
        (2190.0, 2050.0, -0.064, None, (2190.0, 2050.0)),
        (2190.0, 2050.0, -1.0, 0.0, (2190.0, 0.0)),
    ],
)
def test_what_is_not_known_stays(
    base: float | None,
    now: float | None,
    change: float | None,
    own: float | None,
    agreed: tuple[float | None, float | None],
) -> None:
    comparison = MetricComparison(metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=base, now=now, change=change)
    found = agreeing(comparison, own, base)
    assert (found.base, found.now) == pytest.approx(agreed)


def compared(found: Iterable[MetricComparison], requests: int, slowest_ms: float) -> Result:
    """Returns a result with these changes."""
    recorded = recording(requests=requests, slowest_ms=slowest_ms, boots=1, rounds=2)
    measured = [
        replace(item, base=(METRICS[item.metric].of_run(recorded) or 1.0) / (1 + (item.change or 0.0)))
        for item in found
    ]
    return result(recorded=recorded, verdict=Verdict(comparisons=tuple(measured)))


runs = st.builds(
    compared,
    st.lists(comparisons, min_size=1, max_size=3, unique_by=lambda item: item.metric),
    st.integers(20, 5000),
    st.floats(6, 900),
)


@settings(max_examples=40, deadline=None)
@given(shown=runs)
def test_every_report_shows_before_after_and_a_change_that_agree(shown: Result) -> None:
    count = len(shown.verdict.comparisons)
    text = terminal_report(session_record([shown]), width=200)
    assert_all_agree(re.findall(rf"  {FIGURE} → {FIGURE}\s+{CHANGE}(?: %)? \[", text), count)

    with pytest.raises(RegressionError) as raised:
        raise_for(shown, strict=False, ci=False)
    rows = re.findall(rf"^\w+ +{FIGURE} +{FIGURE} +{CHANGE} \[", str(raised.value), re.MULTILINE)
    assert_all_agree(rows, count)

    page = results_html(session_record([shown]))
    assert_all_agree(re.findall(rf"</b> {FIGURE} → {FIGURE} <b>{CHANGE} %</b>", page), count)
    cell = '<td class="number"[^>]*>'
    cells = rf"{cell}{FIGURE}</td>{cell}{FIGURE}</td>{cell}<b>{CHANGE} %</b>"
    assert_all_agree(re.findall(cells, page), count)

    summary = markdown_report(session_record([shown]))
    assert_all_agree(re.findall(rf"\| {FIGURE} → {FIGURE} \| {CHANGE} % ", summary), count)
    (said,) = github_commands(session_record([shown]))
    rows = re.findall(rf"{CHANGE} % \[[^]]*\], {FIGURE} → {FIGURE}", said.replace("%25", "%"))
    assert_all_agree([(*row[1:], row[0]) for row in rows], count)

    (told,) = json.loads(results_json(session_record([shown])))["results"]
    for item in told["verdict"]["comparisons"]:
        assert item["now"] / item["base"] - 1 == pytest.approx(item["change"])


@settings(max_examples=40, deadline=None)
@given(shown=runs)
def test_a_comparison_and_the_run_show_one_figure(shown: Result) -> None:
    """In the table, in JUnit's properties, in the JSON file's summary, and in what the test's own asserts see."""
    run, to_junit = shown.measurement, dict(properties(shown))
    (told,) = json.loads(results_json(session_record([shown])))["results"]
    for item in shown.verdict.comparisons:
        if item.metric == "rps":
            assert item.now == run.rps == told["summary"]["rps"]
            assert to_junit["fileperf_rps"] == pytest.approx(item.now, abs=1e-3)
        if item.metric == "p99":
            assert item.now == run.latency.p99 == told["summary"]["latency"]["p99"]
            assert to_junit["fileperf_p99"] == pytest.approx(item.now, abs=1e-9)


@given(base=st.floats(1e-3, 1e6), change=st.floats(-0.9, 9.0))
def test_what_the_world_did_is_a_change_from_what_is_stored(base: float, change: float) -> None:
    world = MetricComparison(
        metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=base, now=base * (1 + change), change=change
    )
    found = re.search(
        rf"runs at ([\d.]+) of what was stored \(rps {CHANGE} % from", world_text(Verdict(world=(world,)))
    )
    assert found is not None
    assert float(found[2].replace("−", "-")) / 100 + 1 == pytest.approx(float(found[1]), abs=0.0106)


# --- the events of streams in every report, and no word of them where there are none

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


# --- tests that failed for another reason than a figure, in every report

DIED = FailedTest(
    nodeid="tests/test_files.py::test_form",
    module="tests/test_files.py",
    name="test_form",
    line=12,
    message="uvicorn ×1 ended with exit status 3\nlast lines of its log:\n  | <b>no space</b>",
)
LEFT = FailedTest(nodeid="other.py::test_a|b", module="other.py", name="test_a|b", phase="teardown", message="KeyError")
PASS = result(verdict=Verdict(comparisons=(PASSED,)))


def record(*failed: FailedTest, measured: bool = True) -> SessionRecord:
    return replace(session_record([PASS] * measured), failed=failed)


@pytest.mark.parametrize(
    "failed, measured, line",
    [
        ((DIED,), True, "1 measured: 1 PASS; 1 test failed for another reason"),
        ((DIED, replace(DIED, phase="teardown"), LEFT), True, "1 measured: 1 PASS; 2 tests failed for other reasons"),
        ((DIED,), False, "nothing was measured; 1 test failed"),
        ((), False, "nothing was measured"),
    ],
)
def test_they_are_counted(failed: tuple[FailedTest, ...], measured: bool, line: str) -> None:
    assert summary_line([PASS] * measured, failed) == line


def test_markdown_has_a_line_for_each_and_all_they_said_folded() -> None:
    assert markdown_report(record(DIED, LEFT, measured=False)) == (
        "## Load tests: nothing was measured; 2 tests failed\n"
        "\n"
        "- `tests/test_files.py::test_form` failed: uvicorn ×1 ended with exit status 3\n"
        "- <code>other.py::test\\_a&#124;b</code> failed after it ran: KeyError\n"
        "\n"
        "<details>\n"
        "<summary>what these tests said</summary>\n"
        "\n"
        "`tests/test_files.py::test_form`\n"
        "\n"
        "```text\n"
        "uvicorn ×1 ended with exit status 3\n"
        "last lines of its log:\n"
        "  | <b>no space</b>\n"
        "```\n"
        "\n"
        "\n"
        "</details>\n"
    )


def test_a_page_has_a_section_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")
    text = results_html(record(DIED))
    assert '<section id="failed"><h2>Tests that failed for another reason than a figure</h2>' in text
    assert "| &lt;b&gt;no space&lt;/b&gt;</pre>" in text
    assert "1 test failed for another reason</span>" in text
    assert 'id="failed"' not in results_html(record())


def test_a_page_of_nothing_but_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")
    text = results_html(record(DIED, measured=False))
    assert "nothing was measured" in text
    assert "Each test" not in text


def test_the_text_of_a_file_has_them_as_pytest_is_not_there_to_tell() -> None:
    text = session_text(record(DIED, LEFT))
    assert text.endswith(
        "test_form (tests/test_files.py:12) failed\n"
        "  uvicorn ×1 ended with exit status 3\n"
        "  last lines of its log:\n"
        "    | <b>no space</b>\n"
        "test_a|b failed after it ran\n"
        "  KeyError\n"
    )


def test_each_is_an_error_at_the_line_of_its_test() -> None:
    assert github_commands(record(DIED), root="service") == [
        "::error file=service/tests/test_files.py,line=12,title=FAILED test_form::uvicorn ×1 ended with exit status 3"
    ]


def test_a_file_of_results_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(results_json(record(DIED, LEFT)), encoding="utf-8")
    assert read_record(path).failed == (DIED, LEFT)
