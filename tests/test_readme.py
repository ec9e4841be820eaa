"""What README.md says is so: its tables name what there is, and its samples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_fileperf.settings.keys import KEYS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

APP = """
import json

files = {}

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        for kind in ("startup", "shutdown"):
            assert (await receive())["type"] == f"lifespan.{kind}"
            await send({"type": f"lifespan.{kind}.complete"})
        return
    body = b""
    while scope["method"] == "POST":
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = bytes(256 * 1024)
    if scope["method"] == "POST":
        answer = json.dumps({"id": "last"}).encode()
        files["last"] = body
    elif scope["path"] == "/download/last":
        answer = files["last"]
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})
"""


def section(title: str) -> str:
    """Returns the text under a heading of the second level."""
    match = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert match, title
    return match[1]


def first_cells(text: str) -> list[str]:
    """Returns what is written as code in the first column of the tables."""
    return [code for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for code in re.findall(r"`([^`]+)`", row)]


def samples(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_table_of_the_marker_names_every_key() -> None:
    assert sorted(first_cells(section("The marker and its keys"))) == sorted(KEYS)


@pytest.mark.once
def test_the_table_of_options_names_every_option_and_setting(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess("--help").stdout.str()
    there = set(re.findall(r"^\s+(--fileperf[a-z-]*)", shown, re.MULTILINE))
    settings = set(re.findall(r"^\s+(fileperf_\w+) \(", shown, re.MULTILINE))
    text = section("Options and ini settings")
    assert set(re.findall(r"`(--fileperf[a-z-]*)", text)) == there
    assert set(re.findall(r"`(fileperf_\w+)`", text)) == settings


@pytest.mark.parametrize("sample", samples(README, "python"), ids=lambda sample: sample.split("\n")[0])
def test_python_samples_are_python(sample: str) -> None:
    indented = "".join(f"    {line}\n" for line in sample.splitlines())
    compile(f"async def sample():\n{indented}", "README.md", "exec")


@pytest.mark.everywhere
def test_the_first_tests_and_the_journey_run(pytester: pytest.Pytester) -> None:
    (config,) = samples(section("Your first test"), "toml")
    (first,) = samples(section("Your first test"), "python")
    (journey,) = samples(section("Journeys"), "python")
    pytester.makepyprojecttoml(config)
    package = pytester.mkpydir("app")
    (package / "main.py").write_text(APP, encoding="utf-8")
    assert "< 0.020" in first
    pytester.makepyfile(test_first=first.replace("< 0.020", "< 20"), test_journey=f"{first}\n{journey}")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("--fileperf-smoke", "-p", "no:randomly")
    result.assert_outcomes(passed=5)


@pytest.mark.once
def test_they_are_skipped_without_the_option(pytester: pytest.Pytester) -> None:
    (first,) = samples(section("Your first test"), "python")
    pytester.makepyfile(first)
    pytester.runpytest_subprocess().assert_outcomes(skipped=2)
