"""Servers that a test boots and that end with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from serve.processes import Boot

from pytest_fileperf.serve.app import app_spec
from pytest_fileperf.serve.launch import launch
from pytest_fileperf.serve.running import RunningServer
from pytest_fileperf.serve.spec import ServerSpec, Uvicorn, needs_app


@pytest.fixture
def boot() -> Iterator[Boot]:
    with ExitStack() as servers:

        def boot(
            spec: ServerSpec | None = None,
            app: object = "serve.apps:app",
            number: int = 0,
            cores: frozenset[int] | None = None,
        ) -> RunningServer:
            spec = spec or Uvicorn()
            served = app_spec(app) if needs_app(spec) else None
            return servers.enter_context(launch(spec, served, boot=number, cores=cores))

        yield boot
