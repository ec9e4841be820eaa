"""What the first requests of a comparison tell of a side that answers none of them well."""

from __future__ import annotations

import pytest

from pytest_fileperf.measure.histogram import EMPTY
from pytest_fileperf.measure.recording import Failure, Phase, Round
from pytest_fileperf.session.comparison import Answer, answer_of, described, kinds_of


def round_of(*kinds: str, statuses: tuple[int, ...] = (), requests: int = 0) -> Round:
    return Round(
        boot=0,
        index=0,
        phase=Phase.ROUND,
        started_ns=0,
        ended_ns=1,
        requests=requests,
        latency=EMPTY,
        ttfb=EMPTY,
        bytes_sent=0,
        bytes_received=0,
        statuses=tuple((status, 5) for status in statuses),
        failures=tuple(Failure(kind=kind, count=9 - at, example="an\n example") for at, kind in enumerate(kinds)),
        server_cpu_ns=None,
        client_cpu_ns=0,
    )


@pytest.mark.parametrize(
    "round_, answer",
    [
        (round_of(), Answer.GOOD),
        (round_of("status 500", statuses=(200, 500), requests=1), Answer.GOOD),
        *((round_of(f"status {status}", statuses=(status,)), Answer.MISSING) for status in (404, 405, 410, 501)),
        # Frameworks differ in what they answer to parameters and bodies that they do not know.
        *((round_of(f"status {status}", statuses=(status,)), Answer.MISSING) for status in (400, 415, 422)),
        (round_of("status 404", "status 405", statuses=(404, 405)), Answer.MISSING),
        # A journey's assertion about an answer, or what it looked for in it.
        (round_of("assertion", statuses=(404,)), Answer.MISSING),
        (round_of("KeyError", statuses=(422,)), Answer.MISSING),
        *((round_of(f"status {status}", statuses=(status,)), Answer.OTHER) for status in (200, 302, 401, 403, 429)),
        (round_of("size", statuses=(200,)), Answer.OTHER),
        (round_of("assertion", statuses=(200,)), Answer.OTHER),
        (round_of("status 404", "size", statuses=(200, 404)), Answer.OTHER),
        *((round_of(f"status {status}", statuses=(status,)), Answer.BROKEN) for status in (500, 502, 503, 504)),
        *((round_of(kind), Answer.BROKEN) for kind in ("timeout", "disconnected", "connect", "protocol", "cancelled")),
        (round_of("status 404", "status 500", statuses=(404, 500)), Answer.BROKEN),
        (round_of("status 404", "timeout", statuses=(404,)), Answer.BROKEN),
        (round_of("assertion", statuses=(500,)), Answer.BROKEN),
    ],
)
def test_only_some_answers_say_that_there_is_no_such_endpoint(round_: Round, answer: Answer) -> None:
    assert answer_of([round_of(), round_]) is answer


def test_failures_are_described_by_kind_with_an_example() -> None:
    rounds = [round_of("timeout"), round_of("status 404", "timeout")]
    assert kinds_of(rounds) == "timeout, status 404"
    assert described(rounds) == "timeout (an example); status 404 (an example)"
