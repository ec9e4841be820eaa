"""Load-tests ASGI apps from pytest, and fails a test when an endpoint got slower.

Importing the package is fast, because Python imports each part at its first use.
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
        NoTimeError,
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
    from pytest_fileperf.serve.spec import Command, Granian, Gunicorn, InProcess, Url, Uvicorn
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
    "Granian",
    "Gunicorn",
    "InProcess",
    "JourneyPartKeywords",
    "LimitExceededError",
    "LimitKind",
    "LoadError",
    "LoadTransport",
    "MarkerKeys",
    "Measurement",
    "NoTimeError",
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
    "drive.journey": ("Client",),
    "measure.capacity": ("Capacity", "CapacityEnd"),
    "measure.limiting": ("LimitKind",),
    "measure.measurement": ("Measurement",),
    "plan.payload": ("Payload", "payload"),
    "plan.work": ("Pause", "exponential", "uniform"),
    "plugin.verbs": ("AsyncFilePerf", "FilePerf"),
    "serve.running": ("RunningServer",),
    "serve.spec": ("Command", "Granian", "Gunicorn", "InProcess", "Url", "Uvicorn"),
    "settings.keywords": (
        "JourneyPartKeywords",
        "MarkerKeys",
        "PartKeywords",
        "PartOfLoad",
        "RequestKeywords",
        "RequestsKeywords",
        "RunKeywords",
        "StepKeywords",
        "StreamKeywords",
        "part",
    ),
    "wire.asgi": ("StreamingASGITransport",),
    "wire.transport": ("LoadTransport",),
}
"""For each module, the public names from it. All other names come from `errors`."""


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            value: object = import_module("importlib.metadata").version("pytest-fileperf")
        else:
            home = next((home for home, names in _HOMES.items() if name in names), "errors")
            value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
