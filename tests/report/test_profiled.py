"""What a failure message says of the functions that CPU per request went into, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fileperf.measure.blame import FunctionGrowth
from pytest_fileperf.measure.limiting import Limit, LimitKind
from pytest_fileperf.measure.stacks import Frame, FunctionCost, Profile
from pytest_fileperf.measure.startup import ImportGrowth
from pytest_fileperf.measure.usage import ThreadShares
from pytest_fileperf.report.message import WIDTH
from pytest_fileperf.report.profiled import (
    costs_json,
    costs_text,
    growth_json,
    growth_text,
    limit_waited_for,
    short_stalls_text,
    start_json,
    start_text,
)

BASE = Profile(stacks={}, samples=412, requests=25_000, cpu_per_request=82.4e-6)
NOW = replace(BASE, samples=398, cpu_per_request=100.6e-6)
DIGEST = FunctionGrowth(
    frame=Frame(function="slow_digest", file="app/main.py", line=31, own_code=True),
    growth_s=15.1e-6,
    share=0.83,
    base_s=0.0,
    now_s=15.1e-6,
    base_self_s=0.0,
    now_self_s=14.0e-6,
)
TOTAL = replace(
    DIGEST,
    frame=Frame(function="dumps", file="json.py", line=183),
    growth_s=2.05e-6,
    share=0.11,
    caller=Frame(function="Cart.total", file="app/cart.py", line=9),
)
LONG = replace(
    DIGEST,
    frame=Frame(
        function="make_endpoint.<locals>.wrapped_by_a_long_name.<locals>.inner_function_of_it",
        file="services/reporting/exports/spreadsheets/workbook_builder.py",
        line=1031,
    ),
    growth_s=0.4e-6,
)
COST = FunctionCost(
    frame=Frame(function="get_rows", file="app/main.py", line=40, own_code=True), cost_s=31e-6, self_s=2e-6
)


def test_three_functions_are_shown_and_all_kept() -> None:
    growths = [DIGEST, TOTAL, LONG, replace(DIGEST, frame=replace(DIGEST.frame, function="fourth"))]

    assert growth_text(BASE, NOW, growths[:2]) == (
        "CPU per request grew by 18.2 µs (+22.1 %):\n"
        "  15.1 µs in slow_digest (app/main.py:31)\n"
        "  2.05 µs in dumps (json.py:183), called by Cart.total (app/cart.py:9)"
    )
    unknown = replace(DIGEST, frame=Frame(function="slow_digest", file="", line=0))
    assert "µs in slow_digest\n" in growth_text(BASE, NOW, [unknown])
    assert "fourth" not in growth_text(BASE, NOW, growths)
    assert "fourth" in json.dumps(growth_json(BASE, NOW, growths))


def test_times_are_aligned_and_lines_no_longer_than_the_message() -> None:
    lines = growth_text(BASE, NOW, [DIGEST, replace(LONG, caller=TOTAL.caller)]).splitlines()

    assert lines[1] == "  15.1 µs in slow_digest (app/main.py:31)"
    assert lines[2] == "   400 ns in mak…nction_of_it (…s/spreadsheets/workbook_builder.py:1031)"
    assert lines[2].index(" in ") == lines[1].index(" in ")
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    "file,said",
    [
        ("", ["  2.05 µs in dumps (json.py:183), called by total"]),
        ("app/cart.py", ["  2.05 µs in dumps (json.py:183), called by total (app/cart.py:9)"]),
        (
            "some/package/with/a/path.py",
            ["  2.05 µs in dumps (json.py:183)", "      called by total (some/package/with/a/path.py:9)"],
        ),
        (
            "a/path/of/so/many/directories/that/it/does/not/fit.py",
            [
                "  2.05 µs in dumps (json.py:183)",
                "      called by total (…f/so/many/directories/that/it/does/not/fit.py:9)",
            ],
        ),
    ],
)
def test_a_caller_that_does_not_fit_has_a_line_of_its_own(file: str, said: list[str]) -> None:
    one = replace(TOTAL, growth_s=2.05e-6, caller=Frame(function="total", file=file, line=9 if file else 0))

    lines = growth_text(BASE, NOW, [one]).splitlines()

    assert lines[1 : 1 + len(said)] == said


@pytest.mark.parametrize(
    "growths,said",
    [
        ([replace(DIGEST, growth_s=10e-6)], ["the other 8.20 µs are spread over many functions"]),
        ([replace(DIGEST, growth_s=4e-6)] * 4, ["the other 6.20 µs are in other functions"]),
        ([replace(DIGEST, growth_s=24e-6)], ["5.80 µs were saved in many functions"]),
        (
            [replace(DIGEST, growth_s=24e-6), replace(TOTAL, growth_s=-5e-6, caller=None)],
            ["5.00 µs were saved in dumps (json.py:183)"],
        ),
        ([replace(DIGEST, growth_s=17e-6)], []),
    ],
)
def test_the_rest_and_what_was_saved_are_said(growths: list[FunctionGrowth], said: list[str]) -> None:
    shown = [growth for growth in growths if growth.growth_s > 0][:3]

    assert growth_text(BASE, NOW, growths).splitlines()[1 + len(shown) :] == said


@pytest.mark.parametrize(
    "base,now,text",
    [
        (
            BASE,
            replace(NOW, cpu_per_request=82.9e-6),
            "CPU per request did not grow (82.4 µs before, 82.9 µs now)",
        ),
        (
            BASE,
            NOW,
            "CPU per request grew by 18.2 µs (+22.1 %), but no function stands out\n"
            "  from the sampling noise (412 samples before, 398 now)",
        ),
        (
            BASE,
            replace(NOW, torn=True),
            "CPU per request grew by 18.2 µs (+22.1 %), but no function stands out:\n"
            "  threads ran on while they were sampled, so their stacks are\n  unreliable. Try fewer connections",
        ),
        (
            replace(BASE, samples=0),
            NOW,
            "CPU per request: the profiler got no samples of at least one version",
        ),
    ],
    ids=["no growth", "no function", "no function of a pool", "no samples"],
)
def test_nobody_to_blame(base: Profile, now: Profile, text: str) -> None:
    assert growth_text(base, now, []) == text


def test_a_process_that_was_not_seen_in_a_look_is_said() -> None:
    note = "py-spy could not attach to process 123 within 10 s"
    told = "one process could not be sampled all the time: py-spy could not attach\n  to process 123 within 10 s"
    base, now = replace(BASE, notes=(note,)), replace(NOW, notes=(note,))
    assert growth_text(base, now, [DIGEST]) == f"{growth_text(BASE, NOW, [DIGEST])}\n{told}"
    assert costs_text(now, []) == f"{costs_text(NOW, [])}\n{told}"
    assert [costs_json(side, [])["notes"] for side in (base, BASE)] == [[note], []]


def test_the_json_has_everything() -> None:
    side = {"samples": 412, "seconds": 2.06, "requests": 25_000, "torn": False, "notes": []}
    cost = {
        "file": "app/main.py",
        "own_code": True,
        "function": "get_rows",
        "line": 40,
        "cost_s": 31e-6,
        "self_s": 2e-6,
    }
    assert json.loads(json.dumps(growth_json(BASE, NOW, [TOTAL]))) == {
        "base": {**side, "cpu_per_request_s": 82.4e-6},
        "now": {**side, "cpu_per_request_s": 100.6e-6, "samples": 398, "seconds": 1.99},
        "growth_s": pytest.approx(18.2e-6),
        "functions": [
            {
                "function": "dumps", "file": "json.py", "line": 183, "own_code": False, "growth_s": 2.05e-6,
                "share": 0.11, "base_s": 0.0, "now_s": 15.1e-6, "base_self_s": 0.0, "now_self_s": 14.0e-6,
                "caller": {"function": "Cart.total", "file": "app/cart.py", "line": 9},
            }
        ],
    }  # fmt: skip
    content = json.loads(json.dumps(costs_json(NOW, [COST])))
    assert (content["samples"], content["functions"]) == (398, [{**cost, "cost_s": 31e-6, "self_s": 2e-6}])


def test_what_one_side_costs() -> None:
    others = [
        replace(COST, frame=replace(COST.frame, function="run_asgi", own_code=False), cost_s=80e-6),
        replace(COST, frame=replace(COST.frame, function="<module>"), cost_s=70e-6),
        COST,
        replace(COST, frame=replace(COST.frame, function="load", line=7), cost_s=9.5e-6),
    ]

    assert costs_text(NOW, others) == (
        "CPU per request 101 µs, calls included:\n"
        "  31.0 µs in get_rows (app/main.py:40)\n"
        "  9.50 µs in load (app/main.py:7)"
    )


@pytest.mark.parametrize(
    "profile,text",
    [
        (NOW, "CPU per request 101 µs, but none of 398 samples shows a function of the\n  project"),
        (replace(NOW, samples=0), "CPU per request: the profiler got no samples of the server's processes"),
    ],
)
def test_one_side_without_functions(profile: Profile, text: str) -> None:
    assert costs_text(profile, []) == text


@pytest.mark.parametrize(
    "limit,said",
    [
        (Limit(kind=LimitKind.DISK, evidence="2 threads wait"), "Requests waited for storage: 2 threads wait"),
        (Limit(kind=LimitKind.UNCLEAR, evidence="one at a time", queues=True), "Waiting: one at a time"),
        (Limit(kind=LimitKind.UNCLEAR, evidence="server CPU 20 %"), ""),
        (Limit(kind=LimitKind.SERVER_CPU, evidence="at 97 %"), ""),
    ],
)
def test_what_requests_waited_for_is_said_where_the_limit_tells_it(limit: Limit, said: str) -> None:
    assert limit_waited_for(limit) == said


@pytest.mark.parametrize("storage, waits", [(0.0, "code that waits"), (0.3, "code that waits for storage")])
def test_code_that_blocks_the_event_loop_briefly_is_named(storage: float, waits: str) -> None:
    threads = ThreadShares(
        looks=100, idle=0.1, blocked=0.1, storage=storage, running=0.5,
        pool=0, pool_full=0, pool_busy=0, pool_storage=0, pool_lock=0,
    )  # fmt: skip
    held = (Frame(function="app", file="/p/app/main.py", line=3), Frame(function="save", file="/p/app/db.py", line=9))
    head = f"Requests waited for the event loop, blocked {10 + 100 * storage:.0f} % of the time by"
    said = short_stalls_text(threads, held, root=Path("/p"))
    assert " ".join(said.split()) == f"{head} save (app/db.py:9), {waits}"
    assert " ".join(short_stalls_text(threads, None, root=Path("/p")).split()) == f"{head} {waits}"


@pytest.mark.parametrize(
    "grown, text",
    [
        (None, "start-up grew by 463 ms (+61.3 %)"),
        ([], "start-up grew by 463 ms (+61.3 %), but imports do not account for it"),
        (
            [
                ImportGrowth(name="pandas", base_s=0.0, now_s=0.301, importer="app.reports"),
                ImportGrowth(name="app.main", base_s=0.02, now_s=0.144, importer=""),
            ],
            "start-up grew by 463 ms (+61.3 %) because of longer imports:\n"
            "  301 ms in pandas (not imported before), imported by app.reports\n"
            "  124 ms in app.main",
        ),
    ],
    ids=["no Python", "not in imports", "imports"],
)
def test_a_longer_start_up_is_told_with_its_imports(grown: list[ImportGrowth] | None, text: str) -> None:
    assert start_text(0.755, 1.218, grown) == text
    imports = start_json(0.755, 1.218, grown)["imports"]
    assert (imports is None) is (grown is None)
