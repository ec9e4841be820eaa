"""What the terminal shows: whole reports, compared with the files in `golden/`, and rules that hold for any width."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.samples import (
    CPU_REGRESSED,
    ERRORS,
    FAILURES,
    NEW,
    PASSED,
    REGRESSED,
    SERVER_CPU,
    TAIL_IMPROVED,
    TAIL_INCONCLUSIVE,
    TOO_FEW,
    every_kind,
    recording,
    result,
)

from pytest_fileperf.judge.baseline import Why
from pytest_fileperf.judge.groups import Asked, session_record
from pytest_fileperf.judge.record import Explanation, Result
from pytest_fileperf.judge.verdict import Outcome, Reason, ReasonKind, Verdict
from pytest_fileperf.measure.recording import Failure, Recording
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.markdown import markdown_report
from pytest_fileperf.report.story import summary_line
from pytest_fileperf.report.terminal import brief_report, stale_lines, terminal_report
from pytest_fileperf.report.text import cells

# --- whole tables, compared with the files in `golden/`; the rest are rules that hold for any width

GOLDEN = Path(__file__).parent / "golden"


def first_run() -> tuple[Result, ...]:
    shared = {"pinned": False, "stabilised": ("hash seed",)}
    return tuple(
        result(name, recorded=recording(**shared), verdict=Verdict(comparisons=NEW))  # type: ignore[arg-type]
        for name in ("test_upload", "test_download", "test_form")
    )


def all_passed() -> tuple[Result, ...]:
    few = replace(PASSED, base=39.8, now=40.0)
    return (
        result("test_upload", verdict=Verdict(comparisons=(PASSED, TAIL_IMPROVED)), baseline_written=True),
        result("test_download", verdict=Verdict(comparisons=(few,)), recorded=recording(requests=20)),
        result("test_download", module="tests/test_more.py", load="8 connections, 200 requests"),
        result("test_download", module="tests/test_more.py", nodeid="tests/test_more.py::test_download#2"),
    )


def smoke() -> tuple[Result, ...]:
    few = recording(requests=3, boots=1, rounds=1, pinned=False)
    return result("test_upload", recorded=few, smoke=True), result("test_download", recorded=few, smoke=True)


def passes(name: str = "test_download", **more: object) -> Result:
    return result(name, verdict=Verdict(comparisons=(PASSED,)), limit=SERVER_CPU, **more)  # type: ignore[arg-type]


def all_plain() -> tuple[Result, ...]:
    """Nothing but rows."""
    return tuple(passes(name) for name in ("test_upload", "test_form", "test_download[256KiB]"))


def one_regressed() -> tuple[Result, ...]:
    text = "CPU per request grew by 18.2 µs (+22.0 %), of it\n  15.1 µs in slow_digest (app/main.py:31)"
    slower = result("test_upload", verdict=Verdict(comparisons=(REGRESSED, TAIL_IMPROVED)), limit=SERVER_CPU)
    return replace(slower, explanation=Explanation(text=text)), passes()


def inconclusive() -> tuple[Result, ...]:
    return result("test_upload", verdict=Verdict(comparisons=(PASSED, TAIL_INCONCLUSIVE))), passes()


def failed_requests() -> tuple[Result, ...]:
    return (
        result("test_upload", recorded=recording(failures=FAILURES), verdict=Verdict(limits=(ERRORS,))),
        passes(),
    )


def busy() -> tuple[Result, ...]:
    """Three tests on a busy machine, and one that came after."""
    found = [passes(name) for name in ("test_upload", "test_form", "test_list")]
    shares = (0.05, 0.26, 0.12)
    hit = (
        replace(each, measurement=replace(each.measurement, busy=Busy(server=share)))
        for each, share in zip(found, shares, strict=True)
    )
    return *hit, passes()


SESSIONS = {"every_kind": every_kind, "first_run": first_run, "all_passed": all_passed, "smoke": smoke}
WITHOUT_V = {
    "all_plain": all_plain,
    "one_regressed": one_regressed,
    "inconclusive": inconclusive,
    "failed_requests": failed_requests,
    "busy": busy,
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("session", WITHOUT_V)
def test_whole_report_without_v(session: str, width: int) -> None:
    expected = (GOLDEN / f"{session}_{width}_0.txt").read_text(encoding="utf-8")
    assert terminal_report(session_record(WITHOUT_V[session]()), width=width) == expected


def test_rows_alone_are_told_apart_from_reports_with_more_to_say() -> None:
    plain = {name: brief_report(session_record(make()), width=80)[1] for name, make in WITHOUT_V.items()}
    assert plain == {name: name == "all_plain" for name in WITHOUT_V}
    assert brief_report(session_record([]), width=80) == ([], False)


def test_what_a_failure_has_told_is_not_said_again() -> None:
    for make, told_once in ((one_regressed, "slow_digest"), (failed_requests, "disk full")):
        results = make()
        for told, times in ((frozenset[str](), 1), ({results[0].test.nodeid}, 0)):
            lines, _ = brief_report(session_record(results), width=80, told=told)
            assert "".join(lines).count(told_once) == times
            assert lines[0].startswith("test_upload ")


def test_a_busy_machine_is_one_line_a_session() -> None:
    text = " ".join(terminal_report(session_record(busy())).split())
    said = "the machine was busy: others had the server's core for 26 % of the time in test_form (and in 2 other tests)"
    assert text.count("busy") == text.count(said) == 1


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("session", SESSIONS)
def test_whole_table(session: str, width: int, verbosity: int) -> None:
    expected = (GOLDEN / f"{session}_{width}_{verbosity}.txt").read_text(encoding="utf-8")
    assert terminal_report(session_record(SESSIONS[session]()), width=width, verbosity=verbosity) == expected


def test_whole_table_in_colour() -> None:
    expected = (GOLDEN / "every_kind_80_0_colour.txt").read_text(encoding="utf-8").replace("<ESC>", "\x1b")
    assert terminal_report(session_record(every_kind()), width=80, colour=True) == expected


@pytest.mark.parametrize("verbosity", [-1, 0, 2])
@pytest.mark.parametrize("width", [40, 57, 80, 100, 200])
def test_colour_changes_nothing_else(width: int, verbosity: int) -> None:
    coloured = terminal_report(session_record(every_kind()), width=width, verbosity=verbosity, colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == terminal_report(
        session_record(every_kind()), width=width, verbosity=verbosity
    )


@settings(max_examples=30)
@given(
    name=st.text(min_size=1, max_size=200),
    label=st.none() | st.text(max_size=80),
    example=st.text(max_size=400),
    reason=st.text(max_size=200),
    width=st.integers(40, 160),
    verbosity=st.integers(-1, 2),
)
def test_no_text_breaks_the_columns(
    name: str, label: str | None, example: str, reason: str, width: int, verbosity: int
) -> None:
    failed = recording(requests=4, boots=1, rounds=1, failures=(Failure(kind="size", count=10**9, example=example),))
    absent = Reason(kind=ReasonKind.ABSENT, text=reason)
    verdict = Verdict(
        limits=(ERRORS,), comparisons=(CPU_REGRESSED, PASSED, *(replace(new, reason=absent) for new in NEW))
    )
    odd = result(name, label=label, recorded=failed, verdict=verdict, group=label, work=name)
    text = terminal_report(session_record([odd, *first_run()]), width=width, verbosity=verbosity)
    assert max(map(cells, text.split("\n"))) <= width
    rows = [line for line in text.split("\n") if line.endswith("  REGRESSED") and not line.startswith(" ")]
    if verbosity < 1:
        assert rows
        return
    heading = next(line for line in text.split("\n") if line.startswith("test ") and line.endswith("outcome"))
    assert cells(heading.removesuffix("outcome")) in {cells(row.removesuffix("REGRESSED")) for row in rows}


def test_no_results_no_text() -> None:
    assert terminal_report(session_record([])) == ""


def test_a_limit_that_rounding_would_hide_is_shown_with_all_digits() -> None:
    close = replace(TOO_FEW, limit=2050.0, value=2049.87)
    assert "LIMIT min_rps 2050/s, measured 2049.87/s" in terminal_report(
        session_record([result(verdict=Verdict(limits=(close,)))])
    )


def test_a_limit_on_something_not_measured_says_so() -> None:
    reason = Reason(kind=ReasonKind.NOT_MEASURED, metric="rss", side="now")
    unknown = replace(TOO_FEW, name="max_rss", metric="rss", limit=2.0**30, value=None, reason=reason)
    text = terminal_report(session_record([result(verdict=Verdict(limits=(unknown,)))]), width=100)
    assert "  LIMIT max_rss 1.00 GiB, not measured; server peak RSS was not measured in this run\n" in text


def test_only_the_most_frequent_kinds_of_failure_are_shown_unless_asked_for() -> None:
    failures = tuple(Failure(kind=f"status {500 + kind}", count=kind + 1, example="x" * 300) for kind in range(5))
    broken = result(recorded=recording(failures=failures), verdict=Verdict(limits=(ERRORS,)))
    text = terminal_report(session_record([broken]))
    assert text.count("× failed: status") == 3
    assert "  and 3 more of 2 other kinds (-v shows all)\n" in text
    assert terminal_report(session_record([broken]), verbosity=1).count("× failed: status") == 5


def test_long_names_are_cut_where_they_are_alike() -> None:
    ways = ("sync_write-uvicorn-1", "async_write-uvicorn-1", "form_write-uvicorn-1")
    text = terminal_report(session_record([result(f"test_deployment[{way}]") for way in ways]), width=76, verbosity=1)
    rows = [line.split()[0] for line in text.split("\n") if line.startswith("test_")]
    assert rows == ["test_deployment[sync_…corn-1]", "test_deployment[async…corn-1]", "test_deployment[form_…corn-1]"]


@pytest.mark.parametrize("smoke", [False, True])
def test_a_busy_machine_is_said_but_for_a_few_requests(smoke: bool) -> None:
    run = result(verdict=Verdict(comparisons=() if smoke else (PASSED,)), smoke=smoke)
    run = replace(run, measurement=replace(run.measurement, busy=Busy(server=0.26)))
    said = "the machine was busy: others had the server's core for 26 % of the time"
    assert (said in terminal_report(session_record([run]))) is not smoke


def test_a_saturated_generator_in_a_smoke_run_says_nothing() -> None:
    run = result(recorded=recording(client_cpu_share=0.97), smoke=True)
    assert "saturated" not in terminal_report(session_record([run])).lower()


def test_a_saturated_generator_is_said_and_is_not_a_pass() -> None:
    run = result(recorded=recording(client_cpu_share=0.97), verdict=Verdict(comparisons=(PASSED,)))
    text = terminal_report(session_record([run]))
    assert "  SATURATED\n" in text
    assert "  generator saturated: 97 % of its core; these figures are the generator's own\n" in text
    assert summary_line([run]) == "1 measured: 1 SATURATED"


@pytest.mark.parametrize(
    "recorded,verdict,what",
    [
        (recording(client_cpu_share=0.97), Verdict(comparisons=NEW), "a run of a saturated generator"),
        (recording(), Verdict(comparisons=NEW, limits=(TOO_FEW,)), "a run with broken limits"),
    ],
)
def test_a_new_run_that_cannot_be_stored_does_not_ask_for_it(recorded: Recording, verdict: Verdict, what: str) -> None:
    run = result(recorded=recorded, verdict=verdict)
    text = terminal_report(session_record([run]), width=120, verbosity=1)
    assert f"  NEW rps, p99: there is no baseline, and {what} does not become one\n" in text
    brief = terminal_report(session_record([run]), width=120)
    assert brief.endswith(f"\n1 can be no baseline: {what}\n")
    assert "--fileperf-update" not in text + brief


def test_a_new_part_of_a_load_that_cannot_be_stored_does_not_ask_for_it() -> None:
    whole = result(verdict=Verdict(limits=(TOO_FEW,)))
    part = result(verdict=Verdict(comparisons=NEW), nodeid=f"{whole.test.nodeid}#upload")
    part = replace(part, test=replace(part.test, part="upload"))
    assert "--fileperf-update" not in summary_line([whole, part])
    assert "--fileperf-update=new" in summary_line([replace(whole, verdict=Verdict()), part])


def test_what_was_not_stored_says_its_own_reason_and_advises_nothing() -> None:
    """Neither that the machine was busy, which `all` stores all the same, nor how to store, which was asked for."""
    run = replace(result(verdict=Verdict(comparisons=NEW)), not_stored="the test did not pass")
    busy = replace(run, measurement=replace(run.measurement, busy=Busy(server=0.26)))
    for one in (run, busy):
        record = replace(session_record([one]), asked=Asked(update="all"))
        assert summary_line([one]) == "1 measured: 1 NEW; 1 not stored: the test did not pass"
        assert terminal_report(record, verbosity=-1) == "1 not stored: the test did not pass\n"
        text = " ".join(terminal_report(record, width=120, verbosity=1).split())
        said = "NEW rps, p99: there is no baseline, and nothing was stored: the test did not pass"
        assert text.count(said) == 1
        assert "--fileperf-update" not in text + markdown_report(record)
        assert said in markdown_report(record)


def test_a_baseline_that_was_not_replaced_says_why_once() -> None:
    run = replace(result(verdict=Verdict(comparisons=(REGRESSED,))), not_stored="the test did not pass")
    for verbosity in (0, 1):
        text = terminal_report(session_record([run]), width=120, verbosity=verbosity)
        assert text.count("nothing was stored: the test did not pass") == 1


@pytest.mark.parametrize("update, said", [("new", "1 can be no baseline: a run on a busy machine\n"), ("", "")])
def test_the_quietest_report_says_what_was_to_be_stored_and_is_not(update: str, said: str) -> None:
    run = result(verdict=Verdict(comparisons=NEW))
    busy = replace(run, measurement=replace(run.measurement, busy=Busy(server=0.26)))
    record = replace(session_record([busy]), asked=Asked(update=update))
    assert terminal_report(record, verbosity=-1) == said


@pytest.mark.parametrize(
    "results, line",
    [
        (first_run(), "3 measured: 3 NEW; store baselines with --fileperf-update=new"),
        (
            (*(result(verdict=Verdict(comparisons=(PASSED,))) for _ in range(2)), *first_run()[:1]),
            "3 measured: 2 PASS, 1 NEW; store baselines with --fileperf-update=new",
        ),
        (tuple(replace(new, baseline_written=True) for new in first_run()), "3 measured: 3 NEW; 3 baselines stored"),
        ((result(verdict=Verdict(comparisons=NEW, against="origin/main (1a2b3c4)")),), "1 measured: 1 NEW"),
        (
            (result(verdict=Verdict(comparisons=NEW), saturated=True), *first_run()[1:2]),
            "2 measured: 2 NEW; 1 can be no baseline: a run of a saturated generator;"
            " store baselines with --fileperf-update=new",
        ),
        ((result(verdict=Verdict(comparisons=(REGRESSED,))), result()), "2 measured: 1 REGRESSED, 1 not gated"),
        (smoke(), "2 measured; smoke: a few requests each, nothing judged"),
        (
            (*smoke(), result(recorded=recording(requests=0, failures=FAILURES), smoke=True)),
            "3 measured, 1 FAILED; smoke: a few requests each, nothing judged",
        ),
    ],
)
def test_summary_line(results: tuple[Result, ...], line: str) -> None:
    assert summary_line(results) == line


def test_an_inconclusive_gate_says_once_how_small_a_change_it_could_have_seen() -> None:
    said = replace(TAIL_INCONCLUSIVE, reason=Reason(kind=ReasonKind.UNSEEN, share=0.412, tolerance=0.5))
    for comparison in (said, TAIL_INCONCLUSIVE):
        text = terminal_report(session_record([result(verdict=Verdict(comparisons=(comparison,)))]), width=200)
        assert len(re.findall(r"a worsening of 41\.2 % could have been seen", text)) == 1


def test_every_outcome_of_a_gate_has_a_standing() -> None:
    for outcome in Outcome:
        assert result(verdict=Verdict(comparisons=(replace(PASSED, outcome=outcome),))).standing.value == outcome.value


def test_several_workers_are_shown_from_the_busiest_to_the_idlest() -> None:
    run = result()
    use = replace(run.measurement.server, worker_cpu_shares=(0.97, 0.6, 0.52))
    text = terminal_report(
        session_record([replace(run, measurement=replace(run.measurement, server=use))]), width=120, verbosity=1
    )
    assert "0.92 cores busy  its 3 workers 97 % to 52 % of a core  peak RSS" in text


# --- the lines about baselines whose tests are gone

ONE = {"tests/test_a.py::test_old[\x1b]": Why.NO_TEST}
MANY = {f"tests/test_b.py::test_{at:02}": Why.NO_MODULE for at in range(12)}


def test_each_is_named_with_why_and_what_to_do() -> None:
    assert stale_lines(ONE, entries=1, removed=False, width=80, colour=False) == [
        "1 stale baseline; --fileperf-prune removes it",
        "  tests/test_a.py::test_old[\N{REPLACEMENT CHARACTER}]: no such test",
    ]


def test_what_was_removed() -> None:
    lines = stale_lines(
        {**ONE, "tests/test_b.py::test_00": Why.NO_MODULE}, entries=3, removed=True, width=80, colour=False
    )
    assert [lines[0], len(lines)] == ["removed 3 stale baselines", 3]


def test_many_are_cut_short_unless_asked_for() -> None:
    lines = stale_lines(MANY, entries=24, removed=False, width=80, colour=False)
    assert lines[0] == "24 stale baselines; --fileperf-prune removes them"
    assert lines[10:] == ["  tests/test_b.py::test_09: no such file", "  and of 2 more (-v shows all)"]
    assert len(stale_lines(MANY, entries=24, removed=False, width=80, colour=False, verbosity=1)) == 13
    assert len(stale_lines(MANY, entries=24, removed=False, width=80, colour=False, verbosity=-1)) == 1
