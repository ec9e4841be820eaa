from __future__ import annotations

import pytest

from pytest_fileperf.plan.network import Network
from pytest_fileperf.units import is_loopback


@pytest.mark.parametrize(
    "host, ours",
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("localhost.example.org", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("192.168.1.1", False),
        ("::ffff:10.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, ours: bool) -> None:
    assert is_loopback(host) is ours


@pytest.mark.parametrize(
    "host, allowed, looked_up",
    [
        ("127.0.0.1", True, False),
        ("localhost", True, False),
        ("10.0.0.5", True, False),
        ("10.0.0.6", False, False),
        ("fd00::0:1", True, False),
        ("files.test", False, True),
    ],
)
def test_load_may_go_to_what_is_named(host: str, allowed: bool, looked_up: bool) -> None:
    network = Network(addresses=frozenset({"10.0.0.5", "fd00::1"}))
    assert (network.allows(host), network.looks_up(host)) == (allowed, looked_up)
    assert not Network().looks_up(host)


def test_another_machine_s_own_services_are_not_named_by_anybody() -> None:
    there = Network(addresses=frozenset({"10.0.0.5"}), loopback=False)
    assert [there.allows(host) for host in ("127.0.0.1", "::1", "localhost", "10.0.0.5")] == [False, False, False, True]
