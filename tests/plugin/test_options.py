"""Options, ini values and markers: what they mean, and that all that is wrong is told before any test."""

from __future__ import annotations

import sys

import pytest
from plugin.conftest import Run

from pytest_fileperf.plugin.outcomes import collects_all

SHOWN = """
from pytest_fileperf.plugin.active import ACTIVE

def test_shown(request, fileperf):
    given = request.config.stash[ACTIVE].options
    print(f"settings: {fileperf._measuring._settings({})!r}")
    files = f"{given.json} {given.html} {given.save}"
    print(f"invocation: {given.smoke} {given.update} {given.strict} {files} {given.baselines}")
    print(f"group by: {given.group_by}")
    print(f"baselines: {given.confirm} {given.base_packages} {given.keeps_trees} {given.reason!a}")
"""
NEVER = "def test_never(): raise AssertionError"
ON = "import pytest\n@pytest.mark.fileperf\ndef test_on(): pass"
only_pytest_9 = pytest.mark.skipif(pytest.version_tuple < (9,), reason="pytest 9 is the first to know [tool.pytest]")


def problems_of(result: pytest.RunResult) -> list[str]:
    """Returns the problems of a usage error; asserts that it is one and that no test ran."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "collected" not in result.stdout.str()
    lines = [line for line in result.stderr.lines if line.strip()]
    start = next(index for index, line in enumerate(lines) if line.startswith("ERROR: fileperf: "))
    if lines[start].endswith("problems:"):
        return [line.removeprefix("  - ") for line in lines[start + 1 :] if line.startswith("  - ")]
    return [lines[start].removeprefix("ERROR: fileperf: ")]


# --- what they mean


@pytest.mark.parametrize(
    "option",
    [
        "",
        "-smoke",
        "-update=new",
        "-prune",
        "-aa",
        "-profile",
        "-against=http://127.0.0.1:1",
        "-json=x.json",
        "-html=x.html",
        "-markdown=x.md",
        "-save=one",
    ],
)
def test_what_is_about_the_outcome_of_load_tests_runs_them(pytester: pytest.Pytester, run: Run, option: str) -> None:
    pytester.makepyfile(ON)
    run(f"--fileperf{option}").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "ini,arguments,lines",
    [
        (
            "",
            ("--fileperf",),
            (
                "invocation: False None False None None None {path}/.fileperf",
                "group by: ('group',)",
                "baselines: always now True *",
            ),
        ),
        (
            "connections = 5\nrounds = 6\nduration = 3s\napp = a:b\nserver = inprocess\ntolerance = rps=3%\n"
            "gate = rps\nstrict = yes\nbaselines = kept\nwarmup = 0.1\ntimeout = 9s\nboots = 2\nmax_duration = 2min\n"
            "group_by = func, param:size\nconfirm = always\nbase_packages = stored\nkeep_trees = no",
            ("--fileperf", "--fileperf-connections=7", "--fileperf-warmup=0", "--fileperf-base-packages=now"),
            (
                "*settings: Settings(connections=7, requests=None, burst=None, rate=None, ramp=None, *"
                "duration_ns=3000000000, rounds=6, max_duration_ns=120000000000, *warmup_ns=0, "
                "timeout_ns=9000000000, boots=2, *app='a:b', server=InProcess(), limits={{'max_error_rate': 0.0}}, "
                "tolerances={{'rps': 0.03}}, *gate=('rps',), *group=None, label=None, setup=None, teardown=None)",
                "invocation: False None True None None None {path}/kept",
                "group by: ('func', 'param:size')",
                "baselines: always now False *",
            ),
        ),
        (
            "group_by = func\nconfirm = always",
            (
                "--fileperf-update",
                "--fileperf-strict",
                "--fileperf-json=out/x.json",
                "--fileperf-html=~/x.html",
                "--fileperf-save",
                "--fileperf-baselines=~/kept",
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
                "--fileperf-group-by=fullname,param",
                "--fileperf-confirm=never",
                "--fileperf-reason=a\x1b[2Jb\r\nµ",
            ),
            (
                "*connections=3, *duration_ns=2000000000, rounds=4, max_duration_ns=9000000000, *warmup_ns=1000000000, "
                "timeout_ns=5000000000, boots=2, *app='a:b', server=Uvicorn(workers=2, loop='asyncio'*",
                "invocation: False passed True {path}/out/x.json {path}/home/x.html  {path}/home/kept",
                "group by: ('fullname', 'param')",
                r"baselines: never now True 'a\ufffd?2Jb \xb5'",
            ),
        ),
    ],
    ids=["nothing is said", "options come before ini values", "every option"],
)
def test_what_options_and_ini_values_mean(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, ini: str, arguments: tuple[str, ...],
    lines: tuple[str, ...],
) -> None:  # fmt: skip
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(pytester.path / "home"))
    pytester.makepyfile(SHOWN)
    pytester.makeini("\n".join(("[pytest]", *(f"fileperf_{line}" for line in ini.splitlines()))))
    shown = run("-s", *arguments).stdout
    shown.fnmatch_lines([line.format(path=pytester.path) for line in lines])


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
INI_OPTIONS = NATIVE.replace("tool.pytest", "tool.pytest.ini_options")


@pytest.mark.parametrize(
    "toml",
    [
        pytest.param(NATIVE, marks=only_pytest_9, id="native"),
        pytest.param(INI_OPTIONS, id="ini_options"),
        pytest.param(
            INI_OPTIONS.replace("= 5", '= "5"').replace("= true", '= "true"').replace("= false", '= "false"'),
            id="ini_options, all texts",
        ),
    ],
)
def test_pyproject_toml_in_both_forms(pytester: pytest.Pytester, run: Run, toml: str) -> None:
    pytester.makepyfile(SHOWN)
    pytester.makepyprojecttoml(toml)
    run("--fileperf", "-s", "--strict-config").stdout.fnmatch_lines(
        [
            "*settings: Settings(connections=5, requests=None, burst=None, rate=None, ramp=None, *"
            "duration_ns=3000000000,*app='a:b', server=Uvicorn(workers=2,*gate=('p50',)*",
            "invocation: False None True *",
            "baselines: always now False *",
        ]
    )


@pytest.mark.parametrize(
    "arguments,expected",
    [
        (
            ("--fileperf", "-v"),
            "fileperf: measuring; uvicorn ×1; access log off; server and load on * cores; baselines in .fileperf",
        ),
        (
            ("--fileperf-smoke", "--fileperf-server=inprocess"),
            "fileperf: smoke run with a few requests *; in-process; *",
        ),
        (("--fileperf-update", "--fileperf-workers=2"), "fileperf: measuring; storing baselines; uvicorn ×2; *"),
        (("--fileperf-update=new",), "fileperf: measuring; storing new baselines; *"),
        (("--fileperf-update=all",), "fileperf: measuring; storing all baselines, even worse ones; *"),
        (
            ("--fileperf", "-v", "--fileperf-server=http://127.0.0.1:8000", "--fileperf-baselines=/elsewhere"),
            "fileperf: measuring; http://127.0.0.1:8000; baselines in /elsewhere",
        ),
        ((), ""),
        (("--fileperf",), ""),
    ],
)
def test_the_header_says_what_will_happen_if_it_is_special(
    pytester: pytest.Pytester, run: Run, arguments: tuple[str, ...], expected: str
) -> None:
    shown = run(*arguments).stdout
    if expected:
        shown.fnmatch_lines([expected])
    else:
        shown.no_fnmatch_line("fileperf: measuring*")


# --- markers


def test_problems_of_all_markers_are_told_before_any_test(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.fileperf(connections=0, duration="10x")
        def test_values(fileperf): raise AssertionError

        @pytest.mark.fileperf(rate=10, burst=3, max_p98="1s")
        def test_keys(fileperf): raise AssertionError

        @pytest.mark.fileperf(32)
        def test_positional(): raise AssertionError

        @pytest.mark.parametrize("number", [1, 2])
        @pytest.mark.fileperf(gate="speed")
        def test_many(fileperf, number): raise AssertionError

        def yields(client):
            yield

        @pytest.mark.fileperf(setup=yields, teardown=lambda: None)
        def test_both(fileperf): raise AssertionError
        """
    )
    result = run("--fileperf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    function = "Write an async or plain function that takes one argument"
    result.stderr.fnmatch_lines(
        [
            "ERROR: fileperf: 9 problems:",
            "  - *::test_values: connections: 0 isn't a whole number of 1 or more",
            "  - *::test_values: duration: '10x' isn't a duration. *",
            "  - *::test_keys: unknown key 'max_p98' (did you mean max_p9*?). Valid keys are *",
            "  - *::test_keys: burst and rate are different shapes of load. Give only one of them",
            "  - *::test_positional: the marker fileperf takes only keywords, as in fileperf(connections=32)",
            "  - *::test_many?1?: gate: unknown metric 'speed'. Use rps, *",
            "  - *::test_many?2?: gate: unknown metric 'speed'. Use rps, *",
            f"  - *::test_both: setup: yields contains yield. {function}*",
            "  - *::test_both: teardown: <lambda> takes other arguments. Write an async*",
        ]
    )


def test_only_a_run_of_all_tests_tells_which_endpoints_have_one(pytester: pytest.Pytester) -> None:
    """With `testpaths`, these are all tests."""
    for name in ("a", "b1", "b2"):
        pytester.mkdir(name)
    given = {"": True, "a": False, "a/test_a.py": False, "a b1 b2": False, ".": True, ". --ignore=b1": False}
    assert {args: collects_all(pytester.parseconfig(*args.split())) for args in given} == given
    pytester.makeini("[pytest]\ntestpaths = a b*")
    given |= {"a b1 b2": True}
    assert {args: collects_all(pytester.parseconfig(*args.split())) for args in given} == given


# --- what is wrong

ABOUT_STORED = "needs stored baselines, but --fileperf-{} uses none. Leave out one of them"
GROUPS = (
    "cannot group tests. Use group, name, func, fullname, fullfunc, param or param:NAME with the name of a"
    " parameter, or several of these joined by commas"
)
NOT_STORED = "--fileperf-reason is stored with baselines, so it needs --fileperf-update"
USELESS = "--fileperf-base-packages=stored needs *--fileperf-confirm=never forbids that*"


@pytest.mark.parametrize(
    "ini,arguments,found",
    [
        (
            "gate = p98\nrounds = many\nboots = 0\ntolerance = 5\nstrict = perhaps",
            "update=old connections=0 duration=10x server=apache app=app.py",
            [
                "--fileperf-update=old:*",
                "fileperf_rounds:*",
                "fileperf_strict:*",
                "--fileperf-connections:*",
                "--fileperf-duration:*",
                "--fileperf-app:*",
                "--fileperf-server:*",
                "fileperf_boots:*",
                "fileperf_tolerance:*",
                "fileperf_gate:*",
            ],
        ),
        ("", "group-by=size", [f"--fileperf-group-by: 'size' {GROUPS}"]),
        ("group_by = func,size", "", [f"fileperf_group_by: 'size' {GROUPS}"]),
        (
            "base_packages = newest\nkeep_trees = perhaps",
            "confirm=sometimes",
            [
                "fileperf_keep_trees: *",
                "--fileperf-confirm=sometimes: it is always or never",
                "fileperf_base_packages = newest: it is now or stored",
            ],
        ),
        *(
            ("", f"{option} confirm=always base-packages=stored", [f"--fileperf-{name} {why}" for name in names])
            for names in (("confirm", "base-packages"),)
            for option, why in (
                ("smoke", "does not work with --fileperf-smoke. Leave out one of them"),
                ("against=http://127.0.0.1:1", ABOUT_STORED.format("against")),
                ("aa", ABOUT_STORED.format("aa")),
            )
        ),
        ("", "confirm=never base-packages=stored", [USELESS]),
        ("confirm = never", "base-packages=stored", [USELESS]),
        ("confirm = never\nbase_packages = stored", "", [USELESS]),
        ("", "smoke update", ["--fileperf-update: too few requests for a baseline. Leave out --fileperf-smoke"]),
        ("", "smoke prune", ["--fileperf-prune does not work with --fileperf-smoke. Leave out one of them"]),
        ("", "reason=why", [NOT_STORED]),
        ("", "update reason=", ["--fileperf-reason is empty. Give a reason*"]),
        ("", "cluster=", ["--fileperf-cluster is empty. Give a scheduler's address*"]),
        ("", "cluster=missing.json", ["--fileperf-cluster: missing.json is neither an address with a port*"]),
        ("", "cluster=tcp://127.0.0.1:9 host=10.0.0.5", ["*Allow it with --fileperf-allow-host=10.0.0.5"]),
        ("", "server=http://10.0.0.5:80", ["*load goes only to this machine*"]),
        ("", "against=http://10.0.0.5:80", ["*load goes only to this machine*"]),
        ("", "against=main", ["*isn't in a Git repository*"]),
    ],
)
def test_all_that_is_wrong_is_told_before_any_test(
    pytester: pytest.Pytester, run: Run, ini: str, arguments: str, found: list[str]
) -> None:
    pytester.makepyfile(NEVER)
    pytester.makeini("\n".join(("[pytest]", *(f"fileperf_{line}" for line in ini.splitlines()))))
    problems = problems_of(run("--fileperf", *(f"--fileperf-{option}" for option in arguments.split())))
    pytest.LineMatcher(problems).fnmatch_lines(found, consecutive=True)
    assert len(problems) == len(found)


@only_pytest_9
def test_a_native_value_of_the_wrong_type_is_told(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyprojecttoml('[tool.pytest]\nfileperf_connections = "5"\nfileperf_duration = 10\n')
    connections, duration = problems_of(run("--fileperf"))
    assert connections.startswith("fileperf_connections:")
    assert "expects an int" in connections
    assert duration.startswith("fileperf_duration:")
    assert "expects a string" in duration


def test_storing_in_ci_needs_its_own_word(pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(ON)
    for ci, option in (("true", "--fileperf-update"), ("1", "--fileperf-update=new"), ("yes", "--fileperf-update=all")):
        monkeypatch.setenv("CI", ci)
        assert problems_of(run(option)) == [
            "--fileperf-update: the variable CI is set, and a baseline stored in CI would hide slower code. "
            "Store baselines on your machine and commit them, or add --fileperf-update-in-ci"
        ]
    run("--fileperf-update", "--fileperf-update-in-ci").assert_outcomes(passed=1)
    for off in ("", "0", "false", "False"):
        monkeypatch.setenv("CI", off)
        run("--fileperf-update").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    "module,option,extra",
    [
        ("distributed", "cluster=tcp://127.0.0.1:8786", "cluster"),
        ("httpx2", "client=httpx2", "httpx2"),
    ],
)
def test_an_extra_that_is_missing_is_told_with_how_to_get_it(
    pytester: pytest.Pytester, run: Run, monkeypatch: pytest.MonkeyPatch, module: str, option: str, extra: str
) -> None:
    pytester.makepyfile(NEVER)
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = problems_of(run("--fileperf", f"--fileperf-{option}"))
    assert problem.endswith(f'pip install "pytest-fileperf[{extra}]"')


# --- paths


def test_a_path_taken_for_a_value_or_a_value_for_a_path_is_told(pytester: pytest.Pytester, run: Run) -> None:
    path = pytester.makepyfile(NEVER)
    for option in ("--fileperf-update", "--fileperf-save"):
        (problem,) = problems_of(run(option, path.name))
        assert problem.startswith(f"{option}={path.name}")
        assert "paths" in problem
    there = pytester.path.parent / f"of {pytester.path.name}.json"
    there.touch()
    (problem,) = problems_of(run("--fileperf-json", str(there)))  # by which pytest finds another rootdir
    assert problem.endswith(f"from {pytester.path.parent}. Write --fileperf-json={there}")


def test_reports_have_paths_of_their_own_and_replace_no_other_file(pytester: pytest.Pytester, run: Run) -> None:
    path = pytester.makepyfile(NEVER)
    (pytester.path / "x.html").touch()
    pytester.maketxtfile(readme="# What it is")
    files = (f"--fileperf-json={path.name}", "--fileperf-html=x.html", "--fileperf-markdown=./x.html")
    source, same = problems_of(run(*files))
    (text,) = problems_of(run("--fileperf-markdown=readme.txt"))
    assert same.startswith("--fileperf-html and --fileperf-markdown write the same file ")
    replaces = "would replace an existing file of another kind. Name another path"
    assert source == f"--fileperf-json={pytester.path / path.name} {replaces}"
    assert text == f"--fileperf-markdown={pytester.path / 'readme.txt'} {replaces}"
    assert "test_never" in path.read_text(encoding="utf-8")


# --- xdist


def test_xdist_is_refused_where_it_measures(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(ON)
    (problem,) = problems_of(run("--fileperf", "-n2", plugins=("xdist",)))
    assert "Run them alone with -n 0" in problem
    for arguments in (("-n0",), ("-n2", "--collect-only")):
        assert run("--fileperf", *arguments, plugins=("xdist",)).ret == pytest.ExitCode.OK
