"""Mixes: whose turn it is, and what parts a load has."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from pytest_fileperf.plan.feed import Requests
from pytest_fileperf.plan.request import Journey, Operation
from pytest_fileperf.plan.work import Mix, Part, in_smoke, parts_of, turns, with_value


async def journey(client: object, made: object) -> None:
    return None


GET = Operation(method="GET", url="/a")
ROWS = Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda made: [made])
PARTS = (
    Part(name="get", work=GET),
    Part(
        name="rows", work=Requests(recipes=(Operation(method="GET", url="/{id}"),), make=lambda made: [made]), weight=9
    ),
    Part(name="walk", work=Journey(name="journey", function=journey, takes_value=True), weight=2),
)
MIX = Mix(parts=PARTS)


@pytest.mark.parametrize(
    "weights,counts",
    [
        ([1], [10_000]),
        ([1, 9], [1000, 9000]),
        ([0.5, 0.25, 0.25], [5000, 2500, 2500]),
        ([3, 3, 3], [3334, 3333, 3333]),
        ([1, 2, 4], [1428, 2858, 5714]),
        ([0.1, 99.9], [10, 9990]),
        ([1, 123_456], [10, 9990]),
    ],
)
def test_turns_are_as_weights_say(weights: list[float], counts: list[int]) -> None:
    seen = Counter(islice(turns(weights), 10_000))
    assert [seen[place] for place in range(len(weights))] == pytest.approx(counts, abs=10)


def test_turns_are_spread_evenly() -> None:
    assert list(islice(turns([1, 1, 2]), 8)) == [2, 0, 1, 2, 2, 0, 1, 2]


def test_a_mix_has_its_parts_and_a_plain_load_has_none() -> None:
    assert parts_of(MIX) == PARTS
    assert parts_of(GET) == ()
    assert parts_of(Requests(recipes=(GET,))) == ()


def test_requests_are_parts_by_their_names() -> None:
    recipes = tuple(Operation(method="GET", url=f"/{place}") for place in range(3))
    found = parts_of(Requests(recipes=recipes, names=("a", "b", "a"), uses=(0, 1, 2)))
    assert [(part.name, part.work, part.gate) for part in found] == [("a", recipes[0], ()), ("b", recipes[1], ())]


def test_every_part_gets_what_the_setup_returned() -> None:
    mix = with_value(MIX, "x")
    assert isinstance(mix, Mix)
    _, rows, walk = mix.parts
    assert isinstance(rows.work, Requests)
    assert isinstance(walk.work, Journey)
    assert rows.work.columns == {"id": ("x",)}
    assert walk.work.arguments == ("x",)


def test_the_identity_has_all_parts_and_weights() -> None:
    assert [part["name"] for part in MIX.identity()["mix"]] == ["get", "rows", "walk"]  # type: ignore[attr-defined]
    assert MIX.identity() != in_smoke(MIX).identity()
    assert MIX.name == "mix of get, rows, walk"
