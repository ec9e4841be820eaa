"""`--fileperf-against` and `--fileperf-aa` as a user types them, in real Git repositories."""

from __future__ import annotations

import json
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
from plugin.projects import MIX, TESTS, UNTIL_IT_SHOWS, make_slower
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


def test_what_is_slower_than_a_commit_fails(repo: Repo, run_load: Run) -> None:
    repo.write("test_it.py", MIX.format(gate="rps"))
    repo.commit()
    make_slower(repo, 0.1, "/wait/second")
    head, before = repo.git("rev-parse", "--short=7", "HEAD"), state_of(repo)

    result = run_load("--fileperf-against=HEAD", "--fileperf-json=out.json", *SHORT, UNTIL_IT_SHOWS)

    result.assert_outcomes(failed=1)
    title = f"HEAD ({head})"
    result.stdout.fnmatch_lines(
        [
            f"fileperf: measuring; *; against {title}",
            "*RegressionError: rps −*",
            "E *#second: p50 *",
            "FAILED test_it.py::test_mix - rps −*",
        ]
    )
    assert f", worse than {title}" in " ".join(result.stdout.str().replace("\nE", "").split())
    assert "--fileperf-update" not in result.stdout.str()
    entries = json.loads((repo.top / "out.json").read_text())["results"]
    assert {entry["base"]["title"] for entry in entries} == {title}
    assert all(entry["verdict"]["comparisons"][0]["pairs"] >= 3 for entry in entries)
    outcomes = {entry["test"]["part"]: entry["verdict"]["outcome"] for entry in entries}
    assert outcomes.pop("") == outcomes.pop("second") == "REGRESSED"
    assert outcomes.keys() == {"first", "third"}
    assert "REGRESSED" not in outcomes.values()
    assert state_of(repo) == before


def test_the_same_code_passes_and_stores_nothing(repo: Repo, run_load: Run) -> None:
    before = state_of(repo)
    result = run_load("--fileperf-against=HEAD", *SHORT)
    result.assert_outcomes(passed=1)
    head = repo.git("rev-parse", "--short=7", "HEAD")
    result.stdout.fnmatch_lines([f"*against HEAD ({head})", f"*PASS rps: the code is that of HEAD ({head})"])
    assert "pairs of boots" not in result.stdout.str()
    assert not (repo.top / ".fileperf").exists()
    assert state_of(repo) == before


def test_the_commit_that_is_checked_out_is_compared_with_the_one_before_it(repo: Repo, run_load: Run) -> None:
    first = repo.git("rev-parse", "--short=7", "HEAD")
    repo.commit(notes_txt="no code that is served, but another tree")
    result = run_load("--fileperf-against=main", *SHORT, "--collect-only")
    result.stdout.fnmatch_lines([f"fileperf: measuring; *; against {first} (the commit before main)"])


def test_a_directory_is_compared_with(repo: Repo, run_load: Run, tmp_path: Path) -> None:
    old = tmp_path / "old"
    repo.git("worktree", "add", "--quiet", "--detach", str(old))
    make_slower(Repo(old))
    result = run_load(f"--fileperf-against={old}", "--fileperf-json=out.json", *SHORT)
    result.stdout.fnmatch_lines([f"fileperf: measuring; *; against {old}"])
    (entry,) = json.loads((repo.top / "out.json").read_text())["results"]
    comparison, base = entry["verdict"]["comparisons"][0], entry["base"]
    assert base["title"] == str(old)
    # How much better the code here is depends on who else uses the machine. That the other side slept does not.
    assert comparison["outcome"] != "REGRESSED"
    assert comparison["base"] < 2 / 0.02, "so many requests fit in while two connections wait for a sleeping server"


def test_what_a_commit_has_not_is_new(repo: Repo, run_load: Run) -> None:
    repo.write("test_it.py", TESTS.replace('"/wait"', '"/more"'))
    repo.write("server_app.py", (repo.top / "server_app.py").read_text())
    app = (repo.top / "server_app.py").read_text()
    repo.write("server_app.py", app.replace("status = ", "status = 404 if scope['path'] == '/more' else ", 1))
    repo.commit()
    repo.write("server_app.py", app)

    result = run_load("--fileperf-against=HEAD", "--fileperf-duration=0.5s", *SHORT)

    result.assert_outcomes(passed=1)
    text = " ".join(result.stdout.str().split())
    assert "has no good answer to GET /more: status 404" in text
    assert "NEW" in text


def test_the_code_with_itself_prints_what_could_be_seen(repo: Repo, run_load: Run) -> None:
    result = run_load("--fileperf-aa", *SHORT, "--fileperf-max-duration=12s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["fileperf: measuring; *; against itself", "*rps: * slower shows in *; 5 % needs *"])
    assert "PASS" not in result.stdout.str()


# --- what is refused


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--fileperf-against=no-such-branch",), "'no-such-branch' is neither a directory nor a ref"),
        (("--fileperf-against=",), "name a Git ref, a directory, a URL or python:INTERPRETER"),
        (("--fileperf-against=.",), "both sides would be the same"),
        (("--fileperf-against=http://example.com",), "load only goes to this machine"),
        (("--fileperf-against=HEAD", "--fileperf-update"), "stores neither: leave out --fileperf-update"),
        (("--fileperf-against=HEAD", "--fileperf-smoke"), "compare nothing, leave out --fileperf-smoke"),
        (("--fileperf-aa", "--fileperf-update=new"), "--fileperf-aa: it measures two versions, and stores neither"),
        (("--fileperf-aa", "--fileperf-smoke"), "--fileperf-aa: a few requests compare nothing"),
        (("--fileperf-aa", "--fileperf-against=HEAD"), "give one of them"),
        (("--fileperf-against=HEAD", "--fileperf-profile"), "leave out --fileperf-profile"),
        (("--fileperf-against=" + "x" * 5000,), "File name too long"),
        (("--fileperf-against=python:~nobody-of-this-name/bin/python",), "home directory"),
        (("--fileperf-against=HEAD", "--fileperf-max-duration=0s"), "max_duration"),
    ],
)
def test_what_makes_no_sense_is_refused_before_any_test(
    arguments: tuple[str, ...], said: str, repo: Repo, run: Run
) -> None:
    assert said in " ".join(refused(run(*arguments)).split())


def test_all_that_is_wrong_is_said_at_once(repo: Repo, run: Run) -> None:
    said = refused(run("--fileperf-against=nowhere", "--fileperf-update", "--fileperf-smoke"))
    for part in ("'nowhere' is neither", "stores neither", "a few requests compare nothing"):
        assert part in said


def test_outside_of_a_repository_a_ref_is_refused(project: pytest.Pytester, run: Run) -> None:
    assert "is in no Git repository" in " ".join(refused(run("--fileperf-against=main")).split())


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
@pytest.mark.parametrize("moment", ["as soon as there are files", "while both are loaded"])
@pytest.mark.hostile
def test_ctrl_c_leaves_nothing_behind(moment: str, repo: Repo, tmp_path: Path) -> None:
    make_slower(repo, 0.01)
    before = state_of(repo)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-pno:randomly",
        "-pno:cacheprovider",
        "-pno:benchmark",
        "-q",
        "--fileperf-against=HEAD",
    ]
    process = subprocess.Popen(
        command, cwd=repo.top, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    family = psutil.Process(process.pid)

    def has_begun() -> bool:
        if moment == "as soon as there are files":
            return any((tmp_path / "temporary").glob("fileperf-*/base-*"))
        started = [child for child in family.children(recursive=True) if _is_generator(child)]
        return bool(started) and len(family.children(recursive=True)) > 2

    wait_for(has_begun, process)
    if moment == "while both are loaded":
        time.sleep(1)
    children = family.children(recursive=True)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=50)

    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert alive == [], output
    assert moment != "while both are loaded" or len(gone) >= 3
    deadline_s = time.monotonic() + 5  # a supervisor may be the last to go
    while (left := list((tmp_path / "temporary").glob("fileperf*"))) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert left == []
    assert state_of(repo) == before


def _is_generator(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return "pytest_fileperf.drive" in process.cmdline()
    return False
