"""What the user writes becomes settings: precedence, every key's spelling, and all problems at once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.plan.load import Ramp
from pytest_fileperf.plan.pacing import Stage
from pytest_fileperf.plan.request import REQUEST_ARGUMENTS
from pytest_fileperf.plan.work import Pause
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.settings.arguments import EXPECTATIONS
from pytest_fileperf.settings.keys import KEYS, LIMITS
from pytest_fileperf.settings.settings import Settings, resolve

SECOND = 1_000_000_000
LIMIT_SAMPLES: Mapping[Unit, tuple[object, float]] = {
    Unit.PER_SECOND: (800, 800.0),
    Unit.SECONDS: ("80ms", 0.08),
    Unit.BYTES: ("2MiB", 2097152.0),
    Unit.BYTES_PER_SECOND: ("10MB/s", 10e6),
    Unit.SHARE: ("1%", 0.01),
}
"""For each unit what a user may write, and the figure in SI units."""


def settings(
    verb: Mapping[str, object] | None = None,
    *,
    marker: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
    ini: Mapping[str, object] | None = None,
) -> Settings:
    return resolve(verb=verb or {}, marker=marker or {}, options=options or {}, ini=ini or {})


def problems(
    verb: Mapping[str, object] | None = None,
    *,
    marker: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
    ini: Mapping[str, object] | None = None,
) -> tuple[str, ...]:
    with pytest.raises(PlanError) as caught:
        settings(verb, marker=marker, options=options, ini=ini)
    return caught.value.problems


def test_nothing_given_is_the_defaults() -> None:
    found = settings()
    assert found == Settings()
    assert (found.connections, found.duration_ns, found.rounds, found.boots) == (32, 4_000_000_000, 12, None)
    assert found.server == Uvicorn()
    assert found.gate == ("rps", "p99")
    assert found.limits == {"max_error_rate": 0.0}
    assert found.tolerances == {}


def test_the_closest_layer_wins_key_by_key() -> None:
    layers: dict[str, dict[str, object]] = {
        "verb": {"connections": 1},
        "marker": {"connections": 2, "rounds": 20},
        "options": {"connections": "3", "rounds": "30", "boots": "3"},
        "ini": {"connections": 4, "rounds": 40, "boots": 4, "timeout": "4s"},
    }
    found = resolve(verb=layers["verb"], marker=layers["marker"], options=layers["options"], ini=layers["ini"])
    assert (found.connections, found.rounds, found.boots, found.timeout_ns) == (1, 20, 3, 4_000_000_000)


def test_none_in_a_closer_layer_is_the_default() -> None:
    assert settings({"requests": None, "connections": None}, marker={"requests": 5, "connections": 5}) == Settings()


@pytest.mark.parametrize(
    "key,value,field,parsed",
    [
        ("connections", 8, "connections", 8),
        ("connections", "8", "connections", 8),
        ("requests", 1000, "requests", 1000),
        ("duration", "10s", "duration_ns", 10_000_000_000),
        ("duration", 0.3, "duration_ns", 300_000_000),
        ("duration", "0.3", "duration_ns", 300_000_000),
        ("warmup", 0, "warmup_ns", 0),
        ("warmup", "200ms", "warmup_ns", 200_000_000),
        ("timeout", "1m", "timeout_ns", 60_000_000_000),
        ("rounds", 6, "rounds", 6),
        ("boots", 1, "boots", 1),
        ("app", "package.module:app", "app", "package.module:app"),
        ("group", "uploads", "group", "uploads"),
        ("label", "256 KiB", "label", "256 KiB"),
        ("gate", "p50", "gate", ("p50",)),
        ("gate", "p99, rps", "gate", ("rps", "p99")),
        ("gate", ["rps", "rss", "rps"], "gate", ("rps", "rss")),
        ("gate", "none", "gate", ()),
        ("gate", False, "gate", ()),
        ("gate", (), "gate", ()),
    ],
)
def test_values_are_parsed(key: str, value: object, field: str, parsed: object) -> None:
    assert getattr(settings({key: value}), field) == parsed


@pytest.mark.parametrize("name", METRICS)
def test_each_metric_has_a_limit_on_its_bad_side_in_its_own_unit(name: str) -> None:
    metric = METRICS[name]
    key = f"{'min' if metric.unit.value.endswith('/s') else 'max'}_{name}"
    written, si = LIMIT_SAMPLES[metric.unit]
    assert settings({key: written}).limits[key] == si


def test_each_metric_has_one_limit_and_each_keyword_one_meaning() -> None:
    assert len(LIMITS) == len(METRICS)
    names = (*KEYS, *REQUEST_ARGUMENTS, *EXPECTATIONS)
    assert len(set(names)) == len(names)
    # What is given of errors replaces the default.
    assert settings({"max_error_rate": "1%", "min_rps": 5}).limits == {"max_error_rate": 0.01, "min_rps": 5.0}


@pytest.mark.parametrize(
    "gate,tolerance,expected",
    [
        ("rps, p99", "5%", dict.fromkeys(METRICS, 0.05)),
        ("p50", 0.2, dict.fromkeys(METRICS, 0.2)),
        ("rps", {"rps": "3%", "p99": 0.3}, {"rps": 0.03, "p99": 0.3}),
        ("rps", "rps=3%, p99=0.3", {"rps": 0.03, "p99": 0.3}),
        ("rps", "150%", dict.fromkeys(METRICS, 1.5)),
        ("none", "5%", dict.fromkeys(METRICS, 0.05)),
    ],
)
def test_a_tolerance_is_for_all_metrics_or_by_metric(gate: str, tolerance: object, expected: dict[str, float]) -> None:
    assert settings({"gate": gate, "tolerance": tolerance}).tolerances == expected


@pytest.mark.parametrize(
    "verb,marker,options,ini,expected",
    [
        ({}, {}, {}, {}, Uvicorn()),
        ({}, {}, {"server": "inprocess"}, {}, InProcess()),
        ({}, {}, {}, {"server": "uvicorn:loop=asyncio"}, Uvicorn(loop="asyncio")),
        ({}, {}, {}, {"server": "http://127.0.0.1:8000"}, Url("http://127.0.0.1:8000")),
        ({}, {"workers": 2}, {}, {}, Uvicorn(workers=2)),
        ({}, {}, {"workers": "2"}, {"server": "uvicorn:loop=asyncio"}, Uvicorn(workers=2, loop="asyncio")),
        ({}, {"server": Uvicorn(workers=3), "workers": 2}, {}, {}, Uvicorn(workers=2)),
        ({"server": Uvicorn()}, {}, {"workers": 4}, {}, Uvicorn()),
        ({"server": InProcess()}, {}, {}, {"workers": 4}, InProcess()),
        ({}, {"workers": 2}, {}, {"server": "gunicorn:loop=asyncio"}, Gunicorn(workers=2, loop="asyncio")),
        ({"server": Gunicorn()}, {}, {}, {"workers": 4}, Gunicorn()),
        ({}, {}, {"server": "command:./server {port}"}, {"workers": 4}, Command("./server {port}")),
    ],
)
def test_a_server_hides_workers_given_further_away(
    verb: Mapping[str, object],
    marker: Mapping[str, object],
    options: Mapping[str, object],
    ini: Mapping[str, object],
    expected: ServerSpec,
) -> None:
    assert settings(verb, marker=marker, options=options, ini=ini).server == expected


_RAMP = 'write stages of time and target, as in "10s:100/s, 30s:100/s" for a rate or "10s:50" for connections'
_RATE = 'write requests per second, as in 10 or "10/s" or "300/min"'
_SHARE = "write a percentage or a fraction, as in"
_METRICS = f"use {', '.join(METRICS)}"
_WHOLE = "is not a whole number of 1 or more"
BAD: tuple[tuple[str, object, str], ...] = (
    ("connections", 0, f"0 {_WHOLE}"),
    ("connections", True, f"True {_WHOLE}"),
    ("requests", 10**13, "10000000000000 is more than there may be: at most 1,000,000,000,000"),
    ("requests", 1.5, f"1.5 {_WHOLE}"),
    ("boots", "many", f"'many' {_WHOLE}"),
    ("duration", "10x", "'10x' is not a duration: write a number and ns, us, ms, s, m or h, as in \"80ms\""),
    ("duration", 0, "0 is too short: it must be above 0"),
    ("timeout", [], '[] is not a duration: write seconds, or a text as in "10s"'),
    ("min_rps", -1, "-1 is not a number of 0 or more"),
    ("min_rps", "fast", "'fast' is not a number of 0 or more"),
    ("max_p99", "0ms", "'0ms' is too short: it must be above 0"),
    ("max_rss", 1.5, '1.5 is not a size: write bytes, or a text as in "256MiB"'),
    ("max_error_rate", 5, f'5 is more than all requests: {_SHARE} "1%" or 0.01'),
    ("tolerance", 5, f'5 would be 500 %: {_SHARE} "5%" or 0.05'),
    ("tolerance", {"p98": 0.1}, f"unknown metric 'p98'; {_METRICS}"),
    ("tolerance", {"p99": "x"}, f"p99: 'x' is not a share: {_SHARE} \"5%\" or 0.05"),
    ("gate", "rps, p98", f"unknown metric 'p98'; {_METRICS}"),
    ("gate", [["rps"]], f"unknown metric ['rps']; {_METRICS}"),
    ("gate", "", f"unknown metric ''; {_METRICS}"),
    ("gate", True, 'True is not a choice of metrics: write their names, or "none" for no gate'),
    (
        "server",
        "apache",
        "unknown server 'apache': use uvicorn, gunicorn, inprocess, command or an http:// URL on this machine",
    ),
    ("server", Command, "<class 'pytest_fileperf.serve.spec.Command'> is a class: give an instance of it"),
    ("app", "app.py", '\'app.py\' does not name an app: write "module:attribute", or "module:factory()"'),
    ("label", 5, "5 is not a text"),
    ("rate", 0, f"0 is not a rate: {_RATE}"),
    ("rate", "10/day", f"'10/day' is not a rate: {_RATE}"),
    ("rate", True, f"True is not a rate: {_RATE}"),
    ("rate", float("nan"), f"nan is not a rate: {_RATE}"),
    ("rate", 1e9, "1000000000.0 is more than a generator can send: at most 1,000,000 per second"),
    ("ramp", "10s", f"stage ('10s',) is not a time and a target: {_RAMP}"),
    ("ramp", ["10s:5"], f"stage '10s:5' is not a time and a target: {_RAMP}"),
    ("ramp", 10, f"10 is not a ramp: {_RAMP}"),
    ("ramp", [], f"[] is not a ramp: {_RAMP}"),
    ("ramp", "0s:10", f"its stages take no time: {_RAMP}"),
    ("ramp", "10s:0", f"none of its targets is above 0: {_RAMP}"),
    ("ramp", "10s:0/s, 10s:0", f"none of its targets is above 0: {_RAMP}"),
    ("ramp", "10s:5, 10s:", f"stage ('10s', ''): '' {_WHOLE}"),
    ("ramp", "10s:5/s, 10s:0/foo", f"stage ('10s', '0/foo'): '0/foo' is not a rate: {_RATE}"),
    ("ramp", "10s:5, 10s:5/s", f"every target is a rate, or every one a number of connections: {_RAMP}"),
    ("ramp", "10s:1.5", f"stage ('10s', '1.5'): '1.5' {_WHOLE}"),
    ("burst", 0, f"0 {_WHOLE}"),
    ("generators", 0, f'0 {_WHOLE}, or "auto"'),
    ("generators", "many", f"'many' {_WHOLE}, or \"auto\""),
    ("generators", 1000, "1000 is more than there may be: at most 256, and no more than free cores"),
)


@pytest.mark.parametrize("key, value, problem", BAD)
def test_bad_values_are_named(key: str, value: object, problem: str) -> None:
    assert problems({key: value}) == (f"{key}: {problem}",)


@pytest.mark.parametrize(
    "keys, server, problem",
    [
        ({"workers": 2}, "inprocess", "workers=2 only goes with uvicorn and gunicorn, not with InProcess()"),
        (
            {"workers": 2},
            Command("./server {port}"),
            "workers=2 does not reach server: tell the program, and say Command(…, workers=)",
        ),
        ({"burst": 5, "rate": 10}, None, "burst and rate are different shapes of load: give one of them"),
    ],
)
def test_keys_that_do_not_go_together_are_named(keys: dict[str, object], server: object, problem: str) -> None:
    assert problems(options=keys, ini={} if server is None else {"server": server}) == (problem,)


def test_unknown_keys_are_told_with_what_may_have_been_meant_and_what_is_valid() -> None:
    (problem,) = problems({"conections": 4, "colour": "red"})
    assert problem.startswith("unknown key 'conections' (did you mean connections?), unknown key 'colour'")
    assert problem.endswith(f"; valid keys are {', '.join(KEYS)}")


RATE_RAMP = Ramp(
    stages=(Stage(duration_ns=10 * SECOND, target=100.0), Stage(duration_ns=30 * SECOND, target=0.0)), of_rate=True
)
CONNECTION_RAMP = Ramp(
    stages=(Stage(duration_ns=0, target=20.0), Stage(duration_ns=SECOND // 2, target=50.0)), of_rate=False
)


@pytest.mark.parametrize(
    "written,field,value,connections",
    [
        ({"rate": 10}, "rate", 10.0, 1000),
        ({"rate": "0.5/s"}, "rate", 0.5, 1000),
        ({"rate": "300/min"}, "rate", 5.0, 1000),
        ({"rate": 10, "connections": 5}, "rate", 10.0, 5),
        ({"burst": 1500}, "burst", 1500, 1000),
        ({"burst": "1500", "connections": 200}, "burst", 1500, 200),
        ({"requests": 10}, "requests", 10, 32),
        ({"pause": "1s"}, "pause", Pause(low_ns=SECOND, high_ns=SECOND), 32),
        ({"pause": 0}, "pause", None, 32),
        ({"pause": "1s", "ramp": "0s:20,500ms:50"}, "ramp", CONNECTION_RAMP, 50),
        ({"ramp": "10s:100/s, 30s:0/s"}, "ramp", RATE_RAMP, 1000),
        ({"ramp": [("10s", "100/s"), (30, 0)]}, "ramp", RATE_RAMP, 1000),
        ({"ramp": "0s:20,500ms:50"}, "ramp", CONNECTION_RAMP, 50),
        ({"ramp": (("0s", 20), ("0.5s", 50)), "connections": 7}, "ramp", CONNECTION_RAMP, 50),
    ],
)
def test_shapes_of_load(written: dict[str, object], field: str, value: object, connections: int) -> None:
    found = settings(written)
    assert getattr(found, field) == value
    assert found.connections == connections


def test_the_closest_shape_of_load_wins() -> None:
    found = settings({"burst": 5}, marker={"rate": 10})
    assert (found.burst, found.rate) == (5, None)
    assert settings({"rate": None}, marker={"rate": 10}, ini={"connections": 3}) == settings(ini={"connections": 3})


def test_every_problem_of_every_layer_is_told_at_once_in_the_words_of_its_layer() -> None:
    found = problems(
        {"connections": 0, "min_rps": -1},
        marker={"connections": -1, "colour": "red"},
        options={"duration": "10x"},
        ini={"duration": "10y", "server": "apache"},
    )
    assert [problem.split(" ")[0] for problem in found] == [
        "connections:",
        "min_rps:",
        "unknown",
        "connections:",
        "--fileperf-duration:",
        "fileperf_duration:",
        "fileperf_server:",
    ]


@pytest.mark.parametrize("shape", [{"rate": 10}, {"burst": 10}, {"ramp": "10s:50/s"}])
def test_users_who_pause_are_no_open_loop(shape: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=f"pause is what users do who wait for answers, and {next(iter(shape))} sends"):
        settings(verb={"pause": "1s", **shape})
    assert settings(verb={"pause": None, **shape}, marker={"pause": "1s"}).pause is None


@pytest.mark.parametrize("written, count", [(3, 3), ("3", 3), ("auto", "auto"), (" auto ", "auto")])
def test_a_number_of_generators_or_as_many_as_it_takes(written: object, count: object) -> None:
    given: dict[str, object] = {"generators": written}
    assert resolve(verb=given).generators == count
    assert resolve(ini=given).generators == count
    assert resolve(verb={}).generators is None


def test_an_app_in_this_process_has_one_generator() -> None:
    (problem,) = problems({"generators": 2, "server": "inprocess"})
    assert problem.startswith("generators=2 does not go with InProcess(): the app is loaded from the test process")
    near = resolve(verb={"server": "inprocess"}, options={"generators": 2})
    assert near.generators is None
    auto = resolve(verb={"server": "inprocess", "generators": "auto"})
    assert auto.generators == "auto"
