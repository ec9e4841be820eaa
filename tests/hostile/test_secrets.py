"""A secret in every place that a request, a command, a parameter, the environment or a body has: none is told.

Each case is a load test of one run, or what a second run of it changes. All that both have printed and written is
searched for the secrets, each of which has a name of its own. Tracebacks of pytest show lines of a test's source, and
the arguments of a test that fails: so no source has a secret in it, and no test fails that has one as its parameter.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., pytest.RunResult]

CANARY = "canary7f3a"

HEAD = """
import os, sys
import pytest
from pytest_fileperf import Command, Url, Uvicorn, part, payload

def secret(place):
    return os.environ["CANARY"] + "-" + place + os.environ.get("CHANGED", "")

async def fetch(client):
    response = await client.get("/status/404", params={"token": secret("journey")})
    response.raise_for_status()

class Held:
    def __repr__(self):
        return secret("parameter object")
"""
PASSING = {
    "headers": 'get("/", headers={"X-Token": secret("header"), "Authorization": secret("authorization")})',
    "params": 'get("/", params={"token": secret("params")})',
    "params_text": 'get("/", params="token=" + secret("params-text"))',
    "query": 'get("/?token=" + secret("query") + "&" + secret("bare"))',
    "cookies": 'get("/", cookies={"session": secret("cookie")})',
    "auth": 'get("/", auth=("user", secret("auth")))',
    "json": 'post("/", json={"user": {"password": secret("json"), "codes": [secret("json-list")]}})',
    "data": 'post("/", data={"pin": secret("form")})',
    "files": 'post("/", files={"file": (secret("file-name"), secret("file").encode(), "text/plain")})',
    "content": 'post("/", content=secret("text"))',
    "bytes": 'post("/", content=secret("bytes").encode())',
    "extensions": 'get("/", extensions={"of_user": secret("extension")})',
    "feed": 'get("/?token={t}", feed=[secret("row-1"), secret("row-2")], headers={"X": secret("recipe") + "{unique}"})',
    "requests": 'requests([("GET", "/?t=" + secret("1")), ("GET", "/?t=" + secret("2"), {"json": {"": secret("3")}})])',
    "targets": 'requests("targets.txt")',
    "mix": 'mix({part.get("/?t=" + secret("part")): 1, part.post("/", content=secret("part-text")): 1})',
    "stream": 'stream("/?t=" + secret("stream"), each="64B", headers={"X": secret("stream-header")})',
}
FAILING = {
    "failed": 'get("/status/500?t=" + secret("failed"), headers={"X": secret("failed-header")})',
    "journey": "run(fetch)",
    "wrong_key": 'get("/?t=" + secret("wrong-key"), conections=2)',
    "no_path": 'get("http://user:" + secret("login") + "@127.0.0.1/?t=" + secret("no-path"))',
    "no_form": 'post("/?t=" + secret("no-form"), data=secret("raw-form"))',
    "no_feed": 'get("/{id}?t=" + secret("no-feed"))',
    "bad_row": 'get("/{t}", feed=["a", [secret("bad-row")]])',
    "bad_cell": 'get("/", feed=[secret("bad-cell") + chr(10)], headers={"X": "{t}"})',
    "bad_header": 'get("/", headers={"X": Held()})',
    "bad_target": 'requests("bad.txt")',
    "no_program": 'get("/", server=Command(["nowhere", "--key", secret("no-program"), "{port}"]))',
    "ends_early": 'get("/", server=Command([sys.executable, "-c", "raise SystemExit(3)", secret("argument"), "{port}"],'
    ' env={"KEY": secret("environment")}))',
    "bad_env": 'get("/", server=Command(["x", "{port}"], env={"KEY": (secret("bad-env"),)}))',
    "wrong_body": 'get("/", expect_body=secret("expected"))',
    "wrong_login": 'get("/", server=Url("http://user:" + secret("server-login") + "@127.0.0.1:1/"))',
    "wrong_url": 'get("/", server=Url("http://127.0.0.1:1/?token=" + secret("server-query")))',
    "no_app": 'get("/", app="nowhere:app", server=Uvicorn(env={"KEY": secret("no-app")}))',
    "bad_build": 'get("/", server=Command(["x", "{port}"], build=[sys.executable, "-c", "1/0", secret("build")]))',
}  # fmt: skip
COMMAND = (
    '"/", pause="20ms", server=Command([sys.executable, "-m", "uvicorn", "--log-level=warning", "--port", "{port}",'
    ' "--header", "X-Key:" + secret("served"), "server_app:app"], env={"KEY": secret("served-environment")})'
)
PARAMETERS = """
@pytest.mark.parametrize("value", [pytest.param(secret("parameter"), id="text"), pytest.param(Held(), id="object")])
def test_parameters(fileperf, value):
    fileperf.get("/", gate="none")
"""
CHANGED = (
    "header 'X-Token'", "parameter 'token'", "JSON field 'user.codes'", "form field 'pin'", "file 'file'", "content",
    "extension 'of_user'",
)  # fmt: skip
"""What the second run says of the values that are others in it."""
LOAD = "connections=2, requests=8, boots=1, warmup=0, rounds=1"
REPORTS = (
    "--fileperf-json=out/run.json", "--fileperf-html=out/run.html", "--fileperf-markdown=out/run.md",
    "--fileperf-save=one", "--junitxml=out/junit.xml",
)  # fmt: skip


def places_found(directory: Path, result: pytest.RunResult) -> list[str]:
    """Returns where a secret is: the printed lines, and the files, with a part of their text."""
    found = [line for line in (*result.outlines, *result.errlines) if CANARY in line]
    for path in directory.rglob("*"):
        if path.is_file() and not path.is_relative_to(directory / "secret"):
            text = path.read_bytes().decode("utf-8", "replace")
            found += [f"{path.name}: {text[max(0, at - 80) : at + 40]}" for at in [text.find(CANARY)] if at >= 0]
    return found


def quick_digest(plain: str, salt: str) -> str:
    return "scrypt:" + hashlib.sha256((salt + plain).encode()).hexdigest()[:16]


@pytest.fixture
def secretive(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project whose tests hold a secret in every place."""
    monkeypatch.setenv("CANARY", CANARY)
    passing = [f"def test_{name}(fileperf):\n    fileperf.{call}\n" for name, call in PASSING.items()]
    failing = [f"def test_{name}(fileperf):\n    fileperf.{call}\n" for name, call in FAILING.items()]
    command = f"def test_command(fileperf):\n    fileperf.get({COMMAND})\n"
    marked = f"pytestmark = pytest.mark.fileperf({LOAD})\n"
    project.makepyfile(test_it="\n".join((HEAD, marked, *passing, command, PARAMETERS, *failing)))
    held = project.mkdir("secret")
    (held / "targets.txt").write_text(f"GET /?t={CANARY}-target\nX-Token: {CANARY}-target-header\n")
    (held / "bad.txt").write_text(f"GET /\n{CANARY} bad target\n")
    source = (project.path / "test_it.py").read_text()
    (project.path / "test_it.py").write_text(
        source.replace('"targets.txt"', '"secret/targets.txt"').replace('"bad.txt"', '"secret/bad.txt"')
    )
    return project


@pytest.mark.skipif(os.name != "posix", reason="a Command needs POSIX")
def test_no_secret_is_printed_or_written(
    secretive: pytest.Pytester, run_load: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Digests that take 50 ms each by intent take none: tests/judge tests what they are.
    monkeypatch.setattr("pytest_fileperf.judge.baseline.slow_digest", quick_digest)
    first = run_load("--fileperf", "--fileperf-update=all", "-v", *REPORTS)
    first.assert_outcomes(passed=len(PASSING) + 3, failed=len(FAILING))
    assert len(list(secretive.path.rglob("run.*"))) == 3
    assert places_found(secretive.path, first) == []
    monkeypatch.setenv("CHANGED", "-changed")
    named = " or ".join(f"test_{name}" for name in (*PASSING, "command", "parameters"))
    second = run_load("--fileperf", "--fileperf-confirm=never", "-v", "-k", named, *REPORTS)
    assert places_found(secretive.path, second) == []
    told = " ".join(" ".join(second.outlines).split())
    assert [what for what in CHANGED if f"{what} changed" not in told] == []
