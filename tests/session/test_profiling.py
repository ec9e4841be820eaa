"""What a session says of where the CPU of a request goes, by a real server and a real profiler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_fileperf.judge.result import Explanation, TestId
from pytest_fileperf.plan.operation import Operation
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Uvicorn
from pytest_fileperf.session import profiling as explain
from pytest_fileperf.session.alone import Rig
from pytest_fileperf.session.session import Session, SessionOptions
from pytest_fileperf.settings.resolve import Settings
from pytest_fileperf.watch.profiler import Profiler

MS = 1_000_000
GONE = 2**22 + 1
"""Beyond the largest process id of Linux."""
APP = """
def slow_digest():
    return sum(range(5_000))


async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    slow_digest()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})
"""


@pytest.fixture(autouse=True)
def _app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "explained_app.py").write_text(APP, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def explained(tmp_path: Path, server: ServerSpec) -> Explanation:
    """Measures once with a profile and returns what it says."""
    settings = Settings(
        app="explained_app:app", server=server, boots=1, connections=2, duration_ns=300 * MS, rounds=3, warmup_ns=0
    )
    test = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
    with Session(SessionOptions(baselines=tmp_path / "baselines", profile=True), Rig()) as session:
        session.measure(Operation(method="GET", url="/"), settings, test)
        (result,) = session.results
    assert result.explanation is not None
    return result.explanation


@pytest.mark.usefixtures("looks")
def test_the_function_that_costs_most_is_named(tmp_path: Path) -> None:
    found = explained(tmp_path, Uvicorn())

    assert "slow_digest (explained_app.py:2)" in found.text
    assert "not seen" not in found.text
    assert found.details is not None
    assert found.details["notes"] == []


@pytest.mark.usefixtures("looks")
def test_a_worker_that_was_not_seen_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithOneThatIsGone(Profiler):
        def __init__(self, pids: Sequence[int], *, seconds: float, cores: frozenset[int] | None = None) -> None:
            super().__init__((*pids, GONE), seconds=seconds, cores=cores)

    monkeypatch.setattr(explain, "Profiler", WithOneThatIsGone)

    found = explained(tmp_path, Uvicorn())

    assert "slow_digest" in found.text
    assert "one process was not seen in every look" in found.text
    assert found.details is not None
    assert str(GONE) in str(found.details["notes"])


@pytest.mark.usefixtures("looks")
def test_where_no_profiler_can_look_one_line_says_why(tmp_path: Path) -> None:
    found = explained(tmp_path, InProcess())

    assert found.text == "no profile: the app runs in the test process, together with the load"
