"""No false green: where both sides would run the same files, they are not called equally fast."""

from __future__ import annotations

import os
import py_compile
import re
import subprocess
import zipfile
from collections.abc import Callable

from contracts.project import Project, Ran, results

APP = """
import asyncio

SECONDS = {seconds}


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    await asyncio.sleep(SECONDS)
    await send({{"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}})
    await send({{"type": "http.response.body", "body": b"ok"}})
"""
FAST, SLOW = APP.format(seconds="0.005"), APP.format(seconds="0.010")
TEST = """
import pytest


@pytest.mark.fileperf(connections=4, duration="0.4s", max_duration="2s", warmup="0.1s", gate=("rps",))
def test_get(fileperf):
    fileperf.get("/")
"""
INI = "[pytest]\npythonpath = . lib\nfileperf_app = app:app\n"
IGNORED = "__pycache__/\ngenerated/\nengine.py\n*.pyc\n*.zip\n*.dat\n"


def outcome(ran: Ran, name: str = "test_get") -> str:
    """Returns the outcome, or `refused`."""
    found = results(ran).get(name)
    return "refused" if found is None and ran.status != 0 else str(found and found["standing"])


def started(project: Project, files: dict[str, str]) -> Project:
    return project.write({"pytest.ini": INI, ".gitignore": IGNORED, "test_it.py": TEST, **files}).commit()


def written_module(project: Project, text: str, path: str = "generated/engine.py") -> None:
    project.write({path: text})


def written_bytecode(project: Project, text: str) -> None:
    project.write({"source.py": text})
    py_compile.compile(str(project.top / "source.py"), cfile=str(project.top / "compiled.pyc"), doraise=True)
    (project.top / "source.py").unlink()


def written_archive(project: Project, text: str) -> None:
    with zipfile.ZipFile(project.top / "code.zip", "w") as archive:
        archive.writestr("archived.py", text)


def written_data(project: Project, text: str) -> None:
    project.write({"seconds.dat": text.partition("= ")[2].partition("\n")[0]})


def written_elsewhere(project: Project, text: str) -> None:
    elsewhere = project.top.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "linked.py").write_text(text)
    if not (project.top / "lib").is_symlink():
        (project.top / "lib").symlink_to(elsewhere, target_is_directory=True)


FROM_DATA = APP.replace(
    "SECONDS = {seconds}",
    "import pathlib\n\nSECONDS = float(pathlib.Path(__file__).with_name('seconds.dat').read_text())",
).format()
WAYS: dict[str, tuple[str, Callable[[Project, str], None]]] = {
    "directory": ("import sys; sys.path.insert(0, {top!r} + '/generated')\nfrom engine import app", written_module),
    "bytecode": ("from compiled import app", written_bytecode),
    "archive": ("import sys; sys.path.insert(0, {top!r} + '/code.zip')\nfrom archived import app", written_archive),
    "link": ("from linked import app", written_elsewhere),
    "data": (FROM_DATA, written_data),
}


def test_slower_code_that_git_does_not_have_is_no_pass(project: Project) -> None:
    """Baselines are stored; then files that no tree has get slower. Their time is older than the baselines."""
    for _, write in WAYS.values():
        write(project, FAST)
    apps = {f"app_{way}.py": app.replace("{top!r}", repr(str(project.top))) + "\n" for way, (app, _) in WAYS.items()}
    each = f'@pytest.mark.parametrize("way", {list(WAYS)})\n'
    test = TEST.replace("@pytest", f"{each}@pytest").replace("(fileperf):", "(fileperf, way):")
    started(project, {**apps, "test_it.py": test.replace('"/")', '"/", app=f"app_{way}:app")')})
    stored = project.run("--fileperf-update=all")
    assert f"{len(WAYS)} baselines" in stored.said, stored.text

    for _, write in WAYS.values():
        write(project, SLOW)
    for path in (*project.top.glob("*"), *project.top.glob("generated/*")):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    alone = project.run()
    found = {way: outcome(alone, f"test_get[{way}]") for way in WAYS}
    assert set(found.values()) <= {"REGRESSED", "INCONCLUSIVE"}, alone.text
    in_turn = project.write({"other.py": "VALUE = 2\n"}).run("-k", "directory")
    assert outcome(in_turn, "test_get[directory]") in ("REGRESSED", "INCONCLUSIVE", "refused"), in_turn.text


def installed(project: Project, path: str) -> str:
    """Makes a directory of packages of its own, with a copy of the project's package."""
    packages = project.top.parent / "venv" / "lib" / "site-packages"
    target = packages / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text((project.top / "src" / path).read_text())
    (target.parent / "__init__.py").touch()
    return str(packages)


COMPARED = """
import pytest
from pytest_fileperf import Command

BUILD = ["{python}", "-c", "import os; open(os.environ['BUILDS'], 'a').write('x')"]
SERVE = ["{python}", "-m", "uvicorn", "--log-level=warning", "--port", "{port}", "shop.main:app"]
COMMAND = Command(SERVE, build=BUILD)
NAMES = {"ignored": "app_ignored:app", "compiled": "app:app", "data": "app_data:app", "module": "shop.main:app"}
APPS = {name: pytest.mark.fileperf(app=app) for name, app in NAMES.items()}
TOLD = {"connections": 4, "max_duration": "4s", "gate": ("rps",)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=mark) for name, mark in APPS.items()])
def test_app(fileperf, name):
    fileperf.get("/", **TOLD)


def test_program(fileperf):
    fileperf.get("/", server=COMMAND, **TOLD)
"""
SAID = {
    "test_app[ignored]": "both versions ran the same files, because Git does not have them: generated/engine.py",
    "test_app[compiled]": "app.py has changed, but Python still runs the older",
    "test_app[data]": "seconds.txt instead of",
    "test_app[module]": "Another copy hides it",
    "test_program": "Another copy hides it",
}


def test_code_that_both_sides_of_a_comparison_would_run_is_named(project: Project) -> None:
    """Git ignores it, a stale compiled file stands for it, data has a fixed place, or an installed copy hides it."""
    written_module(project, SLOW)
    ignored = f"import sys; sys.path.insert(0, {str(project.top)!r} + '/generated')\nfrom engine import app\n"
    place = f"pathlib.Path({str(project.top / 'seconds.txt')!r})"
    data = FROM_DATA.replace("pathlib.Path(__file__).with_name('seconds.dat')", place)
    started(
        project,
        {
            "app.py": FAST,
            "app_ignored.py": ignored,
            "app_data.py": data,
            "seconds.txt": "0.005",
            "src/shop/__init__.py": "",
            "src/shop/main.py": FAST,
            "test_it.py": COMPARED,
        },
    )
    app = project.top / "app.py"
    py_compile.compile(str(app), doraise=True)
    status = app.stat()
    project.write(
        {"app.py": SLOW, "app_ignored.py": f"# two\n{ignored}", "seconds.txt": "0.01", "src/shop/main.py": SLOW}
    )
    os.utime(app, ns=(status.st_atime_ns, status.st_mtime_ns))
    env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": installed(project, "shop/main.py")}
    env["BUILDS"] = str(project.top.parent / "builds")
    ran = project.run("--fileperf-against=HEAD", env=env)

    found = {name: outcome(ran, name) for name in SAID}
    assert (project.top.parent / "builds").read_text() == "xx", "one for each side"
    assert found == {name: "INCONCLUSIVE" if "ignored" in name else "refused" for name in SAID}, ran.text
    failures = dict(re.findall(r"^_{3,} (\S+) _{3,}$(.*?)(?=^_{3,} |^={3,} )", ran.text, re.DOTALL | re.MULTILINE))
    own = {name: ran.text if "ignored" in name else failures.get(name, "") for name in SAID}
    told = {name: " ".join(re.sub("^E ", "", text, flags=re.MULTILINE).split()) for name, text in own.items()}
    assert [name for name, said in SAID.items() if said not in told[name]] == [], ran.text
    for name in ("test_app[module]", "test_program"):
        assert "site-packages/shop/main.py" in told[name].replace(" ", ""), ran.text


AT_START = """
open(".env").read()
open("conf.json").read()
pathlib.Path("started.txt").write_text(str(time.time()))
"""


def test_an_app_that_writes_into_the_repository_has_a_baseline(project: Project) -> None:
    """Of files that it and a build write, the second has the version, and does not matter."""
    app = FAST.replace("    await asyncio", "    print('x', file=open('app.log', 'a'))\n    await asyncio", 1)
    project.write({"_version.py": "version = '1'\n"})
    started(
        project,
        {
            "app.py": f"import pathlib, time\n{app}\n{AT_START}",
            "app_built.py": f"import _version\n{FAST}",
            ".env": "PASSWORD=canary\n",
            ".gitignore": f"{IGNORED}_version.py\n",
            "test_it.py": f"{TEST}\n\n@pytest.mark.fileperf(app='app_built:app', max_duration='3s', gate='rps')\n"
            "def test_built(fileperf):\n    fileperf.get('/', connections=4, duration='0.6s')\n",
        },
    )
    subprocess.run(["git", "rm", "-q", "--cached", ".env"], cwd=project.top, check=True)
    project.write({"new.py": "VALUE = 1\n", "conf.json": "{}"})
    stored = project.run("--fileperf-update=all")
    assert "2 baselines" in stored.said, stored.text
    assert "app.log, started.txt changed during the measurement" in stored.said, stored.text
    assert list((project.top / ".fileperf").rglob("test_it.py.json"))
    kept = subprocess.run(
        ["git", "for-each-ref", "--format=%(tree)", "refs/fileperf"],
        cwd=project.top,
        check=True,
        capture_output=True,
        text=True,
    )
    trees = [
        set(
            subprocess.run(
                ["git", "ls-tree", "-r", "--name-only", tree],
                cwd=project.top,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.split()
        )
        for tree in kept.stdout.split()
    ]
    assert any({"new.py", "conf.json"} <= names for names in trees), trees
    assert all(names.isdisjoint({".env", "app.log", "started.txt"}) for names in trees), trees
    again = project.write({"_version.py": "version = '2'\n"}).run()
    for name in ("test_get", "test_built"):
        # INCONCLUSIVE where others are busy, and a slower environment where the machine stands still for a moment.
        assert outcome(again, name) in ("PASS", "INCONCLUSIVE") or "environment got slower" in again.said, again.text
    assert "changed since" not in again.said, again.text
    assert "_version.py" not in again.said, again.text
