"""The event loop for loads: uvloop if it is installed, otherwise asyncio's selector loop."""

from __future__ import annotations

import asyncio
import os
import sys

from pytest_fileperf.errors import FilePerfError

_FILES = 16
"""The process must be able to open this many more files. uvloop needs room for nine files. With room for fewer than
four, uvloop would abort the process."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns uvloop's event loop, or asyncio's if uvloop isn't installed.

    Raises FilePerfError if this process may open too few files.
    """
    if sys.platform != "win32":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            _require_files()
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()


def _require_files() -> None:
    opened: list[int] = []
    try:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        while len(opened) < _FILES:
            opened.append(os.dup(opened[0]))
    except OSError as error:
        raise FilePerfError(
            f"an event loop needs {_FILES} open files, but this process may open only {len(opened)} more: "
            f"{error.strerror}. Raise the limit (`ulimit -n 1024`)"
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
