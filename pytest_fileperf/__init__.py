"""Load-tests ASGI apps from pytest, and fails a test when an endpoint got slower.

Importing the package loads none of its parts: each name is fetched when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fileperf.drive.user import Client
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
    from pytest_fileperf.plan.pause import Pause, exponential, uniform
    from pytest_fileperf.plan.payload import Payload, payload
    from pytest_fileperf.plugin.keywords import (
        JourneyPartKeywords,
        MarkerKeys,
        PartKeywords,
        RequestKeywords,
        RequestsKeywords,
        RunKeywords,
        StepKeywords,
        StreamKeywords,
    )
    from pytest_fileperf.plugin.parts import PartOfLoad, part
    from pytest_fileperf.plugin.verbs import AsyncFilePerf, FilePerf
    from pytest_fileperf.serve.running import RunningServer
    from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, Url, Uvicorn
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
    "Client": "drive.user",
    "Command": "serve.spec",
    "FilePerf": "plugin.verbs",
    "Gunicorn": "serve.spec",
    "InProcess": "serve.spec",
    "JourneyPartKeywords": "plugin.keywords",
    "LimitKind": "measure.limiting",
    "LoadTransport": "wire.transport",
    "MarkerKeys": "plugin.keywords",
    "Measurement": "measure.measurement",
    "Pause": "plan.pause",
    "PartKeywords": "plugin.keywords",
    "PartOfLoad": "plugin.parts",
    "Payload": "plan.payload",
    "RequestKeywords": "plugin.keywords",
    "RequestsKeywords": "plugin.keywords",
    "RunKeywords": "plugin.keywords",
    "RunningServer": "serve.running",
    "StepKeywords": "plugin.keywords",
    "StreamKeywords": "plugin.keywords",
    "StreamingASGITransport": "wire.asgi",
    "Url": "serve.spec",
    "Uvicorn": "serve.spec",
    "exponential": "plan.pause",
    "part": "plugin.parts",
    "payload": "plan.payload",
    "uniform": "plan.pause",
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
