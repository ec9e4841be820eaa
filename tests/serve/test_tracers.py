"""What makes a process begin with a tracer is known, and left out; what traces this process is told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

from pytest_fileperf.serve.process import base_env
from pytest_fileperf.serve.spec import Uvicorn
from pytest_fileperf.serve.stability import tracer_in, tracer_now, untraced

OF_COVERAGE = {
    "COVERAGE_PROCESS_CONFIG": ":data:{}",
    "COVERAGE_PROCESS_START": ".coveragerc",
    "COV_CORE_SOURCE": "app",
    "COV_CORE_DATAFILE": ".coverage",
}
OF_DEVELOPERS = {"PYTHONDEVMODE": "1", "PYTHONASYNCIODEBUG": "1", "PYTHONTRACEMALLOC": "5"}
OTHERS = {"PATH": "/bin", "COVERAGE_RCFILE": ".coveragerc", "PYTHONPATH": "src"}


def test_what_traces_is_left_out_and_nothing_else() -> None:
    assert untraced(OF_COVERAGE | OF_DEVELOPERS | OTHERS) == OTHERS


def test_coverage_may_be_asked_for_and_nothing_else() -> None:
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
