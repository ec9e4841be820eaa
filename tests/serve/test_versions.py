"""Real servers of another version, from another tree or by another interpreter, and proven to be that version."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from serve.processes import get, launch, posix

from pytest_fileperf.errors import AppLoadError, AppMissingError, AppOriginError, PlanError, ServerStartError
from pytest_fileperf.host.supervisor import MARK
from pytest_fileperf.serve import job, workers
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.job import Job, StartUp, left
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.likeness import Likeness
from pytest_fileperf.serve.made import Made
from pytest_fileperf.serve.process import STAGE_2
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.serve.workers import AsgiLaunch
from pytest_fileperf.versions.checkout import parse_against
from pytest_fileperf.versions.tree import HERE, CodeTree

APP = AppSpec("versioned_app:app")
ANSWER = """
import os, sys
{more}
async def app(scope, receive, send):
    if scope["type"] == "http":
        body = ({body}).encode()
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": body}})
"""


def source(body: str, *, more: str = "") -> str:
    return ANSWER.format(body=body, more=more)


OLD, NEW = source('f"old in {os.getcwd()}"'), source('f"new in {os.getcwd()}"')
PROGRAM = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(({answer}).encode())
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
SERVE = Command("{python} serve.py {port}")


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodeTree:
    """A tree that answers "new", in which the test run works, and one that answers "old" to be compared with."""
    for tree, code, answer in (("here", NEW, "new"), ("base", OLD, "old")):
        (tmp_path / tree / "src").mkdir(parents=True)
        (tmp_path / tree / "src" / "versioned_app.py").write_text(code)
        (tmp_path / tree / "serve.py").write_text(PROGRAM.format(answer=repr(answer)))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here" / "src"), *sys.path])
    return CodeTree(title="main (1a2b3c4)", here=tmp_path / "here", there=tmp_path / "base")


@contextmanager
def booted(spec: ServerSpec, code_tree: CodeTree, app: AppSpec = APP) -> Iterator[RunningServer]:
    with launch(spec, app, code_tree=code_tree) as server:
        yield server


def answer(spec: ServerSpec, code_tree: CodeTree, app: AppSpec = APP) -> str:
    with booted(spec, code_tree, app) as server:
        return get(server.url).text


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(Uvicorn(workers=2), id="uvicorn-2"),
        pytest.param(Gunicorn(), id="gunicorn", marks=posix),
    ],
)
def test_the_other_version_runs_in_its_own_directory_and_says_which_file(spec: ServerSpec, trees: CodeTree) -> None:
    with booted(spec, trees) as server:
        assert get(server.url).text == f"old in {trees.there}"
        assert f"{trees.there}/src/versioned_app.py" in server.loaded.modules


def test_both_sides_boot_by_the_same_steps(trees: CodeTree, tmp_path: Path) -> None:
    made = {}
    (tmp_path / MARK).touch()
    for name, code_tree in (("here", HERE), ("base", trees)):
        (tmp_path / f"run {name}").mkdir()
        program = AsgiLaunch(Uvicorn(), APP, StartUp(number=3, code_tree=code_tree), {})
        made[name] = program.prepare(tmp_path / f"run {name}"), Job.read(tmp_path / f"run {name}")

    def seen(name: str) -> tuple[object, ...]:
        invocation, job = made[name]
        env = {key: value for key, value in invocation.env.items() if key != "PWD"}
        words = [text.replace(f"run {name}", "run") for text in invocation.command]
        paths = [text and text.replace(f"run {name}", "run").replace(f"/{name}/", "/") for text in job.sys_path]
        return env, words, paths, Path(invocation.cwd or "").relative_to(tmp_path / name)

    assert seen("here") == seen("base")
    assert made["here"][0].env["PYTHONHASHSEED"] == "4", "by the number of the boot"


def test_only_the_code_here_becomes_as_the_test_has_made_it(trees: CodeTree, tmp_path: Path) -> None:
    made = Made(likeness=Likeness(({}, {}, {})), values=b"", unsent={}, has_run=False)
    app = AppSpec(str(APP.target), made=made)
    (tmp_path / MARK).touch()
    for code_tree, expected in ((HERE, (made,)), (trees, ())):
        run_directory = tmp_path / f"run {len(expected)}"
        run_directory.mkdir()
        AsgiLaunch(Uvicorn(), app, StartUp(number=3, code_tree=code_tree), {}).prepare(run_directory)
        assert left(Made, run_directory) == expected


def test_programs_that_an_app_starts_are_of_its_version(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here" / "src"))
    said = 'subprocess.check_output([sys.executable, "-c", "import versioned_app as a; print(a.__file__)"], text=True)'
    (tmp_path / "base" / "src" / "versioned_app.py").write_text(source(said, more="import subprocess"))
    assert answer(Uvicorn(), trees).strip() == str(tmp_path / "base" / "src" / "versioned_app.py")


def failure(spec: ServerSpec, code_tree: CodeTree, app: AppSpec = APP) -> Exception:
    with (
        pytest.raises((AppLoadError, AppOriginError, PlanError, ServerStartError)) as caught,
        booted(spec, code_tree, app),
    ):
        pass
    return caught.value


def _module_gone(top: Path) -> None:
    (top / "base" / "src" / "versioned_app.py").unlink()


def _directory_gone(top: Path) -> None:
    (top / "base" / "src").rename(top / "base" / "sources")


def _broken(top: Path) -> None:
    (top / "base" / "src" / "versioned_app.py").write_text("import versioned_nowhere")


def _copied(top: Path) -> None:
    (top / "copy").mkdir()
    (top / "copy" / "versioned_app.py").write_text(NEW)
    sys.path.insert(0, str(top / "copy"))  # which the trees' fixture takes back


def _linked(top: Path) -> None:
    _module_gone(top)
    (top / "base" / "src" / "versioned_app.py").symlink_to(top / "here" / "src" / "versioned_app.py")


def _with_a_stray(top: Path) -> None:
    for tree in ("here", "base"):
        (top / tree / "libs").mkdir()
        (top / tree / "libs" / "versioned_lib.py").touch()
    more = f"sys.path.append({str(top / 'here' / 'libs')!r}); import versioned_lib"
    (top / "base" / "src" / "versioned_app.py").write_text(source("''", more=more))


OTHERS: tuple[tuple[Callable[[Path], None], type[Exception], tuple[str, ...]], ...] = (
    (_module_gone, AppMissingError, ("main (1a2b3c4): ", "No module named 'versioned_app'")),
    (_directory_gone, AppMissingError, ("but the new code has it ({top}/here/src/versioned_app.py)",)),
    (_broken, AppLoadError, ("main (1a2b3c4): ", "import versioned_nowhere")),
    (_copied, AppOriginError, ("loaded from {top}/copy/versioned_app.py", "instead of {top}/base")),
    (_linked, AppOriginError, ("was loaded from {top}/here",)),
    (_with_a_stray, AppOriginError, ("a module of the project was loaded from {top}/here/libs",)),
)


@pytest.mark.parametrize("change, kind, said", OTHERS, ids=[change.__name__ for change, *_ in OTHERS])
def test_a_version_that_is_not_there_or_not_itself_is_an_error(
    change: Callable[[Path], None], kind: type[Exception], said: tuple[str, ...], trees: CodeTree, tmp_path: Path
) -> None:
    change(tmp_path)
    error = failure(Uvicorn(), trees)
    assert type(error) is kind
    assert [text for text in said if text.format(top=tmp_path) not in str(error)] == []


def test_what_a_finder_of_editable_installs_hides_is_found(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(tmp_path / "here" / "src")])
    finder = ModuleType("__editable___versioned_finder")
    finder.__dict__["MAPPING"] = {"versioned_app": str(tmp_path / "here" / "src" / "versioned_app")}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    assert answer(Uvicorn(), trees).startswith("old")


def test_this_package_may_lie_in_both_trees(trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tree in ("here", "base"):
        shutil.copytree(
            Path(STAGE_2).parents[1], tmp_path / tree / "pytest_fileperf", ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "base" / "pytest_fileperf" / "errors.py").write_text("raise RuntimeError('another version')")
    # Not `syspath_prepend`: its end would bring back the path as the fixture has set it.
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *sys.path])
    monkeypatch.setattr(workers, "STAGE_2", str(tmp_path / "here/pytest_fileperf/serve/stage2_server.py"))
    monkeypatch.setattr(job, "__file__", str(tmp_path / "here" / "pytest_fileperf" / "serve" / "job.py"))
    assert answer(Uvicorn(), trees).startswith("old")


# Commands


@posix
def test_a_command_runs_the_code_of_its_version(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = Command(["{python}", str(tmp_path / "here" / "serve.py"), "{port}"], cwd=tmp_path)
    for spec in (SERVE, Command("{python} ../serve.py {port}", cwd="src"), named):
        assert (answer(spec, trees), answer(spec, HERE)) == ("old", "new")
    directory = replace(SERVE, cwd=tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    assert answer(directory, trees) == "old"


@posix
def test_a_build_is_run_once_for_each_side(trees: CodeTree, tmp_path: Path) -> None:
    spec = replace(SERVE, build=("sh", "-c", "echo built >> built.txt"))
    pool = ServerPool()
    for code_tree in (trees, HERE, trees):
        starting = pool.launch(spec, None, StartUp(code_tree=code_tree))
        try:
            starting.start()
        finally:
            starting.stop()
    assert [(tmp_path / tree / "built.txt").read_text() for tree in ("here", "base")] == ["built\n", "built\n"]


@posix
def test_what_a_command_lacks_in_the_other_version_is_told(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "here" / "new").mkdir()
    (tmp_path / "serve.py").write_text(PROGRAM.format(answer="''"))
    for spec, kind, said in (
        (replace(SERVE, build="test -e new"), ServerStartError, "in main (1a2b3c4) failed with exit code 1"),
        (replace(SERVE, cwd=tmp_path), PlanError, "would run the new code also for main (1a2b3c4)"),
        (replace(SERVE, cwd="new"), PlanError, f"cwd='new' isn't a directory in {trees.there}"),
        (Command("./built {port}"), PlanError, f"there is no program {trees.there}/built"),
    ):
        error = failure(spec, trees)
        assert type(error) is kind
        assert said in str(error)


# What cannot be compared


async def object_app(scope: dict[str, object], receive: object, send: object) -> None:
    """Serves nothing."""


REFUSED: dict[str, tuple[ServerSpec, AppSpec, str]] = {
    "in-process": (
        InProcess(),
        APP,
        "InProcess: .*the test process cannot contain two versions of a module. Use server=Uvicorn",
    ),
    "url": (Url("http://127.0.0.1:9"), APP, "Url: .*fileperf starts no server at a Url"),
    "port": (Uvicorn(port=8000), APP, "Uvicorn: .*port 8000 at once. Leave `port` out"),
    "object": (Uvicorn(), AppSpec(object_app), 'object_app is an object .* Give the app by name, as in "module:attr'),
}


@pytest.mark.parametrize("spec,app,said", REFUSED.values(), ids=REFUSED)
def test_what_has_no_other_version_is_refused(spec: ServerSpec, app: AppSpec, said: str) -> None:
    for code_tree in (CodeTree(here=Path("a"), there=Path("b")), CodeTree(python="python3")):
        with pytest.raises(PlanError, match=said):
            ServerPool().launch(spec, app, StartUp(code_tree=code_tree))


# Another interpreter


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with nothing but what uvicorn needs, without pytest-fileperf."""
    top = tmp_path_factory.mktemp("other environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(top)], check=True, timeout=60)
    packages = packages_of(top)
    for name in ("uvicorn", "click", "h11"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (packages / name).symlink_to(Path(spec.origin).parent, target_is_directory=True)
    return top


def packages_of(environment: Path) -> Path:
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


@pytest.fixture
def other(environment: Path, tmp_path: Path) -> CodeTree:
    return parse_against(f"python:{environment}/bin/python", cwd=tmp_path, rootdir=tmp_path)


@pytest.mark.usefixtures("trees")
@posix
def test_another_interpreter_serves_the_code_here_with_its_own_packages(
    other: CodeTree, environment: Path, tmp_path: Path
) -> None:
    says = 'sys.prefix + " " + str("pytest" in sys.modules) + str(importlib.util.find_spec("fastapi"))'
    code = source(says, more="import importlib.util")
    (tmp_path / "here" / "src" / "versioned_app.py").write_text(code)
    with booted(Uvicorn(workers=2), other) as server:
        assert get(server.url).text == f"{environment} FalseNone"
        assert "(asyncio, h11)" in server.title


@pytest.mark.usefixtures("trees")
@posix
def test_a_version_that_is_installed_there_is_the_one_that_is_served_and_not_its_copy_of_this_package(
    other: CodeTree, environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here" / "src"))
    installed, package = (packages_of(environment) / name for name in ("versioned_app.py", "pytest_fileperf"))
    try:
        installed.write_text(OLD)
        package.mkdir()
        (package / "__init__.py").write_text("1 / 0")
        with booted(Uvicorn(), other) as server:
            assert get(server.url).text.startswith("old")
            assert str(installed) in server.loaded.installed
    finally:
        installed.unlink()
        shutil.rmtree(package)


@pytest.mark.usefixtures("trees")
@posix
def test_an_interpreter_and_a_tree(other: CodeTree, trees: CodeTree, environment: Path, tmp_path: Path) -> None:
    (tmp_path / "base" / "src" / "versioned_app.py").write_text(source('sys.prefix + " " + os.getcwd()'))
    both = replace(trees, python=other.python)
    assert answer(Uvicorn(), both) == f"{environment} {trees.there}"


MISSING: dict[str, tuple[ServerSpec, str]] = {
    "gunicorn": (
        Gunicorn(),
        "has no gunicorn and no uvicorn-worker: `{python} -m pip install gunicorn uvicorn-worker`",
    ),
    "http": (Uvicorn(http="httptools"), "has no httptools: `{python} -m pip install httptools`"),
}


@pytest.mark.usefixtures("trees")
@posix
@pytest.mark.parametrize("spec,said", MISSING.values(), ids=MISSING)
def test_what_is_not_installed_there_is_named_with_what_installs_it(
    spec: ServerSpec, said: str, other: CodeTree
) -> None:
    error = failure(spec, other)
    assert type(error) is PlanError
    assert said.format(python=f"'{other.python}'") in str(error)


@pytest.mark.usefixtures("trees")
@posix
def test_packages_that_are_too_old_there_are_told(other: CodeTree, environment: Path) -> None:
    packages = packages_of(environment)
    (packages / "uvicorn").rename(packages / "hidden")
    try:
        (packages / "uvicorn.py").touch()
        error = failure(Uvicorn(), other)
    finally:
        (packages / "uvicorn.py").unlink()
        (packages / "hidden").rename(packages / "uvicorn")
    assert type(error) is PlanError
    assert "packages that are too old (cannot import name 'Config' from 'uvicorn'" in str(error)


@pytest.mark.usefixtures("trees")
@posix
def test_a_command_with_another_interpreter(other: CodeTree, environment: Path, tmp_path: Path) -> None:
    (tmp_path / "here" / "serve.py").write_text(PROGRAM.format(answer="sys.prefix"))
    assert answer(Command("python serve.py {port}"), other) == answer(SERVE, other) == str(environment)
    error = failure(Command("sh serve.sh {port}"), other)
    assert type(error) is PlanError
    assert "Start it with {python}, which stands for" in str(error)
