"""Real servers of another version, from another tree or by another interpreter, and proven to be that version."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import httpx
import pytest
from serve.processes import launch, posix

from pytest_fileperf.errors import AppLoadError, AppMissingError, AppOriginError, PlanError, ServerStartError
from pytest_fileperf.host.supervisor import MARK
from pytest_fileperf.serve import job, workers
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.imports import Imports
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.launch import ServerPool
from pytest_fileperf.serve.process import STAGES, StartUp
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.serve.workers import AsgiLaunch
from pytest_fileperf.versions.checkout import parse_against
from pytest_fileperf.versions.tree import HERE, CodeTree

Kind: TypeAlias = type[Uvicorn] | type[Gunicorn]
kinds = pytest.mark.parametrize(
    "kind", [pytest.param(Uvicorn, id="uvicorn"), pytest.param(Gunicorn, id="gunicorn", marks=posix)]
)

APP = AppSpec("versioned_app:app")
ANSWER = """
import os, sys
{more}
async def {name}(scope, receive, send):
    if scope["type"] == "http":
        body = ({body}).encode()
        await send({{"type": "http.response.start", "status": 200, "headers": []}})
        await send({{"type": "http.response.body", "body": body}})
"""


def source(body: str, *, name: str = "app", more: str = "") -> str:
    return ANSWER.format(body=body, name=name, more=more)


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
    monkeypatch.syspath_prepend(tmp_path / "here" / "src")
    return CodeTree(title="main (1a2b3c4)", here=tmp_path / "here", there=tmp_path / "base")


@contextmanager
def booted(spec: ServerSpec, code_tree: CodeTree, app: AppSpec = APP) -> Iterator[RunningServer]:
    with launch(spec, app, code_tree=code_tree) as server:
        yield server


def answer(spec: ServerSpec, code_tree: CodeTree, app: AppSpec = APP) -> str:
    with booted(spec, code_tree, app) as server:
        return httpx.get(server.url, trust_env=False).text


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(Uvicorn(), id="uvicorn"),
        pytest.param(Uvicorn(workers=2), id="uvicorn-2"),
        pytest.param(Gunicorn(), id="gunicorn", marks=posix),
    ],
)
def test_each_side_runs_its_own_version_in_its_own_directory_and_says_which_file(
    spec: ServerSpec, trees: CodeTree
) -> None:
    for code_tree, directory, said in ((trees, trees.there, "old"), (HERE, trees.here, "new")):
        with booted(spec, code_tree) as server:
            assert httpx.get(server.url, trust_env=False).text == f"{said} in {directory}"
            assert getattr(server, "app_file", None) == f"{directory}/src/versioned_app.py"
            assert f"{directory}/src/versioned_app.py" in server.loaded.modules


@kinds
def test_both_sides_boot_by_the_same_steps(kind: Kind, trees: CodeTree, tmp_path: Path) -> None:
    made = {}
    (tmp_path / MARK).touch()
    for name, code_tree in (("here", HERE), ("base", trees)):
        (tmp_path / f"run {name}").mkdir()
        program = AsgiLaunch(kind(), APP, StartUp(number=3, cores=None, code_tree=code_tree), Imports())
        made[name] = program.prepare(tmp_path / f"run {name}"), Job.read(tmp_path / f"run {name}")

    def seen(name: str) -> tuple[object, ...]:
        invocation, job = made[name]
        env = {key: value for key, value in invocation.env.items() if key != "PWD"}
        words = [text.replace(f"run {name}", "run") for text in invocation.command]
        paths = [text and text.replace(f"run {name}", "run").replace(f"/{name}/", "/") for text in job.sys_path]
        return env, words, paths, Path(invocation.cwd or "").relative_to(tmp_path / name)

    assert seen("here") == seen("base")


def test_an_app_that_is_sent_has_no_file() -> None:
    with booted(Uvicorn(), HERE, AppSpec(sent_app)) as server:
        assert getattr(server, "app_file", "") is None


async def sent_app(scope: dict[str, object], receive: object, send: object) -> None:
    """Serves nothing."""


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


@kinds
def test_an_attribute_that_is_not_there_is_missing(kind: Kind, trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "base" / "src" / "versioned_app.py").write_text(source("''", name="application"))
    error = failure(kind(), trees)
    assert type(error) is AppMissingError
    assert str(error).startswith('main (1a2b3c4): app "versioned_app:app" was not found')


def test_a_module_that_is_not_there_is_missing(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "base" / "src" / "versioned_app.py").unlink()
    error = failure(Uvicorn(), trees)
    assert type(error) is AppMissingError
    assert "No module named 'versioned_app'" in str(error)


def test_a_module_in_a_directory_that_is_not_there_is_missing_and_not_taken_from_here(
    trees: CodeTree, tmp_path: Path
) -> None:
    (tmp_path / "base" / "src").rename(tmp_path / "base" / "sources")
    error = failure(Uvicorn(), trees)
    assert type(error) is AppMissingError
    assert f"on this side is {tmp_path / 'here' / 'src' / 'versioned_app.py'}" in str(error)


@pytest.mark.parametrize("code", ["import versioned_nowhere", "1 / 0"])
def test_an_app_that_breaks_is_not_missing(code: str, trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "base" / "src" / "versioned_app.py").write_text(code)
    error = failure(Uvicorn(), trees)
    assert type(error) is AppLoadError
    assert "main (1a2b3c4): " in str(error)
    assert code in str(error)


def test_a_copy_that_hides_the_other_version_is_an_error(
    trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "versioned_app.py").write_text(NEW)
    monkeypatch.syspath_prepend(tmp_path / "copy")
    error = failure(Uvicorn(), trees)
    assert type(error) is AppOriginError
    assert f"versioned_app was loaded from {tmp_path / 'copy' / 'versioned_app.py'}" in str(error)
    assert f"and not from {trees.there}" in str(error)
    assert answer(Uvicorn(), HERE).startswith("new")


def test_a_link_to_this_tree_is_an_error(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "base" / "src" / "versioned_app.py").unlink()
    (tmp_path / "base" / "src" / "versioned_app.py").symlink_to(tmp_path / "here" / "src" / "versioned_app.py")
    error = failure(Uvicorn(), trees)
    assert type(error) is AppOriginError
    assert f"was loaded from {tmp_path / 'here'}" in str(error)


def test_another_module_that_is_this_tree_s_is_an_error(trees: CodeTree, tmp_path: Path) -> None:
    for tree in ("here", "base"):
        (tmp_path / tree / "libs").mkdir()
        (tmp_path / tree / "libs" / "versioned_lib.py").touch()
    path = str(tmp_path / "here" / "libs")
    (tmp_path / "base" / "src" / "versioned_app.py").write_text(
        source("''", more=f"sys.path.append({path!r}); import versioned_lib")
    )
    error = failure(Uvicorn(), trees)
    assert type(error) is AppOriginError
    assert f"a module of the project was loaded from {path}" in str(error)


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
            STAGES.parent, tmp_path / tree / "pytest_fileperf", ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "base" / "pytest_fileperf" / "errors.py").write_text("raise RuntimeError('another version')")
    monkeypatch.syspath_prepend(tmp_path / "here")
    monkeypatch.setattr(workers, "STAGES", tmp_path / "here" / "pytest_fileperf" / "serve")
    monkeypatch.setattr(job, "__file__", str(tmp_path / "here" / "pytest_fileperf" / "serve" / "job.py"))
    assert answer(Uvicorn(), trees).startswith("old")


# Commands


@posix
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(SERVE, id="current directory"),
        pytest.param(Command("{python} ../serve.py {port}", cwd="src"), id="relative directory"),
    ],
)
def test_a_command_runs_in_the_directory_of_its_version(spec: Command, trees: CodeTree) -> None:
    assert (answer(spec, trees), answer(spec, HERE)) == ("old", "new")


@posix
def test_a_command_may_name_its_code_in_full(trees: CodeTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Command(["{python}", str(tmp_path / "here" / "serve.py"), "{port}"], cwd=tmp_path)
    assert (answer(named, trees), answer(named, HERE)) == ("old", "new")
    directory = replace(SERVE, cwd=tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    assert answer(directory, trees) == "old"


@posix
def test_a_build_is_run_once_for_each_side(trees: CodeTree, tmp_path: Path) -> None:
    spec = replace(SERVE, build=("sh", "-c", "echo built >> built.txt"))
    pool = ServerPool()
    for code_tree in (trees, HERE, trees):
        starting = pool.launch(spec, None, boot=0, cores=None, code_tree=code_tree)
        try:
            starting.start()
        finally:
            starting.stop()
    assert [(tmp_path / tree / "built.txt").read_text() for tree in ("here", "base")] == ["built\n", "built\n"]


@posix
def test_a_build_that_fails_there_says_where(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "here" / "only-here").touch()
    spec = replace(SERVE, build="test -e only-here")
    error = failure(spec, trees)
    assert type(error) is ServerStartError
    assert "in main (1a2b3c4) failed with exit code 1" in str(error)
    assert answer(spec, HERE) == "new"


@posix
def test_a_command_that_has_nothing_of_its_version_is_refused(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(PROGRAM.format(answer="''"))
    error = failure(replace(SERVE, cwd=tmp_path), trees)
    assert type(error) is PlanError
    assert "would be the same on both sides, here and in main (1a2b3c4)" in str(error)


@posix
def test_what_a_command_needs_and_the_other_version_has_not_is_told(trees: CodeTree, tmp_path: Path) -> None:
    (tmp_path / "here" / "new").mkdir()
    assert f"cwd='new' is no directory in {trees.there}" in str(failure(replace(SERVE, cwd="new"), trees))
    assert f"there is no program {trees.there}/built" in str(failure(Command("./built {port}"), trees))


# What cannot be compared


async def object_app(scope: dict[str, object], receive: object, send: object) -> None:
    """Serves nothing."""


REFUSED: dict[str, tuple[ServerSpec, AppSpec, str]] = {
    "in-process": (InProcess(), APP, "InProcess: .*one process cannot hold two versions of a module: use Uvicorn"),
    "url": (Url("http://127.0.0.1:9"), APP, "Url: .*boots nothing"),
    "port": (Uvicorn(port=8000), APP, "Uvicorn: .*port 8000 at once: leave `port` out"),
    "object": (Uvicorn(), AppSpec(object_app), 'object_app is an object .* give the app by name, as in "module:attr'),
}


@pytest.mark.parametrize("spec,app,said", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    "code_tree", [CodeTree(here=Path("a"), there=Path("b")), CodeTree(python="python3")], ids=["tree", "python"]
)
def test_what_has_no_other_version_is_refused(spec: ServerSpec, app: AppSpec, said: str, code_tree: CodeTree) -> None:
    with pytest.raises(PlanError, match=said):
        ServerPool().launch(spec, app, boot=0, cores=None, code_tree=code_tree)


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
    return parse_against(f"python:{environment}/bin/python", cwd=tmp_path, rootdir=tmp_path).code_tree


@pytest.mark.usefixtures("trees")
@posix
@pytest.mark.parametrize("workers", [1, 2])
def test_another_interpreter_serves_the_code_here_with_its_own_packages(
    workers: int, other: CodeTree, environment: Path, tmp_path: Path
) -> None:
    says = 'sys.prefix + " " + str("pytest" in sys.modules) + str(importlib.util.find_spec("fastapi"))'
    code = source(says, more="import importlib.util")
    (tmp_path / "here" / "src" / "versioned_app.py").write_text(code)
    with booted(Uvicorn(workers=workers), other) as server:
        assert httpx.get(server.url, trust_env=False).text == f"{environment} FalseNone"
        assert "(asyncio, h11)" in server.title


@pytest.mark.usefixtures("trees")
@posix
def test_a_version_that_is_installed_there_is_the_one_that_is_served(
    other: CodeTree, environment: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "here" / "src"))
    installed = packages_of(environment) / "versioned_app.py"
    try:
        installed.write_text(OLD)
        with booted(Uvicorn(), other) as server:
            assert httpx.get(server.url, trust_env=False).text.startswith("old")
            assert getattr(server, "app_file", None) == str(installed)
    finally:
        installed.unlink()


@posix
def test_another_version_of_this_package_there_does_not_matter(
    other: CodeTree, environment: Path, trees: CodeTree
) -> None:
    package = packages_of(environment) / "pytest_fileperf"
    try:
        package.mkdir()
        (package / "__init__.py").write_text("1 / 0")
        assert answer(Uvicorn(), other).startswith("new")
    finally:
        (package / "__init__.py").unlink()
        package.rmdir()


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
    assert "too old packages (cannot import name 'Config' from 'uvicorn'" in str(error)


@posix
def test_a_command_with_another_interpreter(
    other: CodeTree, environment: Path, trees: CodeTree, tmp_path: Path
) -> None:
    (tmp_path / "here" / "serve.py").write_text(PROGRAM.format(answer="sys.prefix"))
    assert answer(SERVE, other) == str(environment)
    assert answer(Command("python serve.py {port}"), other) == str(environment)
    assert answer(SERVE, HERE) == sys.prefix


@posix
def test_a_command_that_another_interpreter_does_not_change_is_refused(other: CodeTree, trees: CodeTree) -> None:
    error = failure(Command("sh serve.sh {port}"), other)
    assert type(error) is PlanError
    assert "start it with {python}" in str(error)
