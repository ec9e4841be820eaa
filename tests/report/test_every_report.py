"""Before, after and the change between them agree in every report, to the digits shown, and with the run's own row.

What CI shows is well formed with any names and text, and of many tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from html import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import PASSED, REGRESSED, TOO_FEW, recording, result

from pytest_fileperf.errors import RegressionError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Verdict, agreeing, as_the_run_shows
from pytest_fileperf.measure.metrics import METRICS
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.plugin.measuring import properties
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import session_text
from pytest_fileperf.report.text import Screen
from pytest_fileperf.report.wording import typical_text

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
        [
            name
            for name, each in METRICS.items()
            if name not in ("capacity", "startup", "queries", "error_rate")
            and each.events is None  # the samples have no such figure
        ]
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


def test_what_is_not_known_stays() -> None:
    for base, now, change, own, agreed in (
        (2189.0, 1928.0, -0.156, 1915.0, (2189.0, 1915.0)),
        (0.0648, 0.0627, None, 0.0630, (0.0648, 0.0630)),
        (None, 2050.0, None, 2040.0, (None, 2040.0)),
        (2190.0, None, None, 2040.0, (2190.0, None)),
        (2190.0, 2050.0, -0.064, None, (2190.0, 2050.0)),
        (2190.0, 2050.0, -1.0, 0.0, (2190.0, 0.0)),
    ):
        item = MetricComparison(metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=base, now=now, change=change)
        found = agreeing(item, own, base)
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


@settings(max_examples=15)
@given(shown=runs)
def test_every_report_shows_before_after_and_a_change_that_agree(shown: Result) -> None:
    count = len(shown.verdict.comparisons)
    text = session_text(session_record([shown]), Screen(width=200))
    assert_all_agree(re.findall(rf"  {FIGURE} → {FIGURE}\s+{CHANGE}(?: %)? \[", text), count)

    with pytest.raises(RegressionError) as raised:
        raise_for(shown, strict=False, ci=False)
    rows = re.findall(rf"^\w+ +{FIGURE} +{FIGURE} +{CHANGE} \[", str(raised.value), re.MULTILINE)
    assert_all_agree(rows, count)

    page = results_html(session_record([shown]))
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


@settings(max_examples=15)
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


# --- annotations, as GitHub's commands


def commands(*results: Result) -> list[str]:
    return github_commands(session_record(results))


@pytest.mark.parametrize(
    "name,title",
    [
        ("test_a[x:y,z]", "LIMIT test_a[x%3Ay%2Cz]"),
        ("test_a[50%]", "LIMIT test_a[50%25]"),
        ("test_a[%0A]", "LIMIT test_a[%250A]"),
        ("test_a[1\r\n::error::x]", "LIMIT test_a[1 %3A%3Aerror%3A%3Ax]"),
    ],
)
def test_no_name_ends_a_command_or_begins_another(name: str, title: str) -> None:
    (command,) = commands(result(name, module="a:b,c.py", verdict=Verdict(limits=(TOO_FEW,))))
    assert command == f"::error file=a%3Ab%2Cc.py,line=1,title={title}::min_rps 2,400/s, measured 2,050/s"


def many(count: int) -> Sequence[Result]:
    return [result(f"test_{number}", verdict=Verdict(comparisons=(REGRESSED,))) for number in range(count)]


def test_of_more_than_github_shows_the_last_one_counts_the_others() -> None:
    assert len(commands(*many(10))) == 10
    shown = commands(*many(12))
    assert len(shown) == 10
    names = ", ".join(f"tests/test_files.py::test_{number}" for number in (9, 10, 11))
    assert shown[-1] == f"::error title=3 more tests failed::{names}"


# --- Markdown


EVIL = "a|b`c`<img src=x>*d*_e_[f](g)~~h~~@someone#1&amp;\\|\n| x |"


def report(*results: Result, limit_bytes: int = 1 << 20) -> str:
    return markdown_report(session_record(results), limit_bytes=limit_bytes)


def test_one_endpoint_is_no_plural() -> None:
    record = replace(session_record([result("test_get")]), endpoints={"app:app": {"GET /": True}})
    assert "- 1 of 1 endpoint has a load test\n" in markdown_report(record)


def test_no_text_becomes_markup() -> None:
    failed = recording(failures=(Failure(kind=EVIL, count=1, example=EVIL),))
    evil = result(EVIL, recorded=failed, server=EVIL, group=EVIL, verdict=Verdict(comparisons=(REGRESSED,)))
    evil = replace(evil, explanation=Explanation(text=f"{EVIL}\n```\n````"))
    calm = result(EVIL, module="other.py", label=EVIL, group=EVIL, verdict=Verdict(comparisons=(PASSED,)))
    text = report(evil, calm)
    block = re.search(r"^(`{5,})text\n.*?\n\1$", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    for line in text.replace(block[0], "").splitlines():
        if line.startswith("<summary>ranked: "):
            assert line == f"<summary>ranked: <code>{escape(' '.join(EVIL.split()))}</code></summary>"
            continue
        tags = re.findall(r"<(/?\w+)", line)
        assert {*tags} <= {"code", "/code", "details", "/details", "summary", "/summary"}
        assert not re.search(r"(?<!\\)[`*_\[](?!`)", re.sub(r"`[^`]*`|\*\*[A-Z]+\*\*", "", line)), line
        if line.startswith("|"):
            assert line.count("|") in (7, 8), line  # six or seven columns


def test_a_long_report_is_cut_after_a_line_and_says_so() -> None:
    short = recording(boots=1, rounds=1)
    regressed, passed = (Verdict(comparisons=(each,)) for each in (REGRESSED, PASSED))
    results = [result(f"test_ü{number}", recorded=short, verdict=regressed) for number in range(20)]
    results += [result(f"test_{number}", recorded=short, verdict=passed) for number in range(200)]
    for limit_bytes in (2_000, 10_000):
        text = report(*results, limit_bytes=limit_bytes)
        assert limit_bytes - 1000 < len(text.encode()) <= limit_bytes
        assert text.count("<details>") == text.count("</details>")
        assert re.search(r"\n\nThe report was cut here: it is longer than .*\n\Z", text)
        assert text.startswith("## Load tests: 220 measured: 200 PASS, 20 REGRESSED")
