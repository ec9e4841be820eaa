"""Tests that failed for another reason than a figure, in every report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from report.samples import PASSED, result

from pytest_fileperf.judge.groups import SessionRecord, session_record
from pytest_fileperf.judge.record import FailedTest
from pytest_fileperf.judge.verdict import Verdict
from pytest_fileperf.report.annotations import github_commands
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import read_record, results_json
from pytest_fileperf.report.story import summary_line
from pytest_fileperf.report.terminal import session_text

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
