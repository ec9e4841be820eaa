"""Resolves the settings of one measurement, from its call, its marker, the command line and the ini file.

`keys` has all keys, with their parsers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_fileperf.errors import AppLoadError, PlanError
from pytest_fileperf.judge.grouping import DEFAULT_GROUP_BY
from pytest_fileperf.measure.metrics import METRICS, searches_by
from pytest_fileperf.plan.network import LOCAL, Network
from pytest_fileperf.plan.pacing import ConnectionRamp, Ramp, RateRamp
from pytest_fileperf.plan.request import Tolerance
from pytest_fileperf.plan.work import Pause
from pytest_fileperf.serve.spec import AsgiSpec, Command, Granian, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.settings.keys import FLOORS, KEYS, LIMITS, unknown_keys

DEFAULT_CONNECTIONS = 32
"""Enough to keep a worker busy, but few enough that latency isn't mostly the wait for the worker."""
DEFAULT_TIMEOUT_NS = 30_000_000_000
DEFAULT_MAX_DURATION_NS = 30_000_000_000
"""Longest comparison: enough to see a change of 10 % on a noisy machine with two cores."""
DEFAULT_SEARCH_NS = 60_000_000_000
"""Longest search for the capacity. It needs some ten loads of several seconds each, on three start-ups."""
DEFAULT_BOOTS = 3
"""Start-ups of the same code differ, so a single one proves nothing. But each takes time."""
DEFAULT_GATE = ("rps", "p99")
DEFAULT_OPEN_CONNECTIONS = 1_000
"""A load with a rate opens connections when it needs them. If the server hangs, it opens at most this many."""
_WHY_NOT_OF: Mapping[type[ServerSpec], str] = {
    InProcess: "InProcess() starts no process",
    Url: "a Url names a running server",
    Command: "a Command can be any program",
    Granian: "Granian() is a program of its own",
}
_NOT_OF: Mapping[str, tuple[tuple[type[ServerSpec], ...], str]] = {
    "startup": ((InProcess, Url), "{}, so there is no start-up to measure. Choose another server"),
    "queries": (
        (Command, Granian, Url),
        "{}, but queries are counted only in a process in which fileperf serves the app. Use Uvicorn(), "
        "Gunicorn() or InProcess(), or leave this out",
    ),
}
"""By metric: the kinds of servers that cannot have this metric, and a text that says why."""
_SHAPES = ("requests", "burst", "rate", "ramp")
"""Keys for the shape of a load, of which a test gives at most one."""
_DEFAULT_LIMITS: Mapping[str, float] = {"max_error_rate": 0.0}
_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a whole run, from command line, ini file and environment. `plugin.options` describes them."""

    baselines: Path
    smoke: bool = False
    update: str | None = None
    """Which baselines to store: `new`, `passed` or `all`; None stores nothing."""
    reason: str | None = None
    prune: bool = False
    against: str | None = None
    changed: str | None = None
    aa: bool = False
    queries: bool = False
    profile: bool = False
    coverage: bool = False
    strict: bool = False
    budget_s: float | None = None
    ci: bool = False
    """Whether a CI service runs the tests. If so, a test that nothing can judge yet (NEW) fails."""
    json: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    history: Path | None = None
    save: str | None = None
    """The name in pytest-benchmark's storage. `""` makes a name from commit and time. None saves nothing."""
    confirm: str = "always"
    base_packages: str = "now"
    preloads: bool = True
    client: str = "httpx"
    keeps_trees: bool = True
    cluster: str | None = None
    """The address of a Dask scheduler; None makes the load with processes of this machine."""
    network: Network = LOCAL
    group_by: tuple[str, ...] = DEFAULT_GROUP_BY
    command_line: Mapping[str, object] = field(default_factory=dict)
    """Tests' settings from the command line, by key."""
    ini: Mapping[str, object] = field(default_factory=dict)
    """Tests' settings from the ini file, by key."""

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.json, self.html, self.markdown) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one measurement. `keywords.MarkerKeys` describes them; the requests are a `Work`."""

    connections: int = DEFAULT_CONNECTIONS
    requests: int | None = None
    burst: int | None = None
    rate: float | None = None
    """Requests per second."""
    ramp: Ramp | None = None
    """Stages, each with its own time and a rate or a number of connections. So `duration_ns` does not count."""
    pause: Pause | None = None
    duration_ns: int = 4_000_000_000
    """Time of load on all start-ups together, without warm-up. By default, a test without a comparison takes at most
    seven seconds."""
    rounds: int = 12
    """Rounds on all start-ups together, by default a third of a second each. Shorter rounds have too few requests."""
    max_duration_ns: int = DEFAULT_MAX_DURATION_NS
    capacity: bool = False
    """Search for the highest rate that meets the limits."""
    search_connections: int = DEFAULT_OPEN_CONNECTIONS
    """At most this many connections are open during a search."""
    search_ns: int = DEFAULT_SEARCH_NS
    """The longest search on one version, with its start-ups."""
    warmup_ns: int = 300_000_000
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    boots: int | None = None
    """How many start-ups share the load. None means `DEFAULT_BOOTS` with a gate, else one."""
    generators: int | str | None = None
    """A number, or `AUTO`. None is one process here, or all workers of a cluster."""
    app: object | None = None
    """An import string, an app or a factory; None if nobody named one."""
    server: ServerSpec = field(default_factory=Uvicorn)
    limits: Mapping[str, float] = field(default_factory=lambda: dict(_DEFAULT_LIMITS))
    """Limits by key (`min_rps`, `max_p99`), each in its metric's SI unit."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Tolerances as shares, by metric. Other metrics have the tolerance in `METRICS`."""
    gate: tuple[str, ...] = DEFAULT_GATE
    watch: tuple[str, ...] = ()
    group: str | None = None
    label: str | None = None
    setup: Callable[..., object] | None = None
    teardown: Callable[..., object] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the load cannot be divided among several start-ups."""
        return self.requests is not None or self.burst is not None or self.ramp is not None

    def lasting(self, longest_ns: int) -> Settings:
        """Returns a copy whose comparison or search takes at most `longest_ns`."""
        return replace(self, max_duration_ns=longest_ns, search_ns=longest_ns // 2)


def resolve(
    *,
    verb: Mapping[str, object] = _NOTHING,
    marker: Mapping[str, object] = _NOTHING,
    options: Mapping[str, object] = _NOTHING,
    ini: Mapping[str, object] = _NOTHING,
    default_gate: tuple[str, ...] = DEFAULT_GATE,
) -> Settings:
    """Returns a measurement's settings from its call (`verb`), its marker, the command line and the ini file.

    If several of these give a key, the first one counts. None stands for the default. Raises PlanError with every
    problem, even in values that are not used.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    layer_of: dict[str, int] = {}
    layers = ((verb, "{}"), (marker, "{}"), (options, "--fileperf-{}"), (ini, "fileperf_{}"))
    for number, (layer, spelling) in enumerate(layers):
        problems += unknown_keys(layer, KEYS)
        for key in filter(layer.__contains__, KEYS):
            value = None
            try:
                value = None if layer[key] is None else KEYS[key](layer[key])
            except PlanError as error:
                problems += (f"{spelling.format(key)}: {problem}" for problem in error.problems)
            except (ValueError, AppLoadError) as error:
                problems.append(f"{spelling.format(key)}: {error}")
            if layer_of.setdefault(key, number) == number and value is not None:
                values[key] = value
    for unfit in (_unfit_workers, _unfit_shapes, _unfit_generators, _unfit_metrics):
        problems += unfit(values, layer_of)
    if problems:
        raise PlanError(*dict.fromkeys(problems))
    ramp = values.get("ramp")
    search_connections = values.get("connections", DEFAULT_OPEN_CONNECTIONS)
    if isinstance(ramp, ConnectionRamp):  # it hides any other number of connections
        values["connections"] = max(1, math.floor(ramp.highest))
    elif isinstance(ramp, RateRamp) or "rate" in values or "burst" in values:
        values["connections"] = search_connections
    gate, tolerance = values.pop("gate", default_gate), values.pop("tolerance", {})
    limits = {key: values.pop(key) for key in LIMITS if key in values}
    in_ns = {f"{key}_ns": values.pop(key) for key in ("duration", "max_duration", "warmup", "timeout") if key in values}
    return Settings(
        search_connections=search_connections,
        search_ns=in_ns.get("max_duration_ns", DEFAULT_SEARCH_NS),
        limits={**_DEFAULT_LIMITS, **limits},
        gate=gate,
        watch=tuple(name for name in values.pop("watch", ()) if name not in gate),
        tolerances=dict.fromkeys(METRICS, tolerance) if isinstance(tolerance, float) else tolerance,
        **in_ns,
        **values,
    )


def _unfit_workers(values: dict[str, Any], layer_of: Mapping[str, int]) -> Iterator[str]:
    """Puts `workers` into the server, or yields a problem."""
    workers = values.pop("workers", None)
    # A server in the marker, for example, wins over `workers` in the ini file.
    if workers is None or ("server" in values and layer_of["server"] < layer_of["workers"]):
        return
    server = values.get("server", Uvicorn())
    if isinstance(server, AsgiSpec):
        values["server"] = replace(server, workers=workers)
    elif isinstance(server, Command):
        yield f"workers={workers} cannot configure {server.name}. Do it yourself, and use Command(…, workers={workers})"
    else:
        yield f"workers={workers} only goes with uvicorn, gunicorn and granian, not with {server!r}"


def _unfit_shapes(values: dict[str, Any], layer_of: Mapping[str, int]) -> Iterator[str]:
    """Keeps only one shape of load. A call's `rate`, for example, wins over the marker's `burst`."""
    given = [key for key in _SHAPES if key in values]
    closest = [key for key in given if layer_of[key] == min(map(layer_of.__getitem__, given))]
    for key in given:
        if key not in closest:
            del values[key]
    if len(closest) > 1:
        yield f"{', '.join(closest[:-1])} and {closest[-1]} are different shapes of load. Give only one of them"
    shape = next((key for key in ("rate", "burst", "ramp") if key in values), "")
    if "pause" in values and shape and not isinstance(values.get("ramp"), ConnectionRamp):
        yield f"pause delays users who wait for answers, but {shape} sends without waiting. Give only one of them"


def _unfit_generators(values: dict[str, Any], layer_of: Mapping[str, int]) -> Iterator[str]:
    count = values.get("generators")
    if not isinstance(values.get("server"), InProcess) or not isinstance(count, int) or count == 1:
        return
    # A server in the marker, for example, wins over `generators` in the ini file.
    if layer_of["generators"] > layer_of["server"]:
        del values["generators"]
        return
    yield (
        f"generators={count} does not go with InProcess(), because the app runs in the test process. Leave "
        "generators out, or use another server"
    )


def _unfit_metrics(values: dict[str, Any], layer_of: Mapping[str, int]) -> Iterator[str]:
    """Yields a problem for each metric that this server cannot have, such as `queries` for a Url."""
    server = values.get("server")
    for metric, (kinds, lacks) in _NOT_OF.items():
        if not isinstance(server, kinds):
            continue
        asked = [f"max_{metric}"] if f"max_{metric}" in values else []
        for key in ("gate", "watch"):
            if metric not in values.get(key, ()):
                continue
            if key == "watch" and layer_of[key] >= 2:  # the command line or the ini file: for all tests
                values[key] = tuple(name for name in values[key] if name != metric)
            else:
                asked.append(f"{key}: {metric}")
        if asked:
            yield f"{' and '.join(asked)}: {lacks.format(_WHY_NOT_OF[type(server)])}"


# --- Settings that fit a search for the capacity, or a load without a search


def for_capacity(settings: Settings) -> Settings:
    """Returns the settings for a capacity search. Raises PlanError that lists every problem."""
    problems = [
        f"{shape}: a capacity search chooses its own rates. Leave it out"
        for shape in _SHAPES
        if getattr(settings, shape) is not None
    ]
    if settings.pause is not None:
        problems.append("pause delays users who wait for answers, but a search sends at random times. Leave it out")
    if not any(searches_by(name) for name in settings.limits if name != "max_error_rate"):
        problems.append(
            'a capacity search needs a latency limit, but none is given. Write max_p99="100ms", or another '
            "percentile from max_p50 to max_p999"
        )
    if settings.limits.get("max_error_rate", 0.0) >= 1:
        problems.append(
            "max_error_rate: with 100 % every request may fail, so no load can exceed it. Give less than 100 %"
        )
    gate = ("capacity",) if settings.gate else ()
    if problems := [*problems, *_unfit_floors(settings.tolerances, gate)]:
        raise PlanError(*problems)
    watch = tuple(name for name in settings.watch if name == "capacity" and not gate)
    return replace(settings, capacity=True, gate=gate, watch=watch)


def for_one_load(settings: Settings) -> Settings:
    """Returns the settings unchanged. Raises PlanError if they contain keys for a capacity search."""
    asked = [f"{key}: capacity" for key in ("gate", "watch") if "capacity" in getattr(settings, key)]
    asked += ["min_capacity"] if "min_capacity" in settings.limits else []
    problems = [f'{name} needs a capacity search. Write fileperf.capacity.get("/", max_p99="100ms")' for name in asked]
    if problems := [*problems, *_unfit_floors(settings.tolerances, settings.gate)]:
        raise PlanError(*problems)
    return settings


def _unfit_floors(tolerances: Mapping[str, float], gate: Collection[str]) -> Iterator[str]:
    """Yields a problem for a tolerance such as `5% and 2ms` if its metric has another unit."""
    for name in gate:
        tolerance = tolerances.get(name)
        if isinstance(tolerance, Tolerance) and tolerance.unit != (unit := METRICS[name].unit):
            example = f'{{"{name}": "{tolerance * 100:g}% and {FLOORS[unit]}"}}'
            yield f'tolerance: its part after "and" isn\'t in the unit of {name}. Give it by metric, as in {example}'
