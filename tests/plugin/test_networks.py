"""Where servers listen, and where load may go, as options and ini values say it."""

from __future__ import annotations

import socket

import pytest

from pytest_fileperf.plan.network import Network
from pytest_fileperf.plugin.invocation import read_network, server_problems
from pytest_fileperf.serve.spec import Url, Uvicorn


def read(
    host: str | None = None, allowed: list[str] | None = None, ini_host: object = None, ini_allowed: object = None
) -> tuple[Network, tuple[str, ...]]:
    return read_network(option_host=host, option_allowed=allowed, ini_host=ini_host, ini_allowed=ini_allowed)


@pytest.mark.parametrize(
    "network, found",
    [
        (read(), Network()),
        (read("127.0.0.2"), Network(host="127.0.0.2")),
        (read("::1"), Network(host="::1")),
        (read("10.0.0.5", ["10.0.0.5"]), Network(host="10.0.0.5", addresses=frozenset({"10.0.0.5"}))),
        (read(None, ["10.0.0.5", "fd00::0:1"]), Network(addresses=frozenset({"10.0.0.5", "fd00::1"}))),
        (
            read(ini_host="10.0.0.5", ini_allowed=["10.0.0.5"]),
            Network(host="10.0.0.5", addresses=frozenset({"10.0.0.5"})),
        ),
        (read(allowed=["10.0.0.6"], ini_allowed=["10.0.0.5"]), Network(addresses=frozenset({"10.0.0.6"}))),
    ],
)
def test_addresses_are_taken_as_they_are(network: tuple[Network, tuple[str, ...]], found: Network) -> None:
    assert network == (found, ())


@pytest.mark.parametrize(
    "network, problem",
    [
        (read("10.0.0.5"), "--fileperf-host=10.0.0.5: load would go there, which has to be said: add "
         "--fileperf-allow-host=10.0.0.5"),
        (read("::"), "--fileperf-host=::: write the one address at which servers are reached, as in 10.0.0.5"),
        (read("files"), "--fileperf-host=files: write an address of this machine, as in 10.0.0.5"),
        (read(ini_host="files"), "fileperf_host = files: write an address of this machine, as in 10.0.0.5"),
        (read(None, ["10.0.0.0/8"]), "--fileperf-allow-host=10.0.0.0/8: write an address as in 10.0.0.5, or a name, "
         "without a port"),
        (read(None, ["10.0.0.5:80"]), "--fileperf-allow-host=10.0.0.5:80: write an address as in 10.0.0.5, or a name, "
         "without a port"),
        (read(None, ["*"]), "--fileperf-allow-host=*: write an address as in 10.0.0.5, or a name, without a port"),
        (read(None, [""]), "--fileperf-allow-host=: write an address as in 10.0.0.5, or a name, without a port"),
        (read(None, ["0.0.0.0"]), "--fileperf-allow-host=0.0.0.0: it is not the address of one machine"),
        (read(None, ["255.255.255.255"]), "--fileperf-allow-host=255.255.255.255: it is not the address of one "
         "machine"),
        (read(None, ["010.0.0.1"]), "--fileperf-allow-host=010.0.0.1: write an address as in 10.0.0.5, or a name, "
         "without a port"),
        (read(None, ["127.1"]), "--fileperf-allow-host=127.1: write an address as in 10.0.0.5, or a name, without a "
         "port"),
        (read(None, ["0x7f.0x1"]), "--fileperf-allow-host=0x7f.0x1: write an address as in 10.0.0.5, or a name, "
         "without a port"),
        (read(None, ["fe80::1%lo"]), "--fileperf-allow-host=fe80::1%lo: a link-local address means another machine on "
         "each link: name another one"),
        (read(None, ["224.0.0.1"]), "--fileperf-allow-host=224.0.0.1: it is not the address of one machine"),
        (read(None, ["a..b"]), "--fileperf-allow-host=a..b: write an address as in 10.0.0.5, or a name, without a "
         "port"),
        (read(None, ["a" * 64]), f"--fileperf-allow-host={'a' * 64}: write an address as in 10.0.0.5, or a name, "
         "without a port"),
        (read("fe80::1"), "--fileperf-host=fe80::1: a link-local address means another machine on each link: name "
         "another one"),
        (read("224.0.0.1"), "--fileperf-host=224.0.0.1: it is not the address of one machine"),
        (read("255.255.255.255"), "--fileperf-host=255.255.255.255: it is not the address of one machine"),
        (read(ini_allowed=["::"]), "fileperf_allow_host = ::: it is not the address of one machine"),
    ],
)  # fmt: skip
def test_what_is_no_address_is_told(network: tuple[Network, tuple[str, ...]], problem: str) -> None:
    assert network[1] == (problem,)
    assert network[0].host == "127.0.0.1"


def test_a_name_is_looked_up_once_and_stands_for_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        if host != "files.test":
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", (address, 0)) for address in ("10.0.0.5", "10.0.0.6")]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    assert read(None, ["files.test"]) == (Network(addresses=frozenset({"10.0.0.5", "10.0.0.6"})), ())
    _, (problem,) = read(None, ["other.test"])
    assert problem == "--fileperf-allow-host=other.test: there is no such host (Name or service not known)"


@pytest.mark.parametrize(
    "url, allowed, is_fine",
    [
        ("http://127.0.0.1:8000", (), True),
        ("http://localhost:8000", (), True),
        ("http://[::1]:8000", (), True),
        ("http://10.0.0.5:8000", (), False),
        ("http://10.0.0.5:8000", ("10.0.0.5",), True),
        ("http://10.0.0.6:8000", ("10.0.0.5",), False),
        ("http://files.test", (), False),
        ("http://files.test", ("10.0.0.5",), True),  # where it leads is seen when it is looked up
        ("http://127.0.0.1.example.org", (), False),
    ],
)
def test_a_server_elsewhere_has_to_be_allowed(url: str, allowed: tuple[str, ...], is_fine: bool) -> None:
    problems = server_problems(Url(url), Network(addresses=frozenset(allowed)))
    assert (problems == ()) is is_fine
    if not is_fine:
        assert "is not on this machine: load only goes to this machine" in problems[0]
        assert "--fileperf-allow-host=" in problems[0]
    assert server_problems(Uvicorn(), Network()) == ()
