"""Parses and formats durations (integer nanoseconds), sizes (integer bytes), rates, shares and counts."""

from __future__ import annotations

import math
import re
import signal
import sys
from collections.abc import Sequence

_DURATION_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "min": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_SIZE_UNITS_BYTES = {
    "": 1,
    "B": 1,
    "kB": 1000,
    "KB": 1000,
    "KiB": 1 << 10,
    "MB": 1000**2,
    "MiB": 1 << 20,
    "GB": 1000**3,
    "GiB": 1 << 30,
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-zµ%]*)\s*")


def _split(text: str) -> tuple[float, str] | None:
    match = _QUANTITY.fullmatch(text)
    return (float(match[1]), match[2]) if match else None


def parse_duration_ns(value: str | float) -> int:
    """Returns the nanoseconds in `"80ms"`, `"10s"`, `"2m"` or a number of seconds, up to a million hours.

    Raises ValueError.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < math.inf:
            raise ValueError(f"{value!r} isn't a duration: it must be finite and not negative")
        duration_ns = value * 1_000_000_000
    else:
        parts = _split(value) if isinstance(value, str) else None
        if parts is None or parts[1] not in _DURATION_UNITS_NS:
            raise ValueError(f'{value!r} isn\'t a duration. Write a number and ns, us, ms, s, m or h, as in "80ms"')
        duration_ns = parts[0] * _DURATION_UNITS_NS[parts[1]]
    if duration_ns > 3_600_000_000_000_000_000:  # fits into 63 bits, even when added to an instant
        raise ValueError(f"{value!r} is too long: a duration has at most 1,000,000 h")
    return round(duration_ns)


def parse_size_bytes(value: str | int) -> int:
    """Returns the bytes in `"256KiB"`, `"100MB"` or a whole number of bytes. Raises ValueError."""
    size_bytes: float | None = None
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        size_bytes = value
    elif (parts := _split(value) if isinstance(value, str) else None) and parts[1] in _SIZE_UNITS_BYTES:
        size_bytes = parts[0] * _SIZE_UNITS_BYTES[parts[1]]
    if size_bytes is not None and size_bytes > (1 << 63) - 1:
        raise ValueError(f"{value!r} is too large: no file can have so many bytes")
    if size_bytes is None or round(size_bytes) != size_bytes:
        raise ValueError(f'{value!r} isn\'t a size. Write a number and B, kB, KiB, MB, MiB, GB or GiB, as in "256KiB"')
    return round(size_bytes)


def parse_share(value: str | float) -> float:
    """Returns 0.05 for `"5%"` or `0.05`. Raises ValueError for anything that isn't a share of 0 or more."""
    share: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = value
    elif (parts := _split(value) if isinstance(value, str) else None) and parts[1] in ("%", ""):
        share = parts[0] / 100 if parts[1] == "%" else parts[0]
    if share is None or not 0 <= share <= sys.float_info.max:
        raise ValueError(f'{value!r} isn\'t a share. Write a percentage or a fraction, as in "5%" or 0.05')
    return float(share)


def _three_digits(number: float) -> str:
    if number >= 999.5:
        return f"{number:.0f}"
    rounded = float(f"{number:.3g}")
    digits = 2 - math.floor(math.log10(rounded)) if rounded >= 0.01 else 3
    return f"{rounded:.{digits}f}"


def format_duration(duration_ns: float) -> str:
    """Returns three digits and a unit: `812 µs`, `5.02 ms`, `1.20 s`."""
    for unit, size_ns in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if duration_ns >= size_ns * 0.9995:
            return f"{_three_digits(duration_ns / size_ns)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_bytes(size_bytes: float) -> str:
    """Returns three digits and a binary unit: `256 KiB`, `1.50 GiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= size:
            return f"{_three_digits(size_bytes / size)} {unit}"
    return f"{size_bytes:.0f} B"


def format_rate(per_second: float) -> str:
    """Returns `12,200`, `315`, `9.97` or `0`."""
    if per_second == 0:
        return "0"
    return f"{per_second:,.0f}" if per_second >= 100 else _three_digits(per_second)


def as_share(ratio: float) -> float:
    """Returns the share for a ratio's logarithm: `math.log(1.05)` gives 0.05, which means 5 % more."""
    return math.expm1(max(-700.0, min(ratio, 700.0)))


def format_share(share: float) -> str:
    """Returns at most three digits: `5 %`, `0.113 %`, `0 %`."""
    return f"{share * 100:.3g} %" if share < 9.995 else f"{share * 100:,.0f} %"


def format_change(share: float, *, unit: bool = True) -> str:
    """Returns a relative change: `−6.4 %`, `+120 %` or `3,100 times`. Without `unit`: `−6.4`, `+120` or `×3,100`."""
    if share >= 98.5:
        factor = f"{float(f'{1 + share:.3g}'):,.0f}"
        return f"{factor} times" if unit else f"×{factor}"
    percent = 100 * share
    text = f"{percent:+.{1 if abs(percent) < 99.95 else 0}f}"
    return text.replace("-", "−") + " %" * unit


def format_count(count: int, noun: str) -> str:
    """Returns `1 run` or `1,200 runs`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def format_names(names: Sequence[str], *, most: int = 5) -> str:
    """Returns the first `most` names, and the number of further names: `a, b, c, d, e and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def printable(text: str) -> str:
    """Returns the text with `�` for each unprintable character, which might move the cursor or colour text."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def exit_text(returncode: int) -> str:
    """Returns `exit code 3` or `signal SIGKILL`."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {signal.Signals(-returncode).name}"
    except ValueError:
        return f"signal {-returncode}"


def is_loopback(host: str) -> bool:
    """Returns whether `host` is `localhost` or a loopback address. Asks no DNS."""
    import ipaddress  # late, because pytest runs without --fileperf import this module

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
