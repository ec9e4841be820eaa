"""What a server holds more of, request by request: which growth lasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from measure.recordings import SECOND, round_of, use

from pytest_fileperf.host.sample import Sample
from pytest_fileperf.measure.growth import Growth, growth_of, joined

MIB = 1 << 20
LOOKS = 17


def seen(
    files: Callable[[float], float] = lambda _: 20,
    memory: Callable[[float], float] = lambda _: 50 * MIB,
    pids: Sequence[int] = (1,) * LOOKS,
) -> list[Sample]:
    """Returns looks in a second; what is held depends on the share of it that is over."""
    return [
        Sample(
            at_ns=round(SECOND * (1 + share)),
            server=(use(pids[at], threads=3, files=round(files(share)), rss_bytes=round(memory(share))),),
        )
        for at, share in enumerate(number / (LOOKS - 1) for number in range(LOOKS))
    ]


def grown(samples: Sequence[Sample], *, limit: int | None = 1024) -> Growth | None:
    """Returns the growth over a second of 1,000 requests."""
    halves = [
        round_of(requests=500, start_ns=start_ns, length_ns=SECOND // 2) for start_ns in (SECOND, SECOND * 3 // 2)
    ]
    return growth_of(samples, halves, connections=4, files_limit=limit)


COURSES: Mapping[str, tuple[list[Sample], frozenset[str]]] = {
    "nothing grows": (seen(), frozenset()),
    "a file for each request": (seen(files=lambda share: 20 + 900 * share), frozenset({"open_files"})),
    "a file for fifty requests": (seen(files=lambda share: 20 + 20 * share), frozenset({"open_files"})),
    "some files": (seen(files=lambda share: 20 + 10 * share), frozenset()),
    "a cache of files that is full": (seen(files=lambda share: 20 + min(200.0, 300 * share)), frozenset()),
    "files that are closed now and then": (seen(files=lambda share: 20 + 400 * (3 * share % 1)), frozenset()),
    "memory": (seen(memory=lambda share: (50 + 10 * share) * MIB), frozenset({"memory_bytes"})),
    "memory in the first half": (seen(memory=lambda share: (50 + 20 * min(0.5, share)) * MIB), frozenset()),
    "less and less memory": (seen(memory=lambda share: (50 + 20 * (1 - (1 - share) ** 3)) * MIB), frozenset()),
    "a little memory": (seen(memory=lambda share: (50 + 3 * share) * MIB), frozenset()),
}


@pytest.mark.parametrize("samples, lasting", COURSES.values(), ids=COURSES)
def test_growth_lasts_if_it_goes_on_to_the_end(samples: list[Sample], lasting: frozenset[str]) -> None:
    found = grown(samples)
    assert found is not None
    assert found.lasting == lasting


def test_growth_is_for_each_request() -> None:
    found = grown(seen(files=lambda share: 20 + 900 * share, memory=lambda share: 50 * MIB + 9_967_000 * share))
    assert found is not None
    assert found.open_files == pytest.approx(0.9)
    assert found.memory_bytes == pytest.approx(9_967, rel=0.001)
    assert found.threads == 0


def test_files_grow_until_the_limit_that_is_reached() -> None:
    found, before = (grown(seen(files=files)) for files in (lambda share: min(1024, 20 + 2000 * share), lambda _: 1023))
    assert found is not None
    assert (found.files_limit, found.lasting) == (1024, frozenset({"open_files"}))
    assert found.open_files == pytest.approx(2.0, rel=0.05)
    assert before is not None
    assert (before.files_limit, before.open_files) == (1024, None)
    assert grown(seen(pids=(1,) * 9 + (2,) * 8)) is None, "processes came and went"


def test_several_start_ups_have_a_mean_and_what_lasts_in_nearly_all() -> None:
    one = Growth(requests=100, open_files=1.0, lasting=frozenset({"open_files"}))
    other = Growth(requests=300, open_files=0.0)
    assert joined([one, one, None]) == Growth(requests=200, open_files=1.0, lasting=frozenset({"open_files"}))
    assert joined([one, other]) == Growth(requests=400, open_files=0.25)
    assert joined([None]) is None
