"""What a session says of where the CPU of a request goes, by a real server and a real profiler."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from serve.processes import Boot

from pytest_fileperf.drive.run import Run
from pytest_fileperf.judge.record import Explanation, TestId
from pytest_fileperf.plan.load import LoadPlan
from pytest_fileperf.plan.request import Operation
from pytest_fileperf.serve.running import RunningUrl
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.session.causes import Looked, explain_costs
from pytest_fileperf.session.loads import Loader
from pytest_fileperf.session.rig import Rig
from pytest_fileperf.session.session import Session
from pytest_fileperf.settings.plans import Pace, Plan
from pytest_fileperf.settings.settings import Options, Settings

MS = 1_000_000
GET = Operation(method="GET", url="/")
SETTINGS = Settings(app="explained_app:app", boots=1, connections=2, duration_ns=300 * MS, rounds=3, warmup_ns=0)
PACE = Pace(profile_ns=500 * MS)
TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")
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
    with Session(Options(baselines=tmp_path / "baselines", profile=True), Rig(pace=PACE)) as session:
        session.measure(GET, replace(SETTINGS, server=server), TEST)
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
def test_a_worker_that_was_not_seen_is_said(boot: Boot) -> None:
    booted, loader = boot(Uvicorn(), "explained_app:app"), Loader()
    plan = Plan(test=TEST, work=GET, settings=SETTINGS, app=None, pace=PACE).profile

    def load(plan: LoadPlan) -> Run:
        return loader.make(GET, plan, 0, booted, None, lambda _: None)

    class WithOneThatIsGone(RunningUrl):
        @property
        def pids(self) -> tuple[int, ...]:
            return (*booted.worker_pids, GONE)

    try:
        looked = Looked(server=WithOneThatIsGone(Url(booted.url)), load=load, root=None, cpu_per_request=None)
        found = explain_costs(plan, looked, None)
    finally:
        loader.close()

    assert "slow_digest" in found.text
    assert "one process was not seen in every look" in found.text
    assert found.details is not None
    assert str(GONE) in str(found.details["notes"])


@pytest.mark.usefixtures("looks")
def test_where_no_profiler_can_look_one_line_says_why(tmp_path: Path) -> None:
    found = explained(tmp_path, InProcess())

    assert found.text == "no profile: the app runs in the test process, together with the load"
