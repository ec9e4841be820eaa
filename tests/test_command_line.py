"""`python -m pytest_fileperf`: reports of a run that is over are those that the run has made.

What they show is in the goldens, and a run's own reports are compared in contracts/test_reports_again.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from command import command
from contracts.project import Project

GOLDEN = Path(__file__).parent / "report" / "golden" / "every_kind"
RUN = str(GOLDEN / "run.json")
SHOWN = dict(re.findall(r"^=== (.+)\n((?:(?!===).*\n)*)", (GOLDEN / "terminal.txt").read_text(encoding="utf-8"), re.M))
"""What a terminal shows, by its width and verbosity."""
COLOURED = (GOLDEN / "in_colour.txt").read_text(encoding="utf-8").replace("<ESC>", "\x1b")


def test_without_a_command_it_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    assert "report" in capsys.readouterr().out


APP = """
from fastapi import FastAPI, UploadFile
from fastapi.responses import RedirectResponse
from pydantic import BaseModel

app = FastAPI()

class Item(BaseModel):
    name: str
    sizes: list[int]

@app.get("/items", summary='All "items"')
def items(count: int, limit: int = 10) -> list[int]:
    return [count]

@app.get("/search")
def search(words: str) -> str:
    return words

@app.head("/items")
def checked() -> None:
    pass

@app.get("/docs-are-there", response_class=RedirectResponse)
def moved() -> str:
    return "/docs"

@app.get("/items/{item_id}")
def item(item_id: int) -> int:
    return item_id

@app.delete("/items/{item_id}")
def removed(item_id: int) -> int:
    return item_id

@app.post("/items")
def made(item: Item) -> Item:
    return item

@app.post("/files")
def upload(file: UploadFile) -> int:
    return file.size
"""
NEW = '''"""Load tests made from app_of_new:app. They are yours now: edit them."""

import pytest

from pytest_fileperf import payload

pytestmark = pytest.mark.fileperf(app="app_of_new:app")


def test_get_items(fileperf):
    """All 'items'"""
    fileperf.get("/items", params={"count": 1})


def test_head_items(fileperf):
    """Checked"""
    fileperf.request("HEAD", "/items")


def test_post_items(fileperf):
    """Made"""
    fileperf.post("/items", json={"name": "text", "sizes": [1]})


@pytest.mark.skip(reason="fill in words in the query")
def test_get_search(fileperf):
    fileperf.get("/search", params={"words": "text"})


def test_get_docs_are_there(fileperf):
    """Moved"""
    fileperf.get("/docs-are-there", expect_status=307)


@pytest.mark.skip(reason="fill in item_id in the path")
def test_get_items_item_id(fileperf):
    fileperf.get("/items/{item_id}")


# It deletes data: load it only with data that each request creates.
# @pytest.mark.skip(reason="fill in item_id in the path")
# def test_delete_items_item_id(fileperf):
#     """Removed"""
#     fileperf.delete("/items/{item_id}")


def test_post_files(fileperf):
    """Upload"""
    fileperf.post("/files", files={"file": payload("64KiB")})
'''

VISIT = """
async def searching(client):
    await client.get("/search?words=a")

def test_visit(fileperf):
    fileperf.run(searching, app="app_of_new:app")
"""

SOME = """
import pytest

def test_first(fileperf):
    fileperf.get("/docs-are-there", expect_status=307, app="app_of_new:app")

def test_ends_early(fileperf):
    fileperf.get("/docs-are-there", expect_status=307, app="app_of_new:app")
    pytest.skip("nothing more is here today")
"""
SAID = """\
wrote tests/performance/test_endpoints.py: 7 tests
skipped until you fill in missing values: 2 tests (-rs says which)
written as comments, because they would delete data: 1 more test
these tests write data: first give the server a database and files of its own (examples/databases)
try them with a few requests: python -m pytest --fileperf-smoke -rs tests/performance/test_endpoints.py
to let plain `pytest` find the app, add to its ini file: pythonpath = .
"""


def test_new_writes_a_test_for_each_endpoint_which_work_at_once(
    capsys: pytest.CaptureFixture[str], pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(app_of_new=APP)
    pytester.syspathinsert()
    assert command("new", "app_of_new:app") == 0
    said = capsys.readouterr().out
    assert said == SAID
    written = pytester.path / "tests" / "performance" / "test_endpoints.py"
    assert written.read_text(encoding="utf-8") == NEW
    written.with_name("test_visit.py").write_text(VISIT, encoding="utf-8")
    project = Project(top=pytester.path)
    smoke = partial(project.run, "-o", "pythonpath=.", "--fileperf-smoke", "--fileperf-server=inprocess")
    ran = smoke()
    assert "6 passed, 2 skipped" in ran.text, ran.text
    left = "DELETE /items/{item_id}, GET /items/{item_id}"
    assert f"6 of 8 endpoints have a load test; not covered: {left} " in ran.said, ran.text
    project.write({"tests/some/test_some.py": SOME})
    for options in (("-o", "testpaths=tests/some"), ("-k", "first")):
        ran = smoke(*options)
        assert "1 passed" in ran.text, ran.text
        assert "have a load test" not in ran.said, ran.text
    assert command("new", "app_of_new:app") == 1
    assert "exists already" in capsys.readouterr().err
    assert written.read_text(encoding="utf-8") == NEW


HOSTILE = '\\ """\nimport os\n"""\x00\x0c\x85\u2028\ud800\' {x} # \\'
ODD = ["a/b", "a-b", "a_b", "a/b/2", "class", "", "a'b", 'a"b', "a\\b", "ü", "a\nimport os", HOSTILE]


def test_no_document_can_write_code(tmp_path: Path) -> None:
    media = {"example": {HOSTILE: [HOSTILE]}}
    operation = {
        "summary": HOSTILE,
        "parameters": [{"name": HOSTILE, "in": "query", "required": True, "example": HOSTILE}],
        "requestBody": {"required": True, "content": {"application/json": media}},
        "security": [{"token": []}],
    }
    paths = {f"/{one}": {"get": operation, "post": operation, "delete": operation} for one in ODD}
    source, output = tmp_path / "hostile.json", tmp_path / "test_it.py"
    source.write_text(json.dumps({"paths": paths}), encoding="utf-8")
    assert command("new", str(source), f"--app={HOSTILE}", f"--output={output}") == 0
    module = ast.parse(output.read_text(encoding="utf-8"))
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    assert len({function.name for function in functions}) == 2 * len(ODD)
    docstring, imported, mark, *others = module.body
    assert (type(docstring), type(imported), type(mark), others) == (ast.Expr, ast.Import, ast.Assign, functions)
    for function in functions:
        *_, call = function.body
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        given = {key.arg: ast.literal_eval(key.value) for key in call.value.keywords}
        assert given == {"params": {HOSTILE: HOSTILE}, "json": {HOSTILE: [HOSTILE]}}


def test_new_says_what_it_cannot_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pytest.ini").write_text("[pytest]\npythonpath = src\n", encoding="utf-8")
    source = tmp_path / "a.json"
    source.write_text('{"paths": {"/": {"get": {}}}}', encoding="utf-8")
    assert command("new", str(source), f"--output={source / 'test_it.py'}") == 1
    assert capsys.readouterr().err.startswith(f"cannot write {source / 'test_it.py'}: ")
    assert command("new", str(source), f"--output={tmp_path / 'test_it.py'}") == 0
    said = capsys.readouterr().out
    assert "name the app in pytest's ini file: fileperf_app = module:attribute\n" in said
    assert "write data" not in said
    assert "pythonpath" not in said
    assert "import pytest" not in (tmp_path / "test_it.py").read_text(encoding="utf-8")


def test_it_prints_and_writes_what_is_asked_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for options in ((), ("--text",)):
        assert command("report", RUN, *options) == 0
        assert capsys.readouterr().out == SHOWN["80 wide, verbosity 0"]
    page, summary = tmp_path / "page.html", tmp_path / "summary.md"
    assert command("report", RUN, f"--html={page}", f"--markdown={summary}") == 0
    assert capsys.readouterr().out == f"wrote {page}\nwrote {summary}\n"
    tests, expected = (path.read_text(encoding="utf-8").count("<h3") for path in (page, GOLDEN / "page.html"))
    assert tests == expected
    assert summary.read_text(encoding="utf-8") == (GOLDEN / "report.md").read_text(encoding="utf-8")
    assert command("report", RUN, f"--html={page}", "--text") == 0
    assert capsys.readouterr().out == f"wrote {page}\n{SHOWN['80 wide, verbosity 0']}"


def test_on_a_terminal_it_is_as_wide_and_has_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert command("report", RUN) == 0
    assert capsys.readouterr().out == COLOURED
    for width, options, verbosity in ((120, (), 0), (76, ("-v",), 1)):
        monkeypatch.setenv("COLUMNS", str(width))
        assert command("report", RUN, *options) == 0
        plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
        assert plain == SHOWN[f"{width} wide, verbosity {verbosity}"]


def test_a_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    assert command("report", str(path)) == 1
    assert capsys.readouterr().err == f"cannot read {path}: No such file or directory\n"
    path.write_text('{"schema": 2}', encoding="utf-8")
    assert command("report", str(path), "--html=page.html") == 1
    assert "Run the tests again with --fileperf-json" in capsys.readouterr().err


def test_what_is_not_an_option_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command("report", RUN, "--pdf=x") == 2
    assert "--pdf=x" in capsys.readouterr().err


def test_it_runs_without_pytest() -> None:
    code = (
        "import runpy, sys; sys.modules['pytest'] = None; sys.argv = ['x', 'report', sys.argv[1]]; "
        "runpy.run_module('pytest_fileperf', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, RUN],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "test_upload" in done.stdout
