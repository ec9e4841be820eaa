"""Where load may go: to this machine, and nowhere else."""

from __future__ import annotations

import ipaddress

__all__ = ("is_loopback",)


def is_loopback(host: str) -> bool:
    """Returns whether the host is this machine by its name or number alone: no other name is looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
