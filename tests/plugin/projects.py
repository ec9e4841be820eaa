"""What tests do to the project of a whole pytest run."""

from __future__ import annotations

from versions.repositories import Repo

__all__ = ("MIX", "TESTS", "UNTIL_IT_SHOWS", "make_slower")

TESTS = """
import pytest

def test_download(fileperf):
    fileperf.get("/wait", gate="rps", tolerance="400%")
"""
MIX = """
from pytest_fileperf import part

def test_mix(fileperf):
    names = "first", "second", "third"
    parts = [part.get("/wait/" + name, name=name, gate="p50", tolerance="300%") for name in names]
    fileperf.mix(dict.fromkeys(parts, 1), gate="{gate}", tolerance="200%")
"""
UNTIL_IT_SHOWS = "--fileperf-max-duration=20s"
"""Takes no longer where the machine is quiet: it is enough when each gate is decided."""


def make_slower(repo: Repo, seconds: float = 0.02, path: str = "/") -> None:
    """Makes requests wait whose path begins with that."""
    app = repo.top / "server_app.py"
    slow = app.read_text().replace(
        "    status = ",
        f"    await asyncio.sleep({seconds} * scope['path'].startswith({path!r}))\n    status = ",
    )
    assert "sleep" in slow
    app.write_text(slow)
