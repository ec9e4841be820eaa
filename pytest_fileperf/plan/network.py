"""Addresses to which load may go: this machine, and addresses that the user has allowed."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pytest_fileperf.plan.request import without_queries
from pytest_fileperf.units import is_loopback

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How clients reach a server, besides its URL. It is sent to remote load generators, so it has no private key."""

    uds: str | None = None
    """The path of the server's Unix socket; None for a port."""
    trusted: str | bool = True
    """The certificate to trust, as PEM. True: the authorities that httpx trusts. False: any certificate."""
    is_own: bool = False
    """Whether the plugin made the server's certificate, which may then name another host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The addresses to which load may go."""

    host: str = LOOPBACK
    """This machine's address for the servers that it starts."""
    addresses: frozenset[str] = frozenset()
    """Allowed IP addresses besides the loopback ones."""
    loopback: bool = True
    """Whether load may go to 127.0.0.0/8, ::1 and localhost. On a remote machine these addresses mean the remote
    machine itself."""

    def allows(self, host: str) -> bool:
        """Returns whether load may go to this host. Names other than localhost must be looked up first."""
        return self.loopback if is_loopback(host) else _number(host) in self.addresses

    def looks_up(self, host: str) -> bool:
        """Returns whether to look up the host: it is a name, and its address may be allowed."""
        return bool(self.addresses) and host != "localhost" and _number(host) is None

    def problem_of(self, url: str) -> str | None:
        """Returns why no load may go to this URL. None if load may, or if the URL's host must be looked up."""
        host = "localhost" if unix_socket(url) else urlsplit(url).hostname or ""
        if self.allows(host) or self.looks_up(host):
            return None
        return f"{without_queries(url)!r} isn't on this machine: {refusal(host)}"


LOCAL = Network()


def _number(host: str) -> str | None:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def refusal(host: str) -> str:
    return (
        "load goes only to this machine (127.0.0.0/8, ::1 or localhost) and to allowed addresses. To allow "
        f"this one, add --fileperf-allow-host={host or 'ADDRESS'}"
    )


URL_STARTS = ("http://", "https://", "http+unix://", "https+unix://")


def unix_socket(url: str) -> str | None:
    """Returns `/run/app.sock` for `http+unix://%2Frun%2Fapp.sock`; None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.netloc) if parts.scheme.endswith("+unix") else None


def host_in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def url_problem(url: str) -> str | None:
    """Returns why `url` is not a server's address; None if it is."""
    parts, shown, uds = urlsplit(url), without_queries(url), unix_socket(url)
    if uds is not None and not uds.startswith("/"):
        return f"{shown!r} names no Unix socket. Write its full path, like http+unix://%2Frun%2Fapp.sock"
    if f"{parts.scheme}://" not in URL_STARTS or not parts.hostname:
        return f"{shown!r} is not a server's address: write it like http://127.0.0.1:8000"
    try:
        port_problem = None if parts.port != 0 else "0 isn't a port"
    except ValueError as error:
        port_problem = str(error)
    if port_problem:
        return f"{shown!r} is not a server's address: {port_problem}"
    if parts.query or parts.fragment or parts.username is not None:
        return f"{shown!r} must end with its host, port or path, without user name, query or fragment"
    return None
