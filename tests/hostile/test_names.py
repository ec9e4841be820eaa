"""Names as nobody should write them, as ids of tests, labels, groups and URLs: no report is broken by one of them."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path

import pytest
from hostile.runs import LOAD, Ran, once, project_in, ran

NAMES: Mapping[str, str] = {
    "markup": "<script>alert(1)</script>",
    "entity": "&lt;b&gt;&#0;",
    "quotes": "a'b\"c`d",
    "table": "a|b|c",
    "markdown": "[x](javascript:0) ![y](z) **",
    "fence": "```\n# x\n```",
    "line_ends": "a\r\nb\x85c\u2028d",
    "escape": "\x1b[31mred\x1b]0;title\x07",
    "null": "a\0b",
    "surrogate": "a\ud800b",
    "right_to_left": "a\u202eb\u200fc",
    "wide": "漢字" * 20,
    "combining": "e" + "\u0301" * 50,
    "command": "::error file=a::b%0A##[error]",
    "percent": "%s %(a)s %d {0} {id}",
    "path": "../../../tmp/x",
    "cdata": "]]><b/><![CDATA[",
    "long": "x" * 3_000,
    "brackets": "a[b]::c",
    "empty": "",
}
TESTS = f"""
import pytest
NAMES = {dict(NAMES)!r}
@pytest.mark.fileperf({LOAD})
@pytest.mark.parametrize("name", [pytest.param(text, id=key) for key, text in NAMES.items()])
def test_label(fileperf, name):
    fileperf.get("/", params={{"q": "1"}}, label=name)

@pytest.mark.fileperf({LOAD}, gate="none")
@pytest.mark.parametrize("text", NAMES.values(), ids=[text.replace(chr(0), "0") for text in NAMES.values()])
def test_id(fileperf, text):
    fileperf.get("/status/404", expect_status=200)
"""
OUTPUTS = (
    "--fileperf-json=out/run.json", "--fileperf-html=out/run.html", "--fileperf-markdown=out/run.md",
)  # fmt: skip


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    def make(directory: Path) -> Ran:
        env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(directory / "summary.md"), "NO_COLOR": "1"}
        options = ("--fileperf", "--fileperf-update=new", "--fileperf-server=inprocess")
        return ran(project_in(directory, TESTS), *options, *OUTPUTS, env=env)

    return once(tmp_path_factory, "names", make)


def test_every_label_and_id_is_measured_and_told(named: Ran) -> None:
    results = json.loads((named.directory / "out" / "run.json").read_text(encoding="utf-8"))["results"]
    told = {result["test"]["name"].removeprefix("test_") for result in results}
    labels = [f"label[{key}]" for key in NAMES]
    assert [label for label in labels if label not in told or named.tests[label][0] != "passed"] == []
    assert len(told) == 2 * len(NAMES)
    assert f"{len(NAMES)} failed, {len(NAMES)} passed" in named.text
    assert "pytest_fileperf/" not in named.text  # a frame of ours
    assert not [character for character in named.text if character < " " and character not in "\n\r"]


def test_no_line_is_a_command_to_github_but_ours(named: Ran) -> None:
    lines = [line for line in named.text.splitlines() if "test_it.py" not in line]
    assert [line for line in lines if line.lstrip().startswith("::")] == []
    assert [line for line in lines if line.startswith(": :error file=a::b%0A# #[error]")]


def test_the_page_has_no_markup_of_them(named: Ran) -> None:
    page = (named.directory / "out" / "run.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "\0" not in page


def test_markdown_has_no_markup_of_them(named: Ran) -> None:
    lines = (named.directory / "out" / "run.md").read_text(encoding="utf-8").splitlines()
    outside = [re.sub(r"(`+).+?\1", "", line) for line in lines]
    assert not [line for line in outside if "<script>" in line or line.startswith("# x")]


def test_other_files_are_whole(named: Ran) -> None:
    assert len(list(ET.parse(named.directory / "junit.xml").iter("testcase"))) == 2 * len(NAMES)
    (path,) = (named.directory / ".fileperf").glob("*-*/*.json")  # a busy machine's figures are not stored
    assert set(json.loads(path.read_text(encoding="utf-8"))["tests"]) <= {
        f"test_it.py::test_label[{key}]" for key in NAMES
    }
