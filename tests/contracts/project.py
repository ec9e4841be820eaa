"""A user's project, and whole pytest runs in it: contracts go through options, files and exit codes alone."""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil

__all__ = ("Project", "Ran", "results", "run_pytest")

_ENVIRONMENT = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # a fifth of what a short run costs is to load the plugins of others
    "PYTHONDONTWRITEBYTECODE": "1",  # a file that is written twice in a second is not to be taken for the first
}
_INI = "[pytest]\npythonpath = .\nfileperf_app = app:app\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one pytest run left."""

    status: int
    """Its exit code."""
    text: str
    """All that it printed, on both streams."""
    record: Mapping[str, Any]
    """The file of `--fileperf-json`; empty if the run did not write one."""

    @property
    def said(self) -> str:
        """What it printed, without line ends: where a sentence is wrapped does not matter."""
        return " ".join(self.text.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A directory with an app, tests and settings."""

    top: Path

    def write(self, files: Mapping[str, str]) -> Project:
        """Writes files by their paths in the project, without the indent that all their lines share."""
        ini = {} if (self.top / "pytest.ini").exists() else {"pytest.ini": _INI}
        for name, text in {**ini, **files}.items():
            path = self.top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return self

    def commit(self) -> Project:
        """Commits all files; makes the repository if there is none."""
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "a commit"]):
            identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
            subprocess.run(["git", *identity, *command], cwd=self.top, check=True, timeout=60)
        return self

    def run(
        self,
        *options: str,
        env: Mapping[str, str] | None = None,
        width: int = 80,
        longest_s: float = 110,
        asked: bool = True,
    ) -> Ran:
        """Runs `pytest --fileperf` with these options; all of it has to end within this time.

        If it is not `asked`, without `--fileperf` and a record.
        """
        written = self.top / ".run.json"
        written.unlink(missing_ok=True)
        own = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST_")}
        given = {**own, **_ENVIRONMENT, "COLUMNS": str(width), **(env or {})}
        asking = ["--fileperf", f"--fileperf-json={written}"] if asked else []
        arguments = ["-p", "fileperf", *asking, *options]
        status, text = run_pytest(self.top, given, arguments, longest_s)
        record = json.loads(written.read_text(encoding="utf-8")) if written.exists() else {}
        written.unlink(missing_ok=True)
        return Ran(status=status, text=text, record=record)

    def told(self, words: str, *options: str, env: Mapping[str, str] | None = None, width: int = 80) -> Ran:
        """Runs it until what it says has these words (a regular expression), or the machine was not busy.

        Where other programs have the cores, a comparison rightly says less. Three runs at most; the last counts.
        """
        for _ in range(2):
            ran = self.run(*options, env=env, width=width)
            if re.search(words, ran.said) or "the machine was busy" not in ran.said:
                return ran
        return self.run(*options, env=env, width=width)

    def each_told(
        self, names: Iterable[str], missed: Callable[[str, Ran], Iterable[str]], *options: str, width: int = 80
    ) -> Mapping[str, Ran]:
        """Runs the tests `test_NAME` at once, and those again that miss words on a busy machine: three runs at most.

        `missed` gives what the run should tell of the test, and does not. Returns the last run of each test.
        """
        last: dict[str, Ran] = {}
        asked = list(names)
        for _ in range(3):
            these = " or ".join(f"test_{name}" for name in asked)
            ran = self.run(*options, "-k", these, width=width, longest_s=60 + 25 * len(asked))
            last.update(dict.fromkeys(asked, ran))
            asked = [name for name in asked if list(missed(name, ran))]
            if not asked or "the machine was busy" not in ran.said:
                break
        return last


def run_pytest(directory: Path, env: Mapping[str, str], arguments: Sequence[str], longest_s: float) -> tuple[int, str]:
    """Runs pytest there; returns its exit code, and what it printed. Raises TimeoutExpired if it takes longer."""
    # Python reads such variables when it starts.
    own = {name for name, value in env.items() if name.startswith("PYTHON") and value != os.environ.get(name)}
    afresh = sys.platform != "linux" or own - {"PYTHONDONTWRITEBYTECODE"}
    return (_started if afresh else _forked)(directory, env, arguments, longest_s)


def _started(top: Path, env: Mapping[str, str], arguments: Sequence[str], longest_s: float) -> tuple[int, str]:
    """Runs pytest in a process that is started for it; returns its exit code, and what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=top,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=longest_s,
        check=False,
    )
    return done.returncode, done.stdout.decode("utf-8", "replace")


@cache
def _forking() -> subprocess.Popen[str]:
    """Starts the process whose forks are runs. It ends when nothing can be read from here any more."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("forking.py"))],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # threads are not there in a fork
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.communicate)
    return process


def _forked(top: Path, env: Mapping[str, str], arguments: Sequence[str], longest_s: float) -> tuple[int, str]:
    """Does the same by a fork of a process that has imported what most of a start is spent on."""
    import resource

    forking, files = _forking(), resource.getrlimit(resource.RLIMIT_NOFILE)
    assert forking.stdin is not None
    assert forking.stdout is not None
    with tempfile.NamedTemporaryFile() as output:
        order = {"directory": str(top), "env": env, "arguments": arguments, "files": files, "output": output.name}
        try:
            forking.stdin.write(json.dumps([longest_s, order]) + "\n")
            forking.stdin.flush()
            status = int(forking.stdout.readline())
        except BaseException:  # as by pytest-timeout: no later run gets this one's answer
            for process in psutil.Process(forking.pid).children():
                process.kill()
            forking.kill()
            _forking.cache_clear()
            raise
        text = output.read().decode("utf-8", "replace")
    if status == -signal.SIGKILL:
        raise subprocess.TimeoutExpired("pytest", longest_s, text)
    return status, text


def results(ran: Ran) -> Mapping[str, Mapping[str, Any]]:
    """Returns the results of a run's record by the names of their tests, such as `test_get[8]`; not parts and steps."""
    found = ran.record.get("results", ())
    return {item["test"]["name"]: item for item in found if not item["test"]["part"] and not item["test"]["step"]}
