"""The log of a process does not grow without end, and its last lines are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_fileperf.errors import ServerDiedError
from pytest_fileperf.host import child as host
from pytest_fileperf.host.child import Child


@pytest.mark.skipif(os.name != "posix", reason="Windows lets no file be shortened that others write to")
def test_a_long_log_is_emptied_and_its_last_lines_stay(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "LONGEST_LOG_BYTES", 100_000)
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


def test_lines_of_a_log_are_cut_and_cleaned_where_they_are_shown() -> None:
    log = ["\x1b[31mred\x1b[0m", "turned \u202e round\x07\x9b2J", "a\ttab", "x" * 10_000]
    shown = str(ServerDiedError("it ended", log=log)).splitlines()
    assert shown[:5] == [
        "it ended",
        "last lines of its log:",
        "  | red",
        "  | turned \N{REPLACEMENT CHARACTER} round" + 2 * "\N{REPLACEMENT CHARACTER}" + "2J",
        "  | a       tab",
    ]
    assert shown[5] == f"  | {'x' * 499}…"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 28] No space left on device: 'a'",
        "sqlite3.OperationalError: database or disk is full",
        "Error: ENOSPC: no space left on device, write",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_a_full_disk_that_a_log_tells_of_is_named(line: str) -> None:
    said = "a disk that it writes to is full, as its log says: make room there"
    assert str(ServerDiedError("it ended", log=["Traceback", line])).splitlines()[1] == said
    assert said not in str(ServerDiedError("it ended", log=["Traceback", "OSError: [Errno 5] Input/output error"]))
