"""What README.md says is so: its tables name what there is, and its samples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from apps import SOURCE
from serve.processes import Boot

from pytest_fileperf.settings.keys import KEYS

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")

APP = f"""{SOURCE}
import json

files = {{}}


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(receive, send)
    answer = bytes(256 * 1024)
    if scope["method"] == "POST":
        files["last"] = await request_body(receive)
        answer = json.dumps({{"id": "last"}}).encode()
    elif scope["path"] == "/download/last":
        answer = files["last"]
    await respond(send, answer)
"""
SERVER = f"""#!{sys.executable}
import argparse
import http.server


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")


given = argparse.ArgumentParser()
for option in ("--port", "--stack", "--loop"):
    given.add_argument(option)
http.server.ThreadingHTTPServer(("127.0.0.1", int(given.parse_args().port)), Handler).serve_forever()
"""
"""The programs that samples start: `server.py`, and `./server`, which a `go` of the test's own builds."""


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


@pytest.fixture(scope="session")
def help_text() -> str:
    """What `pytest --help` says of options and settings."""
    command = [sys.executable, "-m", "pytest", "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_table_of_options_names_every_option_and_setting(help_text: str) -> None:
    there = set(re.findall(r"^\s+(--fileperf[a-z-]*)", help_text, re.MULTILINE))
    settings = set(re.findall(r"^\s+(fileperf_\w+) \(", help_text, re.MULTILINE))
    text = section("Options and ini settings")
    assert set(re.findall(r"`(--fileperf[a-z-]*)", text)) == there
    assert set(re.findall(r"`(fileperf_\w+)`", text)) == settings


def test_options_in_samples_are_there(help_text: str) -> None:
    blocks = re.findall(r"^```(?:console|yaml|ini|text)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"--fileperf[a-z-]*", "".join(blocks)))
    assert len(named) > 5
    assert named <= set(re.findall(r"--fileperf[a-z-]*", help_text))


@pytest.mark.parametrize("readme", ["README.md", "examples/quickstart/README.md"])
def test_the_quickstart_is_made_slower_by_one_line_of_its_code(readme: str) -> None:
    root = Path(__file__).parents[1]
    text = (root / readme).read_text(encoding="utf-8")
    (found,) = re.findall(r"^\$ sed -i\.bak 's/\^(.+)/(.+)/' (\S+)", text, re.MULTILINE)
    before, after, app = found
    lines = (root / app).read_text(encoding="utf-8").splitlines()
    assert lines.count(before) == 1
    assert after == before.replace("0.0", "0.3")
    assert f"$ mv {app}.bak {app}" in text


@pytest.mark.everywhere
def test_the_first_tests_and_the_journey_run(pytester: pytest.Pytester) -> None:
    (config,) = samples(section("Your first test"), "toml")
    (first,) = samples(section("Your first test"), "python")
    (journey,), (data,) = (samples(section(title), "python") for title in ("Journeys", "Data for a load"))
    pytester.makepyprojecttoml(config)
    package = pytester.mkpydir("app")
    (package / "main.py").write_text(APP, encoding="utf-8")
    assert "< 0.020" in first
    pytester.makepyfile(
        test_first=first.replace("< 0.020", "< 20"), test_journey=f"{first}\n{journey}", test_data=f"{first}\n{data}"
    )
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("--fileperf-smoke", "-p", "no:randomly")
    result.assert_outcomes(passed=8)


def function(name: str, *samples: str, kind: str = "def", fixtures: str = "fileperf") -> str:
    """Returns a test whose body are the samples."""
    return f"{kind} {name}({fixtures}):\n" + textwrap.indent("\n".join(samples), "    ")


@pytest.mark.once
@pytest.mark.skipif(os.name != "posix", reason="Gunicorn, and a `go` that is a script")
def test_the_other_samples_run(pytester: pytest.Pytester, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fragments stand in a function, below the imports that the samples before them show."""
    servers, own_files, by_parameter = samples(section("Servers"), "python")
    payloads, loads = samples(section("Payloads"), "python")[0], samples(section("Load shapes"), "python")[0]
    variants, transport = (
        samples(section(title), "python")[0] for title in ("Comparing variants", "The transport alone")
    )
    data = samples(section("Data for a load"), "python")
    there = [*samples(section("Your first test"), "python"), *samples(section("Journeys"), "python"), *data]
    assert len(samples(README, "python")) == len(
        [*there, servers, own_files, by_parameter, payloads, loads, variants, transport]
    )

    running = "http://127.0.0.1:8000"
    assert running in servers
    assert running in transport
    fragments = (
        "import pytest\nfrom pytest_fileperf import Command, Gunicorn, Uvicorn, payload",
        function("test_servers", servers, own_files),
        by_parameter,
        function("test_payloads", payloads),
        function("test_loads", loads),
        variants,
        "@pytest.mark.anyio",
        function("test_transport", transport, "assert len(response.content) > 0", kind="async def", fixtures=""),
    )
    pytester.makepyfile("\n\n".join(fragments).replace(running, boot().url).replace("anyio\n\n", "anyio\n"))
    pytester.makepyfile(main=APP, server=SERVER)
    pytester.makeini("[pytest]\nfileperf_app = main:app\npythonpath = .\n")
    pytester.makeconftest('import pytest\n@pytest.fixture\ndef anyio_backend(): return "asyncio"\n')
    (pytester.mkdir("photos") / "large.jpg").write_bytes(bytes(5000))
    go = pytester.mkdir("bin") / "go"
    go.write_text("#!/bin/sh\ncp server.py server && chmod +x server\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(go.parent), prepend=os.pathsep)
    monkeypatch.delenv("CI", raising=False)
    result = pytester.runpytest_subprocess("--fileperf-smoke", "-p", "no:randomly")
    result.assert_outcomes(passed=3 + 3 + 6 + 1)


@pytest.mark.once
def test_they_are_skipped_without_the_option(pytester: pytest.Pytester) -> None:
    (first,) = samples(section("Your first test"), "python")
    pytester.makepyfile(first)
    pytester.runpytest_subprocess().assert_outcomes(skipped=2)
