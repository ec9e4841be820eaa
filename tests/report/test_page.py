"""The page as a browser reads it: whole, nothing in it that was not put there, and no more data than can be seen.

What it shows is compared in `test_goldens`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import ERRORS, GOLDEN, NEW, REGRESSED, recording, result, stored, watched
from report.test_goldens import WITH_A_PAGE
from texts import texts

from pytest_fileperf.judge.groups import Asked, session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import Reason, ReasonKind, Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import PARTS, Carried, Failure
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart, thinned
from pytest_fileperf.report.page.markup import data_block, element, raw_element

pytestmark = pytest.mark.usefixtures("small_plotly")

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
    """As it is compared, without its scripts; these are below."""
    text = (GOLDEN / session / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"https?:", text) == []
    tree = tree_of(text)
    ids = [
        node.attributes["id"]
        for tag in ("article", "section", "div")
        for node in tree.all(tag)
        if "id" in node.attributes
    ]
    assert len(set(ids)) == len(ids)
    links = [link.attributes["href"] for link in tree.all("a")]
    assert all(link.startswith("#") for link in links)
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert [node for tag in ("link", "img", "iframe", "object", "base", "form") for node in tree.all(tag)] == []
    assert all("src" not in node.attributes for tag in ("svg", "div") for node in tree.all(tag))

    levels = [int(tag[1]) for tag in re.findall("<(h[1-6])", text)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(cell.attributes.get("scope") and cell.text for cell in tree.all("th"))
    assert all(list(row.all("th")) for row in tree.all("tr") if row.attributes.get("class") != "below")


@pytest.mark.parametrize("session", ["every_kind", "watched"])
def test_sections_charts_and_the_filter_fit_the_overview(session: str) -> None:
    text = results_html(stored(session))
    assert re.findall(r"https?:", text) == []
    tree = tree_of(text)
    assert all("src" not in script.attributes for script in tree.all("script"))
    overview = tree.first("table", "overview").first("tbody")
    names = [row.first("a").text for row in overview.all("tr") if list(row.all("a"))]
    assert [article.first("h3").text for article in tree.all("article")] == names

    outcomes = {box.attributes["value"] for box in tree.all("input") if box.attributes["type"] == "checkbox"}
    rows, articles = (
        {(node.attributes["data-test"], node.attributes["data-outcome"]) for node in nodes}
        for nodes in (overview.all("tr"), tree.all("article"))
    )
    assert rows == articles
    assert {outcome for _, outcome in articles} == outcomes

    (block,) = (script for script in tree.all("script") if script.attributes.get("type") == "application/json")
    by_name = {each.test.title: each for each in stored(session).results}
    charts = [chart for name in names for chart in charts_of(by_name[name])]
    places = list(tree.all("div", "chart"))
    assert [int(place.attributes["data-chart"]) for place in places] == list(range(len(charts)))
    assert [place.attributes["aria-label"] for place in places] == [chart.title for chart in charts]
    drawn = json.loads(block.text)
    assert [[trace["name"] for trace in chart["traces"]] for chart in drawn] == [
        [trace["name"] for trace in chart.traces] for chart in charts
    ]


def test_only_the_scripts_that_were_put_in_may_run() -> None:
    tree = page(result())
    (policy,) = (
        node.attributes["content"]
        for node in tree.all("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    run = [script.text for script in tree.all("script") if "type" not in script.attributes]
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run)
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data: blob:"


def test_it_holds_all_of_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what the fixture has done
    text = results_html(session_record([result()]))
    assert len(text) > 3_000_000
    assert len(list(tree_of(text).all("script"))) == 4


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
    assert len(list(tree.all("script"))) == 4
    assert list(tree.all("img")) == []
    assert tree.first("pre").text == EVIL
    assert tree.first("section", "group").first("h3").text == EVIL
    headings = [cell.text for cell in tree.first("table", "grid").all("th")]
    assert headings == ["other", EVIL, f"{EVIL}0", f"{EVIL}1", f"{EVIL}0", f"{EVIL}1"]
    assert EVIL in [article.first("h3").text for article in tree.all("article")]
    (title,) = tree.all("title")
    assert "alert" not in title.text


def test_characters_that_files_cannot_hold_or_that_turn_text_round_are_left_out() -> None:
    odd = Failure(kind="protocol", count=1, example="a\x00b\x1bc\ud800d\u202ee\r\nf\tg")
    tree = page(result(recorded=recording(failures=(odd,))))
    assert tree.first("pre").text == "a\ufffdb\ufffdc\ufffdde\nf\tg"


@settings(max_examples=20)
@given(st.recursive(texts(), lambda item: st.lists(item) | st.dictionaries(texts(), item)))
def test_data_comes_out_as_it_went_in(value: object) -> None:
    block = tree_of(data_block(value)).first("script")
    assert not re.search("[<>&\u2028\u2029]", block.text)
    assert json.loads(block.text) == value


VISIBLE = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs")))


@given(VISIBLE, VISIBLE)
def test_text_and_attributes_come_out_as_they_went_in(text: str, value: str) -> None:
    node = tree_of(element("p", text, title=value)).first("p")
    assert node.text == text
    assert node.attributes.get("title", "") == value


@pytest.mark.parametrize("content", ["a </SCRIPT> b", "<!-- a"])
def test_a_script_that_would_end_early_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="would end its script element early"):
        raw_element("script", content)


# --- charts show what was measured, no more of it than can be seen


def chart_of(result: Result, title: str) -> Chart:
    (chart,) = (chart for chart in charts_of(result) if chart.title.startswith(title))
    return chart


def trace_of(chart: Chart, name: str) -> Any:
    (trace,) = (trace for trace in chart.traces if trace["name"] == name)
    return trace


@given(st.lists(st.integers(1_000, 10**10), min_size=20, max_size=400), st.floats(0.1, 99.99))
def test_the_curve_of_percentiles_tells_each_of_them(latencies_ns: list[int], percent: float) -> None:
    histogram = Histogram.of(latencies_ns)
    few = recording(requests=4, boots=1, rounds=1)
    (round_,) = few.rounds
    shown = result(recorded=replace(few, rounds=(replace(round_, requests=histogram.count, latency=histogram),)))
    trace = trace_of(chart_of(shown, "Latency by percentile"), "latency")
    assert len(trace["x"]) <= MOST_POINTS + 2
    place = 100 / (100 - percent)
    # Between two points of the curve, which may stand for many steps, lies the value itself. A step at this very
    # percentile may be on either side of it.
    steps = [y for x, y in zip(trace["x"], trace["y"], strict=True) if x <= place * 0.9999]
    following = next((y for x, y in zip(trace["x"], trace["y"], strict=True) if x > place * 1.0001), trace["y"][-1])
    size = {"s": 1e9, "ms": 1e6, "µs": 1e3}[str(trace["hovertemplate"]).rpartition(" ")[2]]
    assert steps[-1] * 0.999 <= histogram.percentile_ns(percent) / size <= following * 1.001


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
