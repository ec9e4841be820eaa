"""`--fileperf-against` and `--fileperf-aa` in real Git repositories."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from plugin.projects import make_slower
from versions.repositories import Repo, needs_git

pytestmark = [needs_git, pytest.mark.timeout(300)]

Run = Callable[..., pytest.RunResult]

SHORT = ("--fileperf-server=uvicorn", "--fileperf-max-duration=2s", "--fileperf-connections=2")


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    temporary = tmp_path / "temporary"
    assert [path.name for path in temporary.glob("fileperf*")] == []


def state_of(repo: Repo) -> dict[str, object]:
    """Returns all that a comparison has to leave as it is; files are only counted by Git, as pytester writes some."""
    return {name: fact for name, fact in repo.state().items() if name != "files"}


def refused(result: pytest.RunResult) -> str:
    """Returns what a usage error says; asserts that no test ran."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "collected" not in result.stdout.str()
    return result.stderr.str()


SETUPS = """
made = set()

async def fill(client):
    (await client.get("/wait/filled")).raise_for_status()
    return str(client.base_url)

def remove(client, url):
    assert url == str(client.base_url)
    made.add(url)

async def get_made(client, url):
    assert url == str(client.base_url), "each side has a setup of its own"
    (await client.get("/wait")).raise_for_status()

def test_itself(fileperf):
    fileperf.run(get_made, setup=fill, teardown=remove, gate="rps", tolerance="400%")
    assert len(made) >= 2
"""


def test_the_code_with_itself_prints_what_could_be_seen(repo: Repo, run_load: Run) -> None:
    """Each side of a comparison has its setup and teardown."""
    repo.write("test_it.py", SETUPS)
    result = run_load("--fileperf-aa", *SHORT, "--fileperf-max-duration=4s")
    result.assert_outcomes(passed=1)
    # Where other programs have the cores, it rightly says less.
    seen = "*rps: *" if "the machine was busy" in result.stdout.str() else "*rps: a change of * shows in *; 5 % needs *"
    result.stdout.fnmatch_lines(["fileperf: measuring; *; against itself", seen])
    assert "PASS" not in result.stdout.str()


# --- what is refused


REFUSED = {
    "--fileperf-against=no-such-branch": "'no-such-branch' is neither a directory nor a ref",
    "--fileperf-against=": "Give a Git ref, a directory, a URL or python:INTERPRETER",
    "--fileperf-against=.": "both versions would be the same",
    "--fileperf-against=http://example.com": "load goes only to this machine",
    "--fileperf-against=HEAD --fileperf-update": "stores neither. Leave out --fileperf-update",
    "--fileperf-against=HEAD --fileperf-smoke": "does not work with --fileperf-smoke",
    "--fileperf-aa --fileperf-update=new": "--fileperf-aa measures two versions and stores neither",
    "--fileperf-aa --fileperf-smoke": "--fileperf-aa does not work with --fileperf-smoke",
    "--fileperf-aa --fileperf-against=HEAD": "Give one of them",
    "--fileperf-against=HEAD --fileperf-profile": "Leave out --fileperf-profile",
    # Python 3.14 finds that it is no directory, older ones find an error.
    f"--fileperf-against={'x' * 5000}": "File name too long" if sys.version_info < (3, 14) else "is neither a dire",
    "--fileperf-against=python:~nobody-of-this-name/bin/python": "home directory",
    "--fileperf-against=HEAD --fileperf-max-duration=0s": "max_duration",
}


def test_what_makes_no_sense_is_refused_before_any_test(repo: Repo, run: Run) -> None:
    found = {arguments: " ".join(refused(run(*arguments.split())).split()) for arguments in REFUSED}
    assert {arguments: said for arguments, said in found.items() if REFUSED[arguments] not in said} == {}
    said = refused(run("--fileperf-against=nowhere", "--fileperf-update", "--fileperf-smoke"))
    for part in ("'nowhere' is neither", "stores neither", "does not work with --fileperf-smoke"):
        assert part in said


def test_collecting_alone_checks_nothing_out(repo: Repo, run: Run, tmp_path: Path) -> None:
    result = run("--fileperf-against=HEAD", "--collect-only", "-q")
    assert result.ret == 0
    assert list((tmp_path / "temporary").iterdir()) == []


# --- Ctrl-C


def wait_for(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 50
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it never came so far"
        time.sleep(0.05)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is a signal")
@pytest.mark.hostile
def test_ctrl_c_while_both_are_loaded_leaves_nothing_behind(repo: Repo, tmp_path: Path) -> None:
    make_slower(repo, 0.01)
    before = state_of(repo)
    plugins = ("-pno:randomly", "-pno:cacheprovider", "-pno:benchmark")
    command = [sys.executable, "-m", "pytest", *plugins, "-q", "--fileperf-against=HEAD"]
    process = subprocess.Popen(
        command, cwd=repo.top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    family = psutil.Process(process.pid)

    def has_begun() -> bool:
        started = [child for child in family.children(recursive=True) if _is_generator(child)]
        return bool(started) and len(family.children(recursive=True)) > 2

    wait_for(has_begun, process)
    time.sleep(0.5)
    assert any((tmp_path / "temporary").glob("fileperf-*/base-*")), "the other version is checked out"
    children = family.children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=50)

    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert alive == [], output
    assert len(gone) >= 3
    deadline_s = time.monotonic() + 5  # a supervisor may be the last to go
    while (left := list((tmp_path / "temporary").glob("fileperf*"))) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert left == []
    assert state_of(repo) == before


def _is_generator(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pytest_fileperf.drive" in process.cmdline()
    return False
