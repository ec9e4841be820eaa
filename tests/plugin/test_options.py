"""Options and ini values: where they may stand, what they mean, and that all that is wrong is told before any test."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import pytest

from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import read_record
from pytest_fileperf.report.terminal import session_text

Run = Callable[..., pytest.RunResult]

SHOW_SETTINGS = """
from pytest_fileperf.plugin.active import ACTIVE

def test_shown(request, fileperf):
    active = request.config.stash[ACTIVE]
    settings = fileperf._measuring._settings({})
    given = active.options
    print(f"settings: {settings!r}")
    files = f"{given.json} {given.html} {given.save}"
    print(f"invocation: {given.smoke} {given.update} {given.strict} {files} {given.baselines}")
"""


def problems_of(result: pytest.RunResult) -> list[str]:
    """Returns the problems of a usage error; asserts that it is one and that no test ran."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "collected" not in result.stdout.str()
    lines = [line for line in result.stderr.lines if line.strip()]
    start = next(index for index, line in enumerate(lines) if line.startswith("ERROR: fileperf: "))
    if lines[start].endswith("problems:"):
        return [line.removeprefix("  - ") for line in lines[start + 1 :] if line.startswith("  - ")]
    return [lines[start].removeprefix("ERROR: fileperf: ")]


@pytest.mark.parametrize(
    "option",
    [
        "--fileperf",
        "--fileperf-smoke",
        "--fileperf-update=new",
        "--fileperf-prune",
        "--fileperf-aa",
        "--fileperf-profile",
        "--fileperf-against=http://127.0.0.1:1",
        "--fileperf-json=x.json",
        "--fileperf-html=x.html",
        "--fileperf-markdown=x.md",
        "--fileperf-save=one",
    ],
)
def test_what_is_about_the_outcome_of_load_tests_runs_them(pytester: pytest.Pytester, run: Run, option: str) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.fileperf\ndef test_on(): pass")
    run(option).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "option",
    [
        "--fileperf-coverage",
        "--fileperf-strict",
        "--fileperf-duration=1s",
        "--fileperf-max-duration=9s",
        "--fileperf-server=inprocess",
        "--fileperf-group-by=func",
        "--fileperf-confirm=always",
        "--fileperf-base-packages=stored",
    ],
)
def test_what_is_about_how_does_not_run_them(pytester: pytest.Pytester, run: Run, option: str) -> None:
    pytester.makepyfile("def test_off(fileperf): pass")
    run(option).assert_outcomes(skipped=1)


def test_options_come_before_ini_values(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SHOW_SETTINGS)
    pytester.makeini(
        "[pytest]\nfileperf_connections = 5\nfileperf_rounds = 6\nfileperf_duration = 3s\nfileperf_app = a:b\n"
        "fileperf_server = inprocess\nfileperf_tolerance = rps=3%\nfileperf_gate = rps\nfileperf_strict = yes\n"
        "fileperf_baselines = kept\nfileperf_warmup = 0.1\nfileperf_timeout = 9s\nfileperf_boots = 2\n"
        "fileperf_max_duration = 2min\n"
    )
    result = run("--fileperf", "-s", "--fileperf-connections=7", "--fileperf-warmup=0")
    result.stdout.fnmatch_lines(
        [
            "*settings: Settings(connections=7, requests=None, burst=None, rate=None, ramp=None, *"
            "duration_ns=3000000000, rounds=6, max_duration_ns=120000000000, *warmup_ns=0, "
            "timeout_ns=9000000000, boots=2, *app='a:b', server=InProcess(), limits={'max_error_rate': 0.0}, "
            "tolerances={'rps': 0.03}, *gate=('rps',), group=None, label=None, setup=None, teardown=None)",
            f"invocation: False None True None None None {pytester.path / 'kept'}",
        ]
    )


def test_every_option_is_understood(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SHOW_SETTINGS)
    result = run(
        "-s",
        "--fileperf-update",
        "--fileperf-strict",
        "--fileperf-json=out/x.json",
        "--fileperf-html=out/x.html",
        "--fileperf-save",
        "--fileperf-baselines=here",
        "--fileperf-server=uvicorn:loop=asyncio",
        "--fileperf-workers=2",
        "--fileperf-app=a:b",
        "--fileperf-connections=3",
        "--fileperf-duration=2s",
        "--fileperf-max-duration=9s",
        "--fileperf-rounds=4",
        "--fileperf-boots=2",
        "--fileperf-warmup=1s",
        "--fileperf-timeout=5s",
    )
    path = pytester.path
    result.stdout.fnmatch_lines(
        [
            "*connections=3, *duration_ns=2000000000, rounds=4, max_duration_ns=9000000000, *warmup_ns=1000000000, "
            "timeout_ns=5000000000, boots=2, *app='a:b', server=Uvicorn(workers=2, loop='asyncio'*",
            f"invocation: False passed True {path / 'out' / 'x.json'} {path / 'out' / 'x.html'}  {path / 'here'}",
        ]
    )


def test_baselines_are_kept_in_the_rootdir_when_nothing_is_said(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(SHOW_SETTINGS)
    result = run("--fileperf", "-sv")
    result.stdout.fnmatch_lines(
        [
            "fileperf: *; baselines in .fileperf",
            f"invocation: False None False None None None {pytester.path / '.fileperf'}",
        ]
    )


SHOW_GROUP_BY = """
from pytest_fileperf.plugin.active import ACTIVE

def test_shown(request):
    print(f"group by: {request.config.stash[ACTIVE].options.group_by}")
"""


@pytest.mark.parametrize(
    "ini,arguments,labels",
    [
        ("", (), ("group",)),
        ("fileperf_group_by = func, param:size", (), ("func", "param:size")),
        ("fileperf_group_by = func", ("--fileperf-group-by=fullname,param",), ("fullname", "param")),
    ],
)
def test_how_tests_are_grouped(
    pytester: pytest.Pytester, run: Run, ini: str, arguments: tuple[str, ...], labels: tuple[str, ...]
) -> None:
    pytester.makepyfile(SHOW_GROUP_BY)
    pytester.makeini(f"[pytest]\n{ini}\n")
    run("--fileperf", "-s", *arguments).stdout.fnmatch_lines([f"*group by: {labels}"])


@pytest.mark.parametrize(
    "ini,arguments,where",
    [
        ("func", ("--fileperf-group-by=size",), "--fileperf-group-by: 'size'"),
        ("func,size", (), "fileperf_group_by: 'size'"),
    ],
)
def test_what_is_no_way_to_group_is_told(
    pytester: pytest.Pytester, run: Run, ini: str, arguments: tuple[str, ...], where: str
) -> None:
    pytester.makeini(f"[pytest]\nfileperf_group_by = {ini}\n")
    assert problems_of(run("--fileperf", *arguments)) == [
        f"{where} is no way to group tests: use group, name, func, fullname, fullfunc, param or param:NAME, where NAME"
        " is a parameter's, or several of these joined by commas"
    ]


@pytest.mark.parametrize("name", ["strict", "coverage"])
def test_an_option_may_repeat_what_the_ini_file_says(pytester: pytest.Pytester, run: Run, name: str) -> None:
    pytester.makepyfile("def test_plain(): pass")
    pytester.makeini(f"[pytest]\nfileperf_{name} = true\n")
    run("--fileperf", f"--fileperf-{name}").assert_outcomes(passed=1)


SHOW_CHOICES = """
from pytest_fileperf.plugin.active import ACTIVE

def test_shown(request):
    given = request.config.stash[ACTIVE].options
    print(f"asked: {given.confirm} {given.base_packages} {given.keeps_trees}")
"""


@pytest.mark.parametrize(
    "ini,arguments,words",
    [
        ("", (), "always now True"),
        (
            "fileperf_confirm = always\nfileperf_base_packages = stored\nfileperf_keep_trees = no",
            (),
            "always stored False",
        ),
        ("fileperf_confirm = always", ("--fileperf-confirm=never",), "never now True"),
        ("fileperf_base_packages = stored", ("--fileperf-base-packages=now",), "always now True"),
        ("fileperf_base_packages = stored", ("--fileperf-confirm=never",), "never stored True"),
    ],
)
def test_how_stored_baselines_are_used(
    pytester: pytest.Pytester, run: Run, ini: str, arguments: tuple[str, ...], words: str
) -> None:
    pytester.makepyfile(SHOW_CHOICES)
    pytester.makeini(f"[pytest]\n{ini}\n")
    run("--fileperf", "-s", *arguments).stdout.fnmatch_lines([f"*asked: {words}"])


def test_words_that_are_no_choice_are_told_at_once(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\nfileperf_base_packages = newest\nfileperf_keep_trees = perhaps\n")
    no_bool, *others = problems_of(run("--fileperf", "--fileperf-confirm=sometimes"))
    assert no_bool.startswith("fileperf_keep_trees: ")
    assert others == [
        "--fileperf-confirm=sometimes: it is always or never",
        "fileperf_base_packages = newest: it is now or stored",
    ]


@pytest.mark.parametrize(
    "arguments,why",
    [
        (("--fileperf-smoke",), "a few requests compare nothing, leave out --fileperf-smoke"),
        (
            ("--fileperf-against=http://127.0.0.1:1",),
            "it is about stored baselines, and --fileperf-against compares with none: leave out one of them",
        ),
        (
            ("--fileperf-aa",),
            "it is about stored baselines, and --fileperf-aa compares with none: leave out one of them",
        ),
    ],
)
def test_what_is_about_stored_baselines_is_refused_where_none_is_used(
    pytester: pytest.Pytester, run: Run, arguments: tuple[str, ...], why: str
) -> None:
    given = ("--fileperf-confirm=always", "--fileperf-base-packages=stored")
    assert problems_of(run(*arguments, *given)) == [
        f"--fileperf-confirm: {why}",
        f"--fileperf-base-packages: {why}",
    ]


def test_what_the_ini_file_says_of_stored_baselines_is_no_error_where_none_is_used(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.fileperf\ndef test_some(): pass")
    pytester.makeini("[pytest]\nfileperf_confirm = always\nfileperf_base_packages = stored\n")
    run("--fileperf-smoke").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "ini,arguments",
    [
        ("", ("--fileperf-confirm=never", "--fileperf-base-packages=stored")),
        ("fileperf_confirm = never", ("--fileperf-base-packages=stored",)),
        ("fileperf_confirm = never\nfileperf_base_packages = stored", ("--fileperf",)),
    ],
)
def test_stored_packages_are_no_use_to_code_that_is_not_measured(
    pytester: pytest.Pytester, run: Run, ini: str, arguments: tuple[str, ...]
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    (problem,) = problems_of(run("--fileperf", *arguments))
    assert problem.startswith("--fileperf-base-packages=stored: ")
    assert "--fileperf-confirm=never measures none" in problem


NATIVE = """
[tool.pytest]
fileperf_app = "a:b"
fileperf_connections = 5
fileperf_workers = 2
fileperf_duration = "3s"
fileperf_strict = true
fileperf_gate = "p50"
fileperf_keep_trees = false
"""


@pytest.mark.parametrize(
    "toml",
    [
        pytest.param(
            NATIVE,
            marks=pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 is the first to know [tool.pytest]"),
            id="native",
        ),
        pytest.param(NATIVE.replace("tool.pytest", "tool.pytest.ini_options"), id="ini_options"),
        pytest.param(
            NATIVE.replace("tool.pytest", "tool.pytest.ini_options")
            .replace("= 5", '= "5"')
            .replace("= true", '= "true"')
            .replace("= false", '= "false"'),
            id="ini_options, all texts",
        ),
    ],
)
def test_pyproject_toml_in_both_forms(pytester: pytest.Pytester, run: Run, toml: str) -> None:
    pytester.makepyfile(SHOW_SETTINGS)
    pytester.makepyprojecttoml(toml)
    result = run("--fileperf", "-s", "--strict-config")
    result.stdout.fnmatch_lines(
        [
            "*settings: Settings(connections=5, requests=None, burst=None, rate=None, ramp=None, *"
            "duration_ns=3000000000,*app='a:b', "
            "server=Uvicorn(workers=2,*gate=('p50',)*",
            "invocation: False None True *",
        ]
    )


def test_every_bad_value_is_told_before_any_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_never(): raise AssertionError")
    pytester.makeini(
        "[pytest]\nfileperf_gate = p98\nfileperf_rounds = many\nfileperf_boots = 0\nfileperf_tolerance = 5\n"
        "fileperf_strict = perhaps\n"
    )
    found = problems_of(
        run(
            "--fileperf",
            "--fileperf-update=old",
            "--fileperf-connections=0",
            "--fileperf-duration=10x",
            "--fileperf-server=apache",
            "--fileperf-app=app.py",
        )
    )
    assert [problem.split(":")[0] for problem in found] == [
        "--fileperf-update=old",
        "fileperf_rounds",
        "fileperf_strict",
        "--fileperf-connections",
        "--fileperf-duration",
        "--fileperf-app",
        "--fileperf-server",
        "fileperf_boots",
        "fileperf_tolerance",
        "fileperf_gate",
    ]


@pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 is the first to know [tool.pytest]")
def test_a_native_value_of_the_wrong_type_is_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyprojecttoml('[tool.pytest]\nfileperf_connections = "5"\nfileperf_duration = 10\n')
    found = problems_of(run("--fileperf"))
    assert [problem.split(":")[0] for problem in found] == ["fileperf_connections", "fileperf_duration"]
    assert "expects an int" in found[0]
    assert "expects a string" in found[1]


def test_bad_values_do_not_matter_where_load_tests_are_off(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_plain(): pass")
    pytester.makeini("[pytest]\nfileperf_gate = p98\n")
    run("--fileperf-duration=10x").assert_outcomes(passed=1)


def test_a_few_requests_make_no_baseline(pytester: pytest.Pytester, run: Run) -> None:
    assert problems_of(run("--fileperf-smoke", "--fileperf-update")) == [
        "--fileperf-update: a few requests make no baseline, leave out --fileperf-smoke"
    ]


def test_the_page_needs_plotly_which_is_told_before_any_test(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile("def test_never(): raise AssertionError")
    monkeypatch.setitem(sys.modules, "plotly", None)
    (problem,) = problems_of(run("--fileperf-html=x.html"))
    assert problem.endswith('pip install "pytest-fileperf[html]"')


def test_a_page_is_written_where_it_was_asked_for(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_get(fileperf): fileperf.get('/')")
    result = run_load("--fileperf-smoke", "--fileperf-html=out/page.html")
    page = project.path / "out" / "page.html"
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"fileperf: wrote {page}"])
    text = page.read_text(encoding="utf-8")
    assert "--fileperf-smoke --fileperf-html=out/page.html" in text
    assert "test_get" in text


def test_reports_of_the_run_are_made_of_its_file_again(project: pytest.Pytester, run_load: Run) -> None:
    project.makepyfile("def test_get(fileperf): fileperf.get('/'); fileperf.get('/', label='again')")
    files = ("--fileperf-json=run.json", "--fileperf-html=run.html", "--fileperf-markdown=run.md")
    result = run_load("--fileperf-smoke", *files)
    result.assert_outcomes(passed=1)
    record = read_record(project.path / "run.json")
    assert results_html(record) == (project.path / "run.html").read_text(encoding="utf-8")
    assert markdown_report(record) == (project.path / "run.md").read_text(encoding="utf-8")
    text = session_text(record, width=80)
    assert text.count("\n") == 2, "a line a measurement"
    assert text in result.stdout.str() + "\n"
    assert record.asked.smoke
    assert record.asked.command.endswith(shlex.join(files))
    assert set(record.versions) == {"pytest-fileperf", "pytest", "python"}
    assert record.environment["packages"]


@pytest.mark.parametrize("option", ["--fileperf-update", "--fileperf-save"])
def test_a_path_taken_for_an_option_s_value_is_told(pytester: pytest.Pytester, run: Run, option: str) -> None:
    path = pytester.makepyfile("def test_never(): raise AssertionError")
    (problem,) = problems_of(run(option, path.name))
    assert problem.startswith(f"{option}={path.name}: ")
    assert "paths" in problem


def test_reports_have_paths_of_their_own_and_replace_no_other_file(pytester: pytest.Pytester, run: Run) -> None:
    path = pytester.makepyfile("def test_never(): raise AssertionError")
    (pytester.path / "x.html").touch()
    pytester.maketxtfile(readme="# What it is")
    files = (f"--fileperf-json={path.name}", "--fileperf-html=x.html", "--fileperf-markdown=./x.html")
    source, same = problems_of(run(*files))
    (text,) = problems_of(run("--fileperf-markdown=readme.txt"))
    assert same.startswith("--fileperf-html and --fileperf-markdown: both write ")
    replaces = "that is another file, which it would replace: name another path"
    assert source == f"--fileperf-json={pytester.path / path.name}: {replaces}"
    assert text == f"--fileperf-markdown={pytester.path / 'readme.txt'}: {replaces}"
    assert "test_never" in path.read_text(encoding="utf-8")


def test_a_path_behind_a_space_by_which_pytest_finds_another_rootdir_is_told(
    pytester: pytest.Pytester, run: Run
) -> None:
    pytester.makepyfile("def test_never(): raise AssertionError")
    there = pytester.path.parent / f"of {pytester.path.name}.json"
    there.touch()
    (problem,) = problems_of(run("--fileperf-json", str(there)))
    assert problem.endswith(f"in {pytester.path.parent}: write --fileperf-json={there}")


def test_a_tilde_in_a_path_is_the_home_directory(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(pytester.path / "home"))
    monkeypatch.setenv("USERPROFILE", str(pytester.path / "home"))
    pytester.makepyfile(SHOW_SETTINGS)
    result = run("-s", "--fileperf", "--fileperf-json=~/x.json", "--fileperf-baselines=~/kept")
    home = pytester.path / "home"
    result.stdout.fnmatch_lines([f"invocation: * {home / 'x.json'} None None {home / 'kept'}"])


def test_xdist_is_refused_with_what_to_do(pytester: pytest.Pytester, run_load: Run) -> None:
    pytester.makepyfile("def test_never(fileperf): raise AssertionError")
    (problem,) = problems_of(run_load("--fileperf", "-n2", plugins=("xdist",)))
    assert "run them on their own with -n 0" in problem


@pytest.mark.parametrize("arguments", [("--fileperf", "-n0"), ("--fileperf", "-n2", "--collect-only")])
def test_xdist_is_not_refused_where_it_measures_nothing(
    pytester: pytest.Pytester, run_load: Run, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.fileperf\ndef test_some(): pass")
    assert run_load(*arguments, plugins=("xdist",)).ret == 0


@pytest.mark.parametrize(
    "arguments,expected",
    [
        (
            ("--fileperf", "-v"),
            "fileperf: measuring; uvicorn ×1; access log off; server and load on * cores; baselines in .fileperf",
        ),
        (("--fileperf-smoke", "--fileperf-server=inprocess"), "fileperf: smoke, a few requests each; in-process; *"),
        (("--fileperf-update", "--fileperf-workers=2"), "fileperf: measuring; storing baselines; uvicorn ×2; *"),
        (("--fileperf-update=new",), "fileperf: measuring; storing new baselines; *"),
        (("--fileperf-update=all",), "fileperf: measuring; storing all baselines, worse ones too; *"),
        (
            ("--fileperf", "-v", "--fileperf-server=http://127.0.0.1:8000", "--fileperf-baselines=/elsewhere"),
            "fileperf: measuring; http://127.0.0.1:8000; baselines in /elsewhere",
        ),
    ],
)
def test_the_header_says_what_will_happen(
    pytester: pytest.Pytester, run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    run(*arguments).stdout.fnmatch_lines([expected])


@pytest.mark.parametrize("arguments", [(), ("--fileperf",)])
def test_no_header_where_nothing_is_special(pytester: pytest.Pytester, run: Run, arguments: tuple[str, ...]) -> None:
    run(*arguments).stdout.no_fnmatch_line("fileperf:*")
