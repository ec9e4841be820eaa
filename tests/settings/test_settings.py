"""What the user writes becomes settings: precedence, every key's spelling, all problems at once; and settings plans."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from pytest_fileperf.errors import PlanError
from pytest_fileperf.judge.capacity import NextLoad
from pytest_fileperf.judge.record import TestId
from pytest_fileperf.measure.metrics import METRICS, Unit
from pytest_fileperf.plan.load import Alternation, Side
from pytest_fileperf.plan.pacing import ConnectionRamp, RateRamp, Stage
from pytest_fileperf.plan.request import REQUEST_ARGUMENTS, Operation
from pytest_fileperf.plan.work import Pause
from pytest_fileperf.serve.spec import Command, Gunicorn, InProcess, ServerSpec, Url, Uvicorn
from pytest_fileperf.settings.arguments import EXPECTATIONS
from pytest_fileperf.settings.keys import KEYS, LIMITS
from pytest_fileperf.settings.plans import Plan, load_identity, load_title
from pytest_fileperf.settings.settings import Settings, for_capacity, for_one_load, resolve

SECOND = 1_000_000_000
LIMIT_SAMPLES: Mapping[Unit, tuple[object, float]] = {
    Unit.PER_SECOND: (800, 800.0),
    Unit.SECONDS: ("80ms", 0.08),
    Unit.BYTES: ("2MiB", 2097152.0),
    Unit.BYTES_PER_SECOND: ("10MB/s", 10e6),
    Unit.SHARE: ("1%", 0.01),
    Unit.COUNT: ("3.5", 3.5),
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
        for_one_load(settings(verb, marker=marker, options=options, ini=ini))
    return caught.value.problems


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
        ("p99, p50", "15% and 2ms", dict.fromkeys(METRICS, 0.15)),
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


_RAMP = 'Write stages of a time and a target, as in "10s:100/s, 30s:100/s" for a rate or "10s:50" for connections'
_RATE = 'Write requests per second, as in 10 or "10/s" or "300/min"'
_SHARE = "Write a percentage or a fraction, as in"
_METRICS = f"Use {', '.join(METRICS)}"
_FLOOR = (
    "after \"and\" isn't a number with a metric's unit. Write it as in "
    '"15% and 2ms", "15% and 50/s", "15% and 10MB", "15% and 1MB/s", "15% and 1%", "15% and 2/request"'
)
_WHOLE = "isn't a whole number of 1 or more"
BAD: tuple[tuple[str, object, str], ...] = (
    ("connections", 0, f"0 {_WHOLE}"),
    ("connections", True, f"True {_WHOLE}"),
    ("requests", 10**13, "10000000000000 is too many: at most 1,000,000,000,000"),
    ("requests", 1.5, f"1.5 {_WHOLE}"),
    ("boots", "many", f"'many' {_WHOLE}"),
    ("duration", "10x", "'10x' isn't a duration. Write a number and ns, us, ms, s, m or h, as in \"80ms\""),
    ("duration", 0, "0 is too short: it must be above 0"),
    ("timeout", [], '[] isn\'t a duration. Write seconds, or a text as in "10s"'),
    ("min_rps", -1, "-1 isn't a number of 0 or more"),
    ("min_rps", "fast", "'fast' isn't a number of 0 or more"),
    ("max_p99", "0ms", "'0ms' is too short: it must be above 0"),
    ("max_rss", 1.5, '1.5 isn\'t a size. Write a number of bytes, or a text as in "256MiB"'),
    ("max_error_rate", 5, f'5 is more than all requests. {_SHARE} "1%" or 0.01'),
    ("tolerance", 5, f'5 would be 500 %. {_SHARE} "5%" or 0.05'),
    ("tolerance", {"p98": 0.1}, f"unknown metric 'p98'. {_METRICS}"),
    ("tolerance", {"p99": "x"}, f"p99: 'x' isn't a share. {_SHARE} \"5%\" or 0.05"),
    ("tolerance", "p99=5% and 2", f"p99: '2' {_FLOOR}"),
    ("tolerance", "5% and 2 gallons", f"'2 gallons' {_FLOOR}"),
    (
        "tolerance",
        "15% and 2ms",
        'its part after "and" isn\'t in the unit of rps. Give it by metric, as in {"rps": "15% and 50/s"}',
    ),
    ("watch", "rps, p98", f"unknown metric 'p98'. {_METRICS}"),
    ("gate", "rps, p98", f"unknown metric 'p98'. {_METRICS}"),
    ("gate", [["rps"]], f"unknown metric ['rps']. {_METRICS}"),
    ("gate", "", f"unknown metric ''. {_METRICS}"),
    ("gate", True, 'True isn\'t a choice of metrics. Write their names, or "none"'),
    (
        "server",
        "apache",
        "unknown server 'apache'. Use uvicorn, gunicorn, granian, inprocess, command or an http:// URL on this machine",
    ),
    (
        "server",
        Command,
        "<class 'pytest_fileperf.serve.spec.Command'> is a class. Give an instance, such as Uvicorn()",
    ),
    ("app", "app.py", '\'app.py\' does not name an app. Write "module:attribute" or "module:factory()"'),
    (
        "app",
        "'app:app'",
        "\"'app:app'\" does not name an app. Write without quotes: module:attribute or module:factory()",
    ),
    ("label", 5, "5 isn't a text"),
    ("rate", 0, f"0 isn't a rate. {_RATE}"),
    ("rate", "10/day", f"'10/day' isn't a rate. {_RATE}"),
    ("rate", True, f"True isn't a rate. {_RATE}"),
    ("rate", float("nan"), f"nan isn't a rate. {_RATE}"),
    ("rate", 1e9, "1000000000.0 is more than a load generator can send: at most 1,000,000 per second"),
    ("ramp", "10s", f"stage ('10s',) isn't a time and a target. {_RAMP}"),
    ("ramp", ["10s:5"], f"stage '10s:5' isn't a time and a target. {_RAMP}"),
    ("ramp", 10, f"10 isn't a ramp. {_RAMP}"),
    ("ramp", [], f"[] isn't a ramp. {_RAMP}"),
    ("ramp", "0s:10", f"its stages take no time. {_RAMP}"),
    ("ramp", "10s:0", f"no target is above 0. {_RAMP}"),
    ("ramp", "10s:0/s, 10s:0", f"no target is above 0. {_RAMP}"),
    ("ramp", "10s:5, 10s:", f"stage ('10s', ''): '' {_WHOLE}"),
    ("ramp", "10s:5/s, 10s:0/foo", f"stage ('10s', '0/foo'): '0/foo' isn't a rate. {_RATE}"),
    ("ramp", "10s:5, 10s:5/s", f"its targets mix rates and numbers of connections. {_RAMP}"),
    ("ramp", "10s:1.5", f"stage ('10s', '1.5'): '1.5' {_WHOLE}"),
    ("burst", 0, f"0 {_WHOLE}"),
    ("generators", 0, f'0 {_WHOLE}, or "auto"'),
    ("generators", "many", f"'many' {_WHOLE}, or \"auto\""),
    ("generators", 1000, "1000 is too many: at most 256, and at most one per free core"),
)


@pytest.mark.parametrize("key, value, problem", BAD)
def test_bad_values_are_named(key: str, value: object, problem: str) -> None:
    assert problems({key: value}) == (f"{key}: {problem}",)


@pytest.mark.parametrize(
    "keys, server, problem",
    [
        ({"workers": 2}, "inprocess", "workers=2 only goes with uvicorn, gunicorn and granian, not with InProcess()"),
        (
            {"workers": 2},
            Command("./server {port}"),
            "workers=2 cannot configure server. Do it yourself, and use Command(…, workers=2)",
        ),
        (
            {"max_startup": "3s", "gate": "startup"},
            "inprocess",
            "max_startup and gate: startup: InProcess() starts no process, so there is no start-up to measure. Choose"
            " another server",
        ),
        (
            {"gate": "rps,startup"},
            "http://127.0.0.1:8000",
            "gate: startup: a Url names a running server, so there is no start-up to measure. Choose another server",
        ),
        (
            {"max_queries": 3, "gate": "queries"},
            "http://127.0.0.1:8000",
            "max_queries and gate: queries: a Url names a running server, but queries are counted only in"
            " a process in which fileperf serves the app. Use Uvicorn(), Gunicorn() or InProcess(), or leave this out",
        ),
        ({"burst": 5, "rate": 10}, None, "burst and rate are different shapes of load. Give only one of them"),
    ],
)
def test_keys_that_do_not_go_together_are_named(keys: dict[str, object], server: object, problem: str) -> None:
    assert problems(options=keys, ini={} if server is None else {"server": server}) == (problem,)


def test_what_is_watched_in_a_whole_project_is_left_out_where_a_server_cannot_have_it() -> None:
    everywhere = {"watch": "rss, startup, queries"}
    assert settings({"server": InProcess()}, ini=everywhere).watch == ("rss", "queries")
    assert settings({"server": Url("http://127.0.0.1:1")}, ini=everywhere).watch == ("rss",)
    assert settings(ini=everywhere).watch == ("rss", "startup", "queries")
    (problem,) = problems(marker={"server": InProcess(), "watch": "startup"})
    assert problem.startswith("watch: startup: InProcess() starts no process")


RATE_RAMP = RateRamp(stages=(Stage(duration_ns=10 * SECOND, target=100.0), Stage(duration_ns=30 * SECOND, target=0.0)))
CONNECTION_RAMP = ConnectionRamp(
    stages=(Stage(duration_ns=0, target=20.0), Stage(duration_ns=SECOND // 2, target=50.0))
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
    with pytest.raises(PlanError, match=f"pause delays users who wait for answers, but {next(iter(shape))} sends"):
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
    assert problem.startswith("generators=2 does not go with InProcess(), because the app runs in the test process")
    near = resolve(verb={"server": "inprocess"}, options={"generators": 2})
    assert near.generators is None
    auto = resolve(verb={"server": "inprocess", "generators": "auto"})
    assert auto.generators == "auto"


# --- Plans of a measurement, of a comparison and of a search for the capacity

TEST = TestId(nodeid="test_any.py::test_any", module="test_any.py", name="test_any")


def planned(**keys: object) -> Plan:
    return Plan(test=TEST, work=Operation(method="GET", url="/"), settings=settings(keys), app=None)


def smoked(**keys: object) -> Plan:
    return replace(planned(**keys), smoke=True)


def turns(pair_ns: int | None = None, latency_ns: int = 0, **keys: object) -> Alternation:
    plan = planned(**keys)
    return plan.alternation(pair_ns or plan.first_pair_ns, latency_ns=latency_ns, chance=random.SystemRandom())


@pytest.mark.parametrize("left_ns", range(2 * SECOND, 40 * SECOND, 700_000_000))
@pytest.mark.parametrize("more_ms, usual_ms", [(100, 1_000), (600, 1_200), (4_000, 3_000)])
def test_pairs_fill_the_time_that_is_left(left_ns: int, more_ms: int, usual_ms: int) -> None:
    plan, more_ns, usual_ns = planned(), 1_000_000 * more_ms, 1_000_000 * usual_ms
    all_ns = left_ns
    while (pair_ns := plan.next_pair_ns(3, left_ns=left_ns, more_ns=more_ns)) + more_ns <= left_ns:
        assert plan.first_pair_ns <= pair_ns < (usual_ns + more_ns) * 2
        left_ns -= pair_ns + more_ns
    assert left_ns < 10 or left_ns == all_ns < plan.first_pair_ns + more_ns, "too short for a single pair"
    assert plan.next_pair_ns(2, left_ns=left_ns, more_ns=more_ns) == plan.first_pair_ns


@pytest.mark.parametrize(
    "keys,boots",
    [
        ({}, 3),
        ({"boots": 5}, 5),
        ({"rate": 10}, 3),
        ({"gate": "none"}, 1),
        ({"gate": "none", "boots": 4}, 4),
        ({"requests": 10}, 1),
        ({"burst": 10}, 1),
        ({"ramp": "1s:10"}, 1),
    ],
)
def test_how_many_boots_share_a_run(keys: dict[str, object], boots: int) -> None:
    assert planned(**keys).boots == boots
    assert smoked(**keys).boots == 1


@pytest.mark.parametrize(
    "keys, title, identity",
    [
        ({}, "32 connections, 4.00 s", {"connections": 32}),
        ({"requests": 10}, "10 connections, 10 requests", {"connections": 10, "requests": 10}),
        (
            {"burst": 1000, "connections": 200},
            "1000 requests at once, 200 connections",
            {"connections": 200, "burst": 1000},
        ),
        ({"rate": 10}, "10.0/s, at most 1000 connections, 4.00 s", {"connections": 1000, "rate": 10.0}),
        (
            {"ramp": "0s:50/s, 2s:50/s"},
            "ramp 0 → 50.0 → 50.0/s, at most 1000 connections, 2.00 s",
            {"connections": 1000, "ramp of rate": [[0.0, 50.0], [2.0, 50.0]]},
        ),
        (
            {"pause": "1s", "connections": 5, "duration": "3s"},
            "5 connections, 3.00 s, pauses of 1.00 s",
            {"connections": 5, "pause": {"low": 1.0, "high": 1.0}},
        ),
        (
            {"ramp": "2s:50"},
            "ramp 0 → 50.0 connections, 2.00 s",
            {"connections": 50, "ramp of connections": [[2.0, 50.0]]},
        ),
    ],
    ids=["closed", "requests", "burst", "rate", "rates", "pause", "connections"],
)
def test_a_load_in_words_and_values(keys: dict[str, object], title: str, identity: dict[str, object]) -> None:
    plan = planned(**keys)
    assert load_title(plan.load, plan.boots) == title
    assert load_identity(plan.load) == identity


@pytest.mark.parametrize(
    "keys", [{}, {"requests": 1000}, {"burst": 1000}, {"rate": 1000}, {"ramp": "9s:10/s"}, {"pause": "1s"}]
)
def test_a_smoke_run_makes_a_few_requests_whatever_the_shape(keys: dict[str, object]) -> None:
    plan = smoked(**keys).load
    assert (plan.requests, plan.connections) == (8, 4)
    assert (plan.burst, plan.rate, plan.ramp, plan.pause) == (None, None, None, None)


@pytest.mark.parametrize(
    "keys, rounds, round_s, warmup_s, longest_s",
    [
        ({"duration": "6s", "rounds": 12}, 4, 0.5, 0.3, None),  # shared by three boots
        ({"ramp": "3s:10, 1s:0", "duration": "60s", "rounds": 8}, 8, 0.5, 0, None),  # takes its own time
        # Its requests are due at once; each of them has the time limit, and the duration is none.
        ({"burst": 10, "duration": "1s", "timeout": "20s"}, 1, 0, 0.3, 60),
    ],
)
def test_how_long_a_load_takes(
    keys: dict[str, object], rounds: int, round_s: float, warmup_s: float, longest_s: float | None
) -> None:
    plan = planned(**keys).load
    if longest_s is not None:
        assert plan.longest_ns == longest_s * SECOND
        return
    assert (plan.rounds, plan.round_ns, plan.warmup_ns) == (rounds, round_s * SECOND, warmup_s * SECOND)


def test_a_rate_too_low_for_a_single_request_is_told() -> None:
    assert planned(rate=0.5, duration="6s").load.rate == 0.5
    with pytest.raises(PlanError, match=r"rate: at .*/s less than one request is due in 6.00 s on 3 start-ups"):
        _ = planned(rate=0.3, duration="6s").load


@pytest.mark.parametrize(
    "latency_ms, max_duration, turn_ms, handover_ms, cycles",
    [
        (0, "60s", 50, 5, 10),
        (1, "60s", 50, 5, 10),
        (6, "60s", 63, 7.5, 8),
        (50, "60s", 525, 62.5, 1),
        (1000, "60s", 5000, 1250, 1),  # three pairs fit into the time
        (200, "6s", 750, 250, 1),
        (5000, "60s", 18_750, 6250, 1),  # or as few as there can be
    ],
)
def test_turns_are_as_long_as_requests_need(
    latency_ms: int, max_duration: str, turn_ms: int, handover_ms: float, cycles: int
) -> None:
    plan = turns(latency_ns=latency_ms * SECOND // 1000, max_duration=max_duration)
    usual_ns = turn_ms * SECOND // 1000
    assert plan.handover_ns == handover_ms * SECOND // 1000
    assert len(plan.turns_ns) == len(plan.firsts) == cycles
    assert all(0.7 * usual_ns <= turn_ns <= 1.3 * usual_ns for turn_ns in plan.turns_ns)
    if turn_ms < 8.4 * handover_ms - 1:  # of the slowest requests
        assert set(plan.turns_ns) == {usual_ns}
    assert plan.warmup_ns >= plan.handover_ns * len(plan.warm_firsts)
    assert len(plan.warm_firsts) == max(1, min(2, int(100 / handover_ms)))
    assert (plan.connections, plan.timeout_ns) == (32, min(30, int(max_duration.removesuffix("s"))) * SECOND)


def test_later_pairs_are_longer_and_chance_draws_whose_turn_is_first_and_how_long_turns_are() -> None:
    first, later = turns(), turns(3 * SECOND)
    assert (len(first.firsts), len(later.firsts)) == (10, 30)
    drawn = [turns(3 * SECOND) for _ in range(30)]
    assert len({plan.firsts for plan in drawn}) > 1
    assert {first for plan in drawn for first in plan.firsts} == set(Side)
    lengths_ns = [turn_ns for plan in drawn for turn_ns in plan.turns_ns]
    assert len(set(lengths_ns)) == 7
    assert sum(lengths_ns) / len(lengths_ns) == pytest.approx(50 * SECOND // 1000, rel=0.03)


@pytest.mark.parametrize(
    "keys, turn",
    [
        ({}, None),
        ({"rate": 10}, 2 * SECOND),  # 20 requests
        ({"rate": 1000}, SECOND),
        ({"requests": 10}, 4 * SECOND),
        ({"burst": 10, "timeout": "3s"}, 3 * SECOND),
        ({"pause": "2s"}, 6 * SECOND),  # in short turns each user would pause in the other side's
    ],
)
def test_loads_that_are_no_plain_closed_loop_are_whole_turns(keys: dict[str, object], turn: int | None) -> None:
    plan = planned(**keys).turn
    assert (None if plan is None else plan.rounds * plan.round_ns) == turn


def test_a_comparison_has_a_title_tolerances_and_every_load_that_it_makes() -> None:
    plan = planned(connections=4, timeout="3s", gate=["rps", "p99"], tolerance={"rps": "10%"})
    assert plan.title_in_turn(8, 33.4) == "4 connections alternately, 8 start-ups of each version, 33.0 s"
    assert plan.tolerances() == {"rps": pytest.approx(0.1), "p99": METRICS["p99"].tolerance}
    loads = (plan.probe, plan.limiting, plan.profile())
    assert [load.duration_ns * 1000 // SECOND for load in loads] == [200, 800, 2000]
    assert {load.connections for load in loads} == {4}
    assert {load.timeout_ns for load in loads} == {3 * SECOND}


@pytest.mark.parametrize("keys", [{"requests": 10}, {"burst": 10}, {"ramp": "2s:10"}])
def test_a_load_that_is_whole_is_each_of_them(keys: dict[str, object]) -> None:
    plan = planned(**keys)
    assert plan.probe == replace(plan.limiting, close=False) == plan.profile() == plan.turn
    assert plan.limiting.close


@pytest.mark.parametrize("max_s,spent_s,timeout_s", [(5, 3.2, 2.8), (5, 20, 2.5), (20, 7, 14), (40, 9, 30)])
def test_after_a_comparison_that_was_given_up_no_answer_is_waited_for_beyond_the_time(
    max_s: int, spent_s: float, timeout_s: float
) -> None:
    """One request a connection has its time, not two."""
    found = planned(max_duration=f"{max_s}s").alone(spent_ns=round(spent_s * SECOND)).settings
    assert found.timeout_ns == pytest.approx(timeout_s * SECOND)
    assert found.warmup_ns + found.duration_ns <= found.timeout_ns
    own = planned(max_duration=f"{max_s}s", timeout="7s")
    assert own.alone(spent_ns=SECOND).settings == replace(own.settings, boots=1)


# --- Settings of a search for the capacity: what it takes over, what it cannot use, and what is its own


def searching(**verb: object) -> Settings:
    return for_capacity(settings({"max_p99": "100ms", **verb}))


def searched(settings: Settings, *, smoke: bool = False) -> Plan:
    return replace(planned(), settings=settings, smoke=smoke)


@pytest.mark.parametrize(
    "keys, gate, tolerance",
    [
        ({}, ("capacity",), None),
        ({"gate": "rps, p50", "tolerance": "10%"}, ("capacity",), 0.1),
        ({"tolerance": "capacity=10%"}, ("capacity",), 0.1),
        ({"tolerance": "rps=10%"}, ("capacity",), None),
        ({"tolerance": "10% and 50/s"}, ("capacity",), 0.1),
        ({"gate": "none"}, (), None),
    ],
)
def test_its_gate_is_that_of_the_capacity_or_none_and_its_tolerance_that_of_all_or_its_own(
    keys: dict[str, object], gate: tuple[str, ...], tolerance: float | None
) -> None:
    found = searching(**keys)
    assert found.gate == gate
    assert found.tolerances.get("capacity") == tolerance


@pytest.mark.parametrize(
    "verb,says",
    [
        ({"max_error_rate": "1%"}, 'none is given. Write max_p99="100ms"'),
        ({"max_mean": "10ms"}, 'none is given. Write max_p99="100ms"'),
        ({"max_p99": "1s", "rate": 10}, "rate: a capacity search chooses its own rates"),
        ({"max_p99": "1s", "burst": 10}, "burst: a capacity search chooses its own rates"),
        ({"max_p99": "1s", "requests": 10}, "requests: a capacity search chooses its own rates"),
        ({"max_p99": "1s", "ramp": "1s:10"}, "ramp: a capacity search chooses its own rates"),
        ({"max_p99": "1s", "pause": "1s"}, "pause delays users who wait for answers"),
        ({"max_p99": "1s", "max_error_rate": "100%"}, "every request may fail"),
        ({"max_p99": "1s", "tolerance": "capacity=10% and 10MB"}, "isn't in the unit of capacity"),
    ],
)
def test_what_no_search_can_use_is_refused(verb: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError) as raised:
        for_capacity(settings(verb))
    assert says in str(raised.value)


@pytest.mark.parametrize("verb", [{"gate": "capacity"}, {"min_capacity": 10}])
def test_a_load_that_searches_for_nothing_has_no_capacity(verb: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=r"needs a capacity search. Write fileperf\.capacity\.get"):
        for_one_load(settings(verb))


def test_it_takes_a_minute_on_three_boots_unless_told_otherwise_and_that_on_each_side() -> None:
    plan = searched(searching())
    assert plan.searches
    assert (plan.boots, plan.settings.search_ns) == (3, 60 * SECOND)
    assert searched(searching(gate="none")).boots == 3
    shorter = searched(searching(max_duration="20s", boots=2))
    assert (shorter.boots, shorter.settings.search_ns, shorter.max_duration_ns) == (2, 20 * SECOND, 40 * SECOND)
    assert 4 * shorter.first_pair_ns < 40 * SECOND < 5 * shorter.next_pair_ns(9, left_ns=0, more_ns=0)
    smoke = searched(searching(), smoke=True)
    assert not smoke.searches
    assert smoke.load.requests == 8


def test_a_request_that_takes_far_too_long_has_failed() -> None:
    loads = [
        searched(asked).search_load(
            NextLoad(rate=100.0, warmup_s=0.1, seconds=1.0), chance=random.Random(1), place=0.5, busy_rate=200.0
        )
        for asked in (searching(), for_capacity(settings({"max_p99": "1s"})))
    ]
    assert [load.timeout_ns for load in loads] == [5 * SECOND, 20 * SECOND]
