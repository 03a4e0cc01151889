"""Sizes and shares, in and out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import UsageError
from tamis.sizes import format_size, parse_fraction, parse_size


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        (1, 1),
        ("1", 1),
        ("2kB", 2_000),
        ("2 KiB", 2_048),
        ("512MB", 512_000_000),
        ("1.5GiB", 1_610_612_736),
        (" 2gb ", 2_000_000_000),
        ("1TB", 10**12),
        ("1TiB", 2**40),
        (".5k", 500),
        (1.9, 1),
        ("3b", 3),
        ("1m", 10**6),
    ],
)
def test_sizes_are_read(text: Any, n_bytes: int) -> None:
    assert parse_size(text) == n_bytes


@pytest.mark.parametrize(
    "text", ["", "x", "1 XB", "1e9", "-1", "0", "0.1b", 0, -5, True, None, [], float("nan"), float("inf"), "1..2", "GB"]
)
def test_everything_else_is_refused_with_its_name(text: Any) -> None:
    with pytest.raises(UsageError, match=r"^memory: "):
        parse_size(text, "memory")


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (1_234_567, "1.23 MB"),
        (12_345_678, "12.3 MB"),
        (123_456_789, "123 MB"),
        (2 * 10**9, "2 GB"),
        (10**12, "1 TB"),
        (-1536, "-1.54 kB"),
        (100_000_000, "100 MB"),
    ],
)
def test_sizes_are_printed_with_three_digits(n_bytes: int, text: str) -> None:
    assert format_size(n_bytes) == text


@given(st.integers(1, 10**14))
def test_what_is_printed_is_near_what_it_was(n_bytes: int) -> None:
    assert abs(parse_size(format_size(n_bytes)) - n_bytes) <= n_bytes * 0.0051


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), (0.5, 0.5), ("100 %", 1.0), (1, 1.0), ("0.25", 0.25)])
def test_shares_are_read(text: Any, share: float) -> None:
    assert parse_fraction(text) == share


@pytest.mark.parametrize("text", ["", "x", "0", "0%", "101%", -0.1, 2, "nan", "%"])
def test_other_shares_are_refused(text: Any) -> None:
    with pytest.raises(UsageError, match=r"^sample: "):
        parse_fraction(text, "sample")
