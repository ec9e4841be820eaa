"""Files beside the code, such as `.env` and `_version.py`: no tree has them, but code may read them.

Git ignores them, or they are new and no source.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pytest_fileperf.units import format_bytes
from pytest_fileperf.versions.repository import GitError
from pytest_fileperf.versions.snapshot import Snapshots

__all__ = ("changed_since", "new_files", "share")

_MOST_NAMED = 5
_LARGEST_BYTES = 16 << 20
"""Settings and compiled modules are smaller; what is larger is mostly data."""
_MOST_BYTES = 64 << 20


def changed_since(snapshots: Snapshots, when: datetime) -> tuple[str, ...]:
    """Returns such files that were written later, at most five; none where that cannot be told."""
    try:
        since_s = when.timestamp()
        later = [path for path, status in _regular_files(snapshots) if status.st_mtime > since_s]
    except (GitError, OSError, OverflowError, ValueError):
        return ()
    return tuple(later[:_MOST_NAMED])


def share(snapshots: Snapshots, there: Path) -> tuple[str, ...]:
    """Copies these files to where another tree was checked out, which has none of these names.

    The same code then runs the same there. Returns sentences about what was not copied. Never raises OSError.
    """
    left_bytes = _MOST_BYTES
    large, failed = [], []
    try:
        for path, status in _regular_files(snapshots):
            if not _is_free(there, path):
                continue
            if status.st_size > min(_LARGEST_BYTES, left_bytes):
                large.append(path)
                continue
            left_bytes -= status.st_size
            try:
                (there / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(snapshots.repository.top / path, there / path, follow_symlinks=False)
            except OSError:
                failed.append(path)
    except GitError as error:
        return (f"files beside the code here are not beside the old code, as Git does not list them ({error})",)
    sizes = f"{format_bytes(_LARGEST_BYTES)} each or {format_bytes(_MOST_BYTES)} together"
    reasons = (
        (large, f"as they have more than {sizes}: commit what the code reads"),
        (failed, "as they cannot be copied: make them readable"),
    )
    return tuple(
        f"files beside the code here are not beside the old code ({_named(paths)}), {reason}"
        for paths, reason in reasons
        if paths
    )


def new_files(snapshots: Snapshots) -> dict[str, object]:
    """Returns new files that are no source, with what tells that one changed; raises GitError."""
    found: dict[str, object] = {}
    for path in snapshots.new_files():
        with suppress(OSError):
            status = (snapshots.repository.top / path).lstat()
            found[path] = (status.st_mtime_ns, status.st_size)
    return found


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(paths[:_MOST_NAMED]) + more


def _is_free(there: Path, path: str) -> bool:
    """Returns whether a tree can take a file at the path: nothing is there, and no link leads elsewhere."""
    file = there / path
    above = (there / directory for directory in Path(path).parents)
    return not os.path.lexists(file) and all(
        not directory.is_symlink() and (directory.is_dir() or not directory.exists()) for directory in above
    )


def _regular_files(snapshots: Snapshots) -> Iterator[tuple[str, os.stat_result]]:
    """Yields the path of each file beside the code, from the top of the repository on, and its status."""
    for path in snapshots.files_beside():
        try:
            status = (snapshots.repository.top / path).lstat()
        except OSError:  # gone meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            yield path, status
