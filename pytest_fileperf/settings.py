"""From what the user wrote (verb, marker, command line, ini) to validated settings. Pure: boots nothing."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced

from pytest_fileperf.errors import AppLoadError, PlanError
from pytest_fileperf.serve.spec import InProcess, ServerSpec, Url, Uvicorn, parse_server
from pytest_fileperf.units import parse_duration_ns, parse_share, parse_size_bytes

__all__ = ("KEYS", "LIMITS", "METRIC_NAMES", "Settings", "resolve", "unknown_keys")

METRIC_NAMES = (
    "rps",
    "throughput",
    "p50",
    "p75",
    "p90",
    "p95",
    "p99",
    "p999",
    "mean",
    "latency",
    "cpu_per_request",
    "rss",
    "error_rate",
)
"""The names in `measure.metrics.METRICS`, here without numpy; a test proves them equal."""

DEFAULT_CONNECTIONS = 32
"""Enough to keep a worker busy all the time, few enough that the queue before it is not the whole latency."""
DEFAULT_DURATION_NS = 6_000_000_000
DEFAULT_ROUNDS = 12
"""Half a second each at the default duration: shorter rounds have too few requests, fewer rounds say too little."""
DEFAULT_WARMUP_NS = 500_000_000
DEFAULT_TIMEOUT_NS = 30_000_000_000
DEFAULT_BOOTS = 3
"""Two boots of the same code differ: one proves nothing, and each one takes a start of the server."""
DEFAULT_GATE = ("rps", "p99")
_PLANNED = ("rate", "burst", "ramp")
"""Keys of a load that is not there yet, whose nearest valid key is no help."""
DEFAULT_LIMITS: Mapping[str, float] = {"max_error_rate": 0.0}
"""A failed request fails the test, unless it says how many may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything about one measurement but the request itself."""

    connections: int = DEFAULT_CONNECTIONS
    requests: int | None = None
    """A fixed number of requests; `duration_ns` is then the longest time they may take."""
    duration_ns: int = DEFAULT_DURATION_NS
    """Of the whole measurement, over all boots, without warm-up."""
    rounds: int = DEFAULT_ROUNDS
    """Spread over the boots."""
    warmup_ns: int = DEFAULT_WARMUP_NS
    """On each boot."""
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    boots: int = DEFAULT_BOOTS
    app: object | None = None
    """An import string, an app or a factory; None where nobody named one."""
    server: ServerSpec = field(default_factory=Uvicorn)
    limits: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    """By the name the user writes (`min_rps`, `max_p99`), in the metric's SI unit."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Shares by metric; a gated metric that is missing has its own usual tolerance."""
    gate: tuple[str, ...] = DEFAULT_GATE
    """The metrics compared with the baseline."""
    group: str | None = None
    label: str | None = None


def resolve(
    *,
    verb: Mapping[str, object],
    marker: Mapping[str, object],
    options: Mapping[str, object],
    ini: Mapping[str, object],
) -> Settings:
    """Returns the settings: for each key the closest value, verb before marker before command line before ini.

    None stands for the default. A server hides the `workers` given further away than itself.
    Raises PlanError that names every problem of every layer, also of values that a closer one hides.
    """
    problems: list[str] = []
    chosen: dict[str, tuple[int, object]] = {}
    layers = ((verb, "{}"), (marker, "{}"), (options, "--fileperf-{}"), (ini, "fileperf_{}"))
    for distance, (layer, spelling) in enumerate(layers):
        problems += unknown_keys(layer, KEYS)
        for key in KEYS:
            if key in layer:
                value, found = _parsed(key, layer[key], spelling.format(key))
                problems += found
                chosen.setdefault(key, (distance, value))
    server, found = _server_with_workers(chosen)
    problems += found
    given = {key: value for key, (_, value) in chosen.items() if value is not None}
    if problems:
        raise PlanError(*dict.fromkeys(problems))
    return _settings(given, server)


def unknown_keys(names: Iterable[str], valid: Iterable[str]) -> tuple[str, ...]:
    """Returns a problem that names every unknown key, what may have been meant, and all valid names; none for none."""
    known = tuple(valid)
    found, planned = [], []
    for name in names:
        if name in _PLANNED:
            planned.append(f"{name}: loads at a given rate do not exist yet; give the number of connections instead")
        elif name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            found.append(f"unknown key {name!r}{hint}")
    return (*planned, *((f"{', '.join(found)}; valid keys are {', '.join(known)}",) if found else ()))


def _parsed(key: str, value: object, name: str) -> tuple[object, tuple[str, ...]]:
    """Returns the value of a key as the package uses it, or None and why it cannot be used."""
    if value is None:
        return None, ()
    try:
        return KEYS[key](value), ()
    except PlanError as error:
        return None, tuple(f"{name}: {problem}" for problem in error.problems)
    except (ValueError, AppLoadError) as error:
        return None, (f"{name}: {error}",)


def _server_with_workers(chosen: Mapping[str, tuple[int, object]]) -> tuple[ServerSpec, tuple[str, ...]]:
    server_distance, server = chosen.get("server", (math.inf, None))
    workers_distance, workers = chosen.get("workers", (math.inf, None))
    spec = server if isinstance(server, InProcess | Uvicorn | Url) else Uvicorn()
    if not isinstance(workers, int) or (workers_distance > server_distance and server is not None):
        return spec, ()
    if not isinstance(spec, Uvicorn):
        return spec, (f"workers={workers} only goes with the uvicorn server, not with {spec!r}",)
    return replaced(spec, workers=workers), ()


def _settings(given: Mapping[str, object], server: ServerSpec) -> Settings:
    limits = {key: value for key, value in given.items() if key in LIMITS}
    changes: dict[str, object] = {
        _FIELDS.get(key, key): value
        for key, value in given.items()
        if key not in LIMITS and key not in ("server", "workers", "tolerance")
    }
    gate = given.get("gate", DEFAULT_GATE)
    tolerance = given.get("tolerance", {})
    if isinstance(tolerance, float) and isinstance(gate, tuple):
        tolerance = dict.fromkeys(gate, tolerance)
    # The values were parsed key by key, which a type checker cannot follow through a mapping.
    make: Callable[..., Settings] = Settings
    return make(server=server, limits={**DEFAULT_LIMITS, **limits}, tolerances=tolerance, **changes)


_FIELDS = {"duration": "duration_ns", "warmup": "warmup_ns", "timeout": "timeout_ns"}
"""Keys whose field has its unit in the name."""


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is not a number of 0 or more")
    return float(value)


def _count(value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not a whole number of 1 or more")
    return value


def _duration_ns(value: object) -> int:
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} is not a duration: write seconds, or a text as in "10s"')
    if isinstance(value, str) and value.strip().replace(".", "", 1).isdecimal():
        value = float(value)
    return parse_duration_ns(value)


def _positive_duration_ns(value: object) -> int:
    duration_ns = _duration_ns(value)
    if duration_ns == 0:
        raise ValueError(f"{value!r} is too short: it must be above 0")
    return duration_ns


def _seconds(value: object) -> float:
    return _positive_duration_ns(value) / 1e9


def _size_bytes(value: object) -> float:
    if not isinstance(value, str | int):
        raise ValueError(f'{value!r} is not a size: write bytes, or a text as in "256MiB"')
    return float(parse_size_bytes(value))


def _bytes_per_second(value: object) -> float:
    return _size_bytes(value.strip().removesuffix("/s")) if isinstance(value, str) else _number(value)


def _share(value: object) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError(f'{value!r} is not a share: write a percentage or a fraction, as in "5%" or 0.05')
    return parse_share(value)


def _error_share(value: object) -> float:
    share = _share(value)
    if share > 1:
        raise ValueError(f'{value!r} is more than all requests: write a percentage or a fraction, as in "1%" or 0.01')
    return share


def _one_tolerance(value: object) -> float:
    share = _share(value)
    if share >= 1 and not (isinstance(value, str) and "%" in value):
        raise ValueError(f'{value!r} would be {share * 100:g} %: write a percentage or a fraction, as in "5%" or 0.05')
    return share


def _tolerance(value: object) -> float | dict[str, float]:
    """Takes one share for all gated metrics, a mapping by metric, or such a mapping as text: `rps=5%, p99=20%`."""
    items: Mapping[object, object]
    if isinstance(value, Mapping):
        items = value
    elif isinstance(value, str) and "=" in value:
        pairs = (item.partition("=") for item in value.split(","))
        items = {metric.strip(): share.strip() for metric, _, share in pairs}
    else:
        return _one_tolerance(value)
    problems = list(_unknown_metrics(items))
    tolerances = {}
    for metric, share in items.items():
        try:
            tolerances[str(metric)] = _one_tolerance(share)
        except ValueError as error:
            problems.append(f"{metric}: {error}")
    if problems:
        raise PlanError(*problems)
    return tolerances


def _gate(value: object) -> tuple[str, ...]:
    if value is False or value == "none":
        return ()
    if isinstance(value, str):
        names: tuple[object, ...] = tuple(name.strip() for name in value.split(","))
    elif isinstance(value, list | tuple | set | frozenset):
        names = tuple(value)
    else:
        raise ValueError(f'{value!r} is not a choice of metrics: write their names, or "none" for no gate')
    problems = _unknown_metrics(names)
    if problems:
        raise PlanError(*problems)
    return tuple(name for name in METRIC_NAMES if name in names)


def _unknown_metrics(names: Iterable[object]) -> tuple[str, ...]:
    unknown = [repr(name) for name in names if name not in METRIC_NAMES]
    return (f"unknown metric {', '.join(unknown)}; use {', '.join(METRIC_NAMES)}",) if unknown else ()


def _server(value: object) -> ServerSpec:
    if isinstance(value, str):
        return parse_server(value)
    if isinstance(value, InProcess | Uvicorn | Url):
        return value
    if value in (InProcess, Uvicorn, Url):
        raise ValueError(f"{value!r} is a class: give an instance of it")
    raise ValueError(f'{value!r} is not a server: use Uvicorn(), InProcess(), Url("http://…") or their names as text')


def _app(value: object) -> object:
    if isinstance(value, str):
        from pytest_fileperf.serve.app import app_spec

        app_spec(value)  # only looks at the spelling: it is imported by the process that serves it
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")
    return value


LIMITS: Mapping[str, Callable[[object], float]] = {
    "min_rps": _number,
    "min_throughput": _bytes_per_second,
    "max_p50": _seconds,
    "max_p75": _seconds,
    "max_p90": _seconds,
    "max_p95": _seconds,
    "max_p99": _seconds,
    "max_p999": _seconds,
    "max_mean": _seconds,
    "max_latency": _seconds,
    "max_error_rate": _error_share,
    "max_rss": _size_bytes,
    "max_cpu_per_request": _seconds,
}
"""Absolute limits, each with what parses it: `min_` or `max_`, whichever is the metric's bad side, and its name."""

KEYS: Mapping[str, Callable[[object], object]] = {
    "connections": _count,
    "requests": _count,
    "duration": _positive_duration_ns,
    "rounds": _count,
    "warmup": _duration_ns,
    "timeout": _positive_duration_ns,
    "boots": _count,
    "app": _app,
    "server": _server,
    "workers": _count,
    **LIMITS,
    "tolerance": _tolerance,
    "gate": _gate,
    "group": _text,
    "label": _text,
}
"""What the marker and every verb take, each with what parses it (it raises ValueError)."""
