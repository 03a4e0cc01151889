"""record_lines against scan_records: the same records wherever all of them are objects."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.records.json_scan import OK, scan_records
from tamis.kernels.records.record_lines import record_lines
from tests.reference import json_fuzz
from tests.support.limits import examples

LINES = st.sampled_from(
    [
        b"{}",
        b'{"a":1}',
        b' {"a":"}"} ',
        b'{"text":"' + b"x" * 70 + b'"}\t',
        b"",
        b" ",
        b"\t\r",
        b"\r",
        b'{"b":[{}]}\r',
    ]
)


def check(data: bytes) -> bool:
    """Whether the lines were found; they are those of the scanner."""
    buf = np.frombuffer(data, np.uint8)
    found, wanted = record_lines(buf), scan_records(buf, [], 1 << 40)
    if found is None:
        assert bool((wanted.status != OK).any())
        return False
    start, end, n_blank = found
    assert (start.tolist(), end.tolist(), n_blank) == (wanted.start.tolist(), wanted.end.tolist(), wanted.n_blank)
    return True


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(LINES, max_size=12), st.booleans())
def test_valid_records_are_where_the_scanner_finds_them(lines: list[bytes], final: bool) -> None:
    assert check(b"\n".join(lines) + (b"\n" if final else b""))


@pytest.mark.parametrize("data", [b"[1]\n", b'{"a":1}\nnull\n', b'{"a":1', b'"{}"', b"}{"])
def test_a_line_that_is_no_object_is_noticed(data: bytes) -> None:
    assert not check(data)


def test_mutated_records() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        record = rng.choice(json_fuzz.SEEDS)
        check(b"{}\n" + (json_fuzz.mutate(rng, record) if rng.random() < 0.7 else record) + b"\n{}\n")
