"""What a boot asks for to be stable, and what it says it got; what traces a process, and what is left out for that."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

import pytest
from serve.processes import linux

from pytest_fileperf.serve import stability
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.serve.stability import base_env, tracer_in, tracer_now, untraced


def test_a_boot_has_its_seed_and_an_allocator_that_keeps_what_the_user_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [stability.stabilising_env(boot)["PYTHONHASHSEED"] for boot in range(3)] == ["1", "2", "3"]
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    assert "GLIBC_TUNABLES" not in stability.stabilising_env(0)
    assert stability.stabilising_env(0, in_turn=True)["GLIBC_TUNABLES"] == "glibc.malloc.tcache_count=0"
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=7")
    assert stability.stabilising_env(0, in_turn=True)["GLIBC_TUNABLES"].endswith(":glibc.malloc.tcache_count=7")


def test_memory_is_moved_by_the_number_of_the_boot_and_by_nothing_else() -> None:
    moved = [moved_by(number) for number in (0, 0, 1, 2)]
    assert moved[0] == moved[1]
    assert len(set(moved)) == 3
    assert all(0 < total < 2 << 20 for _, total in moved)


def moved_by(boot: int) -> tuple[int, int]:
    """Returns by how many bytes a boot moves the stack, and how many its process holds to move the heap."""
    code = "from pytest_fileperf.serve import stability; stability.move_heap();print(sum(map(len, stability._BALLAST)))"
    layout = {"PYTEST_FILEPERF_LAYOUT": stability.stabilising_env(boot)["PYTEST_FILEPERF_LAYOUT"]}
    command = (sys.executable, "-c", code)
    done = subprocess.run(command, env=os.environ | layout, capture_output=True, text=True, check=True, timeout=30)
    return len(*layout.values()), int(done.stdout)


def test_what_holds_in_this_process_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "random")
    assert "hash seed" not in stability.stabilised_now()
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    assert "hash seed" in stability.stabilised_now()
    assert stability.stabilised_in(2**22 + 1) == (), "nothing is known of a process that is gone"


PROGRAMS: dict[str, tuple[Sequence[str], set[str]]] = {
    "python": ((sys.executable, "-c", "print(flush=True); input()"), {"hash seed"}),
    "no python": (("sh", "-c", "echo; read line"), set()),
}


@linux
@pytest.mark.parametrize("command,held", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("fixed", [True, False])
def test_what_holds_in_another_program_is_seen_from_outside(
    fixed: bool, command: Sequence[str], held: set[str]
) -> None:
    setarch = shutil.which("setarch")
    if fixed and (setarch is None or subprocess.run([setarch, "-R", "true"], check=False).returncode != 0):
        pytest.skip("addresses cannot be fixed here")
    prefix = (str(setarch), "-R") if fixed else ()
    with subprocess.Popen(
        [*prefix, *command],
        env=os.environ | stability.stabilising_env(0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert set(stability.stabilised_in(process.pid)) - {"addresses"} == held
        assert ("addresses" in stability.stabilised_in(process.pid)) >= fixed
        process.communicate(b"\n")


# --- Tracers

OF_COVERAGE = {
    "COVERAGE_PROCESS_CONFIG": ":data:{}",
    "COVERAGE_PROCESS_START": ".coveragerc",
    "COV_CORE_SOURCE": "app",
    "COV_CORE_DATAFILE": ".coverage",
}
OF_DEVELOPERS = {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "PYTHONTRACEMALLOC": "5"}
OTHERS = {"PATH": "/bin", "COVERAGE_RCFILE": ".coveragerc", "PYTHONPATH": "src"}


def test_what_traces_is_left_out_and_nothing_else_and_coverage_may_be_asked_for() -> None:
    assert untraced(OF_COVERAGE | OF_DEVELOPERS | OTHERS) == OTHERS
    assert untraced(OF_COVERAGE | OF_DEVELOPERS | OTHERS, coverage=True) == OF_COVERAGE | OTHERS


@pytest.mark.parametrize(
    "env,tracer",
    [
        ({}, ""),
        (OTHERS, ""),
        ({"COVERAGE_PROCESS_START": ""}, ""),
        ({"COV_CORE_SOURCE": "app"}, ""),
        ({"COVERAGE_PROCESS_START": ".coveragerc"}, "coverage"),
        ({"COVERAGE_PROCESS_CONFIG": ":data:{}"}, "coverage"),
        ({"COV_CORE_DATAFILE": ".coverage"}, "coverage"),
    ],
)
def test_the_tracer_that_an_environment_begins_with(env: dict[str, str], tracer: str) -> None:
    assert tracer_in(env) == tracer


def test_a_server_gets_back_what_its_spec_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_START", "theirs")
    monkeypatch.setenv("PYTHONDEVMODE", "1")
    assert {"COVERAGE_PROCESS_START", "PYTHONDEVMODE"}.isdisjoint(base_env(Uvicorn()))
    assert base_env(Uvicorn(env={"COVERAGE_PROCESS_START": "own"}))["COVERAGE_PROCESS_START"] == "own"
    assert base_env(Uvicorn(), coverage=True)["COVERAGE_PROCESS_START"] == "theirs"


@pytest.mark.parametrize("install", [sys.settrace, sys.setprofile])
def test_a_thread_knows_what_traces_it(install: Callable[[object], None]) -> None:
    found: list[str] = []

    def look() -> None:
        install(lambda *_: None)
        found.append(tracer_now())
        install(None)
        found.append(tracer_now())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0].startswith(__name__.partition(".")[0])
    assert not found[1].startswith(__name__.partition(".")[0])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 brought sys.monitoring")
def test_tools_of_python_s_monitoring_count() -> None:
    monitoring = vars(sys)["monitoring"]
    monitoring.use_tool_id(4, "watcher.py")
    try:
        assert "watcher" in tracer_now()
    finally:
        monitoring.free_tool_id(4)
