"""Directories that are needed for a while: nothing of them stays, also where their run was killed; and logs in them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from serve.processes import posix

from pytest_fileperf.host import child as child_module
from pytest_fileperf.host import scratch, supervisor
from pytest_fileperf.host.child import Child
from pytest_fileperf.host.files import put_text
from pytest_fileperf.host.scratch import take

KILLED = """
import os, signal
from pathlib import Path
from pytest_fileperf.host import scratch
(scratch.make("base") / "app.py").write_text("x")
with scratch.beside(Path({beside!r})) as directory:
    (directory / "new").write_text("x")
    os.kill(os.getpid(), signal.{signal})
"""
HOLDING = """
import time
from pytest_fileperf.host import scratch
print(scratch.make("base"), flush=True)
time.sleep(60)
"""


INTERRUPTED = """
import os, signal, subprocess, sys, tempfile
from pytest_fileperf.host import scratch
make = tempfile.mkdtemp
def interrupted(**given):
    path = make(**given)
    if given["prefix"] == "base-":
        print(path, flush=True)
        os.kill(os.getpid(), signal.SIGINT)
    return path
signal.signal(signal.SIGINT, signal.default_int_handler)
server = scratch.make("server")
if sys.argv[1] == "a fork":
    if not os.fork():
        sys.exit()
    os.wait()
    assert server.exists()
if sys.argv[1] == "a program":
    command = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"]
    subprocess.Popen(scratch.supervised(command, server), start_new_session=True)
tempfile.mkdtemp = interrupted
try:
    scratch.make("base")
except KeyboardInterrupt:
    pass
"""
TWO_PLACES = """
import shutil, sys, tempfile
from pytest_fileperf.host import scratch
for tempfile.tempdir in sys.argv[1:]:
    directory = scratch.make("base")
    if tempfile.tempdir == sys.argv[1]:
        shutil.rmtree(directory.parent)
"""
STUCK = """
import shutil
from pytest_fileperf.host import scratch
(scratch.make("base") / "busy").touch()
shutil.rmtree = lambda path, **_: None  # as where a program goes on writing
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


def wait_until_gone(*paths: Path) -> None:
    deadline_s = time.monotonic() + 15
    while any(path.exists() for path in paths) and time.monotonic() < deadline_s:
        time.sleep(0.02)


def test_directories_have_one_around_them_which_goes_with_the_last(temporary: Path) -> None:
    first, second = scratch.make("server"), scratch.make("base")
    assert first.parent == second.parent
    assert list(temporary.iterdir()) == [first.parent]
    assert first.name.startswith("server-")
    (first / "read-only").mkdir(mode=0o500)
    scratch.remove(first)
    assert second.exists()
    assert not first.exists()
    scratch.remove(second)
    scratch.remove(second)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows does not limit how large a file may be")
def test_where_nothing_can_be_written_no_directory_is_left(temporary: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # for a full disk
    try:
        with pytest.raises(OSError, match="File too large"), scratch.beside(temporary):
            pass
        with pytest.raises(OSError, match="File too large"):
            scratch.make("server")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(temporary.iterdir()) == []


def test_one_whose_surroundings_somebody_has_removed_is_made_anew(temporary: Path) -> None:
    shutil.rmtree(scratch.make("base").parent)
    again = scratch.make("base")
    assert again.exists()
    scratch.remove(again)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM"])
def test_the_next_run_removes_what_a_killed_one_has_left(name: str, temporary: Path, tmp_path: Path) -> None:
    beside = tmp_path / "baselines"
    beside.mkdir()
    code = KILLED.format(beside=str(beside), signal=name)
    env = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=False, timeout=30)
    assert done.returncode == -getattr(signal, name)
    (left,) = temporary.iterdir()
    assert [path.name[:10] for path in beside.iterdir()] == [".fileperf-"]
    put_text(beside / "of-the-next.json", "{}")
    assert [path.name for path in beside.iterdir()] == ["of-the-next.json"]
    scratch.remove(scratch.make("base"))
    assert not left.exists()


def test_a_directory_that_only_has_such_a_name_stays(temporary: Path) -> None:
    for name, content in (("fileperf-mine", None), ("fileperf-base-mine", b""), ("fileperf-other", b"of another")):
        (temporary / name).mkdir()
        if content is not None:
            (temporary / name / supervisor.MARK).write_bytes(content)
    scratch.remove(scratch.make("base"))
    assert len(list(temporary.iterdir())) == 3


def test_the_directory_of_a_run_that_lives_stays(temporary: Path) -> None:
    env = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", HOLDING], env=env, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            its = Path(other.stdout.readline().strip())
            own = scratch.make("base")
            assert its.exists()
            assert own.parent != its.parent
            scratch.remove(own)
        finally:
            other.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
def test_the_next_run_ends_a_server_that_was_stopped_with_its_supervisor(temporary: Path) -> None:
    code = """
import subprocess, sys, time
from pytest_fileperf.host import scratch
subprocess.Popen(scratch.supervised(("/bin/sleep", "60"), scratch.make("server")), start_new_session=True)
time.sleep(60)
"""
    env = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as owner:
        try:
            while not (below := psutil.Process(owner.pid).children(recursive=True))[1:] or below[1].name() != "sleep":
                time.sleep(0.02)
            os.killpg(below[0].pid, signal.SIGSTOP)
        finally:
            owner.kill()
    (left,) = temporary.iterdir()
    time.sleep(0.3)
    assert [process.status() for process in below] == [psutil.STATUS_STOPPED] * 2
    scratch.remove(scratch.make("server"))
    _, alive = psutil.wait_procs(below, timeout=5)
    assert alive == []
    wait_until_gone(left)
    assert not left.exists()


def test_a_directory_whose_run_was_killed_before_it_was_marked_goes_once_it_is_old(tmp_path: Path) -> None:
    stay = {}
    for case, (name, held, age_s, stays) in enumerate(
        (
            (".fileperf-abcd_123", None, 700, False),
            (".fileperf-abcd_123", b"", 700, False),  # not marked yet
            (".fileperf-abcd_123", None, 0, True),
            (".fileperf-abcd_123", b"another's", 700, True),
            (".fileperf-results", None, 700, True),
        )
    ):
        directory = tmp_path / str(case) / name
        directory.mkdir(parents=True)
        if held is not None:
            (directory / supervisor.MARK).write_bytes(held)
        os.utime(directory, (0, time.time() - age_s))
        stay[directory] = stays
    filled = tmp_path / "filled" / ".fileperf-abcd_123"
    (filled / "new").mkdir(parents=True)
    os.utime(filled, (0, 0))
    stay[filled] = True
    for directory in stay:
        with scratch.beside(directory.parent):
            pass
    assert {directory: directory.exists() for directory in stay} == stay


def test_ctrl_c_while_a_directory_is_made_leaves_nothing(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: int) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(scratch, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scratch.make("base")
    assert list(temporary.iterdir()) == []


@posix
@pytest.mark.parametrize("beside", ["nothing", "a fork", "a program"])
def test_a_directory_that_nobody_knows_of_since_ctrl_c_goes_with_its_process(beside: str, temporary: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, beside]
    env = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path(done.stdout.strip()).name.startswith("base-")
    if beside == "a program":  # its supervisor lets it end first
        wait_until_gone(*temporary.iterdir())
    assert list(temporary.iterdir()) == []


def test_where_somebody_has_removed_one_directory_the_next_one_goes_all_the_same(tmp_path: Path) -> None:
    places = (tmp_path / "one", tmp_path / "two")
    for place in places:
        place.mkdir()
    subprocess.run([sys.executable, "-c", TWO_PLACES, *map(str, places)], check=True, timeout=30)
    assert [list(place.iterdir()) for place in places] == [[], []]


def test_what_cannot_be_removed_yet_keeps_its_mark_for_the_next_run(temporary: Path) -> None:
    env = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary)}
    subprocess.run([sys.executable, "-c", STUCK], env=env, check=True, timeout=30)
    (left,) = temporary.iterdir()
    assert (left / supervisor.MARK).exists()
    scratch.remove(scratch.make("base"))
    assert list(temporary.iterdir()) == []


def test_a_directory_that_is_just_being_made_is_not_taken_from_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks whether a mark is held holds it for a moment, and the run that makes it would go on without."""
    seen = list[bool]()

    def looked(descriptor: int, *, without_locks: bool = True) -> bool:
        if not without_locks:
            seen.append(True)
        return take(descriptor)

    def with_another_run(descriptor: int) -> bool:
        monkeypatch.setattr(scratch, "take", take)
        with monkeypatch.context() as patched:
            patched.setattr(scratch, "take", looked)
            with scratch.beside(tmp_path):
                pass
        return take(descriptor)

    monkeypatch.setattr(scratch, "take", with_another_run)
    with scratch.beside(tmp_path) as directory, scratch.beside(tmp_path):
        assert directory.exists()
    assert seen == []


# --- the log of a process does not grow without end, and its last lines are there


@posix  # Windows lets no file be shortened that others write to
def test_a_long_log_is_emptied_and_its_last_lines_stay(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "LONGEST_LOG_BYTES", 100_000)
    child = Child("any")
    log = child.directory / "log.txt"
    assert list(child.log) == []
    log.write_bytes(b"\n".join(b"%d" % number for number in range(1000)))
    child.shorten_log()
    assert child.log == tuple(map(str, range(960, 1000))), "a short log stays as it is, and only its end is read"
    with log.open("ab") as writer:
        for number in range(20):
            writer.write(b"%d %s\n" % (number, b"x" * 10_000))
        writer.flush()
        child.shorten_log()
        assert log.stat().st_size == 0
        assert child.log[-1].startswith("19 ")

        writer.write(b"after it\n")
        writer.flush()
        child.shorten_log()
        assert log.read_bytes() == b"after it\n"
        assert [line[:8] for line in child.log[-2:]] == ["19 " + "x" * 5, "after it"]
    log.unlink()
    child.shorten_log()
    child.stop(patience_s=0)
