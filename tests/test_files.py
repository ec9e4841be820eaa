"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import CodeType

import cloudpickle
import pytest

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.host import files
from pytest_fileperf.host.files import put_text, write_text
from pytest_fileperf.host.pickles import by_value

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")


def test_the_file_holds_the_text_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a.json"
    put_text(path, "old\n")
    put_text(path, "new µ\n")
    assert path.read_bytes() == "new µ\n".encode()
    assert list(path.parent.iterdir()) == [path]


@posix
def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    before = os.umask(0o022)
    try:
        put_text(path, "")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    put_text(path, "old")
    (tmp_path / "directory" / "full").mkdir(parents=True)
    with pytest.raises(OSError):
        put_text(tmp_path / "directory", "")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        put_text(path, "new")
    assert path.read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.json", "directory"]


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_half_of_a_surrogate_pair_is_written_as_json_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put_text(path, '["a\udc80\ud800"]')
    assert path.read_bytes() == b'["a\\udc80\\ud800"]'
    assert json.loads(path.read_bytes()) == ["a\udc80\ud800"]


@posix
def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, missing = tmp_path / "real" / "a.json", tmp_path / "real" / "new.json"
    target.write_text("old")
    inode = target.stat().st_ino
    links = tmp_path / "a.json", tmp_path / "b.json"
    links[0].symlink_to(target)
    links[1].symlink_to("real/new.json")
    for link in links:
        write_text(link, "new")
    assert all(link.is_symlink() for link in links)
    assert target.read_text() == missing.read_text() == "new"
    assert target.stat().st_ino != inode
    assert sorted(item.name for item in target.parent.iterdir()) == ["a.json", "new.json"]


@posix
def test_a_link_to_a_device_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "nothing"
    link.symlink_to(os.devnull)
    write_text(link, "{}")
    assert link.is_symlink()
    assert stat.S_ISCHR(link.stat().st_mode)


@posix
def test_a_pipe_gets_all_of_the_text_and_stays_one(tmp_path: Path) -> None:
    pipe, text = tmp_path / "pipe", "µ" * 500_000
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    write_text(pipe, text)
    reader.join()
    assert read == [text]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@posix
def test_a_pipe_that_nobody_reads_is_an_error_and_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_READER_S", 0.1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(
        FilePerfError, match=r"cannot write .*pipe: it is a pipe that nobody has read from for 0\.1 s. N"
    ):
        write_text(pipe, "{}")
    idle = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(FilePerfError, match="nobody has read from"):
        write_text(pipe, "x" * 500_000)
    os.close(idle)


@posix
def test_standard_output_that_is_a_file_keeps_what_was_printed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pytest_fileperf.host.files import write_text\n"
        "print('before', flush=True); write_text(Path('/dev/fd/1'), '{}\\n'); print('after')"
    )
    with (tmp_path / "out").open("w") as out:
        subprocess.run([sys.executable, "-c", code], stdout=out, check=True, timeout=30)
    assert (tmp_path / "out").read_text() == "before\n{}\nafter\n"


@pytest.mark.parametrize("place", ["a file/run.json", "a directory"])
def test_a_path_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a directory").mkdir()
    (tmp_path / "a directory" / "kept").write_text("")
    with pytest.raises(FilePerfError, match=r"cannot write .*: \w.*\. Name another path$"):
        write_text(tmp_path / place, "{}")


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "run.json"
    with pytest.raises(FilePerfError) as raised:
        write_text(path, "{}")
    assert str(raised.value) == (
        f"cannot write {path}: {os.strerror(errno.ENOSPC)}. Free some space there, or name another path"
    )


def test_code_that_is_sent_to_another_process_keeps_its_file() -> None:
    def outer() -> CodeType:
        return (lambda: 1).__code__

    sent = cloudpickle.loads(by_value(outer))
    assert (sent.__code__.co_filename, sent().co_filename) == (__file__, __file__)
