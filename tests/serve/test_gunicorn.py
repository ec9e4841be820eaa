"""What only gunicorn has: a package of its own, a configuration that stays out, and an arbiter that watches workers."""

from __future__ import annotations

import importlib.util
import os
import signal
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from serve.processes import Boot, facts, posix, remaining_after

from pytest_fileperf.errors import PlanError
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.job import Job
from pytest_fileperf.serve.spec import Gunicorn
from pytest_fileperf.serve.start import WorkerStart

pytestmark = posix


def test_its_own_configuration_is_not_read(boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gunicorn.conf.py").write_text("workers = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GUNICORN_CMD_ARGS", "--workers=3 --bind=127.0.0.1:1")
    monkeypatch.setenv("WEB_CONCURRENCY", "3")
    assert len(boot(Gunicorn()).pids) == 2


def test_it_makes_no_socket_of_its_own(boot: Boot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "pid" in facts(boot(Gunicorn()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["gunicorn", "uvicorn_worker"])
def test_a_missing_package_is_told_with_what_to_install(name: str, boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find(wanted: str) -> ModuleSpec | None:
        return None if wanted == name else find_spec(wanted)

    monkeypatch.setattr("importlib.util.find_spec", find)
    with pytest.raises(PlanError, match=rf'{name} is not installed .*`pip install "pytest-fileperf\[gunicorn\]"`'):
        boot(Gunicorn())


def test_a_system_without_it_is_told(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_fileperf.host.scratch.IS_SUPERVISED", False)
    with pytest.raises(PlanError, match="gunicorn does not run on this system"):
        boot(Gunicorn())


@pytest.mark.parametrize("start_timeout_s,timeout_s", [(5, 30), (90.5, 91)])
def test_a_worker_may_take_as_long_to_start_as_the_server(
    start_timeout_s: float, timeout_s: int, tmp_path: Path
) -> None:
    from pytest_fileperf.serve.gunicorn_worker import Application

    job = Job.of(Gunicorn(start_timeout_s=start_timeout_s), AppSpec("serve.apps:app"), lent=tmp_path)
    start = WorkerStart(job=job, run_directory=tmp_path, port=0)
    assert Application(start, 0).cfg.timeout == timeout_s


def test_the_arbiter_ends_its_workers_when_it_is_ended(boot: Boot) -> None:
    server = boot(Gunicorn(workers=2))
    pids = server.pids
    os.kill(pids[0], signal.SIGTERM)
    assert remaining_after(5, pids) == []
