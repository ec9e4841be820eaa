from __future__ import annotations

import pytest

from pytest_fileperf.plan.network import is_loopback


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
