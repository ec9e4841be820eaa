"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.files import put_text, write_text


def test_the_file_holds_the_text_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "a.json"
    put_text(path, "old\n")
    put_text(path, "new µ\n")
    assert path.read_bytes() == "new µ\n".encode()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no umask")
def test_others_may_read_it_as_the_umask_says(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    before = os.umask(0o022)
    try:
        put_text(path, "")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    put_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        put_text(path, "\ud800")
    (tmp_path / "directory" / "full").mkdir(parents=True)
    with pytest.raises(OSError):
        put_text(tmp_path / "directory", "")
    assert path.read_text() == "old"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.json", "directory"]


@pytest.mark.parametrize("place", ["a file/run.json", "a directory"])
def test_a_path_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a directory").mkdir()
    (tmp_path / "a directory" / "kept").write_text("")
    with pytest.raises(FilePerfError, match=r"cannot write .*: \w.*; name another path$"):
        write_text(tmp_path / place, "{}")


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    path = tmp_path / "run.json"
    with pytest.raises(FilePerfError) as raised:
        write_text(path, "{}")
    assert str(raised.value) == (
        f"cannot write {path}: {os.strerror(errno.ENOSPC)}; make room there, or name another path"
    )
