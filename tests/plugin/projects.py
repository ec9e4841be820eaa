"""What tests do to the project of a whole pytest run."""

from __future__ import annotations

from versions.repositories import Repo

__all__ = ("TESTS", "make_slower")

TESTS = """
import pytest

def test_download(fileperf):
    fileperf.get("/wait", gate="rps", tolerance="400%")
"""


def make_slower(repo: Repo, seconds: float = 0.02, path: str = "/") -> None:
    """Makes requests wait whose path begins with that."""
    app = repo.top / "server_app.py"
    slow = app.read_text().replace(
        "    status = ",
        f"    await asyncio.sleep({seconds} * scope['path'].startswith({path!r}))\n    status = ",
    )
    assert "sleep" in slow
    app.write_text(slow)
