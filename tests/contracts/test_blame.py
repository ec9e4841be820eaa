"""Which functions are blamed for a regression, and how much of it each of them is."""

from __future__ import annotations

import shutil
import sys
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from contracts.project import Project, Ran, results

pytestmark = pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None, reason="py-spy is not installed"
)

APP = """
import hashlib
import json

ROWS = [{"id": number, "name": f"file {number}", "tags": ["a", "b"]} for number in range(10)]
BLOCK = bytes(1000)


def fetch(times):
    for _ in range(times):
        json.dumps(ROWS, indent=1)


def digest(times):
    for _ in range(times):
        hashlib.sha256(BLOCK).hexdigest()


def count(times):
    total = 0
    for number in range(20 * times):
        total += number % 7


def total(times):
    seen = 0
    for number in range(20 * times):
        seen ^= number


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
    fileperf.get("/", connections=2, max_duration="4s", warmup="0.1s", gate=["rps"])
"""


def compared(project: Project, old: str, new: str) -> Ran:
    """Runs a comparison of the app that handles requests in the old way with the one that does it in the new way."""
    project.write({"app.py": APP.replace("pass  # HERE", old), "test_load.py": TESTS}).commit()
    return project.write({"app.py": APP.replace("pass  # HERE", new)}).run("--fileperf-against=HEAD", width=100)


def blamed(ran: Ran) -> Mapping[str, Any]:
    """Returns the growth of each function, as a share of the whole growth; below 0 if it costs less now."""
    profile = results(ran)["test_get"]["profile"]
    return {one["function"]: one["growth_s"] / profile["growth_s"] for one in profile["functions"]}


def test_the_same_work_done_more_often_is_found_although_it_was_most_before(project: Project) -> None:
    ran = compared(project, "fetch(4)", "fetch(40)")

    assert ran.status == 1, ran.text
    assert blamed(ran)["dumps"] > 0.5, ran.text
    assert "dumps (json/__init__.py:" in ran.said
    assert "called by fetch (app.py:8)" in ran.said


def test_two_causes_have_their_own_sizes_and_savings_are_said(project: Project) -> None:
    """Before: 3 parts of one work. Now: 5 parts of another, and 3 of a third."""
    ran = compared(project, "digest(300)", "count(250); total(150)")

    grown = blamed(ran)
    assert ran.status == 1, ran.text
    assert {"count", "total"} <= {name for name, share in grown.items() if share > 0}
    assert sum(grown.values()) == pytest.approx(1, abs=0.2)
    assert grown["count"] > grown["total"] > 0.1
    assert grown["digest"] < -0.1
    assert "were saved in digest (app.py:13)" in ran.said


def test_packages_that_differ_are_listed_and_the_slow_one_is_named_with_its_caller(
    project: Project, tmp_path: Path
) -> None:
    inner = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    old, new = tmp_path / "old", tmp_path / "new"
    venv.create(old, with_pip=False, symlinks=True)
    for place, version, size in ((old / inner, "1.0", 300), (new / inner, "2.0", 12_000)):
        files = {"slowlib.py": f"def parse():\n    for number in range({size}):\n        number % 7\n"}
        for name, version_of in (("slowlib", version), ("neverloaded", version)):
            about = f"{name}-{version_of}.dist-info"
            files |= {f"{about}/METADATA": f"Name: {name}\nVersion: {version_of}\n"}
            files |= {f"{about}/RECORD": f"{name}.py,,\n{about}/METADATA,,\n"}
        Project(top=place).write(files)
    (old / inner / "here.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n", encoding="utf-8")
    app = APP.replace("import hashlib", "import hashlib\nimport slowlib").replace("pass  # HERE", "slowlib.parse()")
    ini = f"[pytest]\npythonpath = . {new / inner}\nfileperf_app = app:app\n"
    project.write({"pytest.ini": ini, "app.py": app, "test_load.py": TESTS}).commit()

    ran = project.run(f"--fileperf-against=python:{old / 'bin' / 'python'}", width=200)

    assert ran.status == 1, ran.text
    assert "packages that differ: neverloaded 1.0 → 2.0, slowlib 1.0 → 2.0" in ran.said
    assert "parse (slowlib.py:1), called by handle (app.py:" in ran.said
    assert "of another version: slowlib 1.0 → 2.0" in ran.said
    assert "of another version: neverloaded" not in ran.said
