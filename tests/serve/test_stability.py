"""What a boot asks for to be stable, and what it says it got."""

from __future__ import annotations

import pytest

from pytest_fileperf.serve import stability


def test_the_seed_is_a_function_of_the_boot() -> None:
    assert [stability.hash_seed(boot) for boot in range(3)] == ["1", "2", "3"]


def test_the_allocator_is_set_only_where_it_is_glibc_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stability, "_is_glibc", lambda: False)
    assert stability.stabilising_env(0) == {"PYTHONHASHSEED": "1"}
    monkeypatch.setattr(stability, "_is_glibc", lambda: True)
    assert stability.stabilising_env(0)["MALLOC_ARENA_MAX"] == "1"


STATES = {
    "all asked for": ({}, True, ("hash seed", "allocator")),
    "random seed": ({"PYTHONHASHSEED": "random"}, True, ("allocator",)),
    "musl": ({}, False, ("hash seed",)),
    "another allocator": ({"LD_PRELOAD": "/usr/lib/libjemalloc.so.2"}, True, ("hash seed",)),
    "another setting": ({"MALLOC_ARENA_MAX": "2"}, True, ("hash seed",)),
}


@pytest.mark.parametrize("env,glibc,held", STATES.values(), ids=STATES)
def test_what_holds_is_looked_up(
    env: dict[str, str], glibc: bool, held: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stability, "_is_glibc", lambda: True)
    for name, value in {"LD_PRELOAD": "", **stability.stabilising_env(0), **env}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stability, "_is_glibc", lambda: glibc)
    monkeypatch.setattr(stability, "_has_fixed_addresses", lambda: False)
    assert stability.stabilised_now() == held
