"""The page as a browser reads it: whole, nothing in it that was not put there, and no more data than can be seen.

What it shows is compared in `test_goldens`.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import cycle, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.samples import ERRORS, NEW, REGRESSED, recording, result, stored, watched
from report.test_goldens import WITH_A_PAGE

from pytest_fileperf.judge.groups import Asked, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import MetricComparison, Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.metrics import Unit
from pytest_fileperf.measure.recording import PARTS, Carried, Failure
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart, Line, axis, thinned
from pytest_fileperf.report.page.markup import raw_element
from pytest_fileperf.report.story import is_pressing
from pytest_fileperf.report.table import row_names
from pytest_fileperf.report.wording import word_of

EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;{{7*7}}-->"
VOID = ("input", "meta")


# --- what a browser would make of it


@dataclass
class Node:
    tag: str
    attributes: dict[str, str]
    parent: Node | None = None
    content: list[Node | str] = field(default_factory=list)

    def all(self, tag: str, class_: str | None = None) -> Iterator[Node]:
        """Yields the elements below with this tag, and this class among theirs, in order."""
        for child in self.content:
            if isinstance(child, Node):
                if child.tag == tag and (class_ is None or class_ in child.attributes.get("class", "").split()):
                    yield child
                yield from child.all(tag, class_)

    def first(self, tag: str, class_: str | None = None) -> Node:
        return next(self.all(tag, class_))

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.content)


class TreeBuilder(HTMLParser):
    """Builds the tree, and asserts that every element is closed where it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.root = self._at = Node("", {})

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len(dict(attributes)) == len(attributes), f"<{tag}> has an attribute twice"
        node = Node(tag, {key: value or "" for key, value in attributes}, self._at)
        self._at.content.append(node)
        if tag not in VOID:
            self._at = node

    def handle_endtag(self, tag: str) -> None:
        assert self._at.tag == tag, f"</{tag}> in <{self._at.tag}>"
        assert self._at.parent is not None
        self._at = self._at.parent

    def handle_data(self, data: str) -> None:
        self._at.content.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data[:80]}")

    def done(self) -> Node:
        self.close()
        assert self._at is self.root, f"<{self._at.tag}> is not closed"
        return self.root


def tree_of(text: str) -> Node:
    builder = TreeBuilder()
    builder.feed(text)
    return builder.done()


def page(*results: Result) -> Node:
    return tree_of(results_html(session_record(results)))


# --- the page of each stored session


@pytest.mark.parametrize("session", WITH_A_PAGE)
def test_a_page_is_whole_and_needs_nothing_from_anywhere(session: str) -> None:
    text = results_html(stored(session))
    assert re.findall(r"https?:", text) == []
    tree = tree_of(text)
    tags = ("article", "details", "section", "div")
    ids = [node.attributes["id"] for tag in tags for node in tree.all(tag) if "id" in node.attributes]
    assert len(set(ids)) == len(ids)
    links = [link.attributes["href"] for link in tree.all("a")]
    assert all(link.startswith("#") for link in links)
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert [node for tag in ("link", "img", "iframe", "object", "base", "form") for node in tree.all(tag)] == []
    assert all("src" not in node.attributes for tag in ("svg", "div", "script") for node in tree.all(tag))

    levels = [int(tag[1]) for tag in re.findall("<(h[1-6])", text)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(cell.attributes.get("scope") and cell.text for cell in tree.all("th"))
    assert all(list(row.all("th")) for row in tree.all("tr"))


@pytest.mark.parametrize("session", WITH_A_PAGE)
def test_each_test_is_told_once_and_what_needs_attention_is_open(session: str) -> None:
    results = stored(session).results
    tree = page(*results)
    tests = list(tree.all("details", "test"))
    assert sorted(test.first("h3").text for test in tests) == sorted(row_names(results))
    urgent = [list(part.all("details", "test")) for part in tree.all("section") if part.attributes.get("id")]
    opened = [test for test in tests if "open" in test.attributes]
    assert opened == [test for part in urgent for test in part]
    assert len(opened) == sum(map(is_pressing, results))
    assert all("open" not in part.attributes for test in tests for part in test.all("details")), "charts are drawn"
    assert Counter(test.attributes["data-outcome"] for test in tests) == Counter(
        word_of(result.standing) for result in results
    )
    assert sum(map(int, re.findall(r"\d+", tree.first("p", "lead").text))) == len(results)
    titles = [figure.first("figcaption").first("b").text for figure in tree.all("figure")]
    assert sorted(titles) == sorted(chart.title for result in results for chart in charts_of(result))


def test_a_stored_regression_is_not_called_passed() -> None:
    accepted = result(verdict=Verdict(comparisons=(REGRESSED,))).having(baseline_written=True)
    tree = page(accepted)
    assert tree.first("p", "lead").text == "1 test got worse and became the new baseline."
    assert "open" in tree.first("details", "test").attributes


@pytest.mark.parametrize("metric,change,begins", [("queries", 1.0, "100"), ("p50", 1.0, "100"), ("rps", -0.5, "0")])
def test_without_a_tolerance_the_bad_side_is_shaded(metric: str, change: float, begins: str) -> None:
    worse = MetricComparison(
        metric=metric,
        outcome=Outcome.REGRESSED,
        tolerance=0.0,
        base=2.0,
        now=2.0 * (1 + change),
        change=change,
        low=change,
        high=change,
    )
    shaded = page(result(verdict=Verdict(comparisons=(worse,)))).first("rect", "worse").attributes
    assert (shaded["x"], shaded["width"]) == (begins, "100")


def test_only_the_script_that_was_put_in_may_run() -> None:
    tree = page(result())
    (policy,) = (
        node.attributes["content"]
        for node in tree.all("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    (script,) = tree.all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_a_commit_is_a_link_only_to_an_address_of_the_web() -> None:
    for url, linked in (("https://github.com/a/b/commit/1", True), ("javascript:alert(1)", False), (None, False)):
        record = replace(session_record([result()]), commit={"id": "1a2b3c4d5e6f", "branch": "main", "url": url})
        links = [link.attributes["href"] for link in tree_of(results_html(record)).all("a")]
        assert links == [url] * linked


def test_hundreds_of_tests_are_a_page_that_opens_quickly() -> None:
    """By its size: 25 kB a test are 5 MB for 200."""
    (shown,) = (each for each in stored("in_turn").results if each.test.name == "test_slower")
    assert len(results_html(session_record([shown] * 20))) < 20 * 25_000


# --- nothing gets out of its place


def test_text_stays_text_wherever_it_comes_from() -> None:
    evil = Failure(kind=f"status {EVIL}", count=3, example=EVIL)
    recorded = recording(failures=(evil,), engine="client", why_engine=EVIL)
    evil_reason = Reason(kind=ReasonKind.ABSENT, text=EVIL)
    comparisons = (replace(REGRESSED, reason=evil_reason), *(replace(new, reason=evil_reason) for new in NEW))
    verdict = Verdict(comparisons=comparisons, limits=(replace(ERRORS, name=EVIL, reason=evil_reason),))
    members = [
        result(
            f"{EVIL}[{EVIL}{row}-{EVIL}{column}]",
            recorded=recorded,
            verdict=verdict,
            group=EVIL,
            work=EVIL,
            server=EVIL,
            load=EVIL,
            nodeid=f"{EVIL}{row}{column}",
            params={EVIL: f"{EVIL}{row}", "other": f"{EVIL}{column}"},
        )
        for row in range(2)
        for column in range(2)
    ]
    labelled = result(recorded=recorded, label=EVIL)
    record = replace(
        session_record([labelled, *members]),
        asked=Asked(command=EVIL),
        commit={"id": EVIL, "branch": EVIL},
        environment={"cpu": EVIL, "packages": {EVIL: EVIL}},
    )
    tree = tree_of(results_html(record))
    assert len(list(tree.all("script"))) == 1
    assert list(tree.all("img")) == []
    assert tree.first("pre").text == EVIL
    assert tree.first("section", "group").first("h3").text == EVIL
    headings = [cell.text for cell in tree.first("table", "grid").all("th")]
    assert headings == ["other", EVIL, f"{EVIL}0", f"{EVIL}1", f"{EVIL}0", f"{EVIL}1"]
    assert EVIL in [test.first("h3").text for test in tree.all("details", "test")]
    (title,) = tree.all("title")
    assert "alert" not in title.text


def test_characters_that_files_cannot_hold_or_that_turn_text_round_are_left_out() -> None:
    odd = Failure(kind="protocol", count=1, example="a\x00b\x1bc\ud800d\u202ee\r\nf\tg")
    tree = page(result(recorded=recording(failures=(odd,))))
    assert tree.first("pre").text == "a\ufffdb\ufffdc\ufffdde\nf\tg"


@pytest.mark.parametrize("content", ["a </SCRIPT> b", "<!-- a"])
def test_a_script_that_would_end_early_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="would end its script element early"):
        raw_element("script", content)


# --- charts show what was measured, no more of it than can be seen


def chart_of(result: Result, title: str) -> Chart:
    (chart,) = (chart for chart in charts_of(result) if chart.title.startswith(title))
    return chart


def line_of(chart: Chart, name: str) -> Line:
    (line,) = (line for line in chart.lines if line.name == name)
    return line


@given(st.lists(st.integers(1_000, 10**10), min_size=20, max_size=400), st.floats(0.1, 99.99))
def test_the_curve_of_percentiles_tells_each_of_them(latencies_ns: list[int], percent: float) -> None:
    histogram = Histogram.of(latencies_ns)
    few = recording(requests=4, boots=1, rounds=1)
    (round_,) = few.rounds
    shown = result(recorded=replace(few, rounds=(replace(round_, requests=histogram.count, latency=histogram),)))
    points = line_of(chart_of(shown, "Latency by percentile"), "latency").points
    assert len(points) <= MOST_POINTS + 2
    place = 100 / (100 - percent)
    # Between two points of the curve, which may stand for many steps, lies the value itself. A step at this very
    # percentile may be on either side of it.
    steps = [y for x, y in points if x <= place * 0.9999]
    following = next((y for x, y in points if x > place * 1.0001), points[-1][1])
    assert steps[-1] is not None
    assert following is not None
    assert steps[-1] * 0.999 <= histogram.percentile_ns(percent) / 1e9 <= following * 1.001


def test_data_does_not_grow_with_the_length_of_a_run() -> None:
    recorded = watched(recording(requests=30, boots=2, rounds=3 * MOST_POINTS), looks=3 * MOST_POINTS, growing=1)
    shown = result(recorded=recorded)
    charts = charts_of(shown)
    assert len(charts) == 7
    assert all(len(line.points) <= MOST_POINTS + 10 for chart in charts for line in chart.lines)
    whole = line_of(chart_of(shown, "Requests per second"), "requests/s")
    assert {y for _, y in whole.points} == {60}


def test_a_mark_of_several_rounds_has_what_each_of_them_gains_and_loses() -> None:
    """A request that ends in a round and began in the one before is shared out between both."""
    recorded = recording(requests=30, boots=1, rounds=4 * MOST_POINTS)
    shifts = cycle([Carried(parts=9 * PARTS), Carried(parts=-9 * PARTS)])
    rounds = tuple(replace(round_, carried=carried) for round_, carried in zip(recorded.rounds, shifts, strict=False))
    shown = result(recorded=replace(recorded, rounds=rounds))
    assert {y for _, y in line_of(chart_of(shown, "Requests per second"), "requests/s").points} == {60}


@pytest.mark.parametrize(
    "values,unit,ticks",
    [
        ([0.0312], Unit.SECONDS, ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]),
        ([0.9e-6], Unit.SECONDS, ["0 µs", "0.5 µs", "1 µs"]),
        ([-0.081, 0.02], Unit.SHARE, ["−10 %", "−5 %", "0 %", "5 %"]),
        ([2190.0], Unit.PER_SECOND, ["0/s", "1,000/s", "2,000/s", "3,000/s"]),
        ([68 << 20], Unit.BYTES, ["0 MiB", "20 MiB", "40 MiB", "60 MiB", "80 MiB"]),
        ([0.0], Unit.COUNT, ["0", "0.5", "1"]),
        ([None], Unit.COUNT, ["0", "0.5", "1"]),
    ],
)
def test_an_axis_has_few_round_ticks(values: list[float | None], unit: Unit, ticks: list[str]) -> None:
    found = axis(values, unit)
    assert [text for _, text in found.ticks] == ticks
    assert all(found.low <= value <= found.high for value in values if value is not None)


@given(st.lists(st.floats(1e-9, 1e12), min_size=1), st.sampled_from(Unit), st.booleans())
def test_an_axis_holds_its_values_at_few_ticks(values: list[float], unit: Unit, log: bool) -> None:
    found = axis(values, unit, log=log)
    assert all(0 <= found.share(value) <= 1 for value in values)
    assert found.low <= min(values) * 1.001
    assert found.high >= max(values) * 0.999
    assert 2 <= len(found.ticks) <= (22 if log else 7)


@given(st.integers(0, 1000), st.integers(2, 300))
def test_thinning_keeps_the_ends_and_the_order(count: int, most: int) -> None:
    kept = thinned(range(count), most)
    assert len(kept) == min(count, most)
    assert all(earlier < later for earlier, later in pairwise(kept))
    assert not count or (kept[0], kept[-1]) == (0, count - 1)
