"""The page as a browser reads it: whole, the figures where they belong, and its charts as values."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.recordings import SECOND_NS, open_loop, watched
from report.samples import (
    ERRORS,
    FAILURES,
    NEW,
    PASSED,
    REGRESSED,
    TAIL_IMPROVED,
    TAIL_INCONCLUSIVE,
    TOO_FEW,
    every_kind,
    recording,
    result,
)

from pytest_fileperf.judge.groups import Asked, SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Reason, ReasonKind, Verdict
from pytest_fileperf.measure.histogram import Histogram
from pytest_fileperf.measure.recording import PARTS, Carried, Failure, LeadTimes, Recording
from pytest_fileperf.report.page.charts import charts_of
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.page.drawing import MOST_POINTS, Chart, thinned
from pytest_fileperf.report.page.markup import data_block, element, raw_element

# --- the page as a browser reads it: whole, the figures where they belong, and nothing in it that was not put there

FACTS = SessionRecord(
    created="2026-11-21T09:30:00+00:00",
    asked=Asked(command="pytest --fileperf --fileperf-html=report.html"),
    commit={"id": "9a1e0473cfd0a9b9c1d2", "branch": "main", "dirty": True},
    environment={"system": "Linux", "machine": "x86_64", "cpu": "a processor", "cores": 2, "python": "CPython 3.11",
                 "packages": {"uvicorn": "0.54.0", "fastapi": "0.165.0"}},
)  # fmt: skip
SLOWER_BY = """CPU per request grew by 18.2 µs (+22.0 %), of it
  15.1 µs in slow_digest (app/main.py:31)
  2.05 µs in dumps (json.py:9), called by Cart.total (app/cart.py:9)"""
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


@pytest.fixture(autouse=True)
def _small_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a few characters in place of its megabytes."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "/* plotly.js */")


def html(record: SessionRecord, facts: SessionRecord = FACTS) -> str:
    """Returns the page of a record, with the facts of another one."""
    said = {name: getattr(facts, name) for name in ("created", "asked", "commit", "environment")}
    return results_html(replace(record, **said))


def page(*results: Result, facts: SessionRecord = FACTS) -> Node:
    return tree_of(html(session_record(results), facts))


def cells_of(row: Node) -> list[str]:
    return [cell.text for cell in row.content if isinstance(cell, Node)]


def section_of(tree: Node, name: str) -> Node:
    """Returns the section that the overview's link with this name leads to."""
    (link,) = (link for link in tree.all("a") if link.text == name)
    (section,) = (node for node in tree.all("article") if f"#{node.attributes['id']}" == link.attributes["href"])
    return section


# --- the page


def test_every_element_is_closed_and_every_link_leads_somewhere() -> None:
    tree = page(*every_kind(), result(recorded=watched(open_loop())))
    ids = [
        node.attributes["id"]
        for tag in ("article", "section", "script", "div")
        for node in tree.all(tag)
        if "id" in node.attributes
    ]
    assert len(set(ids)) == len(ids)
    assert {link.attributes["href"].removeprefix("#") for link in tree.all("a")} <= set(ids)


def test_nothing_is_fetched_from_anywhere() -> None:
    text = html(session_record(every_kind()))
    assert re.findall(r"https?:", text) == []
    tree = tree_of(text)
    assert [node for tag in ("link", "img", "iframe", "object", "base", "form") for node in tree.all(tag)] == []
    assert all("src" not in node.attributes for tag in ("script", "svg", "div") for node in tree.all(tag))
    assert all(link.attributes["href"].startswith("#") for link in tree.all("a"))


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
    monkeypatch.undo()  # what the fixture above has done
    text = html(session_record([result()]))
    assert len(text) > 3_000_000
    assert len(list(tree_of(text).all("script"))) == 4


def test_the_head_says_what_was_run_and_what_came_of_it() -> None:
    head = page(*every_kind()).first("header")
    facts = dict(zip((node.text for node in head.all("dt")), (node.text for node in head.all("dd")), strict=True))
    assert facts == {
        "made": "2026-11-21 09:30 UTC",
        "by": "pytest --fileperf --fileperf-html=report.html",
        "commit": "9a1e0473cfbranch mainwith changes not committed",
        "machine": "a processorx86_64LinuxCPython 3.112 cores",
        "packages": "fastapi 0.165.0uvicorn 0.54.0",
    }
    assert head.first("p", "counts").text == (
        "8 measured1 PASS1 REGRESSED1 LIMIT1 FAILED1 INCONCLUSIVE1 SATURATED1 NEW1 not gated"
    )


def test_what_is_not_known_is_left_out() -> None:
    head = page(result(), facts=replace(SessionRecord(), created=FACTS.created)).first("header")
    assert [node.text for node in head.all("dt")] == ["made"]


def test_a_smoke_run_says_so() -> None:
    assert "smoke run" in page(result(smoke=True)).first("header").text
    assert "smoke run" not in page(result(smoke=True), result()).first("header").text


# --- the table


def test_the_overview_has_the_figures_of_each_test_failures_first() -> None:
    table = page(*every_kind()).first("table", "overview")
    assert [node.text for node in table.first("thead").all("th")] == [
        "test", "requests/s", "p50", "p99", "errors", "limited by", "outcome",
    ]  # fmt: skip
    rows = [cells_of(row) for row in table.first("tbody").all("tr") if row.attributes.get("class") != "below"]
    assert [(row[0], row[6]) for row in rows] == [
        ("test_uploadPOST /upload", "REGRESSED"),
        ("test_brokenPOST /upload", "LIMIT"),
        ("test_downPOST /upload", "FAILED"),
        (
            "test_form_of_a_very_long_name_that_says_what_it_does[256KiB-crlf-multipart]POST /upload · forms",
            "INCONCLUSIVE",
        ),
        ("test_tinyPOST /upload", "SATURATED"),
        ("test_download[256KiB-chunked]POST /upload", "PASS"),
        ("写真のアップロード 📷POST /upload · forms", "NEW"),
        ("test_roundtriproundtrip", "not gated"),
    ]
    assert rows[0][1:5] == ["2,050", "18.0 ms", "30.8 ms", "0"]
    assert rows[2][1:5] == ["-", "-", "-", "640"]


def test_equal_outcomes_stay_in_the_order_of_the_run() -> None:
    bad, undecided = Verdict(comparisons=(REGRESSED,)), Verdict(comparisons=(TAIL_INCONCLUSIVE,))
    results = (
        result("test_fine"),
        result("test_undecided", verdict=undecided),
        result("test_second", verdict=bad),
        result("test_first", verdict=bad),
    )
    names = [article.first("h3").text for article in page(*results).all("article")]
    assert names == ["test_second", "test_first", "test_undecided", "test_fine"]


def test_causes_stand_under_their_test() -> None:
    kinds = tuple(Failure(kind=f"status {500 + at}", count=9 - at, example=f"no\n{at} " * 300) for at in range(5))
    slower = result(verdict=Verdict(comparisons=(REGRESSED,)), recorded=recording(failures=kinds))
    slower = replace(slower, base=recording(), explanation=Explanation(text=SLOWER_BY))
    tree = page(slower)
    gate, why, *failed = tree.first("tr", "below").all("li")
    assert gate.text.startswith("rps 2,190/s")
    assert why.text == f"What made it slower{SLOWER_BY}"
    assert why.first("pre").text == SLOWER_BY
    assert [line.text[:40] for line in failed] == [
        "9 × status 500: no 0 no 0 no 0 no 0 no 0",
        "8 × status 501: no 1 no 1 no 1 no 1 no 1",
        "7 × status 502: no 2 no 2 no 2 no 2 no 2",
        "and 11 more of 2 other kinds",
    ]
    assert all(len(line.text) < 200 for line in failed)


@pytest.mark.parametrize("compares,title", [(True, "What made it slower"), (False, "What costs most CPU")])
def test_a_section_has_what_the_profiler_saw(compares: bool, title: str) -> None:
    profiled = replace(result(), base=recording() if compares else None, explanation=Explanation(text=SLOWER_BY))
    section = section_of(page(profiled), "test_upload")
    assert [node.text for node in section.all("h4")] == [title]
    assert section.first("pre").text == SLOWER_BY
    assert list(page(profiled).all("tr", "below")) == []  # it did not get slower


# --- the filter


def test_the_filter_is_labelled_and_has_a_box_for_each_outcome() -> None:
    tree = page(*every_kind())
    shown = tree.first("div", "filter")
    assert shown.attributes["hidden"]  # until its script runs
    assert [node.text for node in shown.all("label")] == [
        "Filter ", "1 PASS", "1 REGRESSED", "1 LIMIT", "1 FAILED", "1 INCONCLUSIVE", "1 SATURATED", "1 NEW",
        "1 not gated",
    ]  # fmt: skip
    outcomes = [box.attributes["value"] for box in shown.all("input") if box.attributes["type"] == "checkbox"]
    rows, articles = (
        [(node.attributes["data-test"], node.attributes["data-outcome"]) for node in nodes]
        for nodes in (tree.first("table", "overview").first("tbody").all("tr"), tree.all("article"))
    )
    assert set(rows) == set(articles)
    assert {outcome for _, outcome in articles} == set(outcomes)


def test_what_is_alike_needs_no_filter() -> None:
    assert list(page(result()).all("div", "filter")) == []
    (shown,) = page(result(), result("test_two")).all("div", "filter")
    assert list(shown.all("fieldset")) == []


def test_headings_are_in_order_and_every_heading_of_a_table_says_of_what() -> None:
    tree = page(*every_kind(), *servers(), result(recorded=watched(open_loop())))
    levels = [int(tag[1]) for tag in re.findall("<(h[1-6])", html(session_record(every_kind())))]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(cell.attributes.get("scope") and cell.text for cell in tree.all("th"))
    assert all(list(row.all("th")) for row in tree.all("tr") if row.attributes.get("class") != "below")


# --- gates and limits


def test_gates_and_broken_limits_stand_under_their_test() -> None:
    broken = Verdict(limits=(ERRORS, TOO_FEW), comparisons=(REGRESSED, TAIL_IMPROVED))
    tree = page(result(verdict=broken), result("test_new", verdict=Verdict(comparisons=NEW)))
    assert [[line.text for line in row.all("li")] for row in tree.all("tr", "below")] == [
        [
            "rps 2,190/s → 2,050/s −6.4 % [−8.1, −4.7], tolerance 5 % REGRESSED",
            "p99 42.2 ms → 30.8 ms −27.1 % [−33.0, −20.1], tolerance 25 % IMPROVED",
            "max_error_rate 0 %, measured 0.113 % LIMIT",
            "min_rps 2,400/s, measured 2,050/s LIMIT",
        ],
        ["rps, p99: there is no baseline: store one with --fileperf-update"],
    ]


def test_few_requests_are_marked() -> None:
    tree = page(result(recorded=recording(requests=20, boots=1)))
    assert [cell.text for cell in tree.first("table", "overview").all("td", "number")][1:3] == ["17.3 ms", "~31.0 ms"]
    assert "fewer requests than the percentile needs" in tree.first("section").text


def test_names_that_are_shared_become_node_ids() -> None:
    tree = page(
        result(),
        result(module="other.py"),
        result("test_two"),
        result("test_two", nodeid="tests/test_files.py::test_two#2"),
    )
    assert [link.text for link in tree.all("a")] == [
        "tests/test_files.py::test_upload", "other.py::test_upload", "test_two", "test_two #2",
    ]  # fmt: skip


# --- the section of a test


def test_a_section_has_gates_limits_failures_notes_and_all_figures() -> None:
    verdict = Verdict(limits=(ERRORS, TOO_FEW), comparisons=(REGRESSED,))
    recorded = recording(failures=FAILURES, pinned=False)
    section = section_of(page(result(recorded=recorded, verdict=verdict)), "test_upload")
    tables = [[cells_of(row) for row in table.first("tbody").all("tr")] for table in section.all("table")]
    gates, latencies = tables
    assert gates == [["rps", "2,190/s", "2,050/s", "−6.4 % [−8.1, −4.7]", "", "5 %", "REGRESSED"]]
    assert [line.text for line in section.first("ul").all("li")] == [
        "max_error_rate 0 %, measured 0.113 % LIMIT",
        "min_rps 2,400/s, measured 2,050/s LIMIT",
    ]
    assert [row[0] for row in latencies] == ["latency", "first byte"]
    assert latencies[0][4] == "18.0 ms"
    assert [node.text for node in section.all("pre")] == [FAILURES[0].example, FAILURES[1].example]
    assert "12 × status 500" in section.text
    assert "server and generator shared cores" in section.text
    assert "peak RSS 68.0 MiB" in section.text


@pytest.mark.parametrize(
    "recorded,said",
    [
        (recording(client_cpu_share=0.97), "Limited by load generator: "),
        (recording(requests=0), "Not clear what limited it: no request succeeded"),
    ],
)
def test_a_section_says_what_limited_the_run(recorded: Recording, said: str) -> None:
    assert said in section_of(page(result(recorded=recorded)), "test_upload").text
    assert said[:10] not in section_of(page(result(recorded=recorded, smoke=True)), "test_upload").text


def test_the_interval_of_a_change_is_drawn_against_its_tolerance() -> None:
    slower, shorter = (
        section_of(page(result(verdict=Verdict(comparisons=(item,)))), "test_upload").first("svg")
        for item in (REGRESSED, TAIL_IMPROVED)
    )
    for svg, low, high in ((slower, -0.081, -0.047), (shorter, -0.33, -0.201)):
        interval = svg.first("line", "range").attributes
        middle, zero = float(svg.first("circle").attributes["cx"]), float(svg.first("line", "zero").attributes["x1"])
        assert zero == 100
        assert 0 <= float(interval["x1"]) < middle < float(interval["x2"]) < zero
        assert (zero - float(interval["x1"])) / (zero - float(interval["x2"])) == pytest.approx(low / high, rel=0.01)
    # Fewer requests are worse, and so are longer latencies: the ground of the worse lies on either side.
    assert float(slower.first("rect").attributes["x"]) == 0
    assert float(shorter.first("rect").attributes["x"]) > 100


@pytest.mark.parametrize("low", [None, math.nan, -math.inf])
def test_an_interval_that_is_not_known_is_not_drawn(low: float | None) -> None:
    section = section_of(page(result(verdict=Verdict(comparisons=(replace(REGRESSED, low=low),)))), "test_upload")
    assert "REGRESSED" in section.first("table").text
    assert list(section.all("svg")) == []


def test_of_many_kinds_of_failures_the_most_frequent_are_shown() -> None:
    kinds = tuple(Failure(kind=f"status {500 + at}", count=100 - at, example="x" * 5000) for at in range(25))
    section = section_of(page(result(recorded=recording(failures=kinds))), "test_upload")
    examples = [node.text for node in section.all("pre")]
    assert len(examples) == 20
    assert examples[0] == "x" * 4000 + "…"
    assert "and 390 more of 5 other kinds" in section.text


def test_an_open_loop_shows_service_time_beside_latency() -> None:
    section = section_of(page(result(recorded=open_loop())), "test_upload")
    assert [row.first("th").text for row in section.first("tbody").all("tr")] == [
        "latency", "service time", "first byte",
    ]  # fmt: skip


def test_every_chart_has_a_place_and_its_data() -> None:
    results = (result(recorded=watched(recording())), result("test_open", recorded=watched(open_loop())))
    tree = page(*results)
    (block,) = (script for script in tree.all("script") if script.attributes.get("type") == "application/json")
    places = list(tree.all("div", "chart"))
    charts = [chart for each in results for chart in charts_of(each)]
    assert [int(place.attributes["data-chart"]) for place in places] == list(range(len(charts)))
    assert [place.attributes["aria-label"] for place in places] == [chart.title for chart in charts]
    drawn = json.loads(block.text)
    assert [[trace["name"] for trace in chart["traces"]] for chart in drawn] == [
        [trace["name"] for trace in chart.traces] for chart in charts
    ]


# --- groups


def servers() -> tuple[Result, ...]:
    """Returns a group of two servers with one worker and two, where more workers are better and servers are alike."""
    return tuple(
        result(
            f"test_get[{server}-{workers}]",
            recorded=recording(requests=500 * workers),
            group="servers",
            params={"server": server, "workers": workers},
        )
        for server in ("uvicorn", "gunicorn")
        for workers in (1, 2)
    )


def test_the_members_of_a_group_are_ranked_with_ties_and_bars() -> None:
    (group,) = page(*servers(), result()).all("section", "group")
    rows = list(group.first("table", "ranking").first("tbody").all("tr"))
    assert [cells_of(row)[:3] for row in rows] == [
        ["1=", "uvicorn-2", "2,000"],
        ["1=", "gunicorn-2", "2,000"],
        ["3=", "uvicorn-1", "1,000"],
        ["3=", "gunicorn-1", "1,000"],
    ]
    assert ["best" in row.attributes.get("class", "") for row in rows] == [True, True, False, False]
    best, tied, *_ = rows
    assert cells_of(best)[4] == "100 %"
    assert re.fullmatch(r"100 % \[\d+, \d+\]", cells_of(tied)[4])
    assert list(best.all("div", "interval")) == []
    ends = [float(end) for end in re.findall(r"[\d.]+", tied.first("div", "interval").attributes["style"])]
    bar = float(tied.first("div", "value").attributes["style"].removeprefix("--to: "))
    assert 0 < ends[0] < bar < ends[1] <= 1


def heads_of(table: Node) -> Iterator[Node]:
    return table.first("thead").all("tr")


def test_two_parameters_make_a_grid_under_their_names_with_the_best_marked() -> None:
    grid = page(*servers()).first("table", "grid")
    across, names = ([(cell.text, cell.attributes.get("scope")) for cell in row.all("th")] for row in heads_of(grid))
    assert across == [("workers", "colgroup")]
    assert names == [("server", "col"), ("1", "col"), ("2", "col")]
    rows = [[cell.text for cell in row.content if isinstance(cell, Node)] for row in grid.first("tbody").all("tr")]
    assert rows == [["uvicorn", "1,000", "2,000"], ["gunicorn", "1,000", "2,000"]]
    assert [node.text for node in grid.all("b")] == ["2,000", "2,000"]
    shares = [cell.attributes["style"] for cell in grid.all("td", "heat")]
    assert shares == ["--share: 0.500", "--share: 1.000"] * 2


def test_the_sections_of_tests_stand_in_the_order_of_the_overview() -> None:
    tree = page(*servers(), *every_kind())
    overview = tree.first("table", "overview").first("tbody")
    names = [row.first("a").text for row in overview.all("tr") if list(row.all("a"))]
    assert [article.first("h3").text for article in tree.all("article")] == names
    assert names[0] == "test_upload"


def test_groups_are_made_by_the_labels_that_were_asked_for() -> None:
    tree = tree_of(html(session_record(servers(), ("param:workers",))))
    assert [section.first("h3").text for section in tree.all("section", "group")] == ["workers=1", "workers=2"]


def test_without_groups_nothing_is_said_of_them() -> None:
    assert "Groups" not in [node.text for node in page(result(), result("test_two")).all("h2")]


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
    facts = replace(
        FACTS,
        asked=Asked(command=EVIL),
        commit={"id": EVIL, "branch": EVIL},
        environment={"cpu": EVIL, "packages": {EVIL: EVIL}},
    )
    text = html(session_record([labelled, *members]), facts)
    tree = tree_of(text)
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


@settings(max_examples=40)
@given(st.recursive(st.text(), lambda item: st.lists(item) | st.dictionaries(st.text(), item)))
def test_data_comes_out_as_it_went_in(value: object) -> None:
    block = tree_of(data_block(value).text).first("script")
    assert not re.search("[<>&\u2028\u2029]", block.text)
    assert json.loads(block.text) == value


VISIBLE = st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs")))


@given(VISIBLE, VISIBLE)
def test_text_and_attributes_come_out_as_they_went_in(text: str, value: str) -> None:
    node = tree_of(element("p", text, title=value).text).first("p")
    assert node.text == text
    assert node.attributes.get("title", "") == value


@pytest.mark.parametrize("content", ["a </SCRIPT> b", "<!-- a"])
def test_a_script_that_would_end_early_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="would end its script element early"):
        raw_element("script", content)


# --- charts as values: which there are, and that they show what was measured, no more of it than can be seen


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
