"""The event loop that loads run on: uvloop where it is installed, asyncio's selector loop elsewhere."""

from __future__ import annotations

import asyncio
import sys

__all__ = ("new_event_loop",)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Returns a new event loop that has `add_reader`."""
    if sys.platform != "win32":
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()
