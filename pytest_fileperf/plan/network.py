"""Where load may go: to this machine, and nowhere else."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from pytest_fileperf.plan.hidden import without_queries

__all__ = ("is_loopback", "url_problem")


def is_loopback(host: str) -> bool:
    """Returns whether the host is this machine by its name or number alone: no other name is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_problem(url: str) -> str | None:
    """Returns why the text is not the address of a server on this machine; None where it is one."""
    parts, shown = urlsplit(url), without_queries(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return f"{shown!r} is not a server's address: write it like http://127.0.0.1:8000"
    try:
        port_problem = None if parts.port != 0 else "0 is no port"
    except ValueError as error:
        port_problem = str(error)
    if port_problem:
        return f"{shown!r} is not a server's address: {port_problem}"
    if parts.query or parts.fragment or parts.username is not None:
        return f"{shown!r} must end with its host, port or path: no user name, query or fragment"
    if not is_loopback(parts.hostname):
        return f"{shown!r} is not on this machine: load only goes to this machine (127.0.0.0/8, ::1 or localhost)"
    return None
