"""Without --fileperf, load tests are skipped, and nothing is imported that takes time."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from plugin.conftest import OTHERS

Run = Callable[..., pytest.RunResult]
TESTS = """
import pytest

@pytest.fixture
def costly():
    raise AssertionError("a skipped test needs no fixtures")

def test_plain():
    pass

def test_sync(fileperf, costly):
    fileperf.get("/")

@pytest.mark.parametrize("size", [1, 2])
def test_server(fileperf_server, size):
    pass

async def test_async(afileperf):
    await afileperf.get("/")

@pytest.mark.fileperf(connections=0)
class TestMarked:
    def test_marked(self):
        raise AssertionError
"""
SHOW_MODULES = """
import sys

LARGE = {large!r}

def pytest_unconfigure(config):
    sys.stderr.write(f"large modules: {{sorted(set(sys.modules) & LARGE)}}\\n")
"""
LARGE = {"cloudpickle", "httpx", "httpx2", "numpy", "psutil", "rich", "scipy", "uvicorn", "uvloop"}
SKIPPED = "*SKIPPED*needs --fileperf (or --fileperf-smoke for a few requests)*"


def test_load_tests_are_skipped_and_the_reason_says_what_to_do(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(TESTS)
    result = run("-rs")
    result.assert_outcomes(passed=1, skipped=5)
    result.stdout.fnmatch_lines([SKIPPED])


@pytest.mark.parametrize(
    "options,selected",
    [
        (("-m", "fileperf"), ["test_async", "test_marked", "test_server[1]", "test_server[2]", "test_sync"]),
        (("-m", "not fileperf"), ["test_plain"]),
    ],
)
@pytest.mark.parametrize("enabled", [(), ("--fileperf",)])
def test_the_marker_selects_tests_that_only_use_the_fixtures(
    pytester: pytest.Pytester, run: Run, options: tuple[str, ...], selected: list[str], enabled: tuple[str, ...]
) -> None:
    pytester.makepyfile(TESTS.replace("connections=0", "connections=1"))
    result = run("--collect-only", "-q", *options, *enabled)
    assert sorted(line.rpartition("::")[2] for line in result.outlines if "::" in line) == selected


def test_a_fixture_asked_for_while_the_test_runs_skips_it(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile('def test_late(request): request.getfixturevalue("fileperf").get("/")')
    result = run("-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([SKIPPED])


def test_the_app_fixture_alone_works_without_load(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeini("[pytest]\nfileperf_app = package.module:app\n")
    pytester.makepyfile('def test_app(fileperf_app): assert fileperf_app == "package.module:app"')
    run().assert_outcomes(passed=1)


@pytest.mark.parametrize("arguments", [(), ("--fileperf", "--collect-only")], ids=["skipped", "collected"])
def test_nothing_large_is_imported(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makepyfile(TESTS.replace("connections=0", "connections=1"))
    pytester.makeconftest(SHOW_MODULES.format(large=LARGE))
    result = pytester.runpytest_subprocess(*(f"-pno:{name}" for name in (*OTHERS, "anyio")), *arguments, timeout=50)
    assert result.ret == 0
    assert "large modules: []" in result.stderr.lines


START = """
import sys

processes = []
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system")
sys.addaudithook(lambda event, arguments: processes.append(arguments) if event in STARTS else None)

import pytest

pytest.main(["--collect-only", "-p", "fileperf"])
print("processes:", processes)
print("ours:", *sorted(name for name in sys.modules if name.partition(".")[0] == "pytest_fileperf"))
"""


def test_a_start_of_pytest_imports_four_small_modules_and_runs_no_program(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_plain(): pass")
    lines = pytester.run(sys.executable, "-c", START, timeout=50).stdout.lines
    assert "processes: []" in lines
    names = ("", ".plugin", ".plugin.fixtures", ".plugin.options")
    assert "ours: " + " ".join(f"pytest_fileperf{name}" for name in names) in lines
    assert not (pytester.path / ".benchmarks").exists()


def test_the_plugin_can_be_left_out(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("def test_without(fileperf): pass")
    result = run("-p", "no:fileperf")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'fileperf' not found*"])


def test_the_marker_is_registered(pytester: pytest.Pytester, run: Run) -> None:
    run("--markers").stdout.fnmatch_lines(["@pytest.mark.fileperf(?*keys): *"])
