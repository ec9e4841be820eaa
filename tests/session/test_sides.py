"""Where and how both sides of a comparison boot: on fake servers, and on cores that are only numbers."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from session.fakes import App, Host, Server

from pytest_fileperf.errors import ServerDiedError
from pytest_fileperf.plan.alternation import Side
from pytest_fileperf.serve.app import AppSpec
from pytest_fileperf.serve.builds import Builds
from pytest_fileperf.serve.spec import Command, ServerSpec, Uvicorn
from pytest_fileperf.session.planning import ServerPlan
from pytest_fileperf.session.sides import Absent, Base, Sides
from pytest_fileperf.versions.tree import CodeTree

TITLE = "main (1a2b3c4)"
SERVER, GENERATOR, OTHER = frozenset({1}), frozenset({0}), frozenset({0, 1})
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux moves processes with their threads")


class Turned(random.Random):
    """Chance that turns everything round, or nothing."""

    def __init__(self, turned: bool) -> None:
        super().__init__(0)
        self._turned = turned

    def sample(self, population, k, *, counts=None):  # type: ignore[no-untyped-def]
        drawn = list(population)
        return drawn[::-1] if self._turned else drawn


@pytest.fixture
def base(tmp_path: Path) -> Base:
    for tree in ("here", "base"):
        (tmp_path / tree).mkdir()
    code_tree = CodeTree(title=TITLE, here=tmp_path / "here", there=tmp_path / "base")
    return Base(title=TITLE, code_tree=code_tree)


def sides_of(host: Host, base: Base, spec: ServerSpec | None = None, chance: random.Random | None = None) -> Sides:
    plan = ServerPlan(spec=spec or Uvicorn(), app=AppSpec("compared_app:app"), cores=SERVER, generator_cores=GENERATOR)
    return Sides(base, plan, builds=Builds(), machine=host.machine, chance=chance or random.Random(1))


def pairs_of(sides: Sides, count: int = 3) -> list[tuple[Server, Server]]:
    """Boots so many pairs; returns their servers, base and now."""
    made = []
    for number in range(count):
        with sides.booted(number) as servers:
            assert not isinstance(servers, Absent)
            base, now = servers
            assert isinstance(base, Server)
            assert isinstance(now, Server)
            assert not base.is_over
            assert not now.is_over
            made.append((base, now))
    return made


def booted_on(host: Host) -> list[dict[Side, frozenset[int] | None]]:
    """Returns where the sides of each pair booted."""
    in_order = [(asked.side, asked.cores) for asked in host.booted]
    return [dict(in_order[place : place + 2]) for place in range(0, len(in_order), 2)]


@linux
@pytest.mark.parametrize("turned", [False, True])
def test_sides_boot_on_different_cores_by_chance_and_serve_on_the_same(turned: bool, base: Base) -> None:
    host = Host()
    pairs = pairs_of(sides_of(host, base, chance=Turned(turned)))

    first, second = (GENERATOR, SERVER) if turned else (SERVER, GENERATOR)
    assert booted_on(host) == [{Side.BASE: first, Side.NOW: second}] * 3
    assert {server.cores for pair in pairs for server in pair} == {SERVER}
    assert all(server.is_over for pair in pairs for server in pair)


@linux
@pytest.mark.parametrize("stuck", Side)
def test_sides_that_cannot_be_moved_boot_on_the_same_core(stuck: Side, base: Base) -> None:
    stays = App(stays=True)
    host = Host(base=stays if stuck is Side.BASE else App(), now=stays if stuck is Side.NOW else App())
    pairs = pairs_of(sides_of(host, base))

    first, *others = booted_on(host)
    assert set(first.values()) == {SERVER, GENERATOR}
    assert others == [{Side.BASE: SERVER, Side.NOW: SERVER}] * 3
    assert {server.cores for pair in pairs for server in pair} == {SERVER}
    assert all(server.is_over for server in host.servers)


@linux
def test_apps_that_choose_their_cores_have_them_on_both_sides(base: Base) -> None:
    chooses = App(own_cores=OTHER)
    host = Host(base=chooses, now=chooses)
    pairs = pairs_of(sides_of(host, base))

    assert booted_on(host)[1:] == [{Side.BASE: SERVER, Side.NOW: SERVER}] * 3
    assert {server.cores for pair in pairs for server in pair} == {OTHER}


@linux
@pytest.mark.parametrize("dying", Side)
def test_a_side_that_dies_before_it_is_moved_is_named(dying: Side, base: Base) -> None:
    dies = App(dies_when_moved=True)
    host = Host(base=dies if dying is Side.BASE else App(), now=dies if dying is Side.NOW else App())
    with pytest.raises(ServerDiedError, match="ended with exit status 3") as raised:
        pairs_of(sides_of(host, base))
    assert str(raised.value).startswith(f"{TITLE}: ") is (dying is Side.BASE)
    assert all(server.is_over for server in host.servers)


def test_programs_of_their_own_boot_where_they_serve(base: Base) -> None:
    assert base.code_tree.here is not None
    assert base.code_tree.there is not None
    for tree in (base.code_tree.here, base.code_tree.there):
        (tree / "serve.py").touch()
    program = Command(f"{{python}} {base.code_tree.here / 'serve.py'} --port {{port}}")
    host = Host()
    pairs_of(sides_of(host, base, program))
    assert booted_on(host) == [{Side.BASE: SERVER, Side.NOW: SERVER}] * 3


def test_both_boots_of_a_pair_have_one_number_and_pairs_count_on(base: Base) -> None:
    host = Host()
    pairs_of(sides_of(host, base))
    first = host.booted[0].boot
    assert [asked.boot for asked in host.booted] == [first, first, first + 1, first + 1, first + 2, first + 2]


def test_a_base_without_the_app_is_absent_and_nothing_is_left(base: Base) -> None:
    host = Host(base=App(missing=True))
    with sides_of(host, base).booted(0) as servers:
        assert isinstance(servers, Absent)
        assert (servers.side, servers.app) == (Side.BASE, True)
    assert all(server.is_over for server in host.servers)
