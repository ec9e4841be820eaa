"""Every reason of an outcome has its sentence."""

from __future__ import annotations

import pytest

from pytest_fileperf.judge.verdict import Reason, ReasonKind
from pytest_fileperf.measure.usage import Busy
from pytest_fileperf.report.wording import sentence


@pytest.mark.parametrize("kind", ReasonKind)
@pytest.mark.parametrize("jump", [None, ((98.5, 0.005), (99.5, 0.025))])
def test_every_kind_is_said_in_one_line_with_its_facts(kind: ReasonKind, jump: tuple[tuple[float, float], ...]) -> None:
    reason = Reason(
        kind=kind,
        metric="p99",
        side="base",
        count=120,
        needed=299,
        total=1200,
        share=0.05,
        tolerance=0.07,
        together=3.0,
        jump=(jump[0], jump[1]) if jump else None,
        differences=("cores was 2, is 4",),
        busy=Busy(server=0.3),
        text="it is so",
        day="2026-01-02",
    )
    text = sentence(reason)
    assert text == text.strip()
    assert len(text) > 5
    assert not set("{}\n") & set(text)


@pytest.mark.parametrize(
    "together, said", [(1.04, "some slow ones"), (2.0, "about 2 slow ones"), (15.3, "about 15 slow ones")]
)
def test_how_many_slow_requests_come_together_is_said_of_several(together: float, said: str) -> None:
    reason = Reason(kind=ReasonKind.PAIRS_CLUSTERED, metric="p99", count=912, together=together)
    assert sentence(reason).startswith(f"p99 cannot be told of 912 requests a side, as {said} come together: ")


def test_no_reason_needs_no_words() -> None:
    assert sentence(None) == ""
    assert sentence(Reason(kind=ReasonKind.SINCE_BASELINE)) == ""


def test_what_a_user_said_is_shown_as_it_is() -> None:
    assert sentence(Reason(kind=ReasonKind.ABSENT, text="{count} of {nothing}")) == "{count} of {nothing}"
