from __future__ import annotations

from pathlib import Path

import pytest

from pytest_fileperf.errors import FilePerfError
from pytest_fileperf.report.files import write_text


def test_writes_the_text_and_the_directories_above_it(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "today" / "run.json"
    write_text(path, "{}\n")
    assert path.read_bytes() == b"{}\n"
    assert list(path.parent.iterdir()) == [path]


def test_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    write_text(path, "new µ")
    assert path.read_text(encoding="utf-8") == "new µ"


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["a file/run.json", "a directory"])
def test_a_path_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "a directory").mkdir()
    (tmp_path / "a directory" / "kept").write_text("")
    with pytest.raises(FilePerfError, match=r"cannot write .*: \w+"):
        write_text(tmp_path / place, "{}")
