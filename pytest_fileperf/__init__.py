"""Load-tests ASGI apps from pytest, and fails a test when an endpoint got slower.

Importing the package loads none of its parts: each name is fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.errors import (
        AppLoadError,
        AppMissingError,
        AppOriginError,
        BaseDiedError,
        BaselineError,
        FileLimitError,
        FilePerfError,
        GeneratorError,
        LimitExceededError,
        LoadError,
        NotMeasuredError,
        PerformanceError,
        PlanError,
        RegressionError,
        RequestsFailedError,
        ServerDiedError,
        ServerError,
        ServerStartError,
    )
    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plan.payload import Payload, payload
    from pytest_fileperf.plugin.verbs import AsyncFilePerf, FilePerf
    from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, Url, Uvicorn
    from pytest_fileperf.wire.asgi import StreamingASGITransport
    from pytest_fileperf.wire.transport import LoadTransport

__all__ = (
    "AppLoadError",
    "AppMissingError",
    "AppOriginError",
    "AsyncFilePerf",
    "BaseDiedError",
    "BaselineError",
    "Command",
    "FileLimitError",
    "FilePerf",
    "FilePerfError",
    "GeneratorError",
    "Gunicorn",
    "InProcess",
    "LimitExceededError",
    "LoadError",
    "LoadTransport",
    "Measurement",
    "NotMeasuredError",
    "Payload",
    "PerformanceError",
    "PlanError",
    "RegressionError",
    "RequestsFailedError",
    "ServerDiedError",
    "ServerError",
    "ServerStartError",
    "StreamingASGITransport",
    "Url",
    "Uvicorn",
    "payload",
)

_HOMES = {
    "AsyncFilePerf": "plugin.verbs",
    "Command": "serve.spec",
    "FilePerf": "plugin.verbs",
    "Gunicorn": "serve.spec",
    "InProcess": "serve.spec",
    "LoadTransport": "wire.transport",
    "Measurement": "measure.measurement",
    "Payload": "plan.payload",
    "StreamingASGITransport": "wire.asgi",
    "Url": "serve.spec",
    "Uvicorn": "serve.spec",
    "payload": "plan.payload",
}
"""The modules the names come from; errors come from `errors`."""


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
