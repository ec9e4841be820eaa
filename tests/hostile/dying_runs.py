"""Makes runs of pytest, in forks of this process, each of which gets a signal as it is about to write; a script.

    python dying_runs.py DIRECTORY STEP

The first run is whole, and tells how many writes there are: files opened to be written, and whatever makes, renames
or removes files and directories. Then there is a run for every so manieth of them, each with the next signal of three,
and a whole one at the end, which has to remove what all others have left. Prints what was wrong, and the writes, as
JSON. What is imported is imported once.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

CHANGES = frozenset(
    {"os.chmod", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
)
"""What Python tells its audit hooks of before it does it, as it does of `open`."""
REPORTS = {"run.json": '{\n  "asked": of before', "run.md": "## Load tests: of before"}
"""What was there before, which is no whole report."""
OPTIONS = (
    "--fileperf-update=all", "--fileperf-json=out/run.json", "--fileperf-markdown=out/run.md",
)  # fmt: skip
QUIET = tuple(
    f"-pno:{name}" for name in ("anyio", "asyncio", "benchmark", "cacheprovider", "hypothesispytest", "randomly")
)
CHEAP = ("-pno:timeout", "-pno:xdist", "--assert=plain")
PRELOADED = (
    "cloudpickle", "httptools", "httpx", "numpy", "psutil", "scipy.special",
    "uvicorn", "uvloop", "wcwidth", "pytest_fileperf.plugin.written", "pytest_fileperf.session.session",
)  # fmt: skip


SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def is_write(event: str, arguments: tuple[object, ...]) -> bool:
    """Returns whether an audit event comes before a change to files of the run."""
    if event == "open":
        path, mode, flags = arguments
        writes = any(letter in str(mode or "") for letter in "wxa+") or bool(int(str(flags or 0)) & 3)
        return writes and not str(path).startswith(("/dev/", "/proc/")) and not isinstance(path, int)
    return event in CHANGES


def run(number: int, number_of_signal: int, arguments: tuple[str, ...]) -> tuple[int, list[str]]:
    """Makes a run that gets the signal before its write of this number; returns its exit code, and its writes."""
    told, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        with Path("log.txt").open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        seen = 0

        def hook(event: str, given: tuple[object, ...]) -> None:
            nonlocal seen
            if is_write(event, given):
                seen += 1
                os.write(tells, f"{event} {given[0]}\n".encode(errors="replace"))
                if seen == number:
                    os.kill(os.getpid(), number_of_signal)

        sys.addaudithook(hook)
        code = 99
        try:
            code = int(pytest.main([*QUIET, *CHEAP, "--fileperf", "-q", *arguments]))
        except KeyboardInterrupt:
            code = 2
        finally:
            os._exit(code)
    os.close(tells)
    with os.fdopen(told, "rb") as lines:
        writes = lines.read().decode().splitlines()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), writes


def damaged() -> Iterator[str]:
    """Yields what is wrong with files that were there before, or that only a whole run makes."""
    for name, old in REPORTS.items():
        text = Path("out", name).read_text(encoding="utf-8")
        is_whole = _is_json(text) if name.endswith("json") else text.strip() and text.endswith("\n")
        if text != old and not is_whole:
            yield f"{name}: {text[-80:]!r}"
    for path in Path(".fileperf").rglob("*.json"):
        if not any(part.startswith(".fileperf-") for part in path.parts) and not _is_json(path.read_text()):
            yield f"{path} is no JSON"
    (baselines,) = Path(".fileperf").glob("*-*/*.json")
    if "test_it.py::test_before" not in json.loads(baselines.read_text())["tests"]:
        yield "a baseline was lost"


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def left_over(temporary: Path) -> list[str]:
    """Returns what no run may leave for ever."""
    return [str(path) for path in (*Path().rglob(".fileperf-*"), *temporary.iterdir())]


def main(directory: str, step: str) -> None:
    """Makes all runs in this directory, which has `test_it.py`."""
    os.chdir(directory)
    temporary = Path("temporary")
    temporary.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporary.resolve())
    sys.dont_write_bytecode = True
    for module in PRELOADED:
        importlib.import_module(module)
    gc.freeze()  # the collector need not look through that in each run
    signal.signal(signal.SIGINT, signal.default_int_handler)
    arguments = ("--fileperf-server=inprocess", *OPTIONS)
    wrong: list[str] = []
    code, _ = run(0, 0, (*arguments, "-k", "before"))
    wrong += [f"exit code {code} of the run before"] * (code != 0)
    code, writes = run(0, 0, (*arguments, "-k", "now"))
    wrong += [f"exit code {code} of the first run"] * (code != 0)
    for (number, write), own in zip([*enumerate(writes, start=1)][:: int(step)], cycle(SIGNALS), strict=False):
        for report, old in REPORTS.items():
            Path("out", report).write_text(old)
        code, _ = run(number, own, (*arguments, "-k", "now"))
        expected = 2 if own == signal.SIGINT else -own
        wrong += [f"{number}: {write}: {own.name}: exit code {code}"] * (code != expected)
        wrong += [f"{number}: {write}: {own.name}: {what}" for what in damaged()]
    for path in left_over(temporary):
        os.utime(path, (0, 0))  # what has no mark yet is removed later
    code, _ = run(0, 0, (*arguments, "-k", "now"))
    wrong += [f"exit code {code} of the last run"] * (code != 0)
    wrong += [f"left: {what}" for what in left_over(temporary)]
    sys.stdout.write(json.dumps({"wrong": wrong, "writes": writes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
