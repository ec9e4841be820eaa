"""What is damaged, gone or odd is said in a sentence: no traceback, no hang, no flood."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]


BODIES = """
import pytest
from pytest_fileperf import payload

pytestmark = pytest.mark.fileperf(requests=2, boots=1, warmup=0, gate="none")

@pytest.mark.parametrize("size", [10, 8 << 20])
def test_gone(fileperf, tmp_path, size):
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(size))
    fileperf.post("/", content=payload(file), setup=lambda client: file.unlink())

async def answers(client):
    raise ValueError("x" * 100_000)

def test_long(fileperf):
    fileperf.run(answers)

"""


def test_what_cannot_be_sent_is_a_sentence_and_a_long_message_is_cut(project: pytest.Pytester, run: Run) -> None:
    calls = ["get('/', expect_body='\\udc80')", "get('/\\udc80')", "get('/?a=\\udc80')", "post('/', content='\\udc80')"]
    texts = [f"def test_{number}(fileperf): fileperf.{call}" for number, call in enumerate(calls)]
    project.makepyfile(BODIES + "\n".join(texts))
    result = run("--fileperf", "--fileperf-server=inprocess", "--fileperf-json=run.json", "-rN")
    result.assert_outcomes(failed=len(calls) + 3)
    result.stdout.no_fnmatch_line("*pytest_fileperf/*")  # a frame of ours
    result.stdout.fnmatch_lines(["*expect_body: the text cannot be sent (*). Give the bytes"])
    told = " ".join(result.stdout.str().replace("\nE ", "\n").split())
    assert told.count("a.bin': No such file or directory. It must not change") >= 2
    results = json.loads((project.path / "run.json").read_text(encoding="utf-8"))["results"]
    (failure,) = next(one["failures"] for one in results if one["test"]["name"] == "test_long")
    assert failure["kind"] == "ValueError"
    assert failure["example"].endswith("x…")
    assert failure["example"].count("x") == 1_999


@pytest.mark.parametrize("option", ["against", "json", "baselines", "duration"])
def test_two_dashes_are_no_value(project: pytest.Pytester, run: Run, option: str) -> None:
    project.makepyfile("def test_a(fileperf): fileperf.get('/')")
    result = run("--fileperf", f"--fileperf-{option}=--")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: fileperf: --fileperf-{option} needs a value, and -- isn't a value"])


def test_a_run_writes_no_escapes(project: pytest.Pytester) -> None:
    project.makepyfile("def test_a(fileperf): assert fileperf.get('/').requests == 0, '\N{MINUS SIGN}漢'")
    command = [sys.executable, "-m", "pytest", "-v", "--fileperf-smoke", "--fileperf-server=inprocess", "-pno:randomly"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=project.path, env=env, capture_output=True, timeout=60, check=False)
    assert b"AssertionError: -?" in done.stdout
    assert b"\\u" not in done.stdout
