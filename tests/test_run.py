"""How a session spreads a measurement over the servers it gets."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.report.progress import ProgressLine
from pytest_fileperf.report.result import TestId
from pytest_fileperf.run import Session, SessionOptions
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Uvicorn
from pytest_fileperf.settings import Settings

MS = 1_000_000


class Silent:
    def update(self, line: ProgressLine) -> None:
        pass

    def done(self) -> None:
        pass


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port: int = other.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "make, boots",
    [(Uvicorn, 3), (lambda: Uvicorn(port=free_port()), 1), (InProcess, 1)],
    ids=["several boots", "a fixed port", "in-process"],
)
def test_the_boots_there_are_share_the_whole_duration_and_all_rounds(
    make: Callable[[], ServerSpec], boots: int, tmp_path: Path
) -> None:
    settings = Settings(
        app="serve.apps:app", server=make(), boots=3, connections=1, duration_ns=300 * MS, rounds=6, warmup_ns=0
    )
    with Session(SessionOptions(baselines=tmp_path), progress=Silent()) as session:
        test = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
        measurement = session.measure(Operation(method="GET", url="/"), settings, test)
        (result,) = session.results

    assert len(result.recording.boots) == boots
    assert len(result.recording.measured()) == 6
    assert measurement.duration == pytest.approx(0.3)
