"""What a process uses, seen from outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from serve.scripted import Scripted, scripted, settled

from pytest_fileperf.host import cpu
from pytest_fileperf.host.cpu import io_stalled_ns, open_files, process_use
from pytest_fileperf.host.threads import ThreadWatch

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""


@pytest.fixture
def process() -> Iterator[Scripted]:
    with scripted() as process:
        yield process


def test_is_what_psutil_sees(process: Scripted) -> None:
    use = process_use(process.pid)
    known = psutil.Process(process.pid)

    assert use is not None
    assert use.threads == known.num_threads() == 2
    assert use.rss_bytes == pytest.approx(known.memory_info().rss, rel=0.2)
    assert use.cpu_ns / 1e9 == pytest.approx(sum(known.cpu_times()[:2]), abs=0.05)  # psutil counts in 10 ms ticks


@linux
def test_files_are_counted(process: Scripted) -> None:
    before = process_use(process.pid)
    process.do("open 7")
    after = process_use(process.pid)

    assert before is not None
    assert after is not None
    assert before.files == psutil.Process(process.pid).num_fds() - 7
    assert after.files == before.files + 7


@linux
@pytest.mark.parametrize("most_listed, known", [(1_000, True), (1, False)])
def test_where_the_kernel_does_not_count_files_they_are_listed_unless_there_are_many(
    process: Scripted, most_listed: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "MOST_FILES_LISTED", most_listed)
    uncounted = f"/proc/{process.pid}/fdinfo"  # lists what `fd` does, and its size is 0 on every kernel

    files = open_files(uncounted)

    assert files == (psutil.Process(process.pid).num_fds() if known else None)


@linux
def test_the_main_thread_s_share_is_told_from_the_whole(process: Scripted) -> None:
    process.do("nap 3")
    settled(ThreadWatch(process.pid))
    use = process_use(process.pid)

    assert use is not None
    assert use.main_cpu_ns is not None
    assert 0 < use.main_cpu_ns < use.cpu_ns
    assert use.waiting_ns is not None


@linux
def test_what_is_written_to_storage_is_counted(tmp_path: Path) -> None:
    code = "import os; f = open('file', 'wb'); f.write(bytes(1 << 20)); os.fsync(f); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        use = process_use(process.pid)
        process.kill()

    assert use is not None
    assert use.written_bytes in (None, 0) or use.written_bytes >= 1 << 20  # a file system in memory writes nothing


def test_a_process_that_is_gone_uses_nothing() -> None:
    assert process_use(GONE) is None


@linux
def test_waits_for_storage_only_grow() -> None:
    before, after = io_stalled_ns(), io_stalled_ns()

    assert (before is None) == (after is None)
    assert before is None or after is None or before <= after


@linux
def test_needs_no_psutil() -> None:
    code = (
        "import os, sys, pytest_fileperf.host.cpu as v;"
        "v.process_use(os.getpid()), v.io_stalled_ns(); print('psutil' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
