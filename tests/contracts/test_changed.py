"""Tests that a change cannot affect are not measured; in doubt they are."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from contracts.project import Project, Ran, results

INI = "[pytest]\npythonpath = . lib\nfileperf_warmup = 0\nfileperf_max_duration = 2s\nfileperf_gate = rps\n"
# Who has to wait for an answer does not use up its core: such a load would be no baseline.
APP = """
import asyncio
{at_import}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    if scope["path"] == "/never":
        {later}
    await asyncio.sleep(0.002)
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
TEST = """
def test_{kind}(fileperf):
    fileperf.get("/", {keys}requests=20, connections=1, boots=1)
"""
AT_IMPORT = {
    "module": "import module_part",
    "template": "open('pages/template.html').read()",
    "data": "open('conf.json').read()",
    "ignored": "open('ignored.dat').read()",
    "deleted": "try:\n    import deleted_part\nexcept ImportError:\n    pass",
    "renamed": "try:\n    import renamed_part\nexcept ImportError:\n    pass",
    "shadowed": "from helpers import ANSWER",
}
LATER = {"late": "import late_part", "named": "open('later/page.html').read()"}
OWN_APP = ("committed", "inprocess", "plain", "second")
OF_PLAIN = ("conftest", "older", "package", "testfile")
"""Tests of the app `plain`."""
UNKNOWN = "its baseline does not say which files the server loaded"
WHY = {
    "committed": "committed_app.py changed",
    "conftest": "tests/conftest/conftest.py changed",
    "data": "conf.json changed",
    "deleted": "deleted_part.py changed",
    "ignored": "ignored.dat changed",
    "inprocess": UNKNOWN,
    "late": "late_part.py changed",
    "module": "module_part.py changed",
    "named": "later/page.html changed",
    "new": "it has no baseline",
    "older": UNKNOWN,
    "package": "removed a-package 1.0",
    "renamed": "renamed_part.py changed",
    "second": "second_app.py changed",
    "shadowed": "helpers.py changed",
    "template": "pages/template.html changed",
    "testfile": "tests/testfile/test_testfile.py changed",
}


def whys(ran: Ran) -> Mapping[str, str]:
    """Returns why each test is measured, by the last word of its name."""
    return dict(re.findall(r"test_(\w+) is measured: (.*)", ran.text))


def change_entry(project: Project, kind: str, change: Callable[[dict[str, Any]], object]) -> None:
    (file,) = project.top.glob(f".fileperf/*/*test_{kind}.py.json")
    stored = json.loads(file.read_text(encoding="utf-8"))
    (entry,) = stored["tests"].values()
    change(entry)
    file.write_text(json.dumps(stored), encoding="utf-8")


@pytest.mark.timeout(300)
def test_only_what_a_change_can_affect_is_measured(project: Project) -> None:
    app_of = {kind: kind for kind in (*AT_IMPORT, *LATER, *OWN_APP)} | dict.fromkeys(OF_PLAIN, "plain")
    kinds = sorted(app_of)
    apps = {
        f"{kind}_app.py": APP.format(at_import=AT_IMPORT.get(kind, ""), later=LATER.get(kind, "pass"))
        for kind in app_of.values()
    }
    server = {kind: "server='inprocess', " * (kind == "inprocess") for kind in kinds}
    tests = {
        f"tests/{kind}/test_{kind}.py": TEST.format(kind=kind, keys=f"app='{app_of[kind]}_app:app', {server[kind]}")
        for kind in kinds
    }
    tests["tests/second/test_second.py"] = TEST.format(kind="second", keys="app='plain_app:app', ") + (
        "    fileperf.get('/', app='second_app:app', requests=20, connections=1, boots=1)\n"
    )
    parts = {f"{kind}_part.py": "VALUE = 1\n" for kind in ("module", "deleted", "renamed", "late")}
    files = ("pages/template.html", "later/page.html", "conf.json", "ignored.dat", "README.md", "docs/notes.md")
    project.write(
        {
            "pytest.ini": INI,
            ".gitignore": "__pycache__/\n*.dat\n",
            "lib/helpers.py": "ANSWER = 1\n",
            "script.py": "",
            **apps,
            **tests,
            **parts,
            **dict.fromkeys(files, "one"),
        }
    ).commit()
    git = ["git", "-C", str(project.top)]
    subprocess.run([*git, "tag", "base"], check=True)
    ran = project.run("--fileperf-update=all", "--tb=short")
    assert ran.status == 0, ran.text
    stored = {file.name: file.read_text() for file in project.top.glob(".fileperf/*/*.json")}
    assert len(stored) == len(kinds), ran.text
    assert str(project.top) not in "".join(stored.values())
    (of_module,) = (text for name, text in stored.items() if "test_module" in name)
    assert '"loaded_files": {"": "module_app.py/module_part.py"},' in of_module

    # What no server and no test reads affects no test, committed or not.
    project.write({"README.md": "two", "docs/notes.md": "two", "script.py": "VALUE = 2\n"}).commit()
    project.write({"script.py": "VALUE = 3\n", "notes.txt": "new", "tests/other/test_other.py": ""})
    ran = project.run("--fileperf-changed=base", "-k", "not inprocess")
    count = len(kinds) - 1
    assert (ran.status, ran.record) == (0, {}), ran.text
    assert f"{count} skipped" in ran.said, ran.text
    assert f"{count} of {count} tests not measured, because no change since base (" in ran.said, ran.text

    # Each of these changes affects one test.
    project.write({"committed_app.py": f"{apps['committed_app.py']}\nVALUE = 2\n"}).commit()
    project.write(
        {
            "module_part.py": "VALUE = 2\n",
            "late_part.py": "VALUE = 2\n",
            "second_app.py": f"{apps['second_app.py']}\nVALUE = 2\n",
            "pages/template.html": "two",
            "later/page.html": "two",
            "conf.json": "two",
            "ignored.dat": "two",
            "helpers.py": "ANSWER = 2\n",
            "tests/conftest/conftest.py": "",
            "tests/testfile/test_testfile.py": f"{tests['tests/testfile/test_testfile.py']}\n# two\n",
            "tests/new/test_new.py": TEST.format(kind="new", keys="app='plain_app:app', "),
        }
    )
    (project.top / "deleted_part.py").unlink()
    subprocess.run([*git, "mv", "renamed_part.py", "moved.py"], check=True)
    change_entry(project, "package", lambda entry: entry["packages"].update({"a-package": "1.0"}))
    change_entry(project, "older", lambda entry: entry.pop("loaded_files"))
    ran = project.run("--fileperf-changed=base", "--collect-only", "-v")
    assert whys(ran) == WHY, ran.text
    assert f"1 of {len(kinds) + 1} tests not measured" in ran.said, ran.text

    # It is really so: one is measured, and the other one is not.
    ran = project.run("--fileperf-changed=base", "-k", "plain or module", "-rs")
    assert list(results(ran)) == ["test_module"], ran.text
    assert "SKIPPED [1] tests/plain/test_plain.py" in ran.said, ran.text
    assert "because no change since base (" in ran.said, ran.text

    # Where all tests may have other settings, all are measured.
    for name, text in (("pytest.ini", f"{INI}fileperf_tolerance = 9%\n"), (".env", "KEY=two")):
        ran = project.write({name: text}).commit().run("--fileperf-changed=base", "--collect-only", "-v")
        assert whys(ran)["plain"] == f"{name} changed", ran.text
        assert "may affect every test, so all are measured" in ran.said, ran.text


def test_what_is_no_ref_or_does_not_go_with_it_is_refused(project: Project) -> None:
    project.write({"lib/helpers.py": "", "test_it.py": ""}).commit()
    ran = project.run("--fileperf-changed=lib", "--fileperf-smoke")
    for problem in ("it isn't a Git ref", "does not work with --fileperf-smoke"):
        assert problem in ran.said, ran.text
    assert ran.status == 4, ran.text
    ran = project.run("--fileperf-changed=no-such-branch")
    assert (ran.status, "--fileperf-changed=no-such-branch: 'no-such-branch' is" in ran.said) == (4, True), ran.text
