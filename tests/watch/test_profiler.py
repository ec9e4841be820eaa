"""py-spy on real processes: what it sees, how it ends, and what is said where it sees nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import httpx
import psutil
import pytest
from serve.processes import Boot, busy, linux, living, posix, remaining_after

from pytest_fileperf.host import profiler
from pytest_fileperf.host.profiler import (
    Profiler,
    ProfilerUnavailableError,
    Sampled,
    find_py_spy,
    let_run,
    permission_needed,
)
from pytest_fileperf.measure.stacks import Threads, profile_of, threads_of
from pytest_fileperf.serve.spec import Uvicorn

GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Where a test writes a program of its own in the place of py-spy."""
    return tmp_path / "py-spy"


@pytest.fixture
def in_haste(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the test's own program run in the place of py-spy, and does not wait for its end."""
    monkeypatch.setattr(profiler, "find_py_spy", lambda: str(program))
    monkeypatch.setattr(profiler, "END_S", 0.2)
    monkeypatch.setattr(profiler, "LET_GO_S", 0.2)


def write(program: Path, script: str) -> None:
    program.write_text(f"#!{sys.executable}\n{script}", encoding="utf-8")
    program.chmod(0o755)


def sample(pids: list[int], for_s: float = 0.5) -> Sampled:
    with Profiler(pids, seconds=for_s) as looking:
        time.sleep(for_s)
        return looking.stop()


def functions_of(seen: Sampled) -> set[str]:
    found = profile_of([seen], requests=1)
    return {frame.function for stack in found.stacks for frame in stack}


@contextmanager
def asleep() -> Iterator[int]:
    """Starts a Python that computes nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"], stdout=PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def spies(pid: int) -> list[int]:
    """Returns the processes that look at this one, with their supervisors."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            found += [process.pid] if {"--pid", str(pid)} <= set(process.cmdline()) else []
    return found


# --- what it sees


@pytest.mark.usefixtures("looks")
@linux
def test_what_processes_compute_is_seen_from_cores_of_its_own() -> None:
    core = min(os.sched_getaffinity(0))
    with busy() as one, busy() as other, Profiler([one, other, GONE], seconds=5, cores=frozenset({core})) as looking:
        spied = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("py-spy")]
        assert [process.cpu_affinity() for process in spied] == [[core]] * 2
        time.sleep(0.5)
        os.kill(other, signal.SIGTERM)  # what was seen until then is kept
        seen = looking.stop()
    assert (seen.torn, seen.notes) == (False, (f"process {GONE} has ended",))
    assert len(seen.collapsed) == 2
    for text in seen.collapsed:
        found = profile_of([replace(seen, collapsed=(text,), cpu_s=(None,))], requests=1)
        assert found.samples > 0
        assert {stack[-1].function for stack in found.stacks} <= {"burn", "<module>"}


IN_THREADS = """
import threading, time
def compute():
    until = time.thread_time() + 0.0001
    while time.thread_time() < until:
        pass
def pause():
    time.sleep(0.0001)
def work():
    while True:
        compute()
        pause()
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("here", flush=True)
time.sleep(60)
"""


@pytest.mark.usefixtures("looks")
def test_threads_that_compute_are_seen_by_the_lock_and_those_that_wait_are_not() -> None:
    with subprocess.Popen([sys.executable, "-c", IN_THREADS], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            with Profiler([process.pid], seconds=1, by_lock=True) as looking:
                time.sleep(1)
                seen = looking.stop()
        finally:
            process.kill()
    found = profile_of([seen], requests=1)
    leaves = Counter[str]()
    for stack, count in found.stacks.items():
        leaves[stack[-1].function] += round(count)
    assert leaves["compute"] > 0.7 * found.samples
    assert leaves["pause"] < 0.3 * found.samples
    assert threads_of([seen]) is Threads.SEEN


@pytest.mark.usefixtures("looks")
def test_a_server_that_waits_for_requests_is_not_seen_and_one_that_works_is(boot: Boot) -> None:
    server = boot(Uvicorn())
    idle = sample(list(server.worker_pids))
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(trust_env=False) as client:
            while not stop.is_set():
                client.get(f"{server.url}/compute")

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        at_work = sample(list(server.worker_pids), for_s=1.0)
    finally:
        stop.set()
        asking.join()

    assert "app" in functions_of(at_work)
    assert "app" not in functions_of(idle)
    # Of 100 samples; on a busy machine a process that was paused has to wait for a core before it waits again.
    assert profile_of([idle], requests=1).samples < 50
    server.check()


# --- how it ends


@pytest.mark.usefixtures("looks")
def test_nothing_is_left_behind(scratch: Path) -> None:
    with busy() as pid:
        with pytest.raises(KeyboardInterrupt), Profiler([pid], seconds=30):  # noqa: PT012 # the error ends the sampling
            during = spies(pid)
            raise KeyboardInterrupt
        assert during
        assert living(during) == []
        assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    assert list(scratch.iterdir()) == []


@pytest.mark.usefixtures("looks")
def test_it_ends_by_itself_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "TAIL_S", 0)
    with asleep() as pid, Profiler([pid], seconds=1):
        begun = spies(pid)
        assert begun
        assert remaining_after(10, begun) == []


@posix
@pytest.mark.usefixtures("in_haste")
def test_one_that_does_not_end_is_killed(program: Path, scratch: Path) -> None:
    write(
        program,
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "print('py-spy> Sampling process', flush=True)\n"
        "time.sleep(60)\n",
    )
    with asleep() as pid, Profiler([pid], seconds=0) as looking:
        begun = spies(pid)
        with pytest.raises(ProfilerUnavailableError) as caught:
            looking.stop()

    assert str(caught.value) == f"py-spy wrote no samples of process {pid}"
    assert begun
    assert remaining_after(5, begun) == []
    assert [path.name for path in scratch.iterdir()] == [program.name]


def is_paused(pid: int, *, wait_s: float = 0) -> bool:
    """Returns whether a process is paused, at the latest after a time: the signal for it takes a moment to arrive."""
    deadline_s = time.monotonic() + wait_s
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(0.01)
    return True


@posix
@pytest.mark.usefixtures("in_haste")
def test_a_process_that_it_leaves_paused_goes_on(program: Path) -> None:
    with busy() as pid:
        write(
            program,
            "import os, signal, time\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            f"os.kill({pid}, signal.SIGSTOP)\n"
            "print('py-spy> Sampling process', flush=True)\n"
            "time.sleep(60)\n",
        )
        with Profiler([pid], seconds=1):
            assert is_paused(pid, wait_s=10)
        assert not is_paused(pid)


@posix
def test_a_process_goes_on_whose_pause_is_still_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with busy() as pid:
        os.kill(pid, signal.SIGSTOP)
        assert is_paused(pid, wait_s=10)
        with monkeypatch.context() as patched:
            patched.setattr(psutil.Process, "status", lambda process: psutil.STATUS_RUNNING)
            let_run(pid)
        assert not is_paused(pid)


# --- where it sees nothing


def why_not(pids: list[int], for_s: float = 0.5) -> str:
    with pytest.raises(ProfilerUnavailableError) as caught:
        sample(pids, for_s)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert why_not([GONE]) == 'py-spy is not installed: pip install "pytest-fileperf[profile]"'


def test_it_is_found_beside_the_python_that_runs_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name = "py-spy.exe" if os.name == "nt" else "py-spy"
    write(tmp_path / name, "")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))

    assert find_py_spy() == str(tmp_path / name)


@pytest.mark.usefixtures("looks")
@posix
def test_processes_that_it_cannot_look_at() -> None:
    assert why_not([]) == "the server's process isn't known"
    assert why_not([os.getpid()]) == "the app runs in the test process, where samples include the load generator"
    assert why_not([GONE]) == f"process {GONE} has ended"
    with subprocess.Popen([shutil.which("sleep") or "sleep", "60"]) as process:
        try:
            reason = why_not([process.pid])
        finally:
            process.kill()
    assert reason == f"py-spy finds no Python that it knows in process {process.pid}. A newer py-spy may know it"


SCOPES = (
    ("1", False, " (ptrace_scope=1). Run pytest as root, or run `sudo sysctl kernel.yama.ptrace_scope=0`"),
    ("2", False, " (ptrace_scope=2). Run pytest as root, or run `sudo sysctl kernel.yama.ptrace_scope=0`"),
    ("3", True, " (kernel.yama.ptrace_scope=3). Set it to 0 in the machine's configuration, and restart the machine"),
    (
        "1",
        True,
        ": give the container the capability SYS_PTRACE (docker run --cap-add SYS_PTRACE)",
    ),
    ("0", False, ". It may run as another user. Run pytest as that user, or as root"),
    ("", False, ". It may run as another user. Run pytest as that user, or as root"),
)


@linux
def test_a_system_that_does_not_allow_it() -> None:
    for scope, is_root, said in SCOPES:
        assert permission_needed(scope, is_root=is_root) == said


@posix
@pytest.mark.usefixtures("in_haste")
def test_a_system_that_does_not_allow_it_is_told_as_such(program: Path) -> None:
    write(program, "print('Permission Denied: Try running again with elevated permissions')\nraise SystemExit(1)\n")

    reason = why_not([GONE])

    assert reason.startswith(f"this system does not let py-spy look into process {GONE}")
    assert reason.endswith(tuple(said for _, _, said in SCOPES))


@posix
@pytest.mark.usefixtures("in_haste")
def test_one_that_fails(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = "print('Error: Unsupported version of Python: 3.99.0\\n\\nCaused by:\\n  0: x')\nraise SystemExit(1)\n"
    for script, reason in (
        (unknown, f"py-spy cannot look into process {GONE}: Unsupported version of Python: 3.99.0"),
        ("raise SystemExit(1)\n", f"py-spy cannot look into process {GONE}: py-spy gave no reason"),
        ("print('Sampling process', flush=True)\n", f"py-spy wrote no samples of process {GONE}"),
        ("import time\ntime.sleep(60)\n", f"py-spy could not attach to process {GONE} within 0.5 s"),
    ):
        write(program, script)
        monkeypatch.setattr(profiler, "START_S", 0.5 if "sleep" in script else 15.0)
        assert why_not([GONE], for_s=0) == reason
    program.write_text("not a program", encoding="ascii")
    assert "Exec format error" in why_not([GONE])
