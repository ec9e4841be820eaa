"""Texts keep to the rules for words: each before and after is from this project's own texts."""

from __future__ import annotations

import pytest
from prose import EXCEPTIONS, RULES, Text, ceilings, hits_in, more_than_allowed, texts


def test_no_rule_is_broken_more_often_than_before() -> None:
    assert more_than_allowed() == []


def test_ceilings_are_for_rules_that_there_are() -> None:
    assert {rule for rules in ceilings().values() for rule in rules} <= RULES.keys()


@pytest.mark.parametrize(
    "rule,before,after",
    [
        (
            "headless",
            "Returns the names of what was not stored although that was asked for",
            "Returns the baselines that could not be stored",
        ),
        ("of", "the baseline is of another machine", "this baseline comes from another machine"),
        ("passive", "None if that is not told", "None on systems that do not report it"),
        ("where", "Where the noise hides it, run it longer.", "If the noise hides it, run it longer."),
        ("where", "empty where nothing was written", "empty if the server wrote nothing, not even its start"),
        (
            "uncommon",
            "the code is loaded in turn with yours",
            "the old and the new code are measured alternately",
        ),
        ("uncommon", "takes a minute at the most", "takes at most a minute"),
        ("no", "X is none: use a name", "X isn't a placeholder: use a name"),
        ("trailing", "The network is named, too.", "It even names the network."),
        (
            "private",
            "it takes 5 pairs of boots with answers on both sides",
            "at least 5 start-ups of each version must answer",
        ),
        (
            "long",
            "p99 may be worse by more than 3 % in one of these runs, but the noise of the machine hides it: give it a "
            "longer max_duration",
            'Too noisy to decide. It may be more than 3 % slower. Try max_duration="60s".',
        ),
        (
            "chain",
            "the app failed: no module of it: install it: then run it again",
            "app.py: no such file: check --app",
        ),
        ("repeats", "Returns the tally; empty where there is none.", "Counts answers since the last call."),
        ("repeats", "Returns the names of the tally.", "Returns the names in the order in which users wrote them."),
    ],
)
def test_a_rule_finds_the_sentence_before_and_not_the_one_after(rule: str, before: str, after: str) -> None:
    def found(words: str) -> set[str]:
        return {hit for hit, _ in hits_in(Text("message", "a.py", 1, words, "Tally names"))}

    assert rule in found(before)
    assert found(after) == set()


def test_each_exception_is_a_message() -> None:
    messages = [text.words for text in texts() if text.kind == "message"]
    assert [part for part in EXCEPTIONS if not any(part in words for words in messages)] == []
