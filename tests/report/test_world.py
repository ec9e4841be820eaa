"""The two questions of a stored baseline in every report: whether the code is slower, and whether the world is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from report.in_turn import THREAD_POOL, compared, with_limit
from report.samples import PASSED, result

from pytest_fileperf.errors import LimitExceededError, NotMeasuredError, RegressionError
from pytest_fileperf.judge.groups import session_record
from pytest_fileperf.judge.record import Result
from pytest_fileperf.judge.verdict import (
    LimitCheck,
    MetricComparison,
    Note,
    NoteKind,
    Outcome,
    Reason,
    ReasonKind,
    Verdict,
)
from pytest_fileperf.report.message import raise_for
from pytest_fileperf.report.page.document import results_html
from pytest_fileperf.report.record_file import results_json
from pytest_fileperf.report.terminal import brief_report, terminal_report, undecided_lines
from pytest_fileperf.report.wording import world_text

BASELINE = "its baseline (1a2b3c4 of 2026-11-20)"
THE_SAME = Note(kind=NoteKind.SAME_CODE, texts=(BASELINE,))
NO_PACKAGES = Note(kind=NoteKind.TOLD, texts=("its packages were not to be had",))
IN_TURN = f"measured in turn with the code of {BASELINE}"
CHANGED = Reason(kind=ReasonKind.WORLD, metric="rps", differences=("starlette 1.0 → 1.1",))
SLOWER_WORLD = MetricComparison(
    metric="rps", outcome=Outcome.REGRESSED, tolerance=0.03, base=5210.0, now=4324.0, change=-0.17, low=-0.20,
    high=-0.14, confidence=0.9, reason=CHANGED,
)  # fmt: skip
SAME_TAIL = MetricComparison(
    metric="p99", outcome=Outcome.PASS, tolerance=0.15, base=0.031, now=0.0316, change=0.0194, low=-0.04, high=0.08,
    confidence=0.9,
)  # fmt: skip
SLOWER_TEXT = (
    "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms):"
    " the machine, packages or environment changed, not your code; changed packages: starlette 1.0 → 1.1"
)
SAME = MetricComparison(
    metric="rps", outcome=Outcome.PASS, tolerance=0.03, base=5210.0, now=4324.0, change=-0.17,
    reason=Reason(kind=ReasonKind.SAME_CODE, side="base"),
)  # fmt: skip


def in_turn(*world: MetricComparison, also: tuple[Note, ...] = ()) -> Result:
    """Returns a result whose stored baseline was measured in turn."""
    shown = compared()
    code_notes = (Note(kind=NoteKind.IN_TURN, texts=(BASELINE,)), *also)
    return shown.with_verdict(against=BASELINE, code_notes=code_notes, world=world)


def on_terminal(shown: Result, *, verbosity: int = 0) -> str:
    return terminal_report(session_record([shown]), width=80, colour=False, verbosity=verbosity)


# --- what the world did, in words


@pytest.mark.parametrize(
    "world,text",
    [
        ((SLOWER_WORLD, SAME_TAIL), SLOWER_TEXT),
        ((), ""),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.PASS, now=5158.0, change=-0.01, reason=None),),
            "your baseline's own code runs at 0.99 of what was stored (rps −1.0 % from 5,210/s)",
        ),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.WORLD_UNCLEAR)),),
            "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s),"
            " which may be how sessions differ",
        ),
        (
            (replace(SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=Reason(kind=ReasonKind.SATURATED)),),
            "your baseline's own code runs at 0.83 of what was stored (rps −17.0 % from 5,210/s): the load generator"
            " was saturated, so this is its own speed and not the server's: use fewer connections, or"
            " more generators",
        ),
        (
            (replace(SAME_TAIL, outcome=Outcome.IMPROVED, now=0.0248, change=-0.2, reason=CHANGED),),
            "your baseline's own code has 0.80 times the stored p99 (p99 −20.0 % from 31.0 ms):"
            " the machine, packages or environment changed; changed packages: starlette 1.0 → 1.1",
        ),
    ],
)
def test_the_sentence_of_the_world(world: tuple[MetricComparison, ...], text: str) -> None:
    assert world_text(Verdict(world=world)) == text


# --- which code was measured again

NOT_FOUND = "the baseline's code is not in the Git repository; fetch-depth: 0"


def test_why_its_code_was_not_measured_again_is_said_once() -> None:
    reason = Reason(kind=ReasonKind.NO_CODE, text=NOT_FOUND)
    unclear = replace(PASSED, outcome=Outcome.INCONCLUSIVE, reason=reason)
    code_notes = (Note(kind=NoteKind.FIGURES_ONLY, texts=(NOT_FOUND,)),)
    for comparison, verbosity in ((unclear, 0), (unclear, 1), (PASSED, 0), (PASSED, 1)):
        shown = result(verdict=Verdict(comparisons=(comparison,), code_notes=code_notes))
        assert " ".join(on_terminal(shown, verbosity=verbosity).split()).count(NOT_FOUND) == 1
    with pytest.raises(NotMeasuredError) as raised:
        raise_for(result(verdict=Verdict(comparisons=(unclear,), code_notes=code_notes)), strict=True, ci=False)
    assert " ".join(str(raised.value).split()).count(NOT_FOUND) == 1


def test_without_v_it_is_said_once_for_all_tests_that_have_it() -> None:
    why = Note(kind=NoteKind.FIGURES_ONLY, texts=(NOT_FOUND,))
    weaker = [
        result(name, verdict=Verdict(comparisons=(PASSED,), code_notes=(why,)))
        for name in ("test_upload", "test_form", "test_list")
    ]
    text = terminal_report(session_record([*weaker, result("test_all", verdict=Verdict(comparisons=(PASSED,)))]))
    said = f"only stored figures compare in test_upload (and in 2 other tests): {NOT_FOUND}"
    assert " ".join(text.split()).count(said) == 1
    assert text.count("only stored figures") == 1
    wanted = result(verdict=Verdict(comparisons=(PASSED,), code_notes=(Note(kind=NoteKind.NEVER_CONFIRMED),)))
    assert "only stored" not in on_terminal(wanted)


# --- in the reports


def test_on_the_terminal_the_world_has_lines_of_its_own() -> None:
    text = on_terminal(in_turn(SLOWER_WORLD, SAME_TAIL), verbosity=1)
    world = (
        "  the world: your baseline's own code runs at 0.83 of what was stored (rps\n"
        "    −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms): the machine, packages or\n"
        "    environment changed, not your code; changed packages: starlette 1.0 → 1.1\n"
    )
    assert (
        "  rps  8,760/s → 8,200/s  −6.4 % [−7.1, −5.7]  tolerance 1.5 %  REGRESSED\n"
        f"  p99  30.6 ms → 30.8 ms  +0.6 % [−2.0, +3.3]  tolerance 10 %   PASS\n{world}"
    ) in text
    assert f"  {IN_TURN}\n" in text
    assert "against its baseline" not in text
    assert text.endswith("1 measured: 1 REGRESSED\n")
    assert on_terminal(in_turn(SLOWER_WORLD, SAME_TAIL)) == (
        "test_upload  8,200/s  p99 30.8 ms  REGRESSED\n"
        f"  rps  8,760/s → 8,200/s  −6.4 % [−7.1, −5.7]  tolerance 1.5 %  REGRESSED\n{world}"
        "[in brackets]: the interval of a change, at 90 % confidence\n"
    )


def test_without_v_a_world_as_it_was_is_not_shown() -> None:
    assert "the world" not in on_terminal(in_turn(SAME_TAIL))


def test_without_v_a_world_that_may_be_slower_is_shown_where_packages_changed() -> None:
    unclear = replace(
        SLOWER_WORLD, outcome=Outcome.INCONCLUSIVE, reason=replace(CHANGED, kind=ReasonKind.WORLD_UNCLEAR)
    )
    lines, _ = brief_report(session_record([in_turn(unclear)]), width=80)
    assert "changed packages: starlette 1.0 → 1.1" in " ".join("".join(lines).split())
    unchanged = replace(unclear, reason=Reason(kind=ReasonKind.WORLD_UNCLEAR, metric="rps"))
    lines, _ = brief_report(session_record([in_turn(unchanged)]), width=80)
    assert "the world" not in "".join(lines)


def test_where_the_code_is_the_same_only_the_world_has_figures() -> None:
    shown = result(verdict=Verdict(comparisons=(SAME,), world=(SLOWER_WORLD,), code_notes=(THE_SAME,)))
    text = on_terminal(shown, verbosity=1)
    assert "PASS rps: the code is that of the baseline" in text
    assert text.count("5,210/s") == 1
    assert "tolerance" not in text


def test_with_q_a_world_is_shown_of_failed_tests_only_where_it_is_slower() -> None:
    assert "the world" in on_terminal(in_turn(SLOWER_WORLD), verbosity=-1)
    assert "the world" not in on_terminal(in_turn(SAME_TAIL), verbosity=-1)


def test_the_short_summary_says_why_nothing_compares() -> None:
    other = Reason(kind=ReasonKind.OTHER_WORK, differences=("engine was replay, is client",))
    unknown = [
        replace(PASSED, metric=metric, outcome=Outcome.INCONCLUSIVE, change=None, reason=other)
        for metric in ("rps", "p99")
    ]
    unclear = replace(PASSED, metric="p50", outcome=Outcome.INCONCLUSIVE, base=0.017918, now=0.018006)
    shown = result(verdict=Verdict(comparisons=(*unknown, unclear)))
    assert undecided_lines("test_it.py::test_upload", [shown], width=80, colour=False) == [
        "INCONCLUSIVE test_it.py::test_upload - p50 +0.5 % [−1.1, +2.1], tolerance 5 %;",
        "  rps, p99: the baseline is of something else",
    ]


def test_the_message_of_a_regression_from_code_measured_in_turn() -> None:
    shown = in_turn(SLOWER_WORLD, SAME_TAIL, also=(NO_PACKAGES,))
    with pytest.raises(RegressionError) as raised:
        raise_for(with_limit(shown, THREAD_POOL), strict=False, ci=False)
    assert str(raised.value) == (
        "rps −6.4 % [−7.1, −5.7], worse than its baseline (1a2b3c4 of 2026-11-20)\n"
        "\n"
        "metric  baseline      now  change in % [90 %]  tolerance  outcome\n"
        "rps      8,760/s  8,200/s   −6.4 [−7.1, −5.7]      1.5 %  REGRESSED\n"
        "p99      30.6 ms  30.8 ms   +0.6 [−2.0, +3.3]       10 %  PASS\n"
        "\n"
        "limited by: thread pool\n"
        "the world: your baseline's own code runs at 0.83 of what was stored (rps\n"
        "  −17.0 % from 5,210/s, p99 +1.9 % from 31.0 ms): the machine, packages\n"
        "  or environment changed, not your code; changed packages: starlette 1.0\n"
        "  → 1.1\n"
        "its packages were not to be had\n"
        "if the new level is meant to stay, store it with --fileperf-update=all"
    )


def test_the_message_of_a_limit_shows_no_change_where_the_code_is_the_same() -> None:
    limit = LimitCheck(name="min_rps", metric="rps", limit=5000.0, value=4324.0, holds=False)
    with pytest.raises(LimitExceededError) as raised:
        raise_for(replace(result(), verdict=Verdict(comparisons=(SAME,), limits=(limit,))), strict=False, ci=False)
    assert "rps            –  4,324/s            –        3 %  PASS\n" in str(raised.value)


def test_the_json_file_has_both_questions() -> None:
    (told,) = json.loads(results_json(session_record([in_turn(SLOWER_WORLD)])))["results"]
    assert told["base"]["title"] == BASELINE
    assert told["verdict"]["code"] == IN_TURN
    assert told["verdict"]["world"] == [
        {
            "metric": "rps", "unit": "1/s", "outcome": "REGRESSED", "base": 5210.0, "now": 4324.0, "change": -0.17,
            "low": -0.2, "high": -0.14, "confidence": 0.9, "tolerance": 0.03, "typical": None, "detectable": None,
            "pairs": None, "after_requests": None,
            "reason": told["verdict"]["world"][0]["reason"],
        }
    ]  # fmt: skip
    assert "starlette 1.0 → 1.1" in told["verdict"]["world"][0]["reason"]
    assert IN_TURN in told["notes"]


def test_the_page_has_both_questions() -> None:
    page = results_html(session_record([in_turn(SLOWER_WORLD, SAME_TAIL)]))
    said = f"<b>the world</b>: {SLOWER_TEXT.replace(chr(39), '&#x27;')}"
    assert page.count(said) == 2, "below its row, and in its section"
    assert IN_TURN in page
