"""What the command line and the ini file say of networks: where servers listen, and where load may go."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import replace

from pytest_fileperf.plan.network import LOOPBACK, Network, Reach
from pytest_fileperf.serve.spec import ServerSpec, Url

__all__ = ("read_network", "server_problems")

_BROADCAST = "255.255.255.255"
_WRITE = "write an address as in 10.0.0.5, or a name, without a port"
_NUMERIC = re.compile(r"[0-9]*|0[xX][0-9a-fA-F]*")


def read_network(
    *, option_host: str | None, option_allowed: Iterable[str] | None, ini_host: object, ini_allowed: object
) -> tuple[Network, tuple[str, ...]]:
    """Returns what options say, else the ini values, and everything that is wrong with it.

    Names are looked up once, here: a name that leads elsewhere later lets no load go there.
    """
    given, spelling = (option_allowed, "--fileperf-allow-host={}")
    if given is None:
        given, spelling = _lines(ini_allowed), "fileperf_allow_host = {}"
    allowed: set[str] = set()
    problems = []
    for name in given:
        try:
            allowed |= _addresses(name)
        except ValueError as error:
            problems.append(f"{spelling.format(name)}: {error}")
    host, where = option_host, f"--fileperf-host={option_host}"
    if host is None and ini_host is not None:
        host, where = str(ini_host), f"fileperf_host = {ini_host}"
    network = Network(host=host or LOOPBACK, reach=Reach(addresses=frozenset(allowed)))
    if host is not None and (problem := _problem_of(host, network)):
        problems.append(f"{where}: {problem}")
        network = replace(network, host=LOOPBACK)
    return network, tuple(problems)


def server_problems(server: ServerSpec, network: Network) -> tuple[str, ...]:
    """Returns why no load may go to a server that runs already, as far as its address tells that."""
    problem = network.problem_of(server.url) if isinstance(server, Url) else None
    return () if problem is None else (f"server: {problem}",)


def _lines(ini: object) -> list[str]:
    return [str(line).strip() for line in ini] if isinstance(ini, list) else []


def _addresses(name: str) -> set[str]:
    """Returns the addresses of a name, or the one that it is. Raises ValueError."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        pass
    else:
        if problem := _unfit(address):
            raise ValueError(problem)
        return {str(address)}
    # What ends in a number is an address to the system, and not the one that a reader sees: 010.0.0.1 is 8.0.0.1.
    if not name or any(char in name for char in "/:@ *%") or _NUMERIC.fullmatch(name.rstrip(".").rpartition(".")[2]):
        raise ValueError(_WRITE)
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label of it is empty, or too long
        raise ValueError(_WRITE) from error
    except OSError as error:
        raise ValueError(f"there is no such host ({error.strerror or error})") from error
    return {str(each[4][0]) for each in found}


def _unfit(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    """Returns why the address is not that of one machine, wherever it is used."""
    if address.is_unspecified or address.is_multicast or str(address) == _BROADCAST:
        return "it is not the address of one machine"
    if address.is_link_local and address.version == 6:
        return "a link-local address means another machine on each link: name another one"
    return None


def _problem_of(host: str, network: Network) -> str | None:
    """Returns why servers cannot listen there, and be loaded."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "write an address of this machine, as in 10.0.0.5"
    if address.is_unspecified:
        return "write the one address at which servers are reached, as in 10.0.0.5"
    if problem := _unfit(address):
        return problem
    if not network.reach.allows(host):
        return f"load would go there, which has to be said: add --fileperf-allow-host={host}"
    return None
