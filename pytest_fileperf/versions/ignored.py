"""Files that Git ignores, such as `.env` and `_version.py`: no tree has them, but code may read them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import datetime

from pytest_fileperf.versions.repository import GitError
from pytest_fileperf.versions.snapshot import Snapshots

__all__ = ("changed_since",)

_MOST_NAMED = 5


def changed_since(snapshots: Snapshots, when: datetime) -> tuple[str, ...]:
    """Returns ignored files that were written later, at most five; none where that cannot be told."""
    try:
        since_s = when.timestamp()
        later = [path for path, status in _regular_files(snapshots) if status.st_mtime > since_s]
    except (GitError, OSError, OverflowError, ValueError):
        return ()
    return tuple(later[:_MOST_NAMED])


def _regular_files(snapshots: Snapshots) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the path of each ignored file, from the top of the repository on, and what the file system says of it."""
    for path in snapshots.ignored_files():
        try:
            status = (snapshots.repository.top / path).lstat()
        except OSError:  # gone meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status
