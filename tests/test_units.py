"""Spelling of durations, sizes, rates and shares, both ways; and which addresses are this machine's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_fileperf.units import (
    format_bytes,
    format_change,
    format_duration,
    format_rate,
    format_share,
    is_loopback,
    parse_duration_ns,
    parse_share,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    "text,expected_ns",
    [
        ("250ns", 250),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("80ms", 80_000_000),
        ("10s", 10_000_000_000),
        ("0s", 0),
        ("1.5s", 1_500_000_000),
        (" 2 s ", 2_000_000_000),
        ("2m", 120_000_000_000),
        ("2min", 120_000_000_000),
        ("1h", 3_600_000_000_000),
        (10, 10_000_000_000),
        (0.08, 80_000_000),
        (0, 0),
    ],
)
def test_durations_are_read(text: str | float, expected_ns: int) -> None:
    assert parse_duration_ns(text) == expected_ns


@pytest.mark.parametrize("value", ["10x", "10", "", "s", "-1s", "1,5s", "1e3s", "1s2", "10 S", True])
def test_what_is_not_a_duration_is_refused_with_an_example(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"isn't a duration. Write .* as in \"80ms\""):
        parse_duration_ns(value)


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_a_duration_is_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite and not negative"):
        parse_duration_ns(value)


@pytest.mark.parametrize("value", ["9" * 400 + "s", "1000001h", 1e300, 10**400])
def test_a_duration_is_no_longer_than_a_clock_counts(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"is too long: a duration has at most 1,000,000 h"):
        parse_duration_ns(value)


@pytest.mark.parametrize(
    "text,expected_bytes",
    [
        ("0", 0),
        ("100", 100),
        ("100B", 100),
        ("1kB", 1_000),
        ("1KB", 1_000),
        ("256KiB", 262_144),
        ("256 KiB", 262_144),
        ("1.5KiB", 1_536),
        ("100MB", 100_000_000),
        ("1MiB", 1_048_576),
        ("2GB", 2_000_000_000),
        ("1GiB", 1_073_741_824),
        (4096, 4096),
    ],
)
def test_sizes_are_read(text: str | int, expected_bytes: int) -> None:
    assert parse_size_bytes(text) == expected_bytes


@pytest.mark.parametrize("value", ["256kib", "1TB", "", "MB", "-1", "1.5", "0.3KiB", -1, True])
def test_what_is_not_a_whole_size_is_refused_with_an_example(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"isn't a size. Write .* as in \"256KiB\""):
        parse_size_bytes(value)


@pytest.mark.parametrize("value", ["9" * 400, "99999999999GiB", 10**400])
def test_a_size_is_no_larger_than_a_file_can_be(value: str | int) -> None:
    with pytest.raises(ValueError, match=r"is too large: no file can have so many bytes"):
        parse_size_bytes(value)


@pytest.mark.parametrize(
    "text,expected", [("5%", 0.05), ("5 %", 0.05), ("0.05", 0.05), (0.05, 0.05), (0, 0.0), (1, 1.0)]
)
def test_shares_are_read(text: str | float, expected: float) -> None:
    assert parse_share(text) == pytest.approx(expected)


@pytest.mark.parametrize("value", ["5 percent", "-5%", "", "%", "9" * 400, -0.1, 10**400, float("nan"), True])
def test_what_is_not_a_share_is_refused_with_an_example(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"isn't a share. Write .* as in \"5%\""):
        parse_share(value)


@pytest.mark.parametrize(
    "duration_ns,expected",
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (999.6, "1.00 µs"),
        (1_000, "1.00 µs"),
        (9_994, "9.99 µs"),
        (9_996, "10.0 µs"),
        (99_960, "100 µs"),
        (812_000, "812 µs"),
        (999_600, "1.00 ms"),
        (5_020_000, "5.02 ms"),
        (1_200_000_000, "1.20 s"),
        (75_000_000_000, "75.0 s"),
        (7_200_000_000_000, "7200 s"),
    ],
)
def test_durations_are_shown_with_three_digits(duration_ns: float, expected: str) -> None:
    assert format_duration(duration_ns) == expected


@given(st.floats(min_value=1_000, max_value=999e9))
def test_a_shown_duration_reads_back_within_its_three_digits(duration_ns: float) -> None:
    text = format_duration(duration_ns)
    assert parse_duration_ns(text) == pytest.approx(duration_ns, rel=0.006)
    assert sum(character.isdigit() for character in text) == 3


@pytest.mark.parametrize(
    "size_bytes,expected",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (262_144, "256 KiB"),
        (1_048_575, "1024 KiB"),
        (1.5 * (1 << 30), "1.50 GiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(size_bytes: float, expected: str) -> None:
    assert format_bytes(size_bytes) == expected


@pytest.mark.parametrize(
    "per_second,expected",
    [
        (0, "0"),
        (0.004, "0.004"),
        (0.5, "0.500"),
        (9.97, "9.97"),
        (9.996, "10.0"),
        (99.96, "100"),
        (315, "315"),
        (12_200.4, "12,200"),
    ],
)
def test_rates_mark_their_thousands(per_second: float, expected: str) -> None:
    assert format_rate(per_second) == expected


@pytest.mark.parametrize(
    "share, text", [(0.0, "0 %"), (0.05, "5 %"), (0.125, "12.5 %"), (0.99996, "100 %"), (12.0, "1,200 %")]
)
def test_shares_are_percentages_of_at_most_three_digits(share: float, text: str) -> None:
    assert format_share(share) == text


@pytest.mark.parametrize("share, text", [(-0.064, "−6.4 %"), (0.021, "+2.1 %"), (1.2, "+120 %"), (98.4, "+9840 %")])
def test_changes_have_a_sign_and_a_true_minus(share: float, text: str) -> None:
    assert format_change(share) == text
    assert format_change(share, unit=False) == text.removesuffix(" %")


@pytest.mark.parametrize("share,factor", [(98.5, "100"), (99.0, "100"), (3099.0, "3,100"), (123_456.0, "123,000")])
def test_from_a_hundredfold_on_changes_are_factors(share: float, factor: str) -> None:
    assert format_change(share) == f"{factor} times"
    assert format_change(share, unit=False) == f"×{factor}"


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
