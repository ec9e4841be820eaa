"""Which functions are blamed for a regression, and how much of it each of them is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from contracts.project import Project, Ran, results

pytestmark = pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None, reason="py-spy is not installed"
)

pytestmark = pytest.mark.timeout(300)  # up to three comparisons on a busy machine
APP = """
import json

ROWS = [{"id": number, "name": f"file {number}", "tags": ["a", "b"]} for number in range(10)]


def fetch(times):
    for _ in range(times):
        json.dumps(ROWS, indent=1)


def handle():
    pass  # HERE


async def app(scope, receive, send):
    if scope["type"] == "http":
        handle()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})
"""
TESTS = """
def test_get(fileperf):
    fileperf.get("/", connections=2, max_duration="10s", warmup="0.1s", gate=["rps"])
"""


def compared(project: Project, old: str, new: str, told: str = "REGRESSED.*CPU per request grew") -> Ran:
    """Runs a comparison of the app that handles requests in the old way with the one that does it in the new way."""
    project.write({"app.py": APP.replace("pass  # HERE", old), "test_load.py": TESTS}).commit()
    return project.write({"app.py": APP.replace("pass  # HERE", new)}).told(told, "--fileperf-against=HEAD", width=100)


def blamed(ran: Ran) -> Mapping[str, Any]:
    """Returns the growth of each function, as a share of the whole growth; below 0 if it costs less now."""
    profile = results(ran)["test_get"]["profile"]
    return {one["function"]: one["growth_s"] / profile["growth_s"] for one in profile["functions"]}


def test_the_same_work_done_more_often_is_found_although_it_was_most_before(project: Project) -> None:
    ran = compared(project, "fetch(4)", "fetch(40)")

    assert ran.status == 1, ran.text
    assert blamed(ran)["dumps"] > 0.5, ran.text
    assert "dumps (json/__init__.py:" in ran.said, ran.text
    assert "called by fetch (app.py:" in ran.said, ran.text
