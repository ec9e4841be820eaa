"""No false green: where both sides would run the same files, they are not called equally fast."""

from __future__ import annotations

import os
import py_compile
import subprocess
import zipfile
from collections.abc import Callable

import pytest
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


@pytest.mark.fileperf(connections=4, duration="0.6s", max_duration="3s", warmup="0.1s", gate=("rps",))
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


def test_ignored_code_on_both_sides_of_a_comparison_is_named(project: Project) -> None:
    written_module(project, SLOW)
    app = f"import sys; sys.path.insert(0, {str(project.top)!r} + '/generated')\nfrom engine import app\n"
    started(project, {"app.py": app, "test_it.py": TEST.replace("3s", "8s")})
    ran = project.write({"app.py": f"# two\n{app}"}).run("--fileperf-against=HEAD")
    assert outcome(ran) == "INCONCLUSIVE", ran.text
    assert "both sides ran generated/engine.py, which Git does not have" in ran.said, ran.text


def test_a_file_of_a_build_that_has_the_version_does_not_matter(project: Project) -> None:
    project.write({".gitignore": f"{IGNORED}_version.py\n", "_version.py": "version = '1'\n"})
    started(project, {"app.py": f"import _version\n{FAST}", ".gitignore": f"{IGNORED}_version.py\n"})
    assert "stored" in project.run("--fileperf-update=all").said
    ran = project.write({"_version.py": "version = '2'\n"}).run()
    assert "_version.py" not in ran.said, ran.text
    assert outcome(ran) in ("PASS", "INCONCLUSIVE"), ran.text  # INCONCLUSIVE where others are busy


def test_a_compiled_file_that_python_takes_for_that_of_a_changed_source_is_named(project: Project) -> None:
    started(project, {"app.py": FAST})
    app, env = project.top / "app.py", {"PYTHONDONTWRITEBYTECODE": ""}
    py_compile.compile(str(app), doraise=True)
    status = app.stat()
    project.write({"app.py": SLOW})
    os.utime(app, ns=(status.st_atime_ns, status.st_mtime_ns))
    ran = project.run("--fileperf-against=HEAD", env=env)
    assert outcome(ran) == "refused", ran.text
    assert "app.py has changed, and Python still runs what was compiled of it before" in ran.said, ran.text


def installed(project: Project, path: str) -> str:
    """Makes a directory of packages of its own, with a copy of the project's package."""
    packages = project.top.parent / "venv" / "lib" / "site-packages"
    target = packages / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text((project.top / "src" / path).read_text())
    (target.parent / "__init__.py").touch()
    return str(packages)


COMMAND = """
import pytest
from pytest_fileperf import Command

COMMAND = Command(["{python}", "-m", "uvicorn", "--log-level=warning", "--port", "{port}", "shop.main:app"])


@pytest.mark.fileperf(connections=4, duration="1s", max_duration="6s", gate=("rps",), server=COMMAND)
def test_get(fileperf):
    fileperf.get("/")
"""


@pytest.mark.parametrize("given", ["module", "program"])
def test_an_installed_copy_that_hides_the_code_is_named(project: Project, given: str) -> None:
    test = TEST if given == "module" else COMMAND
    started(
        project,
        {
            "src/shop/__init__.py": "",
            "src/shop/main.py": FAST,
            "app.py": "from shop.main import app\n",
            "test_it.py": test,
        },
    )
    project.write({"src/shop/main.py": SLOW}).commit()
    ran = project.run("--fileperf-against=HEAD~1", env={"PYTHONPATH": installed(project, "shop/main.py")})
    assert outcome(ran) == "refused", ran.text
    assert "A copy that is installed" in ran.said, ran.text
    assert "site-packages/shop/main.py" in ran.text.replace("\n", "").replace(" ", "")


def test_data_of_the_tree_here_that_both_sides_read_is_named(project: Project) -> None:
    path = project.top / "seconds.txt"
    app = FROM_DATA.replace("pathlib.Path(__file__).with_name('seconds.dat')", f"pathlib.Path({str(path)!r})")
    started(project, {"app.py": app, "seconds.txt": "0.005"})
    ran = project.write({"seconds.txt": "0.01"}).run("--fileperf-against=HEAD")
    assert outcome(ran) == "refused", ran.text
    assert "seconds.txt, and not from" in ran.said, ran.text


AT_START = """
open(".env").read()
open("conf.json").read()
pathlib.Path("started.txt").write_text(str(time.time()))
"""


def test_an_app_that_writes_into_the_repository_has_a_baseline(project: Project) -> None:
    app = FAST.replace("    await asyncio", "    print('x', file=open('app.log', 'a'))\n    await asyncio", 1)
    started(
        project,
        {
            "app.py": f"import pathlib, time\n{app}\n{AT_START}",
            ".env": "PASSWORD=canary\n",
        },
    )
    subprocess.run(["git", "rm", "-q", "--cached", ".env"], cwd=project.top, check=True)
    project.write({"new.py": "VALUE = 1\n", "conf.json": "{}"})
    stored = project.run("--fileperf-update=all")
    assert "app.log, started.txt changed while it was measured" in stored.said, stored.text
    assert list((project.top / ".fileperf").rglob("test_it.py.json"))
    kept = subprocess.run(
        ["git", "for-each-ref", "--format=%(tree)", "refs/fileperf"],
        cwd=project.top,
        check=True,
        capture_output=True,
        text=True,
    )
    (tree,) = kept.stdout.split()
    names = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", tree], cwd=project.top, check=True, capture_output=True, text=True
    ).stdout.split()
    assert {"new.py", "conf.json"} <= set(names)
    assert not {".env", "app.log", "started.txt"}.intersection(names)
    again = project.run()
    assert outcome(again) in ("PASS", "INCONCLUSIVE"), again.text  # INCONCLUSIVE where others are busy
    assert "changed since" not in again.said, again.text
