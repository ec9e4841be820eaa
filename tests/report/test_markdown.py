"""The Markdown of a session: a whole report compared with the file in `golden/`, and rules that hold for any text."""

from __future__ import annotations

import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from report.in_turn import compared
from report.samples import ERRORS, FAILURES, NEW, PASSED, REGRESSED, every_kind, recording, result
from report.test_comparisons import SLOWER_WORLD, in_turn

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.measure.recording import Failure
from pytest_fileperf.report.markdown import markdown_report

GOLDEN = Path(__file__).parent / "golden"
EVIL = "a|b`c`<img src=x>*d*_e_[f](g)~~h~~@someone#1&amp;\\|\n| x |"


def report(*results: Result, limit_bytes: int = 1 << 20) -> str:
    return markdown_report(session_record(results), limit_bytes=limit_bytes)


def test_a_whole_report() -> None:
    blamed = Explanation(text="CPU per request grew by 18.2 µs (+22.0 %), of it\n  15.1 µs in digest (app/main.py:31)")
    results = (*every_kind(), replace(compared(), explanation=blamed), in_turn(SLOWER_WORLD))
    assert report(*results) == (GOLDEN / "every_kind.md").read_text(encoding="utf-8")


def test_where_all_is_well_one_line_is_seen_and_the_rest_is_folded() -> None:
    first, *rest = report(result(verdict=Verdict(comparisons=(PASSED,)))).splitlines()
    assert first == "## Load tests: 1 measured: 1 PASS"
    assert rest[1:3] == ["<details>", "<summary>1 measurement without findings</summary>"]


def test_what_was_stored_is_no_finding_and_what_lacks_a_baseline_is() -> None:
    assert "without findings" in report(result(verdict=Verdict(comparisons=NEW), baseline_written=True))
    assert "**NEW**" in report(result(verdict=Verdict(comparisons=NEW)))


def test_nothing_measured() -> None:
    assert markdown_report(SessionRecord()) == "## Load tests: nothing was measured\n"


def test_what_fails_comes_before_what_is_undecided() -> None:
    text = report(*reversed(every_kind()))
    places = [text.index(f"**{word}**") for word in ("REGRESSED", "INCONCLUSIVE", "NEW")]
    assert places == sorted(places)


def test_what_holds_for_all_tests_is_said_once() -> None:
    text = report(*(result(f"test_{number}", verdict=Verdict(comparisons=(REGRESSED,))) for number in range(3)))
    assert text.count("not clear what limited it") == 1


def test_lines_about_the_whole_session_come_last() -> None:
    record = replace(session_record([result()]), said=("fileperf: 1 stale baseline", "  test_`a`"))
    assert markdown_report(record).endswith("\n\n```text\nfileperf: 1 stale baseline\n  test_`a`\n```\n")


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


@pytest.mark.parametrize("limit_bytes", [2_000, 5_000, 20_000])
def test_a_long_report_is_cut_after_a_line_and_says_so(limit_bytes: int) -> None:
    regressed = (result(f"test_ü{number}", verdict=Verdict(comparisons=(REGRESSED,))) for number in range(20))
    passed = (result(f"test_{number}", verdict=Verdict(comparisons=(PASSED,))) for number in range(500))
    text = report(*regressed, *passed, limit_bytes=limit_bytes)
    assert limit_bytes - 1000 < len(text.encode()) <= limit_bytes
    assert text.count("<details>") == text.count("</details>")
    assert re.search(r"\n\nThe report was cut here: it is longer than .*\n\Z", text)
    assert text.startswith("## Load tests: 520 measured: 500 PASS, 20 REGRESSED")


def test_more_kinds_of_failed_requests_are_counted() -> None:
    many = tuple(Failure(kind=f"status {status}", count=2, example="x") for status in range(500, 506))
    failing = result(recorded=recording(failures=(*FAILURES, *many)), verdict=Verdict(limits=(ERRORS,)))
    text = report(failing)
    assert '- 14 × status 500: `POST /upload answered 500: {"detail": "disk full"}`' in text
    assert "- and 8 more of 4 other kinds" in text
