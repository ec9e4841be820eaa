"""Validates settings from the verb, marker, command line and ini. Pure: starts nothing."""

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
"""Enough to keep a worker busy all the time, but few enough that latency is not only its queue."""
DEFAULT_TIMEOUT_NS = 30_000_000_000
DEFAULT_MAX_DURATION_NS = 30_000_000_000
"""Longest comparison: enough to see 10 % on a noisy machine with two cores."""
DEFAULT_SEARCH_NS = 60_000_000_000
"""Longest search for the capacity: it needs some ten loads of seconds each, on three start-ups."""
DEFAULT_BOOTS = 3
"""Start-ups of the same code differ, so one proves nothing, and each one takes time."""
DEFAULT_GATE = ("rps", "p99")
DEFAULT_OPEN_CONNECTIONS = 1_000
"""An open loop opens connections when it needs them. This is the limit if the server stands still."""
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
"""Metrics that some servers cannot have, and why."""
_OF_ALL_TESTS = 2
"""A value from this layer on (command line, ini file) is for all tests."""
_SHAPES = ("requests", "burst", "rate", "ramp")
"""Keys for the shape of a load: a test gives at most one of them."""
DEFAULT_LIMITS: Mapping[str, float] = {"max_error_rate": 0.0}
"""A failed request fails the test, unless the test says how many may fail."""
_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a whole run from command line, ini file and environment. Read once, before any test."""

    baselines: Path
    smoke: bool = False
    """Each test makes a few requests, and only their success is judged."""
    update: str | None = None
    """`new` stores missing baselines, `passed` also baselines of passed tests, `all` every one; None stores nothing."""
    reason: str | None = None
    """Why baselines are stored, on one line, for their reviewers and for later regressions."""
    prune: bool = False
    against: str | None = None
    """Another version to compare with, as the user wrote it."""
    changed: str | None = None
    """A Git ref: tests that no change since then can affect are left out."""
    aa: bool = False
    """Compare the code with itself, to see how small a change would show. Nothing is judged."""
    queries: bool = False
    """Count the queries of each test, unless its server is another program."""
    profile: bool = False
    """After each measurement, show which functions cost CPU time."""
    coverage: bool = False
    """coverage may trace servers and load generators."""
    strict: bool = False
    """Even NEW and INCONCLUSIVE fail."""
    budget_s: float | None = None
    """The time of all comparisons together, in place of each test's `max_duration`."""
    ci: bool = False
    """NEW fails if nothing else judged the test."""
    json: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    history: Path | None = None
    """The file to which this run's line is appended."""
    save: str | None = None
    """The name to save under, empty for one from commit and time; None saves nothing."""
    confirm: str = "always"
    """Whether a stored baseline's code is measured again: `always` or `never`."""
    base_packages: str = "now"
    """Packages for the old code: those installed here (`now`), or those `stored` with the baseline."""
    preloads: bool = True
    """One process may import the app for many start-ups."""
    client: str = "httpx"
    """The client family for journeys, setups and `fileperf_server.client()`."""
    keeps_trees: bool = True
    """Uncommitted code of a stored baseline is kept in the repository, to be measured again."""
    cluster: str | None = None
    """The scheduler of the Dask cluster whose workers make the load; None for processes of this machine."""
    network: Network = LOCAL
    """The servers' address, and allowed destinations of load."""
    group_by: tuple[str, ...] = DEFAULT_GROUP_BY
    """Labels that define which tests are ranked together."""
    command_line: Mapping[str, object] = field(default_factory=dict)
    """Settings given on the command line, by key."""
    ini: Mapping[str, object] = field(default_factory=dict)
    """Settings given in the ini file, by key."""

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.json, self.html, self.markdown) if path is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything about one measurement, except the request itself."""

    connections: int = DEFAULT_CONNECTIONS
    """At most this many requests are in flight."""
    requests: int | None = None
    """A fixed number of requests, which may take at most `duration_ns`."""
    burst: int | None = None
    """This many requests are due at once, and none after them."""
    rate: float | None = None
    """Requests due per second, whatever the server does."""
    ramp: Ramp | None = None
    """Stages of rates or connections; they take their own time, not `duration_ns`."""
    pause: Pause | None = None
    """How long each connection waits before its next request."""
    duration_ns: int = 4_000_000_000
    """For the whole measurement, over all start-ups, without warm-up. By default a test alone takes at most seven
    seconds, with three warm-ups and two starts of half a second."""
    rounds: int = 12
    """Spread over the start-ups, by default a third of a second each. Shorter rounds have too few requests."""
    max_duration_ns: int = DEFAULT_MAX_DURATION_NS
    """The longest comparison of two versions, with start-ups. It ends earlier when it is sure."""
    capacity: bool = False
    """Search for the highest rate that meets the limits; see `for_capacity`."""
    search_connections: int = DEFAULT_OPEN_CONNECTIONS
    """At most this many connections are open in a load of a search."""
    search_ns: int = DEFAULT_SEARCH_NS
    """The longest search, with start-ups: `max_duration` if it is given."""
    warmup_ns: int = 300_000_000
    """On each start-up."""
    timeout_ns: int = DEFAULT_TIMEOUT_NS
    boots: int | None = None
    """None: `DEFAULT_BOOTS` with a gate, else one."""
    generators: int | str | None = None
    """At most this many generators make a load; or `AUTO`. None: one process here, or all workers of a cluster."""
    app: object | None = None
    """An import string, an app or a factory; None if nobody named one."""
    server: ServerSpec = field(default_factory=Uvicorn)
    limits: Mapping[str, float] = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    """By the user's name (`min_rps`, `max_p99`), in the metric's SI unit."""
    tolerances: Mapping[str, float] = field(default_factory=dict)
    """Shares by metric; a gated metric without one has its default tolerance."""
    gate: tuple[str, ...] = DEFAULT_GATE
    """The metrics compared with the baseline."""
    watch: tuple[str, ...] = ()
    """Other metrics that are compared and shown, but fail nothing."""
    group: str | None = None
    label: str | None = None
    setup: Callable[..., object] | None = None
    """Called with an httpx client of each start-up before it is loaded."""
    teardown: Callable[..., object] | None = None
    """Called after the load, with a client and the setup's result."""

    @property
    def is_whole(self) -> bool:
        """Whether the load must run whole, because it cannot be divided among start-ups or turns."""
        return self.requests is not None or self.burst is not None or self.ramp is not None

    def lasting(self, longest_ns: int) -> Settings:
        """Returns a copy whose comparison takes at most this time."""
        return replace(self, max_duration_ns=longest_ns, search_ns=longest_ns // 2)


def resolve(
    *,
    verb: Mapping[str, object] = _NOTHING,
    marker: Mapping[str, object] = _NOTHING,
    options: Mapping[str, object] = _NOTHING,
    ini: Mapping[str, object] = _NOTHING,
    default_gate: tuple[str, ...] = DEFAULT_GATE,
) -> Settings:
    """Returns the settings: for each key the closest value, in the order verb, marker, command line, ini.

    None stands for the default. A server hides `workers` from layers beyond its own. Raises PlanError with every
    problem of every layer, even in values that a closer layer hides.
    """
    problems: list[str] = []
    chosen: dict[str, tuple[int, object]] = {}
    layers = ((verb, "{}"), (marker, "{}"), (options, "--fileperf-{}"), (ini, "fileperf_{}"))
    for distance, (layer, spelling) in enumerate(layers):
        problems += unknown_keys(layer, KEYS)
        for key in filter(layer.__contains__, KEYS):
            value = None
            try:
                value = None if layer[key] is None else KEYS[key](layer[key])
            except PlanError as error:
                problems += (f"{spelling.format(key)}: {problem}" for problem in error.problems)
            except (ValueError, AppLoadError) as error:
                problems.append(f"{spelling.format(key)}: {error}")
            chosen.setdefault(key, (distance, value))
    server, found = _server_with_workers(chosen)
    problems += found
    problems += _keep_one_shape(chosen)
    problems += (*_unfit_pause(chosen), *_unfit_generators(chosen, server), *_unfit_server(chosen, server))
    given = {"gate": default_gate, **{key: value for key, (_, value) in chosen.items() if value is not None}}
    gate: Any = given["gate"]
    watch: Any = given.pop("watch", ())
    tolerance: Any = given.pop("tolerance", {})
    if isinstance(tolerance, float):
        tolerance = dict.fromkeys(METRICS, tolerance)
    if problems:
        raise PlanError(*dict.fromkeys(problems))
    # Each value was parsed by its key, but a type checker cannot follow that through a mapping.
    make: Callable[..., Settings] = Settings
    own = {_FIELDS.get(key, key): value for key, value in given.items() if key not in _APART and key not in LIMITS}
    return make(
        server=server,
        connections=_connections(given),
        search_connections=given.get("connections", DEFAULT_OPEN_CONNECTIONS),
        search_ns=given.get("max_duration", DEFAULT_SEARCH_NS),
        limits={**DEFAULT_LIMITS, **{key: value for key, value in given.items() if key in LIMITS}},
        watch=tuple(name for name in watch if name not in gate),
        tolerances=tolerance,
        **own,
    )


def _server_with_workers(chosen: Mapping[str, tuple[int, object]]) -> tuple[ServerSpec, tuple[str, ...]]:
    server_distance, server = chosen.get("server", (math.inf, None))
    workers_distance, workers = chosen.get("workers", (math.inf, None))
    spec = server if isinstance(server, ServerSpec) else Uvicorn()
    if not isinstance(workers, int) or (workers_distance > server_distance and server is not None):
        return spec, ()
    if isinstance(spec, Command):
        return spec, (
            (f"workers={workers} does not reach {spec.name}. Configure the program, and write Command(…, workers=)"),
        )
    if not isinstance(spec, AsgiSpec):
        return spec, (f"workers={workers} only goes with uvicorn, gunicorn and granian, not with {spec!r}",)
    return replace(spec, workers=workers), ()


def _keep_one_shape(chosen: dict[str, tuple[int, object]]) -> tuple[str, ...]:
    """Keeps only the shape of load, such as `rate`, of the closest layer that gives one.

    A layer is where settings come from: call, marker, command line or ini file. Returns a problem if that layer gives
    several shapes.
    """
    given = {key: chosen[key][0] for key in _SHAPES if key in chosen and chosen[key][1] is not None}
    closest = [key for key in given if given[key] == min(given.values())]
    for key in given:
        if key not in closest:
            del chosen[key]
    if len(closest) < 2:
        return ()
    return (f"{', '.join(closest[:-1])} and {closest[-1]} are different shapes of load. Give one of them",)


def _unfit_pause(chosen: Mapping[str, tuple[int, object]]) -> tuple[str, ...]:
    """Returns a problem if users pause although requests are due whatever users do."""
    given = {key: value for key, (_, value) in chosen.items() if value is not None}
    shape = next((key for key in ("rate", "burst", "ramp") if key in given), "")
    if "pause" not in given or not shape or isinstance(given.get("ramp"), ConnectionRamp):
        return ()
    return (f"pause delays users who wait for answers, but {shape} sends without waiting. Give one of them",)


def _unfit_generators(chosen: dict[str, tuple[int, object]], server: ServerSpec) -> tuple[str, ...]:
    """Removes the number of generators if a closer layer chose an app in this process; else returns a problem."""
    distance, count = chosen.get("generators", (0, None))
    if not isinstance(server, InProcess) or not isinstance(count, int) or count == 1:
        return ()
    if distance > chosen["server"][0]:
        del chosen["generators"]
        return ()
    return (
        f"generators={count} does not go with InProcess(), because the app runs in the test process. Leave "
        "generators out, or use another server",
    )


def _unfit_floors(tolerances: Mapping[str, float], gate: Collection[str]) -> Iterator[str]:
    """Yields a problem for each gated metric whose floor has another unit."""
    for name in gate:
        tolerance = tolerances.get(name)
        if isinstance(tolerance, Tolerance) and tolerance.unit != (unit := METRICS[name].unit):
            example = f'{{"{name}": "{tolerance * 100:g}% and {FLOORS[unit]}"}}'
            yield f"tolerance: its floor does not fit {name}. Give it by metric, as in {example}"


def _unfit_server(chosen: dict[str, tuple[int, object]], server: ServerSpec) -> Iterator[str]:
    """Yields a problem for each metric that this server cannot have: start-ups, or queries.

    Removes it from the metrics that a whole project watches, because other tests' servers may have it.
    """
    for metric, (kinds, lacks) in _NOT_OF.items():
        if not isinstance(server, kinds):
            continue
        asked = [f"max_{metric}"] * (chosen.get(f"max_{metric}", (0, None))[1] is not None)
        for key in ("gate", "watch"):
            distance, names = chosen.get(key, (0, None))
            if isinstance(names, tuple) and metric in names:
                if key == "watch" and distance >= _OF_ALL_TESTS:
                    chosen[key] = distance, tuple(name for name in names if name != metric)
                else:
                    asked.append(f"{key}: {metric}")
        if asked:
            yield f"{' and '.join(asked)}: {lacks.format(_WHY_NOT_OF[type(server)])}"


def _connections(given: Mapping[str, object]) -> object:
    """Returns the number of connections; a ramp of connections hides other sources."""
    ramp = given.get("ramp")
    if isinstance(ramp, ConnectionRamp):
        return max(1, math.floor(ramp.highest))
    is_open = isinstance(ramp, RateRamp) or "rate" in given or "burst" in given
    return given.get("connections", DEFAULT_OPEN_CONNECTIONS if is_open else DEFAULT_CONNECTIONS)


_APART = ("server", "workers", "connections")
"""Keys for several fields, or that work together with others."""
_FIELDS = {"duration": "duration_ns", "max_duration": "max_duration_ns", "warmup": "warmup_ns", "timeout": "timeout_ns"}
"""Keys whose field has its unit in the name."""


# --- Settings of a search for the capacity, from any measurement's settings


def for_capacity(settings: Settings) -> Settings:
    """Returns the settings of a search for the capacity. Raises PlanError that lists every problem."""
    gate = ("capacity",) if settings.gate else ()
    if problems := (*_problems(settings), *_unfit_floors(settings.tolerances, gate)):
        raise PlanError(*problems)
    watch = tuple(name for name in settings.watch if name == "capacity" and not gate)
    return replace(settings, capacity=True, gate=gate, watch=watch)


def _problems(settings: Settings) -> Iterator[str]:
    for shape in _SHAPES:
        if getattr(settings, shape) is not None:
            yield f"{shape}: a capacity search chooses its own rates. Leave it out"
    if settings.pause is not None:
        yield "pause delays users who wait for answers, but here requests come by chance. Leave it out"
    if not any(searches_by(name) for name in settings.limits if name != "max_error_rate"):
        yield (
            'a capacity needs a latency limit, but none is given. Write max_p99="100ms", or another '
            "percentile from max_p50 to max_p999"
        )
    if settings.limits.get("max_error_rate", 0.0) >= 1:
        yield "max_error_rate: with 100 % every request may fail, so no load can exceed it. Give less than 100 %"


def for_one_load(settings: Settings) -> Settings:
    """Returns the settings of a load without a search. Raises PlanError that lists every problem."""
    asked = [f"{key}: capacity" for key in ("gate", "watch") if "capacity" in getattr(settings, key)]
    asked += ["min_capacity"] if "min_capacity" in settings.limits else []
    problems = [f'{name} works only with a search. Write fileperf.capacity.get("/", max_p99="100ms")' for name in asked]
    if problems := [*problems, *_unfit_floors(settings.tolerances, settings.gate)]:
        raise PlanError(*problems)
    return settings
