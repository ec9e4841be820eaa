"""What is damaged, gone or odd is said in a sentence: no traceback, no hang, no flood."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from judge.test_baseline import ENTRY, HERE, MODULE
from versions.repositories import Repo, needs_git

from pytest_fileperf.drive.slots import kind_of
from pytest_fileperf.errors import BaselineError, PlanError
from pytest_fileperf.judge.baseline import BaselineStore
from pytest_fileperf.plan.payload import payload
from pytest_fileperf.report.text import show_what_it_can
from pytest_fileperf.units import exit_text
from pytest_fileperf.versions.checkout import commit_info, parse_against
from pytest_fileperf.wire.payload_files import PayloadFiles

Run = Callable[..., pytest.RunResult]
posix = pytest.mark.skipif(os.name != "posix", reason="Windows has no such files")


# --- baselines


def test_conflict_markers_are_named_with_their_line(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    path = store.write(MODULE, "a", ENTRY, HERE)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[4:5] = ["<<<<<<< HEAD", lines[4], "=======", lines[4], ">>>>>>> other"]
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(BaselineError, match=r"has the conflict markers of a merge, from line 5 on .*\ntake one side"):
        store.find(MODULE, "a", HERE)


@posix
def test_a_pipe_in_place_of_a_baseline_is_an_error_and_no_hang(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    path = store.path_of(MODULE, HERE)
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    for act in (lambda: store.find(MODULE, "a", HERE), store.keys, lambda: store.write(MODULE, "a", ENTRY, HERE)):
        with pytest.raises(BaselineError, match=r"cannot be read: it is a pipe and no file"):
            act()


@pytest.mark.parametrize(
    "module",
    ["tests/test_[a].py", "tests/test_*?.py", "t/" * 150 + "test_a.py", "ü" * 120 + "/test_a.py", "a\udc80/test_b.py"],
    ids=["brackets", "stars", "long", "long in bytes", "no UTF-8"],
)
def test_a_module_finds_its_baselines_whatever_it_is_called(tmp_path: Path, module: str) -> None:
    store = BaselineStore(tmp_path)
    store.write(module, "a", ENTRY, HERE)
    store.write(module.replace("test_", "test_other_"), "b", ENTRY, HERE)
    assert store.find(module, "a", HERE) is not None
    assert store.find(module, "b", HERE) is None
    assert store.keys() == {"a": 1, "b": 1}


def test_long_paths_that_end_alike_have_files_of_their_own(tmp_path: Path) -> None:
    store = BaselineStore(tmp_path)
    one, other = ("/".join([first, "d" * 300, "test_a.py"]) for first in "ab")
    assert store.path_of(one, HERE) != store.path_of(other, HERE)
    assert store.path_of(one, HERE).name.endswith("__test_a.py.json")


# --- requests


@pytest.mark.parametrize("size_bytes", [10, 1 << 20])
def test_a_payload_file_that_is_gone_is_a_sentence(tmp_path: Path, size_bytes: int) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(size_bytes))
    body = payload(file)
    file.unlink()
    for use in (body.sha256, body.read, lambda: PayloadFiles(tmp_path).segments(body)):
        with pytest.raises(PlanError, match=r"payload file '.*a\.bin': No such file or directory: it has to stay"):
            use()


def test_a_text_that_cannot_be_sent_is_a_sentence(project: pytest.Pytester, run: Run) -> None:
    calls = ["get('/', expect_body='\\udc80')", "get('/\\udc80')", "get('/?a=\\udc80')", "post('/', content='\\udc80')"]
    tests = [f"def test_{number}(fileperf): fileperf.{call}" for number, call in enumerate(calls)]
    project.makepyfile("\n".join(tests))
    result = run("--fileperf-smoke", "--fileperf-server=inprocess", "--fileperf-json=run.json", "-rN")
    result.assert_outcomes(failed=len(calls))
    result.stdout.no_fnmatch_line("*pytest_fileperf/*")  # a frame of ours
    result.stdout.fnmatch_lines(["*expect_body: the text cannot be sent: *: give the bytes"])


def test_a_long_message_is_cut() -> None:
    kind, message = kind_of(ValueError("x" * 100_000))
    assert (kind, len(message)) == ("ValueError", 2_000)
    assert message.endswith("…")


def test_a_url_in_a_message_has_no_values() -> None:
    request = httpx.Request("GET", "http://user:s3cret@127.0.0.1/a?token=s3cret&b={id}#x")
    response = httpx.Response(404, request=request)
    with pytest.raises(httpx.HTTPStatusError) as raised:
        response.raise_for_status()
    kind, message = kind_of(raised.value)
    assert kind == "status 404"
    assert "s3cret" not in message
    assert "127.0.0.1/a?token=…" in message


# --- options and repositories


@pytest.mark.parametrize("option", ["against", "json", "baselines", "duration"])
def test_two_dashes_are_no_value(project: pytest.Pytester, run: Run, option: str) -> None:
    project.makepyfile("def test_a(fileperf): fileperf.get('/')")
    result = run("--fileperf", f"--fileperf-{option}=--")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: fileperf: --fileperf-{option}: -- is no value"])


@needs_git
@pytest.mark.parametrize("damage", ["head", "objects"])
def test_a_damaged_repository_is_called_that(tmp_path: Path, damage: str) -> None:
    repo = Repo.make(tmp_path / "project")
    repo.commit(app_py="one")
    if damage == "head":
        (repo.top / ".git" / "HEAD").write_text("garbage")
    for file in (repo.top / ".git" / "objects").rglob("*"):
        if damage == "objects" and file.is_file():
            file.chmod(0o644)
            file.write_text("garbage")
    with pytest.raises(
        PlanError, match=r"--fileperf-against=main: the Git repository .*project is damaged, `git fsck`"
    ):
        parse_against("main", cwd=repo.top, rootdir=repo.top)
    assert commit_info(repo.top) is None


def test_a_login_in_an_option_is_not_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as raised:
        parse_against("http://user:s3cret@127.0.0.1/", cwd=tmp_path, rootdir=tmp_path)
    assert "s3cret" not in str(raised.value)


# --- processes and terminals


@posix
def test_a_signal_has_its_name() -> None:
    assert exit_text(-signal.SIGKILL) == "signal SIGKILL"
    assert exit_text(3) == "exit code 3"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_looks_alike_or_is_a_question_mark(encoding: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    show_what_it_can(stream)
    stream.write("rps \N{MINUS SIGN}17.3 % ━━ 漢\udc80")
    stream.flush()
    assert raw.getvalue().decode(encoding) == "rps -17.3 % -- ??"


def test_a_run_writes_no_escapes(project: pytest.Pytester) -> None:
    project.makepyfile("def test_a(fileperf): assert fileperf.get('/').requests == 0, '\N{MINUS SIGN}漢'")
    command = [sys.executable, "-m", "pytest", "-v", "--fileperf-smoke", "--fileperf-server=inprocess", "-pno:randomly"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=project.path, env=env, capture_output=True, timeout=60, check=False)
    assert b"AssertionError: -?" in done.stdout
    assert b"\\u" not in done.stdout
