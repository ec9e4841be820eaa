"""Load-tests ASGI apps from pytest, and fails a test when an endpoint got slower.

Importing the package loads none of its parts: each name is fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.drive.journey import Client
    from pytest_fileperf.errors import (
        AppLoadError,
        AppMissingError,
        AppOriginError,
        BaseDiedError,
        BaseFailedError,
        BaselineError,
        BaseSetupError,
        FileLimitError,
        FilePerfError,
        GeneratorError,
        LimitExceededError,
        LoadError,
        NotMeasuredError,
        PerformanceError,
        PlanError,
        RecordError,
        RegressionError,
        RequestsFailedError,
        ServerDiedError,
        ServerError,
        ServerStartError,
        SetupError,
    )
    from pytest_fileperf.measure.capacity import Capacity, CapacityEnd
    from pytest_fileperf.measure.limiting import LimitKind
    from pytest_fileperf.measure.measurement import Measurement
    from pytest_fileperf.plan.payload import Payload, payload
    from pytest_fileperf.plan.work import Pause, exponential, uniform
    from pytest_fileperf.plugin.verbs import AsyncFilePerf, FilePerf
    from pytest_fileperf.serve.running import RunningServer
    from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, Url, Uvicorn
    from pytest_fileperf.settings.keywords import (
        JourneyPartKeywords,
        MarkerKeys,
        PartKeywords,
        PartOfLoad,
        RequestKeywords,
        RequestsKeywords,
        RunKeywords,
        StepKeywords,
        StreamKeywords,
        part,
    )
    from pytest_fileperf.wire.asgi import StreamingASGITransport
    from pytest_fileperf.wire.transport import LoadTransport

    __version__: str

__all__ = (
    "AppLoadError",
    "AppMissingError",
    "AppOriginError",
    "AsyncFilePerf",
    "BaseDiedError",
    "BaseFailedError",
    "BaseSetupError",
    "BaselineError",
    "Capacity",
    "CapacityEnd",
    "Client",
    "Command",
    "FileLimitError",
    "FilePerf",
    "FilePerfError",
    "GeneratorError",
    "Gunicorn",
    "InProcess",
    "JourneyPartKeywords",
    "LimitExceededError",
    "LimitKind",
    "LoadError",
    "LoadTransport",
    "MarkerKeys",
    "Measurement",
    "NotMeasuredError",
    "PartKeywords",
    "PartOfLoad",
    "Pause",
    "Payload",
    "PerformanceError",
    "PlanError",
    "RecordError",
    "RegressionError",
    "RequestKeywords",
    "RequestsFailedError",
    "RequestsKeywords",
    "RunKeywords",
    "RunningServer",
    "ServerDiedError",
    "ServerError",
    "ServerStartError",
    "SetupError",
    "StepKeywords",
    "StreamKeywords",
    "StreamingASGITransport",
    "Url",
    "Uvicorn",
    "__version__",
    "exponential",
    "part",
    "payload",
    "uniform",
)

_HOMES = {
    "AsyncFilePerf": "plugin.verbs",
    "Capacity": "measure.capacity",
    "CapacityEnd": "measure.capacity",
    "Client": "drive.journey",
    "Command": "serve.spec",
    "FilePerf": "plugin.verbs",
    "Gunicorn": "serve.spec",
    "InProcess": "serve.spec",
    "JourneyPartKeywords": "settings.keywords",
    "LimitKind": "measure.limiting",
    "LoadTransport": "wire.transport",
    "MarkerKeys": "settings.keywords",
    "Measurement": "measure.measurement",
    "Pause": "plan.work",
    "PartKeywords": "settings.keywords",
    "PartOfLoad": "settings.keywords",
    "Payload": "plan.payload",
    "RequestKeywords": "settings.keywords",
    "RequestsKeywords": "settings.keywords",
    "RunKeywords": "settings.keywords",
    "RunningServer": "serve.running",
    "StepKeywords": "settings.keywords",
    "StreamKeywords": "settings.keywords",
    "StreamingASGITransport": "wire.asgi",
    "Url": "serve.spec",
    "Uvicorn": "serve.spec",
    "exponential": "plan.work",
    "part": "settings.keywords",
    "payload": "plan.payload",
    "uniform": "plan.work",
}
"""The modules the names come from; errors come from `errors`."""


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            value: object = import_module("importlib.metadata").version("pytest-fileperf")
        else:
            value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
